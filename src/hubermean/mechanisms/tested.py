"""`tested`: the Huber location with a certificate of its stability, a private test of it, and Gaussian noise.

The centre of many columns at once moves little when one user changes, provided enough users lie well inside the
threshold around it. How many changes that property would survive is the margin of the data; a coin whose chance follows
the margin decides whether the centre is released, with noise of a public scale. Proof: proofs/tested.md.

Deviation from propose-test-release as in Dwork & Lei (2009): no Laplace noise on the margin and no split of epsilon;
test and noise are accounted for together (`privacy.gated_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.errors import InputError, NotReleased, is_real
from hubermean.laws import Claim, Gate, Law, NoisySum, Staged
from hubermean.mechanisms.account import WEIGHT, account
from hubermean.mechanisms.certified_bounds import LARGEST_WEIGHT
from hubermean.mechanisms.geometry import Frame, Geometry, Located, check_lengths
from hubermean.mechanisms.margin import MOST_USERS, MarginPlan, TotalWeight, least_users
from hubermean.mechanisms.protocol import Known, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.spread_users import AsPoints, SpreadUsers, locate
from hubermean.mechanisms.thresholds import WHOLE, check_power_use, checked_power
from hubermean.mechanisms.weights import check_cap, planned_weight, weight_cap
from hubermean.noise import LARGEST_SCALE, NoiseLaw
from hubermean.privacy import laplace_scale
from hubermean.relations import Neighbors
from hubermean.release import Interval
from hubermean.spending import Spent
from hubermean.user_table import PrivateTable

SHARE = 0.9
_TEST_AND_MEAN = "the test and the mean"
# A prediction counts on users within so much less than the threshold: with one of three deviations, those within two,
# which is 19 in 20 also where all columns move together; a few hundred of them then hold the share of nine in ten.
_SAFE_DEPTH = 1 / 3
_WEIGHING_SHARE = 0.04  # of epsilon: to measure the total weight where it is private
# The total weight is taken to lie within so many noise scales of what was measured. A low bound costs noise; a high one
# next to nothing, since it only limits the solver's error. Beyond the low bound, about once in 180 times, the test may
# ask for more users than there are.
_WEIGHED_BELOW, _WEIGHED_ABOVE = 4.5, 40.0


@dataclass(frozen=True, kw_only=True)
class Tested:
    """Huber location behind a private test of its stability.

    Args:
        threshold: T, how far a user mean may lie from the centre (all columns together) before its pull stops growing;
            the test asks that most users lie closer. Public.
        radius: the mean is known to lie within this distance of 0; it may be generous. Public.
        record_cap: the largest number of records a user counts for; for `per="record"`. Under `replace-values`, where
            counts are public, it may be left out.
        threshold_power: a user with a records has the threshold `threshold * a ** -threshold_power`, for
            `per="record"`. Public.
        frame: a center and a unit for each column, in which threshold and radius are measured. Public or released.
        share: the share of users, by weight, that is expected well within the threshold: deep enough for the margin of
            the test and, where there are too many users for one machine, within three quarters of it. A release states
            how far, as `distance_tested`. More means less noise and a stricter test. Public.

    Formal guarantees:
    - (epsilon, delta)-DP for the neighbour relation of the request, delta > 0 (proofs/tested.md, Theorem 1); the
      refusal, solver error, float error and rounding included.
    - Where the total weight is private (`add-remove`, or `per="record"` under `replace-user`) a part of epsilon
      measures it.
    - The noise is discrete Gaussian of a public scale; the interval states it.
    - A user without usable records pulls at nothing and counts for nothing.
    """

    threshold: float
    radius: float
    record_cap: int | None = None
    share: float = SHARE
    threshold_power: float | None = None
    frame: Frame | None = None
    name = "tested"

    def __post_init__(self) -> None:
        check_lengths(threshold=self.threshold, radius=self.radius)
        if not is_real(self.share) or not 0.01 <= self.share <= 0.999:
            raise InputError(f"share must be a number from 0.01 to 0.999, not {self.share!r}")
        checked_power(self.threshold_power)

    @classmethod
    def from_known(cls, known: Known) -> Tested:
        threshold, radius = known.spread("threshold_power", of=cls.name)
        return cls(
            threshold=threshold,
            radius=radius,
            record_cap=known.record_cap,
            threshold_power=known.threshold_power,
        )

    def check(self, request: Request) -> None:
        if request.delta == 0.0:
            raise InputError(
                "mechanism 'tested' needs delta > 0; give delta=, for example 1e-6, or use mechanism='exact'"
            )
        check_power_use(self.threshold_power, request)
        check_cap(self.record_cap, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedTested:
        self.check(request)
        cap = weight_cap(self.record_cap, request, facts)
        if cap > LARGEST_WEIGHT:
            raise InputError(
                "mechanism 'tested' takes at most 2^22 records per user; give a lower record_cap="
            )
        total = _public_weight(request, facts, cap)
        weighing = None
        if total is None:
            part = _WEIGHING_SHARE * request.epsilon
            weighing = NoiseLaw(kind="laplace", scale=laplace_scale(part, sensitivity=cap))
            if weighing.scale > LARGEST_SCALE:
                raise InputError(
                    "epsilon is too small for so large a record_cap; raise epsilon or lower record_cap"
                )
        prepared = PreparedTested(
            request=request,
            cap=cap,
            radius=float(self.radius),
            share=float(self.share),
            geometry=Geometry.choose(
                threshold=float(self.threshold),
                radius=float(self.radius),
                dimension=len(request.columns),
                power=checked_power(self.threshold_power),
                weight_cap=cap,
                frame=self.frame,
            ),
            total_weight=total,
            weighing=weighing,
            planned_weight=planned_weight(request, facts, cap),
            n_users=facts.n_users,
            held_up_to=facts.held_up_to,
        )
        # What no data, or no data of this public size, could pass is refused before anything is spent.
        if prepared.plan_at(MOST_USERS * cap) is None:
            raise InputError(
                "radius is too large for this threshold: rounding in numbers of that size would hide the users; "
                "lower radius or raise threshold"
            )
        most = total if total is not None else facts.n_users and facts.n_users * cap
        if most is not None and prepared.plan_at(most) is None:
            raise InputError(
                f"mechanism 'tested' needs about {prepared.needed()} here and there are at most {most:,}; "
                "raise epsilon or delta, or use mechanism='exact'"
            )
        return prepared


def _public_weight(request: Request, facts: PublicFacts, cap: int) -> int | None:
    """The total weight if every user has a usable record, where that is public."""
    if facts.record_counts is not None and request.per == "record":
        return int(np.minimum(facts.record_counts, cap).sum())
    return facts.n_users if request.per == "user" else None


@dataclass(frozen=True, kw_only=True)
class PreparedTested(Prepared):
    """The mechanism with every public decision made; none of its fields depends on private data.

    `weighing` is the noise with which the total weight is measured first, where it is not public; `planned_weight` is
    the weight to expect, for predictions alone; `n_users` and `held_up_to` are those of `PublicFacts`.
    `charged` is what a refusal costs, where that is more than the request: something else was drawn before.
    """

    request: Request
    cap: int
    radius: float
    share: float
    geometry: Geometry
    total_weight: int | None
    weighing: NoiseLaw | None
    planned_weight: float
    n_users: int | None = None
    held_up_to: int | None = None
    charged: Request | None = None

    def predicted_noise(self) -> tuple[float, ...]:
        """The noise of the plan; refused where the test asks for more than a good threshold is sure to give."""
        plan = self._public_plan() if self.weighing is None else self.weighed_plan(int(self.planned_weight))
        if plan is None:
            raise InputError(
                f"mechanism 'tested' needs about {self.needed()} and is planned for {self.planned_weight:,.0f}; raise "
                "epsilon or delta, or use mechanism='exact'"
            )
        if not self.is_safe(plan):
            raise InputError(
                "mechanism 'tested' might refuse to release with so few users; raise epsilon or delta, or use "
                "mechanism='exact'"
            )
        return (plan.noise_stddev,) * self.geometry.dimension

    def is_safe(self, plan: MarginPlan) -> bool:
        """Whether users with a good threshold are sure to pass the test."""
        return plan.depth <= _SAFE_DEPTH * self.geometry.threshold_of(self.cap)

    @property
    def factor(self) -> float:
        """How many full pulls the gradient can change by between neighbours."""
        return 1.0 if self.request.neighbors is Neighbors.ADD_REMOVE else 2.0

    @property
    def epsilon(self) -> float:
        """What is left for test and noise."""
        if self.weighing is None:
            return self.request.epsilon
        left = Fraction(self.request.epsilon) - Fraction(_WEIGHING_SHARE * self.request.epsilon)
        return math.nextafter(float(left), 0.0)

    def plan(self, weight: TotalWeight) -> MarginPlan | None:
        return MarginPlan.best(
            self.geometry,
            weight,
            weight_cap=self.cap,
            factor=self.factor,
            share=self.share,
            epsilon=self.epsilon,
            delta=self.request.delta,
            in_parts=self._may_be_in_parts(most_users=weight.high),
        )

    def _may_be_in_parts(self, *, most_users: float) -> bool:
        """Whether there may be too many users for one machine; at most so many, where their number is private."""
        users = most_users if self.n_users is None else self.n_users
        return self.held_up_to is not None and users > self.held_up_to

    def weighed_plan(self, measured: int) -> MarginPlan | None:
        """The plan for a total weight as it was measured: released, hence public from then on."""
        assert self.weighing is not None
        scale = self.weighing.scale
        low, high = measured - _WEIGHED_BELOW * scale, measured + _WEIGHED_ABOVE * scale
        return self.plan(TotalWeight(low=max(low, 0.0), high=max(high, 0.0)))

    def plan_at(self, weight: int) -> MarginPlan | None:
        """The plan for a total weight that is public, or was measured as this."""
        if self.weighing is not None:
            return self.weighed_plan(weight)
        return self.plan(TotalWeight(low=weight, high=weight))

    def users_needed(self) -> int:
        """The least number of users of full weight for which there is a plan."""
        return least_users(lambda number: self.plan_at(number * self.cap) is not None)

    def needed(self) -> str:
        """About how many users, or records of users that reach the cap, a plan needs; in words."""
        users = self.users_needed()
        if self.request.per == "user":
            return f"{users:,} users"
        return f"{users * self.cap:,} records (at most {self.cap:,} per user count)"

    def law(self, table: PrivateTable) -> Law:
        located = self.locate(table)
        if self.weighing is None:
            return self.gate(located, self._public_plan())
        return Staged(
            first=self.weighed(located.total_weight),
            then=lambda measured: self.gate(located, self.weighed_plan(measured[0])),
        )

    def weighed(self, weight: int) -> NoisySum:
        """The law of the measured weight, where it is measured."""
        assert self.weighing is not None
        claim = Claim(what=WEIGHT, epsilon=self._price_of_weighing())
        return NoisySum(position=[weight], noise=self.weighing, claim=claim)

    def _price_of_weighing(self) -> Fraction:
        return Fraction(0 if self.weighing is None else _WEIGHING_SHARE * self.request.epsilon)

    def claims(self, law: Any, neighbour: Any) -> dict[str, float]:
        """The margin changes by at most one, and with a margin the answer stays (proofs/tested.md, Lemmas 1 and 2)."""
        plan = self._public_plan()
        if self.weighing is not None:
            measured = law.first.position
            plan = self.weighed_plan(measured[0])
            law, neighbour = law.then(measured), neighbour.then(measured)
        if plan is None:
            return {}
        margins = [plan.test.passes.index(one.passes) for one in (law, neighbour)]
        moved = law.inner.distance(neighbour.inner) / (plan.test.alpha * plan.sigma)
        return {
            "the margin changes by at most one": float(abs(margins[0] - margins[1])),
            "with a margin, the answer moves by at most alpha sigma": moved if max(margins) > 0 else 0.0,
        }

    @property
    def _reading(self) -> AsPoints:
        return AsPoints(geometry=self.geometry, request=self.request, cap=self.cap)

    def counted(self, table: PrivateTable) -> SpreadUsers:
        """The total weight of users in parts, and about where they are: the first of the passes that locate them."""
        return SpreadUsers.counted(table, self._reading)

    def locate(self, table: PrivateTable, counted: SpreadUsers | None = None) -> Located:
        return locate(table, self._reading, counted)

    def gate(self, located: Located, plan: MarginPlan | None) -> Gate:
        """The coin and the noisy centre behind it; without a plan the coin never passes."""
        if plan is None:
            return Gate(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))
        return Gate(
            passes=plan.test.passes[plan.margin(located, self.geometry)],
            bits=plan.test.bits,
            inner=NoisySum(
                position=plan.position(located), noise=NoiseLaw(kind="gaussian", scale=plan.sigma)
            ),
            claim=Claim(what=_TEST_AND_MEAN, epsilon=self.epsilon, delta=self.request.delta),
        )

    def users_to_audit(self) -> int:
        return math.ceil(1.3 * self.users_needed())

    def outcome(self, draw: Any) -> Outcome:
        plan = self._public_plan()
        parameters: dict[str, Any] = {"threshold": self.geometry.threshold, "radius": self.radius}
        if self.geometry.power:
            parameters["threshold_power"] = self.geometry.power / WHOLE
        if self.request.per == "record":
            parameters["record_cap"] = self.cap
        if self.weighing is not None:
            (measured,), draw = draw
            plan = self.weighed_plan(measured)
            parameters |= self.measured(measured)
        if plan is None or draw is None:
            raise self._refusal(plan)
        # The nearest float to each point of the grid: scaling by a power of two is exact.
        noisy = [math.ldexp(place, plan.exponent) for place in draw]
        frame = self.geometry.frame
        stddevs = tuple(frame.unit(column) * plan.noise_stddev for column in range(len(noisy)))
        rule = NoiseInterval(
            centre=tuple(frame.value(column, seen) for column, seen in enumerate(noisy)),
            noise_stddevs=stddevs,
        )
        parameters |= {
            "share_within_threshold": self.share,
            "margin_of_test": plan.test.margin,
            "distance_tested": self.geometry.threshold_of(self.cap) - plan.depth,
            "noise": "discrete Gaussian",
            "noise_stddev": plan.noise_stddev if len(set(stddevs)) == 1 else list(stddevs),
        }
        # The mean is known to lie in the ball, so bringing the answer back into it can only help; it costs nothing.
        shrink = min(1.0, self.radius / max(math.hypot(*noisy), self.radius))
        values = tuple(frame.value(column, shrink * seen) for column, seen in enumerate(noisy))
        return Outcome(
            values=values,
            parameters=parameters,
            interval_rule=rule,
            spent=self.account(_TEST_AND_MEAN),
        )

    def account(self, rest: str) -> tuple[Spent, ...]:
        """What was spent on the weight, if that was measured, and on what was done with the rest."""
        prices = [(WEIGHT, self._price_of_weighing()), (rest, Fraction(self.epsilon))]
        return account(prices, unit="epsilon", delta=self.request.delta, delta_for=rest)

    def measured(self, weight: int) -> dict[str, int]:
        """The measured weight, under the name by which a release states it."""
        return {f"{self.request.per}s_measured": max(weight, 0)}

    def _public_plan(self) -> MarginPlan | None:
        return None if self.total_weight is None else self.plan_at(self.total_weight)

    def _refusal(self, plan: MarginPlan | None) -> NotReleased:
        charged = self.charged or self.request
        spent = f"epsilon = {charged.epsilon:g} and delta = {charged.delta:g} are spent"
        if plan is None:
            reason = (
                f"fewer than the {self.needed()} that the test needs were measured; {spent}; "
                "raise epsilon or delta, or use mechanism='exact'"
            )
        else:
            reason = (
                f"the data did not pass the private test that most users lie well within the threshold; {spent}; "
                "a larger threshold or more users would help"
            )
        return NotReleased(reason, epsilon=charged.epsilon, delta=charged.delta)


@dataclass(frozen=True, kw_only=True, repr=False)
class NoiseInterval:
    """An interval per column for the Huber location of the data, from the noisy centre and the public noise law."""

    centre: Sequence[float]
    noise_stddevs: Sequence[float]

    def at(self, level: float) -> Interval:
        # In units of 2^-44 deviations, so that the grid is negligible.
        bound = NoiseLaw(kind="gaussian", scale=2.0**44).bound(tail=1.0 - level) * 2.0**-44
        ends = list(zip(self.centre, self.noise_stddevs, strict=True))
        low = tuple(value - bound * stddev for value, stddev in ends)
        high = tuple(value + bound * stddev for value, stddev in ends)
        return Interval(level=level, low=low, high=high, covers="noise only")
