"""Releases of simulated users about whom nothing is told: how they are asked for, and what came of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from draws import LAWS, Case, Floats
from hubermean import InputError, NotReleased, Release, mean_of_user_means
from hubermean.mechanisms import Per
from page import percent, percent_with_error
from tuning_part import Column

LEVEL = 0.95
WILD = 20.0  # standard errors of the plain mean: an answer so far off is counted
LIGHT, HEAVY = ("uniform", "Gaussian"), ("Lomax(4)", "log-normal(1)")
_GIVEN_UP = 20  # refusals, and nothing else, after which a series is not continued


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a release is asked for."""

    per: Per = "user"
    neighbors: str = "replace-user"
    epsilon: float = 1.0

    def release(self, means: Floats, counts: np.ndarray) -> Release:
        return mean_of_user_means(
            means,
            counts if self.per == "record" else None,
            epsilon=self.epsilon,
            per=self.per,
            neighbors=self.neighbors,
        )


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the data lie: the same data everywhere, so that rows differ by the place alone."""

    name: str
    shift: float = 0.0
    scale: float = 1.0


AS_IS, SHIFTED = Place(name="as is"), Place(name="+ 1e6", shift=1e6)
PLACES = (AS_IS, SHIFTED, Place(name="x 1e-6", scale=1e-6), Place(name="x 1e6", scale=1e6))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One release, counted from the truth in a unit of the caller's.

    Attributes:
        low, high: the ends of the interval; not numbers where there is none.
        half_width: of the bounds that were chosen privately, where the release tells them.
        record_cap: the most records a user counted for, where the release tells it.
    """

    error: float
    low: float = math.nan
    high: float = math.nan
    covers: str = ""
    half_width: float = math.nan
    record_cap: float = math.inf

    @classmethod
    def of(cls, release: Release, truth: float, unit: float) -> Answer:
        details = release.interval_details(LEVEL)
        bounds = np.ravel(release.parameters.get("bounds", ()))
        cap = release.parameters.get("record_cap")
        return cls(
            error=(release.values[0] - truth) / unit,
            low=math.nan if details is None else (details.low[0] - truth) / unit,
            high=math.nan if details is None else (details.high[0] - truth) / unit,
            covers="" if details is None else details.covers,
            half_width=(bounds[1] - bounds[0]) / 2.0 / unit if len(bounds) == 2 else math.nan,
            record_cap=math.inf if cap is None else cap,
        )


@dataclass(kw_only=True)
class Series:
    """The answers to one way of asking in one place, a data set each.

    Beside each stands the error of the plain mean, in the same unit. Refusals are None; `refusal` is what the first
    one said.
    """

    asked: Asked
    place: Place = AS_IS
    answers: list[Answer | None] = field(default_factory=list)
    refusal: str = ""
    _plain: list[float] = field(default_factory=list)

    def ask(
        self, means: Floats, counts: np.ndarray, truth: float, *, unit: float, plain: float
    ) -> Answer | None:
        if self.hopeless:
            return None
        shift, scale = self.place.shift, self.place.scale
        answer = None
        try:
            release = self.asked.release((means + shift) * scale, counts)
            answer = Answer.of(release, (truth + shift) * scale, unit * scale)
        except (InputError, NotReleased) as refusal:
            self.refusal = self.refusal or str(refusal)
        self.answers.append(answer)
        self._plain.append(plain)
        return answer

    @property
    def hopeless(self) -> bool:
        """A refusal that public numbers decide comes every time."""
        return len(self.answers) >= _GIVEN_UP and not any(self.answers)

    @property
    def released(self) -> float:
        return sum(answer is not None for answer in self.answers) / len(self.answers)

    def of(self, name: str) -> Floats:
        """One attribute of all answers that were given."""
        return np.array([getattr(answer, name) for answer in self.answers if answer is not None], dtype=float)

    @property
    def plain(self) -> Floats:
        """Of the same data sets as `of`."""
        pairs = zip(self._plain, self.answers, strict=True)
        return np.array([plain for plain, answer in pairs if answer is not None])

    @property
    def distances(self) -> Floats:
        """From the truth."""
        found: Floats = np.abs(self.of("error"))
        return found

    @property
    def wild(self) -> int:
        """Answers far off, where the unit is a standard error of the plain mean."""
        return int((self.distances > WILD).sum())

    @property
    def covers(self) -> str:
        return next((answer.covers for answer in self.answers if answer is not None), "")

    @property
    def coverage(self) -> tuple[float, float]:
        """The share of intervals that hold the truth, and its standard error."""
        low, high = self.of("low"), self.of("high")
        if not len(low) or np.isnan(low).any():
            return math.nan, math.nan
        share = float(((low <= 0.0) & (high >= 0.0)).mean())
        return share, math.sqrt(share * (1.0 - share) / len(low))


def run_case(case: Case, series: Iterable[Series], *, runs: int, seed: int) -> None:
    """Ask all series about the same data sets; the unit is a standard error of the plain mean."""
    series = list(series)
    generator = np.random.default_rng([seed, case.users, case.records, list(LAWS).index(case.law)])
    counts = np.full(case.users, case.records)
    unit = case.spread / math.sqrt(case.users)
    for _ in range(runs):
        means, (truth,) = case.draw(generator)
        plain = (float(means.mean()) - truth) / unit
        for one in series:
            one.ask(means[:, 0], counts, truth, unit=unit, plain=plain)


CASE_COLUMNS = (
    Column(heading="n", cell=lambda row: f"{row.users:,}" if row.users else "", width=6),
    Column(heading="law", cell=lambda row: row.law, width=13, left=True),
    Column(heading="m", cell=lambda row: f"{row.records}" if row.records else "", width=3),
)
RELEASED = Column(heading="released", cell=lambda row: percent(row.released))
COVERAGE = Column(
    heading="coverage", cell=lambda row: percent_with_error(row.coverage, row.coverage_error), width=14
)
