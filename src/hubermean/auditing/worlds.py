"""Data sets made to embarrass a mechanism, and what one user may become in them. All of it is synthetic.

A pair is a base of users that both data sets share, and one user before and after. Shapes are named after the way in
which they hurt: majorities that one user decides, a few users that hold many in balance, users at the very edge of a
threshold, ties, tails, heavy users, users without a usable record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hubermean.relations import Neighbors
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    from hubermean.auditing.cells import Columns
    from hubermean.auditing.handover import Handover

USER, VALUE = "user", "value"
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class User:
    """One user's mean (not finite: no usable record) and number of records."""

    mean: tuple[float, ...]
    records: int

    def to_dict(self) -> dict[str, Any]:
        return {"mean": [finite(value) for value in self.mean], "records": self.records}

    def __str__(self) -> str:
        place = ", ".join(f"{value:.6g}" for value in self.mean[:3])
        place += ", ..." if len(self.mean) > 3 else ""
        usable = np.isfinite(self.mean).all()
        where = (
            f"at {place if len(self.mean) == 1 else f'({place})'}" if usable else "without a usable record"
        )
        return f"{where}, {self.records:,} record{'s' if self.records != 1 else ''}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Two neighbouring data sets. `before` or `after` is None where the user is absent."""

    shape: str
    means: Floats  # of the users that both share, shape (n, d)
    records: Integers
    before: User | None
    after: User | None

    def tables(self) -> tuple[UserTable, UserTable]:
        return self._with(self.before), self._with(self.after)

    def columns(self, handover: Handover) -> tuple[Columns, Columns]:
        """Both data sets as records, the user first; a user's records all have its mean."""
        return self._columns(self.before, handover), self._columns(self.after, handover)

    def _columns(self, changed: User | None, handover: Handover) -> Columns:
        columns: dict[str, list[Any]] = {USER: []}
        columns |= {f"{VALUE}_{number}": [] for number in range(self.means.shape[1])}
        names = list(columns)[1:]

        def add(user: int | str, mean: Sequence[float], records: int, *, odd: bool) -> None:
            columns[USER] += [user] * records
            for name, value in zip(names, mean, strict=True):
                columns[name] += [handover.cell(value, changed=odd)] * records

        # The changed user is not the last: places must not matter.
        if changed is not None:
            add(handover.changed_user(0), changed.mean, changed.records, odd=True)
        everyone = zip(self.means.tolist(), self.records.tolist(), strict=True)
        for number, (mean, records) in enumerate(everyone, start=1):
            add(number, mean, records, odd=False)
        return columns

    def summary(self) -> str:
        """The users that both data sets share, as groups of equal ones, largest first."""
        usable = [all(map(math.isfinite, row)) for row in self.means.tolist()]
        groups: dict[str, int] = {}
        for row, records, fine in zip(self.means.tolist(), self.records.tolist(), usable, strict=True):
            place = (
                "without a usable record"
                if not fine
                else "at " + ", ".join(f"{value:.4g}" for value in row[:3])
            )
            if len(set(self.records.tolist())) > 1:
                place += f" with {records:,} records"
            groups[place] = groups.get(place, 0) + 1
        ordered = sorted(groups.items(), key=lambda group: -group[1])
        told = "; ".join(f"{number} {place}" for place, number in ordered[:4])
        return told + (f"; {sum(number for _, number in ordered[4:])} elsewhere" if len(ordered) > 4 else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "means": [[finite(value) for value in row] for row in self.means.tolist()],
            "records": self.records.tolist(),
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
        }

    def _with(self, user: User | None) -> UserTable:
        if user is None:
            return UserTable.from_means(self.means, self.records)
        return UserTable.from_means(
            np.vstack([self.means, np.array([user.mean])]), np.append(self.records, user.records)
        )


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is public and shapes the search: how many users, which lengths matter to the mechanism, which relation.

    `lengths` are thresholds, radii and the like, smallest first, in units of the column; `centre` is where the bounds
    of each column have their middle; `caps` are numbers of records that matter. `adaptive` says that the mechanism
    searches for its parameters step by step, so that pairs must be made for each step.
    """

    neighbors: Neighbors
    n_users: int
    dimension: int
    lengths: tuple[float, ...]
    centre: Floats
    units: Floats
    caps: tuple[int, ...]
    adaptive: bool = False

    def place(self, offset: float, axis: Floats) -> Floats:
        return np.asarray(self.centre + offset * axis * self.units)

    def axis(self, rng: Generator) -> Floats:
        """A direction: along the first column, all columns alike, or any."""
        kind = rng.integers(3)
        direction = np.eye(self.dimension)[0] if kind == 0 else np.ones(self.dimension)
        if kind == 2:
            direction = rng.normal(size=self.dimension)
        return np.asarray(
            direction / np.abs(direction).max() if kind < 2 else direction / np.linalg.norm(direction)
        )

    def offset(self, rng: Generator) -> float:
        """A distance that matters: a length, just inside or outside it, between two, or absurdly far."""
        length = float(rng.choice(self.lengths))
        nudge = rng.choice([0.0, 0.0, 1e-15, -1e-15, 1e-9, -1e-9, 0.01, -0.01, 0.5, -0.5, 1.0, 9.0])
        if rng.random() < 0.1:
            return float(rng.choice([-1.0, 1.0])) * min(float(rng.choice([1e3, 1e9, 1e300])) * length, 1e300)
        return float(rng.choice([-1.0, 1.0]) * length * (1.0 + nudge) * rng.choice([1.0, 1.0, rng.random()]))

    def user(self, rng: Generator, axis: Floats) -> User:
        where = self.place(self.offset(rng), axis)
        match rng.integers(8):
            case 0:
                where = np.full(self.dimension, np.nan)
            case 1:
                where = self.place(0.0, axis)
        return User(mean=tuple(where.tolist()), records=self.some_records(rng))

    def some_records(self, rng: Generator) -> int:
        if rng.random() < 0.1:  # a number of no meaning, as a slip may have made one
            return int(10.0 ** rng.uniform(0.0, math.log10(max(self.caps) + 1)))
        return int(rng.choice(self.caps))

    def changed(self, rng: Generator, axis: Floats) -> tuple[User | None, User | None]:
        """One user before and after, as the relation allows."""
        before, after = self.user(rng, axis), self.user(rng, axis)
        if rng.random() < 0.5 and np.isfinite(before.mean).all():
            opposite = 2.0 * self.centre - np.array(before.mean)
            after = User(mean=tuple(opposite.tolist()), records=after.records)
        match self.neighbors:
            case Neighbors.ADD_REMOVE:
                return (None, after) if rng.random() < 0.5 else (after, None)
            case Neighbors.REPLACE_VALUES:
                return before, replace(after, records=before.records)
            case Neighbors.REPLACE_USER:
                return before, after


SHAPES = (
    "cluster",
    "majority",
    "springs",
    "edge",
    "layers",
    "ties",
    "tails",
    "opposites",
    "missing",
    "alone",
)


def pair_of(shape: str, scene: Scene, rng: Generator, *, inner: int | None = None) -> Pair:
    """A pair of a named shape; `inner` fixes how many users are in its inner group, and then nothing blurs it."""
    n = scene.n_users - 1
    axis = scene.axis(rng)
    scanned = inner is not None
    length = scene.lengths[0] if scanned and rng.random() < 0.7 else float(rng.choice(scene.lengths))
    far = length * float(rng.choice([1.0 + 1e-9, 1.5, 3.0, 10.0, 1e6]))
    inside = int(rng.integers(n + 1)) if inner is None else min(inner, n)
    sides = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    offsets: Floats
    match shape:
        case "cluster":
            offsets = np.zeros(n)
        case "majority":  # one user decides where most are
            offsets = np.where(np.arange(n) < inside, far, -far)
        case "springs":  # a few near the centre hold many far away in balance
            offsets = np.where(np.arange(n) < inside, 0.0, far * sides)
        case "brink":  # the same, with those that hold at the very brink of letting go
            # One user of n moves a mean by about a length over n, so room of that order matters most.
            rooms = [0.0, 1e-15, 1e-9, 10.0 ** rng.uniform(-3, 0), *rng.uniform(0, 6, 3) / max(n, 1)]
            room = float(rng.choice(rooms))
            offsets = np.where(np.arange(n) < inside, length * (1.0 - room) * sides, far * sides)
        case "edge":
            near = 10.0 ** rng.uniform(-16, -1, n) * rng.choice([-1.0, 1.0], n)
            offsets = length * sides * (1.0 + near)
        case "layers":
            offsets = sides * np.linspace(0.0, 1.2 * length, n)
        case "ties":
            offsets = rng.integers(-2, 3, n).astype(np.float64) * length * float(rng.choice([0.25, 0.5, 1.0]))
        case "tails":
            offsets = rng.standard_cauchy(n) * length * float(rng.choice([0.01, 0.1, 1.0]))
        case "opposites":
            offsets = far * sides
        case "missing":
            offsets = np.where(np.arange(n) < inside, np.nan, 0.0)
        case _:  # nobody else has anything usable
            offsets = np.full(n, np.nan)
    means = scene.place(0.0, axis) + offsets[:, np.newaxis] * (axis * scene.units)
    if not scanned and rng.random() < 0.3:  # off the grid, and not in line
        means = means + rng.normal(size=means.shape) * scene.units * (
            length * float(rng.choice([1e-9, 1e-3, 0.1]))
        )
    records = rng.choice(scene.caps, n) if rng.random() < 0.5 else np.full(n, scene.some_records(rng))
    before, after = scene.changed(rng, axis)
    if scanned:
        before, after = _across(scene, rng, axis, far)
    return Pair(shape=shape, means=means, records=records.astype(np.int64), before=before, after=after)


def _across(scene: Scene, rng: Generator, axis: Floats, far: float) -> tuple[User | None, User | None]:
    """One user from one far side to the other, between the inner group and a side, or no longer usable."""
    places = [(far, -far), (0.0, far), (-far, 0.0), (0.0, math.nan), (math.nan, far)][int(rng.integers(5))]
    records = scene.some_records(rng)
    first, second = (
        User(mean=tuple(scene.place(offset, axis).tolist()), records=records) for offset in places
    )
    return (first, None) if scene.neighbors is Neighbors.ADD_REMOVE else (first, second)


def varied(pair: Pair, scene: Scene, rng: Generator) -> Pair:
    """A pair nearby: some users moved, nudged or reweighed, or the changed user changed differently."""
    means, records = pair.means.copy(), pair.records.copy()
    n = len(means)
    if n == 0 or rng.random() < 0.35:
        before, after = scene.changed(rng, scene.axis(rng))
        return replace(pair, before=before, after=after)
    axis = scene.axis(rng)
    some = rng.choice(n, size=min(n, int(rng.choice([1, 1, 2, 5, max(1, n // 10)]))), replace=False)
    match rng.integers(4):
        case 0:
            means[some] = scene.place(scene.offset(rng), axis)
        case 1:
            means[some] = means[int(rng.integers(n))]
        case 2:
            means[some] += (
                float(rng.choice([1e-12, 1e-6, 1e-2, 0.3]))
                * scene.lengths[0]
                * scene.units
                * rng.normal(size=(len(some), scene.dimension))
            )
        case _:
            records[some] = scene.some_records(rng)
    return replace(pair, means=means, records=records)


def finite(value: float) -> float | None:
    """For JSON, which has no infinity."""
    return value if math.isfinite(value) else None
