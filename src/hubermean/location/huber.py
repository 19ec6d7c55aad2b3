"""The weighted Huber location: a safeguarded Newton method that ends with a certificate.

The estimator is the minimiser of sum_i a_i phi_i(s, y_i) (Zhao et al. 2024, eq. mu0unb). Deviation from the
paper: its iteration (App. "Comments About Algorithm Implementation") stops once the update is small, which
says little about the distance to the minimiser, and privacy rests on that distance. Here the iteration stops
on the gradient, at the floor of what float64 can resolve, and the result carries a proved bound on its
distance to the exact minimiser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy.typing as npt

from hubermean.errors import InputError
from hubermean.location.blocks import SLACK, UNIT, Problem, length
from hubermean.location.certificate import certify
from hubermean.location.direction import NEWTON_DIMENSION, Directions
from hubermean.location.rows import Floats, Rows
from hubermean.location.start import mean, medians
from hubermean.location.sweep import Sweep, sweep

# Candidates tried along one direction before the step that cannot fail is taken.
LINE_TRIES = 8
# Share of |gradient|^2 / total weight that a candidate must be certified to win (proof 2.2).
SUFFICIENT = 1.0 / 16.0
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


def small_gradient(
    points: npt.ArrayLike | Rows,
    *,
    weights: npt.ArrayLike | None = None,
    thresholds: npt.ArrayLike,
    tolerance: float = 0.0,
    distances: Floats | None = None,
) -> SmallGradient:
    """`huber_location` without the bound on the distance to the minimiser, for who needs the gradient only.

    That bound takes one more pass as a rule, and dozens where the loss is nearly flat. Where everyone is within the
    threshold of the mean (the paper's common case) one look from there is enough. `distances`, an array of one
    number per user, is overwritten with their distances from the point, as computed (proof 3.2).
    """
    problem, _ = Problem.build(points, weights, thresholds)
    problem = replace(problem, distances=distances)
    here = _look(problem, mean(problem))
    if here.pull < _NEAR_MOST * problem.total_weight and not _is_over(here, tolerance):
        elsewhere = _look(problem, medians(problem))
        here = min(here, elsewhere, key=lambda one: one.norm)
    # The pass at the point that is returned is always the last one.
    found, _ = _descend(problem, here, tolerance)
    return SmallGradient(point=found.centre, norm_bound=found.norm_bound)


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
    start = _look(problem, medians(problem))
    found, iterations = _descend(problem, start, tolerance)
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


def _descend(problem: Problem, here: Sweep, tolerance: float) -> tuple[Sweep, int]:
    """Iterate until the gradient is below the tolerance or the floor; progress is guaranteed (proof 2.4)."""
    directions = Directions(problem.dimension)
    record, iterations = here.norm, 0
    while not _is_over(here, tolerance):
        there = _line_step(problem, directions, here, record)
        if there is None:
            # The majoriser's minimiser, a Weiszfeld step: decreases the loss by itself (proof 2.1, 2.3).
            centre = here.centre - here.gradient / here.pull
            there = _look(problem, centre)
        directions.learn(here, there)
        if there.norm <= 0.5 * record:
            record = there.norm
        here = there
        iterations += 1
    return here, iterations


def _look(problem: Problem, centre: Floats) -> Sweep:
    return sweep(problem, centre, hessian=problem.dimension <= NEWTON_DIMENSION)


def _is_over(here: Sweep, tolerance: float) -> bool:
    return here.norm_bound <= tolerance or here.norm <= here.floor


def _line_step(problem: Problem, directions: Directions, here: Sweep, record: float) -> Sweep | None:
    """The first acceptable candidate along the proposed direction, or None.

    The slope along the line is non-decreasing, so its sign brackets the best step; only gradients are
    compared, because differences of losses drown in rounding long before gradients do.
    """
    direction = directions.propose(here)
    if direction is None:
        return None
    least, least_slope = 0.0, float(here.gradient @ direction)
    if not -math.inf < least_slope < 0.0:
        return None
    most, most_slope = math.inf, math.inf
    step = 1.0
    for _ in range(LINE_TRIES):
        there = _look(problem, here.centre + step * direction)
        if there.norm <= 0.5 * record or decreases(here, there, total_weight=problem.total_weight):
            return there
        slope = float(there.gradient @ direction)
        # A slope within its own rounding error says that the best step is near, not that it lies further on.
        uncertain = there.error * length(direction)
        if slope > -2.0 * uncertain:
            most, most_slope = step, max(slope, uncertain)
        else:
            least, least_slope = step, slope
        if most == math.inf:
            step *= 4.0
        else:
            # Secant for the zero of the slope, kept away from the ends so that the bracket shrinks.
            share = least_slope / (least_slope - most_slope)
            step = least + (most - least) * min(max(share, 0.05), 0.95)
    return None


def decreases(here: Sweep, there: Sweep, *, total_weight: float) -> bool:
    """Whether F(here) - F(there) >= SUFFICIENT |gradient|^2 / total weight is certain (proof 2.2).

    F(p) - F(q) >= G(q).(p - q) + |G(p) - G(q)|^2 / (2 L) for a convex F whose gradient has Lipschitz constant
    L = sum_i a_i (Nesterov 2004, Thm 2.1.5); both terms are rounded down.
    """
    back = here.centre - there.centre
    errors = here.error + there.error
    change = max(0.0, length(here.gradient - there.gradient) / SLACK - errors)
    linear = float(there.gradient @ back)
    # Error of the gradient, then of the product itself.
    linear -= SLACK * length(back) * (there.error + 2.0 * (back.size + 2) * UNIT * there.norm)
    # All divided by |gradient|, so that no square leaves the range of floats.
    quadratic = change * (change / here.norm) / (2.0 * total_weight * SLACK)
    return bool(linear / here.norm + quadratic >= SLACK * SUFFICIENT * here.norm / total_weight)
