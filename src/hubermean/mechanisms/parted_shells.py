"""Shells of the Huber location where users are in parts: passes that close in on their ends.

Parts tell G at points that are asked for, and where its corners are. Points between which G has no corner know it in
between, so it takes a few passes until every end lies between two such points; then the search of `shells` finds it
with nobody asked. What the largest reductions need of the users is few numbers. Proof: proofs/exact.md, Lemma 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hubermean.mechanisms.shell_questions import (
    Candidates,
    CornersWithin,
    Evaluate,
    LargestReductions,
    Outermost,
    Overview,
    Several,
)
from hubermean.mechanisms.shells import (
    GradientByValues,
    IntArray,
    Largest,
    LargestOfEqual,
    LargestOfUnequal,
    Users,
    narrowed,
)
from hubermean.tuning.line import Sketch, joint_survey

FINENESS = 1 << 11
"""No more than one in so many users has a corner of a kind between two of the first points."""
MOST_POINTS = 1 << 16
"""So many points are asked for in one pass, about; and so many corners are brought back."""


class Ask(Protocol):
    """One pass: what a question makes of the users of each part."""

    def __call__(self, question: Callable[[Users], Any]) -> list[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Public:
    """What is public about shells; `pull_cap` is the most that one user can pull, `flat` stands for `add-remove`.

    `threshold` and `power` are those of `shells.Users`.
    """

    radius: int
    depth: int
    threshold: int
    power: int
    pull_cap: int
    equal: bool
    flat: bool

    @property
    def most_points(self) -> int:
        """Where there are many ends to find, some points for each of them."""
        return max(MOST_POINTS, 4 * self.depth)


def parted_shell_ends(ask: Ask, public: Public) -> tuple[IntArray, IntArray]:
    """What `shell_ends` and `flat_shell_ends` give for all users together."""
    crowd = Crowd.of(ask(Overview(resolution=4 * FINENESS)))
    points = crowd.points(public)
    if public.flat:
        knots = Knots.of(points, ask(Evaluate(points)))
        sides: Sides = (_Levels(public.pull_cap), _Levels(public.pull_cap))
    elif public.equal:
        evaluated, ends = zip(*ask(Several(Evaluate(points), crowd.outermost(public.depth))), strict=True)
        knots, sides = Knots.of(points, evaluated), _equal_sides(ends, crowd, public)
    else:
        knots, sides = _unequal_sides(ask, Knots.of(points, ask(Evaluate(points))), crowd, public)
    most = 2 * public.pull_cap
    # Two passes each time round; all corners are asked for as soon as they are few enough.
    while True:
        mirrored = knots.mirrored()
        cells = knots.cells(sides[0], public.depth, most), mirrored.cells(sides[1], public.depth, most)
        needed = np.union1d(cells[0], len(knots.corners) - 1 - cells[1])
        rough = knots.rough(needed)
        if not len(rough):
            first = -mirrored.last_points(sides[1], cells[1], most)
            return first, knots.last_points(sides[0], cells[0], most)
        corners = ask(knots.corners_within(rough, public.most_points))
        points = knots.points_within(needed, corners, public.most_points)
        knots = Knots.of(points, ask(Evaluate(points)))


# --- an overview ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Crowd:
    """Roughly where the users of all parts are, and how many do not pull.

    `sketches` are of values, or, where thresholds differ, of one kind of corners; then `others` are of the other kind.
    """

    idle: int
    sketches: Sequence[Sketch]
    others: Sequence[Sketch]

    @classmethod
    def of(cls, parts: Sequence[tuple[int, tuple[Sketch, ...]]]) -> Crowd:
        return cls(
            idle=sum(idle for idle, _ in parts),
            sketches=[kinds[0] for _, kinds in parts],
            others=[other for _, kinds in parts for other in kinds[1:]],
        )

    def points(self, public: Public) -> IntArray:
        """Points between which few users have corners, from just before the grid to just after it."""
        marks = joint_survey(self.sketches, FINENESS).marks
        if self.others:
            corners = np.concatenate([marks, joint_survey(self.others, FINENESS).marks])
        else:
            corners = np.concatenate([marks - public.threshold, marks + public.threshold])
        edge = public.radius + 1
        return np.unique(np.clip(np.concatenate([[-edge, edge], corners]), -edge, edge))

    def outermost(self, depth: int) -> Outermost:
        """Asks for the users of the so many smallest and largest values; parts leave out what is surely not of them."""
        places = np.concatenate([sketch.places for sketch in self.sketches])
        order = np.argsort(places)
        places = places[order]
        # How many users there are at least up to a place, and how many from it on.
        known = [np.diff(sketch.cumulated, prepend=0) for sketch in self.sketches]
        later = [np.append(np.diff(sketch.cumulated), 1)[: len(sketch.places)] for sketch in self.sketches]
        low = int(np.searchsorted(np.cumsum(np.concatenate(known)[order]), depth))
        high = int(np.searchsorted(np.cumsum(np.concatenate(later)[order][::-1]), depth))
        return Outermost(
            depth=depth,
            low=int(places[low]) if low < len(places) else None,
            high=int(places[::-1][high]) if high < len(places) else None,
        )


# --- what is known -------------------------------------------------------------------------------------------------

Sides = tuple[Largest, Largest]
"""The largest reductions of the users and of the mirrored users, between the outermost knots."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Knots:
    """G at some points, and how many corners lie in each cell, strictly between a point and the next.

    The first point lies before every end that is sought and the last one after.
    """

    points: IntArray
    gradient: IntArray
    corners: IntArray

    @classmethod
    def of(cls, points: IntArray, parts: Sequence[tuple[IntArray, IntArray]]) -> Knots:
        """From what parts say; modulo 2^64, in which G of all parts together is exact (Lemma 5)."""
        return cls(
            points=points,
            gradient=np.sum([gradient for gradient, _ in parts], axis=0, dtype=np.int64),
            corners=np.sum([corners for _, corners in parts], axis=0, dtype=np.int64),
        )

    def mirrored(self) -> Knots:
        return Knots(points=-self.points[::-1], gradient=-self.gradient[::-1], corners=self.corners[::-1])

    def last_at_most(self, levels: IntArray) -> IntArray:
        """For each level the cell in which the last point with G at most that lies."""
        numbers = np.searchsorted(self.gradient, levels, side="right") - 1
        return np.clip(numbers, 0, len(self.points) - 2)

    def around(self, levels: IntArray) -> tuple[IntArray, IntArray]:
        """Points up to which G is at most each level, and points from which on it is more: as close as is known."""
        cell = self.last_at_most(levels)
        last, after = self.points[cell], self.points[cell + 1]
        low, high = self.gradient[cell], self.gradient[cell + 1]
        line = (self.corners[cell] == 0) & (low <= levels) & (levels < high)
        slope = (high - low)[line] // (after - last)[line]
        last[line] += (levels - low)[line] // slope
        after[line] = last[line] + 1
        return last, after

    def cells(self, largest: Largest, depth: int, most: int) -> IntArray:
        """For each shell the cell in which its last point lies: the shell holds the left end and not the right one.

        No reduction is larger than `most`, so each shell has its end between two levels of G.
        """
        shells = np.arange(depth, dtype=np.int64)
        left = np.repeat(self.last_at_most(np.array([0])), depth)
        right = self.last_at_most(most * shells) + 1
        while len(open_ := np.flatnonzero(right - left > 1)):
            middle = (left[open_] + right[open_]) // 2
            fits = self.gradient[middle] <= largest(self.points[middle], shells[open_])
            left[open_[fits]] = middle[fits]
            right[open_[~fits]] = middle[~fits]
        return left

    def rough(self, cells: IntArray) -> IntArray:
        """Those of the cells in which G has corners."""
        return cells[self.corners[cells] > 0]

    def corners_within(self, cells: IntArray, most_points: int) -> CornersWithin:
        few = int(self.corners[cells].sum()) <= most_points
        most = most_points if few else max(1, most_points // len(cells))
        return CornersWithin(lefts=self.points[cells], rights=self.points[cells + 1], most=most)

    def points_within(self, cells: IntArray, corners: Sequence[IntArray], most_points: int) -> IntArray:
        """The ends of the cells with what parts found in them, thinned if that is too much."""
        inside = np.unique(np.concatenate(corners))
        inside = inside[:: max(1, -(-len(inside) // most_points))]
        return np.unique(np.concatenate([self.points[cells], self.points[cells + 1], inside]))

    def at(self, points: IntArray) -> IntArray:
        """G at points of cells without corners, where it is a line; at knots whatever the cells."""
        cell = np.minimum(np.searchsorted(self.points, points, side="right") - 1, len(self.corners) - 1)
        rise = self.gradient[cell + 1] - self.gradient[cell]
        run = self.points[cell + 1] - self.points[cell]
        at_end = points == self.points[cell + 1]
        line: IntArray = self.gradient[cell] + rise // run * (points - self.points[cell])
        return np.where(at_end, self.gradient[cell + 1], line)

    def last_points(self, largest: Largest, cells: IntArray, most: int) -> IntArray:
        """For each shell its last point, which lies in its cell, where G has no corner."""

        def excess(points: IntArray, rows: IntArray) -> IntArray:
            found: IntArray = self.at(points) - largest(points, rows)
            return found

        inside = np.maximum(self.points[cells], self.around(np.array([0]))[0])
        outside = np.minimum(self.points[cells + 1], self.around(most * np.arange(len(cells)))[1])
        return narrowed(inside, outside, excess)


# --- the largest reductions ----------------------------------------------------------------------------------------


class _Levels:
    """Where a change is worth the same everywhere, as under `add-remove`."""

    def __init__(self, pull_cap: int) -> None:
        self._pull_cap = pull_cap

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray:
        levels: IntArray = self._pull_cap * numbers
        return levels


def _equal_sides(ends: Sequence[tuple[IntArray, IntArray]], crowd: Crowd, public: Public) -> Sides:
    """From the smallest and the largest values."""
    smallest = np.sort(np.concatenate([low for low, _ in ends]))[: public.depth]
    largest = np.sort(-np.concatenate([high for _, high in ends]))[: public.depth]

    def side(values: IntArray) -> Largest:
        users = Users.build(
            values, None, idle=_idle(crowd, public), threshold=public.threshold, reach=public.pull_cap
        )
        return LargestOfEqual(users, GradientByValues(users))

    return side(smallest), side(largest)


def _unequal_sides(ask: Ask, knots: Knots, crowd: Crowd, public: Public) -> tuple[Knots, Sides]:
    """From the users that may be among the largest, in two passes that bring more knots as well."""
    depth, mirrored = public.depth, knots.mirrored()
    # All ends lie in the cells between, whatever the reductions are.
    most = 2 * public.pull_cap * (depth - 1)
    levels = np.array([0, most])
    points, mirrored_points = (
        (int(last[0]), int(after[1])) for last, after in (knots.around(levels), mirrored.around(levels))
    )
    highest, lowest = (int(side.last_at_most(levels)[1]) for side in (knots, mirrored))
    cells = np.arange(len(knots.corners) - 1 - lowest, highest + 1)
    rough = knots.rough(cells)
    tops: Callable[[Users], Any] = LargestReductions(
        point=points[0], mirrored_point=mirrored_points[0], depth=depth
    )
    corners: Sequence[IntArray] = [np.empty(0, dtype=np.int64)]
    found = ask(
        Several(tops, knots.corners_within(rough, public.most_points)) if len(rough) else Several(tops)
    )
    if len(rough):
        corners = [answer[1] for answer in found]
    idle = _idle(crowd, public)

    def least(side: int) -> int | None:
        everyone = np.concatenate([*(answer[0][side] for answer in found), idle])
        return int(np.partition(everyone, -depth)[-depth]) if len(everyone) >= depth else None

    candidates = Candidates(
        last=points[1],
        mirrored_last=mirrored_points[1],
        least=least(0),
        mirrored_least=least(1),
        depth=depth,
    )
    inner = knots.points_within(cells, corners, public.most_points)
    evaluated, near = zip(*ask(Several(Evaluate(inner), candidates)), strict=True)

    def side(number: int, first: int, last: int) -> Largest:
        values = np.concatenate([answer[number][0] for answer in near])
        weights = np.concatenate([answer[number][1] for answer in near])
        users = Users.build(
            values,
            weights,
            idle=idle,
            threshold=public.threshold,
            reach=public.pull_cap,
            power=public.power,
        )
        return LargestOfUnequal(users, first, last, depth)

    return Knots.of(inner, evaluated), (side(0, *points), side(1, *mirrored_points))


def _idle(crowd: Crowd, public: Public) -> IntArray:
    """Of those who do not pull no more than `depth` matter, and all could pull alike."""
    return np.full(min(crowd.idle, public.depth), public.pull_cap, dtype=np.int64)
