"""The Huber location of users most of whom lie within the threshold of their mean, without a look at each of them.

Those within the threshold are a core, whose loss is a sum of squares: their weight and their sum are all of it, and a
search among the others reads nobody else. Where it ends, the core must still be within the threshold, which the bounds
on distances tell of nearly all users without another look. Proof: proofs/huber-location.md, Lemma 2.8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hubermean.location.blocks import Problem
from hubermean.location.core import Core
from hubermean.location.descent import descend, look
from hubermean.location.distances import Distances
from hubermean.location.floats import SLACK, TINY, UNIT, length
from hubermean.location.rows import Floats, Positions
from hubermean.location.start import additions, mean, total

Booleans = npt.NDArray[np.bool_]

# With more than this share of the users or of their weight outside the core, a search looks at all as quickly.
_MOST_OUTSIDE = 1 / 8
# So often a core is chosen and searched around, while that leaves a part of it outside the threshold.
_ROUNDS = 4
# Rows of many columns are about as long as each other as a rule. Those so much longer than most are left out of the
# mean from which distances are measured, so that they cannot drag it away.
_LONG_ROW, _LONGER = 16, 4.0
# So many are searched among always, and in so many steps at least, so that a release takes about the same steps whether
# one user is beyond the threshold or none.
_FARTHEST, _STEPS = 8, 3
# Of so many users it is looked first whether they are near at all.
_SAMPLE = 128


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AroundCore:
    """A point, a bound on the norm of the exact gradient there, and the distances of all users; private."""

    point: Floats
    norm_bound: float
    distances: Distances


def by_core(problem: Problem, tolerance: float) -> tuple[Floats, AroundCore | None]:
    """(where a search may start, a point where the gradient is below the tolerance if one was found).

    *Formal guarantees*
    - The norm of the exact gradient at the point found is at most its bound, and that at most the tolerance.
    """
    threshold = problem.thresholds
    if not isinstance(threshold, float) or not problem.has_exact_weight:
        return mean(problem), None
    summed = _Summed.of(problem, threshold)
    if summed.weight == 0.0:
        return mean(problem), None
    start = centre = summed.mean
    # What rounding may do to the sum of users so near is known without a look; it must leave room for a search.
    if not summed.error(threshold + length(start), 0.0) <= 0.25 * tolerance:
        return start, None
    sample = np.unique(np.linspace(0, problem.n_users - 1, _SAMPLE).astype(np.intp))
    nearby = Distances.bounded(problem.points.some(sample), start).are_within(threshold)
    if np.mean(nearby) < 1.0 - 1.5 * _MOST_OUTSIDE:
        return start, None
    distances = Distances.bounded(problem.points, start)
    within = distances.are_within(threshold)
    for _ in range(_ROUNDS):
        outside = np.flatnonzero(_with_farthest(~within | summed.left_out, distances, problem))
        if not _are_few(outside, problem):
            break
        core = summed.without(outside, distances, threshold=threshold, reach=length(centre))
        if not core.force_error(centre) <= tolerance:  # nor would it be where a search ends
            break
        reduced = replace(problem.some(outside), core=core)
        found, steps = descend(reduced, look(reduced, centre), tolerance)
        for _ in range(steps, _STEPS):
            look(reduced, found.centre)
        if not found.norm_bound <= tolerance:
            break
        centre = found.centre
        distances = distances.seen_from(centre)
        within = distances.are_within(threshold)
        in_core = np.ones(problem.n_users, dtype=bool)
        in_core[outside] = False
        if within[in_core].all():
            return start, AroundCore(point=centre, norm_bound=found.norm_bound, distances=distances)
    return start, None


def _with_farthest(outside: Booleans, distances: Distances, problem: Problem) -> Booleans:
    """With the farthest users, too, but for those so heavy that together they might be no longer few."""
    count = min(_FARTHEST, max(1, int(_MOST_OUTSIDE * len(outside))))
    far = distances.most
    if problem.weights is not None:
        far = np.where(problem.weights * count <= _MOST_OUTSIDE * problem.total_weight, far, -1.0)
    outside[np.argpartition(far, -count)[-count:]] = True
    return outside


def _are_few(outside: Positions, problem: Problem) -> bool:
    """In number and in weight."""
    few = outside.size <= _MOST_OUTSIDE * problem.n_users
    if problem.weights is None:
        return few
    return few and float(np.sum(problem.weights[outside])) <= _MOST_OUTSIDE * problem.total_weight


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Summed:
    """The sum of all users but those whose rows are much longer than most."""

    problem: Problem
    left_out: Booleans
    weight: float
    total: Floats

    @classmethod
    def of(cls, problem: Problem, threshold: float) -> _Summed:
        left_out = _far(problem, threshold)
        kept = problem.some(np.flatnonzero(~left_out)) if left_out.any() else problem
        weight = float(kept.n_users) if kept.weights is None else float(np.sum(kept.weights))
        return cls(problem=problem, left_out=left_out, weight=weight, total=total(kept))

    @property
    def mean(self) -> Floats:
        with np.errstate(all="ignore"):
            return np.asarray(self.total / self.weight)

    def error(self, length_of_near: float, lengths_of_others: float) -> float:
        """Of the sum: of users no longer than so, and of others, whose weights times lengths add up to so much."""
        sizes = self.weight * length_of_near + lengths_of_others
        return SLACK * additions(self.problem) * UNIT * sizes + self._lost

    @property
    def _lost(self) -> float:
        return 2.0 * self.total.size * self.problem.n_users * TINY

    def without(self, outside: Positions, distances: Distances, *, threshold: float, reach: float) -> Core:
        """The core: all who were added up, but for these. `reach` is how far the centre of the distances is from 0."""
        removed = outside[~self.left_out[outside]]
        others = self.problem.some(removed)
        weights = np.ones(removed.size) if others.weights is None else others.weights
        sizes = float(weights @ (distances.most[removed] * SLACK + reach))
        near = threshold + reach
        # The second sum is made in fewer additions than the first, and one more takes it away.
        return Core(
            weight=self.weight - float(np.sum(weights)),
            total=self.total - total(others),
            error=2.0 * self.error(near, sizes) + 2.0 * UNIT * (self.weight * near + sizes),
            threshold=threshold,
        )


def _far(problem: Problem, threshold: float) -> Booleans:
    """Which rows are much longer than most and than the threshold, where lengths are known and these are few."""
    points = problem.points
    nobody = np.zeros(len(points), dtype=bool)
    if points.squares is None or points.shape[1] < _LONG_ROW:
        return nobody
    limit = max(_LONGER * _LONGER * float(np.median(points.squares)), threshold * threshold)
    far = np.asarray(~(points.squares <= limit))
    return far if _are_few(np.flatnonzero(far), problem) else nobody
