"""Positions of users on a line, counted in intervals, through mergeable quantile sketches.

Users on one machine are sorted once (`SortedPositions`); users in several partitions answer the same queries with small
summaries (`PartitionedPositions`). Quantiles depend on how users are partitioned: they say where counting is
worthwhile, and no output distribution may depend on more than the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import IntArray
from hubermean.data.user_table import PrivateTable, UserTable

Places = NDArray[Any]
"""Where users are: whole numbers, or floats, by which they are compared and nothing else."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QuantileSketch:
    """Some users' places, in ascending order, with the users up to and including each; private."""

    places: Places
    cumulated: IntArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Quantiles:
    """How many users there are, and marks: places in ascending order that leave few users between them; private."""

    total: int
    marks: Places


class UserPositions(Protocol):
    """Queries about users on a line."""

    def quantiles(self, fineness: int) -> Quantiles:
        """At most 2 * fineness + 1 marks: no gap between them holds more than 1/fineness of the users.

        Gaps are open, so users at a mark are in none; neither before the first mark nor after the last are there more.
        """

    def within(self, lows: Places, highs: Places) -> IntArray:
        """The users in each of the closed intervals."""

    def between(self, low: Any, high: Any) -> UserPositions:
        """The users in a closed interval."""

    def places(self) -> tuple[Places, IntArray]:
        """All places of users, ascending, and the users at each: for few users, or such as share few places."""


class LocalPositions(UserPositions, Protocol):
    """Of users that are here."""

    def sketch(self, resolution: int) -> QuantileSketch:
        """At most so many places: none of the gaps that they leave holds more than 1/resolution of the users."""

    def between(self, low: Any, high: Any) -> LocalPositions: ...


class SortedPositions:
    """Users on this machine, sorted once."""

    def __init__(self, places: Places) -> None:
        self.ascending = np.sort(places)

    def sketch(self, resolution: int) -> QuantileSketch:
        places = _drop_repeated(self.ascending[target_ranks(len(self.ascending), resolution) - 1])
        return QuantileSketch(places=places, cumulated=self.up_to(places))

    def quantiles(self, fineness: int) -> Quantiles:
        return merge_sketches([self.sketch(4 * fineness)], fineness)

    def within(self, lows: Places, highs: Places) -> IntArray:
        users: IntArray = np.maximum(self.up_to(highs) - self.before(lows), 0)
        return users

    def up_to(self, ends: Places) -> IntArray:
        """The users at each end and before it."""
        users: IntArray = np.searchsorted(self.ascending, ends, side="right")
        return users

    def before(self, ends: Places) -> IntArray:
        """The users before each end."""
        users: IntArray = np.searchsorted(self.ascending, ends, side="left")
        return users

    def between(self, low: Any, high: Any) -> SortedPositions:
        start = int(np.searchsorted(self.ascending, low, side="left"))
        some = copy(self)
        some.ascending = self.ascending[start : np.searchsorted(self.ascending, high, side="right")]
        return some

    def places(self) -> tuple[Places, IntArray]:
        return np.unique(self.ascending, return_counts=True)


def distinct(numbers: IntArray) -> IntArray:
    """The distinct numbers in ascending order. `np.unique` hashes them, which takes fifty times as long."""
    return _drop_repeated(np.sort(numbers))


def _drop_repeated(ascending: Places) -> Places:
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if len(ascending) else ascending


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FullPlaces:
    """Places that more users share than a public number, and by how many; private."""

    places: Places
    excess: IntArray

    @classmethod
    def of(cls, marks: Places, users: IntArray, most: int) -> FullPlaces:
        """Of ascending marks with the users at each, among which are all such places."""
        full = users > most
        return cls(places=marks[full], excess=users[full] - most)

    @property
    def largest(self) -> int:
        return int(self.excess.max(initial=0))

    def most(self, lows: Places, highs: Places) -> IntArray:
        """The largest excess in each of the closed intervals; 0 where there is none."""
        number = len(self.places)
        # The largest from one place up to before another.
        runs = np.zeros((number + 1, number + 1), dtype=np.int64)
        for first in range(number):
            runs[first, first + 1 :] = np.maximum.accumulate(self.excess[first:])
        begins = np.searchsorted(self.places, lows, side="left")
        ends = np.searchsorted(self.places, highs, side="right")
        most: IntArray = runs[begins, np.maximum(begins, ends)]
        return most


def target_ranks(total: int, resolution: int) -> IntArray:
    """The ranks that sketches aim at: 1/resolution of all, 2/resolution, ..., in whole numbers above 0."""
    aims = _equal_shares(total, resolution)
    return aims[np.diff(aims, prepend=0) > 0]


def _equal_shares(total: int, parts: int) -> IntArray:
    """total * 1 / parts, total * 2 / parts, ..., rounded up. No product exceeds the total by much."""
    whole, rest = divmod(total, parts)
    number = np.arange(1, parts + 1)
    shares: IntArray = whole * number + -(-rest * number // parts)
    return shares


def merge_sketches(sketches: Sequence[QuantileSketch], fineness: int) -> Quantiles:
    """The survey of all users from sketches of their parts with a resolution of four times the fineness or more.

    Let L be the number of users that sketches know of up to a place: at most all there, and fewer by no more than
    1/resolution of all. Kept are the places at which L enters another of 2 * fineness equal shares. Up to the next one
    kept L stays within its share, so no more than 1/(2 fineness) + 2/resolution of the users lie between.
    """
    places = np.concatenate([sketch.places for sketch in sketches])
    if not len(places):
        return Quantiles(total=0, marks=places)
    known = np.concatenate([np.diff(sketch.cumulated, prepend=0) for sketch in sketches])
    order = np.argsort(places, kind="stable")
    places, known = places[order], np.cumsum(known[order])
    last = np.append(places[1:] != places[:-1], True)
    places, known = places[last], known[last]
    shares = _shares(known, 2 * fineness)
    # The last place of a sketch has all users of its part up to it.
    return Quantiles(total=int(known[-1]), marks=places[np.diff(shares, prepend=0) > 0])


def _shares(known: IntArray, parts: int) -> IntArray:
    """Which of so many equal shares of the last weight each one has entered, for any weights of 63 bits."""
    entered: IntArray = np.searchsorted(_equal_shares(int(known[-1]), parts), known, side="right")
    return entered


Question = Callable[[LocalPositions], Any]


def locate_users(table: PrivateTable, of_part: Callable[[UserTable], LocalPositions]) -> UserPositions:
    """Return the positions of the users of a table; `of_part` makes those of a partition and is pickled for Spark."""
    if not isinstance(table, UserTable):  # each question is a pass
        return PartitionedPositions(lambda question: table.map_partitions(_OfLine(of_part, question)))
    lines = table.map_partitions(of_part)
    # Users are sorted by then, and to start threads would take longer than to answer.
    return (
        lines[0]
        if len(lines) == 1
        else PartitionedPositions(lambda question: [question(positions) for positions in lines])
    )


class PartitionedPositions:
    """Positions in several partitions, queried as one: `ask` returns the answer of every partition."""

    def __init__(self, ask: Callable[[Question], Sequence[Any]]) -> None:
        self._ask = ask

    def quantiles(self, fineness: int) -> Quantiles:
        return merge_sketches(self._ask(_Sketching(4 * fineness)), fineness)

    def within(self, lows: Places, highs: Places) -> IntArray:
        users: IntArray = np.sum(self._ask(_Counting(lows, highs)), axis=0, dtype=np.int64)
        return users

    def between(self, low: Any, high: Any) -> PartitionedPositions:
        return PartitionedPositions(lambda question: self._ask(_Between(low, high, question)))

    def places(self) -> tuple[Places, IntArray]:
        parts = self._ask(_places)
        places, owners = np.unique(np.concatenate([places for places, _ in parts]), return_inverse=True)
        users = np.zeros(len(places), dtype=np.int64)
        np.add.at(users, owners, np.concatenate([users for _, users in parts]))
        return places, users


# --- queries that a partition answers
# ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class _OfLine:
    """A question about the users of a part on the line."""

    of_part: Callable[[UserTable], LocalPositions]
    question: Question

    def __call__(self, part: UserTable) -> Any:
        return self.question(self.of_part(part))


@dataclass(frozen=True, eq=False, repr=False)
class _Between:
    low: Any
    high: Any
    question: Question

    def __call__(self, positions: LocalPositions) -> Any:
        return self.question(positions.between(self.low, self.high))


@dataclass(frozen=True)
class _Sketching:
    resolution: int

    def __call__(self, positions: LocalPositions) -> QuantileSketch:
        return positions.sketch(self.resolution)


@dataclass(frozen=True, eq=False, repr=False)
class _Counting:
    lows: Places
    highs: Places

    def __call__(self, positions: LocalPositions) -> IntArray:
        return positions.within(self.lows, self.highs)


def _places(positions: LocalPositions) -> tuple[Places, IntArray]:
    return positions.places()


@dataclass(frozen=True)
class MeanPositions:
    """Users with usable records at their means, as floats."""

    column: int

    def __call__(self, part: UserTable) -> SortedPositions:
        return part.cached(self, lambda: SortedPositions(select_usable(part, part.column_means(self.column))))


def select_usable(table: UserTable, numbers: NDArray[Any]) -> NDArray[Any]:
    """What belongs to users with usable records."""
    # Most often all have some, and nothing need be copied.
    return numbers if table.counts.all() else numbers[table.counts > 0]
