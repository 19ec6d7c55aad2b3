"""Many users on a line, told apart by bins and sorted only in the few bins that a question cuts through.

A bin follows from a place by steps that keep the order (a difference, a product, a floor), whatever they round: so
users in a lower bin than a place lie before it, users in a higher one after it, and only those of its own bin have to
be compared. Answers are those of a sort, for a fraction of its time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.exact.sums import USERS_AT_A_TIME
from hubermean.tuning.line import HeldLine, IntArray, OwnLine, Places, Sketch, Survey, joint_survey, shares_of

MANY_USERS = 2**15
_BINS = 2**16
_SAMPLE = 2**10
_TAIL = 4  # of the sample: users further out share the outermost bins
_EXACT_IN_FLOATS = 2**53
_LARGEST_SCALE = 1e300


class UsersOnLine(Protocol):
    """Users at their places, with their weights: for some of them at a time, so that nothing need be held of all."""

    def __len__(self) -> int: ...

    def heaviest(self) -> int:
        """No weight is larger."""

    def blocks(self) -> Iterator[tuple[Places, IntArray]]:
        """Places and weights of all users, in order."""

    def some(self, users: IntArray) -> tuple[Places, IntArray]:
        """Places and weights of the users with these numbers, the same as in `blocks`."""


@dataclass(frozen=True, eq=False, repr=False)
class HeldUsers:
    """Users whose places and weights are held."""

    places: Places
    weights: IntArray

    def __len__(self) -> int:
        return len(self.places)

    def heaviest(self) -> int:
        return int(self.weights.max(initial=0))

    def blocks(self) -> Iterator[tuple[Places, IntArray]]:
        for start in range(0, len(self), USERS_AT_A_TIME):
            yield self.places[start : start + USERS_AT_A_TIME], self.weights[start : start + USERS_AT_A_TIME]

    def some(self, users: IntArray) -> tuple[Places, IntArray]:
        return self.places[users], self.weights[users]


def own_line(places: Places, weights: IntArray | None) -> OwnLine:
    """The line that is quickest for so many users; `weights` None stands for weights of one."""
    if weights is None:  # a sort without weights is quick by itself
        return HeldLine(places, None)
    return line_on(HeldUsers(places, weights))


def line_on(users: UsersOnLine) -> OwnLine:
    """The same, of users with weights."""
    if len(users) < MANY_USERS or users.heaviest() * len(users) >= _EXACT_IN_FLOATS:
        return HeldLine(*_all(users))
    return BinnedLine(users)


def _all(users: UsersOnLine) -> tuple[Places, IntArray]:
    if isinstance(users, HeldUsers):
        return users.places, users.weights
    places, weights = zip(*users.blocks(), strict=True)
    return np.concatenate(places), np.concatenate(weights)


class BinnedLine:
    """Users on this machine."""

    def __init__(self, users: UsersOnLine) -> None:
        """There are some, and all weights together lie below 2^53."""
        self._users = users
        sample, _ = users.some(np.arange(0, len(users), max(len(users) // _SAMPLE, 1)))
        sample = np.sort(sample)
        self._low = sample[_TAIL]
        width = float(sample[-1 - _TAIL]) - float(self._low)
        self._scale = min((_BINS - 4) / width, _LARGEST_SCALE) if 0.0 < width < math.inf else 1.0
        self._bins = np.empty(len(users), dtype=np.uint16)
        weight_of_bin = np.zeros(_BINS)
        first, last, start = [], [], 0
        for places, weights in users.blocks():
            first.append(places.min())
            last.append(places.max())
            bins = self._bin(places)
            self._bins[start : start + len(bins)] = bins
            start += len(bins)
            weight_of_bin += np.bincount(bins, weights=weights, minlength=_BINS)
        self._first, self._last = min(first), max(last)
        self._before_bin: IntArray = np.concatenate([[0], np.cumsum(weight_of_bin.astype(np.int64))])

    def _bin(self, places: Places) -> NDArray[np.uint16]:
        """The first and the last bin but one take the tails; before the first user and after the last are two more."""
        with np.errstate(over="ignore"):
            scaled = (places - self._low).astype(np.float64, copy=False) * self._scale
        scaled += 2.0
        bins: NDArray[np.uint16] = np.clip(scaled, 1.0, _BINS - 2.0, out=scaled).astype(np.uint16)
        return bins

    def _bin_of_end(self, ends: Places) -> NDArray[np.int64]:
        bins: NDArray[np.int64] = self._bin(ends).astype(np.int64)
        bins[ends < self._first] = 0
        bins[ends > self._last] = _BINS - 1
        return bins

    def sketch(self, resolution: int) -> Sketch:
        aims = shares_of(int(self._before_bin[-1]), resolution)
        # The bin in which so much is reached.
        bins = np.searchsorted(self._before_bin[1:], aims)
        opened = _Opened(self, bins)
        places = np.unique(opened.line.first_with(aims - opened.closed_before(bins)))
        return Sketch(places=places, cumulated=opened.up_to(places))

    def survey(self, fineness: int) -> Survey:
        return joint_survey([self.sketch(4 * fineness)], fineness)

    def within(self, lows: Places, highs: Places) -> IntArray:
        if not len(lows):
            return np.zeros(0, dtype=np.int64)
        opened = _Opened(self, np.concatenate([self._bin_of_end(lows), self._bin_of_end(highs)]))
        weights: IntArray = np.maximum(opened.up_to(highs) - opened.before(lows), 0)
        return weights

    def bounds_within(self, lows: Places, highs: Places) -> tuple[IntArray, IntArray]:
        first, last = self._bin_of_end(lows), self._bin_of_end(highs)
        least = self._before_bin[last] - self._before_bin[first + 1]
        most = self._before_bin[last + 1] - self._before_bin[first]
        return np.maximum(least, 0), np.maximum(most, 0)

    def between(self, low: Any, high: Any) -> OwnLine:
        inside = [
            (places[within], weights[within])
            for places, weights in self._users.blocks()
            for within in [(places >= low) & (places <= high)]
        ]
        places, weights = zip(*inside, strict=True)
        return own_line(np.concatenate(places), np.concatenate(weights))

    def places(self) -> tuple[Places, IntArray]:
        return HeldLine(*_all(self._users)).places()


class _Opened:
    """The users of some bins, sorted, and the weight of the others."""

    def __init__(self, of: BinnedLine, bins: NDArray[Any]) -> None:
        self._of = of
        opened = np.zeros(_BINS, dtype=bool)
        opened[bins] = True
        found = [
            np.flatnonzero(opened[of._bins[start : start + USERS_AT_A_TIME]]) + start
            for start in range(0, len(of._bins), USERS_AT_A_TIME)
        ]
        self.line = HeldLine(*of._users.some(np.concatenate(found)))
        closed = np.where(opened, 0, np.diff(of._before_bin))
        self._closed_before: IntArray = np.concatenate([[0], np.cumsum(closed)])

    def closed_before(self, bins: NDArray[Any]) -> IntArray:
        """The weight of the bins before each that were not opened."""
        weights: IntArray = self._closed_before[bins]
        return weights

    def up_to(self, ends: Places) -> IntArray:
        """The weight at each end and before it; the bins of ends are among those opened."""
        return self.closed_before(self._of._bin_of_end(ends)) + self.line.up_to(ends)

    def before(self, ends: Places) -> IntArray:
        return self.closed_before(self._of._bin_of_end(ends)) + self.line.before(ends)
