"""The mechanism `propose-test-release`: public parameters, output distribution and release.

The distance to instability of the data decides the probability to release the Huber center with noise of a public
scale.
Proof: proofs/propose-test-release.md.

Deviation from propose-test-release as in Dwork & Lei (2009): no Laplace noise on the distance and no split of epsilon;
test and noise are accounted for together (`accounting.propose_test_release`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.accounting.arguments import is_real
from hubermean.accounting.budget import (
    WEIGHT,
    BudgetEntry,
    Claim,
    PrivacyCost,
    break_down_budget,
    not_below,
)
from hubermean.accounting.discrete import laplace_scale
from hubermean.accounting.propose_test_release import ProposeTestReleaseNoise, concentrated_cost
from hubermean.data.user_table import PrivateTable
from hubermean.distributed.huber_center import HuberCenterSearch
from hubermean.distributions.output import NoiseDistribution, NoisySum, NoisyTest, OutputDistribution, Staged
from hubermean.errors import InputError, NotReleased, parameter
from hubermean.huber.geometry import Geometry, HuberCenter, Standardization
from hubermean.huber.local_sensitivity import LARGEST_WEIGHT
from hubermean.huber.thresholds import WHOLE
from hubermean.mechanisms.base import Outcome, Prepared, refuse
from hubermean.mechanisms.contributions import (
    MOST_USERS,
    UserPoints,
    check_lengths,
    check_max_records,
    check_threshold_power,
    expected_weight,
    find_least_users,
    find_weight_cap,
    parse_threshold_power,
)
from hubermean.mechanisms.intervals import GaussianNoiseInterval
from hubermean.mechanisms.propose_test_release.stability import (
    StabilityTest,
    TotalWeightBounds,
    short_tests,
)
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.types.dry_run import Prospect
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

SHARE = 0.9
_TEST_AND_MEAN = "the test and the mean"
# Predictions count on users this deep inside the threshold. With a threshold of three deviations these are the users
# within two, which is 19 in 20 even where all columns move together; of a few hundred users, nine in ten are then deep
# enough.
_RELIABLE_DEPTH = 1 / 3
_WEIGHT_SHARE = 0.04  # of epsilon: for the estimate of the total weight where it is private
# The total weight is taken to lie within this many noise scales of its estimate. A low bound costs noise. A high bound
# costs next to nothing, since it only limits the solver's error. Below the low bound, about once in 180 times, the test
# may require more users than there are.
_SCALES_BELOW, _SCALES_ABOVE = 4.5, 40.0


@dataclass(frozen=True, kw_only=True)
class ProposeTestRelease:
    """The Huber location behind a private test of its stability.

    Args:
        threshold: T, how far a user mean may lie from the center (all columns together) before its influence stops
            growing. The test requires that most users lie closer. Public.
        radius: the mean is known to lie within this distance of 0; it may be generous. Public.
        max_records: the contribution bound, the largest number of records a user counts for, with `per="record"`.
            Under `replace-values`, where counts are public, it may be left out.
        share: the share of users, by weight, expected well within the threshold: deep enough for the test and, where
            there are too many users for one machine, within three quarters of the threshold. A release states how far,
            as `distance_tested`. More means less noise and a stricter test. Default 0.9. Public.
        threshold_power: a user with a records has the threshold `threshold * a ** -threshold_power`, for
            `per="record"`. Public.
        standardization: a center and a unit for each column, in which threshold and radius are measured. Public or
            released.

    Formal guarantees:
    - (epsilon, delta)-DP for the neighbor relation of the request, delta > 0 (proofs/propose-test-release.md,
      Theorem 1); the refusal, solver error, float error and rounding included.
    - Where the total weight is private (`add-remove`, or `per="record"` under `replace-user`) a part of epsilon is
      spent on an estimate of it.
    - The noise is discrete Gaussian of a public scale; the interval states it.

    | edge case | what happens |
    |---|---|
    | a user without usable records | no influence, no weight |
    | no users, or too few for any test | refused from public numbers, else `NotReleased` |
    | a center beyond the radius | the released point is moved into the ball |
    """

    threshold: float
    radius: float
    max_records: int | None = None
    share: float = SHARE
    threshold_power: float | None = None
    standardization: Standardization | None = None
    name = "propose-test-release"

    def __post_init__(self) -> None:
        check_lengths(threshold=self.threshold, radius=self.radius)
        if not is_real(self.share) or not 0.01 <= self.share <= 0.999:
            raise InputError(f"share must be a number from 0.01 to 0.999, not {self.share!r}")
        parse_threshold_power(self.threshold_power)

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> ProposeTestRelease:
        threshold, radius = known.threshold_and_radius("threshold_power", of=cls.name)
        return cls(
            threshold=threshold,
            radius=radius,
            max_records=known.max_records,
            threshold_power=known.threshold_power,
        )

    def check(self, request: Request) -> None:
        if request.delta == 0.0:
            raise InputError(
                f"mechanism 'propose-test-release' needs delta > 0; give {parameter('delta')}, for "
                "example 1e-6, or use "
                f"{parameter('mechanism', 'inverse-sensitivity')}"
            )
        check_threshold_power(self.threshold_power, request)
        check_max_records(self.max_records, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedProposeTestRelease:
        self.check(request)
        cap = find_weight_cap(self.max_records, request, facts)
        if cap > LARGEST_WEIGHT:
            raise InputError(
                "mechanism 'propose-test-release' takes at most 2^22 records per user; give a lower "
                f"{parameter('max_records')}"
            )
        total = _public_weight(request, facts, cap)
        weight_noise = None
        if total is None:
            part = _WEIGHT_SHARE * request.epsilon
            weight_noise = NoiseDistribution(kind="laplace", scale=laplace_scale(part, sensitivity=cap))
            if weight_noise.scale > LARGEST_SCALE:
                raise InputError(
                    f"{parameter('epsilon')} is too small for so large a {parameter('max_records')}; raise "
                    f"epsilon or lower {parameter('max_records')}"
                )
        prepared = PreparedProposeTestRelease(
            request=request,
            cap=cap,
            radius=float(self.radius),
            share=float(self.share),
            geometry=Geometry.choose(
                threshold=float(self.threshold),
                radius=float(self.radius),
                dimension=len(request.columns),
                power=parse_threshold_power(self.threshold_power),
                weight_cap=cap,
                standardization=self.standardization,
            ),
            total_weight=total,
            weight_noise=weight_noise,
            planned_weight=expected_weight(request, facts, cap),
            n_users=facts.n_users,
            max_local_users=facts.max_local_users,
        )
        # Refuse before anything is spent what no data, or no data of this public size, could pass.
        if prepared.plan_at(MOST_USERS * cap) is None:
            raise InputError(
                f"{parameter('radius')} is too large for this threshold: rounding in numbers of that "
                "size would hide the users; "
                "lower radius or raise threshold"
            )
        most = total if total is not None else facts.n_users and facts.n_users * cap
        if most is not None and prepared.plan_at(most) is None:
            raise InputError(
                f"mechanism 'propose-test-release' needs about {prepared.needed()} here and there are at "
                f"most {most:,}; "
                f"raise epsilon or delta, or use {parameter('mechanism', 'inverse-sensitivity')}"
            )
        return prepared


def _public_weight(request: Request, facts: PublicFacts, cap: int) -> int | None:
    """The total weight if every user has a usable record, where that is public."""
    if facts.record_counts is not None and request.per == "record":
        return int(np.minimum(facts.record_counts, cap).sum())
    return facts.n_users if request.per == "user" else None


@dataclass(frozen=True, kw_only=True)
class PreparedProposeTestRelease(Prepared):
    """The mechanism with every public decision made; none of its fields depends on private data.

    Attributes:
        cap: the largest weight of a user.
        total_weight: the weight if every user has a usable record, where that is public.
        weight_noise: the noise of the estimate of the total weight, where it is not public.
        planned_weight: the weight to expect, for predictions alone.
        n_users, max_local_users: those of `PublicFacts`.
        charged: what the whole release is charged, where that is more than the request because other steps came
            before; these cost the epsilon `before`.
    """

    request: Request
    cap: int
    radius: float
    share: float
    geometry: Geometry
    total_weight: int | None
    weight_noise: NoiseDistribution | None
    planned_weight: float
    n_users: int | None = None
    max_local_users: int | None = None
    charged: Request | None = None
    before: Fraction = Fraction(0)

    def predicted_noise(self) -> tuple[float, ...]:
        """The noise of the test; refused where users with a good threshold might not pass."""
        plan = (
            self._public_plan()
            if self.weight_noise is None
            else self.plan_for_estimate(int(self.planned_weight))
        )
        if plan is None:
            raise InputError(
                f"mechanism 'propose-test-release' needs about {self.needed()} and is planned for "
                f"{self.planned_weight:,.0f}; raise "
                f"epsilon or delta, or use {parameter('mechanism', 'inverse-sensitivity')}"
            )
        if not self.is_reliable(plan):
            raise InputError(
                "mechanism 'propose-test-release' might not release with so few users; raise epsilon or delta, "
                f"or use {parameter('mechanism', 'inverse-sensitivity')}"
            )
        return (plan.noise_stddev,) * self.geometry.dimension

    def is_reliable(self, plan: StabilityTest) -> bool:
        """Whether users with a good threshold are almost sure to pass the test."""
        return plan.depth <= _RELIABLE_DEPTH * self.geometry.threshold_of(self.cap)

    @property
    def factor(self) -> float:
        """By how many full influences the gradient can change between neighbors."""
        return 1.0 if self.request.neighbors is Neighbors.ADD_REMOVE else 2.0

    @property
    def epsilon(self) -> float:
        """The epsilon that remains for test and noise."""
        if self.weight_noise is None:
            return self.request.epsilon
        left = Fraction(self.request.epsilon) - Fraction(_WEIGHT_SHARE * self.request.epsilon)
        return math.nextafter(float(left), 0.0)

    def concentrated(self) -> Fraction | None:
        """Of the estimate of the total weight, and of the dearest test that it may lead to (Lemma 6)."""
        if self.charged is not None:  # the steps before it are charged as a whole
            return None
        plan = self._public_plan()
        tests = self._possible_tests() if plan is None else (plan.test,)
        rho = max(concentrated_cost(test, self.request.delta) for test in tests)
        return self.weight_cost() ** 2 / 2 + rho

    def _possible_tests(self) -> tuple[ProposeTestReleaseNoise, ...]:
        return short_tests(self.epsilon, self.request.delta, self.geometry.dimension)

    def concentrated_delta(self) -> float:
        return self.request.delta

    def plan(self, weight: TotalWeightBounds) -> StabilityTest | None:
        return StabilityTest.best(
            self.geometry,
            weight,
            weight_cap=self.cap,
            factor=self.factor,
            share=self.share,
            epsilon=self.epsilon,
            delta=self.request.delta,
            partitioned=self._may_be_partitioned(most_users=weight.high),
        )

    def _may_be_partitioned(self, *, most_users: float) -> bool:
        """Whether there may be too many users for one machine; `most_users` bounds them where the number is private."""
        users = most_users if self.n_users is None else self.n_users
        return self.max_local_users is not None and users > self.max_local_users

    def plan_for_estimate(self, measured: int) -> StabilityTest | None:
        """The test for an estimate of the total weight: released, hence public from then on."""
        assert self.weight_noise is not None
        scale = self.weight_noise.scale
        low, high = measured - _SCALES_BELOW * scale, measured + _SCALES_ABOVE * scale
        return self.plan(TotalWeightBounds(low=max(low, 0.0), high=max(high, 0.0)))

    def plan_at(self, weight: int) -> StabilityTest | None:
        """The test for a total weight that is public, or was estimated as this."""
        if self.weight_noise is not None:
            return self.plan_for_estimate(weight)
        return self.plan(TotalWeightBounds(low=weight, high=weight))

    def users_needed(self) -> int:
        """The least number of users of full weight for which there is a test."""
        return find_least_users(lambda number: self.plan_at(number * self.cap) is not None)

    def needed(self) -> str:
        """About how many users, or records of users with `max_records` of them, a test needs; in words."""
        users = self.users_needed()
        if self.request.per == "user":
            return f"{users:,} users"
        return f"{users * self.cap:,} records (at most {self.cap:,} per user count)"

    def prospect(self) -> Prospect:
        steps = () if self.weight_noise is None else (WEIGHT,)
        needs = (f"about {self.needed()}", "most users well within the threshold")
        return Prospect(steps=(*steps, _TEST_AND_MEAN), needs=needs)

    def distribution(self, table: PrivateTable) -> OutputDistribution:
        located = self.locate(table)
        if self.weight_noise is None:
            return self.noisy_test(located, self._public_plan())
        return Staged(
            first=self.weight_distribution(located.total_weight),
            then=lambda measured: self.noisy_test(located, self.plan_for_estimate(measured[0])),
        )

    def weight_distribution(self, weight: int) -> NoisySum:
        """The distribution of the estimate of the total weight, where it is private."""
        assert self.weight_noise is not None
        claim = Claim(what=WEIGHT, epsilon=self.weight_cost())
        return NoisySum(position=[weight], noise=self.weight_noise, claim=claim)

    def weight_cost(self) -> Fraction:
        return Fraction(0 if self.weight_noise is None else _WEIGHT_SHARE * self.request.epsilon)

    def claims(self, distribution: Any, neighbor: Any) -> dict[str, float]:
        """kappa changes by at most one, and with kappa >= 1 the answer moves little (Lemmas 1 and 2)."""
        plan = self._public_plan()
        if self.weight_noise is not None:
            measured = distribution.first.position
            plan = self.plan_for_estimate(measured[0])
            distribution, neighbor = distribution.then(measured), neighbor.then(measured)
        if plan is None:
            return {}
        distances = [plan.test.passes.index(one.passes) for one in (distribution, neighbor)]
        moved = distribution.inner.distance(neighbor.inner) / (plan.test.alpha * plan.sigma)
        return {
            "the distance to instability changes by at most one": float(abs(distances[0] - distances[1])),
            "a stable answer moves by at most alpha sigma": moved if max(distances) > 0 else 0.0,
        }

    @property
    def points(self) -> UserPoints:
        return UserPoints(geometry=self.geometry, request=self.request, cap=self.cap)

    def search(self, table: PrivateTable) -> HuberCenterSearch:
        """The total weight of the users, and their center when it is needed."""
        return HuberCenterSearch(table, self.points)

    def locate(self, table: PrivateTable) -> HuberCenter:
        return self.search(table).locate()

    def noisy_test(self, located: HuberCenter, plan: StabilityTest | None) -> NoisyTest:
        """The noisy test with the noisy center behind it; without a plan it never passes."""
        if plan is None:
            return NoisyTest(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))
        return NoisyTest(
            passes=plan.test.passes[plan.distance_to_instability(located, self.geometry)],
            bits=plan.test.bits,
            inner=NoisySum(
                position=plan.position(located), noise=NoiseDistribution(kind="gaussian", scale=plan.sigma)
            ),
            claim=Claim(what=_TEST_AND_MEAN, epsilon=self.epsilon, delta=self.request.delta),
        )

    def users_to_audit(self) -> int:
        return math.ceil(1.3 * self.users_needed())

    def outcome(self, sample: Any) -> Outcome:
        plan = self._public_plan()
        parameters: dict[str, Any] = {"threshold": self.geometry.threshold, "radius": self.radius}
        if self.geometry.power:
            parameters["threshold_power"] = self.geometry.power / WHOLE
        if self.request.per == "record":
            parameters["max_records"] = self.cap
        if self.weight_noise is not None:
            (measured,), sample = sample
            plan = self.plan_for_estimate(measured)
            parameters |= self.estimate_parameters(measured)
        if plan is None or sample is None:
            raise self._refusal(plan)
        # The nearest float to each point of the grid: scaling by a power of two is exact.
        noisy = [math.ldexp(number, plan.exponent) for number in sample]
        standardization = self.geometry.standardization
        stddevs = tuple(standardization.unit(column) * plan.noise_stddev for column in range(len(noisy)))
        rule = GaussianNoiseInterval(
            center=tuple(standardization.invert(column, one) for column, one in enumerate(noisy)),
            noise_stddevs=stddevs,
        )
        parameters |= {
            "share_within_threshold": self.share,
            "changes_to_pass": plan.test.margin,
            "distance_tested": self.geometry.threshold_of(self.cap) - plan.depth,
            "noise": "discrete Gaussian",
            "noise_stddev": plan.noise_stddev if len(set(stddevs)) == 1 else list(stddevs),
        }
        # The mean is known to lie in the ball, so moving the answer into it can only help and costs nothing.
        shrink = min(1.0, self.radius / max(math.hypot(*noisy), self.radius))
        values = tuple(standardization.invert(column, shrink * one) for column, one in enumerate(noisy))
        return Outcome(
            values=values,
            parameters=parameters,
            interval_rule=rule,
            budget_breakdown=self.break_down_budget(_TEST_AND_MEAN),
        )

    def break_down_budget(self, step: str) -> tuple[BudgetEntry, ...]:
        """What was spent on the estimate of the total weight, if there was one, and on the named second step."""
        step_costs = [(WEIGHT, self.weight_cost()), (step, Fraction(self.epsilon))]
        return break_down_budget(step_costs, unit="epsilon", delta=self.request.delta, delta_for=step)

    def estimate_parameters(self, weight: int) -> dict[str, int]:
        """The estimated total weight, under the name by which a release states it."""
        return {f"{self.request.per}s_measured": max(weight, 0)}

    def _public_plan(self) -> StabilityTest | None:
        return None if self.total_weight is None else self.plan_at(self.total_weight)

    def _refusal(self, plan: StabilityTest | None) -> NotReleased:
        charged = self.charged or self.request
        if plan is None:  # no test was made, which is decided by the estimate of the total weight alone
            return refuse(
                f"fewer than the {self.needed()} that the test needs were measured",
                f"raise epsilon or delta, or use {parameter('mechanism', 'inverse-sensitivity')}",
                charged=charged,
                used=PrivacyCost(
                    epsilon=not_below(self.before + self.weight_cost()),
                    delta=0.0,
                    rho=None if self.charged is not None else self.weight_cost() ** 2 / 2,
                ),
            )
        return refuse(
            "the data did not pass the private test that most users lie well within the threshold",
            "a larger threshold or more users would help",
            charged=charged,
        )
