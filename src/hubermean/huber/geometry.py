"""The Huber center of weighted points with a certificate, and the depth of every point around it, in float64.

`smooth-sensitivity` and `propose-test-release` share this kernel. User means are clamped to a public ball, the Huber
location is solved for until its gradient is certifiably small, and every user's depth T(a) - |y - c| is computed with
a bounded error. The depth is the distance that a user can move outward before it leaves the quadratic zone of the
Huber loss.

All bounds are public. They are rates per unit of weight, so none needs a bound on the number of users. Proof:
proofs/smooth-sensitivity.md, section 1 and Lemma 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.huber.distances import Distances, compute_distances
from hubermean.huber.numerics import LOST_DISTANCE, MAX_BLOCK_ROWS, SLACK, UNIT
from hubermean.huber.points import PointRows
from hubermean.huber.problem import bound_attainable_gradient
from hubermean.huber.solver import find_stationary_point
from hubermean.huber.thresholds import threshold_of, thresholds

UP = 1.0 + 2.0**-40
"""More than the rounding of a handful of float operations; a public number times this is rounded up."""

# User means are clamped to this many times radius + threshold. Beyond that, only their direction matters.
_CLAMP = 2.0
# The gradient per unit of weight, in thresholds, at which the solver may stop. It widens the noise of a billion users
# by at most an eighth, which is negligible beside their sampling error, and that of a million by an eight-thousandth.
_TOLERANCE = 2.0**-34
# The solver may also stop at this many times the gradient that rounding allows it to reach; few steps are then enough
# (proofs/propose-test-release.md, Lemma 5).
_ROOM = 2.0


class WeightByDepth(Protocol):
    """The total weight of all users, and of those deep inside their threshold; private."""

    @property
    def total_weight(self) -> int: ...

    def weight_beyond(self, depth: float) -> int:
        """The total weight of the users at least this deep, exactly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HuberCenter(ABC):
    """A computed Huber center; private in every field.

    Attributes:
        center: the computed center; 0 where there are no users.
        total_weight: W, the sum of the weights.
        certified: whether the gradient at the center is at most `Geometry.gradient_rate` times the total weight. This
            always holds (proofs/huber-location.md, Corollary 2.5), except where there are no users or a search in few
            passes has not ended.
    """

    center: FloatArray = field(repr=False)
    total_weight: int = field(repr=False)
    certified: bool = field(repr=False)

    def search_until_certified(self) -> HuberCenter:
        """A certified center, in as many passes as that takes; on one machine the first center is certified."""
        return self

    @abstractmethod
    def weights_at_depths(self, depths: FloatArray) -> WeightByDepth:
        """The weight of users beyond each of these ascending depths, and at no others; at most one pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalCenter(HuberCenter):
    """The center of users on this machine, with the distance of each user from it.

    Attributes:
        threshold: T, or that of each user where they differ.
        distances: of each user with a usable record; None without users.
        weights: their weights, or None for ones.
    """

    threshold: float | FloatArray
    distances: Distances | None = field(repr=False)
    weights: IntArray | None = field(repr=False)

    @property
    def depths(self) -> FloatArray:
        """T - |y - c| of each user, as computed."""
        return np.zeros(0) if self.distances is None else np.asarray(self.threshold - self.distances.all)

    def weights_at_depths(self, depths: FloatArray) -> LocalCenter:
        return self

    def weight_beyond(self, depth: float) -> int:
        """By the depths as computed; a distance is computed only where a bound on it does not decide."""
        if self.distances is None:
            return 0
        threshold = self.threshold
        if isinstance(threshold, float):
            deep = self.distances.where(lambda distances: threshold - distances >= depth)
        else:
            deep = self.depths >= depth
        return int(np.count_nonzero(deep)) if self.weights is None else int(self.weights[deep].sum())


@dataclass(frozen=True, kw_only=True)
class Standardization:
    """A center and a unit for each column, public or released; empty for 0 and 1."""

    centers: tuple[float, ...] = ()
    units: tuple[float, ...] = ()

    def apply(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Standardized rows; computed element by element, so that a user's row depends on its own numbers alone."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((matrix - np.array(self.centers)) / np.array(self.units))

    def invert(self, column: int, standardized: float) -> float:
        """The value, in units of the column, of a standardized number."""
        if not self.centers:
            return standardized
        return standardized * self.units[column] + self.centers[column]

    def unit(self, column: int) -> float:
        return self.units[column] if self.units else 1.0


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Public limits on where users can lie, and on the errors of what is computed from them.

    Attributes:
        threshold: A, the threshold of a user of weight one; that of others is A a^(-theta).
        clamp: user means are clamped to the ball of this radius.
        dimension: number of columns d.
        gradient_rate: tau, the gradient at the computed center is at most this times the total weight.
        depth_step: e, twice the error of a computed depth and the rounding of comparisons with it.
        power: theta, in parts of `thresholds.WHOLE`.
        standardization: of the columns; threshold, clamp and center are in its units.
    """

    threshold: float
    clamp: float
    dimension: int
    gradient_rate: float
    depth_step: float
    power: int = 0
    standardization: Standardization = Standardization()

    @classmethod
    def choose(
        cls,
        *,
        threshold: float,
        radius: float,
        dimension: int,
        power: int = 0,
        weight_cap: int = 1,
        standardization: Standardization | None = None,
    ) -> Geometry:
        """Every limit rounded up (proofs/smooth-sensitivity.md, section 1)."""
        clamp = _CLAMP * (radius + threshold)
        # Per unit of weight: this many rows fill a block in every dimension, and all other terms are linear.
        attainable = bound_attainable_gradient(
            n_users=MAX_BLOCK_ROWS,
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
            standardization=standardization or Standardization(),
        )

    def threshold_of(self, weight: int) -> float:
        """T(a): no heavier user has a larger one."""
        return threshold_of(weight, self.threshold, self.power)

    def influence(self, weight: int) -> float:
        """q = a T(a), rounded up: no lighter user has more influence on the gradient."""
        return weight * self.threshold_of(weight) * (UP if self.power else 1.0)

    def thresholds(self, weights: IntArray | None) -> float | FloatArray:
        """The common threshold, or that of each user where they differ."""
        if weights is None or self.power == 0:
            return self.threshold
        return thresholds(weights, self.threshold, self.power)

    def locate(self, points: PointRows, weights: IntArray | None) -> LocalCenter:
        """The Huber center of the users and their distances from it; without users the center is 0."""
        if len(points) == 0:
            return LocalCenter(
                center=np.zeros(self.dimension),
                threshold=self.threshold,
                distances=None,
                weights=weights,
                total_weight=0,
                certified=False,
            )
        total = len(points) if weights is None else int(weights.sum())
        gradient, own = self.gradient_rate * total, self.thresholds(weights)
        found = find_stationary_point(points, weights=weights, thresholds=own, tolerance=gradient)
        return LocalCenter(
            center=found.point,
            threshold=own,
            distances=found.distances,
            weights=weights,
            total_weight=total,
            certified=found.norm_bound <= gradient,
        )

    def depths(self, points: PointRows, center: FloatArray, weights: IntArray | None = None) -> FloatArray:
        """T(a) - |y - center| per user, each within half of `depth_step` where it matters (Lemma 1)."""
        return np.asarray(self.thresholds(weights) - compute_distances(points, center))
