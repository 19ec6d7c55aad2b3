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
        """By the lengths of the rows and of the centre; where these are not known, by a close look at all."""
        found = _by_lengths(points, centre)
        if found is None:
            return cls.computed(points, centre, _computed(points, centre))
        least, most = found
        return cls(points, centre, least=least, most=most)

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

    @property
    def most(self) -> Floats:
        """Upper bounds, for reading."""
        return self._most

    def are_within(self, threshold: float) -> npt.NDArray[np.bool_]:
        """Which users surely are, in exact arithmetic; all of whom the distance as computed can tell."""
        d = self._centre.size
        limit = (threshold - math.sqrt(d) * LOST_DISTANCE) / (1.0 + (0.5 * d + 12.0) * UNIT)
        return self.where(lambda distances: distances <= limit)

    def seen_from(self, centre: Floats) -> Distances:
        """Of the same users from another centre: no nearer and no farther than both centres are apart."""
        lost = 2.0 * math.sqrt(centre.size) * LOST_DISTANCE
        moved = length(centre - self._centre) * SLACK + lost
        least, most = _down(self._least / SLACK - moved), self._most * SLACK
        most += moved
        most *= SLACK
        by_lengths = _by_lengths(self._points, centre)
        if by_lengths is not None:
            np.maximum(least, by_lengths[0], out=least)
            np.minimum(most, by_lengths[1], out=most)
        return Distances(self._points, centre, least=least, most=most)

    def _look_closely(self, which: Positions) -> None:
        if which.size:
            self._least[which] = self._most[which] = _computed(self._points.some(which), self._centre)

    def _look_roughly(self, which: Positions) -> None:
        """In single precision, where rows are stored in it and are long."""
        d = self._centre.size
        if self._points.factors is not None:
            which = which[self._points.factors[which] == 1.0]
        if which.size <= _FEW or d < _LONG_ROW or self._points.array.dtype != np.float32:
            return
        with np.errstate(all="ignore"):
            centre = self._centre.astype(np.float32)
        rows, squares = self._points.some(which), np.empty(which.size)

        def look(share: slice) -> None:
            size = block_rows(d)
            offsets = np.empty((min(size, which.size), d), dtype=np.float32)
            for start in range(share.start, share.stop, size):
                window = slice(start, min(start + size, share.stop))
                stored = rows.stored(window)
                with np.errstate(all="ignore"):
                    row_squares(np.subtract(stored, centre, out=offsets[: len(stored)]), squares[window])

        shared_out(look, which.size, d)
        shortest, longest = _roots(squares, rows)
        moved = length(self._centre - centre) * SLACK
        with np.errstate(invalid="ignore"):
            self._least[which] = np.fmax(self._least[which], _down(shortest - moved))
            self._most[which] = np.fmin(self._most[which], (longest + moved) * SLACK)


def _by_lengths(points: Rows, centre: Floats) -> tuple[Floats, Floats] | None:
    """(least, most) distances by the lengths of rows and centre, where rows are long and their squares are known."""
    if points.squares is None or centre.size < _LONG_ROW:
        return None
    shortest, longest = _roots(points.squares, points)
    reach = length(centre)
    least = np.maximum(shortest - reach * SLACK, reach / SLACK - longest)
    return _down(least), (longest + reach * SLACK) * SLACK


def _computed(points: Rows, centre: Floats) -> Floats:
    parts = shared_out(lambda share: distances_from(points.part(share), centre), *points.shape)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _roots(squares: Floats, rows: Rows) -> tuple[Floats, Floats]:
    """Bounds on the exact lengths of rows whose squares were added up in the precision in which they are stored."""
    lost = 2.0 * math.sqrt(rows.shape[1] * float(np.finfo(rows.array.dtype).tiny))
    lengths = np.sqrt(squares)
    return lengths * (1.0 - _LENGTH_ERROR) - lost, lengths * (1.0 + _LENGTH_ERROR) + lost


def _down(lengths: Floats) -> Floats:
    """Less than these, but no less than nothing; nothing where it is not known how long. Overwrites."""
    np.maximum(lengths, 0.0, out=lengths)
    lengths[~np.isfinite(lengths)] = 0.0
    lengths /= SLACK
    return lengths


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
