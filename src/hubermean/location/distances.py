"""How far users are from a centre: each distance is known within bounds, and computed once somebody needs to know.

In wide data a distance takes a pass over a long row, while the length of the row is known from the pass that told
whether its numbers are finite. Whoever compares distances with a limit need look only at the users whom the lengths
leave in doubt: first in the precision in which rows are stored, then closely at those who are still in doubt.
Proof: proofs/huber-location.md, 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hubermean.location.blocks import Problem, blocks
from hubermean.location.floats import LOST_DISTANCE, SLACK, UNIT, length
from hubermean.location.rows import Floats, Positions, Rows, block_rows
from hubermean.row_squares import row_squares
from hubermean.threads import shared_out

# More than the relative error of the root of a sum of squares by `row_squares`, of differences in single precision.
_LENGTH_ERROR = 2.0**-11
# Distances in shorter rows are computed as quickly as they are bounded.
_LONG_ROW = 16
# So few users are looked at closely at once.
_FEW = 64


class Distances:
    """Of users from a centre; private.

    *Formal guarantees* (proof 3.6)
    - Every user has one distance, within the rounding of proof 3.2 of the exact one. What is said of it does not depend
      on what was asked before.
    """

    def __init__(self, points: Rows, centre: Floats, *, least: Floats, most: Floats) -> None:
        """`least` <= distance <= `most` of every user; both are overwritten where more is found out."""
        self._points, self._centre = points, centre
        self._least, self._most = least, most

    @classmethod
    def computed(cls, points: Rows, centre: Floats, distances: Floats) -> Distances:
        """Of users who were all looked at closely."""
        return cls(points, centre, least=distances, most=distances)

    @classmethod
    def bounded(cls, points: Rows, centre: Floats) -> Distances:
        """By the lengths of the rows and of the centre, where these are known; without a look at any row."""
        n, d = points.shape
        if points.squares is None or d < _LONG_ROW:
            return cls(points, centre, least=np.zeros(n), most=np.full(n, np.inf))
        shortest, longest = _roots(points.squares, points)
        reach = length(centre)
        least = np.maximum(shortest - reach * SLACK, reach / SLACK - longest)
        return cls(points, centre, least=_down(least), most=(longest + reach * SLACK) * SLACK)

    @property
    def all(self) -> Floats:
        """Of every user, as computed."""
        self._look_closely(np.flatnonzero(self._least != self._most))
        return self._most

    def where(self, near: Callable[[Floats], npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
        """Which of the distances are `near`: a property that no distance has if a smaller one lacks it."""
        found = near(self._most)
        doubtful = np.flatnonzero(~found & near(self._least))
        for look in (self._look_roughly, self._look_closely):
            look(doubtful)
            found[doubtful] = near(self._most[doubtful])
            doubtful = doubtful[~found[doubtful] & near(self._least[doubtful])]
        return found

    def some(self, which: Positions) -> Distances:
        """Of the users at rising positions; what is found out of them is not known here."""
        points = self._points.some(which)
        return Distances(points, self._centre, least=self._least[which], most=self._most[which])

    @property
    def most(self) -> Floats:
        """Upper bounds, for reading."""
        return self._most

    def are_within(self, threshold: float) -> npt.NDArray[np.bool_]:
        """Which users surely are, in exact arithmetic; all of whom the distance as computed can tell."""
        d = self._centre.size
        limit = (threshold - math.sqrt(d) * LOST_DISTANCE) / (1.0 + (0.5 * d + 10.0) * UNIT)
        return self.where(lambda distances: distances <= limit)

    def seen_from(self, centre: Floats) -> Distances:
        """Of the same users from another centre: no nearer and no farther than both centres are apart."""
        lost = 2.0 * math.sqrt(centre.size) * LOST_DISTANCE
        moved = length(centre - self._centre) * SLACK + lost
        there = Distances.bounded(self._points, centre)
        there._least = np.maximum(there._least, _down(self._least / SLACK - moved))
        there._most = np.minimum(there._most, (self._most * SLACK + moved) * SLACK)
        return there

    def _look_closely(self, which: Positions) -> None:
        if which.size:
            rows = self._points.some(which)
            parts = shared_out(lambda share: distances_from(rows.part(share), self._centre), *rows.shape)
            self._least[which] = self._most[which] = np.concatenate(parts)

    def _look_roughly(self, which: Positions) -> None:
        """In single precision, where rows are stored in it and are long."""
        d = self._centre.size
        if self._points.factors is not None:
            which = which[self._points.factors[which] == 1.0]
        if which.size <= _FEW or d < _LONG_ROW or self._points.array.dtype != np.float32:
            return
        with np.errstate(over="ignore"):
            centre = self._centre.astype(np.float32)
        rows, squares = self._points.some(which), np.empty(which.size)

        def look(share: slice) -> None:
            size = block_rows(d)
            offsets = np.empty((min(size, which.size), d), dtype=np.float32)
            for start in range(share.start, share.stop, size):
                window = slice(start, min(start + size, share.stop))
                stored = rows.stored(window)
                with np.errstate(over="ignore", invalid="ignore"):
                    row_squares(np.subtract(stored, centre, out=offsets[: len(stored)]), squares[window])

        shared_out(look, which.size, d)
        shortest, longest = _roots(squares, rows)
        moved = length(self._centre - centre) * SLACK
        with np.errstate(invalid="ignore"):
            self._least[which] = np.fmax(self._least[which], _down(shortest - moved))
            self._most[which] = np.fmin(self._most[which], (longest + moved) * SLACK)


def _roots(squares: Floats, rows: Rows) -> tuple[Floats, Floats]:
    """Bounds on the exact lengths of rows whose squares were added up in the precision in which they are stored."""
    lost = 2.0 * math.sqrt(rows.shape[1] * float(np.finfo(rows.array.dtype).tiny))
    lengths = np.sqrt(squares)
    return lengths * (1.0 - _LENGTH_ERROR) - lost, lengths * (1.0 + _LENGTH_ERROR) + lost


def _down(lengths: Floats) -> Floats:
    """Less than these, but no less than nothing; nothing where it is not known how long."""
    return np.where(np.isfinite(lengths), np.maximum(lengths, 0.0), 0.0) / SLACK


def distances_from(points: Rows, centre: Floats) -> Floats:
    """Of every user from a centre, as computed; on one thread."""
    distances = np.empty(len(points))
    if distances.size:
        problem = Problem(
            points=points,
            weights=None,
            thresholds=1.0,
            total_weight=float(len(points)),
            distances=distances,
        )
        for _ in blocks(problem, centre):
            pass
    return distances
