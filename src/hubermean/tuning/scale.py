"""The private spread: the length of an interval that holds nearly all users, wherever it lies.

For a length b let score_b be the largest number of user means in any interval of that length. One user changes it by at
most one, and it takes a sort and nothing else. An exponential mechanism over a public grid of lengths picks one whose
score is near a target. Lengths beyond all data hold everybody and would tie, so longer ones get less weight to begin
with: a base measure, which costs no privacy. Proof: proofs/tuning.md.
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

PER_OCTAVE = 8
LENGTHS: Floats = np.exp2(np.arange(-57 * PER_OCTAVE, 43 * PER_OCTAVE + 1) / PER_OCTAVE)
"""The public grid of lengths over all sizes that values are read with, the shortest first."""

_FINENESS = 16  # costs are whole numbers of sixteenths of a user
_DECAY = 0.8  # nats per octave by which longer lengths weigh less
_FAR_TOO_LONG = (
    math.log(1e4) + 2.0
)  # a length that holds everybody is chosen about once in ten thousand releases
_PRIOR = 100 * _DECAY  # nats that the data must say against the shortest lengths, which weigh most
# The share of users by which much too short intervals fall behind the target, if values do not tie.
_GAP = 0.7
LARGEST_SHARE = 0.94
SMALLEST_SHARE = 0.5


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
    """What is sought, from public numbers: a length whose best interval holds `target` users.

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

        # Scores rise with the length: only those within the cap of the target are needed one by one.
        first = _first(lambda number: score(number) > self.target - self.cost_cap)
        beyond = _first(lambda number: score(number) >= self.target + self.cost_cap)
        costs = np.full(len(LENGTHS), self.cost_cap, dtype=np.int64)
        for number in range(first, beyond):
            costs[number] = min(abs(score(number) - self.target), self.cost_cap)
        # The base measure, as a cost that is the same for all data.
        octaves = np.arange(len(LENGTHS)) / PER_OCTAVE
        costs = _FINENESS * costs + np.rint(_FINENESS * 2.0 * _DECAY / float(self.epsilon) * octaves).astype(
            np.int64
        )
        return Choice(costs=costs, sizes=np.ones_like(costs), rate=self.epsilon / (2 * _FINENESS))


def _first(holds: Callable[[int], bool]) -> int:
    """The first number of a length for which a monotone property holds; the number of lengths if none."""
    low, high = 0, len(LENGTHS)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
