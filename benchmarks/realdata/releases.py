"""Releases of one table with defaults only, and what they add up to."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubermean.data.user_table import UserTable
from hubermean.errors import InputError, NotReleased
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import Neighbors, PublicFacts, Request
from realdata.hindsight import best_error
from realdata.tables import Floats, UserSums

LEVEL = 0.95
EPSILONS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
RELATIONS = ("add-remove", "replace-user")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Releases of one table. Errors, bias and widths are in units of the plain mean's absolute value.

    Attributes:
        rmse, rmse_error: against the plain mean of the table, and its standard error.
        hindsight: the error of the best bounds in hindsight.
        sampling: the standard error of the plain mean.
        coverage: share of 95% intervals that hold the plain mean.
        warned: share of releases with a warning.
        released: share of runs that were not refused.
    """

    table: str
    users: int
    per: str
    epsilon: float
    neighbors: str
    runs: int
    released: float
    rmse: float
    rmse_error: float
    bias: float
    hindsight: float
    sampling: float
    coverage: float
    half_width: float
    warned: float

    @property
    def ratio(self) -> float:
        return self.rmse / self.hindsight

    @property
    def of_sampling(self) -> float:
        return self.rmse / self.sampling


def release_often(
    means: Floats,
    counts: Floats | None,
    runs: int,
    noise: InsecureSeededNoise,
    *,
    epsilon: float,
    delta: float = 0.0,
    per: str = "user",
    neighbors: str = "add-remove",
) -> list[Outcome]:
    """Outcomes with defaults only; refused runs are left out."""
    table = UserTable.from_means(means, counts)
    request = Request.checked(table.columns, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    outcomes: list[Outcome] = []
    try:
        prepared = _prepared(request, PublicFacts.of(table, Neighbors.parse(neighbors)))
    except InputError:  # refused from public numbers, for every run alike
        return outcomes
    for _ in range(runs):
        try:
            outcomes.append(prepared.run(table, noise))
        except NotReleased:
            continue
    return outcomes


@functools.lru_cache(maxsize=32)
def _prepared(request: Request, facts: PublicFacts) -> Prepared:
    """Public numbers alone decide, so data sets of one case share it."""
    return Adaptive().prepare(request, facts)


def measure(table: UserSums, per: str, epsilon: float, neighbors: str, runs: int, seed: int) -> Measured:
    outcomes = release_often(
        table.means,
        table.counts,
        runs,
        InsecureSeededNoise(seed),
        epsilon=epsilon,
        per=per,
        neighbors=neighbors,
    )
    truth = table.plain_mean(per)
    unit = abs(truth)
    errors = np.array([outcome.values[0] - truth for outcome in outcomes]) / unit
    held, half_widths = intervals(outcomes, truth)
    rmse, rmse_error = root_mean_square(errors)
    return Measured(
        table=table.name,
        users=table.users,
        per=per,
        epsilon=epsilon,
        neighbors=neighbors,
        runs=runs,
        released=len(outcomes) / runs,
        rmse=rmse,
        rmse_error=rmse_error,
        bias=float(errors.mean()) if len(errors) else math.nan,
        hindsight=best_error(table, per, epsilon, neighbors=neighbors) / unit,
        sampling=table.sampling_error(per) / unit,
        coverage=float(held.mean()) if len(held) else math.nan,
        half_width=float(np.median(half_widths)) / unit if len(held) else math.nan,
        warned=share_warned(outcomes),
    )


def intervals(outcomes: Sequence[Outcome], truth: float) -> tuple[Floats, Floats]:
    """Whether each interval holds the truth, and half its width; one column."""
    held, half_widths = [], []
    for outcome in outcomes:
        assert outcome.interval_rule is not None
        interval = outcome.interval_rule.at(LEVEL)
        held.append(interval.low[0] <= truth <= interval.high[0])
        half_widths.append((interval.high[0] - interval.low[0]) / 2.0)
    return np.array(held, dtype=float), np.array(half_widths)


def share_warned(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([bool(outcome.warnings) for outcome in outcomes])) if outcomes else math.nan


def root_mean_square(errors: Floats) -> tuple[float, float]:
    """And its standard error, by the delta method."""
    if len(errors) < 2:
        return math.nan, math.nan
    squares = errors**2
    root = math.sqrt(squares.mean())
    return root, float(squares.std(ddof=1) / math.sqrt(len(squares)) / (2.0 * root)) if root else 0.0
