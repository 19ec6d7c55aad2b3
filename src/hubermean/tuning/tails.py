"""Bounds that look at the tail: how far from the center the k-th user from either end lies.

The error of a clipped mean is least where about 2/epsilon users lie beyond a bound, which no private search can find.
It finds a rank k that is safe, for both sides in one selection, and stretches the bounds from there to where about
2/epsilon users should lie beyond, along the tail that was seen between the scale and rank k. With few users no rank is
safe; then the interval itself is selected, with a base measure against long ones and a cost for every user outside.
Proof: proofs/adaptive.md.
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

_MANY = 600.0  # users times epsilon from which on a rank is safe
_NATS_PER_RANK, _LARGEST_RANK, _LARGEST_TAIL = 16.0, 0.06, 0.3
_DECAY = 0.58  # nats per step of a side
_BENT, _PARETO_SHARE, _LEAST_OCTAVES = (
    0.317,
    0.9,
    1.413,
)  # real tails bend: a part of what a Pareto tail would take
_WIDER, _HEAVIEST = 1.2, 32.0
_LENGTH_POWER, _FEW_WIDER, _FEW_STRETCH = 4.9, 0.8, 0.044
_BEYOND = 2.0  # over epsilon: how many users should lie beyond a bound


@dataclass(frozen=True, kw_only=True)
class TailSearch:
    """How bounds are sought on both sides of the center, or on one where the other is public.

    Attributes:
        epsilon: what the choice costs.
        rank: the number of users beyond each bound that is sought; None where the interval itself is selected.
        sides: which bounds are sought.
        one_way: whether neighbours differ by one user more or less, as under `add-remove`.
    """

    epsilon: Fraction
    rank: int | None
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
        rank, largest = None, min(_LARGEST_RANK, _LARGEST_TAIL * (1.0 - share))
        if users * total >= _MANY or hostile > 0.0:
            rank = max(math.ceil(min(_NATS_PER_RANK * many / epsilon, largest * users)), 1)
            rank += math.ceil(hostile * users)
        return cls(epsilon=Fraction(epsilon), rank=rank, sides=sides, one_way=one_way)

    def law(self, above: IntArray, below: IntArray, *, concentrated: bool) -> Choice | PermuteAndFlip:
        """A pair of distances, by number, from the users beyond each distance on either side."""
        steps = np.arange(STEPS)
        upper, lower = self._side(above, "upper"), self._side(below, "lower")
        if self.rank is None:
            rate = self.epsilon / (1 if self.one_way else 2)
            costs = np.add.outer(upper, lower)
            ends = DISTANCES[: len(upper), np.newaxis] + DISTANCES[: len(lower)]
            nats = _LENGTH_POWER * np.log(ends / 2.0)
        else:
            rate = self.epsilon / 2
            costs = np.maximum.outer(self._costs(upper), self._costs(lower))
            nats = _DECAY * np.add.outer(steps[: len(upper)], steps[: len(lower)])
        costs = costs + np.rint(nats / float(rate)).astype(np.int64)
        return select(costs.ravel(), rate, concentrated=concentrated)

    def _side(self, beyond: IntArray, side: Sides) -> IntArray:
        """Nothing but the first distance is there to choose from on a side that is not sought."""
        return beyond if self.sides in ("both", side) else np.zeros(1, dtype=np.int64)

    def _costs(self, beyond: IntArray) -> IntArray:
        """How far the rank is from those between which a distance and the one before it lie."""
        assert self.rank is not None
        return beyond if len(beyond) == 1 else _rank_costs(beyond, self.rank)

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
        if self.rank is None:
            return float(_FEW_WIDER * distance ** (1.0 + _FEW_STRETCH))
        beyond = _BEYOND * many / total
        seen = math.log(max(_PARETO_SHARE * (1.0 - share) * users / self.rank, 1.0))
        power = _BENT * math.log(max(self.rank / beyond, 1.0)) / max(seen, _LEAST_OCTAVES)
        return float(_WIDER * distance * min(distance, _HEAVIEST) ** power)


def beyond_distances(deviations: Floats, unit: float) -> tuple[IntArray, IntArray]:
    """(above, below): how many of the deviations from a center lie further out than each distance on either side.

    Deviations that are no numbers lie nowhere.
    """
    grid = unit * DISTANCES
    above = np.bincount(
        np.searchsorted(grid, deviations[deviations > grid[0]], side="left"), minlength=STEPS + 1
    )
    below = np.bincount(
        np.searchsorted(grid, -deviations[-deviations > grid[0]], side="left"), minlength=STEPS + 1
    )
    # Users whose distance lies beyond so many grid points count for each of those.
    return np.cumsum(above[:0:-1])[::-1], np.cumsum(below[:0:-1])[::-1]


@dataclass(frozen=True, kw_only=True)
class InfluenceSearch:
    """How a bound on what one user adds is sought: the distance beyond which `rank` users lie, on both sides together.

    Attributes:
        epsilon: what the choice costs.
        rank: the number of users beyond.
        inner: the number of users beyond a second distance, by which the tail is judged; None where none is sought.
    """

    epsilon: Fraction
    rank: int
    inner: int | None

    @classmethod
    def plan(cls, users: float, *, epsilon: float, hostile: float, first: bool) -> InfluenceSearch:
        rank = math.ceil(min(_NATS_PER_INFLUENCE_RANK[first] / epsilon, _LARGEST_INFLUENCE_RANK * users))
        rank = max(rank, 1) + math.ceil(hostile * users)
        inner = None if first else max(math.ceil(_INNER_SHARE * users), rank)
        return cls(epsilon=Fraction(epsilon), rank=rank, inner=inner)

    @staticmethod
    def serves(users: float, *, epsilon: float) -> bool:
        """Whether so many users are enough for a rank that leaves most of them on this side of it."""
        return _SERVING_RANK * users * epsilon >= _NATS_PER_INFLUENCE_RANK[False]

    @staticmethod
    def least_epsilon(users: float, *, first: bool) -> float:
        """With less, too many users would lie beyond the rank."""
        return _NATS_PER_INFLUENCE_RANK[first] / (_GOOD_INFLUENCE_RANK[first] * max(users, 1.0))

    def law(self, above: IntArray, below: IntArray, *, concentrated: bool) -> Choice | PermuteAndFlip:
        """A distance, or a pair of an inner one and an outer one, by number."""
        beyond = above + below
        rate = self.epsilon / 2
        decay = np.rint(_INFLUENCE_DECAY / float(rate) * np.arange(STEPS)).astype(np.int64)
        costs = _rank_costs(beyond, self.rank)
        if self.inner is None:
            return select(costs + decay, rate, concentrated=concentrated)
        pairs = np.maximum.outer(_rank_costs(beyond, self.inner), costs) + np.add.outer(decay, decay)
        return select(pairs.ravel(), rate, concentrated=concentrated)

    def found(self, number: int) -> tuple[float, float]:
        """(inner, outer) distance, in units of the grid; the same one where none was sought."""
        if self.inner is None:
            return float(DISTANCES[number]), float(DISTANCES[number])
        inner, outer = divmod(number, STEPS)
        return float(DISTANCES[min(inner, outer)]), float(DISTANCES[outer])

    def slope(self, inner: float, outer: float) -> float:
        """The power of the rank with which distances grew between the two."""
        if self.inner is None or self.inner <= self.rank:
            return 0.0
        return math.log(max(outer / inner, 1.0)) / math.log(self.inner / self.rank)

    def stretched(self, inner: float, outer: float, *, total: float) -> float:
        """From the distance at the rank to the bound, along the tail that was seen since the inner distance."""
        ranks = max(self.rank * total / _BEYOND, 1.0)
        if self.inner is None:
            return float(outer * ranks**_FIRST_POWER)
        power = _INFLUENCE_BENT * math.log(ranks) / max(math.log(self.inner / self.rank), _INFLUENCE_OCTAVES)
        return float(_INFLUENCE_WIDER * outer * min(max(outer / inner, 1.0), _HEAVIEST) ** power)


def _rank_costs(beyond: IntArray, rank: int) -> IntArray:
    """How far a rank is from those between which a distance and the one before it lie."""
    costs = np.maximum(beyond - rank, 0)
    np.maximum(costs[1:], rank - beyond[:-1], out=costs[1:])
    return costs


_NATS_PER_INFLUENCE_RANK = {True: 10.0, False: 14.0}  # for the first step, and for the last
_LARGEST_INFLUENCE_RANK, _SERVING_RANK = 0.2, 0.17
_GOOD_INFLUENCE_RANK = {True: 0.08, False: 0.04}  # of the users: with fewer of them more is spent
_INNER_SHARE = 0.25
_INFLUENCE_DECAY = 0.35  # nats per step
_FIRST_POWER = 0.3
_INFLUENCE_BENT, _INFLUENCE_OCTAVES, _INFLUENCE_WIDER = 0.47, 1.4, 1.12
