"""The steps of `adaptive`: each turns private data and what was found before into a law, and a draw into what is found.

What a step may spend follows from public numbers and from what was found before, so neighbours agree on it. A step
serves all columns at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.exact import rounded_means
from hubermean.laws import Independent, Law, NoisySum, Uniform, claiming
from hubermean.mechanisms.adaptive.last_step import AllSums, ClippedSum, clipped_sum, step_noise
from hubermean.mechanisms.adaptive.split import TIES, BudgetSplit, Found, UnfitError
from hubermean.mechanisms.adding_parts import added_up
from hubermean.mechanisms.protocol import Request
from hubermean.mechanisms.side_by_side import side_by_side
from hubermean.mechanisms.weights import weighing_counts
from hubermean.noise import NoiseLaw
from hubermean.privacy import laplace_scale
from hubermean.tuning import (
    CAPS,
    DISTANCES,
    SHORTEST,
    Census,
    CenterSearch,
    HeldLine,
    OwnLine,
    RankSearch,
    RoundedLine,
    ScaleSearch,
    TailSearch,
    Windows,
    beyond_distances,
    line_of,
)
from hubermean.user_table import PrivateTable, UserTable

Floats = NDArray[np.float64]
Purpose = Literal["mean", "groups", "count"]
"""What the steps are for: one mean, the means of groups under common bounds, or a count of records."""


# Of the cap: by so much users with more records exceed it on average, or so it is expected.
_EXCESS = 0.25
_FAR_BEYOND = 4  # caps: users with more records are counted apart
_FAR_NATS = 3.5  # over epsilon: so many of them are more than noise


class Step(Protocol):
    """One private question; `what` names it in the budget breakdown of the release."""

    @property
    def what(self) -> str: ...

    def cost(self, found: Found) -> Fraction:
        """What it costs after what was found: booked, and claimed of its law.

        InputError or UnfitError where it cannot be asked.
        """

    def law(self, table: PrivateTable, found: Found) -> Law:
        """The law of its answer."""

    def learn(self, found: Found, draw: Any) -> Found:
        """What is found with this answer. InputError or UnfitError where it leads nowhere."""


def steps_for(split: BudgetSplit, purpose: Purpose) -> Iterator[Step]:
    """What is sought, in order."""
    if split.counts_users():
        yield CountUsers(split)
    if purpose != "mean":
        if split.start.cap is None:
            yield ChooseCap(split)
        if purpose == "count":
            return
    if split.seeks_scale:
        yield ChooseScales(split)
        yield LookBeyondTies(split)
    if split.seeks_center:
        yield ChooseCenters(split)
    if purpose == "mean" and split.request.per == "record" and not split.weight_is_public:
        by_rank = split.start.cap is None and not split.caps_weights
        if split.start.cap is None:
            yield ChooseRankCap(split) if by_rank else ChooseCap(split)
        yield MeasureWeightApart(split) if by_rank else MeasureWeight(split)
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
    def noise(self) -> NoiseLaw:
        return NoiseLaw(kind="laplace", scale=laplace_scale(self.split.count_epsilon(), sensitivity=1))

    def cost(self, found: Found) -> Fraction:
        return self.split.purse.of_noise(Fraction(self.split.count_epsilon()))

    def law(self, table: PrivateTable, found: Found) -> NoisySum:
        return NoisySum(position=[census_of(table).users], noise=self.noise)

    def learn(self, found: Found, draw: list[int]) -> Found:
        users, stddev = float(max(draw[0], 0)), self.noise.stddev
        learned = replace(
            found,
            spent=found.spent + self.cost(found),
            users=users,
            users_stddev=stddev,
            measured=(*found.measured, ("users_measured", int(users))),
        )
        if self.split.request.per == "user" and not self.split.weight_is_public:
            learned = replace(learned, weight=users, weight_stddev=stddev)
        return learned


@dataclass(frozen=True)
class ChooseCap:
    """The contribution bound: the largest weight of a user, where numbers of records are private."""

    split: BudgetSplit
    what = "record cap"

    def cost(self, found: Found) -> Fraction:
        return self.split.purse.of_choice(self.split.share_cap_search(found).epsilon)

    def law(self, table: PrivateTable, found: Found) -> Law:
        search = self.split.share_cap_search(found)
        return search.law(census_of(table), concentrated=self.split.concentrated)

    def learn(self, found: Found, draw: int) -> Found:
        return replace(found, spent=found.spent + self.cost(found), cap=int(CAPS[draw]))


class ChooseRankCap(ChooseCap):
    """A contribution bound that few users exceed: it bounds nothing but the noise of the sum of weights."""

    def cost(self, found: Found) -> Fraction:
        return self.split.purse.of_choice(self.split.rank_cap_search(found).epsilon)

    def law(self, table: PrivateTable, found: Found) -> Law:
        search, above = self.split.rank_cap_search(found), census_of(table).above
        return search.law(above, CAPS.astype(np.float64), concentrated=self.split.concentrated)

    def learn(self, found: Found, draw: int) -> Found:
        beyond = self.split.rank_cap_search(found).expected_beyond
        return replace(super().learn(found, draw), beyond_cap=beyond)


@dataclass(frozen=True)
class MeasureWeight:
    """The weight of all users: their records, of each no more than the cap."""

    split: BudgetSplit
    what = "weight of all users"

    def _noise(self, found: Found) -> NoiseLaw:
        assert found.cap is not None
        return self._laplace(found, found.cap)

    def _laplace(self, found: Found, sensitivity: int) -> NoiseLaw:
        scale = laplace_scale(self.split.weight_epsilon(found), sensitivity=sensitivity)
        return NoiseLaw(kind="laplace", scale=scale)

    def cost(self, found: Found) -> Fraction:
        return self.split.purse.of_noise(Fraction(self.split.weight_epsilon(found)))

    def law(self, table: PrivateTable, found: Found) -> NoisySum:
        assert found.cap is not None
        where = np.flatnonzero(found.cap == CAPS)
        if len(where):  # known from the same pass as the number of users
            weight = int(census_of(table).weights[where[0]])
        else:
            ((weight,),) = added_up(table, CappedRecords(found.cap))
        return NoisySum(position=[weight], noise=self._noise(found))

    def learn(self, found: Found, draw: list[int]) -> Found:
        noise = self._noise(found)
        if draw[0] <= 2.0 * noise.stddev:
            raise UnfitError("there are too few records beside the noise that hides the heaviest user")
        return replace(
            found, spent=found.spent + self.cost(found), weight=float(draw[0]), weight_stddev=noise.stddev
        )


class MeasureWeightApart(MeasureWeight):
    """The same for a cap that some users exceed; those with far more records are counted, beside the weight of others.

    A user is in one of the two numbers, so under `add-remove` the second costs nothing.
    """

    def _noises(self, found: Found) -> list[NoiseLaw]:
        assert found.cap is not None
        # Who is replaced may leave the one number for the other: two thirds of the loss are for the weight.
        weight, far = (found.cap, 1) if self.split.one_way else ((3 * found.cap + 1) // 2, 3)
        return [self._laplace(found, weight), self._laplace(found, far)]

    def law(self, table: PrivateTable, found: Found) -> NoisySum:
        assert found.cap is not None
        census = census_of(table)
        at, far = np.searchsorted(CAPS, [found.cap, _FAR_BEYOND * found.cap])
        beyond = int(census.above[far]) if far < len(CAPS) else 0
        weight = int(census.weights[at]) - beyond * found.cap
        return NoisySum(position=[weight, beyond], noise=self._noises(found))

    def learn(self, found: Found, draw: list[int]) -> Found:
        assert found.cap is not None
        of_weight, of_far = self._noises(found)
        if draw[0] <= 2.0 * of_weight.stddev:
            raise UnfitError("there are too few records beside the noise that hides the heaviest user")
        excess = _EXCESS * found.beyond_cap * found.cap  # a guess, and so as uncertain as it is large
        weight = draw[0] + excess
        users = max(found.users or 1.0, 1.0)
        exponential = weight / users * max(math.log(users / found.beyond_cap), 1.0)
        return replace(
            found,
            spent=found.spent + self.cost(found),
            weight=weight,
            weight_stddev=math.hypot(of_weight.stddev, excess),
            skew=math.inf if draw[1] > _FAR_NATS * of_far.scale else found.cap / exponential,
        )


@dataclass(frozen=True)
class _EachColumn(ABC):
    """A search in every column, drawn independently, each at a cost of its own."""

    split: BudgetSplit

    @property
    @abstractmethod
    def what(self) -> str: ...

    @abstractmethod
    def search(self, column: int, found: Found) -> Any:
        """With the `epsilon` that it costs. InputError or UnfitError where there is none."""

    @abstractmethod
    def of_column(self, column: int, found: Found, table: PrivateTable) -> Law:
        """The law of what the search finds."""

    def columns(self, found: Found) -> Sequence[int]:
        return range(self.split.columns)

    def _cost(self, column: int, found: Found) -> Fraction:
        return self.split.purse.of_choice(self.search(column, found).epsilon)

    def cost(self, found: Found) -> Fraction:
        return sum((self._cost(column, found) for column in self.columns(found)), Fraction(0))

    def law(self, table: PrivateTable, found: Found) -> Law:
        """Over partitions all columns are asked in the same passes."""
        columns = self.columns(found)
        laws = side_by_side(table, [partial(self.of_column, column, found) for column in columns])
        made = [
            claiming(law, self.split.purse.claim(self.what, self._cost(column, found)))
            for law, column in zip(laws, columns, strict=True)
        ]
        return made[0] if len(made) == 1 else Independent(parts=made)


class ChooseScales(_EachColumn):
    """The length of an interval that holds most users, in every column."""

    what = "scale of user means"

    def search(self, column: int, found: Found) -> ScaleSearch:
        return self.split.scale_search(found)

    def of_column(self, column: int, found: Found, table: PrivateTable) -> Law:
        line = line_of(table, MeansOnLine(column))
        return self.search(column, found).law(line, concentrated=self.split.concentrated)

    def learn(self, found: Found, draw: Any) -> Found:
        share = self.split.scale_search(found).share
        return replace(
            found,
            spent=found.spent + self.cost(found),
            lengths=by_column(draw),
            shares=(share,) * self.split.columns,
        )


class LookBeyondTies(ChooseScales):
    """Once more for a larger share, at a cost of its own, in columns where users tie and no scale was found."""

    what = "scale beyond ties"

    def search(self, column: int, found: Found) -> ScaleSearch:
        return self.split.ties_search(found)

    def columns(self, found: Found) -> Sequence[int]:
        return [column for column, length in enumerate(found.lengths) if length < SHORTEST]

    def law(self, table: PrivateTable, found: Found) -> Law:
        return super().law(table, found) if self.columns(found) else Uniform(limit=1)

    def learn(self, found: Found, draw: Any) -> Found:
        tied = self.columns(found)
        if not tied:
            return found
        share = self.split.ties_search(found).share
        lengths, shares = list(found.lengths), list(found.shares)
        for column, length in zip(tied, by_column(draw), strict=True):
            if length < SHORTEST:
                raise UnfitError(TIES)
            lengths[column], shares[column] = length, share
        return replace(
            found, spent=found.spent + self.cost(found), lengths=tuple(lengths), shares=tuple(shares)
        )


class ChooseCenters(_EachColumn):
    """The middle of a window that holds most users, in every column."""

    what = "center of user means"

    def search(self, column: int, found: Found) -> CenterSearch:
        return self.split.center_search(column, found)

    def of_column(self, column: int, found: Found, table: PrivateTable) -> Law:
        search = self.search(column, found)
        return search.law(line_of(table, PositionsOnLine(column, search.windows)))

    def learn(self, found: Found, draw: Any) -> Found:
        centers = []
        for column, number in enumerate(by_column(draw)):
            windows = self.search(column, found).windows
            if number in (0, windows.count - 1):  # the values may lie anywhere beyond
                raise UnfitError(
                    "the values lie further from 0 than radius, or than a thousand million scales"
                )
            centers.append(windows.middle(number))
        return replace(found, spent=found.spent + self.cost(found), centers=tuple(centers))


class ChooseTails(_EachColumn):
    """How far from the center the outermost users lie on either side, in every column."""

    what = "bounds"

    def search(self, column: int, found: Found) -> TailSearch:
        return self.split.tail_search(column, found)

    def of_column(self, column: int, found: Found, table: PrivateTable) -> Law:
        center, unit = self.split.center(column, found), self.split.unit(column, found)
        above, below = _beyond(table, MeansBeyond(column, center, unit))
        return self.search(column, found).law(above, below, concentrated=self.split.concentrated)

    def learn(self, found: Found, draw: Any) -> Found:
        tails = tuple(
            self.split.tail(column, found, self.search(column, found).found(number))
            for column, number in enumerate(by_column(draw))
        )
        return replace(found, spent=found.spent + self.cost(found), tails=tails)


class ChooseInfluence(_EachColumn):
    """How much one user may add to the sum of weighted distances from the center, in every column."""

    what = "influence bound"

    def search(self, column: int, found: Found) -> RankSearch:
        return self.split.influence_search(found)

    def of_column(self, column: int, found: Found, table: PrivateTable) -> Law:
        center, unit = self.split.center(column, found), self.split.influence_unit(column, found)
        cap, clamp = self.split.weight_cap(found), self.split.clamp(column, found)
        above, below = _beyond(table, InfluenceBeyond(self.split.request, column, center, unit, cap, clamp))
        return self.search(column, found).law(above + below, DISTANCES, concentrated=self.split.concentrated)

    def learn(self, found: Found, draw: Any) -> Found:
        tails = tuple(
            self.split.influence_tail(column, found, float(DISTANCES[number]))
            for column, number in enumerate(by_column(draw))
        )
        return replace(found, spent=found.spent + self.cost(found), tails=tails)


@dataclass(frozen=True)
class MoveCenters:
    """A first clipped step from the center of the users toward the mean of the records."""

    split: BudgetSplit
    what = "first step"

    def _sums(self, found: Found) -> tuple[ClippedSum, ...]:
        return tuple(
            clipped_sum(
                self.split,
                found,
                column,
                center=self.split.center(column, found),
                tail=self.split.first_tail(column, found),
                squares=None,
            )
            for column in range(self.split.columns)
        )

    def _noises(self, found: Found) -> list[NoiseLaw]:
        epsilon = self.split.first_step_epsilon(found)
        return [step_noise(epsilon, own) for own in self._sums(found)]

    def cost(self, found: Found) -> Fraction:
        self._noises(found)
        return self.split.columns * self.split.purse.of_noise(Fraction(self.split.first_step_epsilon(found)))

    def law(self, table: PrivateTable, found: Found) -> NoisySum:
        terms = added_up(table, AllSums(self._sums(found)))
        return NoisySum(position=[term[0] for term in terms], noise=self._noises(found))

    def learn(self, found: Found, draw: list[int]) -> Found:
        centers = []
        for column, (own, noisy) in enumerate(zip(self._sums(found), draw, strict=True)):
            unit = float(own.grid.spacing)
            center = float(own.grid.middle * own.grid.spacing) + noisy * unit / found.weight
            low, high = self.split.known.pair(column)
            limit = float(self.split.facts.columns[column].limit) * 0.875
            center = min(max(center, -limit if low is None else low), limit if high is None else high)
            centers.append(center)
        return replace(found, spent=found.spent + self.cost(found), centers=tuple(centers))


def by_column(draw: Any) -> tuple[int, ...]:
    """A draw of an `_EachColumn`, column by column."""
    return draw if isinstance(draw, tuple) else (draw,)


# --- what parts of a table are asked ----------------------------------------------------------------------------------


def census_of(table: PrivateTable) -> Census:
    """How many records users have."""

    def made() -> Census:
        return Census.together(table.each_part(_census))

    return table.keep("census", made) if isinstance(table, UserTable) else made()


def _census(part: UserTable) -> Census:
    return Census.of(part.counts)


def _beyond(table: PrivateTable, look: Callable[[UserTable], Any]) -> tuple[Any, Any]:
    parts = table.each_part(look)
    above, below = zip(*parts, strict=True)
    return np.sum(above, axis=0, dtype=np.int64), np.sum(below, axis=0, dtype=np.int64)


@dataclass(frozen=True)
class CappedRecords:
    """The records of all users, of each no more than the cap."""

    cap: int

    def __call__(self, part: UserTable) -> list[list[int]]:
        # Each is at most 2^32, so that the sum of a thousand million fits.
        return [[int(np.minimum(part.counts, self.cap).sum())]]


@dataclass(frozen=True)
class MeansOnLine:
    """Users with usable records at their means, as floats."""

    column: int

    def __call__(self, part: UserTable) -> HeldLine:
        return part.keep(self, lambda: HeldLine(_usable(part, part.column_means(self.column))))


@dataclass(frozen=True)
class PositionsOnLine:
    """Users with usable records at their means on the grid of windows."""

    column: int
    windows: Windows

    def __call__(self, part: UserTable) -> OwnLine:
        exponent, reach = self.windows.exponent, self.windows.reach

        def one_by_one() -> HeldLine:
            sums = part.sums[self.column]
            positions = rounded_means(sums, part.counts, exponent=exponent, low=-reach, high=reach)
            return HeldLine(_usable(part, positions))

        if not part.means_are_close(self.column):
            return one_by_one()
        means = MeansOnLine(self.column)(part)
        return RoundedLine(means, exponent=exponent, reach=reach, one_by_one=one_by_one)


@dataclass(frozen=True)
class MeansBeyond:
    """How many user means lie beyond each distance from the center."""

    column: int
    center: float
    unit: float

    def __call__(self, part: UserTable) -> tuple[Any, Any]:
        # A difference keeps the order, whatever it rounds.
        return beyond_distances(MeansOnLine(self.column)(part).ascending - self.center, self.unit)


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
        weights = weighing_counts(part, self.request)
        if self.cap is not None:
            weights = np.minimum(weights, self.cap)
        deviations = _usable(part, part.column_means(self.column))
        low, high = self.bounds
        if low is not None or high is not None:
            deviations = np.clip(deviations, low, high)
        deviations = deviations - self.center
        # In place: to be given memory takes longer than to fill it.
        with np.errstate(over="ignore"):
            deviations *= _usable(part, weights)
        deviations.sort()
        return beyond_distances(deviations, self.unit)


def _usable(table: UserTable, numbers: NDArray[Any]) -> NDArray[Any]:
    """What belongs to users with usable records."""
    # Most often all have some, and nothing need be copied.
    return numbers if table.counts.all() else numbers[table.counts > 0]
