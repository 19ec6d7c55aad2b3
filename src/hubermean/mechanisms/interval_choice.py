"""The first stage of `winsorized`: bins of a public width, and how many users lie beside each.

Levy et al. (2021), PrivateRange. Bins of width 2 tau cover the public range; the cost of a bin is the larger of
the numbers of users in bins to its left and to its right, least around the median; an exponential mechanism
picks one. Everything is an integer on the public grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubermean.laws import Choice
from hubermean.user_table import IntArray


@dataclass(frozen=True, kw_only=True)
class Bins:
    """`count` bins of width 2 * half_width, symmetric about zero, in grid units."""

    half_width: int
    count: int

    @classmethod
    def covering(cls, reach: Fraction, half_width: int) -> Bins:
        """As few bins as cover [-reach, reach]."""
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

    def costs(self, values: IntArray) -> tuple[IntArray, IntArray]:
        """(costs, sizes): the cost of every bin, from left to right, as runs of bins of equal cost.

        Formal guarantees:
        - at most 2 n + 1 runs, whatever the number of bins;
        - every cost changes by at most one when one value is replaced, added or removed
          (proofs/winsorized.md, Lemma 1).
        """
        held, users = np.unique(self.indices(values), return_counts=True)
        up_to = np.concatenate([[0], np.cumsum(users)])  # users in the first so many bins that hold any
        total = int(up_to[-1])
        # Odd runs are the bins that hold users, even runs the empty bins before, between and after them.
        costs = np.empty(2 * len(held) + 1, dtype=np.int64)
        sizes = np.ones_like(costs)
        costs[0::2] = np.maximum(up_to, total - up_to)
        costs[1::2] = np.maximum(up_to[:-1], total - up_to[1:])
        sizes[0::2] = np.diff(np.concatenate([[-1], held, [self.count]])) - 1
        return costs[sizes > 0], sizes[sizes > 0]

    def law(self, values: IntArray, rate: Fraction) -> Choice:
        """A bin, by number, with probability proportional to exp(-rate * cost)."""
        costs, sizes = self.costs(values)
        return Choice(costs=costs, sizes=sizes, rate=rate)
