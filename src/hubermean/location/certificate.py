"""How far a computed point can be from the exact Huber minimiser: bounds that hold in floating point.

Three arguments, from sharp to crude, each proved in proofs/huber-location.md:
1. the ball certificate (1.1): users well inside their threshold make the loss strongly convex near the point;
2. in one column, the sign of the gradient on either side of the point (1.2);
3. in any dimension, the pull of all users on a sphere around the point (1.3); it always ends, so the bound is
   finite even where the minimiser is not unique, and then covers every minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubermean.location.blocks import Problem, blocks, distance_bounds
from hubermean.location.floats import SLACK, UNIT
from hubermean.location.rows import Floats
from hubermean.location.sweep import Sweep, sweep


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """`error_bound` bounds the distance to every minimiser; `mass` is the strong convexity used, or 0."""

    error_bound: float
    mass: float


def certify(problem: Problem, found: Sweep) -> Certificate:
    """The first of the three arguments that applies at the point that `found` describes.

    *Formal guarantees*
    - Every minimiser c of the exact loss of the float64 points has |c - point| <= error_bound.
    - `mass` > 0 only where the ball certificate holds: the loss is then mass-strongly convex on the ball of
      radius error_bound around the point, and the minimiser is unique.
    - A point with no user in its quadratic zone gets `mass` 0 and a large bound, never a wrong one.
    """
    certificate = _ball(problem, found)
    if certificate is not None:
        return certificate
    bound = _interval(problem, found) if problem.dimension == 1 else _sphere(problem, found)
    return Certificate(error_bound=bound, mass=0.0)


def quadratic_mass(problem: Problem, centre: Floats, radius: float) -> float:
    """A lower bound on M(radius) = sum_i a_i 1[|y_i - centre| <= T_i - radius]."""
    mass = 0.0
    for block in blocks(problem, centre):
        # Rounded against us on both sides: the distance up, the room T - radius down (proof 3.2).
        room = (np.asarray(block.thresholds) - radius) * (1.0 - 4.0 * UNIT)
        inside = distance_bounds(block) <= room
        if block.weights is None:
            mass += float(np.count_nonzero(inside))
        else:
            mass += float(inside @ block.weights)
    return mass / SLACK


def _ball(problem: Problem, found: Sweep) -> Certificate | None:
    """Lemma 1.1 with the least radius found by doubling; None if no radius satisfies it."""
    gradient = found.norm_bound
    widest = float(np.max(problem.thresholds))
    mass = problem.total_weight
    # M is non-increasing: where M(r) r <= g, a radius that works must exceed g / M(r), so we overshoot the
    # least one by a factor 2 at most; and r at least doubles, so the loop ends (proof 1.4).
    while (radius := 2.0 * gradient / mass) <= widest:
        mass = quadratic_mass(problem, found.centre, radius)
        if mass * radius > gradient * SLACK:
            return Certificate(error_bound=gradient / mass * SLACK, mass=mass)
        if mass == 0.0:
            return None
    return None


def _interval(problem: Problem, found: Sweep) -> float:
    """Lemma 1.2: the farther of the two nearest places, by doubling, where the gradient's sign is certain."""
    point = float(found.centre[0])
    start = max(found.norm_bound / problem.total_weight, UNIT * abs(point), 2.0**-900)
    return max(_certain_distance(problem, point, start, side) for side in (-1.0, 1.0))


def _certain_distance(problem: Problem, point: float, step: float, side: float) -> float:
    while True:
        place = point + side * step
        there = sweep(problem, np.array([place]), hessian=False)
        if side * float(there.gradient[0]) > there.error:
            return abs(place - point) * SLACK
        step *= 2.0


def _sphere(problem: Problem, found: Sweep) -> float:
    """Lemma 1.3: the first radius, by doubling, at which all users together pull inward for sure."""
    radius = max(found.norm_bound / problem.total_weight, 2.0**-300)
    while not _pulls_inward(problem, found.centre, radius):
        radius *= 2.0
    return radius


def _pulls_inward(problem: Problem, centre: Floats, radius: float) -> bool:
    inward = outward = 0.0
    for block in blocks(problem, centre):
        distances = distance_bounds(block)
        room = radius - distances
        thresholds = block.thresholds
        pull = np.maximum(room, 0.0) * np.minimum(1.0, thresholds / (radius + distances))
        push = np.minimum(np.maximum(-room, 0.0), thresholds)
        weights = 1.0 if block.weights is None else block.weights
        inward += float(np.sum(weights * pull))
        outward += float(np.sum(weights * push))
    return inward > outward * SLACK**2
