"""From a private table to a certified centre and the depth of every user around it, in float64.

What `smooth` and `tested` share: user means are clamped to a public ball, the Huber location is solved for until its
gradient is certifiably small, and every user's depth T(a) - |y - c| is computed with a bounded error. The bounds are
public; they are rates per unit of weight, so that none needs a bound on the number of users. Proof: proofs/smooth.md,
section 1 and Lemma 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError
from hubermean.location import Distances, Rows, attainable_gradient, distances_from, small_gradient
from hubermean.location.floats import LOST_DISTANCE, SLACK, UNIT
from hubermean.location.rows import MOST_ROWS
from hubermean.mechanisms.certified_bounds import Floats, Integers
from hubermean.mechanisms.protocol import Request
from hubermean.mechanisms.thresholds import threshold_of, thresholds
from hubermean.mechanisms.weights import user_weights
from hubermean.user_table import UserTable

UP = 1.0 + 2.0**-40
"""More than the rounding of a handful of float operations; a public number times this is rounded up."""

_SMALLEST, _LARGEST = 1e-60, 1e60
_CLAMP = (
    2.0  # user means are clamped to so many times radius + threshold: beyond, only their direction matters
)
# Gradient per unit of weight, in thresholds, at which the solver may stop. It widens the noise of a billion users by an
# eighth at most, which is nothing beside their sampling error, and that of a million by an eight-thousandth.
_TOLERANCE = 2.0**-34
# It may also stop at so many times the gradient that rounding lets it reach: then few steps are enough
# (proofs/tested.md, Lemma 5).
_ROOM = 2.0


def check_lengths(**lengths: float) -> None:
    """Refuse a threshold or radius outside the range in which no intermediate number over- or underflows."""
    for name, given in lengths.items():
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not _SMALLEST <= given <= _LARGEST:
            raise InputError(
                f"{name} must be a finite number above 0 (from {_SMALLEST:g} to {_LARGEST:g}), not {given!r}"
            )


class DeepWeight(Protocol):
    """How much users weigh, and those of them that lie well inside their threshold; private."""

    @property
    def total_weight(self) -> int: ...

    def weight_beyond(self, depth: float) -> int:
        """The total weight of the users at least this deep, exactly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Located(ABC):
    """Where the users are; private in every field.

    Attributes:
        centre: the computed Huber location.
        total_weight: W, the sum of the weights.
        certified: whether the gradient at the centre is at most `Geometry.gradient_rate` times W; always so
            (proofs/huber-location.md, Corollary 2.5) unless there are no users, or a search in few passes was not over.
    """

    centre: Floats = field(repr=False)
    total_weight: int = field(repr=False)
    certified: bool = field(repr=False)

    def searched_to_the_end(self) -> Located:
        """With a certificate, however many passes that takes; of users on this machine it is there from the first."""
        return self

    @abstractmethod
    def at_depths(self, depths: Floats) -> DeepWeight:
        """What is to be known of users at these depths, which rise, and at no others; at most one pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldUsers(Located):
    """Users on this machine, with the distance of each from the centre.

    Attributes:
        threshold: T, or that of each user where they differ.
        distances: of each user with a usable record; None without users.
        weights: their weights, or None for ones.
    """

    threshold: float | Floats
    distances: Distances | None = field(repr=False)
    weights: Integers | None = field(repr=False)

    @property
    def depths(self) -> Floats:
        """T - |y - c| of each user, as computed."""
        return np.zeros(0) if self.distances is None else np.asarray(self.threshold - self.distances.all)

    def at_depths(self, depths: Floats) -> HeldUsers:
        return self

    def weight_beyond(self, depth: float) -> int:
        """By the depths as computed; only users of whom it is not known yet are looked at."""
        if self.distances is None:
            return 0
        threshold = self.threshold
        if isinstance(threshold, float):
            deep = self.distances.where(lambda distances: threshold - distances >= depth)
        else:
            deep = self.depths >= depth
        return int(np.count_nonzero(deep)) if self.weights is None else int(self.weights[deep].sum())


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Public or released: a center and a unit for each column, in which users are seen; empty for 0 and 1."""

    centers: tuple[float, ...] = ()
    units: tuple[float, ...] = ()

    def of(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Rows as seen; element by element, so that a user's row depends on its own numbers alone."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((matrix - np.array(self.centers)) / np.array(self.units))

    def value(self, column: int, seen: float) -> float:
        """What stands in a column for a number as seen."""
        return seen * self.units[column] + self.centers[column] if self.centers else seen

    def unit(self, column: int) -> float:
        return self.units[column] if self.units else 1.0


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Public: how far users can lie, and how exactly they are seen.

    Attributes:
        threshold: A, the threshold of a user of weight one; that of others is A a^(-theta).
        clamp: user means are clamped to the ball of this radius.
        dimension: number of columns d.
        gradient_rate: tau, the gradient at the computed centre is at most this times the total weight.
        depth_step: e, twice the error of a computed depth and the rounding of comparisons with it.
        power: theta, in parts of `thresholds.WHOLE`.
        frame: in which users are seen; threshold, clamp and centre are in its units.
    """

    threshold: float
    clamp: float
    dimension: int
    gradient_rate: float
    depth_step: float
    power: int = 0
    frame: Frame = Frame()

    @classmethod
    def choose(
        cls,
        *,
        threshold: float,
        radius: float,
        dimension: int,
        power: int = 0,
        weight_cap: int = 1,
        frame: Frame | None = None,
    ) -> Geometry:
        """Every limit rounded up (proofs/smooth.md, section 1)."""
        clamp = _CLAMP * (radius + threshold)
        # Per unit of weight: so many rows fill a block in every dimension, and all other terms are linear.
        attainable = attainable_gradient(
            n_users=MOST_ROWS,
            dimension=dimension,
            total_weight=SLACK,
            total_influence=SLACK * threshold,
            radius=SLACK * clamp,
        )
        depth_error = (0.5 * dimension + 10.0) * UNIT * SLACK * threshold
        depth_error += math.sqrt(dimension) * LOST_DISTANCE
        return cls(
            threshold=threshold,
            clamp=clamp,
            dimension=dimension,
            gradient_rate=max(_ROOM * attainable, _TOLERANCE * threshold_of(weight_cap, threshold, power))
            * UP,
            depth_step=SLACK * (2.0 * depth_error + 16.0 * UNIT * threshold),
            power=power,
            frame=frame or Frame(),
        )

    def threshold_of(self, weight: int) -> float:
        """T(a): no heavier user has a larger one."""
        return threshold_of(weight, self.threshold, self.power)

    def influence(self, weight: int) -> float:
        """q = a T(a), rounded up: no lighter user has more influence on the gradient."""
        return weight * self.threshold_of(weight) * (UP if self.power else 1.0)

    def thresholds(self, weights: Integers | None) -> float | Floats:
        """One for all, or that of each user."""
        if weights is None or self.power == 0:
            return self.threshold
        return thresholds(weights, self.threshold, self.power)

    def users(self, table: UserTable, request: Request, cap: int) -> tuple[Rows, Integers | None]:
        """Means, clamped, and weights of the users with a usable record; None stands for weights of one.

        The means are read from the table block by block whenever they are needed; nothing of their size is made. What
        becomes of a user's mean depends on that user's own numbers alone (`Rows`; proofs/smooth.md, Lemma 1), so its
        rounding costs no privacy.
        """
        usable = np.flatnonzero(table.counts > 0)
        chosen = None if len(usable) == table.n_users else usable
        matrix, squares = table.matrix(), table.row_squares()
        if self.frame.centers:
            matrix, squares = self.frame.of(matrix), None
        points = Rows.within_ball(matrix, self.clamp, chosen=chosen, squares=squares)
        if cap == 1:
            return points, None
        return points, user_weights(table, request, cap)[usable]

    def locate(self, points: Rows, weights: Integers | None) -> HeldUsers:
        """The centre of the users and their depths; without users the centre is 0."""
        if len(points) == 0:
            return HeldUsers(
                centre=np.zeros(self.dimension),
                threshold=self.threshold,
                distances=None,
                weights=weights,
                total_weight=0,
                certified=False,
            )
        total = len(points) if weights is None else int(weights.sum())
        gradient, own = self.gradient_rate * total, self.thresholds(weights)
        found = small_gradient(points, weights=weights, thresholds=own, tolerance=gradient)
        return HeldUsers(
            centre=found.point,
            threshold=own,
            distances=found.distances,
            weights=weights,
            total_weight=total,
            certified=found.norm_bound <= gradient,
        )

    def depths(self, points: Rows, centre: Floats, weights: Integers | None = None) -> Floats:
        """T(a) - |y - centre| per user, each within half of `depth_step` where it matters (Lemma 1)."""
        return np.asarray(self.thresholds(weights) - distances_from(points, centre))
