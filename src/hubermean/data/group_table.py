"""The private table of a grouped release, and exact totals per group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.fixed_point import BLOCK, ExactIntegers, ExactSums
from hubermean.data.user_table import UserTable, check_user_count

GroupKey = tuple[Any, ...]
"""One value per group column."""

_LIMB_BITS = 26
_LIMB_MASK = (1 << _LIMB_BITS) - 1
_MAX_BLOCK = 1 << _LIMB_BITS  # a double holds the exact sum of this many 26-bit numbers
_EXACT = 2**53  # doubles hold all integers up to this


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
        members: one entry per user and group; no user has more entries than the bound on its groups, if there is one.
        membership: the group of each entry.
        owners: the user of each entry, as a number below `n_owners`. Numbers are given in no particular order.
        n_owners: number of users in the data, those in no group included, who own no entry.
    """

    by: tuple[str, ...]
    keys: tuple[GroupKey, ...]
    members: UserTable
    membership: Membership
    owners: IntArray
    n_owners: int

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

    def users(self) -> UserTable:
        """Return the table of all users, in the order of their numbers: each with its totals over its groups here.

        Formal guarantee: the entry of a user is a function of that user's records alone. It holds exact integers, which
        the order of entries cannot change, over the groups that the user counts in; groups that are not in this table
        add nothing. A user in no group has no usable records.
        """
        shares = np.bincount(self.owners, minlength=self.n_owners)
        most = int(shares.max(initial=0))
        return UserTable(
            columns=self.members.columns,
            sums=tuple(self._add_up(sums, most) for sums in self.members.sums),
            counts=self._add_up_integers(self.members.counts, most),
            records=self._add_up_integers(self.members.records, most),
            max_local_users=self.members.max_local_users,
        )

    def pad_users(self, n_users: int) -> GroupTable:
        """Return the table with `n_users` users; the added ones are in no group.

        Raises:
            InputError: the table has more users.
        """
        check_user_count(self.n_owners, n_users)
        return replace(self, n_owners=n_users)

    def _add_up(self, sums: ExactSums, most: int) -> ExactSums:
        low = self._add_up_exactly(sums.low, most)
        if sums.high is None:
            return ExactSums(encoding=sums.encoding, low=low)
        return ExactSums.from_parts(sums.encoding, self._add_up_exactly(sums.high, most), low)

    def _add_up_exactly(self, numbers: ExactIntegers, most: int) -> ExactIntegers:
        """Return the totals of integers per user, of whom none has more than `most` entries."""
        found = self._add_up_small(numbers.small, most)
        if not numbers.large:
            return found
        totals: dict[int, int] = {}
        for position, value in numbers.large.items():
            owner = int(self.owners[position])
            totals[owner] = totals.get(owner, found[owner]) + value
        small, large = found.small, dict(found.large)
        for owner, total in totals.items():
            large.pop(owner, None)
            small[owner] = total if -(2**63) <= total < 2**63 else 0
            if small[owner] != total:
                large[owner] = total
        return ExactIntegers(small, large)

    def _add_up_small(self, numbers: IntArray, most: int) -> ExactIntegers:
        reach = max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))
        if reach * most <= _EXACT:
            return ExactIntegers(
                np.bincount(self.owners, weights=numbers, minlength=self.n_owners).astype(np.int64), {}
            )
        totals = Totals(Membership(groups=self.owners, size=self.n_owners))
        for start in range(0, len(numbers), _MAX_BLOCK):
            totals.add(numbers[start : start + _MAX_BLOCK], start)
        return totals.exact()

    def _add_up_integers(self, counts: IntArray, most: int) -> IntArray:
        """Return totals of numbers of records, which fit 64 bits: nobody has more records than the data."""
        return self._add_up_small(counts, most).small

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

    def exact(self) -> ExactIntegers:
        """Return the totals as an array, one per group."""
        low, middle, high = self._limbs
        totals = (high << (2 * _LIMB_BITS)) + (middle << _LIMB_BITS) + low  # modulo 2^64
        size = high * 2.0 ** (2 * _LIMB_BITS) + middle * 2.0**_LIMB_BITS + low
        large = {}
        for place in np.flatnonzero(np.abs(size) > 2.0**62).tolist():
            total = (
                (int(high[place]) << (2 * _LIMB_BITS)) + (int(middle[place]) << _LIMB_BITS) + int(low[place])
            )
            if totals[place] != total:
                totals[place], large[place] = 0, total
        return ExactIntegers(totals, large)


def _exact_bincount(groups: IntArray, parts: IntArray, size: int) -> IntArray:
    """Return sums per group; exact, since at most 2^26 numbers below 2^26 in magnitude are added."""
    if not parts.any():
        return np.zeros(size, dtype=np.int64)
    return np.bincount(groups, weights=parts, minlength=size).astype(np.int64)
