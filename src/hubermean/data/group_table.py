"""The private table of a grouped release, and exact totals per group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.fixed_point import BLOCK
from hubermean.data.user_table import UserTable

GroupKey = tuple[Any, ...]
"""One value per group column."""

_LIMB_BITS = 26
_LIMB_MASK = (1 << _LIMB_BITS) - 1
_MAX_BLOCK = 1 << _LIMB_BITS  # a double holds the exact sum of this many 26-bit numbers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Membership:
    """The group of each entry of a table, as a number below `size`. Private."""

    groups: IntArray
    size: int

    @property
    def block(self) -> int:
        """Number of entries to process at a time: large enough that a pass over all groups per block costs little."""
        return min(max(BLOCK, 4 * self.size), _MAX_BLOCK)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupTable:
    """Sums and counts of each user in each of its groups. Private, except for `keys` where groups are public.

    Attributes:
        by: names of the group columns.
        keys: the groups: all public ones, in the caller's order, or those that occur, in any order.
        members: one entry per user and group; no user has more entries than the bound on its groups.
        membership: the group of each entry.
        pool: one entry per user, of one of its groups, with users in no group; None unless it was requested.
    """

    by: tuple[str, ...]
    keys: tuple[GroupKey, ...]
    members: UserTable
    membership: Membership
    pool: UserTable | None = None

    def users_per_group(self) -> IntArray:
        """Return the number of users in each group, with or without usable records."""
        return np.bincount(self.membership.groups, minlength=self.membership.size).astype(np.int64)

    def tables(self) -> Iterator[UserTable]:
        """Yield the table of each group, in the order of the keys."""
        order = np.argsort(self.membership.groups, kind="stable")
        ends = np.cumsum(self.users_per_group())
        start = 0
        for end in ends.tolist():
            yield self.members.take(order[start:end])
            start = end

    def __repr__(self) -> str:
        return f"GroupTable(by={self.by!r}, private contents not shown)"


class Totals:
    """Exact totals of 64-bit integers per group; without a membership, of all entries."""

    def __init__(self, membership: Membership | None) -> None:
        self._membership = membership
        size = 1 if membership is None else membership.size
        self._total = 0
        self._limbs = [np.zeros(size, dtype=np.int64) for _ in range(3)]

    def add(self, numbers: IntArray, start: int) -> None:
        """Add the numbers of the entries from `start` on, at most `Membership.block` of them."""
        if self._membership is None:
            self._total += int(numbers.sum())
            return
        groups = self._membership.groups[start : start + len(numbers)]
        parts = (
            numbers & _LIMB_MASK,
            (numbers >> _LIMB_BITS) & _LIMB_MASK,
            numbers >> (2 * _LIMB_BITS),
        )
        for limb, part in zip(self._limbs, parts, strict=True):
            limb += _exact_bincount(groups, part, len(limb))

    def integers(self) -> list[int]:
        """Return the totals, one per group."""
        if self._membership is None:
            return [self._total]
        low, middle, high = (limb.tolist() for limb in self._limbs)
        return [
            (c << (2 * _LIMB_BITS)) + (b << _LIMB_BITS) + a for a, b, c in zip(low, middle, high, strict=True)
        ]


def _exact_bincount(groups: IntArray, parts: IntArray, size: int) -> IntArray:
    """Return sums per group; exact, since at most 2^26 numbers below 2^26 in magnitude are added."""
    if not parts.any():
        return np.zeros(size, dtype=np.int64)
    return np.bincount(groups, weights=parts, minlength=size).astype(np.int64)
