"""Users spread over many machines: where their centre is and how deep they lie, in few passes and with small answers.

Every question is a `look` at a part of the table, a small object that can travel; what it brings back is of a size
that depends on the number of columns and on public numbers, never on how many users there are. What becomes of a user
is the same wherever it is (proofs/smooth.md, Lemma 1). Proof: proofs/tested.md, "Users in parts".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hubermean.location import (
    Rows,
    gradients_at,
    small_gradient,
    small_gradient_by_sections,
    small_gradient_in_rounds,
)
from hubermean.location.blocks import SLACK, Problem, gradient_error
from hubermean.location.huber import SmallGradient, sample_size
from hubermean.location.sums import added_up
from hubermean.location.sweep import Sums, Sweep
from hubermean.mechanisms.certified_bounds import Floats, Integers
from hubermean.mechanisms.geometry import DeepWeight, Geometry, Located
from hubermean.mechanisms.protocol import Request
from hubermean.user_table import PrivateTable, UserTable

_START_TOLERANCE = (
    2.0**-20
)  # gradient per unit of weight, in thresholds: a start need not be better than its sample


@dataclass(frozen=True, kw_only=True)
class AsPoints:
    """Public: how users become points and weights, in every part alike."""

    geometry: Geometry
    request: Request
    cap: int

    def users(self, part: UserTable) -> tuple[Rows, Integers | None]:
        return self.geometry.users(part, self.request, self.cap)


def locate(table: PrivateTable, reading: AsPoints) -> Located:
    """The centre of the users, on this machine if they are held here, else in passes over their parts.

    *Formal guarantees* (proofs/tested.md, "Users in parts")
    - The gradient at the centre is at most `Geometry.gradient_rate` times the total weight, for every table.
    - In one column at most 9 passes over parts are made, and one more for the depths.
    """
    if isinstance(table, UserTable):
        return reading.geometry.locate(*reading.users(table))
    users = SpreadUsers.counted(table, reading)
    gradient = reading.geometry.gradient_rate * users.weight
    found = users.small_gradient(gradient) if users.n_users else None
    return SpreadLocated(
        centre=np.zeros(reading.geometry.dimension) if found is None else found.point,
        total_weight=users.weight,
        certified=found is not None and found.norm_bound <= gradient,
        table=table,
        reading=reading,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpreadUsers:
    """Users in parts, of whom it is known how many have a usable record, what they weigh, and a sample; private."""

    table: PrivateTable
    reading: AsPoints
    n_users: int
    weight: int
    sample: Floats
    masses: Floats

    @classmethod
    def counted(cls, table: PrivateTable, reading: AsPoints) -> SpreadUsers:
        """In one pass."""
        every = max(1, -(-table.n_users // sample_size(reading.geometry.dimension)))
        answers = table.each_part(_Sample(reading=reading, every=every))
        return cls(
            table=table,
            reading=reading,
            n_users=sum(answer.n_users for answer in answers),
            weight=sum(answer.weight for answer in answers),
            sample=np.concatenate(
                [np.empty((0, reading.geometry.dimension)), *(one.rows for one in answers)]
            ),
            masses=np.concatenate([np.empty(0), *(one.masses for one in answers)]),
        )

    @property
    def total_weight(self) -> float:
        return float(self.weight)

    def small_gradient(self, tolerance: float) -> SmallGradient:
        """From the centre of the sample on."""
        geometry = self.reading.geometry
        start = small_gradient(
            self.sample,
            weights=self.masses,
            thresholds=geometry.threshold,
            tolerance=_START_TOLERANCE * geometry.threshold * self.total_weight,
        ).point
        if geometry.dimension > 1:
            return small_gradient_in_rounds(self, start, tolerance=tolerance)
        return small_gradient_by_sections(
            self.gradients,
            reach=SLACK * geometry.clamp,
            guess=float(start[0]),
            error=gradient_error(self.n_users, 1, SLACK * geometry.threshold * self.total_weight),
            tolerance=tolerance,
        )

    def gradients(self, places: Floats) -> Floats:
        """At several places of one column, in one pass."""
        return added_up(self.table.each_part(_Gradients(reading=self.reading, places=places)))

    def sweeps(self, centres: Sequence[Floats], *, hessian: bool) -> list[Sweep]:
        """From several places, in one pass."""
        look = _Sweeps(reading=self.reading, centres=tuple(centres), hessian=hessian)
        answers = self.table.each_part(look)
        return [
            Sweep.of(
                Sums.added([answer[place] for answer in answers]),
                centre,
                n_users=self.n_users,
                total_weight_bound=self.total_weight * SLACK,
            )
            for place, centre in enumerate(centres)
        ]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpreadLocated(Located):
    """Users in parts: their depths are looked up where they are."""

    table: PrivateTable = field(repr=False)
    reading: AsPoints = field(repr=False)

    def at_depths(self, depths: Floats) -> DeepWeight:
        look = _Deep(reading=self.reading, centre=self.centre, depths=depths)
        beyond = sum(self.table.each_part(look), np.zeros(len(depths), dtype=np.int64))
        return _KnownWeights(
            total_weight=self.total_weight, beyond=dict(zip(depths.tolist(), beyond.tolist(), strict=True))
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _KnownWeights:
    """The weight of users beyond each of the depths that were asked for."""

    total_weight: int
    beyond: dict[float, int]

    def weight_beyond(self, depth: float) -> int:
        return self.beyond[depth]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Sampled:
    """Of a part: its users with a usable record, their weight, and some rows with what each stands for."""

    n_users: int
    weight: int
    rows: Floats
    masses: Floats


@dataclass(frozen=True, kw_only=True, repr=False)
class _Sample:
    """One in `every` users of a part, at least one, evenly spaced by weight so that no heavy user is missed."""

    reading: AsPoints
    every: int

    def __call__(self, part: UserTable) -> _Sampled:
        points, weights = self.reading.users(part)
        n = len(points)
        total = n if weights is None else int(weights.sum())
        taken = -(-n // self.every)
        marks = ((np.arange(taken) + 0.5) * (total / max(taken, 1))).astype(np.int64)
        positions = marks if weights is None else np.searchsorted(np.cumsum(weights), marks, side="right")
        # Rounding must not lead beyond the last user.
        positions = np.minimum(positions, n - 1)
        return _Sampled(
            n_users=n,
            weight=total,
            rows=points[positions],
            masses=np.full(taken, total / max(taken, 1)),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Gradients:
    """The gradient of a part at several places of one column."""

    reading: AsPoints
    places: Floats

    def __call__(self, part: UserTable) -> Floats:
        points, weights = self.reading.users(part)
        masses = None if weights is None else weights.astype(np.float64)
        return gradients_at(points, masses, self.reading.geometry.threshold, self.places)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Sweeps:
    """The sums of a part seen from several centres."""

    reading: AsPoints
    centres: tuple[Floats, ...]
    hessian: bool

    def __call__(self, part: UserTable) -> list[Sums]:
        points, weights = self.reading.users(part)
        geometry = self.reading.geometry
        if len(points) == 0:
            return [Sums.nothing(geometry.dimension, hessian=self.hessian).light() for _ in self.centres]
        problem, _ = Problem.build(points, weights, geometry.threshold)
        return [Sums.of(problem, centre, hessian=self.hessian).light() for centre in self.centres]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Deep:
    """The weight of a part's users at least as deep as each of some depths, which rise; exact."""

    reading: AsPoints
    centre: Floats
    depths: Floats

    def __call__(self, part: UserTable) -> Integers:
        points, weights = self.reading.users(part)
        between = np.zeros(len(self.depths) + 1, dtype=np.int64)
        if len(points):
            passed = np.searchsorted(
                self.depths, self.reading.geometry.depths(points, self.centre), side="right"
            )
            np.add.at(between, passed, 1 if weights is None else weights)
        # A user that passes k of the depths is at least as deep as each of the first k.
        return np.asarray(np.cumsum(between[::-1])[::-1][1:])
