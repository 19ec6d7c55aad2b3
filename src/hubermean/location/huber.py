"""The weighted Huber location: a safeguarded Newton method that ends with a certificate.

The estimator is the minimiser of sum_i a_i phi_i(s, y_i) (Zhao et al. 2024, eq. mu0unb). Deviation from the
paper: its iteration (App. "Comments About Algorithm Implementation") stops once the update is small, which
says little about the distance to the minimiser, and privacy rests on that distance. Here the iteration stops
on the gradient, at the floor of what float64 can resolve, and the result carries a proved bound on its
distance to the exact minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hubermean.errors import InputError
from hubermean.location.around_core import by_core
from hubermean.location.blocks import Problem
from hubermean.location.certificate import certify
from hubermean.location.descent import descend, is_over, look
from hubermean.location.distances import Distances
from hubermean.location.rows import Floats, Rows
from hubermean.location.start import medians

# A mean from which the users pull with less than this share of their weight is too far from most of them to start at.
_NEAR_MOST = 0.5


@dataclass(frozen=True, kw_only=True)
class HuberLocation:
    """A point and what is proved about it. Every field depends on private data, so none is shown.

    `error_bound` bounds the distance from `point` to the exact minimiser (to all of them where there are
    several); `gradient_norm_bound` bounds the norm of the exact gradient at `point`; `quadratic_mass` is the
    strong convexity on the ball of radius `error_bound` that the bound used, 0 where a cruder argument was
    needed.
    """

    point: float | Floats = field(repr=False)
    error_bound: float = field(repr=False)
    gradient_norm_bound: float = field(repr=False)
    quadratic_mass: float = field(repr=False)
    iterations: int = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SmallGradient:
    """A point and a bound on the norm of the exact gradient there; both private."""

    point: Floats = field(repr=False)
    norm_bound: float = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SmallGradientOfHeld(SmallGradient):
    """With the distances of all users from the point; private, too."""

    distances: Distances = field(repr=False)


def small_gradient(
    points: npt.ArrayLike | Rows,
    *,
    weights: npt.ArrayLike | None = None,
    thresholds: npt.ArrayLike,
    tolerance: float = 0.0,
) -> SmallGradientOfHeld:
    """`huber_location` without the bound on the distance to the minimiser, for who needs the gradient only.

    That bound takes one more pass as a rule, and dozens where the loss is nearly flat. Where everyone is within the
    threshold of the mean (the paper's common case) that is the point, and where the lengths of rows show it nobody is
    looked at.
    """
    problem, _ = Problem.build(points, weights, thresholds)
    start, around = by_core(problem, tolerance)
    if around is not None:
        return SmallGradientOfHeld(
            point=around.point, norm_bound=around.norm_bound, distances=around.distances
        )
    problem = replace(problem, distances=np.empty(problem.n_users))
    here = look(problem, start)
    if here.pull < _NEAR_MOST * problem.total_weight and not is_over(here, tolerance):
        elsewhere = look(problem, medians(problem))
        here = min(here, elsewhere, key=lambda one: one.norm)
    # The pass at the point that is returned is always the last one.
    found, _ = descend(problem, here, tolerance)
    assert problem.distances is not None
    distances = Distances.computed(problem.points, found.centre, problem.distances)
    return SmallGradientOfHeld(point=found.centre, norm_bound=found.norm_bound, distances=distances)


def huber_location(
    points: npt.ArrayLike | Rows,
    *,
    weights: npt.ArrayLike | None = None,
    thresholds: npt.ArrayLike,
    tolerance: float = 0.0,
) -> HuberLocation:
    """The minimiser of the weighted Huber loss of `points`, with a certified error.

    `points` is (n,) or (n, d), or `Rows`; other types than float64 are cast block by block, so a memory map
    stays on disk. `thresholds` (> 0) and `weights` (>= 0, default 1) are scalars or one per user. `tolerance` is the
    norm of the gradient that is good enough; 0 asks for the best float64 can do.

    *Formal guarantees* (proofs/huber-location.md)
    - |point - c| <= error_bound for every exact minimiser c of the loss of the float64 points, with all
      rounding counted (1.1-1.3, 3.3). The bound is finite; if there are several minimisers it covers all.
    - The iteration ends for every input and reaches gradient_norm_bound <= max(tolerance, 5/4 floor), where
      floor = 4 (rounding error of the gradient + rounding of the point) (2.4); `attainable_gradient` bounds
      that from public numbers. There is no iteration cap: each step either halves the smallest gradient
      seen or decreases the loss by a certified amount.
    - Deterministic for a given input order, numpy build and number of threads; the bounds hold for any.
    - Edge cases: one user gives that user; users of weight zero never matter; points that are not
      finite, thresholds that are not positive and a total weight of zero raise InputError.

    >>> found = huber_location([0.0, 1.0, 2.0, 100.0], thresholds=2.0)
    >>> round(found.point, 9), found.error_bound < 1e-12
    (1.666666667, True)
    >>> huber_location([[0.0, 0.0], [2.0, 4.0]], thresholds=10.0).point
    array([1., 2.])
    """
    if not tolerance >= 0:
        raise InputError("tolerance must be 0 or more")
    problem, flat = Problem.build(points, weights, thresholds)
    # Where the loss is flat the point is about where the search starts: among users, not in the middle of nowhere.
    start = look(problem, medians(problem))
    found, iterations = descend(problem, start, tolerance)
    certificate = certify(problem, found)
    point = found.centre.copy()
    point.flags.writeable = False
    return HuberLocation(
        point=float(point[0]) if flat else point,
        error_bound=certificate.error_bound,
        gradient_norm_bound=found.norm_bound,
        quadratic_mass=certificate.mass,
        iterations=iterations,
    )
