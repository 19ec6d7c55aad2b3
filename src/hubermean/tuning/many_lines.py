"""Lines of users who are not in one place: shared out among threads when they were sorted, or far away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubermean.tuning.line import IntArray, Line, OwnLine, Places, Sketch, Survey, joint_survey
from hubermean.user_table import PrivateTable, UserTable

Question = Callable[[OwnLine], Any]


def line_of(table: PrivateTable, of_part: Callable[[UserTable], OwnLine]) -> Line:
    """The users of a table on a line; `of_part` puts those of a part on it, and is pickled where that is far away."""
    if not isinstance(table, UserTable):  # each question is a pass
        return JointLine(lambda question: table.each_part(_OfLine(of_part, question)))
    lines = table.each_part(of_part)
    # Users are sorted by then, and to start threads would take longer than to answer.
    return lines[0] if len(lines) == 1 else JointLine(lambda question: [question(line) for line in lines])


class JointLine:
    """Several lines that are asked as one: `ask` returns what every line answers."""

    def __init__(self, ask: Callable[[Question], Sequence[Any]]) -> None:
        self._ask = ask

    def survey(self, fineness: int) -> Survey:
        return joint_survey(self._ask(_Sketching(4 * fineness)), fineness)

    def within(self, lows: Places, highs: Places) -> IntArray:
        users: IntArray = np.sum(self._ask(_Counting(lows, highs)), axis=0, dtype=np.int64)
        return users

    def between(self, low: Any, high: Any) -> JointLine:
        return JointLine(lambda question: self._ask(_Between(low, high, question)))

    def places(self) -> tuple[Places, IntArray]:
        parts = self._ask(_places)
        places, owners = np.unique(np.concatenate([places for places, _ in parts]), return_inverse=True)
        users = np.zeros(len(places), dtype=np.int64)
        np.add.at(users, owners, np.concatenate([users for _, users in parts]))
        return places, users


# --- what a part is asked ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class _OfLine:
    """A question about the users of a part on the line."""

    of_part: Callable[[UserTable], OwnLine]
    question: Question

    def __call__(self, part: UserTable) -> Any:
        return self.question(self.of_part(part))


@dataclass(frozen=True, eq=False, repr=False)
class _Between:
    low: Any
    high: Any
    question: Question

    def __call__(self, line: OwnLine) -> Any:
        return self.question(line.between(self.low, self.high))


@dataclass(frozen=True)
class _Sketching:
    resolution: int

    def __call__(self, line: OwnLine) -> Sketch:
        return line.sketch(self.resolution)


@dataclass(frozen=True, eq=False, repr=False)
class _Counting:
    lows: Places
    highs: Places

    def __call__(self, line: OwnLine) -> IntArray:
        return line.within(self.lows, self.highs)


def _places(line: OwnLine) -> tuple[Places, IntArray]:
    return line.places()
