"""The Huber location problem: its validated inputs, a blockwise pass over the users, and rounding error bounds.

Blocks hold about 2**18 numbers. Temporaries stay in cache; the input is never copied and may be a memory map
(`points`). Notation as in the paper: user i has weight a_i, threshold T_i and mean y_i. At a center p,
u_i = y_i - p, r_i = |u_i|, w_i = min(1, T_i / r_i), and the gradient of the Huber loss is
G(p) = - sum_i a_i w_i u_i (Zhao et al. 2024, eq. phii).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray, squared_row_norms
from hubermean.errors import InputError
from hubermean.huber.numerics import (
    LOST_DISTANCE,
    SLACK,
    STRIP_ROWS,
    TINY,
    UNIT,
    Positions,
    block_rows,
    euclidean_norm,
)
from hubermean.huber.points import PointRows

# Between these bounds no square, product or sum below overflows or underflows in a way that matters (proof 3.1).
LARGEST = 2.0**320
SMALLEST = 2.0**-320

_LONG_ROW = 64


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Core:
    """Users who are all within the threshold: only their total weight and their weighted sum enter the loss. Private.

    Attributes:
        weight: W = sum a_i, exactly.
        total: S = sum a_i y_i, as computed.
        error: at least |total - S|.
        threshold: T.
    """

    weight: float
    total: FloatArray
    error: float
    threshold: float

    def negative_gradient(self, center: FloatArray) -> FloatArray:
        """Return S - W c, the negative gradient of their loss if all of them are within the threshold of the center."""
        return np.asarray(self.total - self.weight * center)

    def negative_gradient_error(self, center: FloatArray) -> float:
        """Bound |negative_gradient - (S - W c)|: the error of the sum and two roundings."""
        sizes = self.weight * euclidean_norm(center) + euclidean_norm(self.total)
        return SLACK * (self.error + 2.0 * UNIT * sizes) + 2.0 * center.size * TINY


@dataclass(frozen=True, kw_only=True)
class HuberProblem:
    """A weighted Huber location problem: `points` is (n, d), weights and thresholds are scalars or (n,).

    `total_weight` is the sum of the weights up to rounding, and exact if `has_exact_weight`. If `distances` is given,
    shape (n,), each pass stores the distances from its center there. `core` holds further users, whose weight is
    included in `total_weight`.
    """

    points: PointRows
    weights: FloatArray | None
    thresholds: float | FloatArray
    total_weight: float
    has_exact_weight: bool = False
    distances: FloatArray | None = None
    core: Core | None = None

    @property
    def n_users(self) -> int:
        return self.points.shape[0]

    @property
    def dimension(self) -> int:
        return self.points.shape[1]

    @property
    def total_weight_bound(self) -> float:
        """An upper bound on the exact sum of the weights, which is the Lipschitz constant of the gradient."""
        return self.total_weight * SLACK

    def part(self, share: slice) -> HuberProblem:
        """Return the problem restricted to consecutive users; `total_weight` remains that of all users."""
        return replace(
            self,
            points=self.points.part(share),
            weights=None if self.weights is None else self.weights[share],
            thresholds=self.thresholds if isinstance(self.thresholds, float) else self.thresholds[share],
            distances=None if self.distances is None else self.distances[share],
        )

    def take(self, which: Positions) -> HuberProblem:
        """Return the problem restricted to users at increasing positions; `total_weight` remains that of all users."""
        return replace(
            self,
            points=self.points.take(which),
            weights=None if self.weights is None else self.weights[which],
            thresholds=self.thresholds if isinstance(self.thresholds, float) else self.thresholds[which],
            distances=None,
        )

    @staticmethod
    def build(
        points: npt.ArrayLike | PointRows, weights: npt.ArrayLike | None, thresholds: npt.ArrayLike
    ) -> tuple[HuberProblem, bool]:
        """Validate the inputs; return the problem and whether the points were one-dimensional.

        The first pass over the points validates them.
        """
        rows, flat = (points, False) if isinstance(points, PointRows) else _rows(points)
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
        problem = HuberProblem(
            points=rows,
            weights=masses,
            thresholds=float(limits) if limits.ndim == 0 else limits,
            total_weight=total,
            has_exact_weight=exact and total < _LARGEST_WHOLE,
        )
        return problem, flat


# Integers with a sum below this bound are added without rounding.
_LARGEST_WHOLE = 2.0**53


def _are_whole(weights: npt.ArrayLike) -> bool:
    return np.asarray(weights).dtype.kind in "iu"


_WRONG_SHAPE = "points must have shape (n,) or (n, d) with n >= 1 and d >= 1"


def _rows(points: npt.ArrayLike) -> tuple[PointRows, bool]:
    array = np.asarray(points)
    if array.dtype.kind not in "fiu":
        raise InputError(f"points must be an array of real numbers, not of dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise InputError(_WRONG_SHAPE)
    flat = array.ndim == 1
    return PointRows(array=array[:, np.newaxis] if flat else array), flat


def _per_user(values: npt.ArrayLike, n: int, name: str) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be real numbers") from None
    if array.ndim != 0 and array.shape != (n,):
        raise InputError(f"{name} must be one number or one per user, an array of shape ({n},)")
    return array


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows of the problem relative to a center. The arrays are buffers that the next block overwrites."""

    offsets: FloatArray  # (rows, d), y_i - p
    distances: FloatArray  # (rows,), |y_i - p|
    weights: FloatArray | None  # (rows,) or None for all ones
    thresholds: float | FloatArray  # scalar or (rows,)


def iterate_blocks(problem: HuberProblem, center: FloatArray) -> Iterator[Block]:
    """Yield the problem relative to `center` block by block, in input order."""
    n, d = problem.points.shape
    rows = min(n, block_rows(d))
    offset_buffer = np.empty((rows, d))
    distance_buffer = np.empty(rows if problem.distances is None else 0)
    for start in range(0, n, rows):
        size = min(rows, n - start)
        window = slice(start, start + size)
        offsets = offset_buffer[:size]
        distances = distance_buffer[:size] if problem.distances is None else problem.distances[window]
        # NaN and infinity may appear here. They are rejected below, so the warnings are off.
        with np.errstate(invalid="ignore", over="ignore"):
            np.subtract(problem.points.read(window, offsets), center, out=offsets)
            if d == 1:
                np.abs(offsets[:, 0], out=distances)
            else:
                _squares(offsets, distances)
                np.sqrt(distances, out=distances)
        # NaN fails this comparison: one reduction over n distances checks all n d numbers.
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


def _squares(offsets: FloatArray, out: FloatArray) -> None:
    """Store the sum of squares of each row in `out`; one dot product per row is faster for long rows."""
    if offsets.shape[1] < _LONG_ROW:
        np.einsum("ij,ij->i", offsets, offsets, out=out)
    else:
        squared_row_norms(offsets, out)


def bound_distances(block: Block) -> FloatArray:
    """Return upper bounds on the exact distances of a block, as a new array (proof 3.2)."""
    dimension = block.offsets.shape[1]
    inflation = 1.0 + (0.5 * dimension + 8.0) * UNIT
    return np.asarray(block.distances * inflation + math.sqrt(dimension) * LOST_DISTANCE)


def bound_gradient_error(n_users: int, dimension: int, influence: float) -> float:
    """Bound |computed - exact gradient| given sum_i a_i min(r_i, T_i) <= influence (proof 3.3)."""
    rows = min(n_users, block_rows(dimension))
    strips = -(-rows // STRIP_ROWS) + 1
    roundings = 0.5 * dimension + 10.0 + min(n_users, STRIP_ROWS) + strips
    return roundings * UNIT * SLACK * influence + 4.0 * n_users * dimension * TINY


def bound_attainable_gradient(
    *, n_users: int, dimension: int, total_weight: float, total_influence: float, radius: float
) -> float:
    """Bound the gradient norm that `huber_location` certifies, for every data set in a ball; uses public numbers only.

    Args:
        n_users: number of users, n.
        dimension: number of columns, d.
        total_weight: upper bound on sum_i a_i.
        total_influence: upper bound on sum_i a_i T_i.
        radius: upper bound on every |y_i|.

    Raises:
        InputError: if an argument is not positive and finite.

    **Formal guarantees**
    - `HuberLocation.gradient_norm_bound` is at most this number for every such data set with `tolerance=0` (proof
      2.5). A mechanism may use it as a public bound on the gradient.

    >>> g = bound_attainable_gradient(
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
    error = bound_gradient_error(n_users, dimension, SLACK**2 * (total_influence + lost))
    return SLACK**3 * (5.0 * error + 8.0 * total_weight * UNIT * radius)
