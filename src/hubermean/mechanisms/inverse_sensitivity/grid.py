"""The public grid of `inverse-sensitivity`: how many level sets are distinguished, and what a sample means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.errors import InputError, parameter
from hubermean.huber.level_sets import LARGEST_TOTAL_INFLUENCE
from hubermean.huber.thresholds import influence_bound
from hubermean.types.release import Interval

LARGEST_RADIUS = 2**60  # in grid units
MOST_LEVELS = 2**20
MOST_UNEQUAL_LEVELS = 2**14  # with unequal weights every level set costs a sort of its candidates
MOST_PLANNED_USERS = 2**24  # where the number of users is private; more costs accuracy, not privacy
_FINEST_THRESHOLD_BITS = 30
_COARSEST_THRESHOLD_BITS = 8
_HEAVIEST_PLANNED = 2**10  # records of a user; with heavier ones the location may lie between two grid points
_LOST_MASS = 40.0  # level sets are distinguished until the remainder of the grid has probability about e^-40


@dataclass(frozen=True, kw_only=True)
class LocationGrid:
    """Multiples of 2^exponent; threshold, radius and the center of each column are whole numbers of them.

    Attributes:
        threshold: A, the threshold of a user of weight one.
        radius: the answer lies within this distance of the center.
        centers: one per column; empty where all are 0.
        power: theta, in parts of `thresholds.WHOLE`.
    """

    exponent: int
    threshold: int
    radius: int
    centers: tuple[int, ...] = ()
    power: int = 0

    @classmethod
    def choose(
        cls,
        threshold: float,
        radius: float,
        *,
        total_influence: int,
        power: int = 0,
        smallest: float | None = None,
        centers: Sequence[float] = (),
    ) -> LocationGrid:
        """The finest grid on which the influence of all users fits 64 bits; from public numbers alone.

        `total_influence` bounds the influence of all users, in thresholds. `smallest` is the threshold of the heaviest
        user, which must not be rounded to 0.
        """
        spare = 0 if smallest is None else max(math.ceil(math.log2(threshold / smallest)), 0)
        largest_bits = LARGEST_TOTAL_INFLUENCE.bit_length() - 2 - total_influence.bit_length()
        bits = min(_FINEST_THRESHOLD_BITS + spare, largest_bits)
        farthest = radius + max((abs(center) for center in centers), default=0.0)
        exponent = max(
            math.floor(math.log2(threshold)) - bits,
            math.ceil(math.log2(farthest)) - (LARGEST_RADIUS.bit_length() - 1),
            -60,
        )
        spacing = Fraction(2) ** exponent
        grid = cls(
            exponent=exponent,
            threshold=math.floor(Fraction(threshold) / spacing),
            radius=min(math.floor(Fraction(radius) / spacing), LARGEST_RADIUS),
            centers=tuple(round(Fraction(center) / spacing) for center in centers),
            power=power,
        )
        if grid.radius < 2**_COARSEST_THRESHOLD_BITS:
            raise InputError(
                f"{parameter('radius')} is too small beside threshold; raise radius or lower threshold"
            )
        if grid.threshold < 2**_COARSEST_THRESHOLD_BITS:
            raise InputError(
                f"{parameter('threshold')} is too small beside radius and the weights of all users; "
                f"raise threshold, or lower radius or {parameter('max_records')}"
            )
        return grid

    def center(self, column: int) -> int:
        return self.centers[column] if self.centers else 0

    def influence(self, weight: int) -> int:
        """The most that a user of this weight, or of any smaller one, can add to the gradient."""
        return influence_bound(weight, self.threshold, self.power)


def count_level_sets(
    grid: LocationGrid, epsilon: Fraction, *, n_users: int | None, cap: int, equal_weights: bool
) -> int:
    """How many level sets are distinguished: the remainder of the grid then has probability of the order of e^-40.

    Raises:
        InputError: epsilon is so small that this takes more level sets than can be computed.
    """
    wanted = math.ceil(2.0 / float(epsilon) * (math.log(2 * grid.radius + 1) + _LOST_MASS))
    # The best grid point need not have score 0: next to the location |G| can be half of all weight.
    users = MOST_PLANNED_USERS if n_users is None else n_users
    wanted += 1 + users * min(cap, _HEAVIEST_PLANNED) // grid.influence(cap)
    # A public number of users bounds every score: if all users change, every point can be the answer.
    wanted = max(1, wanted if n_users is None else min(wanted, n_users))
    if wanted > (MOST_LEVELS if equal_weights or n_users is None else MOST_UNEQUAL_LEVELS):
        raise InputError(
            f"{parameter('epsilon')} is too small for mechanism 'inverse-sensitivity' here; raise "
            f"epsilon, or use {parameter('per', 'user')}"
        )
    return wanted


@dataclass(frozen=True, kw_only=True)
class LevelSets:
    """The score of every grid point, as nested intervals; private.

    `first[k]` to `last[k]` are the points of score at most k. A point outside the largest has score len(first).
    """

    first: IntArray
    last: IntArray
    radius: int

    def runs(self) -> tuple[IntArray, IntArray]:
        """(scores, sizes): the score of every grid point, from left to right, as runs of points of equal score."""
        n_levels = len(self.first)
        # The inner level sets may be empty, first > last; the points between are then in none of them.
        held = np.flatnonzero(self.first <= self.last)
        first, last = self.first[held], self.last[held]
        starts = np.concatenate([[-self.radius], first[::-1], last + 1])
        outside = np.append(held[1:], n_levels)[: len(held)]  # the score just beyond each of these sets
        scores = np.concatenate([[n_levels], held[::-1], outside])
        sizes = np.diff(np.append(starts, self.radius + 1))
        return scores[sizes > 0], sizes[sizes > 0]


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreInterval:
    """Intervals for the Huber location of the data, from the rate at which answers become less likely.

    With three in four users well within the threshold, the score rises by about one in every `step` away from the
    location, or faster, and an answer of score k is e^(-rate k) as likely. The first step is added
    (proofs/inverse-sensitivity.md, "What to expect").
    """

    values: tuple[float, ...]
    step: float
    rate: float

    def at(self, level: float) -> Interval:
        bound = self.step * (1.0 - math.log1p(-level) / self.rate)
        return Interval(
            level=level,
            low=tuple(value - bound for value in self.values),
            high=tuple(value + bound for value in self.values),
            covers="noise, if three in four users lie well within the threshold",
        )
