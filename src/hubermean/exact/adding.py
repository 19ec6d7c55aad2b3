"""Exact totals of many integers, for everyone together or group by group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubermean.exact.sums import BLOCK, IntArray

_LIMB = 26
_LOW = (1 << _LIMB) - 1
_MOST_AT_A_TIME = 1 << _LIMB  # so many numbers of 26 bits add up exactly in a float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Membership:
    """Which of `size` groups each entry of a table belongs to; private, and not shown."""

    groups: IntArray
    size: int

    @property
    def block(self) -> int:
        """Entries worked on at a time: many enough that going through all groups for each block costs little."""
        return min(max(BLOCK, 4 * self.size), _MOST_AT_A_TIME)


class Totals:
    """Adds up 64-bit integers without ever rounding; `membership` None stands for one group of all."""

    def __init__(self, membership: Membership | None) -> None:
        self._membership = membership
        size = 1 if membership is None else membership.size
        self._everyone = 0
        self._limbs = [np.zeros(size, dtype=np.int64) for _ in range(3)]

    def add(self, numbers: IntArray, start: int) -> None:
        """Add the numbers of the entries from `start` on, at most a block of them."""
        if self._membership is None:
            self._everyone += int(numbers.sum())
            return
        owners = self._membership.groups[start : start + len(numbers)]
        parts = (numbers & _LOW, (numbers >> _LIMB) & _LOW, numbers >> (2 * _LIMB))
        for limb, part in zip(self._limbs, parts, strict=True):
            limb += _exact_bincount(owners, part, len(limb))

    def integers(self) -> list[int]:
        """The totals, one per group."""
        if self._membership is None:
            return [self._everyone]
        low, middle, high = (limb.tolist() for limb in self._limbs)
        return [(c << (2 * _LIMB)) + (b << _LIMB) + a for a, b, c in zip(low, middle, high, strict=True)]


def _exact_bincount(owners: IntArray, parts: IntArray, size: int) -> NDArray[np.int64]:
    """Sums per owner; exact, since at most 2^26 numbers below 2^26 in magnitude are added."""
    if not parts.any():
        return np.zeros(size, dtype=np.int64)
    return np.bincount(owners, weights=parts, minlength=size).astype(np.int64)
