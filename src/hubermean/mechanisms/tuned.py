"""`tuned`: what is not known is found privately, step by step; then `clipped` releases the mean.

Steps (`tuning_steps`), each with a part of the budget and only where its answer is not known: how many users there are,
the record cap, the weight of all users, the spread of every column, its place. Bounds around the place, a threshold to
each side, follow from them; the rest of the budget pays for the clipped mean. Proof: proofs/tuning.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import takewhile
from typing import Any, Generic, TypeVar

import numpy as np

from hubermean.errors import InputError, NotReleased
from hubermean.laws import Claim, Gate, Law, NoisySum, Staged, claiming
from hubermean.mechanisms.asked_once import asked_once
from hubermean.mechanisms.clipped import PreparedClipped
from hubermean.mechanisms.known_values import KnownValues
from hubermean.mechanisms.margin import least_users
from hubermean.mechanisms.protocol import Bounds, Known, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.purse import Purse
from hubermean.mechanisms.side_by_side import side_by_side
from hubermean.mechanisms.tuning_plan import TIES, TOO_FEW, Found, Planner, UnfitError
from hubermean.mechanisms.tuning_steps import Step, steps_for
from hubermean.mechanisms.weights import check_cap, check_estimate
from hubermean.privacy import float_down
from hubermean.spending import THE_MEAN, Spent
from hubermean.tuning import LARGEST_TUNED_CAP
from hubermean.user_table import PrivateTable, UserTable

T = TypeVar("T")

_NOTHING = Gate(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))
# Where the released mean lies so near an end of the bounds, the place was wrong or lies beyond the radius.
_AT_THE_END = 0.9


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The mean of values about which nothing need be known; what is known costs nothing.

    Args:
        bounds: as for `clipped`; then neither spread nor place are sought.
        threshold: how far from the mean user means are taken as they are; then no spread is sought.
        scale: the standard deviation of user means, for all columns or for each; then no spread is sought.
        radius: the mean lies within this distance of 0; without it, within 10^9 thresholds.
        record_cap: the largest number of records a user counts for; for `per="record"`.
        likeness: how alike a user's records are, from 0 to 1: users with fewer records than the cap are taken as they
            are up to threshold * sqrt((likeness + (1 - likeness) / records) / (likeness + (1 - likeness) / cap)).
        n_users: about how many users there are, for `add-remove`, which keeps it private; a wrong one costs accuracy.

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, for the neighbour relation of the request
      (proofs/tuning.md, Theorem 1); what the steps spend adds up to no more;
    - too few users are refused from public numbers before anything is spent; where their number or weight is private,
      the measured one decides, and the refusal is `NotReleased`;
    - values that nearly all users share (98 in 100; of a thousand users, three in four) show no spread: that too is
      `NotReleased`. So are means that lie further from 0 than 10^9 thresholds.
    """

    bounds: Bounds | Sequence[Bounds] | None = None
    threshold: float | None = None
    scale: float | Sequence[float] | None = None
    radius: float | None = None
    record_cap: int | None = None
    likeness: float | None = None
    n_users: int | None = None
    name = "tuned"

    def __post_init__(self) -> None:
        KnownValues.checked(self, columns=None)

    @classmethod
    def from_known(cls, known: Known) -> Tuned:
        return cls(**known.given_ones())

    def check(self, request: Request) -> None:
        KnownValues.checked(self, columns=len(request.columns))
        if self.record_cap is not None:
            check_cap(self.record_cap, request)
            if self.record_cap > LARGEST_TUNED_CAP:
                raise InputError(f"record_cap may be at most {LARGEST_TUNED_CAP:,} here; lower it")
        check_estimate(self.n_users, request)
        if self.likeness is not None and request.per == "user":
            raise InputError(
                "likeness is for per='record'; with per='user' every user counts once, so leave it out"
            )

    def prepare(self, request: Request, facts: PublicFacts, *, purse: Purse | None = None) -> PreparedTuned:
        """As the protocol has it; `purse` is the currency to book in, for a caller that goes on from the steps."""
        self.check(request)
        known = KnownValues.checked(self, columns=len(request.columns))
        if purse is None:
            planner = _cheaper(request, facts, known)
        else:
            planner = Planner(request=request, facts=facts, known=known, purse=purse)
        prepared = PreparedTuned(
            request=request, facts=facts, planner=planner, steps=tuple(steps_for(planner))
        )
        needed = planner.users_needed()
        if not planner.enough(needed):
            raise InputError(f"epsilon is too small to find what is not known; raise it, or {planner.help}")
        if planner.start.users is not None and not planner.enough(planner.start.users):
            there = "there are" if facts.n_users is not None else "n_users expects"
            raise InputError(
                f"to find what is not known takes about {needed:,} users here, but {there} "
                f"{planner.start.users:,.0f}; {planner.help}"
            )
        prepared.rehearse()
        return prepared


def _cheaper(request: Request, facts: PublicFacts, known: KnownValues) -> Planner:
    """The planner in whose currency less noise is to be expected, from public numbers alone."""
    pure = Planner(request=request, facts=facts, known=known, purse=Purse.pure(request.epsilon))
    if request.delta == 0.0 or not pure.seeks_place:
        return pure
    purse = Purse.concentrated(request.epsilon, request.delta)
    if purse.total <= 0:
        return pure
    concentrated = replace(pure, purse=purse)
    users = pure.start.users or float(facts.planned_users)
    return min((pure, concentrated), key=lambda planner: planner.expected_noise(users))


@dataclass(frozen=True, kw_only=True)
class Learned(Generic[T]):
    """What a draw says of the steps: what they found and cost, what that leads to, and the rest of the draw."""

    found: Found
    made: T
    draw: Any
    prices: tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True, kw_only=True)
class PreparedTuned(Prepared):
    """The steps decided; what each finds is decided by the draw.

    `charged` is what a refusal costs, where that is more than the request: something else was drawn before. `leads_to`
    names what the budget that the steps leave pays for.
    """

    request: Request
    facts: PublicFacts
    planner: Planner
    steps: tuple[Step, ...]
    charged: Request | None = None
    leads_to: str = THE_MEAN

    def rehearse(self) -> None:
        """Refuse, before anything is spent, what no draw could be released with.

        Raises:
            InputError: why it could not, for a spread in the middle of the grid.
        """
        refusals = []
        for found in self.planner.rehearsals():
            try:
                self.clipped(found)
            except (InputError, UnfitError) as refusal:
                refusals.append(refusal)
            else:
                return
        raise InputError(str(refusals[0]))

    def noise_for(self, scale: float) -> float:
        """The standard deviation of the noise of a column, if user means have this one; for predictions.

        Raises:
            InputError: users are too few to expect a release.
        """
        users = self.planner.start.users or float(self.facts.planned_users)
        try:
            division = self.planner.expected(users).division
        except UnfitError as reason:
            raise InputError(f"{reason}; about {self.planner.users_needed():,} are needed") from None
        if division is None:
            raise InputError("bounds are known; see 'clipped'")
        threshold = self.planner.known.threshold or division.deviations * scale
        return division.noise * threshold

    def concentrated(self) -> Fraction | None:
        purse = self.planner.purse
        return purse.total if purse.accounting == "concentrated" else None

    def is_adaptive(self) -> bool:
        return bool(self.steps)

    def users_to_audit(self) -> int:
        needed = self.planner.users_needed()
        if self.planner.seeks_spread:  # so many that there is a search beyond ties
            needed = max(needed, least_users(self.planner.looks_beyond_ties))
        return math.ceil(1.3 * needed)

    def law(self, table: PrivateTable) -> Law:
        return self.after_steps(table, lambda found: self.clipped(found).law(table))

    def after_steps(self, table: PrivateTable, last: Callable[[Found], Law]) -> Law:
        """The steps on a table, then the law that what they find leads to."""
        return self._law_of(self.steps, asked_once(table), self.planner.start, last)

    def _law_of(
        self, steps: Sequence[Step], table: PrivateTable, found: Found, last: Callable[[Found], Law]
    ) -> Law:
        if not steps:
            try:
                return claiming(last(found), self._rest(found))
            except (InputError, UnfitError):
                return _NOTHING
        step, later = steps[0], steps[1:]
        try:
            step.ready(found)
        except (InputError, UnfitError):
            return _NOTHING

        self._look_ahead(steps, table, found)

        def then(draw: Any) -> Law:
            try:
                learned = step.learn(found, draw)
            except (InputError, UnfitError):
                return _NOTHING
            return self._law_of(later, table, learned, last)

        claim = self.planner.purse.claim(step.what, step.price(found))
        return Staged(first=claiming(step.law(table, found), claim), then=then)

    def _rest(self, found: Found) -> Claim:
        """What the steps leave."""
        purse = self.planner.purse
        return purse.claim(self.leads_to, purse.total - found.spent, delta=self.request.delta)

    def _look_ahead(self, steps: Sequence[Step], table: PrivateTable, found: Found) -> None:
        """Before the first of several columns: have parts answer what a step of the same kind will ask of the others.

        It will have the answers at hand. What it asks does not depend on what is found in another column; if it did, it
        would ask anew.
        """
        kind, before = type(steps[0]), self.steps[: len(self.steps) - len(steps)]
        if isinstance(table, UserTable) or (before and isinstance(before[-1], kind)):
            return

        def ask(step: Step, table: PrivateTable) -> None:
            with suppress(InputError, UnfitError):
                step.law(table, found)

        alike = list(takewhile(lambda step: isinstance(step, kind), steps))
        if len(alike) > 1:
            side_by_side(table, [partial(ask, step) for step in alike])

    def clipped(self, found: Found) -> PreparedClipped:
        """What releases the mean once all is found, from public and released numbers."""
        rest = float_down(self.planner.purse.total - found.spent)
        if rest <= 0.0:
            raise UnfitError(TOO_FEW)
        request = self.request
        if self.planner.purse.accounting == "pure":
            request = replace(request, epsilon=rest)
        return self.planner.clipped(found).prepare(request, self.facts)

    def learned(self, draw: Any, last: Callable[[Found], T]) -> Learned[T]:
        """What a draw says of the steps.

        Raises:
            NotReleased: it leads nowhere.
        """
        found = self.planner.start
        prices = []
        try:
            for step in self.steps:
                step.ready(found)
                (first, draw), before = draw, found.spent
                found = step.learn(found, first)
                prices.append((step.what, found.spent - before))
            return Learned(found=found, made=last(found), draw=draw, prices=tuple(prices))
        except (InputError, UnfitError) as reason:
            told = "give bounds=, for a flag (0, 1)" if str(reason) == TIES else self.planner.help
            raise self._refusal(str(reason), told) from None

    def outcome(self, draw: Any) -> Outcome:
        learned = self.learned(draw, self.clipped)
        outcome = learned.made.outcome(learned.draw)
        if (
            self.planner.seeks_place
            and (np.abs(learned.made.found(learned.draw).shares()) > _AT_THE_END).any()
        ):
            beyond = "the mean was not found, it may lie further from 0 than radius"
            raise self._refusal(beyond, self.planner.help)
        return replace(
            outcome,
            parameters={**outcome.parameters, **learned.found.parameters()},
            spent=self.account(learned),
        )

    def account(self, learned: Learned[Any]) -> tuple[Spent, ...]:
        """What the steps cost, and what was left for that which they lead to."""
        purse = self.planner.purse
        prices = [*learned.prices, (self.leads_to, purse.total - learned.found.spent)]
        return purse.account(prices, self.request.delta)

    def _refusal(self, reason: str, told: str) -> NotReleased:
        charged = self.charged or self.request
        epsilon, delta = charged.epsilon, charged.delta
        spent = f"epsilon = {epsilon:g}" + (f" and delta = {delta:g} are" if delta > 0 else " is")
        return NotReleased(
            f"{reason}; {spent} spent; {told}",
            epsilon=epsilon,
            delta=delta,
        )
