"""Level sets of the inverse-sensitivity score, for users on one machine or in partitions.

Over partitions, each pass evaluates G at chosen points and counts its breakpoints between them. Between two points
without a breakpoint G is a line, so it is known there. A few passes are enough until every end of a level set lies
between two such points; the ends then follow without another pass. The largest reductions need few numbers from each
partition. Proof: proofs/inverse-sensitivity.md, Lemma 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.level_set_queries import (
    BreakpointsQuery,
    CandidatesQuery,
    CombinedQuery,
    ExtremeValuesQuery,
    GradientQuery,
    LargestReductionsQuery,
    OverviewQuery,
    PartitionQuery,
    SortedUsersQuery,
)
from hubermean.huber.level_sets import (
    EqualWeightReductions,
    GradientByValues,
    ReductionSums,
    SortedUsers,
    UnequalWeightReductions,
    add_remove_level_set_ends,
    find_ends,
    level_set_ends,
)
from hubermean.searches.positions import QuantileSketch, merge_sketches

FINENESS = 1 << 11
"""At most one in this many users has a breakpoint of a kind between two of the first points."""
MOST_POINTS = 1 << 16
"""About the number of points evaluated in one pass, and of breakpoints returned."""


@dataclass(frozen=True, kw_only=True)
class LevelSetParameters:
    """The public parameters of level sets.

    Attributes:
        radius: the grid is [-radius, radius].
        n_levels: how many level sets are found.
        threshold, power: those of `SortedUsers`.
        influence_cap: the most influence that one user can have.
        equal_weights: whether all users weigh one.
        add_remove: whether neighbors differ by one user more or less; else users change.
    """

    radius: int
    n_levels: int
    threshold: int
    power: int
    influence_cap: int
    equal_weights: bool
    add_remove: bool

    @property
    def most_points(self) -> int:
        """Several points for each end that is searched for."""
        return max(MOST_POINTS, 4 * self.n_levels)


def find_level_sets(
    table: PrivateTable, read: Callable[[UserTable], SortedUsers], parameters: LevelSetParameters
) -> tuple[IntArray, IntArray]:
    """The first and last grid point of every level set; first > last where it is empty.

    `read` turns the users of a table, or of a partition, into sorted integers; it is pickled.

    *Formal guarantees*: the same integers for the same users, in whatever partitions (Lemma 6).
    """
    if not isinstance(table, UserTable):
        return _find_partitioned(lambda query: table.map_partitions(PartitionQuery(read, query)), parameters)
    users, radius, n_levels = read(table), parameters.radius, parameters.n_levels
    if parameters.add_remove:
        cap = parameters.influence_cap
        return add_remove_level_set_ends(users, radius=radius, n_levels=n_levels, influence_cap=cap)
    return level_set_ends(users, radius=radius, n_levels=n_levels)


class RunQuery(Protocol):
    """One pass: the answers of all partitions to a query."""

    def __call__(self, query: SortedUsersQuery) -> list[Any]: ...


def _find_partitioned(run: RunQuery, parameters: LevelSetParameters) -> tuple[IntArray, IntArray]:
    """What `level_set_ends` and `add_remove_level_set_ends` return for all users together."""
    overview = Overview.combine(run(OverviewQuery(resolution=4 * FINENESS)))
    points = overview.choose_points(parameters)
    if parameters.add_remove:
        knots = Knots.combine(points, run(GradientQuery(points)))
        reductions = ConstantReductions(parameters.influence_cap)
        sides: Sides = (reductions, reductions)
    elif parameters.equal_weights:
        query = CombinedQuery(GradientQuery(points), overview.extreme_values(parameters.n_levels))
        evaluated, ends = zip(*run(query), strict=True)
        knots, sides = Knots.combine(points, evaluated), _equal_weight_sides(ends, overview, parameters)
    else:
        first_knots = Knots.combine(points, run(GradientQuery(points)))
        knots, sides = _unequal_weight_sides(run, first_knots, overview, parameters)
    most = 2 * parameters.influence_cap
    # Two passes per iteration; all breakpoints are returned as soon as they are few enough.
    while True:
        mirrored = knots.mirrored()
        n_levels = parameters.n_levels
        cells = knots.cells(sides[0], n_levels, most), mirrored.cells(sides[1], n_levels, most)
        needed = np.union1d(cells[0], len(knots.breakpoints) - 1 - cells[1])
        unresolved = knots.unresolved(needed)
        if not len(unresolved):
            first = -mirrored.last_points(sides[1], cells[1], most)
            return first, knots.last_points(sides[0], cells[0], most)
        breakpoints = run(knots.breakpoints_within(unresolved, parameters.most_points))
        points = knots.points_within(needed, breakpoints, parameters.most_points)
        knots = Knots.combine(points, run(GradientQuery(points)))


# --- an overview ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Overview:
    """A rough distribution of the users of all partitions, and the number of inactive users.

    `sketches` are of values; where thresholds differ, of the lower breakpoints, and `upper_sketches` of the upper ones.
    """

    inactive: int
    sketches: Sequence[QuantileSketch]
    upper_sketches: Sequence[QuantileSketch]

    @classmethod
    def combine(cls, parts: Sequence[tuple[int, tuple[QuantileSketch, ...]]]) -> Overview:
        return cls(
            inactive=sum(inactive for inactive, _ in parts),
            sketches=[kinds[0] for _, kinds in parts],
            upper_sketches=[other for _, kinds in parts for other in kinds[1:]],
        )

    def choose_points(self, parameters: LevelSetParameters) -> IntArray:
        """Points with few breakpoints between them, from just before the grid to just after it."""
        marks = merge_sketches(self.sketches, FINENESS).marks
        if self.upper_sketches:
            breakpoints = np.concatenate([marks, merge_sketches(self.upper_sketches, FINENESS).marks])
        else:
            breakpoints = np.concatenate([marks - parameters.threshold, marks + parameters.threshold])
        edge = parameters.radius + 1
        return np.unique(np.clip(np.concatenate([[-edge, edge], breakpoints]), -edge, edge))

    def extreme_values(self, number: int) -> ExtremeValuesQuery:
        """A query for the `number` smallest and largest values; partitions leave out values that cannot be of them."""
        places = np.concatenate([sketch.places for sketch in self.sketches])
        order = np.argsort(places)
        places = places[order]
        # The least number of users up to a value, and from it on.
        known = [np.diff(sketch.cumulated, prepend=0) for sketch in self.sketches]
        later = [np.append(np.diff(sketch.cumulated), 1)[: len(sketch.places)] for sketch in self.sketches]
        low = int(np.searchsorted(np.cumsum(np.concatenate(known)[order]), number))
        high = int(np.searchsorted(np.cumsum(np.concatenate(later)[order][::-1]), number))
        return ExtremeValuesQuery(
            number=number,
            low=int(places[low]) if low < len(places) else None,
            high=int(places[::-1][high]) if high < len(places) else None,
        )


# --- the gradient at some points -----------------------------------------------------------------------------------

Sides = tuple[ReductionSums, ReductionSums]
"""The largest reductions of the users and of the mirrored users, between the outermost knots."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Knots:
    """G at some points, and how many breakpoints lie in each cell, strictly between a point and the next.

    The first point lies before every end of a level set and the last one after.
    """

    points: IntArray
    gradient: IntArray
    breakpoints: IntArray

    @classmethod
    def combine(cls, points: IntArray, parts: Sequence[tuple[IntArray, IntArray]]) -> Knots:
        """Add up the answers of partitions; modulo 2^64, in which G of all of them together is exact (Lemma 5)."""
        return cls(
            points=points,
            gradient=np.sum([gradient for gradient, _ in parts], axis=0, dtype=np.int64),
            breakpoints=np.sum([breakpoints for _, breakpoints in parts], axis=0, dtype=np.int64),
        )

    def mirrored(self) -> Knots:
        return Knots(
            points=-self.points[::-1], gradient=-self.gradient[::-1], breakpoints=self.breakpoints[::-1]
        )

    def last_at_most(self, levels: IntArray) -> IntArray:
        """For each level the cell with the last point at which G is at most the level."""
        numbers = np.searchsorted(self.gradient, levels, side="right") - 1
        return np.clip(numbers, 0, len(self.points) - 2)

    def around(self, levels: IntArray) -> tuple[IntArray, IntArray]:
        """Points up to which G is at most each level, and points from which on it is more: as close as is known."""
        cell = self.last_at_most(levels)
        last, after = self.points[cell], self.points[cell + 1]
        low, high = self.gradient[cell], self.gradient[cell + 1]
        line = (self.breakpoints[cell] == 0) & (low <= levels) & (levels < high)
        slope = (high - low)[line] // (after - last)[line]
        last[line] += (levels - low)[line] // slope
        after[line] = last[line] + 1
        return last, after

    def cells(self, reductions: ReductionSums, n_levels: int, most: int) -> IntArray:
        """For each level set the cell of its last point: the set holds the left end of the cell and not the right one.

        No reduction is larger than `most`, so each level set ends between two levels of G.
        """
        levels = np.arange(n_levels, dtype=np.int64)
        left = np.repeat(self.last_at_most(np.array([0])), n_levels)
        right = self.last_at_most(most * levels) + 1
        while len(open_ := np.flatnonzero(right - left > 1)):
            middle = (left[open_] + right[open_]) // 2
            fits = self.gradient[middle] <= reductions(self.points[middle], levels[open_])
            left[open_[fits]] = middle[fits]
            right[open_[~fits]] = middle[~fits]
        return left

    def unresolved(self, cells: IntArray) -> IntArray:
        """Those of the cells in which G has breakpoints."""
        return cells[self.breakpoints[cells] > 0]

    def breakpoints_within(self, cells: IntArray, most_points: int) -> BreakpointsQuery:
        """A query for the breakpoints in these cells."""
        few = int(self.breakpoints[cells].sum()) <= most_points
        most = most_points if few else max(1, most_points // len(cells))
        return BreakpointsQuery(lefts=self.points[cells], rights=self.points[cells + 1], most=most)

    def points_within(self, cells: IntArray, breakpoints: Sequence[IntArray], most_points: int) -> IntArray:
        """The ends of the cells and the breakpoints found in them, thinned out if these are too many."""
        inside = np.unique(np.concatenate(breakpoints))
        inside = inside[:: max(1, -(-len(inside) // most_points))]
        return np.unique(np.concatenate([self.points[cells], self.points[cells + 1], inside]))

    def at(self, points: IntArray) -> IntArray:
        """G at points of cells without breakpoints, where it is a line; at knots in any cell."""
        cell = np.minimum(np.searchsorted(self.points, points, side="right") - 1, len(self.breakpoints) - 1)
        rise = self.gradient[cell + 1] - self.gradient[cell]
        run = self.points[cell + 1] - self.points[cell]
        at_end = points == self.points[cell + 1]
        line: IntArray = self.gradient[cell] + rise // run * (points - self.points[cell])
        return np.where(at_end, self.gradient[cell + 1], line)

    def last_points(self, reductions: ReductionSums, cells: IntArray, most: int) -> IntArray:
        """The last point of each level set, which lies in its cell; G has no breakpoint there."""

        def excess(points: IntArray, rows: IntArray) -> IntArray:
            found: IntArray = self.at(points) - reductions(points, rows)
            return found

        inside = np.maximum(self.points[cells], self.around(np.array([0]))[0])
        outside = np.minimum(self.points[cells + 1], self.around(most * np.arange(len(cells)))[1])
        return find_ends(inside, outside, excess)


# --- the largest reductions ----------------------------------------------------------------------------------------


class ConstantReductions:
    """Under `add-remove`, where one user more or less changes G by the same amount everywhere."""

    def __init__(self, influence_cap: int) -> None:
        self._influence_cap = influence_cap

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray:
        sums: IntArray = self._influence_cap * numbers
        return sums


def _equal_weight_sides(
    ends: Sequence[tuple[IntArray, IntArray]], overview: Overview, parameters: LevelSetParameters
) -> Sides:
    """From the smallest and the largest values."""
    smallest = np.sort(np.concatenate([low for low, _ in ends]))[: parameters.n_levels]
    largest = np.sort(-np.concatenate([high for _, high in ends]))[: parameters.n_levels]

    def side(values: IntArray) -> ReductionSums:
        users = SortedUsers.build(
            values,
            None,
            inactive=_inactive_users(overview, parameters),
            threshold=parameters.threshold,
            max_influence=parameters.influence_cap,
        )
        return EqualWeightReductions(users, GradientByValues(users))

    return side(smallest), side(largest)


def _unequal_weight_sides(
    run: RunQuery, knots: Knots, overview: Overview, parameters: LevelSetParameters
) -> tuple[Knots, Sides]:
    """From the users that may have the largest reductions, in two passes that return more knots as well."""
    n_levels, mirrored = parameters.n_levels, knots.mirrored()
    # All ends lie in the cells between, whatever the reductions are.
    most = 2 * parameters.influence_cap * (n_levels - 1)
    levels = np.array([0, most])
    points, mirrored_points = (
        (int(last[0]), int(after[1])) for last, after in (knots.around(levels), mirrored.around(levels))
    )
    highest, lowest = (int(side.last_at_most(levels)[1]) for side in (knots, mirrored))
    cells = np.arange(len(knots.breakpoints) - 1 - lowest, highest + 1)
    unresolved = knots.unresolved(cells)
    largest: SortedUsersQuery = LargestReductionsQuery(
        point=points[0], mirrored_point=mirrored_points[0], number=n_levels
    )
    breakpoints: Sequence[IntArray] = [np.empty(0, dtype=np.int64)]
    if len(unresolved):
        query = CombinedQuery(largest, knots.breakpoints_within(unresolved, parameters.most_points))
    else:
        query = CombinedQuery(largest)
    found = run(query)
    if len(unresolved):
        breakpoints = [answer[1] for answer in found]
    inactive = _inactive_users(overview, parameters)

    def least(side: int) -> int | None:
        everyone = np.concatenate([*(answer[0][side] for answer in found), inactive])
        return int(np.partition(everyone, -n_levels)[-n_levels]) if len(everyone) >= n_levels else None

    candidates = CandidatesQuery(
        last=points[1],
        mirrored_last=mirrored_points[1],
        least=least(0),
        mirrored_least=least(1),
        number=n_levels,
    )
    inner = knots.points_within(cells, breakpoints, parameters.most_points)
    evaluated, near = zip(*run(CombinedQuery(GradientQuery(inner), candidates)), strict=True)

    def side(number: int, first: int, last: int) -> ReductionSums:
        values = np.concatenate([answer[number][0] for answer in near])
        weights = np.concatenate([answer[number][1] for answer in near])
        users = SortedUsers.build(
            values,
            weights,
            inactive=inactive,
            threshold=parameters.threshold,
            max_influence=parameters.influence_cap,
            power=parameters.power,
        )
        return UnequalWeightReductions(users, first, last, n_levels)

    return Knots.combine(inner, evaluated), (side(0, *points), side(1, *mirrored_points))


def _inactive_users(overview: Overview, parameters: LevelSetParameters) -> IntArray:
    """Of the inactive users at most `n_levels` matter, and all could have the same influence."""
    return np.full(min(overview.inactive, parameters.n_levels), parameters.influence_cap, dtype=np.int64)
