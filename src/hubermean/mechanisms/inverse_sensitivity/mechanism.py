"""The mechanism `inverse-sensitivity`: public parameters, output distribution and release, in integers throughout.

Every point of a public grid has a score: how many users would have to change before it could be the Huber location of
the data. A point is drawn with probability proportional to exp(-epsilon * score / 2), exactly. There is no delta and no
smallest number of users, and outliers have bounded influence. Proof: proofs/inverse-sensitivity.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hubermean.accounting.arguments import is_real
from hubermean.accounting.budget import THE_MEAN, Claim
from hubermean.accounting.concentrated import largest_rho
from hubermean.data.fixed_point import round_means
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.level_sets import LevelSetParameters, find_level_sets
from hubermean.distributed.queries import run_each
from hubermean.distributions.output import ExponentialMechanism, Independent, max_cost_difference
from hubermean.errors import InputError, parameter
from hubermean.huber.level_sets import SortedUsers
from hubermean.huber.thresholds import WHOLE, influence_bounds, threshold_of, total_influence_bound
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.mechanisms.contributions import (
    LARGEST_MAX_RECORDS,
    check_max_records,
    check_optional_max_records,
    check_threshold_power,
    expected_weight,
    find_weight_cap,
    parse_threshold_power,
    user_weights,
)
from hubermean.mechanisms.inverse_sensitivity.grid import (
    LevelSets,
    LocationGrid,
    ScoreInterval,
    count_level_sets,
)
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

MOST_USERS = 2**31
_WELL_WITHIN = 0.75  # the share of users that an interval counts on well within the threshold
_RARELY_FAR = 1e-3  # an interval is offered where answers beyond the threshold are less likely than this


@dataclass(frozen=True, kw_only=True)
class InverseSensitivity:
    """The Huber location by inverse sensitivity, column by column.

    Args:
        threshold: how far a user mean may be from the answer before its influence stops growing. Public.
        radius: the answer lies within this distance of the center; a large radius costs little. Public.
        max_records: the contribution bound, the largest number of records a user counts for, with `per="record"`.
            Public. Not needed where `threshold_power` is 1.
        threshold_power: a user with a records has the threshold `threshold * a ** -threshold_power`, for
            `per="record"`. With 1 the threshold bounds a user's influence, however many records it has. Public.
        centers: what the radius is measured from, one per column; zero by default. Public or released.

    Formal guarantees:
    - epsilon-DP for the neighbor relation of the request (proofs/inverse-sensitivity.md, Theorem 1). Several columns
      share epsilon equally, or, with delta > 0, what (epsilon, delta) allows them together if that is more (Theorem 2).
    - The sample follows its stated distribution exactly: no floating-point number takes part from record to output.

    | edge case | what happens |
    |---|---|
    | a user without usable records | no influence; under `replace-values` it keeps its public weight in the score |
    | no users at all | every point of the grid is equally likely |
    | a location beyond the radius | counts as at the edge of the grid |
    | more than 2^31 users | refused |
    """

    threshold: float
    radius: float
    max_records: int | None = None
    threshold_power: float | None = None
    centers: tuple[float, ...] = ()
    name = "inverse-sensitivity"

    def __post_init__(self) -> None:
        for name in ("threshold", "radius"):
            given: Any = getattr(self, name)
            if not is_real(given) or not 1e-60 <= given <= 1e60:
                raise InputError(
                    f"{parameter(name)} must be a positive number (from 1e-60 to 1e60), not {given!r}"
                )
        parse_threshold_power(self.threshold_power)

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> InverseSensitivity:
        threshold, radius = known.threshold_and_radius("threshold_power", of=cls.name)
        return cls(
            threshold=threshold,
            radius=radius,
            max_records=known.max_records,
            threshold_power=known.threshold_power,
        )

    def check(self, request: Request) -> None:
        check_threshold_power(self.threshold_power, request)
        if parse_threshold_power(self.threshold_power) == WHOLE:  # the threshold bounds a user's influence
            check_optional_max_records(self.max_records, request)
        else:
            check_max_records(self.max_records, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedInverseSensitivity:
        self.check(request)
        power = parse_threshold_power(self.threshold_power)
        uncapped = power == WHOLE and self.max_records is None and facts.record_counts is None
        cap = LARGEST_MAX_RECORDS if uncapped else find_weight_cap(self.max_records, request, facts)
        self._check_limits(facts)
        users = MOST_USERS if facts.n_users is None else facts.n_users
        grid = LocationGrid.choose(
            float(self.threshold),
            float(self.radius),
            total_influence=total_influence_bound(cap, users, power),
            power=power,
            smallest=threshold_of(cap, float(self.threshold), power),
            centers=self.centers,
        )
        epsilon = column_epsilon(request.epsilon, request.delta, columns=len(request.columns))
        planned = float(facts.planned_users if facts.n_users is None else facts.n_users)
        # Without a contribution bound nothing is known about weights; predict as if every user had one record.
        unknown = uncapped and facts.planned_weight is None
        weight = planned if unknown else expected_weight(request, facts, cap)
        return PreparedInverseSensitivity(
            request=request,
            cap=cap,
            grid=grid,
            rate=epsilon / 2,
            n_levels=count_level_sets(
                grid, epsilon, n_users=facts.n_users, cap=cap, equal_weights=request.per == "user"
            ),
            planned_weight=weight,
            typical_weight=max(weight / max(planned, 1.0), 1.0),
            deciding_weight=_deciding_weight(facts, 1 if uncapped else cap, epsilon / 2),
            weight_is_public=facts.n_users is not None
            and (request.per == "user" or facts.record_counts is not None),
        )

    def _check_limits(self, facts: PublicFacts) -> None:
        farthest = max((abs(center) for center in self.centers), default=0.0)
        reach = Fraction(float(self.radius)) + Fraction(float(self.threshold)) + Fraction(farthest)
        for column in facts.columns:
            if reach > column.limit:
                raise InputError(
                    f"{parameter('radius')} and threshold reach beyond {float(column.limit):g}, the largest value "
                    f"that {column.name!r} is read with; give {parameter('resolution')} (a coarser step) or a "
                    "smaller radius"
                )


def column_epsilon(epsilon: float, delta: float, *, columns: int) -> Fraction:
    """The epsilon of each column: an equal part, or more where delta > 0 lets losses add up more slowly.

    Formal guarantees: `columns` draws of this epsilon each are (epsilon, delta)-DP together
    (proofs/inverse-sensitivity.md, Theorems 1 and 2), in exact arithmetic.
    """
    part = Fraction(epsilon) / columns
    if delta == 0.0 or columns == 1:
        return part
    allowed = 8 * Fraction(largest_rho(epsilon, delta)) / columns
    together = math.sqrt(allowed)
    while Fraction(together) ** 2 > allowed:
        together = math.nextafter(together, 0.0)
    return max(part, Fraction(together))


def _deciding_weight(facts: PublicFacts, cap: int, rate: Fraction) -> float:
    """The weight of the users that decide about a score: where counts are public, of the few heaviest users."""
    if facts.record_counts is None or cap == 1:
        return float(cap)
    heaviest = np.sort(np.minimum(facts.record_counts, cap))[::-1][: math.ceil(1 / rate)]
    return max(float(heaviest.mean()), 1.0)


@dataclass(frozen=True, kw_only=True)
class PreparedInverseSensitivity(Prepared):
    """The mechanism with grid, rate and number of level sets decided; none of its fields depends on private data.

    Attributes:
        cap: the largest weight of a user.
        rate: of the exponential mechanism, half the epsilon of a column.
        n_levels: how many level sets of the score are distinguished.
        planned_weight, typical_weight, deciding_weight: guesses of the weight of all users, of one user, and of the
            users that decide about a score; for predictions alone.
        weight_is_public: whether the total weight is public or released, so that an interval can be offered.
    """

    request: Request
    cap: int
    grid: LocationGrid
    rate: Fraction
    n_levels: int
    planned_weight: float
    typical_weight: float
    deciding_weight: float
    weight_is_public: bool

    @property
    def influence_cap(self) -> int:
        """q, the most influence that one user can have."""
        return self.grid.influence(self.cap)

    # --- predictions -----------------------------------------------------------------------------------------------

    def predicted_noise(self) -> tuple[float, ...]:
        """The deviation of the sample if the score rises evenly up to the threshold and no further (see the proof)."""
        spacing = 2.0**self.grid.exponent
        threshold = self._typical_threshold() * spacing
        radius = max(self.grid.radius * spacing, threshold)
        steps, rate = self._steps(1.0), min(float(self.rate), 1e3)
        width = threshold / steps
        near_square = width**2 * (2.0 * math.exp(-rate) / math.expm1(-rate) ** 2 + 1.0 / 3.0)
        far_square = (radius**2 + radius * threshold + threshold**2) / 3.0
        far = self._chance_of_far_answer(steps)
        # Where the score hardly rises, the sample is anywhere within the radius.
        square = (1.0 - far) * min(near_square, far_square) + far * far_square
        return (math.sqrt(square),) * len(self.request.columns)

    def concentrated(self) -> Fraction:
        """Each column is an exponential mechanism of bounded range twice the rate (Cesar & Rogers 2021)."""
        return len(self.request.columns) * (2 * self.rate) ** 2 / 8

    def _typical_threshold(self) -> float:
        """The threshold of a user of typical weight, in grid units."""
        return self.grid.threshold / math.pow(self.typical_weight, self.grid.power / WHOLE)

    def _steps(self, share: float) -> float:
        """How far the score rises up to the threshold, if this share of the users lies within it.

        A changed user makes up for its own influence and as much in the other direction; an added one for the latter.
        """
        crossing = 1.0 if self.request.neighbors is Neighbors.ADD_REMOVE else 2.0
        theta = self.grid.power / WHOLE
        heavy = math.pow(self.deciding_weight, 1.0 - theta) * math.pow(self.typical_weight, theta)
        users = self.planned_weight / heavy
        return max(share * users / crossing, 1.0)

    def _chance_of_far_answer(self, steps: float) -> float:
        """About how likely an answer lies beyond the threshold, anywhere within the radius: if users are few."""
        rate = min(float(self.rate), 1e3)
        threshold = self._typical_threshold()
        near = threshold / steps / -math.expm1(-rate)
        far = max(self.grid.radius - threshold, 0) * math.exp(-rate * (steps - 1.0))
        return far / (near + far)

    # --- the output distribution -----------------------------------------------------------------------------------

    def distribution(self, table: PrivateTable) -> Independent:
        columns = [partial(self.column_distribution, column=column) for column in range(len(table.columns))]
        return Independent(parts=run_each(table, columns), claim=self.claim)

    def column_distribution(self, table: PrivateTable, column: int) -> ExponentialMechanism:
        """The distribution over grid points, numbered from the left end."""
        scores, sizes = self.level_sets(table, column).runs()
        return ExponentialMechanism(costs=scores, sizes=sizes, rate=self.rate, claim=self._column_claim())

    def level_sets(self, table: PrivateTable, column: int) -> LevelSets:
        """The scores of one column; private."""
        if table.n_users > MOST_USERS:
            raise InputError(
                f"there are more than two billion users; split them into groups with {parameter('by')}"
            )
        radius = self.grid.radius
        parameters = LevelSetParameters(
            radius=radius,
            n_levels=self.n_levels,
            threshold=self.grid.threshold,
            power=self.grid.power,
            influence_cap=self.influence_cap,
            equal_weights=self.request.per == "user",
            add_remove=self.request.neighbors is Neighbors.ADD_REMOVE,
        )
        first, last = find_level_sets(table, partial(self.users, column=column), parameters)
        # A location beyond the radius counts as at the edge of the grid: the last point is never too low, the first
        # never too high (proofs/inverse-sensitivity.md, Lemma 2). Otherwise all points would have the same score.
        return LevelSets(first=np.minimum(first, radius), last=np.maximum(last, -radius), radius=radius)

    def users(self, table: UserTable, column: int) -> SortedUsers:
        """Users as sorted integers, measured from the center.

        A mean beyond radius + threshold has the same influence on every grid point, so means are clamped to that.
        """
        grid = self.grid
        reach, center = grid.radius + grid.threshold, grid.center(column)
        means = round_means(
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
        max_influence = None if public_weights else self.influence_cap
        if self.request.per == "user":
            return SortedUsers.build(
                means[usable],
                None,
                inactive=np.full(int(len(usable) - usable.sum()), grid.threshold, dtype=np.int64),
                threshold=grid.threshold,
                max_influence=max_influence,
            )
        weights = user_weights(table, self.request, self.cap)
        if public_weights:
            inactive = influence_bounds(weights[~usable], grid.threshold, grid.power)
        else:
            inactive = np.full(int((~usable).sum()), max_influence, dtype=np.int64)
        return SortedUsers.build(
            means[usable],
            weights[usable],
            inactive=inactive,
            threshold=grid.threshold,
            max_influence=max_influence,
            power=grid.power,
        )

    # --- what it costs ---------------------------------------------------------------------------------------------

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

    def claims(self, distribution: Independent, neighbor: Independent) -> dict[str, float]:
        """Scores change by at most one (proofs/inverse-sensitivity.md, Lemma 1)."""
        columns = zip(distribution.parts, neighbor.parts, strict=True)
        return {"a score changes by at most one": float(max(itertools.starmap(max_cost_difference, columns)))}

    # --- the release -----------------------------------------------------------------------------------------------

    def outcome(self, sample: Sequence[int]) -> Outcome:
        spacing = Fraction(2) ** self.grid.exponent
        values = tuple(
            float((self.grid.center(column) + number - self.grid.radius) * spacing)
            for column, number in enumerate(sample)
        )
        rule = None
        steps = self._steps(_WELL_WITHIN)
        if self.weight_is_public and self._chance_of_far_answer(steps) < _RARELY_FAR:
            step = self._typical_threshold() * float(spacing) / steps
            rule = ScoreInterval(values=values, step=step, rate=float(self.rate))
        return Outcome(values=values, parameters=self._parameters(), interval_rule=rule)

    def _parameters(self) -> dict[str, Any]:
        spacing = Fraction(2) ** self.grid.exponent
        parameters: dict[str, Any] = {
            "threshold": float(self.grid.threshold * spacing),
            "radius": float(self.grid.radius * spacing),
        }
        if self.grid.power:
            parameters["threshold_power"] = self.grid.power / WHOLE
        if self.request.per == "record" and self.cap < LARGEST_MAX_RECORDS:
            parameters["max_records"] = self.cap
        if len(self.request.columns) > 1:
            parameters["epsilon_of_each_column"] = float(2 * self.rate)
        return parameters
