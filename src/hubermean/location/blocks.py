"""One pass over the users in row blocks: their distances from a centre, and what rounding does to sums over them.

Everything the solver and the certificates know about the data comes through this module, so the floating-point
model lives here too. Blocks hold about 2**18 numbers: temporaries stay in cache, the input is never copied
and may be a memory map (`rows`). Notation as in the paper: user i has weight a_i, threshold T_i and mean y_i; at a
centre p, u_i = y_i - p, r_i = |u_i|, w_i = min(1, T_i / r_i), and the gradient of the Huber loss is
G(p) = - sum_i a_i w_i u_i (Zhao et al. 2024, eq. phii).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hubermean.errors import InputError
from hubermean.location.core import Core
from hubermean.location.floats import LOST_DISTANCE, SLACK, TINY, UNIT
from hubermean.location.rows import STRIP_ROWS, Floats, Positions, Rows, block_rows
from hubermean.row_squares import row_squares

# Between these no square, product or sum below over- or underflows in a way that matters (proof 3.1).
LARGEST = 2.0**320
SMALLEST = 2.0**-320

_LONG_ROW = 64


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A weighted Huber location problem: `points` is (n, d), the others are scalars or (n,).

    `total_weight` is the sum of the weights up to rounding, and the float nearest to it if `has_exact_weight`.
    `distances`, if there, receives those of the users from the centre of the latest pass, shape (n,). `core`, if there,
    are more users, whose weight is part of `total_weight`.
    """

    points: Rows
    weights: Floats | None
    thresholds: float | Floats
    total_weight: float
    has_exact_weight: bool = False
    distances: Floats | None = None
    core: Core | None = None

    @property
    def n_users(self) -> int:
        return self.points.shape[0]

    @property
    def dimension(self) -> int:
        return self.points.shape[1]

    @property
    def total_weight_bound(self) -> float:
        """An upper bound on the exact sum of the weights: the Lipschitz constant of the gradient."""
        return self.total_weight * SLACK

    def part(self, share: slice) -> Problem:
        """Of users in succession; the total weight stays that of all."""
        return replace(
            self,
            points=self.points.part(share),
            weights=None if self.weights is None else self.weights[share],
            thresholds=self.thresholds if isinstance(self.thresholds, float) else self.thresholds[share],
            distances=None if self.distances is None else self.distances[share],
        )

    def some(self, which: Positions) -> Problem:
        """Of the users at rising positions; the total weight stays that of all."""
        return replace(
            self,
            points=self.points.some(which),
            weights=None if self.weights is None else self.weights[which],
            thresholds=self.thresholds if isinstance(self.thresholds, float) else self.thresholds[which],
            distances=None,
        )

    @staticmethod
    def build(
        points: npt.ArrayLike | Rows, weights: npt.ArrayLike | None, thresholds: npt.ArrayLike
    ) -> tuple[Problem, bool]:
        """Check the parameters and say whether the points were one-dimensional.

        The points themselves are checked by the first pass, which reads them anyway.
        """
        rows, flat = (points, False) if isinstance(points, Rows) else _rows(points)
        n, dimension = rows.shape
        if n == 0 or dimension == 0:
            raise InputError(_WRONG_SHAPE)
        limits = _per_user(thresholds, n, "thresholds")
        if not (float(np.min(limits)) >= SMALLEST and float(np.max(limits)) <= LARGEST):
            raise InputError(f"thresholds must lie between {SMALLEST:.1e} and {LARGEST:.1e}")
        if weights is None:
            masses, total, exact = None, float(n), True
        else:
            masses = np.broadcast_to(_per_user(weights, n, "weights"), (n,))
            total, exact = float(np.sum(masses)), _are_whole(weights)
            positive = np.min(masses, initial=LARGEST, where=masses > 0)
            if not (float(np.min(masses)) >= 0 and float(np.max(masses)) <= LARGEST and positive >= SMALLEST):
                raise InputError(f"weights must be 0 or lie between {SMALLEST:.1e} and {LARGEST:.1e}")
            if total == 0:
                raise InputError("at least one user must have a positive weight")
        problem = Problem(
            points=rows,
            weights=masses,
            thresholds=float(limits) if limits.ndim == 0 else limits,
            total_weight=total,
            has_exact_weight=exact and total < _LARGEST_WHOLE,
        )
        return problem, flat


# Whole numbers that add up to less than this do so without rounding.
_LARGEST_WHOLE = 2.0**53


def _are_whole(weights: npt.ArrayLike) -> bool:
    return np.asarray(weights).dtype.kind in "iu"


_WRONG_SHAPE = "points must have shape (n,) or (n, d) with n >= 1 and d >= 1"


def _rows(points: npt.ArrayLike) -> tuple[Rows, bool]:
    array = np.asarray(points)
    if array.dtype.kind not in "fiu":
        raise InputError(f"points must be an array of real numbers, not of dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise InputError(_WRONG_SHAPE)
    flat = array.ndim == 1
    return Rows(array=array[:, np.newaxis] if flat else array), flat


def _per_user(values: npt.ArrayLike, n: int, name: str) -> Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be real numbers") from None
    if array.ndim != 0 and array.shape != (n,):
        raise InputError(f"{name} must be one number or one per user, an array of shape ({n},)")
    return array


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows of the problem seen from a centre; the arrays are buffers that the next block overwrites."""

    offsets: Floats  # (rows, d), y_i - p
    distances: Floats  # (rows,), |y_i - p|
    weights: Floats | None  # (rows,) or None for all ones
    thresholds: float | Floats  # scalar or (rows,)


def blocks(problem: Problem, centre: Floats) -> Iterator[Block]:
    """The problem seen from `centre`, block by block, in input order."""
    n, d = problem.points.shape
    rows = min(n, block_rows(d))
    offset_buffer = np.empty((rows, d))
    distance_buffer = np.empty(rows if problem.distances is None else 0)
    for start in range(0, n, rows):
        size = min(rows, n - start)
        window = slice(start, start + size)
        offsets = offset_buffer[:size]
        distances = distance_buffer[:size] if problem.distances is None else problem.distances[window]
        # Not-a-number and infinity may enter here; they are refused just below, not warned about.
        with np.errstate(invalid="ignore", over="ignore"):
            np.subtract(problem.points.read(window, offsets), centre, out=offsets)
            if d == 1:
                np.abs(offsets[:, 0], out=distances)
            else:
                _squares(offsets, distances)
                np.sqrt(distances, out=distances)
        # A comparison that NaN fails: one reduction over n numbers guards all n d of them.
        if not float(distances.max()) <= 4 * LARGEST:
            raise InputError(
                f"points must be finite and at most {LARGEST:.1e} in size; clamp or rescale them"
            )
        yield Block(
            offsets=offsets,
            distances=distances,
            weights=None if problem.weights is None else problem.weights[window],
            thresholds=problem.thresholds
            if isinstance(problem.thresholds, float)
            else problem.thresholds[window],
        )


def _squares(offsets: Floats, out: Floats) -> None:
    """The sum of the squares of each row; one product a row pays where rows are long."""
    if offsets.shape[1] < _LONG_ROW:
        np.einsum("ij,ij->i", offsets, offsets, out=out)
    else:
        row_squares(offsets, out)


def distance_bounds(block: Block) -> Floats:
    """Upper bounds on the exact distances of a block, as a new array (proof 3.2)."""
    dimension = block.offsets.shape[1]
    inflation = 1.0 + (0.5 * dimension + 8.0) * UNIT
    return np.asarray(block.distances * inflation + math.sqrt(dimension) * LOST_DISTANCE)


def gradient_error(n_users: int, dimension: int, influence: float) -> float:
    """Bound on |computed - exact gradient| where sum_i a_i min(r_i, T_i) <= influence (proof 3.3)."""
    rows = min(n_users, block_rows(dimension))
    strips = -(-rows // STRIP_ROWS) + 1
    roundings = 0.5 * dimension + 10.0 + min(n_users, STRIP_ROWS) + strips
    return roundings * UNIT * SLACK * influence + 4.0 * n_users * dimension * TINY


def attainable_gradient(
    *, n_users: int, dimension: int, total_weight: float, total_influence: float, radius: float
) -> float:
    """A public bound on the gradient norm that `huber_location` certifies for every data set in a ball.

    `total_weight` bounds sum_i a_i, `total_influence` bounds sum_i a_i T_i, `radius` bounds |y_i|.

    *Formal guarantees*
    - `HuberLocation.gradient_norm_bound` is at most this number for every such data set with
      `tolerance=0` (proof 2.5): a mechanism may use it as a public g without looking at the data.

    >>> g = attainable_gradient(
    ...     n_users=10_000, dimension=3, total_weight=1e4, total_influence=1e4, radius=1e6
    ... )
    >>> g < 1e-4
    True
    """
    if (
        n_users < 1
        or dimension < 1
        or not all(math.isfinite(bound) and bound > 0 for bound in (total_weight, total_influence, radius))
    ):
        raise InputError("n_users, dimension, total_weight, total_influence and radius must be positive")
    lost = total_weight * math.sqrt(dimension) * LOST_DISTANCE
    error = gradient_error(n_users, dimension, SLACK**2 * (total_influence + lost))
    return SLACK**3 * (5.0 * error + 8.0 * total_weight * UNIT * radius)
