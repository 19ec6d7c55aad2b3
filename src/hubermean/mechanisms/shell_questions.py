"""What parts of a table are asked about the shells of the Huber location: each answer is small, whatever the part.

Questions are pickled and see the users of one part as integers; `parted_shells` puts the answers together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubermean.mechanisms.shells import IntArray, Users, gradient_of, possibly_largest, reductions
from hubermean.tuning.line import HeldLine, Sketch


@dataclass(frozen=True)
class Overview:
    """How many users do not pull, and a sketch of where the others are; where thresholds differ, of both corners."""

    resolution: int

    def __call__(self, users: Users) -> tuple[int, tuple[Sketch, ...]]:
        lines = (users.values,) if users.one_threshold else users.corners()
        return len(users.idle), tuple(HeldLine(line).sketch(self.resolution) for line in lines)


class Several:
    """Several questions in one pass."""

    def __init__(self, *questions: Callable[[Users], Any]) -> None:
        self._questions = questions

    def __call__(self, users: Users) -> tuple[Any, ...]:
        return tuple(question(users) for question in self._questions)


@dataclass(frozen=True, eq=False, repr=False)
class Evaluate:
    """G at ascending points, and how many corners lie strictly between each and the next, users at one place once."""

    points: IntArray

    def __call__(self, users: Users) -> tuple[IntArray, IntArray]:
        return gradient_of(users).at(self.points), self._corners(users)

    def _corners(self, users: Users) -> IntArray:
        numbers = np.zeros(len(self.points) - 1, dtype=np.int64)
        for corners in users.corners():
            before = np.searchsorted(corners, self.points[1:], side="left")
            numbers += before - np.searchsorted(corners, self.points[:-1], side="right")
        return numbers


@dataclass(frozen=True, eq=False, repr=False)
class CornersWithin:
    """The corners strictly within open intervals; of more than `most` in one, that many in even distances."""

    lefts: IntArray
    rights: IntArray
    most: int

    def __call__(self, users: Users) -> IntArray:
        found = []
        for kind in users.corners():
            first = np.searchsorted(kind, self.lefts[0], side="right")
            found.append(kind[first : np.searchsorted(kind, self.rights[-1])])
        corners = np.unique(np.concatenate(found))
        starts = np.searchsorted(corners, self.lefts, side="right")
        numbers = np.searchsorted(corners, self.rights, side="left") - starts
        taken = np.minimum(numbers, self.most)
        owner = np.repeat(np.arange(len(taken)), taken)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(taken) - taken, taken)
        # The middle of each of as many equal runs; where all are taken, each itself.
        chosen: IntArray = corners[starts[owner] + (2 * rank + 1) * numbers[owner] // (2 * taken[owner])]
        return chosen


@dataclass(frozen=True, kw_only=True, repr=False)
class Outermost:
    """The `depth` smallest values up to `low` and the `depth` largest from `high` on; None stands for no limit."""

    depth: int
    low: int | None
    high: int | None

    def __call__(self, users: Users) -> tuple[IntArray, IntArray]:
        values = users.values
        until = len(values) if self.low is None else int(np.searchsorted(values, self.low, side="right"))
        start = 0 if self.high is None else int(np.searchsorted(values, self.high, side="left"))
        return values[: min(until, self.depth)], values[max(start, len(values) - self.depth) :]


@dataclass(frozen=True, kw_only=True, repr=False)
class LargestReductions:
    """The `depth` largest reductions at a point, and those of the mirrored users at another."""

    point: int
    mirrored_point: int
    depth: int

    def __call__(self, users: Users) -> tuple[IntArray, IntArray]:
        upper, lower = reductions(users, self.point), reductions(users.mirrored(), self.mirrored_point)
        return np.sort(upper)[::-1][: self.depth], np.sort(lower)[::-1][: self.depth]


@dataclass(frozen=True, kw_only=True, repr=False)
class Candidates:
    """(values, weights) of users that may be among the `depth` largest reductions up to a point, where `least` do."""

    last: int
    mirrored_last: int
    least: int | None
    mirrored_least: int | None
    depth: int

    def __call__(self, users: Users) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
        return (
            self._of_side(users, self.last, self.least),
            self._of_side(users.mirrored(), self.mirrored_last, self.mirrored_least),
        )

    def _of_side(self, users: Users, last: int, least: int | None) -> tuple[IntArray, IntArray]:
        assert users.weights is not None
        near = possibly_largest(users, last, self.depth, least)
        return users.values[near], users.weights[near]
