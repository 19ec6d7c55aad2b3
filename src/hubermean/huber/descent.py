"""Descent to a point of small gradient: a safeguarded Newton method in which every step is certified.

The iteration stops when the gradient is below the tolerance or below what float64 can resolve. Each step either
halves the smallest gradient so far or decreases the loss by a certified amount (proofs/huber-location.md, section 2).
Search directions are Newton steps if a d x d matrix is cheap, and limited-memory BFGS steps otherwise. A direction is
only a proposal: candidates are checked by certified inequalities, and a fallback step always succeeds. Directions
therefore affect speed, not correctness.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.huber.numerics import SLACK, UNIT, euclidean_norm
from hubermean.huber.passes import GradientEvaluation, evaluate_gradient
from hubermean.huber.problem import HuberProblem

# Up to this dimension the Hessian costs at most a few gradient passes, and Newton needs fewer passes overall.
NEWTON_DIMENSION = 192
MEMORY = 12
# Candidates tried along one direction before the fallback step is taken.
LINE_TRIES = 8
# Share of |gradient|^2 / total weight by which a candidate must be certified to decrease the loss (proof 2.2).
SUFFICIENT = 1.0 / 16.0


class Directions:
    """Proposes search directions from the evaluations so far."""

    def __init__(self, dimension: int) -> None:
        self.uses_hessian = dimension <= NEWTON_DIMENSION
        self._pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=MEMORY)

    def update(self, before: GradientEvaluation, after: GradientEvaluation) -> None:
        """Store the change of the gradient along an accepted step."""
        if self.uses_hessian:
            return
        step = after.center - before.center
        change = after.gradient - before.gradient
        product = float(step @ change)
        # The loss is convex, so this fails only where it is linear, or by rounding. Older pairs then describe another
        # region, and their step would repeat forever: start over from the majorizer.
        if product > 1e-12 * euclidean_norm(step) * euclidean_norm(change):
            self._pairs.append((step, change, 1.0 / product))
        else:
            self._pairs.clear()

    def propose(self, here: GradientEvaluation) -> FloatArray | None:
        """Return a direction at `here`, or None if the model gives none."""
        direction = _newton(here) if here.hessian is not None else self._quasi_newton(here)
        if direction is None or not np.all(np.isfinite(direction)):
            return None
        proposed, longest = euclidean_norm(direction), self.longest(here)
        return direction if proposed <= longest else direction * (longest / proposed)

    @staticmethod
    def longest(here: GradientEvaluation) -> float:
        """Return the maximum step length. Where the loss is nearly flat, the model proposes far longer steps.

        influence / robust_weight is the mean distance of the users with weights a_i w_i, which outliers cannot
        inflate.
        """
        return 4.0 * here.influence / here.robust_weight

    def _quasi_newton(self, here: GradientEvaluation) -> FloatArray:
        """Two-loop recursion (Nocedal 1980); the initial model is the curvature of the majorizer."""
        vector = -here.gradient
        used: list[float] = []
        for step, change, inverse in reversed(self._pairs):
            used.append(inverse * float(step @ vector))
            vector = vector - used[-1] * change
        if self._pairs:
            _, change, inverse = self._pairs[-1]
            vector = vector / (inverse * float(change @ change))
        else:
            vector = vector / here.robust_weight
        for (step, change, inverse), share in zip(self._pairs, reversed(used), strict=True):
            vector = vector + (share - inverse * float(change @ vector)) * step
        return vector


def _newton(here: GradientEvaluation) -> FloatArray | None:
    assert here.hessian is not None
    for ridge in (0.0, 1e-12 * here.robust_weight):
        # Singular if no user is inside its threshold and all others are collinear. A ridge then keeps the useful part
        # of the direction, and the caller limits its length.
        matrix = here.hessian + ridge * np.eye(here.gradient.size)
        try:
            return np.asarray(np.linalg.solve(matrix, -here.gradient))
        except np.linalg.LinAlgError:
            continue
    return None


def descend(
    problem: HuberProblem, here: GradientEvaluation, tolerance: float
) -> tuple[GradientEvaluation, int]:
    """Iterate until the gradient is below the tolerance or the floor; return the evaluation and the number of steps.

    Progress is guaranteed (proof 2.4).
    """
    directions = Directions(problem.dimension)
    record, iterations = here.norm, 0
    while not has_converged(here, tolerance):
        there = _line_step(problem, directions, here, record)
        if there is None:
            # The majorizer's minimizer, a Weiszfeld step: it always decreases the loss (proof 2.1, 2.3).
            center = here.center - here.gradient / here.robust_weight
            there = evaluate(problem, center)
        directions.update(here, there)
        if there.norm <= 0.5 * record:
            record = there.norm
        here = there
        iterations += 1
    return here, iterations


def evaluate(problem: HuberProblem, center: FloatArray) -> GradientEvaluation:
    """Evaluate the gradient, with the Hessian if Newton steps use it."""
    return evaluate_gradient(problem, center, hessian=problem.dimension <= NEWTON_DIMENSION)


def has_converged(here: GradientEvaluation, tolerance: float) -> bool:
    """Return whether the gradient is below the tolerance, or below what float64 can resolve."""
    return here.norm_bound <= tolerance or here.norm <= here.floor


def _line_step(
    problem: HuberProblem, directions: Directions, here: GradientEvaluation, record: float
) -> GradientEvaluation | None:
    """Return the first acceptable candidate along the proposed direction, or None.

    The slope along the line is non-decreasing, so its sign brackets the best step. Only gradients are compared,
    because rounding hides differences of losses long before differences of gradients.
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
        there = evaluate(problem, here.center + step * direction)
        if there.norm <= 0.5 * record or certainly_decreases(here, there, total_weight=problem.total_weight):
            return there
        slope = float(there.gradient @ direction)
        # A slope within its rounding error means that the best step is near, not that it lies further on.
        uncertain = there.error * euclidean_norm(direction)
        if slope > -2.0 * uncertain:
            most, most_slope = step, max(slope, uncertain)
        else:
            least, least_slope = step, slope
        if most == math.inf:
            step *= 4.0
        else:
            # Secant step to the zero of the slope, away from the ends so that the bracket shrinks.
            share = least_slope / (least_slope - most_slope)
            step = least + (most - least) * min(max(share, 0.05), 0.95)
    return None


def certainly_decreases(here: GradientEvaluation, there: GradientEvaluation, *, total_weight: float) -> bool:
    """Return whether F(here) - F(there) >= SUFFICIENT |gradient|^2 / total weight is certain (proof 2.2).

    F(p) - F(q) >= G(q).(p - q) + |G(p) - G(q)|^2 / (2 L) for a convex F whose gradient has Lipschitz constant
    L = sum_i a_i (Nesterov 2004, Thm 2.1.5). Both terms are rounded down.
    """
    back = here.center - there.center
    errors = here.error + there.error
    change = max(0.0, euclidean_norm(here.gradient - there.gradient) / SLACK - errors)
    linear = float(there.gradient @ back)
    # Subtract the error of the gradient and the rounding of the product.
    linear -= SLACK * euclidean_norm(back) * (there.error + 2.0 * (back.size + 2) * UNIT * there.norm)
    # Everything is divided by |gradient|, so that no square overflows or underflows.
    quadratic = change * (change / here.norm) / (2.0 * total_weight * SLACK)
    return bool(linear / here.norm + quadratic >= SLACK * SUFFICIENT * here.norm / total_weight)
