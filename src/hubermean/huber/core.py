"""The Huber location when most users are within the threshold of their mean, without reading every user in each pass.

The users within the threshold form a core. The loss of the core is quadratic and is determined by its weight and its
sum, so the search reads only the other users. At the end the core must still be within the threshold; bounds on
distances confirm that for nearly all users without another pass. Proof: proofs/huber-location.md, Lemma 2.8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray
from hubermean.huber.descent import descend, evaluate
from hubermean.huber.distances import Distances
from hubermean.huber.numerics import SLACK, TINY, UNIT, Positions, euclidean_norm
from hubermean.huber.passes import count_roundings, weighted_mean, weighted_sum
from hubermean.huber.problem import Core, HuberProblem

Booleans = npt.NDArray[np.bool_]

# If more than this share of the users or of their weight is outside the core, a full search is as fast.
_MAX_OUTSIDE_SHARE = 1 / 8
# Maximum number of cores tried, while the search moves some of its users beyond the threshold.
_ROUNDS = 4
# In wide data most rows have similar norms. Rows with a much larger norm are excluded from the mean
# from which distances are measured, so that they cannot move it.
_MIN_LONG_COLUMNS, _LONG_FACTOR = 16, 4.0
# The search always includes this many of the farthest users and takes at least this many steps, so that a release takes
# about the same steps whether one user is beyond the threshold or none.
_FARTHEST, _MIN_STEPS = 8, 3
# Size of the sample that is tested first: are most users near the mean?
_SAMPLE = 128


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CoreSolution:
    """A point, a bound on the norm of the exact gradient there, and the distances of all users. Private."""

    point: FloatArray
    norm_bound: float
    distances: Distances


def search_around_core(problem: HuberProblem, tolerance: float) -> tuple[FloatArray, CoreSolution | None]:
    """Return a start for a search, and a point with a gradient below the tolerance if one was found.

    **Formal guarantees**
    - The norm of the exact gradient at the point is at most `norm_bound`, which is at most the tolerance.
    """
    threshold = problem.thresholds
    if not isinstance(threshold, float) or not problem.has_exact_weight:
        return weighted_mean(problem), None
    summed = _TrimmedSum.compute(problem, threshold)
    if summed.weight == 0.0:
        return weighted_mean(problem), None
    start = center = summed.mean
    # The rounding error of the sum is known in advance. It must leave room for the search.
    if not summed.error(threshold + euclidean_norm(start), 0.0) <= 0.25 * tolerance:
        return start, None
    sample = np.unique(np.linspace(0, problem.n_users - 1, _SAMPLE).astype(np.intp))
    nearby = Distances.bounded(problem.points.take(sample), start).are_within(threshold)
    if np.mean(nearby) < 1.0 - 1.5 * _MAX_OUTSIDE_SHARE:
        return start, None
    distances = Distances.bounded(problem.points, start)
    within = distances.are_within(threshold)
    for _ in range(_ROUNDS):
        outside = np.flatnonzero(_add_farthest(~within | summed.excluded, distances, problem))
        if not _are_few(outside, problem):
            break
        core = summed.without(outside, distances, threshold=threshold, reach=euclidean_norm(center))
        if not core.negative_gradient_error(center) <= tolerance:  # nor would it be at the end of a search
            break
        reduced = replace(problem.take(outside), core=core)
        found, steps = descend(reduced, evaluate(reduced, center), tolerance)
        for _ in range(steps, _MIN_STEPS):
            evaluate(reduced, found.center)
        if not found.norm_bound <= tolerance:
            break
        center = found.center
        distances = distances.moved_to(center)
        within = distances.are_within(threshold)
        in_core = np.ones(problem.n_users, dtype=bool)
        in_core[outside] = False
        if within[in_core].all():
            return start, CoreSolution(point=center, norm_bound=found.norm_bound, distances=distances)
    return start, None


def _add_farthest(outside: Booleans, distances: Distances, problem: HuberProblem) -> Booleans:
    """Add the farthest users to `outside`, except users so heavy that the others would no longer be few."""
    count = min(_FARTHEST, max(1, int(_MAX_OUTSIDE_SHARE * len(outside))))
    far = distances.upper
    if problem.weights is not None:
        far = np.where(problem.weights * count <= _MAX_OUTSIDE_SHARE * problem.total_weight, far, -1.0)
    outside[np.argpartition(far, -count)[-count:]] = True
    return outside


def _are_few(outside: Positions, problem: HuberProblem) -> bool:
    """Return whether these users are few, both in number and in weight."""
    few = outside.size <= _MAX_OUTSIDE_SHARE * problem.n_users
    if problem.weights is None:
        return few
    return few and float(np.sum(problem.weights[outside])) <= _MAX_OUTSIDE_SHARE * problem.total_weight


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _TrimmedSum:
    """The sum of all users except those whose row norm is much larger than most."""

    problem: HuberProblem
    excluded: Booleans
    weight: float
    total: FloatArray

    @classmethod
    def compute(cls, problem: HuberProblem, threshold: float) -> _TrimmedSum:
        excluded = _find_long_rows(problem, threshold)
        kept = problem.take(np.flatnonzero(~excluded)) if excluded.any() else problem
        weight = float(kept.n_users) if kept.weights is None else float(np.sum(kept.weights))
        return cls(problem=problem, excluded=excluded, weight=weight, total=weighted_sum(kept))

    @property
    def mean(self) -> FloatArray:
        with np.errstate(all="ignore"):
            return np.asarray(self.total / self.weight)

    def error(self, norm_of_near: float, norms_of_others: float) -> float:
        """Bound the error of the sum.

        `norm_of_near` bounds the norms of nearby users; `norms_of_others` is the weighted sum of the other norms.
        """
        sizes = self.weight * norm_of_near + norms_of_others
        return SLACK * count_roundings(self.problem) * UNIT * sizes + self._underflow_error

    @property
    def _underflow_error(self) -> float:
        return 2.0 * self.total.size * self.problem.n_users * TINY

    def without(self, outside: Positions, distances: Distances, *, threshold: float, reach: float) -> Core:
        """Return the core: all summed users except `outside`. `reach` is the norm of the center of the distances."""
        removed = outside[~self.excluded[outside]]
        others = self.problem.take(removed)
        weights = np.ones(removed.size) if others.weights is None else others.weights
        sizes = float(weights @ (distances.upper[removed] * SLACK + reach))
        near = threshold + reach
        # The second sum takes fewer additions than the first, plus one subtraction.
        return Core(
            weight=self.weight - float(np.sum(weights)),
            total=self.total - weighted_sum(others),
            error=2.0 * self.error(near, sizes) + 2.0 * UNIT * (self.weight * near + sizes),
            threshold=threshold,
        )


def _find_long_rows(problem: HuberProblem, threshold: float) -> Booleans:
    """Return which rows have norms far above the median and the threshold, if norms are known and these rows few."""
    points = problem.points
    none = np.zeros(len(points), dtype=bool)
    if points.squares is None or points.shape[1] < _MIN_LONG_COLUMNS:
        return none
    limit = max(_LONG_FACTOR * _LONG_FACTOR * float(np.median(points.squares)), threshold * threshold)
    far = np.asarray(~(points.squares <= limit))
    return far if _are_few(np.flatnonzero(far), problem) else none
