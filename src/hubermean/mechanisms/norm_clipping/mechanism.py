"""The mechanism `norm-clipping`: public parameters, the chain of private steps, and the release."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.accounting.arguments import is_real
from hubermean.accounting.budget import BudgetEntry, PrivacyCost, break_down_budget, not_below
from hubermean.data.user_table import PrivateTable
from hubermean.distributed.queries import memoise
from hubermean.distributions.output import NoisySum, NoisyTest, OutputDistribution, Staged
from hubermean.errors import InputError, NotReleased, parameter
from hubermean.mechanisms.adaptive.parameters import ValueParameters
from hubermean.mechanisms.base import Outcome, Prepared, refuse
from hubermean.mechanisms.contributions import (
    check_optional_max_records,
    check_user_estimate,
    find_weight_cap,
)
from hubermean.mechanisms.intervals import GaussianNoiseInterval
from hubermean.mechanisms.norm_clipping.estimate import NoScaleError, TooFewUsersError, VectorEstimate
from hubermean.mechanisms.norm_clipping.plan import HOSTILE, UNIT, VectorPlan
from hubermean.mechanisms.norm_clipping.steps import (
    CAP,
    LENGTH,
    SUM,
    THRESHOLD,
    USERS,
    Setting,
    Step,
    next_step,
)
from hubermean.mechanisms.norm_clipping.users import RADII, VectorUsers
from hubermean.searches.bounds import LARGEST_MAX_RECORDS
from hubermean.types.dry_run import Prospect
from hubermean.types.options import PublicParameters
from hubermean.types.request import PublicFacts, Request

_LEAST_THRESHOLD, _LARGEST_THRESHOLD = float(RADII[0]), float(RADII[-1])
_LARGEST_SCALE = 2.0**60
_NEVER = NoisyTest(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))
_COVERS = "noise only, on average over the columns"
_TOO_FEW = "too few users with usable records were measured"
_NO_SCALE = "most users have the same vector, or nearly so, so no threshold can be found"


@dataclass(frozen=True, kw_only=True)
class NormClipping:
    """The mean of vectors that are shortened to a threshold, with threshold and center found privately.

    Args:
        threshold: the length, in all columns together, to which a user's distance from zero is shortened; then none is
            searched for. Public.
        scale: the unit of each column, or one for all: columns are divided by it, so each gets noise in proportion.
            Public.
        max_records: the contribution bound, with `per="record"`; without it one is found privately.
        hostile: the share of users, up to 0.2, that may be malicious; 0.05 by default. Fewer means that a longer tail
            of honest users counts in full.
        n_users: about how many users there are, for `add-remove`, which keeps it private.

    Formal guarantees:
    - (epsilon, delta)-DP for the neighbor relation of the request, delta > 0, and rho-zCDP for the rho of
      `PreparedNormClipping.concentrated` (proofs/norm-clipping.md, Theorems 1 and 2);
    - the sums are of integers, one vector per user: no rounding error, and no order of users, changes them;
    - one user moves the sum of vectors by at most the threshold, whatever its records are.

    | edge case | what happens |
    |---|---|
    | a user without usable records, or with numbers whose squares overflow | adds nothing |
    | too few users | refused from public numbers, else `NotReleased` |
    | more than half of the users at zero, or all at one point | `NotReleased` |
    """

    threshold: float | None = None
    scale: Any = None
    max_records: int | None = None
    hostile: float | None = None
    n_users: int | None = None
    name = "norm-clipping"

    def __post_init__(self) -> None:
        if self.threshold is not None and not (
            is_real(self.threshold) and _LEAST_THRESHOLD <= self.threshold <= _LARGEST_THRESHOLD
        ):
            raise InputError(f"{parameter('threshold')} must be a number from 2^-30 to 2^60 here")
        self._checked(columns=None)

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> NormClipping:
        known.check_only(*(one.name for one in fields(cls)), of=cls.name)
        return cls(**known.to_dict())

    def _checked(self, *, columns: int | None) -> ValueParameters:
        given = PublicParameters(scale=self.scale, hostile=self.hostile, n_users=self.n_users)
        known = ValueParameters.checked(given, columns=columns)
        if any(not 1 / _LARGEST_SCALE <= one <= _LARGEST_SCALE for one in known.scales or ()):
            raise InputError(f"{parameter('scale')} must be from 2^-60 to 2^60 here")
        return known

    def check(self, request: Request) -> None:
        if request.delta == 0.0:
            raise InputError(
                f"mechanism {self.name!r} needs delta > 0; give {parameter('delta')}, for example 1e-6"
            )
        self._checked(columns=len(request.columns))
        check_optional_max_records(self.max_records, request)
        if self.max_records is not None and self.max_records > LARGEST_MAX_RECORDS:
            raise InputError(
                f"{parameter('max_records')} may be at most {LARGEST_MAX_RECORDS:,} here; lower it"
            )
        check_user_estimate(self.n_users, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedNormClipping:
        self.check(request)
        known = self._checked(columns=len(request.columns))
        cap_is_public = (
            request.per == "user" or self.max_records is not None or facts.record_counts is not None
        )
        users = facts.n_users if facts.n_users is not None else self.n_users
        plan = VectorPlan(
            epsilon=request.epsilon,
            delta=request.delta,
            dimension=len(request.columns),
            add_remove=not request.neighbors.users_are_public,
            hostile=HOSTILE if self.hostile is None else known.hostile,
            threshold=self.threshold,
            measures_users=users is None,
            measures_cap=not cap_is_public,
            users=None if users is None else float(max(users, 1)),
        )
        if users is not None and users < plan.least_users:
            there = "there are" if facts.n_users is not None else f"{parameter('n_users')} expects"
            raise InputError(
                f"mechanism {self.name!r} needs about {plan.least_users:,} users here, but {there} {users:,}; "
                "raise epsilon"
            )
        cap = (
            min(find_weight_cap(self.max_records, request, facts), LARGEST_MAX_RECORDS)
            if cap_is_public
            else 0
        )
        # Factors that rows are multiplied by; the units of the result are their inverses.
        scales = None if known.scales is None else 1.0 / np.array(known.scales)
        prepared = PreparedNormClipping(
            request=request,
            plan=plan,
            cap=max(cap, 1) if cap_is_public else 0,
            factors=None if scales is None else tuple(scales.astype(np.float32).tolist()),
            planned_users=float(users if users is not None else facts.planned_users),
        )
        _ = prepared.plan_at(float(plan.least_users)).noise_multiplier  # refuses a budget that is too small
        return prepared


@dataclass(frozen=True, kw_only=True)
class PreparedNormClipping(Prepared):
    """The mechanism with every public decision made.

    Attributes:
        cap: the largest weight of a user; 0 where it is searched for.
        factors: of the columns, in single precision; None for one.
        planned_users: how many users predictions assume.
    """

    request: Request
    plan: VectorPlan
    cap: int
    factors: tuple[float, ...] | None
    planned_users: float

    @property
    def setting(self) -> Setting:
        scales = None if self.factors is None else np.array(self.factors, dtype=np.float32)
        return Setting(request=self.request, scales=scales)

    @property
    def start(self) -> VectorEstimate:
        return VectorEstimate(
            plan=self.plan,
            cap=self.cap,
            spent=Fraction(0),
            rho=Fraction(0),
            left=1 - self.plan.part_along,
            center=np.zeros(self.plan.dimension),
        )

    def plan_at(self, users: float) -> VectorPlan:
        """The plan where so many users are public or were measured."""
        return self.plan if self.plan.users is not None else self.plan.with_users(users)

    def concentrated(self) -> Fraction:
        return self.plan.concentrated

    def is_adaptive(self) -> bool:
        return True

    def prospect(self) -> Prospect:
        steps = [USERS] if self.plan.measures_users else []
        steps += [CAP] if self.plan.measures_cap else []
        steps += [THRESHOLD] if self.plan.threshold is None else []
        needs = f"about {self.plan.least_users:,} users with usable records"
        return Prospect(mechanism=NormClipping.name, steps=(*steps, SUM, LENGTH), needs=(needs,))

    def users_to_audit(self) -> int:
        return math.ceil(1.3 * self.plan.least_users)

    def predicted_noise(self) -> tuple[float, ...]:
        return self.predicted_noise_at(1.0 if self.plan.threshold is None else self.plan.threshold)

    def predicted_noise_at(self, scale: float) -> tuple[float, ...]:
        """Of users whose distances are those of normal ones: with a shorter threshold less of their weight is left."""
        users = max(self.planned_users, 1.0)
        if users < self.plan.least_users:
            raise InputError(
                f"mechanism {NormClipping.name!r} needs about {self.plan.least_users:,} users here and is planned "
                f"for {users:,.0f}"
            )
        plan = self.plan_at(users)
        length = math.sqrt(plan.dimension) * scale
        threshold = plan.threshold_for(length)
        left = min(threshold / length, 1.0)
        part = 1 - plan.part_along
        deviation = plan.noise_of_round(part).scale * threshold / UNIT / (users * left)
        return (deviation,) * plan.dimension

    def distribution(self, table: PrivateTable) -> OutputDistribution:
        return self._chain(VectorUsers(memoise(table)), self.start)

    def _chain(self, users: VectorUsers, found: VectorEstimate) -> OutputDistribution:
        setting = self.setting
        step = next_step(setting, found)
        assert step is not None
        first = step.distribution(users, found)

        def then(sample: Any) -> OutputDistribution:
            try:
                return self._chain(users, self._update(step, found, sample))
            except (TooFewUsersError, NoScaleError):
                return _NEVER

        return first if _is_last(found) else Staged(first=first, then=then)

    def _update(self, step: Step, found: VectorEstimate, sample: Any) -> VectorEstimate:
        updated = step.update(found, sample)
        return replace(updated, spent=updated.spent + step.cost(found))

    def outcome(self, sample: Any) -> Outcome:
        found, setting = self.start, self.setting
        while (step := next_step(setting, found)) is not None:
            first, sample = (sample, None) if _is_last(found) else sample
            try:
                found = self._update(step, found, first)
            except TooFewUsersError:
                raise self._refusal(found, step, _TOO_FEW, "raise epsilon, or check the columns") from None
            except NoScaleError:
                raise self._refusal(found, step, _NO_SCALE, f"give {parameter('threshold')}") from None
        return self._outcome(found)

    def _refusal(self, found: VectorEstimate, step: Step, reason: str, advice: str) -> NotReleased:
        """The refusal after `step`; the steps after it did not run."""
        if found.rounds > 0 or step.cost(found) == 0:  # sums were released: delta, and their part, are spent
            return refuse(reason, advice, charged=self.request)
        spent = found.spent + step.cost(found)
        kind = 2 if step.what == USERS else 8
        rho = found.rho + step.cost(found) ** 2 / kind
        used = PrivacyCost(epsilon=min(not_below(spent), self.request.epsilon), delta=0.0, rho=rho)
        return refuse(reason, advice, charged=self.request, used=used)

    def _outcome(self, found: VectorEstimate) -> Outcome:
        plan, units = found.plan, np.ones(self.plan.dimension)
        if self.factors is not None:
            units = 1.0 / np.array(self.factors)
        stddevs = (found.noise_stddev * units).tolist()
        values = tuple((found.value * units).tolist())
        rule = GaussianNoiseInterval(center=values, noise_stddevs=stddevs, covers=_COVERS)
        parameters: dict[str, Any] = {
            "threshold": found.threshold,
            "distance_of_center": float(np.linalg.norm(found.center)),
            "rounds": found.rounds,
            "noise": "discrete Gaussian",
            "noise_stddev": stddevs[0] if len(set(stddevs)) == 1 else stddevs,
            "share_of_weight_after_clipping": min(max(found.weight / found.total_weight, 0.0), 1.0),
            "hostile": plan.hostile,
            "largest_shift_by_a_user": found.largest_shift,
        }
        if self.request.per == "record":
            parameters["max_records"] = found.cap
        if found.measured is not None:
            parameters["users_measured"] = found.measured
        return Outcome(
            values=values,
            parameters=parameters,
            interval_rule=rule,
            budget_breakdown=self._break_down(found),
        )

    def _break_down(self, found: VectorEstimate) -> tuple[BudgetEntry, ...]:
        plan = found.plan
        searches = found.spent - plan.count_epsilon - plan.cap_epsilon - plan.reach.epsilon
        costs = [
            (USERS, plan.count_epsilon),
            (CAP, plan.cap_epsilon),
            (THRESHOLD, searches),
            (LENGTH, plan.reach.epsilon),
            (SUM, Fraction(plan.noise_epsilon)),
        ]
        return break_down_budget(costs, unit="epsilon", delta=plan.delta, delta_for=SUM)


def _is_last(found: VectorEstimate) -> bool:
    """Whether the next step is the last."""
    return found.finished and found.left == 0 and found.reach is not None
