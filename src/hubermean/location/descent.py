"""From a point downhill to one of small gradient: a safeguarded Newton method whose every step is certified.

The iteration stops on the gradient, at the floor of what float64 can resolve; each step either halves the smallest
gradient seen or decreases the loss by a certified amount (proofs/huber-location.md, section 2).
"""

from __future__ import annotations

import math

from hubermean.location.blocks import Problem
from hubermean.location.direction import NEWTON_DIMENSION, Directions
from hubermean.location.floats import SLACK, UNIT, length
from hubermean.location.rows import Floats
from hubermean.location.sweep import Sweep, sweep

# Candidates tried along one direction before the step that cannot fail is taken.
LINE_TRIES = 8
# Share of |gradient|^2 / total weight that a candidate must be certified to win (proof 2.2).
SUFFICIENT = 1.0 / 16.0


def descend(problem: Problem, here: Sweep, tolerance: float) -> tuple[Sweep, int]:
    """Iterate until the gradient is below the tolerance or the floor; progress is guaranteed (proof 2.4)."""
    directions = Directions(problem.dimension)
    record, iterations = here.norm, 0
    while not is_over(here, tolerance):
        there = _line_step(problem, directions, here, record)
        if there is None:
            # The majoriser's minimiser, a Weiszfeld step: decreases the loss by itself (proof 2.1, 2.3).
            centre = here.centre - here.gradient / here.pull
            there = look(problem, centre)
        directions.learn(here, there)
        if there.norm <= 0.5 * record:
            record = there.norm
        here = there
        iterations += 1
    return here, iterations


def look(problem: Problem, centre: Floats) -> Sweep:
    return sweep(problem, centre, hessian=problem.dimension <= NEWTON_DIMENSION)


def is_over(here: Sweep, tolerance: float) -> bool:
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
        there = look(problem, here.centre + step * direction)
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
