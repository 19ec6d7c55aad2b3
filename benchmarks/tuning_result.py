"""What the tuning benchmark found about one case, way of asking and place, and the targets it is judged by."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accuracy_result import LEAST_CHANCE
from draws import Case
from page import verdict
from ratios import adjusted, median_ratio, paired_ratio, with_resampling
from tuning_part import Effort
from tuning_runs import AS_IS, HEAVY, LIGHT, PLACES, Asked, Place, Series, run_case

RECORDS = (1, 10, 100)
SETTINGS = (*((Asked(), place) for place in PLACES), (Asked(per="record"), AS_IS))
WITH_PRIVATE_USERS = tuple((Asked(per=per, neighbors="add-remove"), AS_IS) for per in ("user", "record"))
BLOCKS = (
    ((1_000, 10_000), RECORDS, SETTINGS),
    ((2_000, 10_000), (10,), WITH_PRIVATE_USERS),
)
LEAST_COVERAGE, LARGEST_WIDTH = 0.93, 1.6
_SEED = 6


def largest_ratio(case: Case, asked: Asked) -> float | None:
    """The targets, in one place."""
    if asked.neighbors != "replace-user":
        return None
    light = case.law in LIGHT
    if case.users == 10_000:
        return 1.5 if light else 3.0
    return 1.8 if light else 2.5 if case.records >= 10 else 6.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """One case, way of asking and place; ratios with their standard errors.

    Attributes:
        ratio: mean squared error over sigma^2/(n m), with the luck of the draws taken out; what is judged.
        paired: over the plain mean's on the same draws.
        median: the median squared error over the plain mean's.
        wild: answers so far off that one of them decides `ratio`.
        coverage: of the 95% interval; not a number where there is none.
        width: the interval's median width, over that of the central 95% of what was released around the truth.
    """

    law: str
    users: int
    records: int
    per: str
    neighbors: str
    place: str
    runs: int
    released: float
    refusal: str
    ratio: float
    error: float
    paired: float
    paired_error: float
    median: float
    median_error: float
    wild: int
    target: float | None
    covers: str
    coverage: float
    coverage_error: float
    width: float
    width_error: float

    @property
    def light(self) -> bool:
        return self.law in LIGHT

    @property
    def over_target(self) -> float:
        return math.nan if self.target is None else self.ratio / self.target

    @property
    def accurate(self) -> bool | None:
        if self.target is None:
            return None
        return self.ratio <= self.target and self.released >= LEAST_CHANCE

    @property
    def accuracy_verdict(self) -> str:
        close = self.target is not None and abs(self.ratio - self.target) < 2.0 * self.error
        return verdict(self.accurate, close=close)

    @property
    def covered(self) -> bool | None:
        return self.coverage >= LEAST_COVERAGE if self.light else None

    @property
    def coverage_verdict(self) -> str:
        return verdict(self.covered, close=abs(self.coverage - LEAST_COVERAGE) < 2.0 * self.coverage_error)

    @property
    def narrow(self) -> bool:
        return self.width <= LARGEST_WIDTH

    @property
    def width_verdict(self) -> str:
        return verdict(self.narrow, close=abs(self.width - LARGEST_WIDTH) < 2.0 * self.width_error)

    @property
    def verdicts(self) -> dict[str, bool | None]:
        return {"accurate": self.accurate, "covered": self.covered, "narrow": self.narrow}

    @property
    def name(self) -> str:
        relation = "" if self.neighbors == "replace-user" else f", {self.neighbors}"
        return f"n = {self.users:,}, {self.law}, m = {self.records}, per {self.per}{relation}, {self.place}"


def _result(case: Case, series: Series) -> Result:
    errors, plain = series.of("error") ** 2, series.plain**2
    even = np.ones(len(errors))
    ratio, error = adjusted(errors, plain, 1.0, even)
    paired, paired_error = paired_ratio(errors, plain, even) if len(errors) > 1 else (math.nan, math.nan)
    median, median_error = median_ratio(errors, plain)
    coverage, coverage_error = series.coverage
    width, width_error = with_resampling(_width, series.of("high") - series.of("low"), series.of("error"))
    return Result(
        law=case.law,
        users=case.users,
        records=case.records,
        per=series.asked.per,
        neighbors=series.asked.neighbors,
        place=series.place.name,
        runs=len(series.answers),
        released=series.released,
        refusal=series.refusal,
        ratio=ratio,
        error=error,
        paired=paired,
        paired_error=paired_error,
        median=median,
        median_error=median_error,
        wild=series.wild,
        target=largest_ratio(case, series.asked),
        covers=series.covers,
        coverage=coverage,
        coverage_error=coverage_error,
        width=width,
        width_error=width_error,
    )


def _width(widths: np.ndarray, errors: np.ndarray) -> np.ndarray:
    low, high = np.quantile(errors, (0.025, 0.975), axis=-1)
    ratio: np.ndarray = np.median(widths, axis=-1) / (high - low)
    return ratio


@functools.cache
def results_of(case: Case, settings: tuple[tuple[Asked, Place], ...], runs: int) -> tuple[Result, ...]:
    """Kept, since both parts ask for them."""
    series = [Series(asked=asked, place=place) for asked, place in settings]
    run_case(case, series, runs=runs, seed=_SEED)
    return tuple(_result(case, one) for one in series)


def results(effort: Effort) -> Iterator[Result]:
    for all_users, all_records, settings in BLOCKS:
        for users in all_users:
            for law in (*LIGHT, *HEAVY):
                for records in all_records:
                    case = Case(law=law, users=users, records=records, columns=1)
                    yield from results_of(case, settings, effort.runs)
