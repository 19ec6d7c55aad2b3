"""The distance to instability of a data set, and the test of it: how much curvature, which step, which noise.

kappa(D), the distance to instability, is the number of users that may change before the certificate of the center's
stability is lost: the largest j for which users of total weight rho + j w lie at least j steps deep inside their
threshold, beyond a reserve. The reserve makes sure that a search in few passes finds the center of all data with
kappa >= 1, and of their neighbors. There is a reserve where public numbers say that users may be in partitions. Proof:
proofs/propose-test-release.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hubermean.accounting.propose_test_release import ProposeTestReleaseNoise, calibrate_propose_test_release
from hubermean.errors import InputError, parameter
from hubermean.huber.distributed_solver import STABLE_SHARE, STABLE_WITHIN
from hubermean.huber.geometry import UP, Geometry, HuberCenter, WeightByDepth
from hubermean.noise.batch import LARGEST_SCALE

# Parts of epsilon that the noise may leave to the test; the best of them is chosen.
_RESERVES = (0.003, 0.01, 0.02, 0.04, 0.07, 0.12, 0.2, 0.35)
_DEEPEST = 0.9  # the test may require users this far inside their threshold
_GRID_BITS = 44  # the noise is about 2^44 grid units wide
# A reserve needs this many users of full weight, and a solver error, in thresholds, of at most this rate: then neither
# moves the center by much (Lemma 5).
_USERS_WITH_RESERVE = 2**17
_RATE_WITH_RESERVE = 2.0**-20


@dataclass(frozen=True, kw_only=True)
class TotalWeightBounds:
    """Public bounds on the total weight that a test is designed for; data beyond them fails the test, nothing worse."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class StabilityTest:
    """A test of stability and the noise behind it, from public numbers alone.

    Attributes:
        curvature: rho, the total weight of users that must hold the center.
        step: the most by which the computed center moves between neighbors if either has kappa >= 1, plus the error
            of a computed depth.
        reserve: users count from this depth on; 0 where they are certainly on one machine.
        gradient_cap: the largest certified gradient that the test allows for.
        weight_cap: w, the largest weight of a user.
        test: the probabilities to pass by kappa, and what the noise hides.
        exponent: the grid of answers is the multiples of 2^exponent.
        sigma: the noise in grid units.
    """

    curvature: int
    step: float
    reserve: float
    gradient_cap: float
    weight_cap: int
    test: ProposeTestReleaseNoise
    exponent: int
    sigma: float

    @property
    def noise_stddev(self) -> float:
        return self.sigma * 2.0**self.exponent

    @property
    def depth(self) -> float:
        """How deep users must lie for the test to pass with probability one."""
        return self.reserve + self.test.margin * self.step

    @classmethod
    def best(
        cls,
        geometry: Geometry,
        weight: TotalWeightBounds,
        *,
        weight_cap: int,
        factor: float,
        share: float,
        epsilon: float,
        delta: float,
        partitioned: bool = False,
    ) -> StabilityTest | None:
        """The test of least noise; None where the weight is too small for any.

        A test that reaches deep requires users far inside their threshold, hence a wider threshold: noise is compared
        as it would be for a threshold widened by as much.

        Args:
            factor: by how many full influences the gradient can change between neighbors.
            share: of the weight, expected well within the threshold.
            partitioned: whether users may be in partitions.
        """
        least = geometry.threshold_of(weight_cap)
        for reserve in _depth_reserves(geometry, weight, weight_cap) if partitioned else (0.0,):
            plans = []
            for test in short_tests(epsilon, delta, geometry.dimension):
                plan = cls._of_test(
                    test,
                    geometry,
                    weight,
                    weight_cap=weight_cap,
                    factor=factor,
                    share=share,
                    reserve=reserve,
                )
                if plan is not None:
                    plans.append((plan.noise_stddev / (1.0 - plan.depth / least), plan))
            if plans:
                return min(plans, key=lambda rated: rated[0])[1]
        return None

    @classmethod
    def _of_test(
        cls,
        test: ProposeTestReleaseNoise,
        geometry: Geometry,
        weight: TotalWeightBounds,
        *,
        weight_cap: int,
        factor: float,
        share: float,
        reserve: float = 0.0,
    ) -> StabilityTest | None:
        curvature = math.floor(share * weight.low - test.margin * weight_cap)
        if curvature < 1:
            return None
        heaviest = weight.high + test.margin * weight_cap
        if reserve and curvature < STABLE_SHARE * heaviest * UP:
            return None
        gradient_cap = geometry.gradient_rate * heaviest * UP
        # Lemma 1: the influence of a changed user and the errors of both solvers, against the remaining curvature.
        shift = (factor * geometry.influence(weight_cap) + 2.0 * gradient_cap) / curvature * UP
        step = (shift + geometry.depth_step) * UP
        if reserve + test.margin * step > _DEEPEST * geometry.threshold_of(weight_cap):
            return None
        exponent = math.frexp(shift / test.alpha)[1] - _GRID_BITS
        # Both answers are rounded to the grid, by half a unit per coordinate (Lemma 2).
        apart = (shift / 2.0**exponent + math.sqrt(geometry.dimension)) * UP
        sigma = math.nextafter(apart / test.alpha * UP, math.inf)
        if not test.smallest_sigma <= sigma <= LARGEST_SCALE:
            return None
        return cls(
            curvature=curvature,
            step=step,
            reserve=reserve,
            gradient_cap=gradient_cap,
            weight_cap=weight_cap,
            test=test,
            exponent=exponent,
            sigma=sigma,
        )

    def position(self, located: HuberCenter) -> list[int]:
        """The center in grid units."""
        center = self._searched(located).center
        return list(map(int, np.rint(center / 2.0**self.exponent).tolist()))

    def distance_to_instability(self, located: HuberCenter, geometry: Geometry) -> int:
        """kappa(D), counted up to the value from which on the test always passes.

        Formal guarantees (proofs/propose-test-release.md, Lemma 1), for the floats that are computed and any
        neighbors D, D':
        - |kappa(D) - kappa(D')| <= 1;
        - if either is at least 1, the computed centers are at most `step` - `depth_step` apart.
        """
        located = self._searched(located)
        if not located.certified:
            return 0
        weights = located.weights_at_depths(
            np.array([self._depth_after(changes) for changes in range(self.test.margin + 1)])
        )
        low, high = 0, self.test.margin
        # The same number of turns for all data; the last may change nothing.
        for _ in range(self.test.margin.bit_length()):
            middle = (low + high + 1) // 2
            if self._is_stable(middle, weights, geometry):
                low = middle
            else:
                high = max(middle - 1, low)
        return low

    def _searched(self, located: HuberCenter) -> HuberCenter:
        """The center that the test may use.

        With a reserve, a center that was not certified in few passes has kappa = 0. Without one it may be stable, so
        the search must go on until it is certified (Lemma 5).
        """
        return located if self.reserve else located.search_until_certified()

    def _depth_after(self, changes: int) -> float:
        """How deep users must lie to hold the center after this many changes."""
        return self.reserve + changes * self.step

    def _is_stable(self, changes: int, weights: WeightByDepth, geometry: Geometry) -> bool:
        """Whether the certificate survives this many changes; monotone, so that bisection finds the last."""
        extra = changes * self.weight_cap
        solved = geometry.gradient_rate * float(weights.total_weight + extra) <= self.gradient_cap
        return solved and weights.weight_beyond(self._depth_after(changes)) >= self.curvature + extra


def _depth_reserves(geometry: Geometry, weight: TotalWeightBounds, weight_cap: int) -> tuple[float, ...]:
    """The reserves to try, the best first; one column needs none, its search is short (proofs/huber-location.md,
    2.7).
    """
    few = weight.low < _USERS_WITH_RESERVE * weight_cap
    coarse = geometry.gradient_rate > _RATE_WITH_RESERVE * geometry.threshold
    # The reserve was proved for equal thresholds only (Lemma 5).
    if geometry.dimension == 1 or geometry.power or few or coarse:
        return (0.0,)
    return ((1.0 - STABLE_WITHIN) * geometry.threshold, 0.0)


def short_tests(epsilon: float, delta: float, dimension: int) -> tuple[ProposeTestReleaseNoise, ...]:
    """The tests to choose from."""
    tests = _short_tests(epsilon, delta, dimension)
    if not tests:
        raise InputError(
            f"{parameter('epsilon')} is too small for mechanism 'propose-test-release'; raise "
            "epsilon or delta"
        )
    return tests


@lru_cache(maxsize=64)
def _short_tests(epsilon: float, delta: float, dimension: int) -> tuple[ProposeTestReleaseNoise, ...]:
    """The shortest first; if one would be too long, so would all that follow. An empty result is cached as well."""
    tests: list[ProposeTestReleaseNoise] = []
    for part in reversed(_RESERVES):
        try:
            tests.append(
                calibrate_propose_test_release(epsilon, delta, reserve=part * epsilon, dimension=dimension)
            )
        except InputError:
            break
    return tuple(tests)
