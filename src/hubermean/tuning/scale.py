"""The private spread: the length of an interval that holds nearly all users, wherever it lies.

For a length b let score_b be the largest number of user means in any interval of that length. One user changes it by at
most one, and it takes a sort and nothing else. An exponential mechanism over a public grid of lengths picks one whose
score reaches a target while that of a somewhat shorter one does not: so the choice is clear also where scores jump, as
they do for values of a few kinds. Where even the shortest lengths reach it, users tie, and those are chosen: no spread
was found. A base measure, which costs no privacy, breaks what ties are left. Proof: proofs/tuning.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.laws import Choice

Floats = NDArray[np.float64]
IntArray = NDArray[np.int64]

PER_OCTAVE = 8
LENGTHS: Floats = np.exp2(np.arange(-57 * PER_OCTAVE, 43 * PER_OCTAVE + 1) / PER_OCTAVE)
"""The public grid of lengths over all sizes that values are read with, the shortest first."""

SHORTEST = 2
"""A length is compared with the one so many steps shorter; the first so many, with none, mean "no spread found"."""

_FINENESS = 16  # costs are whole numbers of sixteenths of a user
_DECAY = 0.2  # nats per octave by which longer lengths weigh less
# A length that holds everybody is chosen about once in ten thousand releases: so many nats per length, for the forty or
# so lengths that the base measure leaves in play beside the two that are right.
_FAR_TOO_LONG = math.log(1e4) + 3.0
# So many nats more weigh the shortest lengths. Where most users tie, but not enough of them to reach the target, they
# go before all other lengths that hold nothing but the tie: those would pass for a spread, and the mean for the tie.
_NO_SPREAD = math.log(1e4) + 3.0
_PRIOR = 100 * _DECAY + _NO_SPREAD  # nats that the data must say against the shortest lengths
# The share of users by which much too short intervals fall behind the target, if values do not tie.
_GAP = 0.7
LARGEST_SHARE = 0.94
# Of less the length would say little about the rest: a second cluster of every seventh user would be cut off unseen.
SMALLEST_SHARE = 0.9


def most_within(values: Floats, length: float) -> int:
    """The largest number of values in any interval of the length; `values` in ascending order.

    Formal guarantees: changes by at most one when one value is added, removed or replaced, for the floats that are
    compared (proofs/tuning.md, Lemma 1).
    """
    if len(values) == 0:
        return 0
    ends = np.searchsorted(values, values + length, side="right")
    return int((ends - np.arange(len(values))).max())


@dataclass(frozen=True, kw_only=True)
class ScaleSearch:
    """What is sought, from public numbers: the length from which on the best interval holds `target` users.

    Attributes:
        target: how many users; those without a usable record count as inside every interval.
        cost_cap: costs are told apart up to here.
        epsilon: what the choice costs.
        share: the target over the number of users.
    """

    target: int
    cost_cap: int
    epsilon: Fraction
    share: float

    @classmethod
    def plan(cls, n_users: float, epsilon: float, *, largest_part: float) -> ScaleSearch | None:
        """The cheapest search for the largest share, within a part of epsilon; None where users are too few."""
        n = max(n_users, 1.0)
        part = min(2.0 * _FAR_TOO_LONG / ((1.0 - LARGEST_SHARE) * n), largest_part * epsilon)
        part = max(part, 2.0 * _PRIOR / (_GAP * n))
        left_out = 2.0 * _FAR_TOO_LONG / part
        share = min(LARGEST_SHARE, 1.0 - left_out / n)
        if part > largest_part * epsilon or share < SMALLEST_SHARE:
            return None
        cost_cap = math.ceil(2.0 / part * (_PRIOR + 40.0))
        return cls(target=round(share * n), cost_cap=cost_cap, epsilon=Fraction(part), share=share)

    def law(self, values: Floats, idle: int) -> Choice:
        """A length, by number; `idle` users have no usable record."""
        ordered = np.sort(values)

        def score(number: int) -> int:
            return most_within(ordered, float(LENGTHS[number])) + idle

        # By how many users a score passes the target, told apart up to the cap.
        passes = _non_decreasing(
            lambda number: min(max(score(number) - self.target, -self.cost_cap), self.cost_cap), len(LENGTHS)
        )
        costs = np.maximum(-passes, 0)
        np.maximum(costs[SHORTEST:], passes[:-SHORTEST], out=costs[SHORTEST:])
        # The base measure, as a cost that is the same for all data.
        nats = _DECAY / PER_OCTAVE * np.arange(len(LENGTHS))
        nats[SHORTEST:] += _NO_SPREAD
        costs = _FINENESS * costs + np.rint(_FINENESS * 2.0 / float(self.epsilon) * nats).astype(np.int64)
        return Choice(costs=costs, sizes=np.ones_like(costs), rate=self.epsilon / (2 * _FINENESS))


def _non_decreasing(function: Callable[[int], int], count: int) -> IntArray:
    """All values of a non-decreasing function of 0, ..., count - 1; where both ends agree, so does what is between."""
    values = np.empty(count, dtype=np.int64)
    values[0], values[-1] = function(0), function(count - 1)
    spans = [(0, count - 1)]
    while spans:
        low, high = spans.pop()
        if values[low] == values[high]:
            values[low:high] = values[low]
        elif high - low > 1:
            middle = (low + high) // 2
            values[middle] = function(middle)
            spans += [(low, middle), (middle, high)]
    return values
