"""Adversarial data sets and the neighbors of each, all synthetic.

A pair consists of the users that both data sets share, and one user before and after. Shapes are named after their
difficulty: majorities that one user decides, a few users that balance many, users at the very edge of a threshold,
ties, tails, heavy users, users without a usable record.

Directed pairs are made for the steps of adaptive mechanisms: in each, the score of one search changes as much as it
can. A search reveals something only on data on which it has something to decide. There is one kind for each search:
how many records count, how widely users are spread (also beyond a tie), and where they are. The share of users on
which the search depends is scanned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.user_table import UserTable
from hubermean.types.request import Neighbors

if TYPE_CHECKING:
    from hubermean.auditing.cells import Columns
    from hubermean.auditing.containers import ContainerRoundTrip

USER, VALUE = "user", "value"


@dataclass(frozen=True, kw_only=True)
class User:
    """A user's mean (not finite: no usable record) and number of records."""

    mean: tuple[float, ...]
    records: int

    def to_dict(self) -> dict[str, Any]:
        return {"mean": [finite_or_none(value) for value in self.mean], "records": self.records}

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
    """Two neighboring data sets. `before` or `after` is None if the user is absent."""

    shape: str
    means: FloatArray  # of the users that both share, shape (n, d)
    records: IntArray
    before: User | None
    after: User | None

    def tables(self) -> tuple[UserTable, UserTable]:
        return self._with(self.before), self._with(self.after)

    def columns(self, round_trip: ContainerRoundTrip) -> tuple[Columns, Columns]:
        """Return both data sets as records, the changed user first; all records of a user equal its mean."""
        return self._columns(self.before, round_trip), self._columns(self.after, round_trip)

    def _columns(self, changed: User | None, round_trip: ContainerRoundTrip) -> Columns:
        columns: dict[str, list[Any]] = {USER: []}
        columns |= {f"{VALUE}_{number}": [] for number in range(self.means.shape[1])}
        names = list(columns)[1:]

        def add(user: int | str, mean: Sequence[float], records: int, *, odd: bool) -> None:
            columns[USER] += [user] * records
            for name, value in zip(names, mean, strict=True):
                columns[name] += [round_trip.cell(value, changed=odd)] * records

        # The changed user is not the last: positions must not matter.
        if changed is not None:
            add(round_trip.changed_user(0), changed.mean, changed.records, odd=True)
        everyone = zip(self.means.tolist(), self.records.tolist(), strict=True)
        for number, (mean, records) in enumerate(everyone, start=1):
            add(number, mean, records, odd=False)
        return columns

    def summary(self) -> str:
        """Describe the users that both data sets share, grouped by equal values, largest group first."""
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
        listed = "; ".join(f"{number} {place}" for place, number in ordered[:4])
        return listed + (
            f"; {sum(number for _, number in ordered[4:])} elsewhere" if len(ordered) > 4 else ""
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "means": [[finite_or_none(value) for value in row] for row in self.means.tolist()],
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
class SearchSpace:
    """The public facts that shape the search: the number of users, the lengths that matter, the neighbor relation.

    `lengths` are thresholds, radii and the like, smallest first, in units of the column. `center` is the middle of
    the bounds of each column. `caps` are numbers of records that matter. `adaptive` says that the mechanism searches
    for its parameters step by step, so that pairs are made for each step.
    """

    neighbors: Neighbors
    n_users: int
    dimension: int
    lengths: tuple[float, ...]
    center: FloatArray
    units: FloatArray
    caps: tuple[int, ...]
    adaptive: bool = False

    def place(self, offset: float, axis: FloatArray) -> FloatArray:
        return np.asarray(self.center + offset * axis * self.units)

    def axis(self, rng: Generator) -> FloatArray:
        """Return a direction: along the first column, along all columns alike, or random."""
        kind = rng.integers(3)
        direction = np.eye(self.dimension)[0] if kind == 0 else np.ones(self.dimension)
        if kind == 2:
            direction = rng.normal(size=self.dimension)
        return np.asarray(
            direction / np.abs(direction).max() if kind < 2 else direction / np.linalg.norm(direction)
        )

    def offset(self, rng: Generator) -> float:
        """Return a distance that matters: a length, just inside or outside it, between two, or extremely large."""
        length = float(rng.choice(self.lengths))
        nudge = rng.choice([0.0, 0.0, 1e-15, -1e-15, 1e-9, -1e-9, 0.01, -0.01, 0.5, -0.5, 1.0, 9.0])
        if rng.random() < 0.1:
            return float(rng.choice([-1.0, 1.0])) * min(float(rng.choice([1e3, 1e9, 1e300])) * length, 1e300)
        return float(rng.choice([-1.0, 1.0]) * length * (1.0 + nudge) * rng.choice([1.0, 1.0, rng.random()]))

    def user(self, rng: Generator, axis: FloatArray) -> User:
        where = self.place(self.offset(rng), axis)
        match rng.integers(8):
            case 0:
                where = np.full(self.dimension, np.nan)
            case 1:
                where = self.place(0.0, axis)
        return User(mean=tuple(where.tolist()), records=self.some_records(rng))

    def some_records(self, rng: Generator) -> int:
        if rng.random() < 0.1:  # an arbitrary number, as an error might produce
            return int(10.0 ** rng.uniform(0.0, math.log10(max(self.caps) + 1)))
        return int(rng.choice(self.caps))

    def changed(self, rng: Generator, axis: FloatArray) -> tuple[User | None, User | None]:
        """Return one user before and after, as the relation allows."""
        before, after = self.user(rng, axis), self.user(rng, axis)
        if rng.random() < 0.5 and np.isfinite(before.mean).all():
            opposite = 2.0 * self.center - np.array(before.mean)
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


def make_pair(shape: str, space: SearchSpace, rng: Generator, *, inner: int | None = None) -> Pair:
    """Make a pair of a named shape; `inner` fixes the number of users in its inner group and disables perturbations."""
    n = space.n_users - 1
    axis = space.axis(rng)
    scanned = inner is not None
    length = space.lengths[0] if scanned and rng.random() < 0.7 else float(rng.choice(space.lengths))
    far = length * float(rng.choice([1.0 + 1e-9, 1.5, 3.0, 10.0, 1e6]))
    inside = int(rng.integers(n + 1)) if inner is None else min(inner, n)
    sides = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    offsets: FloatArray
    match shape:
        case "cluster":
            offsets = np.zeros(n)
        case "majority":  # one user decides where most are
            offsets = np.where(np.arange(n) < inside, far, -far)
        case "springs":  # a few near the center balance many far away
            offsets = np.where(np.arange(n) < inside, 0.0, far * sides)
        case "brink":  # the same, with the balancing users at the very edge of their threshold
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
        case _:  # no other user has a usable record
            offsets = np.full(n, np.nan)
    means = space.place(0.0, axis) + offsets[:, np.newaxis] * (axis * space.units)
    if not scanned and rng.random() < 0.3:  # off the grid, and not in line
        means = means + rng.normal(size=means.shape) * space.units * (
            length * float(rng.choice([1e-9, 1e-3, 0.1]))
        )
    records = rng.choice(space.caps, n) if rng.random() < 0.5 else np.full(n, space.some_records(rng))
    before, after = space.changed(rng, axis)
    if scanned:
        before, after = _across(space, rng, axis, far)
    return Pair(shape=shape, means=means, records=records.astype(np.int64), before=before, after=after)


def _across(
    space: SearchSpace, rng: Generator, axis: FloatArray, far: float
) -> tuple[User | None, User | None]:
    """Move one user from one far side to the other, between the inner group and a side, or make it unusable."""
    places = [(far, -far), (0.0, far), (-far, 0.0), (0.0, math.nan), (math.nan, far)][int(rng.integers(5))]
    records = space.some_records(rng)
    first, second = (
        User(mean=tuple(space.place(offset, axis).tolist()), records=records) for offset in places
    )
    return (first, None) if space.neighbors is Neighbors.ADD_REMOVE else (first, second)


def vary_pair(pair: Pair, space: SearchSpace, rng: Generator) -> Pair:
    """Return a similar pair: some users moved, nudged or reweighted, or a different change of the changed user."""
    means, records = pair.means.copy(), pair.records.copy()
    n = len(means)
    if n == 0 or rng.random() < 0.35:
        before, after = space.changed(rng, space.axis(rng))
        return replace(pair, before=before, after=after)
    axis = space.axis(rng)
    some = rng.choice(n, size=min(n, int(rng.choice([1, 1, 2, 5, max(1, n // 10)]))), replace=False)
    match rng.integers(4):
        case 0:
            means[some] = space.place(space.offset(rng), axis)
        case 1:
            means[some] = means[int(rng.integers(n))]
        case 2:
            means[some] += (
                float(rng.choice([1e-12, 1e-6, 1e-2, 0.3]))
                * space.lengths[0]
                * space.units
                * rng.normal(size=(len(some), space.dimension))
            )
        case _:
            records[some] = space.some_records(rng)
    return replace(pair, means=means, records=records)


def finite_or_none(value: float) -> float | None:
    """Return the value, or None if it is not finite, for JSON."""
    return value if math.isfinite(value) else None


DIRECTED = ("core", "tied", "elsewhere", "many records", "outlier")
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_BEYOND = 1e6  # lengths away: where no interval that holds most users reaches


def make_directed_pair(number: int, space: SearchSpace, rng: Generator) -> Pair:
    """Make the directed pair of a number: kinds take turns, and shares are scanned."""
    kind = DIRECTED[number % len(DIRECTED)]
    scanned = (number * _GOLDEN) % 1.0
    n, axis = space.n_users - 1, space.axis(rng)
    length = space.lengths[0] * float(rng.choice([1.0, 1.0, 1e-3, 1e3]))
    offsets = length * np.linspace(-1.0, 1.0, n)
    first, second = 0.0, _BEYOND * length
    few = int(rng.choice([1, 2, 3]))
    records = np.full(n, few)
    most = max(space.caps)
    own = (most, most)
    match kind:
        case "core":  # most users surround a core; one user leaves the core
            inside = round((0.45 + 0.4 * scanned) * n)
            offsets[:inside] = 0.0
            offsets[round(0.97 * n) :] = 2.0 * second
        case "tied":  # so many users tie that no scale is found at first
            offsets[: round((0.853 + 0.05 * scanned) * n)] = 0.0
            offsets[round(0.995 * n) :] = 2.0 * second
        case "elsewhere":  # one user moves to the few who are far from the others
            offsets[: max(round((0.02 + 0.1 * scanned) * n), 1)] = second
        case "many records":  # a user of few records gets more than anybody
            records = np.where(np.arange(n) < scanned * n, few, few + 1)
            first, second, own = 0.0, 0.0, (1, most)
        case _:  # from one extreme to the other, or to no usable record
            first, second = -second, float(rng.choice([second, math.nan]))
    means = space.place(0.0, axis) + offsets[:, np.newaxis] * (axis * space.units)
    users = [
        User(mean=tuple(space.place(offset, axis).tolist()), records=count)
        for offset, count in zip((first, second), own, strict=True)
    ]
    before: User | None = users[0]
    after: User | None = users[1]
    if space.neighbors is Neighbors.ADD_REMOVE:
        before = users[int(rng.integers(2))]
        after = None
    elif space.neighbors is Neighbors.REPLACE_VALUES:
        after = User(mean=users[1].mean, records=own[0])
    if rng.random() < 0.5:  # one direction may show what the other does not
        before, after = after, before
    return Pair(shape=kind, means=means, records=records.astype(np.int64), before=before, after=after)
