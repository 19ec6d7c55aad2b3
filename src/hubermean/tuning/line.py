"""Users on a line: marks that leave few of them in between, and the number of users in intervals.

The same questions are asked of users on one machine, sorted (`HeldLine`) and then rounded (`RoundedLine`), and of users
in several places (`JointLine`). Marks differ with the parts: they say where to look, and no law may follow from more.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Places = NDArray[Any]
"""Where users are: whole numbers, or floats, by which they are compared and nothing else."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sketch:
    """Some users' places, in ascending order, with the users up to and including each; private."""

    places: Places
    cumulated: IntArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Survey:
    """How many users there are, and marks: places in ascending order that leave few users between them; private."""

    total: int
    marks: Places


class Line(Protocol):
    """What may be asked."""

    def survey(self, fineness: int) -> Survey:
        """At most 2 * fineness + 1 marks: no gap between them holds more than 1/fineness of the users.

        Gaps are open, so users at a mark are in none; neither before the first mark nor after the last are there more.
        """

    def within(self, lows: Places, highs: Places) -> IntArray:
        """The users in each of the closed intervals."""

    def between(self, low: Any, high: Any) -> Line:
        """The users in a closed interval."""

    def places(self) -> tuple[Places, IntArray]:
        """All places of users, ascending, and the users at each: for few users, or such as share few places."""


class OwnLine(Line, Protocol):
    """Of users that are here."""

    def sketch(self, resolution: int) -> Sketch:
        """At most so many places: none of the gaps that they leave holds more than 1/resolution of the users."""

    def between(self, low: Any, high: Any) -> OwnLine: ...


class HeldLine:
    """Users on this machine, sorted once."""

    def __init__(self, places: Places) -> None:
        self.ascending = np.sort(places)

    def sketch(self, resolution: int) -> Sketch:
        places = np.unique(self.ascending[shares_of(len(self.ascending), resolution) - 1])
        return Sketch(places=places, cumulated=self.up_to(places))

    def survey(self, fineness: int) -> Survey:
        return joint_survey([self.sketch(4 * fineness)], fineness)

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

    def between(self, low: Any, high: Any) -> HeldLine:
        start = int(np.searchsorted(self.ascending, low, side="left"))
        some = copy(self)
        some.ascending = self.ascending[start : np.searchsorted(self.ascending, high, side="right")]
        return some

    def places(self) -> tuple[Places, IntArray]:
        return np.unique(self.ascending, return_counts=True)


def shares_of(total: int, resolution: int) -> IntArray:
    """The ranks that sketches aim at: 1/resolution of all, 2/resolution, ..., in whole numbers above 0."""
    whole, rest = divmod(total, resolution)
    number = np.arange(1, resolution + 1)
    aims = np.unique(whole * number + -(-rest * number // resolution))  # no product exceeds the total by much
    return aims[aims > 0]


def joint_survey(sketches: Sequence[Sketch], fineness: int) -> Survey:
    """The survey of all users from sketches of their parts with a resolution of four times the fineness or more.

    Let L be the number of users that sketches know of up to a place: at most all there, and fewer by no more than
    1/resolution of all. Kept are the places at which L enters another of 2 * fineness equal shares. Up to the next one
    kept L stays within its share, so no more than 1/(2 fineness) + 2/resolution of the users lie between.
    """
    places = np.concatenate([sketch.places for sketch in sketches])
    if not len(places):
        return Survey(total=0, marks=places)
    known = np.concatenate([np.diff(sketch.cumulated, prepend=0) for sketch in sketches])
    order = np.argsort(places, kind="stable")
    places, known = places[order], np.cumsum(known[order])
    last = np.append(places[1:] != places[:-1], True)
    places, known = places[last], known[last]
    shares = _shares(known, 2 * fineness)
    # The last place of a sketch has all users of its part up to it.
    return Survey(total=int(known[-1]), marks=places[np.diff(shares, prepend=0) > 0])


def _shares(known: IntArray, parts: int) -> IntArray:
    """Which of so many equal shares of the last weight each one has entered, for any weights of 63 bits."""
    total = int(known[-1])
    bounds = np.array([-(-total * part // parts) for part in range(1, parts + 1)])
    entered: IntArray = np.searchsorted(bounds, known, side="right")
    return entered
