"""Bounds that look at the tail: how far from the center all but a few users lie.

The error of a clipped mean is least where a few users over epsilon lie beyond a bound, which no private search can
find. It finds a pair of distances, one per side, beyond which no more than k users lie: every user beyond that costs,
and a base measure keeps distances short. From there the bounds are stretched to where few enough users should lie
beyond, along the tail that was seen since the scale. Proof: proofs/adaptive.md, Lemma 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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

# Tuned on the laws and tables that docs/realdata.md names as such, 300 to 10,000 users.
_NATS_PER_RANK, _FEW_POWER = 6.0, 0.4  # fewer for fewer than 1,000 users per unit of epsilon
_LARGEST_RANK, _LARGEST_TAIL = 0.06, 0.3  # of the users, and of those beyond the scale
_NATS_BEYOND = 1.5  # so many more users lie beyond what is found, on average
_LONGER_POWER, _POWER = 3.9, 2.4  # of the longer distance, and of both, in the base measure
# With fewer nats for all users together it falls more slowly, to this part.
_STEEP_NATS, _LEAST_STEEP = 66.0, 0.63
_PARTS = 100_000  # of a user: in whole ones a large epsilon would leave nothing of the base measure
_TAIL_KNEE = 64.0  # beyond which the base measure falls more slowly
_BENT, _LEAST_NATS, _HEAVIEST = 0.345, 1.75, 128.0  # real tails bend: a part of what a Pareto tail would take
_BEYOND = 3.8  # over epsilon: how many users should lie beyond a bound
_EXCESS, _LARGEST_EXCESS = 0.028, 0.3  # by how much such a user lies further out, per scale, and at most


@dataclass(frozen=True, kw_only=True)
class TailSearch:
    """How bounds are sought on both sides of the center, or on one where the other is public.

    Attributes:
        epsilon: what the choice costs.
        rank: how many users may lie beyond each bound at no cost.
        sides: which bounds are sought.
        one_way: whether neighbours differ by one user more or less, as under `add-remove`.
        power: of the distance that is found, by which it is stretched.
        steepness: of the base measure; less with few users, who could not outweigh it.
    """

    epsilon: Fraction
    rank: int
    sides: Sides = "both"
    one_way: bool
    power: float = 0.0
    steepness: float = 1.0

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
        few = min(users * total / (1000.0 * many), 1.0) ** _FEW_POWER
        largest = min(_LARGEST_RANK, _LARGEST_TAIL * (1.0 - share)) * users
        rank = max(math.floor(min(_NATS_PER_RANK * few * many / epsilon, largest)), 1)
        rank += math.ceil(hostile * users)
        beyond = rank + _NATS_BEYOND / epsilon
        # A Pareto tail through the scale and what is found would go on with the whole of this.
        seen = math.log(max((1.0 - share) * users / beyond, 1.0))
        power = _BENT * math.log(max(beyond * total / (_BEYOND * many), 1.0)) / max(seen, _LEAST_NATS)
        search = cls(epsilon=Fraction(epsilon), rank=rank, sides=sides, one_way=one_way, power=power)
        steepness = min(max(float(search.rate) * users / _STEEP_NATS, _LEAST_STEEP), 1.0)
        return replace(search, steepness=steepness)

    @property
    def rate(self) -> Fraction:
        """Of a user: only one who changes sides moves some costs up and some down."""
        return self.epsilon / (1 if self.one_way or self.sides != "both" else 2)

    def law(self, above: IntArray, below: IntArray, *, concentrated: bool) -> Choice | PermuteAndFlip:
        """A pair of distances, by number, from the users beyond each distance on either side."""
        upper, lower = self._side(above, "upper"), self._side(below, "lower")
        costs = np.add.outer(np.maximum(upper - self.rank, 0), np.maximum(lower - self.rank, 0))
        logs = _bent_logs()
        high, low = logs[: len(upper), np.newaxis], logs[np.newaxis, : len(lower)]
        nats = self.steepness * (_LONGER_POWER * np.maximum(high, low) + _POWER * (high + low))
        rate = self.rate / _PARTS
        costs = _PARTS * costs + np.rint(nats / float(rate)).astype(np.int64)
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

    def stretched(self, distance: float) -> float:
        """From the distance that was found to a bound, both in units of the scale."""
        return float(distance * min(distance, _HEAVIEST) ** self.power)

    @property
    def expected_beyond(self) -> float:
        """About how many users lie beyond a distance that is found."""
        return self.rank + _NATS_BEYOND / float(self.epsilon)


def expected_cut_off(distance: float, *, total: float, many: float = 1.0) -> float:
    """What clipping is expected to take off beyond a bound in all, in multiples of the bound.

    The longer the tail up to the distance that was found, in units of the scale, the further out users beyond lie; an
    estimate from public and released numbers, which an answer may add (Johansson 2003 does so with a Pareto tail).
    """
    return min(_EXCESS * max(distance - 1.0, 0.0), _LARGEST_EXCESS) * _BEYOND * many / total


def _bent_logs() -> Floats:
    """Logarithms of the distances, half as steep beyond the knee: many users far away must not be outweighed."""
    logs, bend = np.log(DISTANCES), math.log(_TAIL_KNEE)
    bent: Floats = np.where(logs > bend, bend + (logs - bend) / 2.0, logs)
    return bent


def beyond_distances(deviations: Floats, unit: float) -> tuple[IntArray, IntArray]:
    """(above, below): how many of the deviations from a center lie further out than each distance on either side.

    Deviations are numbers in ascending order: a sort takes less time than to look for each one's place on the grid.
    """
    grid = unit * DISTANCES
    above = len(deviations) - np.searchsorted(deviations, grid, side="right")
    return above, np.searchsorted(deviations, -grid, side="left")
