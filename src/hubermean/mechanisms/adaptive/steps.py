"""The private steps of `adaptive`, in the order in which they run.

Each step makes an output distribution from the private table and the estimates so far, and turns a sample of it into
new estimates. What a step may cost follows from public numbers and earlier estimates, so neighboring data sets agree
on it. One step serves all columns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from hubermean.accounting.budget import Claim
from hubermean.accounting.discrete import laplace_scale
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.queries import run_batched, sum_over_partitions
from hubermean.distributions.output import (
    Independent,
    NoiseDistribution,
    NoisySum,
    OutputDistribution,
    Uniform,
    with_claim,
)
from hubermean.mechanisms.adaptive.budget_split import BudgetSplit
from hubermean.mechanisms.adaptive.clipped_step import (
    ClippedSum,
    ColumnSums,
    choose_step_noise,
    plan_clipped_sum,
)
from hubermean.mechanisms.adaptive.parameters import (
    APART,
    TIED,
    AdaptiveEstimates,
    InfeasibleError,
    TiesError,
)
from hubermean.mechanisms.contributions import countable_records
from hubermean.searches.bounds import (
    DISTANCES,
    MAX_RECORDS_GRID,
    CappedRecords,
    MeansBeyond,
    RankSearch,
    TailSearch,
    beyond_distances,
    count_beyond,
    count_records,
)
from hubermean.searches.location import CenterSearch, IntervalSearch
from hubermean.searches.positions import MeanPositions, locate_users, select_usable
from hubermean.types.request import Request

Purpose = Literal["mean", "rows", "count"]
"""What the steps are for: one mean, sums over users' rows of groups, or a count of records."""


# Users beyond the contribution bound are expected to exceed it by this part of it, on average.
_EXCESS = 0.25
_FAR_BEYOND = 4  # times the contribution bound: users with more records are counted separately
_FAR_NATS = 3.5  # over epsilon: more such users than noise alone would show


class Step(Protocol):
    """One private step; `what` names it in the budget breakdown of the release."""

    @property
    def what(self) -> str: ...

    def cost(self, found: AdaptiveEstimates) -> Fraction:
        """Return the cost of the step after these estimates, as charged and as claimed of its distribution.

        Raises InputError or InfeasibleError where the step cannot run.
        """

    def epsilon(self, found: AdaptiveEstimates) -> Fraction:
        """Return what the step costs in pure epsilon, whatever it is charged in."""

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> OutputDistribution:
        """Return the output distribution of the step."""

    def update(self, found: AdaptiveEstimates, sample: Any) -> AdaptiveEstimates:
        """Return the estimates with this sample. Raises InputError or InfeasibleError where it allows no release."""


def plan_steps(split: BudgetSplit, purpose: Purpose) -> Iterator[Step]:
    """Yield the steps that the request needs, in order."""
    if split.counts_users():
        yield CountUsers(split)
    if purpose == "count":
        if split.start.cap is None:
            yield ChooseContributionBound(split)
        return
    if split.seeks_scale:
        yield ChooseIntervals(split)
        yield ChooseIntervalsBeyondTies(split)
    elif split.seeks_center:
        yield ChooseCenters(split)
    if purpose == "rows":
        return
    if purpose == "mean" and split.request.per == "record" and not split.weight_is_public:
        by_rank = split.seeks_rank_bound
        if by_rank or split.start.cap is None:
            yield ChooseRankBound(split) if by_rank else ChooseContributionBound(split)
        yield MeasureWeightAndHeavyUsers(split) if by_rank else MeasureWeight(split)
    if split.by_influence:
        yield ChooseInfluence(split)
        yield MoveCenters(split)
    elif split.seeks_tails:
        yield ChooseTails(split)


@dataclass(frozen=True)
class CountUsers:
    """The number of users with usable records."""

    split: BudgetSplit
    what = "number of users"

    @property
    def noise(self) -> NoiseDistribution:
        return NoiseDistribution(
            kind="laplace", scale=laplace_scale(self.split.count_epsilon(), sensitivity=1)
        )

    def cost(self, found: AdaptiveEstimates) -> Fraction:
        return self.split.privacy_budget.cost_of_noise(self.epsilon(found))

    def epsilon(self, found: AdaptiveEstimates) -> Fraction:
        return Fraction(self.split.count_epsilon())

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> NoisySum:
        return NoisySum(position=[count_records(table).users], noise=self.noise)

    def update(self, found: AdaptiveEstimates, sample: list[int]) -> AdaptiveEstimates:
        users, stddev = float(max(sample[0], 0)), self.noise.stddev
        updated = replace(
            found,
            spent=found.spent + self.cost(found),
            users=users,
            users_stddev=stddev,
            measured=(*found.measured, ("users_measured", int(users))),
        )
        if self.split.request.per == "user" and not self.split.weight_is_public:
            updated = replace(updated, weight=users, weight_stddev=stddev)
        self.split.expected_after_count(updated)  # refuse now what a later step would, for want of users
        return updated


@dataclass(frozen=True)
class ChooseContributionBound:
    """The contribution bound: the largest weight of a user, where numbers of records are private."""

    split: BudgetSplit
    what = "contribution bound"

    def cost(self, found: AdaptiveEstimates) -> Fraction:
        return self.split.privacy_budget.cost_of_selection(self.epsilon(found))

    def epsilon(self, found: AdaptiveEstimates) -> Fraction:
        return self.split.contribution_bound_search(found).epsilon

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> OutputDistribution:
        search = self.split.contribution_bound_search(found)
        return search.distribution(count_records(table), concentrated=self.split.concentrated)

    def update(self, found: AdaptiveEstimates, sample: int) -> AdaptiveEstimates:
        return replace(found, spent=found.spent + self.cost(found), cap=int(MAX_RECORDS_GRID[sample]))


class ChooseRankBound(ChooseContributionBound):
    """A contribution bound that few users exceed: it bounds nothing but the noise of the sum of weights."""

    def epsilon(self, found: AdaptiveEstimates) -> Fraction:
        return self.split.rank_bound_search(found).epsilon

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> OutputDistribution:
        search, above = self.split.rank_bound_search(found), count_records(table).above
        return search.distribution(
            above, MAX_RECORDS_GRID.astype(np.float64), concentrated=self.split.concentrated
        )

    def update(self, found: AdaptiveEstimates, sample: int) -> AdaptiveEstimates:
        updated, given = super().update(found, sample), self.split.known.max_records
        assert updated.cap is not None
        if given is not None and updated.cap >= given:  # nobody counts for more than the caller's bound
            return replace(updated, cap=given)
        return replace(updated, beyond_cap=self.split.rank_bound_search(found).expected_beyond)


@dataclass(frozen=True)
class MeasureWeight:
    """The total weight: the records of all users, each user counted up to the contribution bound."""

    split: BudgetSplit
    what = "weight of all users"

    def _noise(self, found: AdaptiveEstimates) -> NoiseDistribution:
        assert found.cap is not None
        return self._laplace(found, found.cap)

    def _laplace(self, found: AdaptiveEstimates, sensitivity: int) -> NoiseDistribution:
        scale = laplace_scale(self.split.weight_epsilon(found), sensitivity=sensitivity)
        return NoiseDistribution(kind="laplace", scale=scale)

    def cost(self, found: AdaptiveEstimates) -> Fraction:
        return self.split.privacy_budget.cost_of_noise(self.epsilon(found))

    def epsilon(self, found: AdaptiveEstimates) -> Fraction:
        return Fraction(self.split.weight_epsilon(found))

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> NoisySum:
        assert found.cap is not None
        where = np.flatnonzero(found.cap == MAX_RECORDS_GRID)
        if len(where):  # known from the same pass as the number of users
            weight = int(count_records(table).weights[where[0]])
        else:
            ((weight,),) = sum_over_partitions(table, CappedRecords(found.cap))
        return NoisySum(position=[weight], noise=self._noise(found))

    def update(self, found: AdaptiveEstimates, sample: list[int]) -> AdaptiveEstimates:
        noise = self._noise(found)
        if sample[0] <= 2.0 * noise.stddev:
            raise InfeasibleError(
                "there are too few records compared with the noise that hides the heaviest user"
            )
        return replace(
            found, spent=found.spent + self.cost(found), weight=float(sample[0]), weight_stddev=noise.stddev
        )


class MeasureWeightAndHeavyUsers(MeasureWeight):
    """The total weight under a bound that some users exceed; users far beyond it are counted separately.

    A user enters one of the two numbers, so under `add-remove` the second costs nothing.
    """

    def _noises(self, found: AdaptiveEstimates) -> list[NoiseDistribution]:
        assert found.cap is not None
        # A replaced user may move from one number to the other: two thirds of the loss are for the weight.
        weight, far = (found.cap, 1) if self.split.add_remove else ((3 * found.cap + 1) // 2, 3)
        return [self._laplace(found, weight), self._laplace(found, far)]

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> NoisySum:
        assert found.cap is not None
        histogram, given = count_records(table), self.split.known.max_records
        if found.beyond_cap == 0.0:  # the caller's bound, which need not be on the grid
            return NoisySum(
                position=[*super().distribution(table, found).position, 0], noise=self._noises(found)
            )
        at, far = np.searchsorted(MAX_RECORDS_GRID, [found.cap, _FAR_BEYOND * found.cap])
        none = far >= len(MAX_RECORDS_GRID) or (given is not None and given <= _FAR_BEYOND * found.cap)
        beyond = 0 if none else int(histogram.above[far])
        weight = int(histogram.weights[at]) - beyond * found.cap
        return NoisySum(position=[weight, beyond], noise=self._noises(found))

    def update(self, found: AdaptiveEstimates, sample: list[int]) -> AdaptiveEstimates:
        assert found.cap is not None
        of_weight, of_far = self._noises(found)
        if sample[0] <= 2.0 * of_weight.stddev:
            raise InfeasibleError(
                "there are too few records compared with the noise that hides the heaviest user"
            )
        updated = replace(
            found,
            spent=found.spent + self.cost(found),
            weight=float(sample[0]),
            weight_stddev=of_weight.stddev,
        )
        if found.beyond_cap == 0.0:
            return updated
        excess = _EXCESS * found.beyond_cap * found.cap  # a guess, and so as uncertain as it is large
        weight = sample[0] + excess
        users = max(found.users or 1.0, 1.0)
        exponential = weight / users * max(math.log(users / found.beyond_cap), 1.0)
        return replace(
            updated,
            weight=weight,
            weight_stddev=math.hypot(of_weight.stddev, excess),
            skew=math.inf if sample[1] > _FAR_NATS * of_far.scale else found.cap / exponential,
        )


@dataclass(frozen=True)
class _EachColumn(ABC):
    """One search per column, sampled independently, each at its own cost."""

    split: BudgetSplit

    @property
    @abstractmethod
    def what(self) -> str: ...

    @abstractmethod
    def search(self, column: int, found: AdaptiveEstimates) -> Any:
        """Return the search with its `epsilon`. Raises InputError or InfeasibleError where there is none."""

    @abstractmethod
    def of_column(self, column: int, found: AdaptiveEstimates, table: PrivateTable) -> OutputDistribution:
        """Return the output distribution of the search."""

    def columns(self, found: AdaptiveEstimates) -> Sequence[int]:
        return range(self.split.columns)

    def cost(self, found: AdaptiveEstimates) -> Fraction:
        epsilons = self._epsilons(found)
        return sum(map(self.split.privacy_budget.cost_of_selection, epsilons), Fraction(0))

    def epsilon(self, found: AdaptiveEstimates) -> Fraction:
        return sum(self._epsilons(found), Fraction(0))

    def _epsilons(self, found: AdaptiveEstimates) -> list[Fraction]:
        return [self.search(column, found).epsilon for column in self.columns(found)]

    def _claim(self, epsilon: Fraction) -> Claim:
        budget = self.split.privacy_budget
        return budget.claim(self.what, budget.cost_of_selection(epsilon), epsilon=epsilon)

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> OutputDistribution:
        """Return the joint distribution; over partitions all columns share the same passes."""
        columns = self.columns(found)
        distributions = run_batched(table, [partial(self.of_column, column, found) for column in columns])
        made = [
            with_claim(distribution, self._claim(epsilon))
            for distribution, epsilon in zip(distributions, self._epsilons(found), strict=True)
        ]
        return made[0] if len(made) == 1 else Independent(parts=made)


class ChooseIntervals(_EachColumn):
    """An interval that holds most users, in every column: its middle is the center, half its length the scale."""

    what = "scale and center"

    def search(self, column: int, found: AdaptiveEstimates) -> IntervalSearch:
        return self.split.interval_search(found)

    def of_column(self, column: int, found: AdaptiveEstimates, table: PrivateTable) -> OutputDistribution:
        return self.search(column, found).distribution(locate_users(table, MeanPositions(column)))

    def update(self, found: AdaptiveEstimates, sample: Any) -> AdaptiveEstimates:
        columns = self.columns(found)
        if not columns:
            return found
        # Nothing is known of a column before its first search.
        unknown = [0] * self.split.columns
        lengths: list[int] = list(found.lengths or unknown)
        centers: list[float] = list(found.centers or unknown)
        shares: list[float] = list(found.shares or unknown)
        for column, number in zip(columns, split_by_column(sample), strict=True):
            search = self.search(column, found)
            try:
                interval = search.found(number)
            except LookupError:
                raise InfeasibleError(APART) from None
            # A tie stands for itself until the next step.
            lengths[column], centers[column] = interval or (TIED, 0.0)
            shares[column] = search.share
        return replace(
            found,
            spent=found.spent + self.cost(found),
            lengths=tuple(lengths),
            centers=tuple(centers),
            shares=tuple(shares),
        )


class ChooseIntervalsBeyondTies(ChooseIntervals):
    """A second search, for a larger share and at its own cost, in columns where most users tie."""

    what = "scale and center beyond ties"

    def search(self, column: int, found: AdaptiveEstimates) -> IntervalSearch:
        search = self.split.ties_search(found)
        if search is None:
            raise self._refusal(found)
        return search

    def columns(self, found: AdaptiveEstimates) -> Sequence[int]:
        return [column for column, length in enumerate(found.lengths) if length == TIED]

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> OutputDistribution:
        return super().distribution(table, found) if self.columns(found) else Uniform(limit=1)

    def update(self, found: AdaptiveEstimates, sample: Any) -> AdaptiveEstimates:
        updated = super().update(found, sample)
        if self.columns(updated):
            raise self._refusal(updated)
        return updated

    def _refusal(self, found: AdaptiveEstimates) -> TiesError:
        names = self.split.request.columns
        return TiesError([names[column] for column in self.columns(found)], columns=len(names))


class ChooseCenters(_EachColumn):
    """The middle of a window that holds most users, in every column, where its length follows from what is given."""

    what = "center of user means"

    def search(self, column: int, found: AdaptiveEstimates) -> CenterSearch:
        return self.split.center_search(column, found)

    def of_column(self, column: int, found: AdaptiveEstimates, table: PrivateTable) -> OutputDistribution:
        return self.search(column, found).distribution(locate_users(table, MeanPositions(column)))

    def update(self, found: AdaptiveEstimates, sample: Any) -> AdaptiveEstimates:
        centers = []
        for column, number in enumerate(split_by_column(sample)):
            windows = self.search(column, found).windows
            if windows.is_outermost(number):  # the values may lie anywhere beyond
                raise InfeasibleError(APART)
            centers.append(windows.middle(number)[1])
        return replace(found, spent=found.spent + self.cost(found), centers=tuple(centers))


class ChooseTails(_EachColumn):
    """How far from the center the outermost users lie on either side, in every column."""

    what = "bounds"

    def search(self, column: int, found: AdaptiveEstimates) -> TailSearch:
        return self.split.tail_search(column, found)

    def of_column(self, column: int, found: AdaptiveEstimates, table: PrivateTable) -> OutputDistribution:
        center, unit = self.split.center(column, found), self.split.unit(column, found)
        above, below = count_beyond(table, MeansBeyond(column, center, unit))
        return self.search(column, found).distribution(above, below, concentrated=self.split.concentrated)

    def update(self, found: AdaptiveEstimates, sample: Any) -> AdaptiveEstimates:
        tails = tuple(
            self.split.tail(column, found, self.search(column, found).found(number))
            for column, number in enumerate(split_by_column(sample))
        )
        return replace(found, spent=found.spent + self.cost(found), tails=tails)


class ChooseInfluence(_EachColumn):
    """How much one user may add to the sum of weighted distances from the center, in every column."""

    what = "influence bound"

    def search(self, column: int, found: AdaptiveEstimates) -> RankSearch:
        return self.split.influence_search(found)

    def of_column(self, column: int, found: AdaptiveEstimates, table: PrivateTable) -> OutputDistribution:
        center, unit = self.split.center(column, found), self.split.influence_unit(column, found)
        cap, clamp = self.split.weight_cap(found), self.split.clamp(column, found)
        above, below = count_beyond(
            table, InfluenceBeyond(self.split.request, column, center, unit, cap, clamp)
        )
        return self.search(column, found).distribution(
            above + below, DISTANCES, concentrated=self.split.concentrated
        )

    def update(self, found: AdaptiveEstimates, sample: Any) -> AdaptiveEstimates:
        tails = tuple(
            self.split.influence_tail(column, found, float(DISTANCES[number]))
            for column, number in enumerate(split_by_column(sample))
        )
        return replace(found, spent=found.spent + self.cost(found), tails=tails)


@dataclass(frozen=True)
class MoveCenters:
    """A first clipped step from the center of the users toward the mean of the records."""

    split: BudgetSplit
    what = "first step"

    def _sums(self, found: AdaptiveEstimates) -> tuple[ClippedSum, ...]:
        return tuple(
            plan_clipped_sum(
                self.split,
                found,
                column,
                center=self.split.center(column, found),
                tail=self.split.first_tail(column, found),
                squares=None,
            )
            for column in range(self.split.columns)
        )

    def _noises(self, found: AdaptiveEstimates) -> list[NoiseDistribution]:
        epsilon = self.split.first_step_epsilon(found)
        return [choose_step_noise(epsilon, own) for own in self._sums(found)]

    def cost(self, found: AdaptiveEstimates) -> Fraction:
        self._noises(found)
        return self.split.columns * self.split.privacy_budget.cost_of_noise(
            Fraction(self.split.first_step_epsilon(found))
        )

    def epsilon(self, found: AdaptiveEstimates) -> Fraction:
        return self.split.columns * Fraction(self.split.first_step_epsilon(found))

    def distribution(self, table: PrivateTable, found: AdaptiveEstimates) -> NoisySum:
        terms = sum_over_partitions(table, ColumnSums(self._sums(found)))
        return NoisySum(position=[term[0] for term in terms], noise=self._noises(found))

    def update(self, found: AdaptiveEstimates, sample: list[int]) -> AdaptiveEstimates:
        centers = []
        for column, (own, noisy) in enumerate(zip(self._sums(found), sample, strict=True)):
            unit = float(own.grid.spacing)
            center = float(own.grid.middle * own.grid.spacing) + noisy * unit / found.weight
            low, high = self.split.known.pair(column)
            limit = float(self.split.facts.columns[column].limit) * 0.875
            center = min(max(center, -limit if low is None else low), limit if high is None else high)
            centers.append(center)
        return replace(found, spent=found.spent + self.cost(found), centers=tuple(centers))


def split_by_column(sample: Any) -> tuple[int, ...]:
    """A sample of an `_EachColumn`, column by column."""
    return sample if isinstance(sample, tuple) else (sample,)


@dataclass(frozen=True)
class InfluenceBeyond:
    """How many users would add more than each distance to the sum of weighted distances from the center."""

    request: Request
    column: int
    center: float
    unit: float
    cap: int | None
    bounds: tuple[float | None, float | None]

    def __call__(self, part: UserTable) -> tuple[Any, Any]:
        weights = countable_records(part, self.request)
        if self.cap is not None:
            weights = np.minimum(weights, self.cap)
        deviations = select_usable(part, part.column_means(self.column))
        low, high = self.bounds
        if low is not None or high is not None:
            deviations = np.clip(deviations, low, high)
        deviations = deviations - self.center
        # In place: to be given memory takes longer than to fill it.
        with np.errstate(over="ignore"):
            deviations *= select_usable(part, weights)
        deviations.sort()
        return beyond_distances(deviations, self.unit)
