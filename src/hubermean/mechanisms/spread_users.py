"""Users spread over many machines: where their centre is and how deep they lie, in few passes and with small answers.

Every question is a `look` at a part of the table, a small object that can travel; what it brings back is of a size
that depends on the number of columns and on public numbers, never on how many users there are. What becomes of a user
is the same wherever it is (proofs/smooth.md, Lemma 1). Proof: proofs/tested.md, "Users in parts".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hubermean.location import Rows, Search, gradients_at, small_gradient, small_gradient_by_sections
from hubermean.location.blocks import Problem, gradient_error
from hubermean.location.floats import SLACK
from hubermean.location.huber import SmallGradient
from hubermean.location.rounds import MOST_PASSES, PART_TOLERANCE, centre_of_parts
from hubermean.location.sums import added_up
from hubermean.location.sweep import Sums, Sweep
from hubermean.mechanisms.certified_bounds import Floats, Integers
from hubermean.mechanisms.geometry import DeepWeight, Geometry, Located
from hubermean.mechanisms.protocol import Request
from hubermean.user_table import PrivateTable, UserTable


@dataclass(frozen=True, kw_only=True)
class AsPoints:
    """Public: how users become points and weights, in every part alike."""

    geometry: Geometry
    request: Request
    cap: int

    def users(self, part: UserTable) -> tuple[Rows, Integers | None]:
        return self.geometry.users(part, self.request, self.cap)


def locate(table: PrivateTable, reading: AsPoints, counted: SpreadUsers | None = None) -> Located:
    """The centre of the users, on this machine if they are held here, else in passes over their parts.

    `counted` is what the first of the passes found, if that was made before.

    *Formal guarantees* (proofs/tested.md, "Users in parts")
    - Where it is certified, the gradient at the centre is at most `Geometry.gradient_rate` times the total weight.
    - At most 11 passes over parts are made, and one more for the depths.
    - In one column the centre is certified for every table. In several columns it is for every table whose centre
      is held, and for all neighbours of such a table (Lemma 5); others may need `searched_to_the_end`.
    """
    if isinstance(table, UserTable):
        return reading.geometry.locate(*reading.users(table))
    users = counted or SpreadUsers.counted(table, reading)
    if not users.n_users:
        return SpreadLocated(centre=users.start, total_weight=0, certified=False, users=users, search=None)
    if reading.geometry.dimension == 1:
        return users.located(users.small_gradient())
    search = Search(users, users.start, tolerance=users.tolerance)
    search.go_on(MOST_PASSES)
    return users.located(search.found, search)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpreadUsers:
    """Users in parts, of whom it is known how many have a usable record, what they weigh, and about where they are;
    private."""

    table: PrivateTable
    reading: AsPoints
    n_users: int
    weight: int
    start: Floats

    @classmethod
    def counted(cls, table: PrivateTable, reading: AsPoints) -> SpreadUsers:
        """In one pass."""
        answers = [answer for answer in table.each_part(_Count(reading=reading)) if answer.n_users]
        geometry = reading.geometry
        start = np.zeros(geometry.dimension)
        if answers:
            start = centre_of_parts(
                np.array([answer.centre for answer in answers]),
                np.array([answer.weight for answer in answers], dtype=np.float64),
                threshold=geometry.threshold,
            )
        return cls(
            table=table,
            reading=reading,
            n_users=sum(answer.n_users for answer in answers),
            weight=sum(answer.weight for answer in answers),
            start=start,
        )

    @property
    def total_weight(self) -> float:
        return float(self.weight)

    @property
    def threshold(self) -> float:
        return self.reading.geometry.threshold

    @property
    def tolerance(self) -> float:
        return self.reading.geometry.gradient_rate * self.weight

    def small_gradient(self) -> SmallGradient:
        """In one column, from the start on."""
        return small_gradient_by_sections(
            self.gradients,
            reach=SLACK * self.reading.geometry.clamp,
            guess=float(self.start[0]),
            error=gradient_error(self.n_users, 1, SLACK * self.threshold * self.total_weight),
            tolerance=self.tolerance,
        )

    def located(self, found: SmallGradient, search: Search | None = None) -> SpreadLocated:
        return SpreadLocated(
            centre=found.point,
            total_weight=self.weight,
            certified=found.norm_bound <= self.tolerance,
            users=self,
            search=search,
        )

    def gradients(self, places: Floats) -> Floats:
        """At several places of one column, in one pass."""
        return added_up(self.table.each_part(_Gradients(reading=self.reading, places=places)))

    def sweeps(
        self, centres: Sequence[Floats], *, hessian: bool, widths: Sequence[float] | None = None
    ) -> list[Sweep]:
        """From several places, in one pass."""
        widths = [1.0] * len(centres) if widths is None else widths
        look = _Sweeps(reading=self.reading, places=tuple(zip(centres, widths, strict=True)), hessian=hessian)
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
    """Users in parts: their depths are looked up where they are. `search` is what found them, in several columns."""

    users: SpreadUsers = field(repr=False)
    search: Search | None = field(repr=False)

    def searched_to_the_end(self) -> SpreadLocated:
        if self.certified or self.search is None:
            return self
        self.search.go_on()
        return self.users.located(self.search.found, self.search)

    def at_depths(self, depths: Floats) -> DeepWeight:
        look = _Deep(reading=self.users.reading, centre=self.centre, depths=depths)
        beyond = sum(self.users.table.each_part(look), np.zeros(len(depths), dtype=np.int64))
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
class _Counted:
    """Of a part: its users with a usable record, their weight, and where they have their centre."""

    n_users: int
    weight: int
    centre: Floats


@dataclass(frozen=True, kw_only=True, repr=False)
class _Count:
    """How many there are, and about where."""

    reading: AsPoints

    def __call__(self, part: UserTable) -> _Counted:
        points, weights = self.reading.users(part)
        geometry = self.reading.geometry
        if len(points) == 0:
            return _Counted(n_users=0, weight=0, centre=np.zeros(geometry.dimension))
        weight = len(points) if weights is None else int(weights.sum())
        centre = small_gradient(
            points,
            weights=weights,
            thresholds=geometry.thresholds(weights),
            tolerance=PART_TOLERANCE * geometry.threshold * weight,
        ).point
        return _Counted(n_users=len(points), weight=weight, centre=centre)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Gradients:
    """The gradient of a part at several places of one column."""

    reading: AsPoints
    places: Floats

    def __call__(self, part: UserTable) -> Floats:
        points, weights = self.reading.users(part)
        masses = None if weights is None else weights.astype(np.float64)
        return gradients_at(points, masses, self.reading.geometry.thresholds(weights), self.places)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Sweeps:
    """The sums of a part seen from several centres, each with its own multiple of the threshold."""

    reading: AsPoints
    places: tuple[tuple[Floats, float], ...]
    hessian: bool

    def __call__(self, part: UserTable) -> list[Sums]:
        points, weights = self.reading.users(part)
        geometry = self.reading.geometry
        if len(points) == 0:
            return [Sums.nothing(geometry.dimension, hessian=self.hessian).light() for _ in self.places]
        own = geometry.thresholds(weights)
        problem, _ = Problem.build(points, weights, own)
        return [
            Sums.of(replace(problem, thresholds=width * own), centre, hessian=self.hessian).light()
            for centre, width in self.places
        ]


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
                self.depths, self.reading.geometry.depths(points, self.centre, weights), side="right"
            )
            np.add.at(between, passed, 1 if weights is None else weights)
        # A user that passes k of the depths is at least as deep as each of the first k.
        return np.asarray(np.cumsum(between[::-1])[::-1][1:])
