"""The twelve panels of the paper, the two settings of each, and the effort of a run.

Zhao et al. (2024), section "Numerical Examples": figure 1 has users of equal size and varies m, the number of
records of each user. Figure 2 has users of unequal size and varies the degree of imbalance gamma. The paper states
neither n nor N for figure 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from hubermean.errors import InputError
from hubermean_experiments.figures.records import (
    EXPONENTIAL,
    GAUSSIAN,
    LOMAX,
    UNIFORM,
    Floats,
    Integers,
    RecordDistribution,
)

EPSILON, DELTA = 1.0, 1e-5
TOTAL_INCOME, SALARY = "total income", "salary"

Axis = Literal["records", "gamma"]
Theorem = Literal["mse", "heavytail", "mseunb"]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: the distribution of records, the number of columns and the variable of the horizontal axis."""

    name: str
    distribution: str
    columns: int
    axis: Axis
    theorem: Theorem

    @property
    def title(self) -> str:
        shown = (
            self.distribution
            if self.distribution in (TOTAL_INCOME, SALARY)
            else self.distribution[0].upper() + self.distribution[1:]
        )
        return f"{self.name}: {shown}, d = {self.columns}"


def _balanced(name: str, distribution: str, columns: int, theorem: Theorem) -> Panel:
    return Panel(name=name, distribution=distribution, columns=columns, axis="records", theorem=theorem)


def _imbalanced(name: str, distribution: str) -> Panel:
    return Panel(name=name, distribution=distribution, columns=1, axis="gamma", theorem="mseunb")


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

SYNTHETIC: Mapping[str, RecordDistribution] = {
    distribution.name: distribution for distribution in (UNIFORM, GAUSSIAN, LOMAX, EXPONENTIAL)
}


def select_panels(names: Iterable[str]) -> tuple[Panel, ...]:
    """Select panels such as '1a' or figures such as '1', in the paper's order; all panels if no name is given."""
    wanted = {name.lower().removeprefix("figure").strip() for name in names}
    known = {*PANELS, "1", "2"}
    for name in sorted(wanted - known):
        raise InputError(f"there is no figure {name!r}; the paper has 1, or 1a to 1h, and 2, or 2a to 2d")
    return tuple(
        panel for panel in PANELS.values() if not wanted or panel.name in wanted or panel.name[0] in wanted
    )


@dataclass(frozen=True, kw_only=True)
class TrueMeanSetting:
    """Where the true mean lies, and what is public about it, in units of the distribution.

    Attributes:
        mean_range: the mean of each column is drawn uniformly within this many units of 0; None keeps the mean of the
            distribution itself.
        radius: a public bound on the absolute mean of each column.
    """

    name: str
    mean_range: float | None

    def radius(self, distribution: RecordDistribution) -> float:
        if self.mean_range is not None:
            return 2.0 * self.mean_range * distribution.unit
        return distribution.unit if abs(distribution.mean) < distribution.unit else 2.0 * distribution.unit

    def truth(self, distribution: RecordDistribution, generator: np.random.Generator, columns: int) -> Floats:
        if self.mean_range is None:
            return np.full(columns, distribution.mean)
        reach = self.mean_range * distribution.unit
        return generator.uniform(-reach, reach, columns)


PAPER = TrueMeanSetting(name="paper", mean_range=None)
FAIR = TrueMeanSetting(name="fair", mean_range=5.0)
SETTINGS = (PAPER, FAIR)


@dataclass(frozen=True, kw_only=True)
class PanelPoint:
    """One point of a panel: the number of users, and m or gamma."""

    panel: Panel
    users: int
    x: int

    @property
    def key(self) -> str:
        return f"{self.panel.name}-{self.users}-{self.x}"

    @cached_property
    def counts(self) -> Integers:
        """The number of records of each user who has any; users without records are left out."""
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
    """How much of the experiment a run covers.

    Attributes:
        users, records, gammas: the points of every panel.
        thresholds: candidates, in standard deviations of a user mean (of a record, for HLM with unequal users).
        tuning: numbers of data sets to tune on, one per stage; candidates that are clearly worse are dropped after
            each stage.
        batch: data sets per batch.
        batches: the least number of batches.
        precision: the relative standard error at which no more batches are needed.
        most_batches: the largest number of batches.
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

    def points(self, panels: Iterable[Panel]) -> Iterator[PanelPoint]:
        for panel in panels:
            for users in self.users:
                for x in self.records if panel.axis == "records" else self.gammas:
                    yield PanelPoint(panel=panel, users=users, x=x)


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
