"""Certified bounds on the distance from a computed point to the exact Huber minimizer, valid in floating point.

Three arguments, from sharp to crude, each proved in proofs/huber-location.md:

1. The ball certificate (1.1): users well inside their threshold make the loss strongly convex near the point.
2. In one column, the sign of the gradient on either side of the point (1.2).
3. In any dimension, the direction of the gradient on a sphere around the point (1.3). This argument always ends, so
   the bound is finite even if the minimizer is not unique, and it then covers every minimizer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.huber.numerics import SLACK, UNIT
from hubermean.huber.passes import GradientEvaluation, evaluate_gradient
from hubermean.huber.problem import HuberProblem, bound_distances, iterate_blocks


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """`error_bound` bounds the distance to every minimizer; `mass` is the strong convexity used, or 0."""

    error_bound: float
    mass: float


def certify(problem: HuberProblem, found: GradientEvaluation) -> Certificate:
    """Apply the first of the three arguments that succeeds at the point of `found`.

    **Formal guarantees**
    - Every minimizer c of the exact loss of the float64 points satisfies |c - point| <= error_bound.
    - `mass` > 0 only if the ball certificate holds: the loss is then mass-strongly convex on the ball of radius
      error_bound around the point, and the minimizer is unique.
    - A point with no user in its quadratic zone gets `mass` 0 and a large bound, never a wrong one.
    """
    certificate = _ball(problem, found)
    if certificate is not None:
        return certificate
    bound = _interval(problem, found) if problem.dimension == 1 else _sphere(problem, found)
    return Certificate(error_bound=bound, mass=0.0)


def bound_quadratic_mass(problem: HuberProblem, center: FloatArray, radius: float) -> float:
    """Return a lower bound on M(radius) = sum_i a_i 1[|y_i - center| <= T_i - radius]."""
    mass = 0.0
    for block in iterate_blocks(problem, center):
        # Rounded to the safe side: the distance up, the remaining room T - radius down (proof 3.2).
        room = (np.asarray(block.thresholds) - radius) * (1.0 - 4.0 * UNIT)
        inside = bound_distances(block) <= room
        if block.weights is None:
            mass += float(np.count_nonzero(inside))
        else:
            mass += float(inside @ block.weights)
    return mass / SLACK


def _ball(problem: HuberProblem, found: GradientEvaluation) -> Certificate | None:
    """Apply Lemma 1.1 with the smallest radius found by doubling; None if no radius satisfies it."""
    gradient = found.norm_bound
    widest = float(np.max(problem.thresholds))
    mass = problem.total_weight
    # M is non-increasing. If M(r) r <= g, a valid radius must exceed g / M(r), so the smallest one is overshot by at
    # most a factor 2; and r at least doubles, so the loop ends (proof 1.4).
    while (radius := 2.0 * gradient / mass) <= widest:
        mass = bound_quadratic_mass(problem, found.center, radius)
        if mass * radius > gradient * SLACK:
            return Certificate(error_bound=gradient / mass * SLACK, mass=mass)
        if mass == 0.0:
            return None
    return None


def _interval(problem: HuberProblem, found: GradientEvaluation) -> float:
    """Apply Lemma 1.2: the larger of the two distances, found by doubling, where the gradient's sign is certain."""
    point = float(found.center[0])
    start = max(found.norm_bound / problem.total_weight, UNIT * abs(point), 2.0**-900)
    return max(_certain_distance(problem, point, start, side) for side in (-1.0, 1.0))


def _certain_distance(problem: HuberProblem, point: float, step: float, side: float) -> float:
    while True:
        candidate = point + side * step
        there = evaluate_gradient(problem, np.array([candidate]), hessian=False)
        if side * float(there.gradient[0]) > there.error:
            return abs(candidate - point) * SLACK
        step *= 2.0


def _sphere(problem: HuberProblem, found: GradientEvaluation) -> float:
    """Apply Lemma 1.3: the first radius, by doubling, at which the negative gradient certainly points inward."""
    radius = max(found.norm_bound / problem.total_weight, 2.0**-300)
    while not _points_inward(problem, found.center, radius):
        radius *= 2.0
    return radius


def _points_inward(problem: HuberProblem, center: FloatArray, radius: float) -> bool:
    inward = outward = 0.0
    for block in iterate_blocks(problem, center):
        distances = bound_distances(block)
        room = radius - distances
        thresholds = block.thresholds
        inward_terms = np.maximum(room, 0.0) * np.minimum(1.0, thresholds / (radius + distances))
        outward_terms = np.minimum(np.maximum(-room, 0.0), thresholds)
        weights = 1.0 if block.weights is None else block.weights
        inward += float(np.sum(weights * inward_terms))
        outward += float(np.sum(weights * outward_terms))
    return inward > outward * SLACK**2
