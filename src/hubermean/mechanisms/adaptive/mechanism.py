"""`adaptive`: private steps in order, each paid for from one budget, then one clipped step from the center."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

from hubermean.accounting.budget import THE_MEAN, BudgetEntry, PrivacyBudget, PrivacyCost, not_below
from hubermean.data.user_table import PrivateTable
from hubermean.distributed.queries import memoise
from hubermean.distributions.output import (
    Independent,
    NoisySum,
    NoisyTest,
    OutputDistribution,
    Staged,
    get_claim,
    with_claim,
)
from hubermean.errors import InputError, NotReleased, parameter
from hubermean.mechanisms.adaptive.budget_split import BudgetSplit
from hubermean.mechanisms.adaptive.clipped_step import PreparedClippedStep
from hubermean.mechanisms.adaptive.parameters import (
    AdaptiveEstimates,
    InfeasibleError,
    TiesError,
    ValueParameters,
)
from hubermean.mechanisms.adaptive.steps import Purpose, Step, plan_steps
from hubermean.mechanisms.base import Outcome, Prepared, refuse
from hubermean.mechanisms.contributions import (
    MOST_USERS,
    check_optional_max_records,
    check_user_estimate,
    find_least_users,
)
from hubermean.searches.bounds import LARGEST_MAX_RECORDS
from hubermean.searches.location import LENGTHS, PER_OCTAVE
from hubermean.types.dry_run import Prospect
from hubermean.types.options import PartialBounds, PublicParameters
from hubermean.types.request import PublicFacts, Request

T = TypeVar("T")

_NOTHING = NoisyTest(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))


@dataclass(frozen=True, kw_only=True)
class StepResults(Generic[T]):
    """What a sample says of the steps: their estimates and costs, what is made of them, and the rest of the sample.

    `epsilons` are the costs in pure epsilon.
    """

    found: AdaptiveEstimates
    made: T
    sample: Any
    costs: tuple[tuple[str, Fraction], ...]
    epsilons: tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True, kw_only=True)
class PreparedSteps:
    """The steps, decided from public numbers; the sample decides what each finds.

    `charged` is what the whole release is charged, where that is more than the request: something else was sampled
    before, for the epsilon and delta of `before`.
    `final_step` names what the budget that the steps leave pays for.
    """

    request: Request
    facts: PublicFacts
    split: BudgetSplit
    steps: tuple[Step, ...]
    charged: Request | None = None
    before: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    final_step: str = THE_MEAN

    def concentrated(self) -> Fraction | None:
        return self.split.privacy_budget.total if self.split.concentrated else None

    def is_adaptive(self) -> bool:
        return bool(self.steps)

    def prospect(self) -> Prospect:
        steps = (*(step.what for step in self.steps), self.final_step)
        needs = f"about {self.least_users():,} users with usable records" if self.steps else ""
        return Prospect(steps=steps, needs=tuple(filter(None, [needs])))

    def least_users(self) -> int:
        """The least number of users with which a release can be expected."""
        return self.split.least_users()

    def dry_run(self, last: Callable[[AdaptiveEstimates], object], *, users: float | None = None) -> None:
        """Refuse, before anything is spent, what no sample could be released with.

        `users` is how many to count on, where that is not what is public or planned for.

        Raises:
            InputError: why it could not, for a scale in the middle of the grid.
        """
        users = users or self.split.start.users or self.facts.planned_users
        expected = self.split.expected(
            users if self.split.has_enough_users(users) else self.split.least_users()
        )
        numbers = range(0, len(LENGTHS), PER_OCTAVE)
        refusals: list[Exception] = []
        for number in sorted(numbers, key=lambda number: abs(2 * number - len(LENGTHS))):
            found = replace(
                expected,
                cap=expected.cap or 1,
                weight=max(expected.weight, expected.users or 1.0, 1.0),
                lengths=(number,) * self.split.columns,
                shares=(0.75,) * self.split.columns,
                centers=(0.0,) * self.split.columns if self.split.seeks_center else (),
            )
            try:
                for step in self.steps:
                    if step.what == "bounds":
                        found = step.update(found, (0,) * self.split.columns)
                last(found)
            except (InputError, InfeasibleError) as refusal:
                refusals.append(refusal)
                if not self.split.seeks_scale:
                    break
            else:
                return
        raise InputError(str(refusals[0]))

    def chain_steps(
        self, table: PrivateTable, last: Callable[[AdaptiveEstimates], OutputDistribution]
    ) -> OutputDistribution:
        """The steps on a table, then the output distribution that their estimates lead to."""
        return self._chain(self.steps, memoise(table), self.split.start, last)

    def _chain(
        self,
        steps: Sequence[Step],
        table: PrivateTable,
        found: AdaptiveEstimates,
        last: Callable[[AdaptiveEstimates], OutputDistribution],
    ) -> OutputDistribution:
        privacy_budget = self.split.privacy_budget
        if not steps:
            try:
                later = last(found)
                if (
                    privacy_budget.pure_total is not None
                ):  # what follows resolves the accounting, and claims for itself
                    return later
                rest = privacy_budget.total - found.spent
                return with_claim(
                    later, privacy_budget.claim(self.final_step, rest, delta=self.request.delta)
                )
            except (InputError, InfeasibleError):
                return _NOTHING
        step = steps[0]
        try:
            cost, epsilon = step.cost(found), step.epsilon(found)
            first = step.distribution(table, found)
        except (InputError, InfeasibleError):
            return _NOTHING
        if get_claim(first) is None and not isinstance(first, Independent):
            first = with_claim(first, privacy_budget.claim(step.what, cost, epsilon=epsilon))

        def then(sample: Any) -> OutputDistribution:
            try:
                updated = replace(step.update(found, sample), epsilon=found.epsilon + epsilon)
            except (InputError, InfeasibleError):
                return _NOTHING
            return self._chain(steps[1:], table, updated, last)

        return Staged(first=first, then=then)

    def replay(self, sample: Any, last: Callable[[AdaptiveEstimates], T]) -> StepResults[T]:
        """Take the estimates of the steps from a sample.

        Raises:
            NotReleased: the sample allows no release.
        """
        found = self.split.start
        costs, epsilons = [], []
        spent = found.spent  # by the steps that ran, those after which nothing more could be done included
        try:
            for step in self.steps:
                cost, epsilon = step.cost(found), step.epsilon(found)
                first, sample = sample
                spent += cost
                found = replace(step.update(found, first), epsilon=found.epsilon + epsilon)
                costs.append((step.what, cost))
                epsilons.append((step.what, epsilon))
            return StepResults(
                found=found,
                made=last(found),
                sample=sample,
                costs=tuple(costs),
                epsilons=tuple(epsilons),
            )
        except (InputError, InfeasibleError) as reason:
            advice = self.split.help
            if isinstance(reason, TiesError):
                advice = f"give {parameter('bounds')}, for a flag (0, 1)"
                if reason.leaves_others:
                    advice += ", or ask for the other columns alone"
            raise self.refusal(str(reason), advice, spent=spent) from None

    def break_down_budget(self, results: StepResults[Any]) -> tuple[BudgetEntry, ...]:
        """What the steps cost, and what was left for that which they lead to."""
        privacy_budget = self.split.privacy_budget
        costs = [*results.costs, (self.final_step, privacy_budget.total - results.found.spent)]
        return privacy_budget.break_down_budget(costs, self.request.delta)

    def refusal(
        self,
        reason: str,
        advice: str,
        *,
        spent: Fraction | None = None,
        budget: PrivacyBudget | None = None,
    ) -> NotReleased:
        """The refusal of a sample, after steps that cost `spent`; None where all of the budget was spent.

        What each step costs is fixed before it runs, from public numbers and earlier samples, and so is that no step
        follows: the rest of the budget is not spent (proofs/ledger.md, Lemmas 6 and 7). `budget` is the one in whose
        accounting that was spent, if it was resolved only on the way; delta is then spent in full
        (proofs/groups.md, Lemma 7).
        """
        charged = self.charged or self.request
        if spent is None:
            return refuse(reason, advice, charged=charged)
        request, (epsilon, delta) = self.request, self.before
        whole = PrivacyCost(epsilon=request.epsilon, delta=request.delta)
        used = (budget or self.split.privacy_budget).used_by(spent, whole)
        if self.split.privacy_budget.pure_total is not None:
            used = replace(used, delta=whole.delta)
        if epsilon > 0 or delta > 0:
            used = PrivacyCost(
                epsilon=not_below(epsilon + Fraction(used.epsilon)),
                delta=min(not_below(delta + Fraction(used.delta)), charged.delta),
            )
        return refuse(reason, advice, charged=charged, used=used)


# Bounds vary from sample to sample, and number of users and squares are noisy too: so much more was measured, on 300 to
# 10,000 normal users.
_DRAWN_BOUNDS = 1.7


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The mean without any parameter; what the caller states is public and saves budget.

    Scale and center of the user means are found privately, then bounds from the tails on either side
    (`per="user"`), or a bound on what one user may add, whatever its number of records (`per="record"`). The rest of
    the budget pays for one clipped step from the center.

    Args:
        bounds: (low, high) of the values, for all columns or for each; None leaves an end open, as in (0, None).
        threshold: how far from the center user means are taken as they are; then neither scale nor tails are
        searched for.
        scale: the standard deviation of user means, for all columns or for each; then no scale is searched for.
        radius: the center lies within this distance of 0; without it, within 10^9 scales.
        max_records: the most records a user counts for; without it every record counts, and what a user may add is
            bounded instead.
        hostile: the share of the users, up to 0.2, that may be malicious: so many cannot stretch the bounds.
        n_users: about how many users there are, for `add-remove`, which keeps it private; a wrong one costs accuracy.

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, for the neighbor relation of the request
      (proofs/adaptive.md, Theorem 1); what the steps spend adds up to no more;
    - too few users are refused from public numbers before anything is spent; where their number is private, the
      measured one decides, and the refusal is `NotReleased`;
    - values that nearly all users share show no scale: that too is `NotReleased`. So are centers that lie further from
      0 than 10^9 scales.
    """

    bounds: PartialBounds | Sequence[PartialBounds] | None = None
    threshold: float | None = None
    scale: float | Sequence[float] | None = None
    radius: float | None = None
    max_records: int | None = None
    hostile: float | None = None
    n_users: int | None = None
    name = "adaptive"

    def __post_init__(self) -> None:
        ValueParameters.checked(self, columns=None)

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> Adaptive:
        known.check_only(*(one.name for one in fields(cls)), of=cls.name)
        return cls(**known.to_dict())

    def check(self, request: Request) -> None:
        ValueParameters.checked(self, columns=len(request.columns))
        check_optional_max_records(self.max_records, request)
        if self.max_records is not None and self.max_records > LARGEST_MAX_RECORDS:
            raise InputError(
                f"{parameter('max_records')} may be at most {LARGEST_MAX_RECORDS:,} here; lower it"
            )
        check_user_estimate(self.n_users, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedAdaptive:
        self.check(request)
        known = ValueParameters.checked(self, columns=len(request.columns))
        split = choose_accounting(
            BudgetSplit(
                request=request, facts=facts, known=known, privacy_budget=PrivacyBudget.pure(request.epsilon)
            )
        )
        prepared = PreparedAdaptive(
            request=request, facts=facts, split=split, steps=tuple(plan_steps(split, "mean"))
        )
        refuse_too_few(split)
        prepared.dry_run(prepared.clipped_step)
        return prepared

    def steps(
        self,
        request: Request,
        facts: PublicFacts,
        purpose: Purpose,
        *,
        budget: PrivacyBudget | None = None,
        spent_before: Fraction = Fraction(0),
    ) -> PreparedSteps:
        """The steps alone, for a caller that goes on from what they find.

        The budget is the epsilon of the request, or the one given, of which `spent_before` went to something else.
        """
        self.check(request)
        split = BudgetSplit(
            request=request,
            facts=facts,
            known=ValueParameters.checked(self, columns=len(request.columns)),
            privacy_budget=budget or PrivacyBudget.pure(request.epsilon),
            spent_before=spent_before,
            center_only=True,
        )
        refuse_too_few(split)
        return PreparedSteps(
            request=request, facts=facts, split=split, steps=tuple(plan_steps(split, purpose))
        )


def refuse_too_few(split: BudgetSplit) -> None:
    """Raise InputError where public numbers show too few users for the private steps."""
    if split.has_enough_users(MOST_USERS if split.start.users is None else split.start.users):
        return
    needed = split.least_users()
    if not split.has_enough_users(needed):
        raise InputError(
            f"{parameter('epsilon')} is too small to estimate the bounds privately; raise it, or {split.help}"
        )
    if split.start.users is not None and not split.has_enough_users(split.start.users):
        there = "there are" if split.facts.n_users is not None else f"{parameter('n_users')} expects"
        raise InputError(
            f"estimating the bounds privately takes about {needed:,} users here, but {there} "
            f"{split.start.users:,.0f}; {split.help}"
        )


def choose_accounting(pure: BudgetSplit) -> BudgetSplit:
    """The split in whose accounting less noise is to be expected, from public numbers alone."""
    request = pure.request
    if request.delta == 0.0:
        return pure
    privacy_budget = PrivacyBudget.concentrated(request.epsilon, request.delta)
    if privacy_budget.total <= 0:
        return pure
    concentrated = replace(pure, privacy_budget=privacy_budget)
    users = pure.start.users or float(pure.facts.planned_users)
    return min((pure, concentrated), key=lambda split: split.expected_noise(users))


@dataclass(frozen=True, kw_only=True)
class PreparedAdaptive(PreparedSteps, Prepared):
    """The steps, and the mean that they lead to."""

    def predicted_noise_at(self, scale: float) -> tuple[float, ...]:
        """The standard deviation of the noise of each column, for user means whose standard deviation is `scale`.

        Raises:
            InputError: users are too few to expect a release.
        """
        users = self.split.start.users or float(self.facts.planned_users)
        try:
            width = self.split.known.threshold or self.split.expected_width(users) * scale
            noise = self.split.expected_noise(users)
        except InfeasibleError as reason:
            raise InputError(f"{reason}; about {self.split.least_users():,} are needed") from None
        if self.split.bounds_known:
            raise InputError("bounds are known; see 'clipped'")
        if math.isinf(noise):
            raise InputError(f"about {self.split.least_users():,} users are needed")
        return (_DRAWN_BOUNDS * noise * width,) * self.split.columns

    def users_to_audit(self) -> int:
        needed = self.split.least_users()
        if self.split.seeks_scale:  # so many that there is a search beyond ties
            needed = max(needed, find_least_users(self.split.can_search_beyond_ties))
        return math.ceil(1.3 * needed)

    def distribution(self, table: PrivateTable) -> OutputDistribution:
        return self.chain_steps(table, lambda found: self.clipped_step(found).distribution(table))

    def clipped_step(self, found: AdaptiveEstimates) -> PreparedClippedStep:
        return PreparedClippedStep.prepare(self.split, found)

    def outcome(self, sample: object) -> Outcome:
        results = self.replay(sample, self.clipped_step)
        outcome = results.made.outcome(results.sample)
        if results.made.is_at_bound(results.sample):
            raise self.refusal(
                "the mean was not found, it may lie further from 0 than radius", self.split.help
            )
        return replace(
            outcome,
            parameters={**outcome.parameters, **results.found.parameters()},
            budget_breakdown=self.break_down_budget(results),
        )
