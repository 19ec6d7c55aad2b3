"""`adaptive`: the mean of values about which nothing need be known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from hubermean.errors import InputError
from hubermean.laws import Law
from hubermean.mechanisms.adaptive.known import KnownValues
from hubermean.mechanisms.adaptive.last_step import PreparedLastStep
from hubermean.mechanisms.adaptive.sequence import PreparedSteps
from hubermean.mechanisms.adaptive.split import BudgetSplit, Found, UnfitError
from hubermean.mechanisms.adaptive.steps import Purpose, steps_for
from hubermean.mechanisms.margin import least_users
from hubermean.mechanisms.protocol import Known, OneOrTwoBounds, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.purse import Purse
from hubermean.mechanisms.weights import check_estimate, check_given_cap
from hubermean.tuning import LARGEST_TUNED_CAP
from hubermean.user_table import PrivateTable

# Bounds vary from draw to draw, and number of users and squares are noisy too: so much more was measured, on 300 to
# 10,000 normal users.
_DRAWN_BOUNDS = 1.7


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The mean of values about which nothing need be known; what is known is public and saves budget.

    Scale and center of the user means are found privately, then bounds that look at the tails on either side
    (`per="user"`), or a bound on what one user may add, whatever its number of records (`per="record"`). The rest of
    the budget pays for one clipped step from the center.

    Args:
        bounds: (low, high) of the values, for all columns or for each; None leaves an end open, as in (0, None).
        threshold: how far from the center user means are taken as they are; then neither scale nor tails are sought.
        scale: the standard deviation of user means, for all columns or for each; then no scale is sought.
        radius: the center lies within this distance of 0; without it, within 10^9 scales.
        record_cap: the most records a user counts for; without it every record counts, and what a user may add is
            bounded instead.
        hostile: the share of the users, up to 0.2, that may be malicious: so many cannot stretch the bounds.
        n_users: about how many users there are, for `add-remove`, which keeps it private; a wrong one costs accuracy.

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, for the neighbour relation of the request
      (proofs/adaptive.md, Theorem 1); what the steps spend adds up to no more;
    - too few users are refused from public numbers before anything is spent; where their number is private, the
      measured one decides, and the refusal is `NotReleased`;
    - values that nearly all users share show no scale: that too is `NotReleased`. So are centers that lie further from
      0 than 10^9 scales.
    """

    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None
    threshold: float | None = None
    scale: float | Sequence[float] | None = None
    radius: float | None = None
    record_cap: int | None = None
    hostile: float | None = None
    n_users: int | None = None
    name = "adaptive"

    def __post_init__(self) -> None:
        KnownValues.checked(self, columns=None)

    @classmethod
    def from_known(cls, known: Known) -> Adaptive:
        known.only(*(one.name for one in fields(cls)), of=cls.name)
        return cls(**known.given_ones())

    def check(self, request: Request) -> None:
        KnownValues.checked(self, columns=len(request.columns))
        check_given_cap(self.record_cap, request)
        if self.record_cap is not None and self.record_cap > LARGEST_TUNED_CAP:
            raise InputError(f"record_cap may be at most {LARGEST_TUNED_CAP:,} here; lower it")
        check_estimate(self.n_users, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedAdaptive:
        self.check(request)
        known = KnownValues.checked(self, columns=len(request.columns))
        split = _less_noisy(
            BudgetSplit(request=request, facts=facts, known=known, purse=Purse.pure(request.epsilon))
        )
        prepared = PreparedAdaptive(
            request=request, facts=facts, split=split, steps=tuple(steps_for(split, "mean"))
        )
        refuse_too_few(split)
        prepared.dry_run(prepared.last_step)
        return prepared

    def steps(
        self, request: Request, facts: PublicFacts, purpose: Purpose, *, groups: int = 0, changes: int = 1
    ) -> PreparedSteps:
        """The steps alone, for a caller that goes on from what they find, with a budget in pure epsilon."""
        self.check(request)
        split = BudgetSplit(
            request=request,
            facts=facts,
            known=KnownValues.checked(self, columns=len(request.columns)),
            purse=Purse.pure(request.epsilon),
            groups=groups,
            changes=changes,
        )
        refuse_too_few(split)
        return PreparedSteps(
            request=request, facts=facts, split=split, steps=tuple(steps_for(split, purpose))
        )


def refuse_too_few(split: BudgetSplit) -> None:
    """InputError where public numbers say that the steps cannot find what is not known."""
    needed = split.users_needed()
    if not split.enough(needed):
        raise InputError(f"epsilon is too small to find what is not known; raise it, or {split.help}")
    if split.start.users is not None and not split.enough(split.start.users):
        there = "there are" if split.facts.n_users is not None else "n_users expects"
        raise InputError(
            f"to find what is not known takes about {needed:,} users here, but {there} "
            f"{split.start.users:,.0f}; {split.help}"
        )


def _less_noisy(pure: BudgetSplit) -> BudgetSplit:
    """The split in whose accounting less noise is to be expected, from public numbers alone."""
    request = pure.request
    if request.delta == 0.0:
        return pure
    purse = Purse.concentrated(request.epsilon, request.delta)
    if purse.total <= 0:
        return pure
    concentrated = replace(pure, purse=purse)
    users = pure.start.users or float(pure.facts.planned_users)
    return min((pure, concentrated), key=lambda split: split.expected_noise(users))


@dataclass(frozen=True, kw_only=True)
class PreparedAdaptive(PreparedSteps, Prepared):
    """The steps, and the mean that they lead to."""

    def noise_for(self, scale: float) -> float:
        """The standard deviation of the noise of a column, if user means have this one; for predictions.

        Raises:
            InputError: users are too few to expect a release.
        """
        users = self.split.start.users or float(self.facts.planned_users)
        try:
            width = self.split.known.threshold or self.split.expected_width(users) * scale
            noise = self.split.expected_noise(users)
        except UnfitError as reason:
            raise InputError(f"{reason}; about {self.split.users_needed():,} are needed") from None
        if self.split.bounds_known:
            raise InputError("bounds are known; see 'clipped'")
        if math.isinf(noise):
            raise InputError(f"about {self.split.users_needed():,} users are needed")
        return _DRAWN_BOUNDS * noise * width

    def users_to_audit(self) -> int:
        needed = self.split.users_needed()
        if self.split.seeks_scale:  # so many that there is a search beyond ties
            needed = max(needed, least_users(self.split.looks_beyond_ties))
        return math.ceil(1.3 * needed)

    def law(self, table: PrivateTable) -> Law:
        return self.after_steps(table, lambda found: self.last_step(found).law(table))

    def last_step(self, found: Found) -> PreparedLastStep:
        return PreparedLastStep.prepare(self.split, found)

    def outcome(self, draw: object) -> Outcome:
        learned = self.learned(draw, self.last_step)
        outcome = learned.made.outcome(learned.draw)
        if learned.made.at_an_end(learned.draw):
            raise self.refusal(
                "the mean was not found, it may lie further from 0 than radius", self.split.help
            )
        return replace(
            outcome,
            parameters={**outcome.parameters, **learned.found.parameters()},
            spent=self.account(learned),
        )
