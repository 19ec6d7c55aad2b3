"""The Huber location of distributed users: few passes, with many candidate points in each.

If users are spread over many machines, a pass costs far more than arithmetic. In several columns, each pass
therefore evaluates several candidates along the proposed direction and takes the best that qualifies. The fallback
step is always among them, so every pass makes progress and the argument for termination is the one for a single
machine (proofs/huber-location.md, 2.4 and 2.6). Another candidate is certain to be good where the center is stable,
which bounds the number of passes there (proofs/propose-test-release.md, Lemma 5).

In one column, a bracket is cut into many sections per pass. The gradient is non-decreasing, so its change of sign
brackets the minimizer. Half of the points are evenly spaced, which bounds the number of passes for every data set
(proofs/huber-location.md, 2.7). The others are close to the zero of the linear interpolant, which is usually
accurate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.huber.descent import Directions, certainly_decreases
from hubermean.huber.numerics import (
    SLACK,
    TINY,
    CompensatedSum,
    block_rows,
    euclidean_norm,
    weighted_row_sum,
)
from hubermean.huber.passes import GradientEvaluation
from hubermean.huber.points import PointRows
from hubermean.huber.solver import StationaryPoint, find_stationary_point

STABLE_SHARE = 0.89
"""A center is stable if users with this share of the weight lie within STABLE_WITHIN thresholds of it."""

STABLE_WITHIN = 0.75
"""In thresholds. On the ball with the remaining quarter as radius, the influence of these users stays linear."""

MAX_PASSES = 10
"""This many passes of a search find a stable center, after the pass that finds a start (proofs/propose-test-release.md,
Lemma 5).
"""

# In thresholds. The first makes the start as robust as a median of the partition centers, and equal to their mean
# where they agree. The start is then less than 1.44 from a stable center, and the users near that center are within
# the second of the start (Lemma 5).
_PARTITION_WIDTH, _WIDE_THRESHOLD, _NEAR = 0.125, 2.2, 0.2
PARTITION_TOLERANCE = 2.0**-16
"""Gradient per unit of weight, in thresholds: accurate enough for a center that only helps to find a start."""

# In units of the weight: midway between the smallest and the largest curvature at a stable center.
_STABLE_CURVATURE = 0.5 * (1.0 + STABLE_SHARE)
_SECTIONS = 32  # sections into which the remaining part of a line is cut
# Approximate size of a partition's result, in numbers, and the minimum number of candidates, which is enough while the
# search makes fast progress.
_RESULT_ELEMENTS, _MIN_CANDIDATES = 2**15, 4

SECTIONS, MAX_SECTION_PASSES = 80, 8
_BRACKET_NEAR = 0.125 ** np.arange(1, 13)  # distances from the guess, in widths of the bracket


class GradientOracle(Protocol):
    """Users whose gradient can be evaluated at several points in one pass."""

    @property
    def total_weight(self) -> float: ...

    @property
    def threshold(self) -> float: ...

    def evaluate_gradients(
        self, centers: Sequence[FloatArray], *, hessian: bool, widths: Sequence[float] | None = None
    ) -> list[GradientEvaluation]:
        """Evaluate the gradient at each center in one pass; `widths`, one per center, multiply the threshold."""


def find_partition_center(centers: FloatArray, weights: FloatArray, *, threshold: float) -> FloatArray:
    """Combine the centers of partitions into a start that is near a stable center, however users are partitioned."""
    narrow = _PARTITION_WIDTH * threshold
    tolerance = PARTITION_TOLERANCE * narrow * float(weights.sum())
    return find_stationary_point(centers, weights=weights, thresholds=narrow, tolerance=tolerance).point


class DistributedSearch:
    """The search for a point of small gradient in several columns.

    **Formal guarantees**
    - `run()` ends for every data set with norm_bound <= max(tolerance, 5/4 floor), as `find_stationary_point` does
      (proofs/huber-location.md, 2.6).
    - From `find_partition_center` on, MAX_PASSES passes are enough if the center is stable
      (proofs/propose-test-release.md, Lemma 5). For other data the number of passes is measured, not proved.
    """

    def __init__(self, oracle: GradientOracle, start: FloatArray, *, tolerance: float) -> None:
        """Evaluate the start, in one pass, or two if the start is poor."""
        self._oracle = oracle
        self._tolerance = tolerance
        self._directions = Directions(start.size)
        hessian = self._directions.uses_hessian
        self._here, wide = oracle.evaluate_gradients(
            [start, start], hessian=hessian, widths=[1.0, _WIDE_THRESHOLD]
        )
        self.passes = 1
        # A gradient below this means that a stable center is near, if there is one. Otherwise a step with a threshold
        # so wide that all users near the stable center have linear influence leads there.
        if self._here.norm > _NEAR * oracle.threshold * oracle.total_weight:
            candidate = start - wide.gradient / (STABLE_SHARE * oracle.total_weight)
            (there,) = oracle.evaluate_gradients([candidate], hessian=hessian)
            self._here = min(self._here, there, key=lambda one: one.norm)
            self.passes += 1
        self._record = self._here.norm
        self._remaining: _Line | None = None
        self._fast = True

    @property
    def result(self) -> StationaryPoint:
        """The current point."""
        return StationaryPoint(point=self._here.center, norm_bound=self._here.norm_bound)

    @property
    def converged(self) -> bool:
        """Whether the gradient is below the tolerance, or below what float64 can resolve."""
        return self._here.norm_bound <= self._tolerance or self._here.norm <= self._here.floor

    def run(self, max_passes: int | None = None) -> None:
        """Continue until converged, or until `max_passes` passes were made in total."""
        while not self.converged and (max_passes is None or self.passes < max_passes):
            self._take_step()

    def _take_step(self) -> None:
        """Make one pass and step to its best candidate.

        A step may end where the loss is certainly smaller, or where the gradient is at most half the smallest so
        far. If a candidate has such a gradient, the smallest gradient wins.
        """
        here, lines = self._here, self._choose_lines()
        candidates = [candidate for line in lines for candidate in line.candidates(here.center)]
        # The majorizer's minimizer, which always decreases the loss (proof 2.3), and the step that is certainly good
        # where the center is stable.
        candidates.append(here.center - here.gradient / here.robust_weight)
        candidates.append(here.center - here.gradient / (_STABLE_CURVATURE * self._oracle.total_weight))
        evaluations = self._oracle.evaluate_gradients(candidates, hessian=self._directions.uses_hessian)
        self.passes += 1
        smallest = min(evaluations, key=lambda one: one.norm)
        if smallest.norm <= 0.5 * self._record:
            there, self._remaining, self._record = smallest, None, smallest.norm
        else:
            there, self._remaining = self._choose_descent(lines, evaluations)
        self._fast = there.norm <= 0.25 * here.norm
        self._directions.update(here, there)
        self._here = there

    def _choose_lines(self) -> list[_Line]:
        """Return the lines for the next pass."""
        directions, here, remaining = self._directions, self._here, self._remaining
        if self._fast:  # the next direction is likely to be as good
            return [_propose_line(directions, here, _MIN_CANDIDATES)]
        most = _candidates_per_line(directions, here.center.size, 1 if remaining is None else 2)
        return [_propose_line(directions, here, most), *([] if remaining is None else [remaining.cut(most)])]

    def _choose_descent(
        self, lines: Sequence[_Line], evaluations: Sequence[GradientEvaluation]
    ) -> tuple[GradientEvaluation, _Line | None]:
        """Return the qualifying candidate of smallest loss, and the remaining part of its line."""
        best: tuple[GradientEvaluation, _Line | None] = (evaluations[-2], None)
        least = math.inf
        for line in lines:
            mine, evaluations = evaluations[: line.steps.size], evaluations[line.steps.size :]
            for position, loss in enumerate(line.losses(self._here, mine).tolist()):
                end = mine[position]
                if loss < least and certainly_decreases(
                    self._here, end, total_weight=self._oracle.total_weight
                ):
                    best, least = (end, line.remaining_after(self._here, mine, position)), loss
        return best


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Line:
    """Candidates on a ray from the current point, with increasing steps."""

    direction: FloatArray
    steps: FloatArray

    def candidates(self, origin: FloatArray) -> list[FloatArray]:
        return [origin + step * self.direction for step in self.steps]

    def slopes(self, evaluations: Sequence[GradientEvaluation]) -> FloatArray:
        return np.array([float(one.gradient @ self.direction) for one in evaluations])

    def losses(self, here: GradientEvaluation, evaluations: Sequence[GradientEvaluation]) -> FloatArray:
        """Estimate the loss at each candidate relative to `here` by integrating the slope, without cancellation."""
        slopes = self.slopes([here, *evaluations])
        return np.asarray(np.cumsum(0.5 * (slopes[1:] + slopes[:-1]) * np.diff(self.steps, prepend=0.0)))

    def remaining_after(
        self, here: GradientEvaluation, evaluations: Sequence[GradientEvaluation], chosen: int
    ) -> _Line | None:
        """Return the segment from the chosen candidate to the next one on the side where the loss decreases, if any."""
        slope = self.slopes(evaluations)[chosen]
        other = chosen + 1 if slope < 0.0 else chosen - 1
        if other == len(evaluations):
            return None
        end = here.center if other < 0 else evaluations[other].center
        return _Line(direction=end - evaluations[chosen].center, steps=np.ones(1))

    def cut(self, most: int) -> _Line:
        """Cut the line, up to its last candidate, into equal sections."""
        sections = min(most + 1, _SECTIONS)
        return _Line(direction=self.direction, steps=np.arange(1, sections) / sections * self.steps[-1])


def _candidates_per_line(directions: Directions, size: int, lines: int) -> int:
    """Return how many candidates each line gets: fewer if the result for one is large."""
    numbers = 2 * size + (size * size // 4 if directions.uses_hessian else 0)
    return max(_MIN_CANDIDATES, _RESULT_ELEMENTS // numbers) // lines


def _propose_line(directions: Directions, here: GradientEvaluation, most: int) -> _Line:
    """Return a line along the proposed direction if the loss decreases along it, else along the negative gradient."""
    direction = directions.propose(here)
    if direction is None or not -math.inf < float(here.gradient @ direction) < 0.0:
        direction = -here.gradient / here.robust_weight
    longest = directions.longest(here) / euclidean_norm(direction)
    # The most useful steps come first, since large results leave room for few.
    multiples = (1.0, 2.0**-4, 2.0**5, 2.0**-2, 2.0**10, 2.0**-6, 2.0**15, 2.0**-10)
    steps = [1.0, 0.25, 4.0, 0.5, 2.0, *(multiple * longest for multiple in multiples)]
    return _Line(direction=direction, steps=np.unique(steps[:most]))


def compute_gradients(
    points: PointRows, weights: FloatArray | None, thresholds: float | FloatArray, candidates: FloatArray
) -> FloatArray:
    """Return G(p) = sum_i a_i clamp(p - y_i, -T_i, T_i) at each candidate, in one pass over points of one column.

    **Formal guarantees**
    - Each is within `bound_gradient_error(n, 1, sum_i a_i T_i)` of the exact gradient (proof 3.5).
    - To the right (left) of all points it is not negative (positive), because no term is.
    """
    rows = block_rows(candidates.size)
    total = CompensatedSum(candidates.size)
    column, influences, ones = np.empty((rows, 1)), np.empty((rows, candidates.size)), np.ones(rows)
    for start in range(0, len(points), rows):
        window = slice(start, min(start + rows, len(points)))
        part = points.read(window, column)
        there = np.subtract(candidates, part, out=influences[: len(part)])
        own = thresholds if isinstance(thresholds, float) else thresholds[window, np.newaxis]
        np.clip(there, -own, own, out=there)
        total.add(weighted_row_sum(ones[: len(part)] if weights is None else weights[window], there))
    return total.total()


def find_stationary_point_by_sections(
    evaluate: Callable[[FloatArray], FloatArray],
    *,
    reach: float,
    guess: float,
    error: float,
    tolerance: float,
) -> StationaryPoint:
    """Find a point of small gradient in one column, from gradients that `evaluate` computes at many points per pass.

    All points lie within `reach` of 0, `guess` estimates the minimizer, `error` bounds the error of a gradient.

    **Formal guarantees** (proof 2.7)
    - norm_bound bounds the norm of the exact gradient at the point.
    - If tolerance >= 5 error + 8 W u reach, at most `MAX_SECTION_PASSES` passes are made for any data, and
      norm_bound <= tolerance.
    """
    candidates = _bracket_points(-reach, reach, guess)
    gradients = evaluate(candidates)
    while True:
        least = int(np.argmin(np.abs(gradients)))
        bound = float(abs(gradients[least])) * SLACK + error
        left = int(np.flatnonzero(gradients[:-1] < 0).max(initial=0))
        low, high = candidates[left : left + 2]
        share = gradients[left] / min(gradients[left] - gradients[left + 1], -TINY)
        inside = _bracket_points(low, high, low + min(share, 1.0) * (high - low))
        inside = inside[(inside > low) & (inside < high)]
        if bound <= tolerance or inside.size == 0:
            return StationaryPoint(point=candidates[least : least + 1].copy(), norm_bound=bound)
        ends = gradients[left : left + 2]
        candidates = np.concatenate(([low], inside, [high]))
        gradients = np.concatenate((ends[:1], evaluate(inside), ends[1:]))


def _bracket_points(low: float, high: float, guess: float) -> FloatArray:
    """Return both ends, the points of an even subdivision, and points increasingly close to the guess."""
    near = (high - low) * _BRACKET_NEAR
    even = np.linspace(low, high, SECTIONS + 1)
    return np.unique(np.clip(np.concatenate((even, guess - near, [guess], guess + near)), low, high))
