"""`inverse-sensitivity`, `propose-test-release` and `smooth-sensitivity` without a threshold or a radius.

The private steps of `adaptive` estimate what is missing. Part of the budget goes to a center and a threshold, or to a
bound on the influence of one user; the remainder goes to the Huber location around that center, by the requested
mechanism. Proof: proofs/adaptive.md, Theorem 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import PrivacyBudget, break_down_budget
from hubermean.data.user_table import PrivateTable
from hubermean.distributed.queries import run_each
from hubermean.distributions.output import Independent, OutputDistribution
from hubermean.errors import InputError, parameter
from hubermean.huber.geometry import Standardization
from hubermean.huber.thresholds import WHOLE
from hubermean.mechanisms.adaptive.budget_split import BudgetSplit
from hubermean.mechanisms.adaptive.mechanism import Adaptive, PreparedSteps, refuse_too_few
from hubermean.mechanisms.adaptive.parameters import (
    AdaptiveEstimates,
    InfeasibleError,
    Tail,
    ValueParameters,
    per_column,
)
from hubermean.mechanisms.adaptive.steps import (
    ChooseCenters,
    ChooseContributionBound,
    CountUsers,
    Step,
    plan_steps,
)
from hubermean.mechanisms.base import Mechanism, Outcome, Prepared
from hubermean.mechanisms.contributions import (
    check_threshold_power,
    find_least_users,
    parse_threshold_power,
)
from hubermean.mechanisms.intervals import ColumnIntervals
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, PreparedInverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease, ProposeTestRelease
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.types.options import PublicParameters
from hubermean.types.request import PublicFacts, Request

Huber = type[InverseSensitivity] | type[ProposeTestRelease] | type[SmoothSensitivity]

# The threshold, as a share of the distance at which `adaptive` would clip. The noise of these mechanisms grows faster
# with the threshold than that of a clipped sum, so it is smaller; `smooth-sensitivity` needs room for its certificate.
# Measured on 1,000 and 10,000 normal, log-normal(1) and Lomax(4) users.
_THRESHOLD_SHARE = {"inverse-sensitivity": 0.8, "propose-test-release": 0.65, "smooth-sensitivity": 0.9}
_TYPICAL_THRESHOLD = 3.0  # in scales: the threshold to expect
# In sampling errors of users whose deviation is one scale: with more noise a release would be useless.
_NOISIEST = 8.0
_RADIUS = 2.0  # in thresholds of a typical user: the mean lies within this distance of the estimated center
_MANY_USERS = 2.0**30
_AT_THE_EDGE = 0.99  # of the radius
_MISSED = "the mean was not found; it may lie beyond the estimated bounds"


def make_factory(huber: Huber) -> Callable[[PublicParameters], Mechanism]:
    """Return a factory: the mechanism itself where threshold and radius are given, else after estimating them."""

    def make(known: PublicParameters) -> Mechanism:
        if known.threshold is not None and known.radius is not None:
            return huber.from_parameters(known)
        return EstimatedHuber.from_parameters(huber, known)

    return make


@dataclass(frozen=True, kw_only=True)
class EstimatedHuber:
    """A Huber mechanism whose center, and threshold where none is given, are estimated privately.

    Args:
        huber: `InverseSensitivity`, `ProposeTestRelease` or `SmoothSensitivity`.
        steps: the public parameters of the values, and the steps that estimate the others.
        threshold_power: as for the mechanism, where the threshold is given. An estimated threshold is for `per="user"`,
            or bounds the influence of a user, which is a power of 1.

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, for the neighbor relation of the request
      (proofs/adaptive.md, Theorem 3): the steps are pure, and the mechanism gets the remaining epsilon, and delta;
    - too few users are refused as by `adaptive`: from public numbers before anything is spent, else by `NotReleased`.
    """

    huber: Huber
    steps: Adaptive
    threshold_power: float | None = None

    def __post_init__(self) -> None:
        parse_threshold_power(self.threshold_power)
        if self.threshold_power is not None and self.steps.threshold is None:
            raise InputError(
                f"{parameter('threshold_power')} is for a threshold that is known; give "
                f"{parameter('threshold')}, or leave it out"
            )

    @property
    def name(self) -> str:
        return self.huber.name

    @property
    def max_records(self) -> int | None:
        return self.steps.max_records

    @classmethod
    def from_parameters(cls, huber: Huber, known: PublicParameters) -> EstimatedHuber:
        used = ("threshold", "threshold_power", "scale", "radius", "max_records", "hostile", "n_users")
        known.check_only(*used, of=huber.name)
        steps = Adaptive.from_parameters(replace(known, threshold_power=None))
        return cls(huber=huber, steps=steps, threshold_power=known.threshold_power)

    def check(self, request: Request) -> None:
        if request.delta == 0.0 and self.huber is not InverseSensitivity:
            raise InputError(
                f"mechanism {self.name!r} needs delta > 0; give {parameter('delta')}, for example 1e-6"
            )
        check_threshold_power(self.threshold_power, request)
        self.steps.check(request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedEstimatedHuber:
        self.check(request)
        split = BudgetSplit(
            request=request,
            facts=facts,
            known=ValueParameters.checked(self.steps, columns=len(request.columns)),
            privacy_budget=PrivacyBudget.pure(request.epsilon),
            # Certificates count weights, so the heaviest user decides how many users the others are worth.
            caps_weights=request.per == "record" and self.huber is not InverseSensitivity,
            center_only=self.steps.threshold is not None,
        )
        refuse_too_few(split)
        prepared = PreparedEstimatedHuber(
            request=request,
            facts=facts,
            split=split,
            steps=tuple(self._needed(split)),
            huber=self.huber,
            power=parse_threshold_power(self.threshold_power) if self.steps.threshold is not None else WHOLE,
        )
        # Where the number of users is private, refuse what no number of users would be enough for.
        prepared.dry_run(prepared.last_of_typical, users=split.start.users or _MANY_USERS)
        return prepared

    def _needed(self, split: BudgetSplit) -> Sequence[Step]:
        """The steps to run: with a given threshold only the center, and a contribution bound if one is needed."""
        wanted = plan_steps(split, "mean")
        if self.steps.threshold is None:
            return list(wanted)
        kinds: tuple[type, ...] = (CountUsers, ChooseCenters)
        bounded = self.huber is not InverseSensitivity or parse_threshold_power(self.threshold_power) < WHOLE
        if bounded and split.start.cap is None:
            kinds = (*kinds, ChooseContributionBound)
        return [step for step in wanted if isinstance(step, kinds)]


@dataclass(frozen=True, kw_only=True)
class PreparedEstimatedHuber(PreparedSteps, Prepared):
    """The steps and the mechanism that follows; `power` is that of its thresholds with `per="record"`."""

    huber: Huber
    power: int

    def last(self, found: AdaptiveEstimates) -> Prepared:
        """The mechanism for the remaining budget. InputError or InfeasibleError where nothing can be released."""
        remaining = round_down(self.split.privacy_budget.total - found.spent)
        if remaining <= 0.0:
            raise InfeasibleError("the budget is spent before the mean")
        request = replace(self.request, epsilon=remaining)
        users = max(self.split.conservative_users(found), 1.0)
        weight = users if request.per == "user" else max(found.weight - found.weight_stddev, users)
        facts = replace(self.facts, planned_users=round(users), planned_weight=weight)
        centers = tuple(self.split.shifted_center(column, found) for column in range(self.split.columns))
        thresholds = [self._threshold(column, found) for column in range(self.split.columns)]
        # The radius is measured in thresholds of a user of typical weight.
        shrunk = math.pow(weight / users, self.power / WHOLE) if request.per == "record" else 1.0
        power = self.power / WHOLE if request.per == "record" else None
        cap = None if request.per == "user" else found.cap
        if self.huber is InverseSensitivity:
            if self.power == WHOLE:
                cap = self.split.known.max_records
            columns = [
                InverseSensitivity(
                    threshold=threshold,
                    radius=self._radius(threshold / shrunk),
                    max_records=cap,
                    threshold_power=power,
                    centers=centers,
                ).prepare(request, facts)
                for threshold in thresholds
            ]
            return InverseSensitivityColumns(
                columns=tuple(replace(own, weight_is_public=True) for own in columns)
            )
        units = tuple(self.split.unit(column, found) for column in range(self.split.columns))
        # One column at its threshold, the others where most users are: few users are far out in several columns.
        longest = max(threshold / shrunk / unit for threshold, unit in zip(thresholds, units, strict=True))
        typical = math.sqrt(longest**2 + len(units) - 1)
        joint = {
            "threshold": typical * shrunk,
            "radius": self._radius(typical),
            "max_records": cap,
            "threshold_power": power,
            "standardization": Standardization(centers=centers, units=units),
        }
        made = self.huber(**joint).prepare(request, facts)  # type: ignore[arg-type]
        if max(made.predicted_noise()) > _NOISIEST / math.sqrt(max(weight / (cap or 1), 1.0)):
            raise InfeasibleError(f"there are too few users for mechanism {self.huber.name!r}")
        if isinstance(made, PreparedProposeTestRelease):
            return replace(made, charged=self.request, before=found.spent)
        return made

    def _threshold(self, column: int, found: AdaptiveEstimates) -> float:
        if self.split.known.threshold is not None:
            return self.split.known.threshold
        tail = self.split.tail_of(column, found)
        shift = self.split.shifted_center(column, found) - self.split.center(column, found)
        return _THRESHOLD_SHARE[self.huber.name] * max(tail.below + shift, tail.above - shift)

    def _radius(self, typical: float) -> float:
        known = self.split.known.threshold is not None
        return _RADIUS * (2.0 * typical if known else typical)

    def last_of_typical(self, found: AdaptiveEstimates) -> Prepared:
        """The mechanism for a typical threshold, where it is to be estimated."""
        if self.split.known.threshold is None:
            heavy = found.weight / max(found.users or 1.0, 1.0) if self.request.per == "record" else 1.0
            far = [
                _TYPICAL_THRESHOLD * heavy * self.split.unit(column, found)
                for column in range(self.split.columns)
            ]
            found = replace(found, tails=tuple(Tail(below=one, above=one) for one in far))
        return self.last(found)

    def users_to_audit(self) -> int:
        users = math.ceil(1.3 * self.split.least_users())
        while self.facts.n_users is None and not self._are_enough(
            users
        ):  # else `prepare` has found them to be enough
            users = math.ceil(1.3 * users)
        return users

    def least_users(self) -> int:
        return max(super().least_users(), find_least_users(self._are_enough))

    def _are_enough(self, users: float) -> bool:
        try:
            self.dry_run(self.last_of_typical, users=users)
        except InputError:
            return False
        return True

    def distribution(self, table: PrivateTable) -> OutputDistribution:
        return self.chain_steps(table, lambda found: self.last(found).distribution(table))

    def outcome(self, sample: Any) -> Outcome:
        results = self.replay(sample, self.last)
        made = results.made.outcome(results.sample)
        centers = [self.split.shifted_center(column, results.found) for column in range(self.split.columns)]
        self._refuse_at_edge(made, centers, results.found)
        parameters = {**made.parameters, "center": per_column(centers), **results.found.parameters()}
        breakdown = self.break_down_budget(results)
        if made.budget_breakdown:  # the mechanism has a breakdown of its own part
            own = [(one.what, Fraction(one.amount)) for one in made.budget_breakdown if one.unit == "epsilon"]
            breakdown = break_down_budget(
                [*results.costs, *own], unit="epsilon", delta=self.request.delta, delta_for=own[-1][0]
            )
        return replace(made, parameters=parameters, budget_breakdown=breakdown)

    def _refuse_at_edge(self, made: Outcome, centers: Sequence[float], found: AdaptiveEstimates) -> None:
        """NotReleased where an answer lies at the edge of the radius: the estimated center was then wrong."""
        radius: Any = made.parameters["radius"]
        units = [1.0] * len(centers)
        if self.huber is not InverseSensitivity:
            units = [self.split.unit(column, found) for column in range(len(centers))]
        radii = radius if isinstance(radius, list) else [radius] * len(centers)
        offs = [
            abs(value - center) / unit
            for value, center, unit in zip(made.values, centers, units, strict=True)
        ]
        if any(off >= _AT_THE_EDGE * own for off, own in zip(offs, radii, strict=True)):
            raise self.refusal(_MISSED, self.split.help)


@dataclass(frozen=True, kw_only=True)
class InverseSensitivityColumns(Prepared):
    """`inverse-sensitivity` with a threshold and a radius of its own for each column; all have the same request."""

    columns: tuple[PreparedInverseSensitivity, ...]

    def distribution(self, table: PrivateTable) -> OutputDistribution:
        columns = [partial(own.column_distribution, column=column) for column, own in enumerate(self.columns)]
        return Independent(parts=run_each(table, columns), claim=self.columns[0].claim)

    def outcome(self, sample: Sequence[int]) -> Outcome:
        made = [own.outcome(sample) for own in self.columns]
        if len(made) == 1:
            return made[0]
        parameters = dict(made[0].parameters)
        for name in ("threshold", "radius"):
            parameters[name] = [one.parameters[name] for one in made]
        rules = [one.interval_rule for one in made]
        return Outcome(
            values=tuple(one.values[column] for column, one in enumerate(made)),
            parameters=parameters,
            interval_rule=ColumnIntervals(rules=rules) if all(rules) else None,  # type: ignore[arg-type]
        )
