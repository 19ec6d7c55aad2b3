"""Users on a line, each with a weight: marks that leave little weight between them, and the weight of intervals.

The same questions are asked of users on one machine (`HeldLine`) and of users in parts (`PartedLine`), where each takes
one pass and brings back little. Marks differ with the parts: they say where to look, and no law may follow from more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.user_table import PrivateTable, UserTable

IntArray = NDArray[np.int64]
Places = NDArray[Any]
"""Where users are: whole numbers, or floats, by which they are compared and nothing else."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sketch:
    """Some users' places, in ascending order, with the weight up to and including each; private."""

    places: Places
    cumulated: IntArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Survey:
    """The weight of all users, and marks: places in ascending order that leave little weight between them; private."""

    total: int
    marks: Places


class Line(Protocol):
    """What may be asked."""

    def survey(self, fineness: int) -> Survey:
        """At most 2 * fineness + 1 marks: no gap between them holds more than 1/fineness of the weight.

        Gaps are open, so users at a mark are in none; neither before the first mark nor after the last is there more.
        """

    def within(self, lows: Places, highs: Places) -> IntArray:
        """The weight in each of the closed intervals."""

    def between(self, low: Any, high: Any) -> Line:
        """The users in a closed interval."""

    def places(self) -> tuple[Places, IntArray]:
        """All places of users, ascending, and the weight at each: for few users, or such as share few places."""


class HeldLine:
    """Users on this machine, sorted once."""

    def __init__(self, places: Places, weights: IntArray | None) -> None:
        """`weights` None stands for weights of one."""
        self._cumulated: IntArray
        if weights is None:
            self._places = np.sort(places)
            self._cumulated = np.arange(len(places) + 1)
        else:
            order = np.argsort(places)
            self._places = places[order]
            self._cumulated = np.concatenate([[0], np.cumsum(weights[order])])

    def sketch(self, resolution: int) -> Sketch:
        """At most so many places: none of the gaps that they leave holds more than 1/resolution of the weight."""
        total = int(self._cumulated[-1])
        # In whole numbers, rounded up; each aim is met by the first place up to which there is so much.
        aims = np.unique(-(-np.arange(1, resolution + 1) * total // resolution))
        met = np.searchsorted(self._cumulated[1:], aims[aims > 0])
        places = np.unique(self._places[met])
        return Sketch(
            places=places, cumulated=self._cumulated[np.searchsorted(self._places, places, side="right")]
        )

    def survey(self, fineness: int) -> Survey:
        return joint_survey([self.sketch(4 * fineness)], fineness)

    def within(self, lows: Places, highs: Places) -> IntArray:
        ends = np.searchsorted(self._places, highs, side="right")
        starts = np.searchsorted(self._places, lows, side="left")
        weights: IntArray = self._cumulated[np.maximum(ends, starts)] - self._cumulated[starts]
        return weights

    def between(self, low: Any, high: Any) -> HeldLine:
        start = int(np.searchsorted(self._places, low, side="left"))
        stop = max(int(np.searchsorted(self._places, high, side="right")), start)
        some = copy(self)
        some._places = self._places[start:stop]
        some._cumulated = self._cumulated[start : stop + 1] - self._cumulated[start]
        return some

    def places(self) -> tuple[Places, IntArray]:
        places = np.unique(self._places)
        up_to = self._cumulated[np.searchsorted(self._places, places, side="right")]
        return places, np.diff(up_to, prepend=0)


class PartedLine:
    """Users in parts; `of_part` is pickled and puts the users of a part on the line."""

    def __init__(self, table: PrivateTable, of_part: Callable[[UserTable], HeldLine]) -> None:
        self._table = table
        self._of_part = of_part
        self._surveys: dict[int, Survey] = {}

    def survey(self, fineness: int) -> Survey:
        if fineness not in self._surveys:
            sketches = self._table.each_part(_OfLine(self._of_part, _Sketching(4 * fineness)))
            self._surveys[fineness] = joint_survey(sketches, fineness)
        return self._surveys[fineness]

    def within(self, lows: Places, highs: Places) -> IntArray:
        weights = np.zeros(len(lows), dtype=np.int64)
        for part in self._table.each_part(_OfLine(self._of_part, _Weighing(lows, highs))):
            weights += part
        return weights

    def between(self, low: Any, high: Any) -> PartedLine:
        return PartedLine(self._table, _Between(self._of_part, low, high))

    def places(self) -> tuple[Places, IntArray]:
        parts = self._table.each_part(_OfLine(self._of_part, HeldLine.places))
        places, owners = np.unique(np.concatenate([places for places, _ in parts]), return_inverse=True)
        weights = np.zeros(len(places), dtype=np.int64)
        np.add.at(weights, owners, np.concatenate([weights for _, weights in parts]))
        return places, weights


def line_of(table: PrivateTable, of_part: Callable[[UserTable], HeldLine]) -> Line:
    """The users of a table on a line."""
    return of_part(table) if isinstance(table, UserTable) else PartedLine(table, of_part)


def joint_survey(sketches: Sequence[Sketch], fineness: int) -> Survey:
    """The survey of all users from sketches of their parts with a resolution of four times the fineness or more.

    Let L be the weight that sketches know of up to a place: at most the weight there, and less by no more than
    1/resolution of all. Kept are the places at which L enters another of 2 * fineness equal shares. Up to the next one
    kept L stays within its share, so no more than 1/(2 fineness) + 2/resolution of the weight lies between.
    """
    places = np.concatenate([sketch.places for sketch in sketches])
    if not len(places):
        return Survey(total=0, marks=places)
    known = np.concatenate([np.diff(sketch.cumulated, prepend=0) for sketch in sketches])
    order = np.argsort(places, kind="stable")
    places, known = places[order], np.cumsum(known[order])
    last = np.append(places[1:] != places[:-1], True)
    places, known = places[last], known[last]
    shares = 2 * fineness * known // known[-1]
    # The last place of a sketch has all weight of its part up to it.
    return Survey(total=int(known[-1]), marks=places[np.diff(shares, prepend=0) > 0])


@dataclass(frozen=True, eq=False, repr=False)
class _OfLine:
    """What a part is asked: a question about its users on the line."""

    of_part: Callable[[UserTable], HeldLine]
    question: Callable[[HeldLine], Any]

    def __call__(self, part: UserTable) -> Any:
        return self.question(self.of_part(part))


@dataclass(frozen=True, repr=False)
class _Between:
    of_part: Callable[[UserTable], HeldLine]
    low: Any
    high: Any

    def __call__(self, part: UserTable) -> HeldLine:
        return self.of_part(part).between(self.low, self.high)


@dataclass(frozen=True)
class _Sketching:
    resolution: int

    def __call__(self, line: HeldLine) -> Sketch:
        return line.sketch(self.resolution)


@dataclass(frozen=True, eq=False, repr=False)
class _Weighing:
    lows: Places
    highs: Places

    def __call__(self, line: HeldLine) -> IntArray:
        return line.within(self.lows, self.highs)
