"""What `norm-clipping` asks of the private table: users within distances, clipped sums, and sums along a direction.

Users on one machine are read by several threads, and distances are kept for the sums that follow. Users in partitions
answer the same queries in one pass each. Every answer is a sum over users of integers that follow from one user alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.rows import Precision, Rows
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.mechanisms.contributions import user_weights
from hubermean.mechanisms.norm_clipping.plan import DISTANCES, UNIT
from hubermean.types.request import Request

SinglePrecision = NDArray[np.float32]

RADII: FloatArray = np.exp2((np.arange(DISTANCES) - 120) / 4.0)
"""The public grid of distances: a quarter of an octave apart, from 2^-30 to 2^60."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class View:
    """How users are looked at; public or released.

    Attributes:
        center: the point that distances are measured from, in units of the scales; None for zero.
        scales: factors of the columns; None for one.
        request, cap: decide the weight of a user.
        direction: None for distances, else the direction along which users are measured.
        origin: along the direction, from the center.
    """

    request: Request
    cap: int
    center: SinglePrecision | None = None
    scales: SinglePrecision | None = None
    direction: SinglePrecision | None = None
    origin: float = 0.0

    @property
    def key(self) -> Hashable:
        """All of it, by value."""
        return tuple(
            one.tobytes() if isinstance(one, np.ndarray) else one
            for one in (getattr(self, field.name) for field in fields(self))
        )

    def rows(self, part: UserTable) -> Rows:
        array = part.cached("matrix", part.matrix)
        kind: Precision = np.float32 if part.in_single else np.float64
        center, scales = (None if one is None else one.astype(kind) for one in (self.center, self.scales))
        return Rows(
            array=array,
            precision=kind,
            usable=part.counts > 0,
            center=center,
            scales=scales,
            squares=part.squared_row_norms(),
        )

    def weights(self, part: UserTable) -> FloatArray:
        weights = user_weights(part, self.request, self.cap).astype(np.float64)
        weights[part.counts == 0] = 0.0
        return weights

    def lengths(self, part: UserTable) -> FloatArray:
        """Return the distance of each user from the center, or its signed one from the origin along a direction."""
        rows = self.rows(part)
        return rows.distances() if self.direction is None else rows.along(self.direction) - self.origin


@dataclass(frozen=True, eq=False, repr=False)
class CountWithin:
    """(users with usable records within each radius, weighted; users with usable records)."""

    view: View

    def __call__(self, part: UserTable, lengths: FloatArray | None = None) -> tuple[IntArray, int]:
        lengths = self.view.lengths(part) if lengths is None else lengths
        usable = part.counts > 0
        influence = np.sort(self.view.weights(part)[usable] * np.abs(lengths[usable]))
        return np.searchsorted(influence, RADII, side="right").astype(np.int64), len(influence)


@dataclass(frozen=True, eq=False, repr=False)
class SumClipped:
    """The sum of clipped vectors on the grid, and of the weights that clipping left, in grid units."""

    view: View
    threshold: float
    weight_share: float

    def __call__(self, part: UserTable, lengths: FloatArray | None = None) -> list[int]:
        lengths = self.view.lengths(part) if lengths is None else lengths
        weights = self.view.weights(part)
        with np.errstate(all="ignore"):
            left = np.minimum(weights, self.threshold / lengths)  # of a user's weight
        left[~np.isfinite(lengths)] = 0.0
        vector = self.view.rows(part).weighted_sum(left * (UNIT / self.threshold))
        weight = np.rint(left * (self.weight_share * UNIT / self.view.cap)).astype(np.int64).sum()
        return [*vector.tolist(), int(weight)]


@dataclass(frozen=True, eq=False, repr=False)
class SumAlong:
    """The sum of clipped lengths along a direction, and of weights, in grid units."""

    view: View
    reach: float
    weight_share: float

    def __call__(self, part: UserTable, lengths: FloatArray | None = None) -> list[int]:
        lengths = self.view.lengths(part) if lengths is None else lengths
        weights = self.view.weights(part)
        clipped = np.clip(weights * lengths, -self.reach, self.reach)
        total = np.rint(clipped * (UNIT / self.reach)).astype(np.int64).sum()
        weight = np.rint(weights * (self.weight_share * UNIT / self.view.cap)).astype(np.int64).sum()
        return [int(total), int(weight)]


Query = CountWithin | SumClipped | SumAlong


@dataclass(eq=False, repr=False)
class VectorUsers:
    """The users of a table, and the answers to earlier queries, for one release."""

    table: PrivateTable
    _lengths: dict[Hashable, FloatArray] = field(default_factory=dict)
    _sums: dict[Hashable, list[int]] = field(default_factory=dict)

    def count_within(self, view: View) -> tuple[IntArray, int]:
        counts, totals = zip(*self._ask(CountWithin(view)), strict=True)
        return np.sum(counts, axis=0, dtype=np.int64), sum(totals)

    def sum_clipped(self, view: View, threshold: float, weight_share: float) -> list[int]:
        key = (view.key, threshold, weight_share)
        if key not in self._sums:
            answers = self._ask(SumClipped(view, threshold, weight_share))
            self._sums = {key: [sum(one) for one in zip(*answers, strict=True)]}  # one is enough to keep
        return self._sums[key]

    def sum_along(self, view: View, reach: float, weight_share: float) -> list[int]:
        answers = self._ask(SumAlong(view, reach, weight_share))
        return [sum(one) for one in zip(*answers, strict=True)]

    def _ask(self, query: Query) -> list[Any]:
        if not isinstance(self.table, UserTable):
            ask: Callable[[UserTable], Any] = query
            return self.table.map_partitions(ask)
        name = query.view.key
        if name not in self._lengths:
            self._lengths = {name: query.view.lengths(self.table)}
        return [query(self.table, self._lengths[name])]
