"""Partition selection: which groups appear, where that must not reveal whether any one user is in them.

A group with n users appears with the largest probability that (epsilon, delta)-DP allows. It starts at delta for one
user and grows as fast as allowed until it is 1 (Desfontaines, Voss, Gipson & Mandayam 2022, "Differentially private
partition selection", Thm 1). All probabilities are whole multiples of 2^-bits that satisfy the two inequalities
exactly.
Proof: proofs/groups.md, Lemma 1.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from hubermean.data.group_table import GroupTable
from hubermean.distributions.output import SelectedPartitions

_SPARE_BITS = 40
_GROWTH_BITS = 60
_LARGEST_EPSILON = 40.0  # for any larger epsilon a second user is enough
MOST_COUNTED = 200_000
"""Larger groups appear with the probability of this many users, which is below 1 only for a tiny epsilon."""


@dataclass(frozen=True, kw_only=True)
class PartitionSelection:
    """The selection rule; adding a user to a group or removing one costs (epsilon, delta)."""

    epsilon: Fraction
    delta: Fraction

    @property
    def bits(self) -> int:
        return math.ceil(-math.log2(self.delta)) + _SPARE_BITS

    @cached_property
    def passes(self) -> tuple[int, ...]:
        """The probability to appear with 0, 1, 2, ... users, times 2^bits; the last entry is for all larger numbers."""
        whole = 1 << self.bits
        start = math.floor(self.delta * whole)
        # e^epsilon, rounded down, which makes the inequalities stricter: by more than the rounding of an exponent of up
        # to 40 and of the function.
        growth = math.exp(min(float(self.epsilon), _LARGEST_EPSILON)) * (1.0 - 2.0**-45)
        factor = max(math.floor(Fraction(growth) * (1 << _GROWTH_BITS)), 1 << _GROWTH_BITS)
        chances = [0]
        while chances[-1] < whole and len(chances) <= MOST_COUNTED:
            last = chances[-1]
            # p' <= e^epsilon p + delta, and 1 - p <= e^epsilon (1 - p') + delta.
            rising = ((last * factor) >> _GROWTH_BITS) + start
            missing = max(whole - last - start, 0)
            falling = whole + (-(missing << _GROWTH_BITS)) // factor
            chances.append(min(rising, falling, whole))
        return tuple(chances)

    def probability(self, users: int) -> float:
        """The probability that a group of this many users appears."""
        return self.passes[min(users, len(self.passes) - 1)] / (1 << self.bits)

    @property
    def usual_users(self) -> int:
        """The number of users from which on a group appears more often than not."""
        return bisect.bisect_right(self.passes, 1 << (self.bits - 1))

    def distribution(self, table: GroupTable) -> SelectedPartitions:
        last = len(self.passes) - 1
        counts = table.users_per_group().tolist()
        chances = {key: self.passes[min(users, last)] for key, users in zip(table.keys, counts, strict=True)}
        return SelectedPartitions(chances=chances, bits=self.bits)
