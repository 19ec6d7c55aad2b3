"""The Huber center of users in partitions, and the weight of users by depth: few passes, small answers.

Every query is a small picklable object. The size of its answer depends on the number of columns and on public numbers,
never on the number of users. What a user's point becomes does not depend on its partition
(proofs/smooth-sensitivity.md, Lemma 1). Proof: proofs/propose-test-release.md, "Users on partitions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.huber.distributed_solver import (
    MAX_PASSES,
    PARTITION_TOLERANCE,
    DistributedSearch,
    compute_gradients,
    find_partition_center,
    find_stationary_point_by_sections,
)
from hubermean.huber.geometry import Geometry, HuberCenter, WeightByDepth
from hubermean.huber.numerics import SLACK, sum_vectors
from hubermean.huber.passes import GradientEvaluation, GradientSums
from hubermean.huber.points import PointRows
from hubermean.huber.problem import HuberProblem, bound_gradient_error
from hubermean.huber.solver import StationaryPoint, find_stationary_point


class PointReader(Protocol):
    """How users become weighted points: public and picklable, the same rule in every partition."""

    @property
    def geometry(self) -> Geometry: ...

    def read(self, table: UserTable) -> tuple[PointRows, IntArray | None]:
        """Points and weights of the users with a usable record; None stands for weights of one."""


class HuberCenterSearch:
    """The total weight of the users at once, and their Huber center when it is needed; private.

    Over partitions the total weight takes the first of the passes that the center takes, and the center is located at
    the first call of `locate`. On one machine both are computed together.
    """

    def __init__(self, table: PrivateTable, points: PointReader) -> None:
        self._users = None if isinstance(table, UserTable) else PartitionedUsers.summarize(table, points)
        self._table, self._points = table, points

    @cached_property
    def _center(self) -> HuberCenter:
        if isinstance(self._table, UserTable):
            return self._points.geometry.locate(*self._points.read(self._table))
        assert self._users is not None
        return self._users.locate()

    def locate(self) -> HuberCenter:
        """The Huber center, computed once.

        *Formal guarantees* (proofs/propose-test-release.md, "Users on partitions")
        - Where it is certified, the gradient at the center is at most `Geometry.gradient_rate` times the total weight.
        - At most 11 passes over partitions are made, and one more for the depths.
        - In one column the center is certified for every table. In several columns it is certified for every table
          whose center is held, and for all neighbors of such a table (Lemma 5); others may need
          `search_until_certified`.
        """
        return self._center

    @property
    def total_weight(self) -> int:
        return self._center.total_weight if self._users is None else self._users.weight


def locate(table: PrivateTable, points: PointReader) -> HuberCenter:
    """The Huber center of the users, as `CenterSearch.locate`."""
    return HuberCenterSearch(table, points).locate()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PartitionedUsers:
    """Users in partitions, after a first pass; private.

    Attributes:
        n_users: how many have a usable record.
        weight: their total weight.
        start: a rough center, where the search begins.
    """

    table: PrivateTable
    points: PointReader
    n_users: int
    weight: int
    start: FloatArray

    @classmethod
    def summarize(cls, table: PrivateTable, points: PointReader) -> PartitionedUsers:
        """Make the first pass."""
        summaries = [part for part in table.map_partitions(_SummaryQuery(points=points)) if part.n_users]
        geometry = points.geometry
        start = np.zeros(geometry.dimension)
        if summaries:
            start = find_partition_center(
                np.array([part.center for part in summaries]),
                np.array([part.weight for part in summaries], dtype=np.float64),
                threshold=geometry.threshold,
            )
        return cls(
            table=table,
            points=points,
            n_users=sum(part.n_users for part in summaries),
            weight=sum(part.weight for part in summaries),
            start=start,
        )

    def locate(self) -> PartitionedCenter:
        """The Huber center, by the passes that `CenterSearch.locate` bounds."""
        if not self.n_users:
            return PartitionedCenter(
                center=self.start, total_weight=0, certified=False, users=self, search=None
            )
        if self.points.geometry.dimension == 1:
            return self.center_at(self.find_stationary_point())
        search = DistributedSearch(self, self.start, tolerance=self.tolerance)
        search.run(MAX_PASSES)
        return self.center_at(search.result, search)

    @property
    def total_weight(self) -> float:
        return float(self.weight)

    @property
    def threshold(self) -> float:
        return self.points.geometry.threshold

    @property
    def tolerance(self) -> float:
        return self.points.geometry.gradient_rate * self.weight

    def find_stationary_point(self) -> StationaryPoint:
        """A point of small gradient, in one column, searched for from the start on."""
        return find_stationary_point_by_sections(
            self.gradients,
            reach=SLACK * self.points.geometry.clamp,
            guess=float(self.start[0]),
            error=bound_gradient_error(self.n_users, 1, SLACK * self.threshold * self.total_weight),
            tolerance=self.tolerance,
        )

    def center_at(self, found: StationaryPoint, search: DistributedSearch | None = None) -> PartitionedCenter:
        """What was found, with its certificate; `search` is what found it, in several columns."""
        return PartitionedCenter(
            center=found.point,
            total_weight=self.weight,
            certified=found.norm_bound <= self.tolerance,
            users=self,
            search=search,
        )

    def gradients(self, places: FloatArray) -> FloatArray:
        """The gradient at several points of one column, in one pass."""
        return sum_vectors(self.table.map_partitions(_GradientQuery(points=self.points, locations=places)))

    def evaluate_gradients(
        self, centers: Sequence[FloatArray], *, hessian: bool, widths: Sequence[float] | None = None
    ) -> list[GradientEvaluation]:
        """The sums around several points, in one pass."""
        widths = [1.0] * len(centers) if widths is None else widths
        query = _SweepQuery(
            points=self.points, locations=tuple(zip(centers, widths, strict=True)), hessian=hessian
        )
        answers = self.table.map_partitions(query)
        return [
            GradientEvaluation.from_sums(
                GradientSums.combine([answer[number] for answer in answers]),
                center,
                n_users=self.n_users,
                total_weight_bound=self.total_weight * SLACK,
            )
            for number, center in enumerate(centers)
        ]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PartitionedCenter(HuberCenter):
    """The center of users in partitions; their depths are computed where they are.

    `search` is what found it, in several columns.
    """

    users: PartitionedUsers = field(repr=False)
    search: DistributedSearch | None = field(repr=False)

    def search_until_certified(self) -> PartitionedCenter:
        if self.certified or self.search is None:
            return self
        self.search.run()
        return self.users.center_at(self.search.result, self.search)

    def weights_at_depths(self, depths: FloatArray) -> WeightByDepth:
        query = _DepthQuery(points=self.users.points, center=self.center, depths=depths)
        beyond = sum(self.users.table.map_partitions(query), np.zeros(len(depths), dtype=np.int64))
        return _WeightsAtDepths(
            total_weight=self.total_weight, beyond=dict(zip(depths.tolist(), beyond.tolist(), strict=True))
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _WeightsAtDepths:
    """The weight of users beyond each of the depths that were queried."""

    total_weight: int
    beyond: dict[float, int]

    def weight_beyond(self, depth: float) -> int:
        return self.beyond[depth]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Summary:
    """The users of a partition with a usable record: their number, weight and rough center."""

    n_users: int
    weight: int
    center: FloatArray


@dataclass(frozen=True, kw_only=True, repr=False)
class _SummaryQuery:
    """The summary of a partition."""

    points: PointReader

    def __call__(self, part: UserTable) -> _Summary:
        points, weights = self.points.read(part)
        geometry = self.points.geometry
        if len(points) == 0:
            return _Summary(n_users=0, weight=0, center=np.zeros(geometry.dimension))
        weight = len(points) if weights is None else int(weights.sum())
        center = find_stationary_point(
            points,
            weights=weights,
            thresholds=geometry.thresholds(weights),
            tolerance=PARTITION_TOLERANCE * geometry.threshold * weight,
        ).point
        return _Summary(n_users=len(points), weight=weight, center=center)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _GradientQuery:
    """The gradient of a partition at several points of one column."""

    points: PointReader
    locations: FloatArray

    def __call__(self, part: UserTable) -> FloatArray:
        points, weights = self.points.read(part)
        masses = None if weights is None else weights.astype(np.float64)
        return compute_gradients(points, masses, self.points.geometry.thresholds(weights), self.locations)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _SweepQuery:
    """The sums of a partition around several centers, each with its own multiple of the threshold."""

    points: PointReader
    locations: tuple[tuple[FloatArray, float], ...]
    hessian: bool

    def __call__(self, part: UserTable) -> list[GradientSums]:
        points, weights = self.points.read(part)
        geometry = self.points.geometry
        if len(points) == 0:
            return [
                GradientSums.zero(geometry.dimension, hessian=self.hessian).compress() for _ in self.locations
            ]
        own = geometry.thresholds(weights)
        problem, _ = HuberProblem.build(points, weights, own)
        return [
            GradientSums.compute(
                replace(problem, thresholds=width * own), center, hessian=self.hessian
            ).compress()
            for center, width in self.locations
        ]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _DepthQuery:
    """The weight of a partition's users at least as deep as each of some ascending depths; exact."""

    points: PointReader
    center: FloatArray
    depths: FloatArray

    def __call__(self, part: UserTable) -> IntArray:
        points, weights = self.points.read(part)
        between = np.zeros(len(self.depths) + 1, dtype=np.int64)
        if len(points):
            passed = np.searchsorted(
                self.depths, self.points.geometry.depths(points, self.center, weights), side="right"
            )
            np.add.at(between, passed, 1 if weights is None else weights)
        # A user that passes k of the depths is at least as deep as each of the first k.
        return np.asarray(np.cumsum(between[::-1])[::-1][1:])
