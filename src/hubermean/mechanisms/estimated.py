"""`exact`, `tested` and `smooth` by name alone: the private steps of `adaptive` find what the caller does not know.

Part of the budget finds a center and a threshold, or a bound on what one user adds, as `adaptive` would; what is left
of it pays for the Huber location around that center, by the mechanism that was asked for. Proof: proofs/adaptive.md,
Theorem 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from hubermean.errors import InputError
from hubermean.laws import Independent, Law
from hubermean.mechanisms.account import account
from hubermean.mechanisms.adaptive import Adaptive, BudgetSplit, Found, PreparedSteps, UnfitError
from hubermean.mechanisms.adaptive.known import KnownValues, per_column
from hubermean.mechanisms.adaptive.mechanism import refuse_too_few
from hubermean.mechanisms.adaptive.split import Tail
from hubermean.mechanisms.adaptive.steps import ChooseCap, ChooseCenters, CountUsers, Step, steps_for
from hubermean.mechanisms.exact import Exact, PreparedExact
from hubermean.mechanisms.geometry import Frame
from hubermean.mechanisms.protocol import Known, Mechanism, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.purse import Purse
from hubermean.mechanisms.side_by_side import side_by_side
from hubermean.mechanisms.smooth import Smooth
from hubermean.mechanisms.tested import PreparedTested, Tested
from hubermean.mechanisms.thresholds import WHOLE, check_power_use, checked_power
from hubermean.privacy import float_down
from hubermean.release import Interval, IntervalRule
from hubermean.user_table import PrivateTable, UserTable

Huber = type[Exact] | type[Tested] | type[Smooth]

# Of the distance at which `adaptive` would clip. The noise of these mechanisms grows faster with the threshold than
# that of a clipped sum, so theirs is nearer; `smooth` needs room for its certificate. Measured on normal, log-normal(1)
# and Lomax(4) users, 1,000 and 10,000 of them.
_NEARER = {"exact": 0.8, "tested": 0.65, "smooth": 0.9}
_TYPICAL = 3.0  # scales: a threshold to expect
_NOISIEST = (
    8.0  # sampling errors of users whose deviation is a scale: with more noise nothing is worth releasing
)
_RADIUS = 2.0  # in thresholds of a typical user: the mean lies so near to the center that was found
_MANY_USERS = 2.0**30
_AT_THE_END = 0.99  # of the radius
_MISSED = "the mean was not found, it may lie further from the center that was found than bounds reach"


def by_name(huber: Huber) -> Callable[[Known], Mechanism]:
    """How a mechanism is made from what is known: as it is where threshold and radius are, else after private steps."""

    def make(known: Known) -> Mechanism:
        if known.threshold is not None and known.radius is not None:
            return huber.from_known(known)
        return Estimated.from_known(huber, known)

    return make


@dataclass(frozen=True, kw_only=True)
class Estimated:
    """A Huber mechanism whose center, and threshold where none is given, are estimated privately.

    Args:
        huber: `Exact`, `Tested` or `Smooth`.
        steps: what is known of the values, and what the steps make of it.
        threshold_power: as for the mechanism, where the threshold is given; one that is found is for `per="user"`, or
            bounds what a user adds, which is a power of 1.

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, for the neighbour relation of the request
      (proofs/adaptive.md, Theorem 3): the steps are pure, and the mechanism has what they leave of epsilon, and delta;
    - too few users are refused as `adaptive` does: from public numbers before anything is spent, else by `NotReleased`.
    """

    huber: Huber
    steps: Adaptive
    threshold_power: float | None = None

    def __post_init__(self) -> None:
        checked_power(self.threshold_power)
        if self.threshold_power is not None and self.steps.threshold is None:
            raise InputError(
                "threshold_power is for a threshold that is known; give threshold=, or leave it out"
            )

    @property
    def name(self) -> str:
        return self.huber.name

    @property
    def record_cap(self) -> int | None:
        return self.steps.record_cap

    @classmethod
    def from_known(cls, huber: Huber, known: Known) -> Estimated:
        used = ("threshold", "threshold_power", "scale", "radius", "record_cap", "hostile", "n_users")
        known.only(*used, of=huber.name)
        steps = Adaptive.from_known(replace(known, threshold_power=None))
        return cls(huber=huber, steps=steps, threshold_power=known.threshold_power)

    def check(self, request: Request) -> None:
        if request.delta == 0.0 and self.huber is not Exact:
            raise InputError(f"mechanism {self.name!r} needs delta > 0; give delta=, for example 1e-6")
        check_power_use(self.threshold_power, request)
        self.steps.check(request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedEstimated:
        self.check(request)
        split = BudgetSplit(
            request=request,
            facts=facts,
            known=KnownValues.checked(self.steps, columns=len(request.columns)),
            purse=Purse.pure(request.epsilon),
            # Certificates count weights, so there the heaviest user sets how many users the others are worth.
            caps_weights=request.per == "record" and self.huber is not Exact,
        )
        refuse_too_few(split)
        prepared = PreparedEstimated(
            request=request,
            facts=facts,
            split=split,
            steps=tuple(self._needed(split)),
            huber=self.huber,
            power=checked_power(self.threshold_power) if self.steps.threshold is not None else WHOLE,
        )
        # Where the number of users is private, what no number of them could be enough for.
        prepared.dry_run(prepared.last_of_typical, users=split.start.users or _MANY_USERS)
        return prepared

    def _needed(self, split: BudgetSplit) -> Sequence[Step]:
        """Where the threshold is known, nothing but the center is sought, and a contribution bound if one is needed."""
        wanted = steps_for(split, "mean")
        if self.steps.threshold is None:
            return list(wanted)
        kinds: tuple[type, ...] = (CountUsers, ChooseCenters)
        if self.huber is not Exact or checked_power(self.threshold_power) < WHOLE:
            kinds = (*kinds, ChooseCap)
        return [step for step in wanted if isinstance(step, kinds)]


@dataclass(frozen=True, kw_only=True)
class PreparedEstimated(PreparedSteps, Prepared):
    """The steps, and the mechanism that they lead to; `power` is that of its thresholds with `per="record"`."""

    huber: Huber
    power: int

    def last(self, found: Found) -> Prepared:
        """The mechanism for what is left of the budget. InputError or UnfitError where nothing can be released."""
        rest = float_down(self.split.purse.total - found.spent)
        if rest <= 0.0:
            raise UnfitError("the budget is spent before the mean")
        request = replace(self.request, epsilon=rest)
        users = max(self.split.surely(found), 1.0)
        weight = users if request.per == "user" else max(found.weight - found.weight_stddev, users)
        facts = replace(self.facts, planned_users=round(users), planned_weight=weight)
        centers = tuple(self.split.shifted_center(column, found) for column in range(self.split.columns))
        thresholds = [self._threshold(column, found) for column in range(self.split.columns)]
        # What a user of typical weight has for a threshold, by which the radius is measured.
        shrunk = math.pow(weight / users, self.power / WHOLE) if request.per == "record" else 1.0
        power = self.power / WHOLE if request.per == "record" else None
        cap = None if request.per == "user" else found.cap
        if self.huber is Exact:
            if self.power == WHOLE:
                cap = self.split.known.record_cap
            columns = [
                Exact(
                    threshold=threshold,
                    radius=self._radius(threshold / shrunk),
                    record_cap=cap,
                    threshold_power=power,
                    centers=centers,
                ).prepare(request, facts)
                for threshold in thresholds
            ]
            return ExactColumns(columns=tuple(replace(own, weight_is_public=True) for own in columns))
        units = tuple(self.split.unit(column, found) for column in range(self.split.columns))
        # One column at its threshold, and the others where most users are: seldom are they far out in several.
        longest = max(threshold / shrunk / unit for threshold, unit in zip(thresholds, units, strict=True))
        typical = math.sqrt(longest**2 + len(units) - 1)
        joint = {
            "threshold": typical * shrunk,
            "radius": self._radius(typical),
            "record_cap": cap,
            "threshold_power": power,
            "frame": Frame(centers=centers, units=units),
        }
        made = self.huber(**joint).prepare(request, facts)  # type: ignore[arg-type]
        if max(made.predicted_noise()) > _NOISIEST / math.sqrt(max(weight / (cap or 1), 1.0)):
            raise UnfitError(f"there are too few users for mechanism {self.huber.name!r}")
        return replace(made, charged=self.request) if isinstance(made, PreparedTested) else made

    def _threshold(self, column: int, found: Found) -> float:
        if self.split.known.threshold is not None:
            return self.split.known.threshold
        tail = self.split.tails(found)[column]
        shift = self.split.shifted_center(column, found) - self.split.center(column, found)
        return _NEARER[self.huber.name] * max(tail.below + shift, tail.above - shift)

    def _radius(self, typical: float) -> float:
        known = self.split.known.threshold is not None
        return _RADIUS * (2.0 * typical if known else typical)

    def last_of_typical(self, found: Found) -> Prepared:
        """For a threshold that users may well have, where it is sought."""
        if self.split.known.threshold is None:
            heavy = found.weight / max(found.users or 1.0, 1.0) if self.request.per == "record" else 1.0
            far = [_TYPICAL * heavy * self.split.unit(column, found) for column in range(self.split.columns)]
            found = replace(found, tails=tuple(Tail(below=one, above=one) for one in far))
        return self.last(found)

    def users_to_audit(self) -> int:
        users = math.ceil(1.3 * self.split.users_needed())
        while self.facts.n_users is None and not self._are_enough(
            users
        ):  # else they were enough to be prepared for
            users = math.ceil(1.3 * users)
        return users

    def _are_enough(self, users: float) -> bool:
        try:
            self.dry_run(self.last_of_typical, users=users)
        except InputError:
            return False
        return True

    def law(self, table: PrivateTable) -> Law:
        return self.after_steps(table, lambda found: self.last(found).law(table))

    def outcome(self, draw: Any) -> Outcome:
        learned = self.learned(draw, self.last)
        made = learned.made.outcome(learned.draw)
        centers = [self.split.shifted_center(column, learned.found) for column in range(self.split.columns)]
        self._refuse_at_an_end(made, centers, learned.found)
        parameters = {**made.parameters, "center": per_column(centers), **learned.found.parameters()}
        spent = self.account(learned)
        if made.spent:  # the mechanism itself says what it spent its part on
            own = [(one.what, Fraction(one.amount)) for one in made.spent if one.unit == "epsilon"]
            spent = account(
                [*learned.costs, *own], unit="epsilon", delta=self.request.delta, delta_for=own[-1][0]
            )
        return replace(made, parameters=parameters, spent=spent)

    def _refuse_at_an_end(self, made: Outcome, centers: Sequence[float], found: Found) -> None:
        """NotReleased where an answer lies at the end of what was looked through: then the center was missed."""
        radius: Any = made.parameters["radius"]
        units = [1.0] * len(centers)
        if self.huber is not Exact:
            units = [self.split.unit(column, found) for column in range(len(centers))]
        radii = radius if isinstance(radius, list) else [radius] * len(centers)
        offs = [
            abs(value - center) / unit
            for value, center, unit in zip(made.values, centers, units, strict=True)
        ]
        if any(off >= _AT_THE_END * own for off, own in zip(offs, radii, strict=True)):
            raise self.refusal(_MISSED, self.split.help)


@dataclass(frozen=True, kw_only=True)
class ExactColumns(Prepared):
    """`exact` with a threshold and a radius for each column; all are prepared for the same request."""

    columns: tuple[PreparedExact, ...]

    def law(self, table: PrivateTable) -> Law:
        claim = self.columns[0].claim
        if isinstance(table, UserTable):
            parts = (own.column_law(table, column) for column, own in enumerate(self.columns))
            return Independent(parts=parts, claim=claim)
        looks = [partial(own.column_law, column=column) for column, own in enumerate(self.columns)]
        return Independent(parts=side_by_side(table, looks), claim=claim)

    def outcome(self, draw: Sequence[int]) -> Outcome:
        made = [own.outcome(draw) for own in self.columns]
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


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnIntervals:
    """The interval of each column by its own rule."""

    rules: Sequence[IntervalRule]

    def at(self, level: float) -> Interval:
        own = [rule.at(level) for rule in self.rules]
        return replace(
            own[0],
            low=tuple(one.low[column] for column, one in enumerate(own)),
            high=tuple(one.high[column] for column, one in enumerate(own)),
        )
