"""The steps of `tuned`: each turns private data and what was found before into a law, and a draw into what is found.

What a step may spend follows from public numbers and from what was found before, so neighbours agree on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubermean.exact import ExactSums, rounded_means
from hubermean.laws import Choice, Law, NoisySum, Uniform
from hubermean.mechanisms.account import WEIGHT
from hubermean.mechanisms.adding_parts import added_up
from hubermean.mechanisms.protocol import Request
from hubermean.mechanisms.tuning_plan import TIES, Found, Planner, UnfitError
from hubermean.mechanisms.weights import user_weights, weighing_counts
from hubermean.noise import NoiseLaw
from hubermean.privacy import laplace_scale
from hubermean.tuning import (
    CAPS,
    SHORTEST,
    Census,
    OwnLine,
    SpreadSearch,
    Windows,
    line_of,
    line_on,
    own_line,
)
from hubermean.user_table import HeldMeans, IntArray, PrivateTable, UserTable

Entry = TypeVar("Entry")
Number = TypeVar("Number", bound=np.generic)


class Step(Protocol):
    """One private question; `what` names it in the account of the release."""

    @property
    def what(self) -> str: ...

    def ready(self, found: Found) -> None:
        """InputError or UnfitError where it cannot be asked after what was found."""

    def price(self, found: Found) -> Fraction:
        """What it costs after what was found, in the currency of the purse: booked, and claimed of its law."""

    def law(self, table: PrivateTable, found: Found) -> Law:
        """The law of its answer."""

    def learn(self, found: Found, draw: Any) -> Found:
        """What is found with this answer. InputError or UnfitError where it leads nowhere."""


def steps_for(planner: Planner) -> Iterator[Step]:
    """What is sought, in order."""
    if planner.start.cap is None:
        if planner.start.users is None:
            yield CountUsers(planner)
        yield ChooseCap(planner)
    if planner.seeks_place:
        yield MeasureWeight(planner)
        if planner.seeks_spread:
            yield from (ChooseSpread(planner, column) for column in range(planner.columns))
            yield from (LookBeyondTies(planner, column) for column in range(planner.columns))
        yield from (ChoosePlace(planner, column) for column in range(planner.columns))


@dataclass(frozen=True)
class CountUsers:
    """The number of users with usable records, where it is private and decides how the cap is sought."""

    planner: Planner
    what = "number of users"

    def ready(self, found: Found) -> None:
        """Always."""

    @property
    def noise(self) -> NoiseLaw:
        return NoiseLaw(kind="laplace", scale=laplace_scale(self.planner.counting(None), sensitivity=1))

    def price(self, found: Found) -> Fraction:
        return self.planner.price_of_counting(None)

    def law(self, table: PrivateTable, found: Found) -> NoisySum:
        return NoisySum(position=[census_of(table).users], noise=self.noise)

    def learn(self, found: Found, draw: list[int]) -> Found:
        users = max(draw[0], 0)
        return replace(
            found,
            spent=found.spent + self.price(found),
            users=float(users),
            measured=(*found.measured, ("users_measured", users)),
        )


@dataclass(frozen=True)
class ChooseCap:
    """The record cap, where counts are private."""

    planner: Planner
    what = "record cap"

    def ready(self, found: Found) -> None:
        self.planner.cap_search(found.users or 0.0)

    def price(self, found: Found) -> Fraction:
        return self.planner.purse.of_choice(self.planner.cap_search(found.users or 0.0).epsilon)

    def law(self, table: PrivateTable, found: Found) -> Choice:
        return self.planner.cap_search(found.users or 0.0).law(census_of(table))

    def learn(self, found: Found, draw: int) -> Found:
        return replace(found, spent=found.spent + self.price(found), cap=int(CAPS[draw]))


@dataclass(frozen=True)
class MeasureWeight:
    """The weight of all users with usable records; what there is to be spent on spread and place follows from it."""

    planner: Planner
    what = WEIGHT

    def ready(self, found: Found) -> None:
        """Always."""

    def _noise(self, found: Found) -> NoiseLaw:
        assert found.cap is not None
        scale = laplace_scale(self.planner.counting(found.users), sensitivity=found.cap)
        return NoiseLaw(kind="laplace", scale=scale)

    def price(self, found: Found) -> Fraction:
        return self.planner.price_of_counting(found.users)

    def law(self, table: PrivateTable, found: Found) -> NoisySum:
        assert found.cap is not None
        ((weight,),) = added_up(table, Weighing(self.planner.request, found.cap))
        return NoisySum(position=[weight], noise=self._noise(found))

    def learn(self, found: Found, draw: list[int]) -> Found:
        assert found.cap is not None
        # One scale low: too much would be planned for, more often than not, with the rest too little.
        weight = max((draw[0] - self._noise(found).scale) / found.cap, 0.0)
        spent = found.spent + self.price(found)
        measured = (*found.measured, ("weight_measured", max(draw[0], 0)))
        division = self.planner.division(weight, spent)
        return replace(found, spent=spent, weight=weight, division=division, measured=measured)


@dataclass(frozen=True)
class ChooseSpread:
    """The length of an interval that holds most of the weight, in one column."""

    planner: Planner
    column: int
    what = "spread of user means"

    def ready(self, found: Found) -> None:
        """Always: the weight that was found is enough, or nothing would have been learned from it."""

    def price(self, found: Found) -> Fraction:
        return self.planner.purse.of_choice(_spread_search(found).epsilon)

    def law(self, table: PrivateTable, found: Found) -> Choice:
        assert found.cap is not None
        means = MeansOnLine(self.planner.request, self.column, found.cap)
        return _spread_search(found).law(line_of(table, means), cap=found.cap)

    def learn(self, found: Found, draw: int) -> Found:
        return replace(
            found,
            spent=found.spent + self.price(found),
            spreads=(*found.spreads, draw),
            shares=(*found.shares, _spread_search(found).share),
        )


@dataclass(frozen=True)
class LookBeyondTies:
    """Once more for a larger share, at a price of its own, where so many users tie that no spread was found."""

    planner: Planner
    column: int
    what = "spread beyond ties"

    def ready(self, found: Found) -> None:
        if found.spreads[self.column] < SHORTEST:
            self.planner.ties_search(found)

    def price(self, found: Found) -> Fraction:
        if found.spreads[self.column] >= SHORTEST:
            return Fraction(0)
        return self.planner.purse.of_choice(self.planner.ties_search(found).epsilon)

    def law(self, table: PrivateTable, found: Found) -> Law:
        if found.spreads[self.column] >= SHORTEST:
            return Uniform(limit=1)
        assert found.cap is not None
        means = MeansOnLine(self.planner.request, self.column, found.cap)
        return self.planner.ties_search(found).law(line_of(table, means), cap=found.cap)

    def learn(self, found: Found, draw: int) -> Found:
        if found.spreads[self.column] >= SHORTEST:
            return found
        if draw < SHORTEST:
            raise UnfitError(TIES)
        return replace(
            found,
            spent=found.spent + self.price(found),
            spreads=_with(found.spreads, self.column, draw),
            shares=_with(found.shares, self.column, self.planner.ties_search(found).share),
        )


@dataclass(frozen=True)
class ChoosePlace:
    """The middle of a window that holds most of the weight, in one column."""

    planner: Planner
    column: int
    what = "place of user means"

    def ready(self, found: Found) -> None:
        self.planner.place_search(self.column, found)

    def price(self, found: Found) -> Fraction:
        return self.planner.purse.of_choice(self.planner.place_search(self.column, found).epsilon)

    def law(self, table: PrivateTable, found: Found) -> Choice:
        assert found.cap is not None
        search = self.planner.place_search(self.column, found)
        positions = PositionsOnLine(self.planner.request, self.column, found.cap, search.windows)
        return search.law(line_of(table, positions), cap=found.cap)

    def learn(self, found: Found, draw: int) -> Found:
        windows = self.planner.place_search(self.column, found).windows
        if draw in (0, windows.count - 1):  # the values may lie anywhere beyond
            raise UnfitError(
                "the values lie further from 0 than radius, or than a thousand million thresholds"
            )
        places = (*found.places, windows.middle(draw))
        return replace(found, spent=found.spent + self.price(found), places=places)


def _with(entries: tuple[Entry, ...], place: int, entry: Entry) -> tuple[Entry, ...]:
    return (*entries[:place], entry, *entries[place + 1 :])


def _spread_search(found: Found) -> SpreadSearch:
    assert found.division is not None
    assert found.division.spread is not None
    return found.division.spread


# --- what parts of a table are asked ----------------------------------------------------------------------------------


def census_of(table: PrivateTable) -> Census:
    """How many records users have."""
    return Census.together(table.each_part(_census))


def _census(part: UserTable) -> Census:
    return Census.of(part.counts)


@dataclass(frozen=True)
class Weighing:
    """The weight of the users with usable records."""

    request: Request
    cap: int

    def __call__(self, part: UserTable) -> list[list[int]]:
        weights = usable_weights(part, self.request, self.cap)
        # Weights are at most 2^32, so that the sum of a thousand million fits.
        return [[int(np.count_nonzero(part.counts)) if weights is None else int(weights.sum())]]


@dataclass(frozen=True)
class MeansOnLine:
    """Users with usable records at their means, as floats."""

    request: Request
    column: int
    cap: int

    def __call__(self, part: UserTable) -> OwnLine:
        if _all_computed(part, self.request):
            return line_on(_Computed(part, self.column, self.request, self.cap, ExactSums.means))
        means = _usable(part, part.column_means(self.column))
        return own_line(means, usable_weights(part, self.request, self.cap))


@dataclass(frozen=True)
class PositionsOnLine:
    """Users with usable records at their means on the grid of windows."""

    request: Request
    column: int
    cap: int
    windows: Windows

    def __call__(self, part: UserTable) -> OwnLine:
        if _all_computed(part, self.request):
            return line_on(_Computed(part, self.column, self.request, self.cap, self._positions))
        positions = _usable(part, self._positions(part.sums[self.column], part.counts))
        return own_line(positions, usable_weights(part, self.request, self.cap))

    def _positions(self, sums: ExactSums, counts: IntArray) -> IntArray:
        reach = self.windows.reach
        return rounded_means(sums, counts, exponent=self.windows.exponent, low=-reach, high=reach)


def _all_computed(part: UserTable, request: Request) -> bool:
    """Whether every user is on the line with a weight of its own, at a place that follows from sums that are held."""
    return request.per != "user" and not isinstance(part.sums, HeldMeans) and bool(part.counts.all())


@dataclass(frozen=True, eq=False, repr=False)
class _Computed:
    """All users of a table; places are computed when they are asked for, which saves memory and the time to fill it."""

    table: UserTable
    column: int
    request: Request
    cap: int
    place: Callable[[ExactSums, IntArray], NDArray[Any]]

    def __len__(self) -> int:
        return self.table.n_users

    def heaviest(self) -> int:
        return min(int(weighing_counts(self.table, self.request).max(initial=0)), self.cap)

    def blocks(self) -> Iterator[tuple[NDArray[Any], IntArray]]:
        for block in self.table.blocks():
            yield (
                self.place(block.sums[self.column], block.counts),
                user_weights(block, self.request, self.cap),
            )

    def some(self, users: IntArray) -> tuple[NDArray[Any], IntArray]:
        places = self.place(self.table.sums[self.column].taken(users), self.table.counts[users])
        return places, np.minimum(weighing_counts(self.table, self.request)[users], self.cap)


def usable_weights(table: UserTable, request: Request, cap: int) -> IntArray | None:
    """The weights of users with usable records; None where each weighs one."""
    if request.per == "user":
        return None
    return _usable(table, user_weights(table, request, cap))


def _usable(table: UserTable, numbers: NDArray[Number]) -> NDArray[Number]:
    """What belongs to users with usable records."""
    # Most often all have some, and nothing need be copied.
    return numbers if table.counts.all() else numbers[table.counts > 0]
