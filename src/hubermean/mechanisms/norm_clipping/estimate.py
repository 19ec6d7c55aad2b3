"""What released sums say of the mean: post-processing, without the private table.

Every round releases the sum of vectors clipped around its center, divided by the sum of what clipping left of the
weights: a weighted mean, in which users beyond the threshold count for less. Where all users are clipped, their common
factor cancels. Rounds are combined by the inverse of their noise; if the center stayed where it was, that is as good as
one sum with the noise budget of all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray
from hubermean.mechanisms.norm_clipping.plan import FEW, MOST_ROUNDS, UNIT, VectorPlan

# The center moves if users are expected to lie within this part of their distance from it afterwards.
_WORTH_MOVING = 0.8
_FARTHEST = 4.0  # times the distance that was found, or the threshold that was given
_LARGEST = 2.0**62


class TooFewUsersError(Exception):
    """The released weights are too small for an estimate."""


class NoScaleError(Exception):
    """More users than are sought lie at the center itself."""


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorEstimate:
    """What was released so far, in units of the columns' scales.

    Attributes:
        plan: the public plan, with the number of users.
        cap: the largest weight of a user.
        spent: epsilon of the pure steps so far.
        rho: the same in concentrated privacy, with that of noisy sums.
        left: the part of the noise budget that no sum has used yet, without that of the step along the direction.
        center: of the current round.
        radius: the distance that was found from this center; None before it is searched for.
        rounds: how many sums were released.
        mean: of all rounds, combined.
        variance: of the noise in `mean`, all columns together.
        finished: whether no round follows.
        weight: the sum of weights that clipping left, in the last round.
        shift: how far one user can move `mean`, where centers and thresholds are given.
        reach: the bound along the direction, once it is found.
        measured: the number of users that was measured; None where it is public.
        step, length_variance, total_weight: what the step along the direction found, and the noise in it.
    """

    plan: VectorPlan
    cap: int
    spent: Fraction
    rho: Fraction
    left: Fraction
    center: FloatArray
    radius: float | None = None
    rounds: int = 0
    mean: FloatArray = field(default_factory=lambda: np.zeros(0))
    variance: float = math.inf
    finished: bool = False
    weight: float = 0.0
    shift: float = 0.0
    reach: float | None = None
    measured: int | None = None
    step: float = 0.0
    length_variance: float = 0.0
    total_weight: float = 0.0

    @property
    def is_centered_at_zero(self) -> bool:
        return not self.center.any()

    @property
    def threshold(self) -> float:
        """The threshold of the current round."""
        return self.plan.threshold_for(self.radius or 0.0)

    @property
    def part(self) -> Fraction:
        """The part of the noise budget for the next sums."""
        may_move = self.rounds < MOST_ROUNDS - 1 and not self.finished
        return self.plan.part_of_round(self.left, last=not may_move)

    def after_round(self, noisy: npt.NDArray[Any]) -> VectorEstimate:
        """Return the estimate after a round: `noisy` has the sums of all columns, then the weight."""
        part, plan = self.part, self.plan
        deviation = plan.noise_of_round(part).scale
        grid = self.threshold / UNIT
        per_weight = self.cap / (plan.weight_share * UNIT)
        weight = float(noisy[-1]) * per_weight
        if weight < FEW * deviation * per_weight:
            raise TooFewUsersError
        shift = noisy[:-1].astype(np.float64) * (grid / weight)
        variance = len(shift) * (deviation * grid / weight) ** 2
        share = _share_of_second(self.variance, variance)
        new = self.center + shift
        mean = new if self.rounds == 0 else self.mean + share * (new - self.mean)
        moved_by_a_user = self._shift_of_a_ratio(self.threshold, math.sqrt(_square(shift)), weight)
        left = self.left - part
        found = replace(
            self,
            left=left,
            rounds=self.rounds + 1,
            mean=mean,
            variance=share * variance,
            weight=weight,
            shift=(1.0 - share) * self.shift + share * moved_by_a_user,
            rho=self.rho + part / (2 * Fraction(plan.noise_multiplier) ** 2),
            finished=left == 0,
        )
        if left == 0:
            return found
        moved = max(_square(shift) - variance, 0.0)
        if plan.threshold is None and found._is_worth_moving(moved):
            return replace(found, center=_single(found.shrunk), radius=None)
        return replace(found, finished=True)

    def _shift_of_a_ratio(self, bound: float, length: float, weight: float) -> float:
        """How far one user can move a clipped sum over a sum of weights: both change (proofs/norm-clipping.md)."""
        return (self.plan.changes * bound + self.cap * length) / max(weight - self.cap, 1.0)

    def _is_worth_moving(self, moved: float) -> bool:
        """Whether users would lie closer to the new center: `moved` is the square of the distance to it."""
        # A radius is for the weight of a user times its distance, so with many records each it is far longer.
        of_a_user = self.weight / (self.plan.users or 1.0) / self.plan.threshold_for(1.0)
        square = ((self.radius or 0.0) / min(max(of_a_user, 1.0), self.cap)) ** 2
        spread = max(square - moved, 0.05 * square)
        missed = min(self.variance, _square(self.mean))
        return spread + missed < _WORTH_MOVING**2 * square

    @cached_property
    def shrunk(self) -> FloatArray:
        """The mean, moved toward zero as far as its length is noise (James & Stein 1961, the positive part)."""
        square = _square(self.mean)
        if square <= 0.0 or not math.isfinite(square):
            return np.zeros_like(self.mean)
        return self.mean * max(1.0 - self.variance / square, 0.0)

    @cached_property
    def direction(self) -> npt.NDArray[np.float32]:
        """The unit vector toward the mean, in single precision."""
        length = math.sqrt(_square(self.mean))
        unit = self.mean / length if 0.0 < length < math.inf else np.eye(1, len(self.mean))[0]
        return unit.astype(np.float32)

    @property
    def farthest(self) -> float:
        """The bound along the direction is no longer than this: users whose distance was found are not further off."""
        return _FARTHEST * (self.threshold if self.radius is None else self.radius)

    @cached_property
    def origin(self) -> float:
        """The base along the direction, from the current center."""
        return float(np.vecdot(self.shrunk - self.center, self.direction.astype(np.float64)))

    def after_step(self, noisy: npt.NDArray[Any]) -> VectorEstimate:
        """Return the estimate after the step along the direction: `noisy` has a sum of lengths and of weights."""
        per_weight = self.cap / (self.plan.weight_share_along * UNIT)
        weight = float(noisy[1]) * per_weight
        if weight < FEW * self.plan.noise_along().scale * per_weight:
            raise TooFewUsersError
        reach = self.reach or 0.0
        length_variance = (self.plan.noise_along().scale * (reach / UNIT) / weight) ** 2
        step = min(max(float(noisy[0]) * (reach / UNIT) / weight, -reach), reach)
        rho = self.rho + self.plan.part_along / (2 * Fraction(self.plan.noise_multiplier) ** 2)
        return replace(self, step=step, length_variance=length_variance, total_weight=weight, rho=rho)

    @cached_property
    def value(self) -> FloatArray:
        """The estimate of the mean."""
        return self.shrunk + self.step * self.direction.astype(np.float64)

    @property
    def largest_shift(self) -> float:
        """How far one user can move the value, where centers, thresholds and the direction are given."""
        square = _square(self.mean)
        # A mean that is shortened for its noise is shortened less as it grows.
        growth = 1.0 + min(self.variance / square, 1.0) if square > 0.0 else 2.0
        along = self._shift_of_a_ratio(self.reach or 0.0, abs(self.step), self.total_weight)
        return growth * self.shift + along

    @property
    def noise_stddev(self) -> float:
        """How far a column is off for noise, in the root mean square over columns, rather too large than too small.

        A value that was shortened because most of its length was noise has less of that, and is too short instead.
        """
        length, found = math.sqrt(_square(self.value)), math.sqrt(_square(self.mean))
        longer = max(length / found, 1.0) if found > 0.0 else 1.0
        return math.sqrt((self.variance * longer**2 + self.length_variance) / len(self.mean))


def _square(vector: FloatArray) -> float:
    """Return the square of the length; not by `@`, for which libraries start threads."""
    return float(np.vecdot(vector, vector))


def _share_of_second(first_variance: float, second_variance: float) -> float:
    """Return the share of the second of two estimates, weighted by the inverse of their variances."""
    return 1.0 if first_variance == math.inf else first_variance / (first_variance + second_variance)


def _single(point: FloatArray) -> FloatArray:
    """Return the point in single precision, so that it is the same in every precision."""
    clipped = np.clip(point, -_LARGEST, _LARGEST)
    return clipped.astype(np.float32).astype(np.float64)
