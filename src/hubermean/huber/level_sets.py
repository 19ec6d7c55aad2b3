"""Level sets of the inverse-sensitivity score of the Huber location, in exact integers.

For a candidate s on the integer grid let G(s) = sum_i clip(a_i (s - y_i), -B_i, B_i), the gradient of the Huber loss
with the thresholds B_i / a_i; the location is where G crosses zero. B_i, the influence bound of a user, is an integer
that follows from its weight (`thresholds`): a_i T where all users have one threshold T.

The score len(s) is the least number of users that must change so that G(s) could be on the other side of zero. The
points with len <= k form an interval, the k-th level set. This module finds the ends of the level sets for every k
below a public number: one sort of the users, then work that depends on the number of level sets only.

Definitions and proofs: proofs/inverse-sensitivity.md.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.huber.thresholds import influence_bounds

LARGEST_TOTAL_INFLUENCE = 2**61
"""Bound on the sum of influence bounds over all users; it keeps G and its reductions within 64 bits."""
_MATRIX_CELLS = 1 << 20


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SortedUsers:
    """The users of a release as integers, in ascending order of value; private.

    Attributes:
        values: of the users that influence G, sorted, within 2^62.
        weights: their weights in the same order, or None where all weigh one.
        inactive: for each user without influence now that could have some after a change, the most it could have.
        threshold: A, the threshold of a user of weight one.
        max_influence: the most influence a changed user can have, the same for all; None where it is the user's own
            influence bound.
        power: theta, by which thresholds shrink with the weight, in parts of `thresholds.WHOLE`.
    """

    values: IntArray
    weights: IntArray | None
    inactive: IntArray
    threshold: int
    max_influence: int | None
    power: int = 0

    @classmethod
    def build(
        cls,
        values: IntArray,
        weights: IntArray | None,
        *,
        inactive: IntArray,
        threshold: int,
        max_influence: int | None,
        power: int = 0,
    ) -> SortedUsers:
        """Sort the users."""
        order = None if weights is None else np.argsort(values)
        return cls(
            values=np.sort(values) if order is None else values[order],
            weights=None if weights is None else weights[order],
            inactive=inactive,
            threshold=threshold,
            max_influence=max_influence,
            power=0 if weights is None else power,
        )

    def mirrored(self) -> SortedUsers:
        """The users with negated values: the upper ends of their level sets are the negated lower ends of these."""
        weights = None if self.weights is None else self.weights[::-1]
        return replace(self, values=-self.values[::-1], weights=weights)

    @property
    def has_one_threshold(self) -> bool:
        """Whether all users have the same threshold."""
        return self.weights is None or self.power == 0

    @cached_property
    def influence_bounds(self) -> IntArray:
        """B_i of each user, where weights differ."""
        assert self.weights is not None
        return influence_bounds(self.weights, self.threshold, self.power)

    @property
    def largest_influence(self) -> int:
        """The most influence that any of these users could have after a change."""
        if self.max_influence is not None:
            return self.max_influence
        most = self.threshold if self.weights is None else int(self.influence_bounds.max(initial=0))
        return max(most, int(self.inactive.max(initial=0)))

    def breakpoints(self) -> tuple[IntArray, IntArray]:
        """Where the influences of users start and stop to grow: each ascending, shared points only once."""
        if self.has_one_threshold:
            points = drop_repeated(self.values)
            return points - self.threshold, points + self.threshold
        ranges, remainders = self.linear_ranges()
        apart = remainders > 0
        starts, stops = self.values - ranges, self.values + ranges
        return (
            drop_repeated(np.sort(np.concatenate([starts, starts[apart] - 1]))),
            drop_repeated(np.sort(np.concatenate([stops, stops[apart] + 1]))),
        )

    def linear_ranges(self) -> tuple[IntArray, IntArray]:
        """(B // a, B % a): for how many grid points a user's influence grows by its weight, and what then remains."""
        assert self.weights is not None
        if self.power == 0:
            return np.full_like(self.weights, self.threshold), np.zeros_like(self.weights)
        ranges = self.influence_bounds // self.weights
        return ranges, self.influence_bounds - ranges * self.weights


def level_set_ends(users: SortedUsers, *, radius: int, n_levels: int) -> tuple[IntArray, IntArray]:
    """For k = 0 ... n_levels - 1 the first and last grid point of [-radius, radius] with len <= k (Lemma 2).

    Where there is none, first > last. `n_levels` is at most the number of users.
    """
    return -_upper_ends(users.mirrored(), radius, n_levels), _upper_ends(users, radius, n_levels)


def add_remove_level_set_ends(
    users: SortedUsers, *, radius: int, n_levels: int, influence_cap: int
) -> tuple[IntArray, IntArray]:
    """As `level_set_ends` for `add-remove`, where len(s) = ceil(|G(s)| / influence_cap) (Lemma 4)."""
    levels = influence_cap * np.arange(n_levels, dtype=np.int64)
    first, last = (build_gradient(side).last_at_most(levels, radius) for side in (users.mirrored(), users))
    return -first, last


# --- the gradient --------------------------------------------------------------------------------------------------


class Gradient(ABC):
    """G as a function, by prefix sums.

    Sums are kept modulo 2^64. G itself fits 64 bits and is a sum and difference of such terms, so it comes out exactly
    even where a prefix sum wrapped around (Lemma 5).
    """

    @abstractmethod
    def at(self, points: IntArray) -> IntArray:
        """G at each point."""

    def last_at_most(self, levels: IntArray, radius: int) -> IntArray:
        """For each level the last point of [-radius, radius] with G <= level; -radius - 1 where there is none."""
        low = np.full(levels.shape, -radius - 1, dtype=np.int64)
        high = np.full(levels.shape, radius, dtype=np.int64)
        for _ in range((2 * radius + 1).bit_length()):  # the same number of steps for all data
            undecided = low < high
            middle = high - (high - low) // 2  # in (low, high]
            fits = self.at(middle) <= levels
            low = np.where(undecided & fits, middle, low)
            high = np.where(undecided & ~fits, middle - 1, high)
        return low


def build_gradient(users: SortedUsers) -> Gradient:
    return GradientByValues(users) if users.has_one_threshold else GradientByBreakpoints(users)


class GradientByValues(Gradient):
    """G where all users have one threshold: sums over the sorted values."""

    def __init__(self, users: SortedUsers) -> None:
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
        below = self._values.searchsorted(points - self._threshold)
        above = self._values.searchsorted(points + self._threshold)
        under, over = self._weight[below], self._weight[above]
        outside = self._threshold * (under - (self._weight[-1] - over))
        inside = points * (over - under) - (self._moment[above] - self._moment[below])
        gradient: IntArray = outside + inside
        return gradient

    def of_first(self, points: IntArray, numbers: IntArray) -> IntArray:
        """At each point the gradient of the given number of users with the smallest values."""
        below = np.minimum(self._values.searchsorted(points - self._threshold), numbers)
        above = np.minimum(self._values.searchsorted(points + self._threshold), numbers)
        under, over = self._weight[below], self._weight[above]
        outside = self._threshold * (under - (self._weight[numbers] - over))
        inside = points * (over - under) - (self._moment[above] - self._moment[below])
        gradient: IntArray = outside + inside
        return gradient


class GradientByBreakpoints(Gradient):
    """G where thresholds differ: its slope changes at the breakpoints of each user's influence, which are grid points.

    An influence is -B up to the first breakpoint. With B = t a + r, 0 <= r < a, its slope is r for one step, then a
    for 2 t steps, then r for one step, then 0.
    """

    def __init__(self, users: SortedUsers) -> None:
        assert users.weights is not None
        ranges, remainders = users.linear_ranges()
        apart = remainders > 0
        starts, stops, full = users.values - ranges, users.values + ranges, users.weights - remainders
        breakpoints = np.concatenate([starts, starts[apart] - 1, stops, stops[apart] + 1])
        turns = np.concatenate([full, remainders[apart], -full, -remainders[apart]])
        order = np.argsort(breakpoints)
        self._breakpoints = breakpoints[order]
        turns = turns[order]
        self._slope = np.zeros(len(turns) + 1, dtype=np.int64)
        self._moment = np.zeros(len(turns) + 1, dtype=np.int64)
        np.cumsum(turns, out=self._slope[1:])
        np.cumsum(turns * self._breakpoints, out=self._moment[1:])
        self._least = -int(users.influence_bounds.sum())

    def at(self, points: IntArray) -> IntArray:
        passed = self._breakpoints.searchsorted(points)
        gradient: IntArray = self._least + points * self._slope[passed] - self._moment[passed]
        return gradient


# --- the ends ------------------------------------------------------------------------------------------------------


def _upper_ends(users: SortedUsers, radius: int, n_levels: int) -> IntArray:
    """For each k < n_levels the last s of [-radius, radius] with G(s) <= the sum of the k largest reductions at s."""
    gradient = build_gradient(users)
    # k changes lower G by at most 2 k largest_influence, so each end lies between the first of these and its own.
    furthest = gradient.last_at_most(
        2 * users.largest_influence * np.arange(n_levels, dtype=np.int64), radius
    )
    start = int(furthest[0])
    if start == radius or n_levels == 1:
        return np.full(n_levels, start, dtype=np.int64)
    reductions: ReductionSums
    if isinstance(gradient, GradientByValues) and users.weights is None:
        reductions = EqualWeightReductions(users, gradient)
    else:
        reductions = UnequalWeightReductions(users, start, int(furthest[-1]), n_levels)

    def excess(points: IntArray, rows: IntArray) -> IntArray:
        found: IntArray = gradient.at(points) - reductions(points, rows)
        return found

    return find_ends(np.full(n_levels, start, dtype=np.int64), furthest + 1, excess)


def find_ends(
    inside: IntArray, outside: IntArray, excess: Callable[[IntArray, IntArray], IntArray]
) -> IntArray:
    """For every level set its last point, between `inside`, which belongs to it, and `outside`, which does not.

    `excess(points, levels)` is at most 0 where a point belongs to a level set. Its values at the ends of a bracket
    guide the search.
    """
    inside, outside = inside.copy(), outside.copy()
    levels = np.arange(len(inside), dtype=np.int64)
    below, above = excess(inside, levels), excess(outside, levels)
    for turn in itertools.count(1):
        (rows,) = (outside - inside > 1).nonzero()
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


# --- reductions: by how much changed users can lower G ------------------------------------------------------------


class ReductionSums(Protocol):
    """For each point the sum of its k largest reductions, k given by `numbers`; of all, where there are fewer."""

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray: ...


class EqualWeightReductions:
    """Where all users weigh one: in ascending order of value, the inactive users where the influence turns negative."""

    def __init__(self, users: SortedUsers, gradient: GradientByValues) -> None:
        self._values = users.values
        self._inactive = len(users.inactive)
        self._max_influence = users.threshold if users.max_influence is None else users.max_influence
        self._gradient = gradient

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray:
        numbers = np.minimum(numbers, len(self._values) + self._inactive)
        positive = np.minimum(self._values.searchsorted(points), numbers)
        inactive = np.minimum(numbers - positive, self._inactive)
        sums: IntArray = self._gradient.of_first(points, numbers - inactive) + numbers * self._max_influence
        return sums


class UnequalWeightReductions:
    """Where weights differ: the few users that can be among the largest between two points, sorted at every point."""

    def __init__(self, users: SortedUsers, first: int, last: int, n_levels: int) -> None:
        """Keep the users that can have one of the `n_levels` largest reductions at some s in [first, last] (Lemma 3).

        A reduction clip(a (s - y), -B, B) + max_influence grows with s. One that is at `last` still below the
        n_levels-th largest at `first` is never needed. Among users of one weight, a smaller value always has the
        larger reduction.
        """
        weights = users.weights
        assert weights is not None
        inactive = np.sort(users.inactive)[::-1][:n_levels]
        everyone = np.concatenate([compute_reductions(users, first), inactive])
        least = int(np.partition(everyone, -n_levels)[-n_levels]) if len(everyone) > n_levels else None
        near = find_candidates(users, last, n_levels, least)
        zeros = np.zeros(len(inactive), dtype=np.int64)
        bounds, ranges = users.influence_bounds[near], users.linear_ranges()[0][near]
        most = np.full(len(near), users.max_influence) if users.max_influence is not None else bounds
        self._values = np.concatenate([users.values[near], zeros])
        self._weights = np.concatenate([weights[near], zeros])
        self._bounds = np.concatenate([bounds, zeros])
        self._ranges = np.concatenate([ranges + 1, zeros])
        self._max_influences = np.concatenate([most, inactive])

    def __call__(self, points: IntArray, numbers: IntArray) -> IntArray:
        sums = np.zeros(len(points), dtype=np.int64)
        taken = np.minimum(numbers, len(self._values))
        rows = max(1, _MATRIX_CELLS // max(len(self._values), 1))
        for start in range(0, len(points), rows):
            some = taken[start : start + rows].nonzero()[0] + start
            reductions = clip_influences(
                points[some, np.newaxis] - self._values, self._weights, self._bounds, self._ranges
            )
            reductions += self._max_influences
            reductions.sort(axis=1)
            running = np.cumsum(reductions[:, ::-1], axis=1)
            sums[some] = running[np.arange(len(some)), taken[some] - 1]
        return sums


def find_candidates(users: SortedUsers, last: int, n_levels: int, least: int | None) -> IntArray:
    """Which users may have one of the `n_levels` largest reductions up to the point `last`, by weight, then by value.

    `least` is the n_levels-th largest reduction at the first point; None where there are at most that many users.
    """
    assert users.weights is not None
    near = np.arange(len(users.values))
    if least is not None:
        near = np.flatnonzero(compute_reductions(users, last) >= least)
    # Stable, so that within a weight the values stay in ascending order.
    near = near[np.argsort(users.weights[near], kind="stable")]
    return near[_rank_in_run(users.weights[near]) < n_levels]


def compute_reductions(users: SortedUsers, point: int) -> IntArray:
    """By how much G can fall at most when each user changes: its influence now, plus the most it can have against."""
    assert users.weights is not None
    reductions = clip_influences(
        point - users.values, users.weights, users.influence_bounds, users.linear_ranges()[0] + 1
    )
    reductions += users.influence_bounds if users.max_influence is None else users.max_influence
    return reductions


def clip_influences(distances: IntArray, weights: IntArray, bounds: IntArray, ranges: IntArray) -> IntArray:
    """clip(weight * distance, -bound, bound), within 64 bits: a distance of more than bound // weight is clipped."""
    influences: IntArray = np.clip(distances, -ranges, ranges)
    influences *= weights
    return np.clip(influences, -bounds, bounds, out=influences)


def drop_repeated(ascending: IntArray) -> IntArray:
    """The distinct numbers of an ascending array."""
    different: IntArray = ascending[np.diff(ascending, prepend=ascending[:1] - 1) != 0]
    return different


def _rank_in_run(key: IntArray) -> IntArray:
    """The position of each element within its run of equal keys."""
    positions = np.arange(len(key))
    starts = np.ones(len(key), dtype=bool)
    starts[1:] = key[1:] != key[:-1]
    ranks: IntArray = positions - np.maximum.accumulate(np.where(starts, positions, 0))
    return ranks
