"""Bounds that look at the tail: how far from the center all but a few users lie.

The error of a clipped mean is least where about 2/epsilon users lie beyond a bound, which no private search can find.
It finds a pair of distances, one per side, beyond which no more than k users lie: every user beyond that costs, and a
base measure keeps distances short. From there the bounds are stretched to where about 2/epsilon users should lie
beyond, along the tail that was seen since the scale. Proof: proofs/adaptive.md, Lemma 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hubermean.laws import Choice, PermuteAndFlip, select

IntArray = NDArray[np.int64]
Floats = NDArray[np.float64]
Sides = Literal["both", "upper", "lower"]

STEPS = 104
"""Distances on the grid of a side, four to an octave."""

_PER_OCTAVE = 4
DISTANCES: Floats = np.exp2(np.arange(STEPS) / _PER_OCTAVE)
"""The public grid of distances from the center, in units of the scale."""

_MANY = 600.0  # users times epsilon from which on there is a rank that is small beside the users
_NATS_PER_RANK, _LARGEST_RANK, _LARGEST_TAIL = 5.0, 0.06, 0.3
_NATS_BEYOND = 1.5  # so many more users lie beyond what is found, on average
_LONGER_POWER, _POWER = 2.0, 4.6  # of the longer distance, and of both, in the base measure
_LENGTH_POWER, _FEW_WIDER, _FEW_STRETCH = 4.9, 0.8, 0.044  # with few users: of their sum, and what follows
_BENT, _PARETO_SHARE, _LEAST_OCTAVES = (
    0.3,
    0.81,
    1.15,
)  # real tails bend: a part of what a Pareto tail would take
_TAIL_KNEE = 64.0  # beyond which the base measure falls more slowly
_WIDER, _HEAVIEST = 1.1, 32.0
_BEYOND = 2.0  # over epsilon: how many users should lie beyond a bound


@dataclass(frozen=True, kw_only=True)
class TailSearch:
    """How bounds are sought on both sides of the center, or on one where the other is public.

    Attributes:
        epsilon: what the choice costs.
        rank: how many users may lie beyond each bound at no cost.
        sides: which bounds are sought.
        one_way: whether neighbours differ by one user more or less, as under `add-remove`.
    """

    epsilon: Fraction
    rank: int
    sides: Sides = "both"
    one_way: bool

    @classmethod
    def plan(
        cls,
        users: float,
        *,
        epsilon: float,
        share: float,
        total: float,
        hostile: float,
        sides: Sides,
        one_way: bool,
        many: float = 1.0,
    ) -> TailSearch:
        """`epsilon` is what the choice may cost, `total` what all of the release does, `hostile` a share of the users.

        `share` of the users lie within the scale, so that ranks beyond it are ranks in the tail; `many` groups of users
        share the bounds.
        """
        rank = math.ceil(hostile * users)
        if users * total >= _MANY:
            largest = min(_LARGEST_RANK, _LARGEST_TAIL * (1.0 - share)) * users
            rank += max(math.floor(min(_NATS_PER_RANK * many / epsilon, largest)), 1)
        return cls(epsilon=Fraction(epsilon), rank=rank, sides=sides, one_way=one_way)

    def law(self, above: IntArray, below: IntArray, *, concentrated: bool) -> Choice | PermuteAndFlip:
        """A pair of distances, by number, from the users beyond each distance on either side."""
        upper, lower = self._side(above, "upper"), self._side(below, "lower")
        # Only a user who changes sides moves some costs up and some down.
        rate = self.epsilon / (1 if self.one_way or self.sides != "both" else 2)
        costs = np.add.outer(np.maximum(upper - self.rank, 0), np.maximum(lower - self.rank, 0))
        logs = _bent_logs(_TAIL_KNEE)
        high, low = logs[: len(upper), np.newaxis], logs[np.newaxis, : len(lower)]
        if self.rank > 0:
            nats = _LONGER_POWER * np.maximum(high, low) + _POWER * (high + low)
        else:
            nats = _LENGTH_POWER * (np.logaddexp(high, low) - math.log(2.0))
        costs = costs + np.rint(nats / float(rate)).astype(np.int64)
        return select(costs.ravel(), rate, concentrated=concentrated)

    def _side(self, beyond: IntArray, side: Sides) -> IntArray:
        """Nothing but the first distance is there to choose from on a side that is not sought."""
        return beyond if self.sides in ("both", side) else np.zeros(1, dtype=np.int64)

    def found(self, number: int) -> tuple[float, float]:
        """(below, above): the distances chosen, in units of the scale; 0 on a side that was not sought."""
        lower = STEPS if self.sides in ("both", "lower") else 1
        upper_step, lower_step = divmod(number, lower)
        return (
            float(DISTANCES[lower_step]) if self.sides in ("both", "lower") else 0.0,
            float(DISTANCES[upper_step]) if self.sides in ("both", "upper") else 0.0,
        )

    def stretched(
        self, distance: float, *, users: float, share: float, total: float, many: float = 1.0
    ) -> float:
        """From the distance that was found to a bound, in units of the scale, which holds the share of the users."""
        if self.rank == 0:
            return float(_FEW_WIDER * distance ** (1.0 + _FEW_STRETCH))
        beyond = self.expected_beyond
        seen = math.log(max(_PARETO_SHARE * (1.0 - share) * users / beyond, 1.0))
        power = _BENT * math.log(max(beyond * total / (_BEYOND * many), 1.0)) / max(seen, _LEAST_OCTAVES)
        return float(_WIDER * distance * min(distance, _HEAVIEST) ** power)

    @property
    def expected_beyond(self) -> float:
        """About how many users lie beyond a distance that is found."""
        return self.rank + _NATS_BEYOND / float(self.epsilon)


def _bent_logs(knee: float) -> Floats:
    """Logarithms of the distances, half as steep beyond the knee: many users far away must not be outweighed."""
    logs, bend = np.log(DISTANCES), math.log(knee)
    bent: Floats = np.where(logs > bend, bend + (logs - bend) / 2.0, logs)
    return bent


def beyond_distances(deviations: Floats, unit: float) -> tuple[IntArray, IntArray]:
    """(above, below): how many of the deviations from a center lie further out than each distance on either side.

    Deviations are numbers in ascending order: a sort takes less time than to look for each one's place on the grid.
    """
    grid = unit * DISTANCES
    above = len(deviations) - np.searchsorted(deviations, grid, side="right")
    return above, np.searchsorted(deviations, -grid, side="left")
