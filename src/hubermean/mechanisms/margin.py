"""The margin of a data set, and the plan of a test for it: how much curvature, which step, which noise.

kappa(D) counts how many users may change before the certificate of the centre's stability is lost: the largest j for
which users of total weight rho + j w lie at least j steps deep inside their threshold, beyond a reserve. The reserve is
what makes sure that a search in few passes finds the centre of all data with a margin, and of their neighbours; there
is one where users may be on many machines, for public numbers say so. Proof: proofs/tested.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hubermean.errors import InputError
from hubermean.location.rounds import HELD_SHARE, HELD_WITHIN
from hubermean.mechanisms.geometry import UP, DeepWeight, Geometry, Located
from hubermean.noise import LARGEST_SCALE
from hubermean.privacy import GatedNoise, gated_noise

# Parts of epsilon that the noise may leave to the test; the plan takes the best of them.
_RESERVES = (0.003, 0.01, 0.02, 0.04, 0.07, 0.12, 0.2, 0.35)
_DEEPEST = 0.9  # the margin may reach so far into the threshold
_GRID_BITS = 44  # the noise is about 2^44 grid units wide
# A reserve takes so many users of full weight, and a solver's error, in thresholds, of at most this: then neither moves
# the centre by much (Lemma 5).
_USERS_WITH_RESERVE = 2**17
_RATE_WITH_RESERVE = 2.0**-20
MOST_USERS = 2**40  # a hundred times as many as there are people


@dataclass(frozen=True, kw_only=True)
class TotalWeight:
    """Public bounds on the total weight that a plan counts on; data beyond them fails the test, no more."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class MarginPlan:
    """A test and its noise, from public numbers alone.

    Attributes:
        curvature: rho, the total weight of users that must hold the centre.
        step: the most by which the computed centre moves between neighbours if either has a margin, plus the error of
            a computed depth.
        reserve: users count from this depth on; 0 where they are on one machine for sure.
        gradient_cap: the largest certified gradient that the plan allows for.
        weight_cap: w, the largest weight of a user.
        test: the chances to pass, and what its noise hides.
        exponent: the grid of answers is the multiples of 2^exponent.
        sigma: the noise in grid units.
    """

    curvature: int
    step: float
    reserve: float
    gradient_cap: float
    weight_cap: int
    test: GatedNoise
    exponent: int
    sigma: float

    @property
    def noise_stddev(self) -> float:
        return self.sigma * 2.0**self.exponent

    @property
    def depth(self) -> float:
        """How deep users must lie for the test to be passed for sure."""
        return self.reserve + self.test.margin * self.step

    @classmethod
    def best(
        cls,
        geometry: Geometry,
        weight: TotalWeight,
        *,
        weight_cap: int,
        factor: float,
        share: float,
        epsilon: float,
        delta: float,
        in_parts: bool = False,
    ) -> MarginPlan | None:
        """The plan of least noise; None where the weight is too small for any. `in_parts`: users may be.

        A deep margin asks for users far inside their threshold, hence for a wider threshold: the noise is compared
        as it would be for a threshold widened by as much.
        """
        least = geometry.threshold_of(weight_cap)
        for reserve in _depth_reserves(geometry, weight, weight_cap) if in_parts else (0.0,):
            plans = []
            for test in _tests(epsilon, delta, geometry.dimension):
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
        test: GatedNoise,
        geometry: Geometry,
        weight: TotalWeight,
        *,
        weight_cap: int,
        factor: float,
        share: float,
        reserve: float = 0.0,
    ) -> MarginPlan | None:
        curvature = math.floor(share * weight.low - test.margin * weight_cap)
        if curvature < 1:
            return None
        heaviest = weight.high + test.margin * weight_cap
        if reserve and curvature < HELD_SHARE * heaviest * UP:
            return None
        gradient_cap = geometry.gradient_rate * heaviest * UP
        # Lemma 1: the pull of a changed user and both solvers' errors, against the curvature that is left.
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

    def position(self, located: Located) -> list[int]:
        """The centre in grid units."""
        centre = self._searched(located).centre
        return list(map(int, np.rint(centre / 2.0**self.exponent).tolist()))

    def margin(self, located: Located, geometry: Geometry) -> int:
        """kappa(D), counted up to the margin from which on the test is passed for sure.

        Formal guarantees (proofs/tested.md, Lemma 1), for the floats that are computed and any neighbours D, D':
        - |kappa(D) - kappa(D')| <= 1;
        - if either is at least 1, the computed centres are at most `step` - `depth_step` apart.
        """
        located = self._searched(located)
        if not located.certified:
            return 0
        deep = located.at_depths(
            np.array([self._depth_after(changes) for changes in range(self.test.margin + 1)])
        )
        low, high = 0, self.test.margin
        for _ in range(
            self.test.margin.bit_length()
        ):  # as many turns whatever the data; the last may change nothing
            middle = (low + high + 1) // 2
            if self._holds(middle, deep, geometry):
                low = middle
            else:
                high = max(middle - 1, low)
        return low

    def _searched(self, located: Located) -> Located:
        """What may be told of users that were searched for: with a reserve, those not found in time have no margin.

        Without one they may have, and must be searched for to the end (Lemma 5).
        """
        return located if self.reserve else located.searched_to_the_end()

    def _depth_after(self, changes: int) -> float:
        """How deep users must lie to hold the centre after so many changes."""
        return self.reserve + changes * self.step

    def _holds(self, changes: int, deep: DeepWeight, geometry: Geometry) -> bool:
        """Whether the certificate survives so many changes; monotone, so that bisection finds the last."""
        extra = changes * self.weight_cap
        solved = geometry.gradient_rate * float(deep.total_weight + extra) <= self.gradient_cap
        return solved and deep.weight_beyond(self._depth_after(changes)) >= self.curvature + extra


def _depth_reserves(geometry: Geometry, weight: TotalWeight, weight_cap: int) -> tuple[float, ...]:
    """What to try for a reserve, the best first. In one column a search is short without (proofs/huber-location.md,
    2.7)."""
    few = weight.low < _USERS_WITH_RESERVE * weight_cap
    coarse = geometry.gradient_rate > _RATE_WITH_RESERVE * geometry.threshold
    # Thresholds that differ are no part of what the reserve was proved for (Lemma 5).
    if geometry.dimension == 1 or geometry.power or few or coarse:
        return (0.0,)
    return ((1.0 - HELD_WITHIN) * geometry.threshold, 0.0)


def _tests(epsilon: float, delta: float, dimension: int) -> tuple[GatedNoise, ...]:
    """The tests to choose from."""
    tests = _short_tests(epsilon, delta, dimension)
    if not tests:
        raise InputError("epsilon is too small for mechanism 'tested'; raise epsilon or delta")
    return tests


@lru_cache(maxsize=64)
def _short_tests(epsilon: float, delta: float, dimension: int) -> tuple[GatedNoise, ...]:
    """The shortest come first; where one would be too long, so would the rest. That there is none is kept as well."""
    tests: list[GatedNoise] = []
    for part in reversed(_RESERVES):
        try:
            tests.append(gated_noise(epsilon, delta, reserve=part * epsilon, dimension=dimension))
        except InputError:
            break
    return tuple(tests)


def least_users(enough: Callable[[int], bool]) -> int:
    """The least number of users that is enough, by bisection; `MOST_USERS` must be."""
    low, high = 0, MOST_USERS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
