"""Single passes over all users: weighted sum, mean and sample medians, and the gradient with its rounding error.

Every pass computes sums over users first. The sums of the partitions of a table add up to the sums of the table, so
the same code serves tables in memory and distributed tables.

The search for the Huber location may start at the mean or at medians of a sample; any start is correct. If all users
are within their threshold of the mean, the mean is the Huber location, and one pass confirms it. A few distant
users can move the mean far away, but not the medians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray
from hubermean.data.threads import map_row_ranges
from hubermean.huber.numerics import (
    BLOCK_ELEMENTS,
    LOST_DISTANCE,
    SLACK,
    STRIP_ROWS,
    UNIT,
    CompensatedSum,
    block_rows,
    euclidean_norm,
    sum_vectors,
    weighted_row_sum,
)
from hubermean.huber.problem import Core, HuberProblem, bound_gradient_error, iterate_blocks

# Size of the sample for medians: at most SAMPLE_ROWS users, fewer for long rows, but at least SAMPLE_LEAST.
SAMPLE_ROWS, SAMPLE_ELEMENTS, SAMPLE_LEAST = 4096, 2**20, 32


def weighted_mean(problem: HuberProblem) -> FloatArray:
    """Return the weighted mean of all users, in one pass; not finite if a point is not finite."""
    with np.errstate(all="ignore"):
        return np.asarray(weighted_sum(problem) / problem.total_weight)


def weighted_sum(problem: HuberProblem) -> FloatArray:
    """Return the weighted sum of all users, in one pass; not finite if a point is not finite.

    **Formal guarantees**
    - Each term passes through at most `count_roundings(problem)` roundings (proofs/huber-location.md, Lemma 2.8).
    """
    n, d = problem.points.shape
    # Points that are too large or not finite are rejected by the first pass that computes distances.
    with np.errstate(all="ignore"):
        return sum_vectors(map_row_ranges(lambda share: _sum(problem.part(share)), n, d))


def count_roundings(problem: HuberProblem) -> int:
    """Return how many roundings a term of `weighted_sum` passes through.

    They are the additions in a block and over blocks, in any order, one product with a weight, and two for the sums
    of threads.
    """
    n, d = problem.points.shape
    rows = max(min(n, block_rows(d)), 1)
    return rows + -(-n // rows) + 3


def _sum(problem: HuberProblem) -> FloatArray:
    n, d = problem.points.shape
    size = max(min(n, block_rows(d)), 1)
    buffer, running = np.empty((size, d)), np.zeros(d)
    for start in range(0, n, size):
        window = slice(start, min(start + size, n))
        if problem.weights is not None:
            running += weighted_row_sum(problem.weights[window], problem.points.read(window, buffer))
        elif problem.points.are_unscaled(window):
            running += np.add.reduce(problem.points.read_stored(window), axis=0, dtype=np.float64)
        else:
            running += np.add.reduce(problem.points.read(window, buffer), axis=0)
    return running


def sample_medians(problem: HuberProblem) -> FloatArray:
    """Return the weighted median of each column over an evenly spaced sample of users."""
    n, d = problem.points.shape
    most = min(SAMPLE_ROWS, max(SAMPLE_LEAST, SAMPLE_ELEMENTS // d))
    if problem.weights is None:
        chosen = np.arange(0, n, -(-n // most))
        masses = np.ones(chosen.size)
    else:
        users = np.flatnonzero(problem.weights)
        chosen = users[:: -(-users.size // most)]
        # The sample must include a user who outweighs all others.
        chosen = np.union1d(chosen, [np.argmax(problem.weights)])
        masses = problem.weights[chosen]
    sample = problem.points[chosen]
    width = max(1, BLOCK_ELEMENTS // chosen.size)
    return np.concatenate(
        [_column_medians(sample[:, left : left + width], masses) for left in range(0, d, width)]
    )


def _column_medians(sample: FloatArray, masses: FloatArray) -> FloatArray:
    order = np.argsort(sample, axis=0, kind="stable")
    below = np.cumsum(masses[order], axis=0)
    middle = np.argmax(below >= 0.5 * below[-1], axis=0)
    columns = np.arange(sample.shape[1])
    return np.asarray(sample[order[middle, columns], columns])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GradientSums:
    """The sums over users that a gradient evaluation needs. Private. Sums of partitions add up to those of the table.

    Attributes:
        negative_gradient: sum a_i w_i u_i.
        robust_weight: sum a_i w_i, the total weight after down-weighting distant users.
        influence: sum a_i w_i r_i.
        outside: sum a_i w_i u_i u_i^T / r_i^2 over the users beyond their threshold. The Hessian is
            robust_weight times the identity minus this matrix.
    """

    negative_gradient: FloatArray
    robust_weight: float
    influence: float
    outside: FloatArray | npt.NDArray[np.float32] | None

    @classmethod
    def zero(cls, dimension: int, *, hessian: bool) -> GradientSums:
        """Return the sums over no users."""
        outside = np.zeros((dimension, dimension)) if hessian else None
        return cls(negative_gradient=np.zeros(dimension), robust_weight=0.0, influence=0.0, outside=outside)

    @classmethod
    def compute(cls, problem: HuberProblem, center: FloatArray, *, hessian: bool) -> GradientSums:
        """Compute the sums in one pass over the users of `problem`."""
        d = problem.dimension
        negative_gradient = CompensatedSum(d)
        curvature = np.zeros((d, d)) if hessian else None
        robust_weight = influence = 0.0
        gathered, rows = None, 0
        robust_weight_buffer = np.empty(min(problem.n_users, block_rows(d)))
        for block in iterate_blocks(problem, center):
            robust_weights = robust_weight_buffer[: block.distances.shape[0]]
            # w = T / max(r, T): exactly 1 inside the threshold, and never a division by zero.
            np.maximum(block.distances, block.thresholds, out=robust_weights)
            np.divide(block.thresholds, robust_weights, out=robust_weights)
            if block.weights is not None:
                np.multiply(robust_weights, block.weights, out=robust_weights)
            robust_weight += float(np.add.reduce(robust_weights))
            influence += float(robust_weights @ block.distances)
            part = weighted_row_sum(robust_weights, block.offsets)
            # Short blocks are combined first: compensating for each would cost as much as everything else.
            gathered = part if gathered is None else np.add(gathered, part, out=gathered)
            rows += robust_weights.size
            if rows >= STRIP_ROWS:
                negative_gradient.add(gathered)
                gathered, rows = None, 0
            if curvature is not None:
                outside = np.flatnonzero(block.distances > block.thresholds)
                if outside.size:
                    scaled = block.offsets[outside]
                    scaled *= (np.sqrt(robust_weights[outside]) / block.distances[outside])[:, None]
                    curvature += scaled.T @ scaled
        if gathered is not None:
            negative_gradient.add(gathered)
        return cls(
            negative_gradient=negative_gradient.total(),
            robust_weight=robust_weight,
            influence=influence,
            outside=curvature,
        )

    @classmethod
    def combine(cls, parts: Sequence[GradientSums]) -> GradientSums:
        """Add up the sums of one or more partitions."""
        curvatures = [part.outside for part in parts if part.outside is not None]
        outside = np.add.reduce(curvatures, dtype=np.float64) if curvatures else None
        if outside is not None and outside.ndim == 1:
            d = parts[0].negative_gradient.size
            full = np.zeros((d, d))
            full[np.triu_indices(d)] = outside
            outside = full + np.triu(full, 1).T
        return cls(
            negative_gradient=sum_vectors([part.negative_gradient for part in parts]),
            robust_weight=math.fsum(part.robust_weight for part in parts),
            influence=math.fsum(part.influence for part in parts),
            outside=outside,
        )

    def compress(self) -> GradientSums:
        """Return a smaller version to send: half of the symmetric matrix, in single precision.

        No guarantee depends on the matrix.
        """
        if self.outside is None:
            return self
        return replace(
            self, outside=self.outside[np.triu_indices(self.negative_gradient.size)].astype(np.float32)
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientEvaluation:
    """The result of one pass at `center`. `error` bounds |gradient - exact gradient| (proof 3.3)."""

    center: FloatArray
    gradient: FloatArray
    norm: float
    error: float
    robust_weight: float  # sum a_i w_i, the curvature of the quadratic majorizer at the center
    influence: float  # upper bound on sum a_i min(r_i, T_i)
    hessian: FloatArray | None

    @classmethod
    def from_sums(
        cls,
        sums: GradientSums,
        center: FloatArray,
        *,
        n_users: int,
        total_weight_bound: float,
        core: Core | None = None,
    ) -> GradientEvaluation:
        """Build an evaluation from the sums over all users, or over all users outside a core.

        **Formal guarantees**
        - |gradient - G(center)| <= error for the points as float64, for any order of summation inside a strip and any
          partition of the users, with or without fused multiply-add (proof 3.3 and 3.4). The Hessian carries no
          guarantee and needs none.
        """
        d = center.size
        negative_gradient, robust_weight = sums.negative_gradient, sums.robust_weight
        influence = sums.influence * SLACK + total_weight_bound * math.sqrt(d) * LOST_DISTANCE
        error = bound_gradient_error(n_users, d, influence)
        if core is not None:
            more = core.negative_gradient(center)
            # One more addition (proof 2.8).
            error += core.negative_gradient_error(center) + SLACK * UNIT * (
                euclidean_norm(negative_gradient) + euclidean_norm(more)
            )
            negative_gradient, robust_weight = negative_gradient + more, robust_weight + core.weight
            influence += core.weight * core.threshold
        curvature = None if sums.outside is None else -sums.outside.astype(np.float64)
        if curvature is not None:
            curvature.flat[:: d + 1] += robust_weight
        gradient = -negative_gradient
        return cls(
            center=center,
            gradient=gradient,
            norm=euclidean_norm(gradient),
            error=error,
            robust_weight=robust_weight,
            influence=influence,
            hessian=curvature,
        )

    @property
    def norm_bound(self) -> float:
        """An upper bound on the norm of the exact gradient."""
        return self.norm * SLACK + self.error

    @property
    def floor(self) -> float:
        """If the norm exceeds this, a step in float64 certainly decreases the loss (proof 2.3)."""
        size = euclidean_norm(self.center)
        return SLACK * 4.0 * (self.error + self.robust_weight * UNIT * size)


def evaluate_gradient(problem: HuberProblem, center: FloatArray, *, hessian: bool) -> GradientEvaluation:
    """Compute the gradient at `center`, its error bound and optionally the Hessian, in one pass.

    At r_i = T_i both branches of the loss agree, so rounding of r_i needs no case distinction.
    """
    shares = map_row_ranges(
        lambda share: GradientSums.compute(problem.part(share), center, hessian=hessian),
        problem.n_users,
        problem.dimension,
    )
    sums = shares[0] if len(shares) == 1 else GradientSums.combine(shares)
    return GradientEvaluation.from_sums(
        sums,
        center,
        n_users=problem.n_users,
        total_weight_bound=problem.total_weight_bound,
        core=problem.core,
    )
