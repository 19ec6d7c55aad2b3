"""Aggregate queries about the gradient G of the Huber loss, for `level_sets`: every answer is small.

A query is called with the users of one partition as sorted integers. It is pickled together with the rule that turns a
partition into integers; `level_sets` combines the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.user_table import UserTable
from hubermean.huber.level_sets import SortedUsers, build_gradient, compute_reductions, find_candidates
from hubermean.searches.positions import QuantileSketch, SortedPositions

SortedUsersQuery = Callable[[SortedUsers], Any]


@dataclass(frozen=True, repr=False)
class PartitionQuery:
    """A query of one partition: `read` turns it into sorted integers, `query` answers from these."""

    read: Callable[[UserTable], SortedUsers]
    query: SortedUsersQuery

    def __call__(self, part: UserTable) -> Any:
        return self.query(self.read(part))


class CombinedQuery:
    """Several queries answered in one pass."""

    def __init__(self, *queries: SortedUsersQuery) -> None:
        self._queries = queries

    def __call__(self, users: SortedUsers) -> tuple[Any, ...]:
        return tuple(query(users) for query in self._queries)


@dataclass(frozen=True)
class OverviewQuery:
    """The number of inactive users, and a sketch of the values; of both kinds of breakpoints if thresholds differ."""

    resolution: int

    def __call__(self, users: SortedUsers) -> tuple[int, tuple[QuantileSketch, ...]]:
        lines = (users.values,) if users.has_one_threshold else users.breakpoints()
        return len(users.inactive), tuple(SortedPositions(line).sketch(self.resolution) for line in lines)


@dataclass(frozen=True, eq=False, repr=False)
class GradientQuery:
    """G at ascending points, and the number of distinct breakpoints strictly between each point and the next."""

    points: IntArray

    def __call__(self, users: SortedUsers) -> tuple[IntArray, IntArray]:
        return build_gradient(users).at(self.points), self._count_breakpoints(users)

    def _count_breakpoints(self, users: SortedUsers) -> IntArray:
        numbers = np.zeros(len(self.points) - 1, dtype=np.int64)
        for breakpoints in users.breakpoints():
            before = np.searchsorted(breakpoints, self.points[1:], side="left")
            numbers += before - np.searchsorted(breakpoints, self.points[:-1], side="right")
        return numbers


@dataclass(frozen=True, eq=False, repr=False)
class BreakpointsQuery:
    """The breakpoints strictly within open intervals; where one holds more than `most`, that many at even ranks."""

    lefts: IntArray
    rights: IntArray
    most: int

    def __call__(self, users: SortedUsers) -> IntArray:
        found = []
        for kind in users.breakpoints():
            first = np.searchsorted(kind, self.lefts[0], side="right")
            found.append(kind[first : np.searchsorted(kind, self.rights[-1])])
        breakpoints = np.unique(np.concatenate(found))
        starts = np.searchsorted(breakpoints, self.lefts, side="right")
        numbers = np.searchsorted(breakpoints, self.rights, side="left") - starts
        taken = np.minimum(numbers, self.most)
        owner = np.repeat(np.arange(len(taken)), taken)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(taken) - taken, taken)
        # The middle of each of as many equal runs; where all are taken, each breakpoint itself.
        chosen: IntArray = breakpoints[starts[owner] + (2 * rank + 1) * numbers[owner] // (2 * taken[owner])]
        return chosen


@dataclass(frozen=True, kw_only=True, repr=False)
class ExtremeValuesQuery:
    """The `number` smallest values up to `low` and the `number` largest from `high` on; None means no limit."""

    number: int
    low: int | None
    high: int | None

    def __call__(self, users: SortedUsers) -> tuple[IntArray, IntArray]:
        values = users.values
        until = len(values) if self.low is None else int(np.searchsorted(values, self.low, side="right"))
        start = 0 if self.high is None else int(np.searchsorted(values, self.high, side="left"))
        return values[: min(until, self.number)], values[max(start, len(values) - self.number) :]


@dataclass(frozen=True, kw_only=True, repr=False)
class LargestReductionsQuery:
    """The `number` largest reductions at a point, and those of the mirrored users at another."""

    point: int
    mirrored_point: int
    number: int

    def __call__(self, users: SortedUsers) -> tuple[IntArray, IntArray]:
        upper = compute_reductions(users, self.point)
        lower = compute_reductions(users.mirrored(), self.mirrored_point)
        return np.sort(upper)[::-1][: self.number], np.sort(lower)[::-1][: self.number]


@dataclass(frozen=True, kw_only=True, repr=False)
class CandidatesQuery:
    """(values, weights) of the users that may have one of the `number` largest reductions up to a point.

    `least` is the smallest of these reductions at the first point; None if there are at most `number` users.
    """

    last: int
    mirrored_last: int
    least: int | None
    mirrored_least: int | None
    number: int

    def __call__(self, users: SortedUsers) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
        return (
            self._find(users, self.last, self.least),
            self._find(users.mirrored(), self.mirrored_last, self.mirrored_least),
        )

    def _find(self, users: SortedUsers, last: int, least: int | None) -> tuple[IntArray, IntArray]:
        assert users.weights is not None
        near = find_candidates(users, last, self.number, least)
        return users.values[near], users.weights[near]
