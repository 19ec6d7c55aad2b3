"""Users at their means, rounded exactly to a grid, from floats that are sorted already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hubermean.tuning.line import HeldLine, IntArray, OwnLine, Places, Sketch, Survey, joint_survey

# Floats are off by 4 parts in 2^53 (`ExactSums.means`) or by 2^-60 (`encode_binary`); what is computed here adds three
# parts more.
_PARTS, _LEAST = 2.0**-49, 2.0**-59
_FAR = 1e300


class RoundedLine:
    """Users at floor(mean / 2^exponent + 1/2), clamped to [-reach, reach].

    Where no float lies within its error of an edge between two positions, users are on the same side of it as their
    floats. Where one does, all means are rounded one by one, and sorted again.
    """

    def __init__(
        self, means: HeldLine, *, exponent: int, reach: int, one_by_one: Callable[[], HeldLine]
    ) -> None:
        """`means` as floats; `one_by_one` makes the line of the rounded ones."""
        self._means, self._reach = means, reach
        self._spacing = 2.0**exponent
        self._one_by_one = one_by_one
        self._rounded: HeldLine | None = None

    def _exactly(self) -> HeldLine:
        if self._rounded is None:
            self._rounded = self._one_by_one()
        return self._rounded

    def sketch(self, resolution: int) -> Sketch:
        """Users with smaller floats than a place lie at its position or before, those with larger ones there or after.

        So between two positions there are no more users than between the floats.
        """
        sketch = self._means.sketch(resolution)
        error = np.abs(sketch.places) * _PARTS + _LEAST
        low, high = (
            np.clip(np.floor(means / self._spacing + 0.5), -self._reach, self._reach)
            for means in (sketch.places - error, sketch.places + error)
        )
        if (low != high).any():
            return self._exactly().sketch(resolution)
        return Sketch(places=low.astype(np.int64), cumulated=sketch.cumulated)

    def survey(self, fineness: int) -> Survey:
        return joint_survey([self.sketch(4 * fineness)], fineness)

    def within(self, lows: Places, highs: Places) -> IntArray:
        (before, surely_before), (up_to, surely_up_to) = self._before(lows), self._before(highs + 1)
        if (before != surely_before).any() or (up_to != surely_up_to).any():
            return self._exactly().within(lows, highs)
        users: IntArray = np.maximum(up_to - before, 0)
        return users

    def _before(self, ends: Places) -> tuple[IntArray, IntArray]:
        """(most, least) users that can lie before each end: with means below the edge half a unit before it."""
        edges = (ends - 0.5) * self._spacing
        edges[ends <= -self._reach], edges[ends > self._reach] = -_FAR, _FAR  # nobody, and all, by the clamp
        error = np.abs(edges) * _PARTS + _LEAST
        return self._means.up_to(edges + error), self._means.before(edges - error)

    def between(self, low: Any, high: Any) -> OwnLine:
        return self._exactly().between(low, high)

    def places(self) -> tuple[Places, IntArray]:
        return self._exactly().places()
