"""Lines of users who are not in one place: shared out among threads here (`JointLine`), or far away (`PartedLine`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hubermean.threads import at_once
from hubermean.tuning.line import IntArray, Line, OwnLine, Places, Sketch, Survey, joint_survey
from hubermean.user_table import PrivateTable, UserTable

T = TypeVar("T")


def line_of(table: PrivateTable, of_part: Callable[[UserTable], OwnLine]) -> Line:
    """The users of a table on a line."""
    if not isinstance(table, UserTable):
        return PartedLine(table, of_part)
    lines = table.each_part(of_part)
    return lines[0] if len(lines) == 1 else JointLine(lines)


class _ManyLines(ABC):
    """Several lines that are asked as one."""

    def __init__(self) -> None:
        self._surveys: dict[int, Survey] = {}

    @abstractmethod
    def _each(self, question: Callable[[OwnLine], T]) -> list[T]:
        """What every line answers."""

    def survey(self, fineness: int) -> Survey:
        if fineness not in self._surveys:
            self._surveys[fineness] = joint_survey(self._each(_Sketching(4 * fineness)), fineness)
        return self._surveys[fineness]

    def within(self, lows: Places, highs: Places) -> IntArray:
        return _total(self._each(_Weighing(lows, highs)))

    def places(self) -> tuple[Places, IntArray]:
        parts = self._each(_places)
        places, owners = np.unique(np.concatenate([places for places, _ in parts]), return_inverse=True)
        weights = np.zeros(len(places), dtype=np.int64)
        np.add.at(weights, owners, np.concatenate([weights for _, weights in parts]))
        return places, weights


class JointLine(_ManyLines):
    """Users on this machine, some on each of several lines, which are asked at the same time."""

    def __init__(self, lines: Sequence[OwnLine]) -> None:
        super().__init__()
        self._lines = list(lines)

    def bounds_within(self, lows: Places, highs: Places) -> tuple[IntArray, IntArray]:
        least, most = zip(*self._each(_Bounding(lows, highs)), strict=True)
        return _total(least), _total(most)

    def between(self, low: Any, high: Any) -> JointLine:
        return JointLine([line.between(low, high) for line in self._lines])

    def _each(self, question: Callable[[OwnLine], T]) -> list[T]:
        return at_once(question, self._lines)


class PartedLine(_ManyLines):
    """Users in parts, each question a pass over them; `of_part` is pickled and puts the users of a part on the line."""

    def __init__(self, table: PrivateTable, of_part: Callable[[UserTable], OwnLine]) -> None:
        super().__init__()
        self._table = table
        self._of_part = of_part

    def bounds_within(self, lows: Places, highs: Places) -> tuple[IntArray, IntArray]:
        """The weight itself: another pass would cost more."""
        weights = self.within(lows, highs)
        return weights, weights

    def between(self, low: Any, high: Any) -> PartedLine:
        return PartedLine(self._table, _Between(self._of_part, low, high))

    def _each(self, question: Callable[[OwnLine], T]) -> list[T]:
        return self._table.each_part(_OfLine(self._of_part, question))


def _total(parts: Sequence[IntArray]) -> IntArray:
    weights: IntArray = np.sum(parts, axis=0, dtype=np.int64)
    return weights


# --- what a part is asked ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class _OfLine:
    """A question about the users of a part on the line."""

    of_part: Callable[[UserTable], OwnLine]
    question: Callable[[OwnLine], Any]

    def __call__(self, part: UserTable) -> Any:
        return self.question(self.of_part(part))


@dataclass(frozen=True, repr=False)
class _Between:
    of_part: Callable[[UserTable], OwnLine]
    low: Any
    high: Any

    def __call__(self, part: UserTable) -> OwnLine:
        return self.of_part(part).between(self.low, self.high)


@dataclass(frozen=True)
class _Sketching:
    resolution: int

    def __call__(self, line: OwnLine) -> Sketch:
        return line.sketch(self.resolution)


@dataclass(frozen=True, eq=False, repr=False)
class _Weighing:
    lows: Places
    highs: Places

    def __call__(self, line: OwnLine) -> IntArray:
        return line.within(self.lows, self.highs)


@dataclass(frozen=True, eq=False, repr=False)
class _Bounding:
    lows: Places
    highs: Places

    def __call__(self, line: OwnLine) -> tuple[IntArray, IntArray]:
        return line.bounds_within(self.lows, self.highs)


def _places(line: OwnLine) -> tuple[Places, IntArray]:
    return line.places()
