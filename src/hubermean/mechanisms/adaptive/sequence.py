"""Private steps in order, each paid for from one budget, and what they lead to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

from hubermean.errors import InputError, NotReleased
from hubermean.laws import Gate, Independent, Law, NoisySum, Staged, claim_of, claiming
from hubermean.mechanisms.adaptive.split import TIES, BudgetSplit, Found, UnfitError
from hubermean.mechanisms.adaptive.steps import Step
from hubermean.mechanisms.asked_once import asked_once
from hubermean.mechanisms.protocol import PublicFacts, Request
from hubermean.spending import THE_MEAN, Spent
from hubermean.tuning import LENGTHS, PER_OCTAVE, SHORTEST
from hubermean.user_table import PrivateTable

T = TypeVar("T")

_NOTHING = Gate(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))


@dataclass(frozen=True, kw_only=True)
class Learned(Generic[T]):
    """What a draw says of the steps: what they found and cost, what that leads to, and the rest of the draw."""

    found: Found
    made: T
    draw: Any
    costs: tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True, kw_only=True)
class PreparedSteps:
    """The steps decided; what each finds is decided by the draw.

    `charged` is what a refusal costs, where that is more than the request: something else was drawn before. `leads_to`
    names what the budget that the steps leave pays for.
    """

    request: Request
    facts: PublicFacts
    split: BudgetSplit
    steps: tuple[Step, ...]
    charged: Request | None = None
    leads_to: str = THE_MEAN

    def concentrated(self) -> Fraction | None:
        return self.split.purse.total if self.split.concentrated else None

    def is_adaptive(self) -> bool:
        return bool(self.steps)

    def dry_run(self, last: Callable[[Found], object], *, users: float | None = None) -> None:
        """Refuse, before anything is spent, what no draw could be released with.

        `users` is how many to count on, where that is not what is public or planned for.

        Raises:
            InputError: why it could not, for a scale in the middle of the grid.
        """
        users = users or self.split.start.users or self.facts.planned_users
        expected = self.split.expected(users if self.split.enough(users) else self.split.users_needed())
        numbers = range(SHORTEST, len(LENGTHS), PER_OCTAVE)
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
                        found = step.learn(found, (0,) * self.split.columns)
                last(found)
            except (InputError, UnfitError) as refusal:
                refusals.append(refusal)
                if not self.split.seeks_scale:
                    break
            else:
                return
        raise InputError(str(refusals[0]))

    def after_steps(self, table: PrivateTable, last: Callable[[Found], Law]) -> Law:
        """The steps on a table, then the law that what they find leads to."""
        return self._law_of(self.steps, asked_once(table), self.split.start, last)

    def _law_of(
        self, steps: Sequence[Step], table: PrivateTable, found: Found, last: Callable[[Found], Law]
    ) -> Law:
        purse = self.split.purse
        if not steps:
            try:
                rest = purse.claim(self.leads_to, purse.total - found.spent, delta=self.request.delta)
                return claiming(last(found), rest)
            except (InputError, UnfitError):
                return _NOTHING
        step, later = steps[0], steps[1:]
        try:
            cost = step.cost(found)
            first = step.law(table, found)
        except (InputError, UnfitError):
            return _NOTHING
        if claim_of(first) is None and not isinstance(first, Independent):
            first = claiming(first, purse.claim(step.what, cost))

        def then(draw: Any) -> Law:
            try:
                learned = step.learn(found, draw)
            except (InputError, UnfitError):
                return _NOTHING
            return self._law_of(later, table, learned, last)

        return Staged(first=first, then=then)

    def learned(self, draw: Any, last: Callable[[Found], T]) -> Learned[T]:
        """What a draw says of the steps.

        Raises:
            NotReleased: it leads nowhere.
        """
        found = self.split.start
        costs = []
        try:
            for step in self.steps:
                step.cost(found)
                (first, draw), before = draw, found.spent
                found = step.learn(found, first)
                costs.append((step.what, found.spent - before))
            return Learned(found=found, made=last(found), draw=draw, costs=tuple(costs))
        except (InputError, UnfitError) as reason:
            advice = "give bounds=, for a flag (0, 1)" if str(reason) == TIES else self.split.help
            raise self.refusal(str(reason), advice) from None

    def account(self, learned: Learned[Any]) -> tuple[Spent, ...]:
        """What the steps cost, and what was left for that which they lead to."""
        purse = self.split.purse
        costs = [*learned.costs, (self.leads_to, purse.total - learned.found.spent)]
        return purse.account(costs, self.request.delta)

    def refusal(self, reason: str, advice: str) -> NotReleased:
        charged = self.charged or self.request
        epsilon, delta = charged.epsilon, charged.delta
        spent = f"epsilon = {epsilon:g}" + (f" and delta = {delta:g} are" if delta > 0 else " is")
        return NotReleased(f"{reason}; {spent} spent; {advice}", epsilon=epsilon, delta=delta)
