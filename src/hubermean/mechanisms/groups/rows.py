"""The rows of users over groups: their norms, and exact clipping of each row to a bound on its norm.

A user's row has one entry for each of its groups, for example its records there times the distance of their mean from a
released center. Clipping scales a whole row down until its norm is at most the bound, so one user moves the sums of all
groups together by at most the bound, however many groups it is in.

**Formal guarantees** (proofs/groups.md, Lemmas 4 and 5)
- The clipped row of a user is a vector of integers with a norm of at most `ROW_UNITS`, and a function of that user's
  entries alone: sums over them are exact, so neither their order nor other users matter.
- Squares of clipped entries, divided by `ROW_UNITS` and rounded down, add up to at most `ROW_UNITS` over a row.
- Whether a row is longer than a distance of the grid is a function of that user's entries alone.

| edge case | what happens |
|---|---|
| an entry that is not a number | 0 |
| an entry beyond 1,024 bounds | counts as 1,024 bounds before the row is scaled |
| a user in more than 2^23 groups | its row is 0 |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.group_table import Membership, Totals
from hubermean.data.user_table import UserTable
from hubermean.searches.bounds import DISTANCES

Norm = Literal["L1", "L2"]

ROW_UNITS = 1 << 30
"""The bound on the norm of a clipped row, in units of the integers that are added up."""

NORM_GRID: FloatArray = DISTANCES[:88]
"""The public grid of norms, in units of the search."""

_FINE = 16.0  # parts of a unit in which norms are compared with the grid
_LARGEST_PART = 2.0**26
_PRECISION = 2.0**20  # parts of a bound in which the norm of a row is measured
_LARGEST_ENTRY = 2.0**10  # bounds
_LIMB = 30
_MOST_ENTRIES = 2**23
# More than the roundings of a quotient, a root and a product.
_BELOW_ONE = 1.0 - 2.0**-40


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserRows:
    """The entries of all users, by user and group; private.

    Attributes:
        members: one entry per user and group.
        owners: the number of the user of each entry, below `n_owners`.
        groups: the number of the group of each entry, below `n_groups`.
    """

    members: UserTable
    owners: IntArray
    n_owners: int
    groups: IntArray
    n_groups: int

    def weights(self, cap: int | None) -> FloatArray:
        """Return the number of records of each entry, at most the cap: with a cap of 1, whether it has any."""
        counts = self.members.counts if cap is None else np.minimum(self.members.counts, cap)
        return counts.astype(np.float64)

    @np.errstate(all="ignore")
    def count_longer(self, entries: FloatArray, *, unit: float, norm: Norm) -> IntArray:
        """Return how many rows have a norm above each distance of `NORM_GRID` times the unit.

        Norms are taken of entries rounded up to sixteenths of a unit. Sums of these integers are exact in floats below
        2^53, which is beyond the grid, and no sum that exceeds it comes out smaller.
        """
        parts = np.ceil(np.minimum(_magnitudes(entries) * (_FINE / unit), _LARGEST_PART))
        if norm == "L2":
            parts *= parts
        sums = np.bincount(self.owners, weights=parts, minlength=self.n_owners)
        limits = (NORM_GRID * _FINE) ** (2.0 if norm == "L2" else 1.0)
        within = np.searchsorted(np.sort(sums), limits, side="right")
        longer: IntArray = self.n_owners - np.asarray(within, dtype=np.int64)
        return longer

    @np.errstate(all="ignore")  # a warning that is turned into an error would depend on the data
    def clip(self, entries: FloatArray, *, bound: float, norm: Norm) -> IntArray:
        """Return the entries as integers, rows clipped to the bound: `ROW_UNITS` stand for it."""
        sizes = np.minimum(_magnitudes(entries) / bound, _LARGEST_ENTRY)
        factors = self._factors(np.ceil(sizes * _PRECISION), norm)
        sizes *= factors[self.owners]
        clipped = np.trunc(sizes * ROW_UNITS).astype(np.int64)
        signed: IntArray = np.where(entries < 0.0, -clipped, clipped)
        return signed

    def _factors(self, parts: FloatArray, norm: Norm) -> FloatArray:
        """Return what the row of each user is multiplied by; `parts` are whole numbers up to 2^30, rounded up."""

        def add(numbers: FloatArray) -> FloatArray:  # exact for up to 2^23 numbers below 2^30 per user
            return np.bincount(self.owners, weights=numbers, minlength=self.n_owners).astype(np.float64)

        if norm == "L1":
            lengths = add(parts)
        else:
            squares = parts.astype(np.int64) ** 2
            low = add((squares & ((1 << _LIMB) - 1)).astype(np.float64))
            high = add((squares >> _LIMB).astype(np.float64))
            lengths = np.sqrt(high * float(1 << _LIMB) + low)
        factors = np.ones(self.n_owners)
        np.divide(_PRECISION * _BELOW_ONE, lengths, out=factors, where=lengths > _PRECISION)
        if len(self.owners) > _MOST_ENTRIES:
            factors[np.bincount(self.owners, minlength=self.n_owners) > _MOST_ENTRIES] = 0.0
        return factors

    def totals(self, numbers: IntArray) -> list[int]:
        """Return the exact sum per group."""
        totals = Totals(membership := Membership(groups=self.groups, size=self.n_groups))
        for start in range(0, len(numbers), membership.block):
            totals.add(numbers[start : start + membership.block], start)
        return totals.integers()


def _magnitudes(entries: FloatArray) -> FloatArray:
    sizes = np.abs(entries)
    sizes[np.isnan(sizes)] = 0.0
    return sizes
