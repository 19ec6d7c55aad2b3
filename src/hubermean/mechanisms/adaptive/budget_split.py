"""How `adaptive` splits its budget over its steps, and which bounds follow from their estimates.

Everything here is computed from public and released numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist

import numpy as np

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import PrivacyBudget
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.adaptive.parameters import (
    TOO_FEW,
    AdaptiveEstimates,
    InfeasibleError,
    Tail,
    ValueParameters,
    both,
)
from hubermean.mechanisms.contributions import find_least_users
from hubermean.searches.bounds import (
    ContributionBoundSearch,
    RankSearch,
    Sides,
    TailSearch,
    public_contribution_bound,
    share_above,
)
from hubermean.searches.location import LENGTHS, CenterSearch, IntervalSearch
from hubermean.types.request import Neighbors, PublicFacts, Request

_MOST_USERS = 2.0**31
# Parts of the whole budget, and then of what is left for a column, or for all columns, when a step begins.
_COUNT_PART = 0.06
_COUNTED_WITHIN = (
    6.0  # over the root of the users: a number need not be measured more exactly than with this epsilon
)
_SCALE_PART, _TIES_PART, _CENTER_PART = 0.35, 0.22, 0.45
_SHARE_CAP_PART = 0.2
# Per record these are for 5,000 users times epsilon, and fall with a power of that.
_CAP_PART, _WEIGHT_PART, _INFLUENCE_PART, _FIRST_STEP_PART = 0.045, 0.055, 0.22, 0.05
_RECORD_SIZE, _RECORD_DECAY, _RECORD_MOST = 5000.0, 0.25, 2.5
_DROWNED = 0.05  # of the users, as if each had one record: noise in the sum of weights that does not matter
_LARGEST_CAP_PART, _LARGEST_INFLUENCE_PART = 0.15, 0.22
_FIRST_BOUND = 0.5  # of the influence bound: what bounds a user in the first step
_STRETCH = 0.116  # the power of the number of users beyond, over that which should be
_BEYOND = 2.0  # over epsilon: how many users should lie beyond a bound
_TAIL_PART, _TAIL_DECAY, _TAIL_PARTS = 0.38, 0.19, (0.06, 0.4)
# Where there is so much, enough is spent to see the farthest user alone, however far away.
_ALONE_PART, _ALONE_NATS, _LEAST_ALONE_NATS = 0.27, 26.0, 6.75
_CONCENTRATED = 0.5  # so much of a part is as good where losses add up in squares
_FARTHEST = 1e9  # scales from 0 that the center may lie
_GIVEN_SHARE = 0.8  # that a window holds of users whose scale the caller gave
_LOST_SCALES = 3.0
# Standard deviations of the noise in the number of users, and the part of what a release needs below which it ends.
_UNSURE, _HOPELESS = 2.0, 0.7
_SHIFT = 0.133  # of the difference between the tails: how far the mean lies from the center, with 1,000 users


@dataclass(frozen=True, kw_only=True)
class BudgetSplit:
    """Public decisions: what is estimated, what it may cost, and what follows from it.

    `spent_before` is what of the budget went to something else. `caps_weights` says that nobody weighs more than the
    contribution bound that is found, where it otherwise bounds noise alone, and `center_only` that what follows the
    steps bounds influence itself.
    """

    request: Request
    facts: PublicFacts
    known: ValueParameters
    privacy_budget: PrivacyBudget
    spent_before: Fraction = Fraction(0)
    caps_weights: bool = False
    center_only: bool = False
    start: AdaptiveEstimates = field(init=False, repr=False)

    def __post_init__(self) -> None:
        public = self.facts.n_users if self.facts.n_users is not None else self.known.n_users
        users = None if public is None else float(public)
        start = AdaptiveEstimates(
            spent=self.spent_before, users=users, cap=self._public_cap(), weight=self._public_weight()
        )
        object.__setattr__(self, "start", start)

    def _public_weight(self) -> float:
        """0 where it is private."""
        counts = self.facts.record_counts
        if counts is None or self.request.per == "user":
            return 0.0 if counts is None else float(len(counts))
        cap = self._public_cap() if self.caps_weights else self.known.max_records
        return float((counts if cap is None else np.minimum(counts, cap)).sum())

    def _public_cap(self) -> int | None:
        if self.request.per == "user":
            return 1
        if self.known.max_records is not None:
            return self.known.max_records
        counts = self.facts.record_counts
        if counts is None:
            return None
        if not counts.any():
            raise InputError("no user has a record; give counts= of at least one for some user")
        return public_contribution_bound(counts[counts > 0], share_above(len(counts)))

    @property
    def seeks_rank_bound(self) -> bool:
        """Whether the sum of weights has noise of its own bound: where the caller's bound, if any, would drown it."""
        if self.caps_weights:
            return False
        if self.start.cap is None:
            return True
        users = self.start.users or float(self.facts.planned_users)
        noise = math.sqrt(2.0) * self.start.cap / self.weight_epsilon(replace(self.start, users=users))
        return noise > _DROWNED * users

    def weight_cap(self, found: AdaptiveEstimates) -> int | None:
        """The largest weight of a user where what it adds is bounded; None for none."""
        return found.cap if self.caps_weights else self.known.max_records

    @property
    def columns(self) -> int:
        return len(self.request.columns)

    @property
    def concentrated(self) -> bool:
        return self.privacy_budget.accounting == "concentrated"

    @property
    def add_remove(self) -> bool:
        return self.request.neighbors is Neighbors.ADD_REMOVE

    @property
    def bounds_known(self) -> bool:
        return self.known.bounds is not None and both(self.known.bounds[0])

    @property
    def seeks_center(self) -> bool:
        return not self.bounds_known

    @property
    def seeks_scale(self) -> bool:
        return self.seeks_center and self.known.threshold is None and self.known.scales is None

    @property
    def by_influence(self) -> bool:
        """Whether the influence of a user is bounded, not its mean: where users weigh as many records as they have."""
        return self.request.per == "record" and not self.center_only

    @property
    def seeks_tails(self) -> bool:
        return self.seeks_center and self.known.threshold is None and not self.by_influence

    def counts_users(self) -> bool:
        """Whether the number of users with usable records is measured; only the caller's estimate replaces it.

        How many users there are may be public, how many have usable records is not.
        """
        estimated = self.facts.n_users is None and self.known.n_users is not None
        return not (estimated and self.request.per == "record")

    @property
    def weight_is_public(self) -> bool:
        return self.facts.record_counts is not None

    # --- what each step may spend ---------------------------------------------------------------------------------

    def _left(self, found: AdaptiveEstimates) -> Fraction:
        return max(self.privacy_budget.total - found.spent, Fraction(0))

    def _own(self, found: AdaptiveEstimates) -> Fraction:
        """What is left for each column."""
        return self._left(found) / self.columns

    def _part(self, part: float) -> float:
        return part * _CONCENTRATED if self.concentrated else part

    def _choice(self, budget: Fraction, part: float) -> float:
        return self.privacy_budget.largest_selection(budget, self._part(part))

    def _noise(self, budget: Fraction, part: float) -> float:
        """The epsilon of Laplace noise that costs a part of a budget."""
        return replace(self.privacy_budget, total=budget).largest_noise(self._part(part))

    def count_epsilon(self, users: float | None = None) -> float:
        """For the number of users; `users` is how many to count on in place of what is public."""
        # A mean over records is divided by their weight, so there the number of users need not be exact.
        most = self.privacy_budget.largest_noise(
            _COUNT_PART if self.request.per == "user" else _COUNT_PART / 2
        )
        users = self.start.users if self.start.users is None or users is None else users
        return most if users is None else min(most, _COUNTED_WITHIN / math.sqrt(max(users, 1.0)))

    def interval_search(self, found: AdaptiveEstimates) -> IntervalSearch:
        """Of a column whose scale is to be found. InfeasibleError where users are too few."""
        search = IntervalSearch.plan(
            self.conservative_users(found),
            add_remove=self.add_remove,
            largest=self.privacy_budget.largest_selection(self._own(found), _SCALE_PART),
            radius=self._radius,
        )
        if search is None:
            raise InfeasibleError(TOO_FEW)
        return search

    def ties_search(self, found: AdaptiveEstimates) -> IntervalSearch | None:
        """None where users are too few to search beyond a tie."""
        return IntervalSearch.beyond_ties(
            self.conservative_users(found),
            add_remove=self.add_remove,
            epsilon=self.privacy_budget.largest_selection(self._own(found), _TIES_PART),
            radius=self._radius,
        )

    @cached_property
    def _radius(self) -> float:
        """Within which centers are searched for."""
        limit = min(round_down(column.limit * Fraction(7, 8)) for column in self.facts.columns)
        return min(self.known.radius or math.inf, limit)

    def conservative_users(self, found: AdaptiveEstimates) -> float:
        """How many users to count on: rather fewer than were measured."""
        return min(max((found.users or 0.0) - found.users_stddev, 0.0), _MOST_USERS)

    def center_search(self, column: int, found: AdaptiveEstimates) -> CenterSearch:
        """Of a column whose scale or threshold is given. InputError or InfeasibleError where there is none."""
        given = self.known.threshold is not None
        # A quarter longer, so that some window holds what an interval does.
        length = self._length(column, found) * (1.0 if given else 1.25)
        search = CenterSearch.plan(
            length,
            radius=min(self._radius, _FARTHEST * length / 2.0),
            users=self.conservative_users(found),
            share=_GIVEN_SHARE,
            add_remove=self.add_remove,
            largest=self.privacy_budget.largest_selection(self._own(found), _CENTER_PART),
        )
        if search is None:
            raise InfeasibleError(TOO_FEW)
        return search

    def contribution_bound_search(self, found: AdaptiveEstimates) -> ContributionBoundSearch:
        """A cap that a share of the users may exceed, for counts and for groups, whose noise grows with the cap."""
        largest = self.privacy_budget.largest_selection(self._left(found), _SHARE_CAP_PART)
        search = ContributionBoundSearch.plan(min(found.users or 0.0, _MOST_USERS), largest=largest)
        if search is None:
            raise InfeasibleError(TOO_FEW)
        return search

    def _rank_search(
        self, found: AdaptiveEstimates, budget: Fraction, *, part: float, most: float, hostile: float = 0.0
    ) -> RankSearch:
        users = self.conservative_users(found)
        least = max(self._choice(budget, self._by_size(part, found)), RankSearch.least_epsilon(users))
        return RankSearch.plan(users, epsilon=min(least, self._choice(budget, most)), hostile=hostile)

    def _by_size(self, part: float, found: AdaptiveEstimates) -> float:
        """The part of a step per record: what is searched for need be no more exact than the mean."""
        size = max(self.conservative_users(found) * self.noise_epsilon, 1.0) / _RECORD_SIZE
        return part * min(math.pow(size, -_RECORD_DECAY), _RECORD_MOST)

    def rank_bound_search(self, found: AdaptiveEstimates) -> RankSearch:
        """A cap that few users exceed, where it bounds nothing but the noise of the sum of weights."""
        return self._rank_search(found, self._left(found), part=_CAP_PART, most=_LARGEST_CAP_PART)

    def weight_epsilon(self, found: AdaptiveEstimates) -> float:
        return self._noise(self._left(found), self._by_size(_WEIGHT_PART, found))

    def influence_search(self, found: AdaptiveEstimates) -> RankSearch:
        """`found` is that before the search. InfeasibleError where users are too few."""
        search = self._rank_search(
            found,
            self._own(found),
            part=_INFLUENCE_PART,
            most=_LARGEST_INFLUENCE_PART,
            hostile=self.known.hostile,
        )
        if not RankSearch.serves(self.conservative_users(found), epsilon=float(search.epsilon)):
            raise InfeasibleError(TOO_FEW)
        return search

    def influence_tail(self, column: int, found: AdaptiveEstimates, distance: float) -> Tail:
        """The bound on what a user adds, from the distance that a search found."""
        beyond = self.influence_search(found).expected_beyond
        seen = self.influence_unit(column, found) * distance
        wanted = (
            _BEYOND * (1 if self.add_remove else 2) / self.noise_epsilon
        )  # a replacement takes twice the noise
        bound = seen * max(beyond / wanted, 1.0) ** _STRETCH
        return Tail(below=bound, above=bound, seen_below=seen, seen_above=seen, rank=beyond)

    def first_tail(self, column: int, found: AdaptiveEstimates) -> Tail:
        """What bounds a user in the first step, which need not be exact."""
        tail = found.tails[column]
        return replace(tail, below=_FIRST_BOUND * tail.below, above=_FIRST_BOUND * tail.above)

    def first_step_epsilon(self, found: AdaptiveEstimates) -> float:
        """For each column."""
        return self._noise(self._own(found), self._by_size(_FIRST_STEP_PART, found))

    def tail_search(self, column: int, found: AdaptiveEstimates) -> TailSearch:
        return TailSearch.plan(
            self.conservative_users(found),
            epsilon=self._choice(self._own(found), self._tail_part(found)),
            share=self._share(column, found),
            total=self.noise_epsilon,
            hostile=self.known.hostile,
            sides=self.sides(column),
            add_remove=self.add_remove,
        )

    def _tail_part(self, found: AdaptiveEstimates) -> float:
        least, most = _TAIL_PARTS
        part = min(max(_TAIL_PART * math.pow(self.size(found), -_TAIL_DECAY), least), most)
        alone = min(_ALONE_PART, _ALONE_NATS / self.noise_epsilon)
        return max(part, alone) if alone * self.noise_epsilon >= _LEAST_ALONE_NATS else part

    def size(self, found: AdaptiveEstimates) -> float:
        """Thousands of users times epsilon, for each column and group: what accuracy depends on."""
        return max(self.conservative_users(found) * self.noise_epsilon, 1.0) / 1000.0

    @property
    def noise_epsilon(self) -> float:
        """About the epsilon that one column's noise is drawn with."""
        if self.concentrated:
            return math.sqrt(2.0 * float(self.privacy_budget.total) / self.columns)
        return float(self.privacy_budget.total) / self.columns

    def sides(self, column: int) -> Sides:
        low, high = self.known.pair(column)
        return "upper" if low is not None else "lower" if high is not None else "both"

    # --- what follows ---------------------------------------------------------------------------------------------

    def _length(self, column: int, found: AdaptiveEstimates) -> float:
        """Of an interval that holds the share."""
        if self.known.threshold is not None:
            return 2.0 * self.known.threshold
        if self.known.scales is not None:
            return 2.0 * _normal_quantile(_GIVEN_SHARE) * self.known.scales[column]
        return float(LENGTHS[found.lengths[column]])

    def unit(self, column: int, found: AdaptiveEstimates) -> float:
        """Half the length of an interval that holds most users: what distances are measured in."""
        if self.bounds_known:
            low, high = self.known.pair(column)
            assert low is not None
            assert high is not None
            return (high - low) / 2.0
        if self.known.threshold is not None:
            return self.known.threshold / 2.0
        return self._length(column, found) / 2.0

    def influence_unit(self, column: int, found: AdaptiveEstimates) -> float:
        """The least distance at which an influence bound is searched for."""
        return self.unit(column, found) * max(found.weight / max(found.users or 1.0, 1.0), 1.0) / 12.0

    def center(self, column: int, found: AdaptiveEstimates) -> float:
        if self.bounds_known:
            low, high = self.known.pair(column)
            assert low is not None
            assert high is not None
            return found.centers[column] if found.centers else (low + high) / 2.0
        return found.centers[column]

    def clamp(self, column: int, found: AdaptiveEstimates) -> tuple[float | None, float | None]:
        """Between what user means are clamped, if anything: public bounds, or a threshold to each side."""
        if self.known.threshold is None:
            return self.known.pair(column)
        center = self.center(column, found)
        return center - self.known.threshold, center + self.known.threshold

    def tail(self, column: int, found: AdaptiveEstimates, distances: tuple[float, float]) -> Tail:
        """Bounds from the distances that a search found, in units of the scale."""
        search, unit = self.tail_search(column, found), self.unit(column, found)
        below, above = (unit * search.stretched(one) if one > 0.0 else 0.0 for one in distances)
        tail = Tail(
            below=below,
            above=above,
            seen_below=unit * distances[0],
            seen_above=unit * distances[1],
            rank=search.expected_beyond,
        )
        return self._within_public(column, found, tail)

    def _within_public(self, column: int, found: AdaptiveEstimates, tail: Tail) -> Tail:
        """No further than public bounds, nor than numbers are read."""
        center, (low, high) = self.center(column, found), self.known.pair(column)
        least = self.unit(column, found) / 16.0
        below = tail.below if low is None else max(center - low, least)
        above = tail.above if high is None else max(high - center, least)
        most = float(self.facts.columns[column].limit) / 16.0
        below, above = min(below, most), min(above, most)
        return replace(
            tail,
            below=below,
            above=above,
            seen_below=min(tail.seen_below or below, below),
            seen_above=min(tail.seen_above or above, above),
        )

    def given_tail(self, column: int, found: AdaptiveEstimates) -> Tail:
        """Bounds that need no search: those the caller gave, or a threshold to each side."""
        if self.known.threshold is not None:
            threshold = self.known.threshold
            return self._within_public(column, found, Tail(below=threshold, above=threshold))
        unit = self.unit(column, found)
        return self._within_public(column, found, Tail(below=unit, above=unit))

    def tails(self, found: AdaptiveEstimates) -> tuple[Tail, ...]:
        if found.tails:
            return found.tails
        return tuple(self.given_tail(column, found) for column in range(self.columns))

    def tail_of(self, column: int, found: AdaptiveEstimates) -> Tail:
        """As `tails`, of one column, without those of all others."""
        return found.tails[column] if found.tails else self.given_tail(column, found)

    def _share(self, column: int, found: AdaptiveEstimates) -> float:
        return found.shares[column] if found.shares else _GIVEN_SHARE

    def shifted_center(self, column: int, found: AdaptiveEstimates) -> float:
        """Where the mean is to be expected: off the center toward the longer tail."""
        center, tail = self.center(column, found), self.tail_of(column, found)
        if not self.seeks_tails:
            return center
        shift = _SHIFT / math.sqrt(self.size(found)) * (tail.seen_above - tail.seen_below)
        return center + min(max(shift, -tail.below), tail.above)

    # --- whether there are enough users ---------------------------------------------------------------------------

    def has_enough_users(self, users: float) -> bool:
        """Whether so many users are enough to find what is searched for, if most have usable records."""
        try:
            self.expected(users)
            return not self.seeks_scale or self.interval_search(self._expected_count(users)).serves(users)
        except InfeasibleError:
            return False

    def expected(self, users: float) -> AdaptiveEstimates:
        """About what the steps will have found and spent, with so many users, before tails and influence are
        searched for."""
        return self.expected_after_count(self._expected_count(users))

    def _expected_count(self, users: float) -> AdaptiveEstimates:
        """Rather few of so many users, as they may be measured."""
        found = AdaptiveEstimates(spent=self.spent_before, users=float(users), cap=self.start.cap)
        if not self.counts_users():
            return found
        epsilon = self.count_epsilon(users)
        return replace(
            found,
            users=max(users - _LOST_SCALES / epsilon, 0.0),
            users_stddev=math.sqrt(2.0) / epsilon,
            spent=found.spent + self.privacy_budget.cost_of_noise(Fraction(epsilon)),
        )

    def expected_after_count(self, found: AdaptiveEstimates) -> AdaptiveEstimates:
        """`expected`, after the number of users was measured. InfeasibleError where it is too small for a later step.

        The number and what is spent decide, nothing that a later step finds: so a release that must end for want of
        users ends here.
        """
        if self.seeks_scale:
            search = self.interval_search(found)
            # A search that is all but sure to refuse need not be paid for, however many the measured number stands for.
            if not search.serves((found.users or 0.0) + _UNSURE * found.users_stddev, part=_HOPELESS):
                raise InfeasibleError(TOO_FEW)
            found = replace(
                found,
                spent=found.spent + self.columns * self.privacy_budget.cost_of_selection(search.epsilon),
                lengths=(len(LENGTHS) // 2,) * self.columns,
                shares=(search.share,) * self.columns,
                centers=(0.0,) * self.columns,
            )
        elif self.seeks_center:
            costs = [
                self.privacy_budget.cost_of_selection(self.center_search(column, found).epsilon)
                for column in range(self.columns)
            ]
            found = replace(found, spent=found.spent + sum(costs, Fraction(0)), centers=(0.0,) * self.columns)
        if self.request.per == "record" and self.start.cap is None and not self.by_influence:
            return self._after_selection(found, self.contribution_bound_search(found).epsilon)
        if self.by_influence:
            self.influence_search(self._expected_after_weight(found))
        return found

    def _expected_after_weight(self, found: AdaptiveEstimates) -> AdaptiveEstimates:
        """What is spent once the weight of all users, where it is private, was measured."""
        if self.weight_is_public:
            return found
        if self.seeks_rank_bound:
            found = self._after_selection(found, self.rank_bound_search(found).epsilon)
        elif self.start.cap is None:
            found = self._after_selection(found, self.contribution_bound_search(found).epsilon)
        cost = self.privacy_budget.cost_of_noise(Fraction(self.weight_epsilon(found)))
        return replace(found, spent=found.spent + cost)

    def _after_selection(self, found: AdaptiveEstimates, epsilon: Fraction) -> AdaptiveEstimates:
        return replace(found, spent=found.spent + self.privacy_budget.cost_of_selection(epsilon))

    def can_search_beyond_ties(self, users: float) -> bool:
        """Whether so many users are enough to search beyond a tie."""
        try:
            return self.ties_search(self.expected(users)) is not None
        except InfeasibleError:
            return False

    def least_users(self) -> int:
        return find_least_users(self.has_enough_users)

    @property
    def help(self) -> str:
        """What would make fewer users enough: of what is not given."""
        if not self.seeks_center:
            return f"give {parameter('max_records')}"
        if self.seeks_scale:
            return f"give {parameter('bounds')}, or {parameter('threshold')} and {parameter('radius')}"
        bounds = parameter("bounds")
        return f"give {parameter('radius')}, or {bounds}" if self.known.radius is None else f"give {bounds}"

    def expected_noise(self, users: float) -> float:
        """The standard deviation of the noise of a mean for bounds at 1 and -1, about; infinite for too few users."""
        if not self.has_enough_users(users):
            return math.inf
        found = self.expected(users)
        left = float(self._own(found)) * (1.0 - self._part(self._tail_part(found)))
        if left <= 0.0:
            return math.inf
        noise = math.sqrt(0.5 / left) if self.concentrated else math.sqrt(2.0) / left
        return (1.0 if self.add_remove else 2.0) * noise / max(users, 1.0)

    def expected_width(self, users: float) -> float:
        """How far from the center bounds will lie for normal users, in standard deviations."""
        if self.known.scales is not None or not self.seeks_scale:
            return 4.0
        found = self.expected(users)
        share = found.shares[0]
        unit = _normal_quantile(share)
        search = self.tail_search(0, found)
        beyond = min(search.expected_beyond / max(users, 1.0), 0.49)
        seen = max(NormalDist().inv_cdf(1.0 - beyond) / unit, 1.0)
        return unit * search.stretched(seen)


def _normal_quantile(share: float) -> float:
    """How many standard deviations to each side hold this share of a normal distribution."""
    return NormalDist().inv_cdf((1.0 + share) / 2.0)
