"""The weighted Huber location: a safeguarded Newton method with a certified error.

The estimator is the minimizer of sum_i a_i phi_i(s, y_i) (Zhao et al. 2024, eq. mu0unb). Deviation from the paper:
its iteration (App. "Comments About Algorithm Implementation") stops once the update is small. A small update says
little about the distance to the minimizer, and privacy depends on that distance. Here the iteration stops on the
gradient, and the result carries a proved bound on its distance to the exact minimizer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError
from hubermean.huber.certificate import certify
from hubermean.huber.core import search_around_core
from hubermean.huber.descent import descend, evaluate, has_converged
from hubermean.huber.distances import Distances
from hubermean.huber.passes import sample_medians
from hubermean.huber.points import PointRows
from hubermean.huber.problem import HuberProblem

# At a start with less than this share of the weight left after down-weighting, most users are beyond their threshold.
_NEAR_MOST = 0.5


@dataclass(frozen=True, kw_only=True)
class HuberLocation:
    """A point and what is proved about it. Every field depends on private data, so the repr shows none.

    Attributes:
        point: the computed minimizer: a float for points of shape (n,), else an array of shape (d,).
        error_bound: bounds the distance from `point` to the exact minimizer, or to all of them if there are several.
        gradient_norm_bound: bounds the norm of the exact gradient at `point`.
        quadratic_mass: the strong convexity on the ball of radius `error_bound`, or 0 if a cruder argument was
            needed.
        iterations: number of steps.
    """

    point: float | FloatArray = field(repr=False)
    error_bound: float = field(repr=False)
    gradient_norm_bound: float = field(repr=False)
    quadratic_mass: float = field(repr=False)
    iterations: int = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class StationaryPoint:
    """A point and a bound on the norm of the exact gradient there. Both are private."""

    point: FloatArray = field(repr=False)
    norm_bound: float = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class StationaryPointWithDistances(StationaryPoint):
    """A stationary point with the distances of all users from it. Private."""

    distances: Distances = field(repr=False)


def find_stationary_point(
    points: npt.ArrayLike | PointRows,
    *,
    weights: npt.ArrayLike | None = None,
    thresholds: npt.ArrayLike,
    tolerance: float = 0.0,
) -> StationaryPointWithDistances:
    """Find a point of small gradient: `huber_location` without the bound on the distance to the minimizer.

    That bound usually takes one more pass, and dozens where the loss is nearly flat. If everyone is within the
    threshold of the mean (the paper's common case), the mean is the point; if row norms show that, no further pass is
    made.
    """
    problem, _ = HuberProblem.build(points, weights, thresholds)
    start, around = search_around_core(problem, tolerance)
    if around is not None:
        return StationaryPointWithDistances(
            point=around.point, norm_bound=around.norm_bound, distances=around.distances
        )
    problem = replace(problem, distances=np.empty(problem.n_users))
    here = evaluate(problem, start)
    if here.robust_weight < _NEAR_MOST * problem.total_weight and not has_converged(here, tolerance):
        elsewhere = evaluate(problem, sample_medians(problem))
        here = min(here, elsewhere, key=lambda one: one.norm)
    # The last pass is always at the point that is returned.
    found, _ = descend(problem, here, tolerance)
    assert problem.distances is not None
    distances = Distances.computed(problem.points, found.center, problem.distances)
    return StationaryPointWithDistances(point=found.center, norm_bound=found.norm_bound, distances=distances)


def huber_location(
    points: npt.ArrayLike | PointRows,
    *,
    weights: npt.ArrayLike | None = None,
    thresholds: npt.ArrayLike,
    tolerance: float = 0.0,
) -> HuberLocation:
    """Compute the minimizer of the weighted Huber loss, with a certified error.

    Not private by itself: the result depends on the data without noise.

    Args:
        points: one row per user, shape (n,) or (n, d), or `PointRows`. Types other than float64 are converted block
            by block, so a memory map stays on disk.
        weights: one number >= 0 for all users or one per user; default 1.
        thresholds: one number > 0 for all users or one per user, in the unit of the points. A user's influence grows
            with the distance up to the threshold and is constant beyond.
        tolerance: gradient norm at which to stop; 0 (the default) continues to the limit of float64.

    Returns:
        A `HuberLocation` with `point`, `error_bound`, `gradient_norm_bound`, `quadratic_mass` and `iterations`.

    Raises:
        InputError: if points are not finite, thresholds are not positive, the total weight is zero, or shapes differ.

    **Formal guarantees** (proofs/huber-location.md)
    - |point - c| <= error_bound for every exact minimizer c of the loss of the float64 points, including all rounding
      (1.1-1.3, 3.3). The bound is finite; if there are several minimizers it covers all.
    - The iteration ends for every input with gradient_norm_bound <= max(tolerance, 5/4 floor), where floor = 4
      (rounding error of the gradient + rounding of the point) (2.4). `bound_attainable_gradient` bounds that from
      public numbers. There is no iteration cap: each step either halves the smallest gradient so far or decreases the
      loss by a certified amount.
    - Deterministic for a given input order, numpy build and number of threads; the bounds hold for any of these.

    Edge cases:

    | input | result |
    |---|---|
    | one user | that user's point |
    | users of weight zero | no effect |
    | thresholds above all distances | the weighted mean |

    >>> found = huber_location([0.0, 1.0, 2.0, 100.0], thresholds=2.0)
    >>> round(found.point, 9), found.error_bound < 1e-12
    (1.666666667, True)
    >>> huber_location([[0.0, 0.0], [2.0, 4.0]], thresholds=10.0).point
    array([1., 2.])
    """
    if not tolerance >= 0:
        raise InputError("tolerance must be 0 or more")
    problem, flat = HuberProblem.build(points, weights, thresholds)
    # Where the loss is flat the result is near the start, so the start must be among the users.
    start = evaluate(problem, sample_medians(problem))
    found, iterations = descend(problem, start, tolerance)
    certificate = certify(problem, found)
    point = found.center.copy()
    point.flags.writeable = False
    return HuberLocation(
        point=float(point[0]) if flat else point,
        error_bound=certificate.error_bound,
        gradient_norm_bound=found.norm_bound,
        quadratic_mass=certificate.mass,
        iterations=iterations,
    )
