"""Users on a line, each with a weight: marks that leave little weight between them, and the weight of intervals.

The same questions are asked of users on one machine, sorted (`HeldLine`) or, where they are many, told apart by bins
(`BinnedLine`), and of users in parts (`JointLine`, `PartedLine`). Marks differ with the parts: they say where to look,
and no law may follow from more.
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

    def bounds_within(self, lows: Places, highs: Places) -> tuple[IntArray, IntArray]:
        """(least, most): no more and no less than the weight in each of the closed intervals, where that is cheaper.

        They may be the weight itself, and differ with the parts: they say where not to look.
        """

    def between(self, low: Any, high: Any) -> Line:
        """The users in a closed interval."""

    def places(self) -> tuple[Places, IntArray]:
        """All places of users, ascending, and the weight at each: for few users, or such as share few places."""


class OwnLine(Line, Protocol):
    """Of users that are here."""

    def sketch(self, resolution: int) -> Sketch:
        """At most so many places: none of the gaps that they leave holds more than 1/resolution of the weight."""

    def between(self, low: Any, high: Any) -> OwnLine: ...


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
        met = np.searchsorted(self._cumulated[1:], shares_of(int(self._cumulated[-1]), resolution))
        places = np.unique(self._places[met])
        return Sketch(places=places, cumulated=self.up_to(places))

    def survey(self, fineness: int) -> Survey:
        return joint_survey([self.sketch(4 * fineness)], fineness)

    def within(self, lows: Places, highs: Places) -> IntArray:
        weights: IntArray = np.maximum(self.up_to(highs) - self.before(lows), 0)
        return weights

    def bounds_within(self, lows: Places, highs: Places) -> tuple[IntArray, IntArray]:
        weights = self.within(lows, highs)
        return weights, weights

    def up_to(self, ends: Places) -> IntArray:
        """The weight at each end and before it."""
        weights: IntArray = self._cumulated[np.searchsorted(self._places, ends, side="right")]
        return weights

    def before(self, ends: Places) -> IntArray:
        """The weight before each end."""
        weights: IntArray = self._cumulated[np.searchsorted(self._places, ends, side="left")]
        return weights

    def first_with(self, weights: IntArray) -> Places:
        """The first place, for each weight above 0, at and before which there is so much."""
        return self._places[np.searchsorted(self._cumulated[1:], weights)]

    def between(self, low: Any, high: Any) -> HeldLine:
        start = int(np.searchsorted(self._places, low, side="left"))
        stop = max(int(np.searchsorted(self._places, high, side="right")), start)
        some = copy(self)
        some._places = self._places[start:stop]
        some._cumulated = self._cumulated[start : stop + 1] - self._cumulated[start]
        return some

    def places(self) -> tuple[Places, IntArray]:
        places = np.unique(self._places)
        return places, np.diff(self.up_to(places), prepend=0)


def shares_of(total: int, resolution: int) -> IntArray:
    """The weights that sketches aim at: 1/resolution of all, 2/resolution, ..., in whole numbers above 0."""
    whole, rest = divmod(total, resolution)
    number = np.arange(1, resolution + 1)
    aims = np.unique(whole * number + -(-rest * number // resolution))  # no product exceeds the total by much
    return aims[aims > 0]


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
    shares = _shares(known, 2 * fineness)
    # The last place of a sketch has all weight of its part up to it.
    return Survey(total=int(known[-1]), marks=places[np.diff(shares, prepend=0) > 0])


def _shares(known: IntArray, parts: int) -> IntArray:
    """Which of so many equal shares of the last weight each one has entered, for any weights of 63 bits."""
    total = int(known[-1])
    bounds = np.array([-(-total * part // parts) for part in range(1, parts + 1)])
    entered: IntArray = np.searchsorted(bounds, known, side="right")
    return entered
