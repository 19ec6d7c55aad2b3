"""`exact`: inverse sensitivity of the Huber location, one column, pure epsilon-DP, integers throughout.

Every point of a public grid gets a score: how many users would have to change before it could be the Huber location
of the data. A point is then drawn with probability proportional to exp(-epsilon * score / 2), exactly. No delta, no
smallest number of users, and users far away cannot pull the answer far. Proof: proofs/exact.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hubermean.errors import InputError, is_real
from hubermean.exact import rounded_means
from hubermean.laws import Choice, Claim, Independent, costs_apart
from hubermean.mechanisms.location_grid import LocationGrid, depth_of
from hubermean.mechanisms.parted_shells import Public, parted_shell_ends
from hubermean.mechanisms.protocol import Known, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.shells import IntArray, Users, flat_shell_ends, shell_ends
from hubermean.mechanisms.side_by_side import side_by_side
from hubermean.mechanisms.thresholds import (
    WHOLE,
    check_power_use,
    checked_power,
    heaviest_influence,
    influence_bounds,
    threshold_of,
)
from hubermean.mechanisms.weights import (
    LARGEST_CAP,
    check_cap,
    check_given_cap,
    planned_weight,
    user_weights,
    weight_cap,
)
from hubermean.privacy import largest_rho
from hubermean.relations import Neighbors
from hubermean.release import Interval
from hubermean.spending import THE_MEAN
from hubermean.user_table import PrivateTable, UserTable

MOST_USERS = 2**31
_WELL_WITHIN = 0.75
_SELDOM_ASTRAY = 1e-3  # an interval is offered where answers that go astray are rarer


@dataclass(frozen=True, kw_only=True)
class Exact:
    """The Huber location by inverse sensitivity, column by column.

    Args:
        threshold: how far a user mean may be from the answer before it counts as an outlier. Public.
        radius: the answer lies within this distance of the center; a large one costs little. Public.
        record_cap: the largest number of records a user counts for, with `per="record"`. Public. Not needed where
            `threshold_power` is 1.
        threshold_power: a user with a records has the threshold `threshold * a ** -threshold_power`, for
            `per="record"`; with 1 the threshold bounds what a user adds, however many records it has. Public.
        centers: what the radius is measured from, one per column; zero where left out. Public or released.

    Formal guarantees:
    - epsilon-DP for the neighbour relation of the request (proofs/exact.md, Theorem 1); several columns share epsilon
      equally, or, with delta > 0, what (epsilon, delta) allows them together if that is more (Theorem 2);
    - under `add-remove`, for data of at most 2^31 users (more are refused);
    - the draw follows its stated law exactly: no floating-point number takes part from record to output;
    - a user without usable records pulls on nothing; under `replace-values` it keeps its public weight in the score.
    """

    threshold: float
    radius: float
    record_cap: int | None = None
    threshold_power: float | None = None
    centers: tuple[float, ...] = ()
    name = "exact"

    def __post_init__(self) -> None:
        for name in ("threshold", "radius"):
            given: Any = getattr(self, name)
            if not is_real(given) or not 1e-60 <= given <= 1e60:
                raise InputError(f"{name} must be a positive number (from 1e-60 to 1e60), not {given!r}")
        checked_power(self.threshold_power)

    @classmethod
    def from_known(cls, known: Known) -> Exact:
        threshold, radius = known.spread("threshold_power", of=cls.name)
        return cls(
            threshold=threshold,
            radius=radius,
            record_cap=known.record_cap,
            threshold_power=known.threshold_power,
        )

    def check(self, request: Request) -> None:
        check_power_use(self.threshold_power, request)
        if checked_power(self.threshold_power) == WHOLE:  # the threshold bounds what a user adds
            check_given_cap(self.record_cap, request)
        else:
            check_cap(self.record_cap, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedExact:
        self.check(request)
        power = checked_power(self.threshold_power)
        uncapped = power == WHOLE and self.record_cap is None and facts.record_counts is None
        cap = LARGEST_CAP if uncapped else weight_cap(self.record_cap, request, facts)
        farthest = max((abs(center) for center in self.centers), default=0.0)
        for column in facts.columns:
            if (
                Fraction(float(self.radius)) + Fraction(float(self.threshold)) + Fraction(farthest)
                > column.limit
            ):
                raise InputError(
                    f"radius and threshold reach beyond {float(column.limit):g}, the largest value that "
                    f"{column.name!r} is read with; give resolution= (a coarser step) or a smaller radius"
                )
        users = MOST_USERS if facts.n_users is None else facts.n_users
        grid = LocationGrid.choose(
            float(self.threshold),
            float(self.radius),
            heaviest=heaviest_influence(cap, users, power),
            power=power,
            smallest=threshold_of(cap, float(self.threshold), power),
            centers=self.centers,
        )
        epsilon = column_epsilon(request.epsilon, request.delta, columns=len(request.columns))
        depth = depth_of(grid, epsilon, n_users=facts.n_users, cap=cap, equal=request.per == "user")
        # Without a cap nothing is known of weights; then as much noise is expected as if all had one record.
        weighed = 1 if uncapped else cap
        planned = float(facts.planned_users if facts.n_users is None else facts.n_users)
        weight = planned if uncapped and facts.planned_weight is None else planned_weight(request, facts, cap)
        return PreparedExact(
            request=request,
            cap=cap,
            grid=grid,
            rate=epsilon / 2,
            depth=depth,
            planned_weight=weight,
            typical_weight=max(weight / max(planned, 1.0), 1.0),
            reaching_weight=_reaching_weight(facts, weighed, epsilon / 2),
            weight_is_public=facts.n_users is not None
            and (request.per == "user" or facts.record_counts is not None),
        )


def column_epsilon(epsilon: float, delta: float, *, columns: int) -> Fraction:
    """The epsilon of each column: an equal part, or more where delta > 0 lets losses add up more slowly.

    Formal guarantees: `columns` draws of this epsilon each are (epsilon, delta)-DP together (proofs/exact.md,
    Theorems 1 and 2), in exact arithmetic.
    """
    part = Fraction(epsilon) / columns
    if delta == 0.0 or columns == 1:
        return part
    allowed = 8 * Fraction(largest_rho(epsilon, delta)) / columns
    together = math.sqrt(allowed)
    while Fraction(together) ** 2 > allowed:
        together = math.nextafter(together, 0.0)
    return max(part, Fraction(together))


def _reaching_weight(facts: PublicFacts, cap: int, rate: Fraction) -> float:
    """The weight of the users that decide about a score: where counts are public, the few heaviest of them."""
    if facts.record_counts is None or cap == 1:
        return float(cap)
    heaviest = np.sort(np.minimum(facts.record_counts, cap))[::-1][: math.ceil(1 / rate)]
    return max(float(heaviest.mean()), 1.0)


@dataclass(frozen=True, kw_only=True)
class Shells:
    """The score of every grid point, as nested intervals.

    `first[k]` to `last[k]` are the points of score at most k; what lies outside the last of them has score `depth`.
    """

    first: IntArray
    last: IntArray
    radius: int

    def runs(self) -> tuple[IntArray, IntArray]:
        """(scores, sizes): the score of every grid point, from left to right, as runs of points of equal score."""
        depth = len(self.first)
        # The inner shells may be empty, first > last; the points between are then in none of them.
        held = np.flatnonzero(self.first <= self.last)
        first, last = self.first[held], self.last[held]
        starts = np.concatenate([[-self.radius], first[::-1], last + 1])
        outside = np.append(held[1:], depth)[
            : len(held)
        ]  # the score just beyond each shell that holds points
        scores = np.concatenate([[depth], held[::-1], outside])
        sizes = np.diff(np.append(starts, self.radius + 1))
        return scores[sizes > 0], sizes[sizes > 0]


@dataclass(frozen=True, kw_only=True)
class PreparedExact(Prepared):
    """The mechanism with grid, rate and number of shells decided.

    `planned_weight` is the weight of all users to expect, `typical_weight` that of one, `reaching_weight` that of the
    users that decide about a score; guesses, for predictions alone.
    """

    request: Request
    cap: int
    grid: LocationGrid
    rate: Fraction
    depth: int
    planned_weight: float
    typical_weight: float
    reaching_weight: float
    weight_is_public: bool

    @property
    def pull_cap(self) -> int:
        """q, the most that one user can pull."""
        return self.grid.influence(self.cap)

    def _typical_threshold(self) -> float:
        """That of a user of typical weight, in grid units."""
        return self.grid.threshold / math.pow(self.typical_weight, self.grid.power / WHOLE)

    def predicted_noise(self) -> tuple[float, ...]:
        """The spread of the draw if the score rises evenly up to the threshold and no further (proofs/exact.md)."""
        spacing = 2.0**self.grid.exponent
        threshold = self._typical_threshold() * spacing
        radius = max(self.grid.radius * spacing, threshold)
        steps, rate = self._steps(1.0), min(float(self.rate), 1e3)
        width = threshold / steps
        near_square = width**2 * (2.0 * math.exp(-rate) / math.expm1(-rate) ** 2 + 1.0 / 3.0)
        far_square = (radius**2 + radius * threshold + threshold**2) / 3.0
        astray = self._astray(steps)
        # Where steps are so few that they hardly count, the draw is anywhere within the radius.
        square = (1.0 - astray) * min(near_square, far_square) + astray * far_square
        return (math.sqrt(square),) * len(self.request.columns)

    def concentrated(self) -> Fraction:
        """Each column is an exponential mechanism of bounded range twice the rate (Cesar & Rogers 2021)."""
        return len(self.request.columns) * (2 * self.rate) ** 2 / 8

    def _steps(self, share: float) -> float:
        """How far the score rises up to the threshold, if a share of the users lies within it.

        A changed user makes up for its own pull and as much in the other direction; one that is added, for one.
        """
        crossing = 1.0 if self.request.neighbors is Neighbors.ADD_REMOVE else 2.0
        theta = self.grid.power / WHOLE
        heavy = math.pow(self.reaching_weight, 1.0 - theta) * math.pow(self.typical_weight, theta)
        users = self.planned_weight / heavy
        return max(share * users / crossing, 1.0)

    def _astray(self, steps: float) -> float:
        """About how likely an answer lies beyond the threshold, anywhere within the radius: if users are few."""
        rate = min(float(self.rate), 1e3)
        threshold = self._typical_threshold()
        near = threshold / steps / -math.expm1(-rate)
        far = max(self.grid.radius - threshold, 0) * math.exp(-rate * (steps - 1.0))
        return far / (near + far)

    def shells(self, table: PrivateTable, column: int) -> Shells:
        """The private law of one column's draw."""
        if table.n_users > MOST_USERS:
            raise InputError("there are more than two thousand million users; group them in parts")
        first, last = self._ends(table, column)
        # A location beyond the radius counts as at its edge: the last point is never too low, the first never too
        # high (proofs/exact.md, Lemma 2). Without this all points would be equally bad.
        radius = self.grid.radius
        return Shells(first=np.minimum(first, radius), last=np.maximum(last, -radius), radius=radius)

    def _ends(self, table: PrivateTable, column: int) -> tuple[IntArray, IntArray]:
        flat = self.request.neighbors is Neighbors.ADD_REMOVE
        radius, depth, pull_cap = self.grid.radius, self.depth, self.pull_cap
        if not isinstance(table, UserTable):
            public = Public(
                radius=radius,
                depth=depth,
                threshold=self.grid.threshold,
                power=self.grid.power,
                pull_cap=pull_cap,
                equal=self.request.per == "user",
                flat=flat,
            )
            return parted_shell_ends(
                lambda question: table.each_part(OfColumn(self, column, question)), public
            )
        users = self.users(table, column)
        if flat:
            return flat_shell_ends(users, radius=radius, depth=depth, pull_cap=pull_cap)
        return shell_ends(users, radius=radius, depth=depth)

    def law(self, table: PrivateTable) -> Independent:
        columns = range(len(table.columns))
        if isinstance(table, UserTable):  # one after the other, so that wide data needs no more memory
            return Independent(parts=map(partial(self.column_law, table), columns), claim=self.claim)
        return Independent(
            parts=side_by_side(table, [partial(self.column_law, column=column) for column in columns]),
            claim=self.claim,
        )

    @property
    def claim(self) -> Claim:
        """What all columns cost together."""
        return Claim(what=THE_MEAN, epsilon=self.request.epsilon, delta=self.request.delta)

    def _column_claim(self) -> Claim:
        """What each column costs: an equal part of epsilon, or of the rho that epsilon and delta buy."""
        epsilon, delta, columns = self.request.epsilon, self.request.delta, len(self.request.columns)
        part = Fraction(epsilon) / columns
        own = column_epsilon(epsilon, delta, columns=columns)
        if own <= part:
            return Claim(what="the mean of a column", epsilon=part)
        return Claim(what="the mean of a column", rho=own**2 / 8)

    def column_law(self, table: PrivateTable, column: int) -> Choice:
        """A grid point, counted from the left end."""
        scores, sizes = self.shells(table, column).runs()
        return Choice(costs=scores, sizes=sizes, rate=self.rate, claim=self._column_claim())

    def claims(self, law: Independent, neighbour: Independent) -> dict[str, float]:
        """Scores change by at most one (proofs/exact.md, Lemma 1)."""
        columns = zip(law.parts, neighbour.parts, strict=True)
        return {"a score changes by at most one": float(max(itertools.starmap(costs_apart, columns)))}

    def outcome(self, draw: Sequence[int]) -> Outcome:
        spacing = Fraction(2) ** self.grid.exponent
        values = tuple(
            float((self.grid.center(column) + number - self.grid.radius) * spacing)
            for column, number in enumerate(draw)
        )
        rule = None
        steps = self._steps(_WELL_WITHIN)
        if self.weight_is_public and self._astray(steps) < _SELDOM_ASTRAY:
            step = self._typical_threshold() * float(spacing) / steps
            rule = ScoreInterval(values=values, step=step, rate=float(self.rate))
        return Outcome(values=values, parameters=self._parameters(), interval_rule=rule)

    def users(self, table: UserTable, column: int) -> Users:
        """Users as integers, measured from the center; means beyond radius + threshold pull on every grid point alike,
        so they are clamped."""
        grid = self.grid
        reach, center = grid.radius + grid.threshold, grid.center(column)
        means = rounded_means(
            table.sums[column],
            table.counts,
            exponent=grid.exponent,
            low=center - reach,
            high=center + reach,
        )
        if center:
            means -= center
        usable = table.counts > 0
        public_weights = self.request.neighbors.counts_are_public
        full_reach = None if public_weights else self.pull_cap
        if self.request.per == "user":
            idle = np.full(int(len(usable) - usable.sum()), grid.threshold, dtype=np.int64)
            return Users.build(means[usable], None, idle=idle, threshold=grid.threshold, reach=full_reach)
        weights = user_weights(table, self.request, self.cap)
        if public_weights:
            asleep = influence_bounds(weights[~usable], grid.threshold, grid.power)
        else:
            asleep = np.full(int((~usable).sum()), full_reach, dtype=np.int64)
        return Users.build(
            means[usable],
            weights[usable],
            idle=asleep,
            threshold=grid.threshold,
            reach=full_reach,
            power=grid.power,
        )

    def _parameters(self) -> dict[str, Any]:
        spacing = Fraction(2) ** self.grid.exponent
        parameters: dict[str, Any] = {
            "threshold": float(self.grid.threshold * spacing),
            "radius": float(self.grid.radius * spacing),
        }
        if self.grid.power:
            parameters["threshold_power"] = self.grid.power / WHOLE
        if self.request.per == "record" and self.cap < LARGEST_CAP:
            parameters["record_cap"] = self.cap
        if len(self.request.columns) > 1:
            parameters["epsilon_of_each_column"] = float(2 * self.rate)
        return parameters


@dataclass(frozen=True, repr=False)
class OfColumn:
    """What a part of a table is asked: a question about its users as integers."""

    prepared: PreparedExact
    column: int
    question: Callable[[Users], Any]

    def __call__(self, part: UserTable) -> Any:
        return self.question(self.prepared.users(part, self.column))


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreInterval:
    """Intervals for the Huber location of the data, from the rate at which answers get less likely.

    With three in four users well within the threshold the score rises by about one in every `step` away from it, or
    faster, and an answer of score k is e^(-rate k) as likely; the first step is added (proofs/exact.md, "What to
    expect").
    """

    values: tuple[float, ...]
    step: float
    rate: float

    def at(self, level: float) -> Interval:
        bound = self.step * (1.0 - math.log1p(-level) / self.rate)
        return Interval(
            level=level,
            low=tuple(value - bound for value in self.values),
            high=tuple(value + bound for value in self.values),
            covers="noise, if three in four users lie well within the threshold",
        )
