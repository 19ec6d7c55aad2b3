"""Which groups appear, where that must not tell whether any one user is in them.

A group with n users appears with the largest probability that (epsilon, delta)-DP allows: it starts at delta for one
user and grows as fast as it may until it is certain (Desfontaines, Voss, Gipson & Mandayam 2022, "Differentially
private partition selection", Thm 1). All probabilities are whole multiples of 2^-bits that satisfy the two inequalities
exactly. Proof: proofs/groups.md, Lemma 1.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from hubermean.group_table import GroupTable
from hubermean.laws import Selection

_SPARE_BITS = 40
_GROWTH_BITS = 60
_LARGEST_EPSILON = 40.0  # beyond, a second user decides whatever epsilon is
MOST_COUNTED = 200_000
"""Larger groups appear as those of so many users do; only with a tiny epsilon is that not certain."""


@dataclass(frozen=True, kw_only=True)
class KeySelection:
    """The rule, for one user added to or removed from a group at the price (epsilon, delta)."""

    epsilon: Fraction
    delta: Fraction

    @property
    def bits(self) -> int:
        return math.ceil(-math.log2(self.delta)) + _SPARE_BITS

    @cached_property
    def passes(self) -> tuple[int, ...]:
        """For 0, 1, 2, ... users the chance to appear, times 2^bits; the last stands for all larger numbers."""
        whole = 1 << self.bits
        start = math.floor(self.delta * whole)
        # e^epsilon, rounded down, which only makes the inequalities stricter: by more than the rounding of an exponent
        # of up to 40 and of the function.
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

    def chance(self, users: int) -> float:
        """With which probability a group of so many users appears."""
        return self.passes[min(users, len(self.passes) - 1)] / (1 << self.bits)

    @property
    def usual_users(self) -> int:
        """From how many users on a group appears more often than not."""
        return bisect.bisect_right(self.passes, 1 << (self.bits - 1))

    def law(self, table: GroupTable) -> Selection:
        last = len(self.passes) - 1
        counts = table.users_per_group().tolist()
        chances = {key: self.passes[min(users, last)] for key, users in zip(table.keys, counts, strict=True)}
        return Selection(chances=chances, bits=self.bits)
