"""Distances of users from a center: bounded first, computed only where the bounds do not decide.

In wide data a distance takes a pass over a long row, while the row norm is known from the pass that checked for
non-finite numbers. To compare distances with a limit, only users whom the norms leave undecided are read: first in
the stored precision, then in double precision if still undecided. Proof: proofs/huber-location.md, 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray, squared_row_norms
from hubermean.data.threads import map_row_ranges
from hubermean.huber.numerics import LOST_DISTANCE, SLACK, UNIT, Positions, block_rows, euclidean_norm
from hubermean.huber.points import PointRows
from hubermean.huber.problem import HuberProblem, iterate_blocks

# More than the relative error of the square root of `squared_row_norms`, for differences in single precision.
_NORM_ERROR = 2.0**-11
# For shorter rows, distances are as fast to compute as to bound.
_LONG_ROW = 16
# For fewer users the pass in single precision does not pay.
_MIN_BATCH = 64


class Distances:
    """Distances of users from a center. Private.

    **Formal guarantees** (proof 3.6)
    - Every user has one computed distance, within the rounding of proof 3.2 of the exact one. Results do not depend
      on the order of the calls.
    """

    def __init__(
        self, points: PointRows, center: FloatArray, *, lower: FloatArray, upper: FloatArray
    ) -> None:
        """`lower` <= distance <= `upper` for every user; both arrays are overwritten with tighter bounds."""
        self._points, self._center = points, center
        self._lower, self._upper = lower, upper

    @classmethod
    def computed(cls, points: PointRows, center: FloatArray, distances: FloatArray) -> Distances:
        """Wrap distances that were computed for all users."""
        return cls(points, center, lower=distances, upper=distances)

    @classmethod
    def bounded(cls, points: PointRows, center: FloatArray) -> Distances:
        """Bound the distances by the norms of rows and center; compute all of them if the norms are not known."""
        found = _bound_by_norms(points, center)
        if found is None:
            return cls.computed(points, center, _compute_distances(points, center))
        lower, upper = found
        return cls(points, center, lower=lower, upper=upper)

    @property
    def all(self) -> FloatArray:
        """The computed distance of every user."""
        self._compute(np.flatnonzero(self._lower != self._upper))
        return self._upper

    def where(self, near: Callable[[FloatArray], npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
        """Return which distances satisfy `near`, a property that holds for every distance below one that has it."""
        found = near(self._upper)
        doubtful = np.flatnonzero(~found & near(self._lower))
        for measure in (self._refine_in_single_precision, self._compute):
            measure(doubtful)
            found[doubtful] = near(self._upper[doubtful])
            doubtful = doubtful[~found[doubtful] & near(self._lower[doubtful])]
        return found

    @property
    def upper(self) -> FloatArray:
        """Upper bounds; read-only."""
        return self._upper

    def are_within(self, threshold: float) -> npt.NDArray[np.bool_]:
        """Return which users are certainly within the threshold, also in exact arithmetic."""
        d = self._center.size
        limit = (threshold - math.sqrt(d) * LOST_DISTANCE) / (1.0 + (0.5 * d + 12.0) * UNIT)
        return self.where(lambda distances: distances <= limit)

    def moved_to(self, center: FloatArray) -> Distances:
        """Return the distances from another center: they change by at most the distance between the centers."""
        lost = 2.0 * math.sqrt(center.size) * LOST_DISTANCE
        moved = euclidean_norm(center - self._center) * SLACK + lost
        lower, upper = _round_down(self._lower / SLACK - moved), self._upper * SLACK
        upper += moved
        upper *= SLACK
        by_norms = _bound_by_norms(self._points, center)
        if by_norms is not None:
            np.maximum(lower, by_norms[0], out=lower)
            np.minimum(upper, by_norms[1], out=upper)
        return Distances(self._points, center, lower=lower, upper=upper)

    def _compute(self, which: Positions) -> None:
        if which.size:
            self._lower[which] = self._upper[which] = _compute_distances(
                self._points.take(which), self._center
            )

    def _refine_in_single_precision(self, which: Positions) -> None:
        """Tighten the bounds in single precision, if rows are long and stored in it."""
        d = self._center.size
        if self._points.factors is not None:
            which = which[self._points.factors[which] == 1.0]
        if which.size <= _MIN_BATCH or d < _LONG_ROW or self._points.array.dtype != np.float32:
            return
        with np.errstate(all="ignore"):
            center = self._center.astype(np.float32)
        rows, squares = self._points.take(which), np.empty(which.size)

        def measure(share: slice) -> None:
            size = block_rows(d)
            offsets = np.empty((min(size, which.size), d), dtype=np.float32)
            for start in range(share.start, share.stop, size):
                window = slice(start, min(start + size, share.stop))
                stored = rows.read_stored(window)
                with np.errstate(all="ignore"):
                    squared_row_norms(
                        np.subtract(stored, center, out=offsets[: len(stored)]), squares[window]
                    )

        map_row_ranges(measure, which.size, d)
        low_norms, high_norms = _bound_norms(squares, rows)
        moved = euclidean_norm(self._center - center) * SLACK
        with np.errstate(invalid="ignore"):
            self._lower[which] = np.fmax(self._lower[which], _round_down(low_norms - moved))
            self._upper[which] = np.fmin(self._upper[which], (high_norms + moved) * SLACK)


def _bound_by_norms(points: PointRows, center: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Bound distances by the norms of rows and center, if rows are long and their norms are known."""
    if points.squares is None or center.size < _LONG_ROW:
        return None
    low_norms, high_norms = _bound_norms(points.squares, points)
    reach = euclidean_norm(center)
    lower = np.maximum(low_norms - reach * SLACK, reach / SLACK - high_norms)
    return _round_down(lower), (high_norms + reach * SLACK) * SLACK


def _compute_distances(points: PointRows, center: FloatArray) -> FloatArray:
    parts = map_row_ranges(lambda share: compute_distances(points.part(share), center), *points.shape)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _bound_norms(squares: FloatArray, rows: PointRows) -> tuple[FloatArray, FloatArray]:
    """Bound the exact norms of rows whose squares were summed in the stored precision."""
    lost = 2.0 * math.sqrt(rows.shape[1] * float(np.finfo(rows.array.dtype).tiny))
    lengths = np.sqrt(squares)
    return lengths * (1.0 - _NORM_ERROR) - lost, lengths * (1.0 + _NORM_ERROR) + lost


def _round_down(lengths: FloatArray) -> FloatArray:
    """Round distances down, to at least 0; unknown distances become 0. Overwrites `lengths`."""
    np.maximum(lengths, 0.0, out=lengths)
    lengths[~np.isfinite(lengths)] = 0.0
    lengths /= SLACK
    return lengths


def compute_distances(points: PointRows, center: FloatArray) -> FloatArray:
    """Compute the distance of every user from a center, on one thread."""
    distances = np.empty(len(points))
    if distances.size:
        problem = HuberProblem(
            points=points,
            weights=None,
            thresholds=1.0,
            total_weight=float(len(points)),
            distances=distances,
        )
        for _ in iterate_blocks(problem, center):
            pass
    return distances
