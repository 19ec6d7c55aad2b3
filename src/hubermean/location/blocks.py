"""One pass over the users in row blocks: distances, Huber weights, gradient, curvature, rounding error.

Everything the solver and the certificates know about the data comes from this module, so the floating-point
model lives here too. Blocks hold about 2**16 numbers: temporaries stay in cache, the input is never copied
and may be a memory map (`rows`). Notation as in the paper: user i has weight a_i, threshold T_i and mean y_i; at a
centre p, u_i = y_i - p, r_i = |u_i|, w_i = min(1, T_i / r_i), and the gradient of the Huber loss is
G(p) = - sum_i a_i w_i u_i (Zhao et al. 2024, eq. phii).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hubermean.errors import InputError
from hubermean.location.rows import STRIP_ROWS, Floats, Rows, block_rows

# Unit roundoff of float64, the smallest positive float64, and a factor that absorbs every second-order term
# and the rounding of scalar sums (proofs/huber-location.md, 3.1).
UNIT = 2.0**-53
TINY = 2.0**-1074
SLACK = 1.0 + 2.0**-20

# Between these no square, product or sum below over- or underflows in a way that matters (proof 3.1).
LARGEST = 2.0**320
SMALLEST = 2.0**-320

# A square below 2**-1022 is lost, and with it a distance of at most this per square root of a column.
LOST_DISTANCE = 2.0**-510


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A weighted Huber location problem: `points` is (n, d), the others are scalars or (n,)."""

    points: Rows
    weights: Floats | None
    thresholds: float | Floats
    total_weight: float

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
            masses, total = None, float(n)
        else:
            masses = np.broadcast_to(_per_user(weights, n, "weights"), (n,))
            total = float(np.sum(masses))
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
        )
        return problem, flat


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
    distance_buffer = np.empty(rows)
    for start in range(0, n, rows):
        size = min(rows, n - start)
        window = slice(start, start + size)
        offsets, distances = offset_buffer[:size], distance_buffer[:size]
        # Not-a-number and infinity may enter here; they are refused just below, not warned about.
        with np.errstate(invalid="ignore", over="ignore"):
            np.subtract(problem.points.read(window, offsets), centre, out=offsets)
            if d == 1:
                np.abs(offsets[:, 0], out=distances)
            else:
                np.einsum("ij,ij->i", offsets, offsets, out=distances)
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


def distance_bounds(block: Block) -> Floats:
    """Upper bounds on the exact distances of a block, as a new array (proof 3.2)."""
    dimension = block.offsets.shape[1]
    inflation = 1.0 + (0.5 * dimension + 8.0) * UNIT
    return np.asarray(block.distances * inflation + math.sqrt(dimension) * LOST_DISTANCE)


def gradient_error(n_users: int, dimension: int, influence: float) -> float:
    """Bound on |computed - exact gradient| where sum_i a_i min(r_i, T_i) <= influence (proof 3.3)."""
    rows = min(n_users, block_rows(dimension))
    strips = -(-rows // STRIP_ROWS) + 1
    roundings = 0.5 * dimension + 10.0 + min(rows, STRIP_ROWS) + strips
    return roundings * UNIT * SLACK * influence + 4.0 * n_users * dimension * TINY


def length(vector: Floats) -> float:
    """The Euclidean norm, scaled first: squares of numbers within range may be out of it (proof 3.1)."""
    largest = float(np.max(np.abs(vector), initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(vector / largest))


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What one pass at `centre` found. `error` bounds |gradient - exact gradient| (proof 3.3)."""

    centre: Floats
    gradient: Floats
    norm: float
    error: float
    pull: float  # sum a_i w_i, the curvature of the quadratic majoriser at the centre
    influence: float  # upper bound on sum a_i min(r_i, T_i)
    hessian: Floats | None

    @property
    def norm_bound(self) -> float:
        """Upper bound on the norm of the exact gradient."""
        return self.norm * SLACK + self.error

    @property
    def floor(self) -> float:
        """Above this norm a step in float64 is sure to decrease the loss (proof 2.3)."""
        size = length(self.centre)
        return SLACK * 4.0 * (self.error + self.pull * UNIT * size)


def sweep(problem: Problem, centre: Floats, *, hessian: bool) -> Sweep:
    """Gradient, its error bound and (on request) the Hessian at `centre`, in one pass.

    *Formal guarantees*
    - |gradient - G(centre)| <= error for the points as float64, whatever the order of summation inside a
      strip, with or without fused multiply-add (proof 3.3). The Hessian carries no guarantee and needs none.
    - At r_i = T_i exactly both branches of the loss agree; no case distinction is made on rounded numbers.
    """
    d = problem.dimension
    high, low, spare, back = np.zeros(d), np.zeros(d), np.empty(d), np.empty(d)
    curvature = np.zeros((d, d)) if hessian else None
    pull = influence = 0.0
    pull_buffer = np.empty(min(problem.n_users, block_rows(d)))
    for block in blocks(problem, centre):
        pulls = pull_buffer[: block.distances.shape[0]]
        # w = T / max(r, T): exactly 1 inside the threshold, and never a division by zero.
        np.maximum(block.distances, block.thresholds, out=pulls)
        np.divide(block.thresholds, pulls, out=pulls)
        if block.weights is not None:
            np.multiply(pulls, block.weights, out=pulls)
        pull += float(np.add.reduce(pulls))
        influence += float(pulls @ block.distances)
        part = _strip_sum(pulls, block.offsets)
        # Compensated over blocks (Knuth's two-sum), so that the error does not grow with n (proof 3.3):
        # total = high + part, back = total - high, low += (high - (total - back)) + (part - back). In place, since
        # in wide data these are as long as a block.
        total = np.add(high, part, out=spare)
        np.subtract(total, high, out=back)
        part -= back
        np.subtract(total, back, out=back)
        np.subtract(high, back, out=back)
        back += part
        low += back
        high, spare = total, high
        if curvature is not None:
            outside = np.flatnonzero(block.distances > block.thresholds)
            if outside.size:
                scaled = block.offsets[outside]
                scaled *= (np.sqrt(pulls[outside]) / block.distances[outside])[:, None]
                curvature -= scaled.T @ scaled
    if curvature is not None:
        curvature.flat[:: d + 1] += pull
    gradient = -(high + low)
    influence = influence * SLACK + problem.total_weight_bound * math.sqrt(d) * LOST_DISTANCE
    return Sweep(
        centre=centre,
        gradient=gradient,
        norm=length(gradient),
        error=gradient_error(problem.n_users, d, influence),
        pull=pull,
        influence=influence,
        hessian=curvature,
    )


def _strip_sum(pulls: Floats, offsets: Floats) -> Floats:
    """sum_i pulls_i offsets_i by strips of STRIP_ROWS: short sums keep the error bound short."""
    size, d = offsets.shape
    whole = size - size % STRIP_ROWS
    if whole == 0:
        return np.asarray(pulls @ offsets)
    rows = pulls[:whole].reshape(-1, STRIP_ROWS)
    if d == 1:
        strips = np.einsum("ij,ij->i", rows, offsets[:whole].reshape(-1, STRIP_ROWS))[:, None]
    else:
        strips = np.matmul(rows[:, None, :], offsets[:whole].reshape(-1, STRIP_ROWS, d))[:, 0, :]
    part = np.add.reduce(strips, axis=0)
    if whole < size:
        part += pulls[whole:] @ offsets[whole:]
    return np.asarray(part)


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
