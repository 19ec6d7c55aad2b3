"""Shells of the Huber location: how many users must change before a point could be the answer.

For a candidate s on the integer grid let G(s) = sum_i clip(a_i (s - y_i), -B_i, B_i), the gradient of the Huber loss
with the thresholds B_i / a_i; the location is where G crosses zero. B_i, the influence bound of a user, is an integer
that follows from its weight (`thresholds`): a_i T where all have one threshold T. len(s) is the least number of users
that must change so that G(s) could be on the other side of zero. The points with len <= k form an interval, and this
module finds its ends for every k below a public depth, in exact integers: one sort of the users, then work in the
number of shells only.

Definitions and proofs: proofs/exact.md.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.mechanisms.thresholds import influence_bounds

IntArray = NDArray[np.int64]

LARGEST_PULL = 2**61
"""Bound on the sum of influence bounds over all users; it keeps G and its reductions within 64 bits."""
_MATRIX_CELLS = 1 << 20


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Users:
    """The users of a release as integers, in ascending order of value; private.

    Attributes:
        values: of the users that pull on the answer, sorted, within 2^62.
        weights: their weights in the same order, or None where all weigh one.
        idle: for each user that does not pull now but could after a change, the most it could then pull.
        threshold: A, the threshold of a user of weight one.
        reach: the most a changed user can pull, the same for all; None where it is its own influence bound.
        power: theta, by which thresholds shrink with the weight, in parts of `thresholds.WHOLE`.
    """

    values: IntArray
    weights: IntArray | None
    idle: IntArray
    threshold: int
    reach: int | None
    power: int = 0

    @classmethod
    def build(
        cls,
        values: IntArray,
        weights: IntArray | None,
        *,
        idle: IntArray,
        threshold: int,
        reach: int | None,
        power: int = 0,
    ) -> Users:
        """Sort the users."""
        if weights is None:
            return cls(values=np.sort(values), weights=None, idle=idle, threshold=threshold, reach=reach)
        order = np.argsort(values)
        return cls(
            values=values[order],
            weights=weights[order],
            idle=idle,
            threshold=threshold,
            reach=reach,
            power=power,
        )

    def mirrored(self) -> Users:
        weights = None if self.weights is None else self.weights[::-1]
        return replace(self, values=-self.values[::-1], weights=weights)

    @property
    def one_threshold(self) -> bool:
        """Whether all have the same threshold."""
        return self.weights is None or self.power == 0

    @cached_property
    def limits(self) -> IntArray:
        """The influence bound of each user, where weights differ."""
        assert self.weights is not None
        return influence_bounds(self.weights, self.threshold, self.power)

    @property
    def largest_reach(self) -> int:
        """The most any of these users could pull after a change."""
        if self.reach is not None:
            return self.reach
        most = self.threshold if self.weights is None else int(self.limits.max(initial=0))
        return max(most, int(self.idle.max(initial=0)))

    def corners(self) -> tuple[IntArray, IntArray]:
        """Where their pulls start and stop to grow: each ascending, places that several share only once."""
        if self.one_threshold:
            places = distinct(self.values)
            return places - self.threshold, places + self.threshold
        rooms, over = self.rooms()
        apart = over > 0
        starts, stops = self.values - rooms, self.values + rooms
        return (
            np.unique(np.concatenate([starts, starts[apart] - 1])),
            np.unique(np.concatenate([stops, stops[apart] + 1])),
        )

    def rooms(self) -> tuple[IntArray, IntArray]:
        """(how many whole grid points from its value a user's pull grows by its weight, how much is then left)."""
        assert self.weights is not None
        if self.power == 0:
            return np.full_like(self.weights, self.threshold), np.zeros_like(self.weights)
        rooms = self.limits // self.weights
        return rooms, self.limits - rooms * self.weights


def shell_ends(users: Users, *, radius: int, depth: int) -> tuple[IntArray, IntArray]:
    """For k = 0 ... depth - 1 the first and last grid point of [-radius, radius] with len <= k (Lemma 2).

    Where there is none, first > last. `depth` is at most the number of users.
    """
    return -_upper_ends(users.mirrored(), radius, depth), _upper_ends(users, radius, depth)


def flat_shell_ends(users: Users, *, radius: int, depth: int, pull_cap: int) -> tuple[IntArray, IntArray]:
    """The same for `add-remove`, where len(s) = ceil(|G(s)| / pull_cap) (Lemma 4)."""
    levels = pull_cap * np.arange(depth, dtype=np.int64)
    first, last = (gradient_of(side).last_at_most(levels, radius) for side in (users.mirrored(), users))
    return -first, last


class Gradient(ABC):
    """G as a function, by prefix sums.

    Sums are kept modulo 2^64. G itself fits 64 bits, and it is a sum and difference of such terms, so it comes out
    exactly whatever wrapped around on the way (Lemma 5).
    """

    @abstractmethod
    def at(self, points: IntArray) -> IntArray:
        """G at each point."""

    def last_at_most(self, levels: IntArray, radius: int) -> IntArray:
        """For each level the last point of [-radius, radius] with G <= level; -radius - 1 where there is none."""
        low = np.full(levels.shape, -radius - 1, dtype=np.int64)
        high = np.full(levels.shape, radius, dtype=np.int64)
        for _ in range((2 * radius + 1).bit_length()):  # as many turns whatever the data
            undecided = low < high
            middle = high - (high - low) // 2  # in (low, high]
            fits = self.at(middle) <= levels
            low = np.where(undecided & fits, middle, low)
            high = np.where(undecided & ~fits, middle - 1, high)
        return low


def gradient_of(users: Users) -> Gradient:
    return GradientByValues(users) if users.one_threshold else GradientByCorners(users)


class GradientByValues(Gradient):
    """Where all have one threshold: sums over the sorted values."""

    def __init__(self, users: Users) -> None:
        n = len(users.values)
        self._values = users.values
        self._threshold = users.threshold
        self._moment = np.zeros(n + 1, dtype=np.int64)
        if users.weights is None:
            self._weight = np.arange(n + 1)
            np.cumsum(users.values, out=self._moment[1:])
        else:
            self._weight = np.zeros(n + 1, dtype=np.int64)
            np.cumsum(users.weights, out=self._weight[1:])
            np.cumsum(users.weights * users.values, out=self._moment[1:])

    def at(self, points: IntArray) -> IntArray:
        return self.of_first(points, np.full(len(points), len(self._values)))

    def of_first(self, points: IntArray, numbers: IntArray) -> IntArray:
        """The gradient at each point of the so many users with the smallest values."""
        below = np.minimum(np.searchsorted(self._values, points - self._threshold), numbers)
        above = np.minimum(np.searchsorted(self._values, points + self._threshold), numbers)
        under, over = self._weight[below], self._weight[above]
        outside = self._threshold * (under - (self._weight[numbers] - over))
        inside = points * (over - under) - (self._moment[above] - self._moment[below])
        gradient: IntArray = outside + inside
        return gradient


class GradientByCorners(Gradient):
    """Where thresholds differ: the slope of G changes at the corners of each user's pull, which are grid points.

    A pull is -B up to the first corner. With B = t a + r, 0 <= r < a, its slope is r for one step, then a for 2 t
    steps, then r for one step, then 0.
    """

    def __init__(self, users: Users) -> None:
        assert users.weights is not None
        rooms, over = users.rooms()
        apart = over > 0
        starts, stops, full = users.values - rooms, users.values + rooms, users.weights - over
        corners = np.concatenate([starts, starts[apart] - 1, stops, stops[apart] + 1])
        turns = np.concatenate([full, over[apart], -full, -over[apart]])
        order = np.argsort(corners)
        self._corners = corners[order]
        turns = turns[order]
        self._slope = np.zeros(len(turns) + 1, dtype=np.int64)
        self._moment = np.zeros(len(turns) + 1, dtype=np.int64)
        np.cumsum(turns, out=self._slope[1:])
        np.cumsum(turns * self._corners, out=self._moment[1:])
        self._least = -int(users.limits.sum())

    def at(self, points: IntArray) -> IntArray:
        passed = np.searchsorted(self._corners, points)
        gradient: IntArray = self._least + points * self._slope[passed] - self._moment[passed]
        return gradient


def _upper_ends(users: Users, radius: int, depth: int) -> IntArray:
    """For k = 0 ... depth - 1 the last s of [-radius, radius] with G(s) <= the sum of the k largest reductions at s."""
    gradient = gradient_of(users)
    # k changes lower G by at most 2 k largest_reach, so each end lies between the first and its own of these.
    furthest = gradient.last_at_most(2 * users.largest_reach * np.arange(depth, dtype=np.int64), radius)
    start = int(furthest[0])
    if start == radius or depth == 1:
        return np.full(depth, start, dtype=np.int64)
    largest: Largest
    if isinstance(gradient, GradientByValues) and users.weights is None:
        largest = LargestOfEqual(users, gradient)
    else:
        largest = LargestOfUnequal(users, start, int(furthest[-1]), depth)

    def excess(points: IntArray, rows: IntArray) -> IntArray:
        found: IntArray = gradient.at(points) - largest(points, rows)
        return found

    return narrowed(np.full(depth, start, dtype=np.int64), furthest + 1, excess)


def narrowed(
    inside: IntArray, outside: IntArray, excess: Callable[[IntArray, IntArray], IntArray]
) -> IntArray:
    """For every shell the last point that belongs to it: `inside` does, `outside` does not, both are narrowed here.

    `excess(points, shells)` is at most 0 where a point belongs to a shell; at a bracket's ends it guides the search.
    """
    inside, outside = inside.copy(), outside.copy()
    shells = np.arange(len(inside), dtype=np.int64)
    below, above = excess(inside, shells), excess(outside, shells)
    for turn in itertools.count(1):
        rows = np.flatnonzero(outside - inside > 1)
        if not len(rows):
            break
        width = outside[rows] - inside[rows]
        least, most = (
            np.minimum(below[rows], 0).astype(np.float64),
            np.maximum(above[rows], 1).astype(np.float64),
        )
        # Interpolation, with a bisection every third turn that bounds the number of turns.
        share = np.full(len(rows), 0.5) if turn % 3 == 0 else least / (least - most)
        tried = inside[rows] + np.clip((share * width).astype(np.int64), 1, width - 1)
        found = excess(tried, rows)
        fits = found <= 0
        inside[rows[fits]], below[rows[fits]] = tried[fits], found[fits]
        outside[rows[~fits]], above[rows[~fits]] = tried[~fits], found[~fits]
    return inside


class Largest(Protocol):
    """For each point the sum of its so many largest reductions (of all, where there are fewer)."""

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray: ...


class LargestOfEqual:
    """Where all weigh one: users in ascending order of value, with the idle ones where the pull turns negative."""

    def __init__(self, users: Users, gradient: GradientByValues) -> None:
        self._values = users.values
        self._idle = len(users.idle)
        self._reach = users.threshold if users.reach is None else users.reach
        self._gradient = gradient

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray:
        numbers = np.minimum(numbers, len(self._values) + self._idle)
        pulling = np.minimum(np.searchsorted(self._values, points), numbers)
        idle = np.minimum(numbers - pulling, self._idle)
        sums: IntArray = self._gradient.of_first(points, numbers - idle) + numbers * self._reach
        return sums


class LargestOfUnequal:
    """Where weights differ: the few users that can be among the largest anywhere between two points, sorted anew."""

    def __init__(self, users: Users, first: int, last: int, depth: int) -> None:
        """Keep what can be among the `depth` largest reductions at some s in [first, last] (Lemma 3).

        A reduction clip(a (s - y), -B, B) + reach grows with s, so one that is below the depth-th largest of `first`
        even at `last` is never needed; and of users alike in weight, the smaller value always reduces more.
        """
        weights = users.weights
        assert weights is not None
        idle = np.sort(users.idle)[::-1][:depth]
        everyone = np.concatenate([reductions(users, first), idle])
        least = int(np.partition(everyone, -depth)[-depth]) if len(everyone) > depth else None
        near = possibly_largest(users, last, depth, least)
        nothing = np.zeros(len(idle), dtype=np.int64)
        limits, rooms = users.limits[near], users.rooms()[0][near]
        reaches = np.full(len(near), users.reach) if users.reach is not None else limits
        self._values = np.concatenate([users.values[near], nothing])
        self._weights = np.concatenate([weights[near], nothing])
        self._limits = np.concatenate([limits, nothing])
        self._rooms = np.concatenate([rooms + 1, nothing])
        self._reaches = np.concatenate([reaches, idle])

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray:
        sums = np.zeros(len(points), dtype=np.int64)
        taken = np.minimum(numbers, len(self._values))
        rows = max(1, _MATRIX_CELLS // max(len(self._values), 1))
        for start in range(0, len(points), rows):
            some = np.flatnonzero(taken[start : start + rows]) + start
            pulls = clipped_pulls(
                points[some, np.newaxis] - self._values, self._weights, self._limits, self._rooms
            )
            pulls += self._reaches
            pulls.sort(axis=1)
            running = np.cumsum(pulls[:, ::-1], axis=1)
            sums[some] = running[np.arange(len(some)), taken[some] - 1]
        return sums


def possibly_largest(users: Users, last: int, depth: int, least: int | None) -> IntArray:
    """Which users may be among the `depth` largest reductions up to the point `last`, by weight and then by value.

    `least` is the depth-th largest reduction at the first point, None where there are no more than so many users.
    """
    assert users.weights is not None
    near = np.arange(len(users.values))
    if least is not None:
        near = np.flatnonzero(reductions(users, last) >= least)
    # Stable, so that within a weight the values stay in ascending order.
    near = near[np.argsort(users.weights[near], kind="stable")]
    return near[_rank_in_run(users.weights[near]) < depth]


def reductions(users: Users, point: int) -> IntArray:
    """By how much G falls at most when a user changes: what it pulls now, plus its reach in the other direction."""
    assert users.weights is not None
    pulls = clipped_pulls(point - users.values, users.weights, users.limits, users.rooms()[0] + 1)
    pulls += users.limits if users.reach is None else users.reach
    return pulls


def clipped_pulls(distances: IntArray, weights: IntArray, limits: IntArray, rooms: IntArray) -> IntArray:
    """clip(weight * distance, -limit, limit), within 64 bits: a distance of more than limit // weight is clipped."""
    pulls: IntArray = np.clip(distances, -rooms, rooms)
    pulls *= weights
    return np.clip(pulls, -limits, limits, out=pulls)


def distinct(ascending: IntArray) -> IntArray:
    different: IntArray = ascending[np.diff(ascending, prepend=ascending[:1] - 1) != 0]
    return different


def _rank_in_run(key: IntArray) -> IntArray:
    """The position of each element within its run of equal keys."""
    positions = np.arange(len(key))
    starts = np.ones(len(key), dtype=bool)
    starts[1:] = key[1:] != key[:-1]
    ranks: IntArray = positions - np.maximum.accumulate(np.where(starts, positions, 0))
    return ranks
