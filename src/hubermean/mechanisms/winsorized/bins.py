"""The first stage of `winsorized`: bins of a public width, and the cost of each.

Levy et al. (2021), PrivateRange. Bins of width 2 tau cover the public range. The cost of a bin is the larger of the
numbers of users in bins to its left and to its right, which is least around the median; an exponential mechanism
selects one. Everything is an integer on the public grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.distributions.output import ExponentialMechanism
from hubermean.searches.positions import SortedPositions, UserPositions

_LOST_MASS = 40.0
_FINENESS = 1 << 11
_FEW = 1 << 16  # occupied bins that are collected from all partitions
_NEVER = 1 << 61


@dataclass(frozen=True, kw_only=True)
class Bins:
    """`count` bins of width 2 * half_width, symmetric about zero, in grid units."""

    half_width: int
    count: int

    @classmethod
    def covering(cls, reach: Fraction, half_width: int) -> Bins:
        """The fewest bins that cover [-reach, reach]."""
        return cls(
            half_width=half_width, count=max(-(-reach.numerator // (reach.denominator * half_width)), 1)
        )

    def midpoint(self, index: int) -> int:
        return (2 * index + 1 - self.count) * self.half_width

    def indices(self, values: IntArray) -> IntArray:
        """Each value's bin; values beyond the range belong to the outermost bins."""
        shifted = values + self.count * self.half_width
        shifted //= 2 * self.half_width
        return np.clip(shifted, 0, self.count - 1, out=shifted)

    def costs(self, positions: UserPositions, *, beyond: int) -> tuple[IntArray, IntArray]:
        """(costs, sizes): the cost of every bin, from left to right, as runs of bins of equal cost.

        `positions` holds the users at the indices of their bins, each with a weight of one. Costs that exceed the least
        cost by more than `beyond` are lowered to that.

        Formal guarantees:
        - at most 4 * beyond + 9 runs, and at most 2 n + 1, whatever the number of bins;
        - every cost changes by at most one when one value is replaced, added or removed
          (proofs/winsorized.md, Lemma 1).
        """
        central = self._central_bins(positions, beyond)
        held, left, total = central.bins, central.left, central.total
        # Users left of each bin that holds some.
        up_to = left + np.concatenate([[0], np.cumsum(central.users)])
        # Odd runs are the bins that hold users, even runs the empty bins before, between and after them.
        costs = np.empty(2 * len(held) + 1, dtype=np.int64)
        sizes = np.ones_like(costs)
        costs[0::2] = np.maximum(up_to, total - up_to)
        costs[1::2] = np.maximum(up_to[:-1], total - up_to[1:])
        sizes[0::2] = np.diff(np.concatenate([[central.first - 1], held, [central.last + 1]])) - 1
        costs, sizes = costs[sizes > 0], sizes[sizes > 0]
        # Bins outside the central ones cost more than can be distinguished.
        most = int(costs.min()) + beyond
        costs = np.concatenate([[most], np.minimum(costs, most), [most]])
        sizes = np.concatenate([[central.first], sizes, [self.count - 1 - central.last]])
        costs, sizes = costs[sizes > 0], sizes[sizes > 0]
        starts = np.flatnonzero(np.diff(costs, prepend=-1) != 0)
        return costs[starts], np.add.reduceat(sizes, starts)

    def _central_bins(self, positions: UserPositions, beyond: int) -> CentralBins:
        """Central bins that contain all whose costs are distinguished; narrowed until few enough of them hold users."""
        first, last, left, right = 0, self.count - 1, 0, 0
        few = max(_FEW, 8 * beyond)
        while True:
            inner = positions.between(first, last)
            quantiles = inner.quantiles(_FINENESS)
            marks, total = quantiles.marks, left + quantiles.total + right
            lows = np.concatenate([np.full(len(marks), first), marks])
            up_to, here = np.split(inner.within(lows, np.concatenate([marks, marks])), 2)
            before, after = left + up_to - here, right + quantiles.total - up_to
            most = int(np.maximum(before, after).min(initial=total)) + beyond
            # Bins up to a mark with `most` users after it, and from a mark with `most` users before it, cost the most.
            low, high = int((after >= most).sum()), len(marks) - int((before >= most).sum())
            loose = quantiles.total - int(here.sum()) if len(marks) else 0
            if low > 0:
                left = int(left + up_to[low - 1])
                first = int(marks[low - 1]) + 1
            if high < len(marks):
                right = int(right + quantiles.total - up_to[high] + here[high])
                last = int(marks[high]) - 1
            shrunk = low > 0 or high < len(marks)
            if loose + len(marks) <= few or not shrunk:
                bins, users = positions.between(first, last).places()
                return CentralBins(first=first, last=last, left=left, total=total, bins=bins, users=users)

    def positions(self, values: IntArray) -> SortedPositions:
        """The users at the indices of their bins."""
        return SortedPositions(self.indices(values))

    def distribution(self, positions: UserPositions, rate: Fraction) -> ExponentialMechanism:
        """A bin, by index, with probability proportional to exp(-rate * cost)."""
        # The bins that are not distinguished together have probability about e^-40.
        nats = math.log(self.count) + _LOST_MASS
        beyond = _NEVER if rate == 0 else min(math.ceil(Fraction(nats) / rate), _NEVER)
        costs, sizes = self.costs(positions, beyond=beyond)
        return ExponentialMechanism(costs=costs, sizes=sizes, rate=rate)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CentralBins:
    """Bins `first` to `last`: those of them that hold users, and how many users; `left` users lie before the first."""

    first: int
    last: int
    left: int
    total: int
    bins: IntArray
    users: IntArray
