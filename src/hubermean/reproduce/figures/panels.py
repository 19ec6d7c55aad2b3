"""The twelve panels of the paper, the two settings they are run in, and how much effort goes into each.

Zhao et al. (2024), section "Numerical Examples": figure 1 has balanced users and grows with the records m of each,
figure 2 has unequal users and grows with the degree of imbalance gamma. The paper gives no n and N for figure 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from hubermean.errors import InputError
from hubermean.reproduce.figures.records import (
    EXPONENTIAL,
    GAUSSIAN,
    LOMAX,
    UNIFORM,
    Floats,
    Integers,
    RecordLaw,
)

EPSILON, DELTA = 1.0, 1e-5
TOTAL_INCOME, SALARY = "total income", "salary"

Axis = Literal["records", "gamma"]
Theorem = Literal["mse", "heavytail", "mseunb"]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: a law of records in so many columns, and what grows along its horizontal axis."""

    name: str
    law: str
    columns: int
    axis: Axis
    theorem: Theorem

    @property
    def title(self) -> str:
        shown = self.law if self.law in (TOTAL_INCOME, SALARY) else self.law[0].upper() + self.law[1:]
        return f"{self.name}: {shown}, d = {self.columns}"


def _balanced(name: str, law: str, columns: int, theorem: Theorem) -> Panel:
    return Panel(name=name, law=law, columns=columns, axis="records", theorem=theorem)


def _imbalanced(name: str, law: str) -> Panel:
    return Panel(name=name, law=law, columns=1, axis="gamma", theorem="mseunb")


PANELS = {
    panel.name: panel
    for panel in (
        _balanced("1a", UNIFORM.name, 1, "mse"),
        _balanced("1b", GAUSSIAN.name, 1, "heavytail"),
        _balanced("1c", LOMAX.name, 1, "heavytail"),
        _balanced("1d", UNIFORM.name, 3, "mse"),
        _balanced("1e", GAUSSIAN.name, 3, "heavytail"),
        _balanced("1f", LOMAX.name, 3, "heavytail"),
        _balanced("1g", TOTAL_INCOME, 1, "heavytail"),
        _balanced("1h", SALARY, 1, "heavytail"),
        _imbalanced("2a", UNIFORM.name),
        _imbalanced("2b", GAUSSIAN.name),
        _imbalanced("2c", EXPONENTIAL.name),
        _imbalanced("2d", TOTAL_INCOME),
    )
}

SYNTHETIC: Mapping[str, RecordLaw] = {law.name: law for law in (UNIFORM, GAUSSIAN, LOMAX, EXPONENTIAL)}


def chosen_panels(names: Iterable[str]) -> tuple[Panel, ...]:
    """The panels asked for, in the paper's order: '1a', or a figure such as '1'; all where none is named."""
    wanted = {name.lower().removeprefix("figure").strip() for name in names}
    known = {*PANELS, "1", "2"}
    for name in sorted(wanted - known):
        raise InputError(f"there is no figure {name!r}; the paper has 1, or 1a to 1h, and 2, or 2a to 2d")
    return tuple(
        panel for panel in PANELS.values() if not wanted or panel.name in wanted or panel.name[0] in wanted
    )


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where the true mean lies, and what everybody is told of it, in units of the law.

    Attributes:
        spread: the mean of each column is drawn evenly within so many units of 0; None where it is the law's own.
        radius: everybody is told that the mean of each column lies within this of 0.
    """

    name: str
    spread: float | None

    def radius(self, law: RecordLaw) -> float:
        if self.spread is not None:
            return 2.0 * self.spread * law.unit
        return law.unit if abs(law.mean) < law.unit else 2.0 * law.unit

    def truth(self, law: RecordLaw, generator: np.random.Generator, columns: int) -> Floats:
        if self.spread is None:
            return np.full(columns, law.mean)
        reach = self.spread * law.unit
        return generator.uniform(-reach, reach, columns)


PAPER = Setting(name="paper", spread=None)
FAIR = Setting(name="fair", spread=5.0)
SETTINGS = (PAPER, FAIR)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a panel: so many users, and m or gamma."""

    panel: Panel
    users: int
    x: int

    @property
    def key(self) -> str:
        return f"{self.panel.name}-{self.users}-{self.x}"

    @cached_property
    def counts(self) -> Integers:
        """Records of each user who has any; nobody else takes part."""
        if self.panel.axis == "records":
            return np.full(self.users, self.x, dtype=np.int64)
        counts = imbalanced_counts(self.users, RECORDS_PER_USER * self.users, self.x)
        return counts[counts > 0]


RECORDS_PER_USER = 10  # N / n of figure 2


def imbalanced_counts(users: int, records: int, gamma: int) -> Integers:
    """m_i = s_i - s_(i-1) with s_i = ceil(N (i/n)^gamma), in whole numbers; some are 0 for gamma > 1.

    >>> imbalanced_counts(5, 50, 1).tolist(), imbalanced_counts(5, 50, 3).tolist()
    ([10, 10, 10, 10, 10], [1, 3, 7, 15, 24])
    """
    ends = np.array([-(-records * i**gamma // users**gamma) for i in range(users + 1)], dtype=np.int64)
    return ends[1:] - ends[:-1]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is run.

    Attributes:
        users, records, gammas: the points of every panel.
        thresholds: to choose from, in deviations of a user mean (for HLM with unequal users: of a record).
        tuning: data sets to tune on, in stages: choices that are clearly worse are dropped after each.
        batch: data sets evaluated at a time.
        batches: how many batches at least.
        precision: a relative standard error at which no more batches are needed.
        most_batches: how many at most.
    """

    name: str
    users: tuple[int, ...]
    records: tuple[int, ...]
    gammas: tuple[int, ...]
    thresholds: tuple[float, ...]
    tuning: tuple[int, ...]
    batch: int
    batches: int
    precision: float
    most_batches: int

    def points(self, panels: Iterable[Panel]) -> Iterator[Point]:
        for panel in panels:
            for users in self.users:
                for x in self.records if panel.axis == "records" else self.gammas:
                    yield Point(panel=panel, users=users, x=x)


GRID = tuple(0.25 * 2.0 ** (step / 2) for step in range(17))

FULL = Effort(
    name="full",
    users=(1_000, 10_000),
    records=(1, 3, 10, 30, 100, 300, 1_000),
    gammas=tuple(range(1, 11)),
    thresholds=GRID,
    tuning=(12, 24, 60),
    batch=50,
    batches=5,
    precision=0.09,
    most_batches=2_000,
)
QUICK = Effort(
    name="quick",
    users=(1_000,),
    records=(1, 10, 100),
    gammas=(1, 4, 10),
    thresholds=GRID,
    tuning=(6, 12),
    batch=20,
    batches=1,
    precision=math.inf,
    most_batches=1,
)
