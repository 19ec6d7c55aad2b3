"""The methods of a panel, each with its expected squared error on one data set.

What a method adds at random is averaged out exactly where its law says how, and drawn where it does not: that changes
no expectation and takes the noise's own scatter out. Noise is seeded: this is a simulation, not a release.

HLM is the paper's estimator, WME its baseline, both as printed. The others are this package's mechanisms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.errors import InputError, NotReleased
from hubermean.laws import Choice as ExactChoice
from hubermean.mechanisms import Clipped, Exact, Known, Mechanism, Prepared, PublicFacts, Request, Winsorized
from hubermean.mechanisms.auto import Auto
from hubermean.mechanisms.exact import PreparedExact
from hubermean.mechanisms.smooth import PreparedSmooth, Smooth
from hubermean.mechanisms.tested import PreparedTested, Tested
from hubermean.mechanisms.winsorized import PreparedWinsorized
from hubermean.noise.insecure import InsecureSeededNoise
from hubermean.relations import Neighbors
from hubermean.reproduce.constants import printed_constants
from hubermean.reproduce.figures.data import DataSet
from hubermean.reproduce.figures.panels import DELTA, EPSILON, Point, Setting
from hubermean.reproduce.figures.records import Floats, RecordLaw
from hubermean.reproduce.literal import unsafe_paper_literal_diagnostics
from hubermean.reproduce.two_stage import two_stage_moments
from hubermean.user_table import UserTable

_SHARES = (0.8, 0.9, 0.95, 0.98)  # of users within the threshold, for `tested`
_DRAWS = 8  # of noise on one data set, where an expectation has no simple form
_BIN_DRAWS = 4  # of rotation and bins, likewise


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is public and tuned: the threshold, as a factor, and for `tested` the share inside."""

    method: str
    factor: float = 1.0
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The squared error expected over the noise, given a release, and the chance of one."""

    error: float
    chance: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is public about a point in a setting.

    Attributes:
        radius: the mean of every column lies within this of 0.
        spread: the deviation of a typical user mean in one column.
        span: how far below and above the true mean the means of all users typically reach; for an oracle.
        thresholds: to choose from, as factors of a deviation.
        counts_hidden: whether how many records a user has is private too, which the paper does not ask for.
    """

    point: Point
    law: RecordLaw
    setting: Setting
    span: tuple[float, float]
    thresholds: tuple[float, ...]
    counts_hidden: bool = False

    @property
    def columns(self) -> int:
        return self.point.panel.columns

    @property
    def unequal(self) -> bool:
        return self.point.panel.axis == "gamma"

    @property
    def radius(self) -> float:
        return self.setting.radius(self.law)

    @property
    def joint_radius(self) -> float:
        """Of all columns together."""
        return self.radius * math.sqrt(self.columns)

    @property
    def spread(self) -> float:
        typical = np.array([max(1, round(float(self.point.counts.mean())))])
        return math.sqrt(float(self.law.mean_variances(typical)[0]))

    def request(self) -> Request:
        table = UserTable.from_means(np.zeros((1, self.columns)))
        public = self.unequal and not self.counts_hidden
        return Request.checked(
            table.columns,
            epsilon=EPSILON,
            delta=DELTA,
            per="record" if self.unequal else "user",
            neighbors=Neighbors.REPLACE_VALUES if public else Neighbors.REPLACE_USER,
        )

    def facts(self, request: Request) -> PublicFacts:
        counts = self.point.counts
        shape = np.zeros((len(counts), self.columns))
        return PublicFacts.of(UserTable.from_means(shape, counts), request.neighbors)


class Method(ABC):
    """A method in one setting of one point; its noise follows from the seed."""

    names: Sequence[str]
    tunes = True

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self.noise = InsecureSeededNoise(seed)

    @property
    def grid(self) -> tuple[float, ...]:
        return self.task.thresholds if self.tunes else (1.0,)

    @abstractmethod
    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        """The choices with this threshold that can serve."""


class OfPaper(Method):
    """HLM as printed, and with noise for G(D, 0) in place of S(D): the bound on the local sensitivity alone.

    The second is what the paper's error bounds come to where n is large. It is not private: nothing hides how the scale
    of the noise changes when a user does.
    """

    names = ("HLM as printed", "HLM, local noise")

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self._alpha = printed_constants(EPSILON, DELTA, dimension=task.columns).alpha
        self._counts = task.point.counts if task.unequal else None
        self._gamma = None
        if task.unequal:
            # m_c = gamma N / n and k_0 = floor(n / (8 gamma)) for all n users; here are those who have records.
            self._gamma = Fraction(task.point.x * len(task.point.counts), task.point.users)

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        task = self.task
        scale = task.law.deviation if task.unequal else task.spread * math.sqrt(task.columns)
        found = unsafe_paper_literal_diagnostics(
            data.means,
            self._counts,
            threshold=factor * scale,
            radius=task.joint_radius,
            epsilon=EPSILON,
            delta=DELTA,
            gamma=self._gamma,
            outliers="witness",
        )
        centre = data.error_of(np.atleast_1d(np.asarray(found.clipped)))
        local = float(found.G[0]) / self._alpha
        for name, stddev in zip(self.names, (found.stddev, local), strict=True):
            yield Choice(method=name, factor=factor), Judged(error=centre + task.columns * stddev**2)


def with_centred_bins(task: Task, reach: float, unit: float) -> tuple[float, ...]:
    """The thresholds, and beside each in the paper's setting the nearest that puts the middle of a bin on 0.

    Bins cover [-reach, reach]; an odd number of them has one in the middle. There the true mean is known to be at 0, or
    near it, and a tuned width would not miss that.
    """
    if task.setting.spread is not None:
        return task.thresholds
    odd = (2 * round((reach / (factor * unit) - 1.0) / 2.0) + 1 for factor in task.thresholds)
    centred = (reach / (bins * unit) for bins in odd if bins >= 1)
    # A hair wider, so that rounding does not make it one bin more.
    return tuple(sorted({*task.thresholds, *(factor * (1.0 + 1e-12) for factor in centred)}))


class OfTwoStage(Method):
    """WME as printed; of its rotations one is drawn for every data set and threshold."""

    names = ("WME as printed",)

    @property
    def grid(self) -> tuple[float, ...]:
        padded = 1 << (self.task.columns - 1).bit_length()
        return with_centred_bins(self.task, self.task.radius * math.sqrt(padded), self.task.spread)

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        signs = None
        if self.task.columns > 1:
            padded = 1 << (self.task.columns - 1).bit_length()
            signs = np.array([1.0 - 2.0 * self.noise.below(2) for _ in range(padded)])
        found = two_stage_moments(
            data.means,
            data.counts if self.task.unequal else None,
            threshold=factor * self.task.spread,
            radius=self.task.radius,
            epsilon=EPSILON,
            delta=DELTA,
            signs=signs,
        )
        error = data.error_of(found.expectation) + float(found.variance.sum())
        yield Choice(method=self.names[0], factor=factor), Judged(error=error)


class OfMechanism(Method):
    """A mechanism of this package; what is public is decided once per threshold."""

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self.request = task.request()
        self._facts = task.facts(self.request)
        self._prepared: dict[Any, Prepared | None] = {}

    def prepared(self, key: Any, mechanism: Mechanism) -> Prepared | None:
        """None where public numbers already say that it cannot serve."""
        if key not in self._prepared:
            try:
                self._prepared[key] = mechanism.prepare(self.request, self._facts)
            except InputError:
                self._prepared[key] = None
        return self._prepared[key]

    @property
    def joint_spread(self) -> float:
        return self.task.spread * math.sqrt(self.task.columns)


class OfExact(OfMechanism):
    names = ("exact",)

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        mechanism = Exact(threshold=factor * self.task.spread, radius=self.task.radius)
        prepared = self.prepared(factor, mechanism)
        if isinstance(prepared, PreparedExact):
            parts = zip(prepared.law(data.table).parts, data.truth.tolist(), strict=True)
            error = sum(_expected_error(prepared, law, truth) for law, truth in parts)
            yield Choice(method="exact", factor=factor), Judged(error=error)


def _expected_error(prepared: PreparedExact, law: Any, truth: float) -> float:
    """Over the runs of equal score: the error at a run's middle and the variance within it."""
    assert isinstance(law, ExactChoice)
    spacing = 2.0**prepared.grid.exponent
    sizes = law.sizes.astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(law.sizes)[:-1]]) - prepared.grid.radius
    middles = (starts + (sizes - 1.0) / 2.0) * spacing
    mass = sizes * np.exp(-float(law.rate) * (law.costs - law.costs.min()))
    errors = (middles - truth) ** 2 + spacing**2 * (sizes**2 - 1.0) / 12.0
    return float(np.average(errors, weights=mass))


class OfTested(OfMechanism):
    names = ("tested",)

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        located = None
        for share in _SHARES:
            mechanism = Tested(
                threshold=factor * self.joint_spread, radius=self.task.joint_radius, share=share
            )
            prepared = self.prepared((factor, share), mechanism)
            if not isinstance(prepared, PreparedTested):
                continue
            if located is None:  # the centre does not depend on the share
                located = prepared.locate(data.table)
            assert prepared.total_weight is not None
            plan = prepared.plan_at(prepared.total_weight)
            assert plan is not None  # `prepare` has refused otherwise
            chance = plan.test.passes[plan.margin(located, prepared.geometry)] / 2**plan.test.bits
            error = data.error_of(located.centre) + self.task.columns * plan.noise_stddev**2
            yield Choice(method="tested", factor=factor, share=share), Judged(error=error, chance=chance)


class OfSmooth(OfMechanism):
    names = ("smooth",)

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        mechanism = Smooth(threshold=factor * self.joint_spread, radius=self.task.joint_radius)
        prepared = self.prepared(factor, mechanism)
        if not isinstance(prepared, PreparedSmooth):
            return
        law = prepared.law(data.table)
        spacing = 2.0**prepared.exponent
        centre, stddev = np.array(law.position) * spacing, law.laws()[0].stddev * spacing
        if np.linalg.norm(centre) + 8.0 * stddev < prepared.radius:
            error = data.error_of(centre) + self.task.columns * stddev**2
        else:  # answers outside the radius are brought back, which has no simple form
            drawn = [prepared.outcome(law.draw(self.noise)).values for _ in range(_DRAWS)]
            error = float(np.mean([data.error_of(np.array(values)) for values in drawn]))
        yield Choice(method="smooth", factor=factor), Judged(error=error)


class OfWinsorized(OfMechanism):
    """WME with this package's division and composition of the budget; rotation and bins are drawn, some times over."""

    names = ("winsorized",)

    @property
    def grid(self) -> tuple[float, ...]:
        # Bins of a rotated coordinate cover columns * radius with half-widths of sqrt(columns) * threshold.
        return with_centred_bins(self.task, self.task.radius, self.task.spread)

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        mechanism = Winsorized(threshold=factor * self.joint_spread, radius=self.task.radius)
        prepared = self.prepared(factor, mechanism)
        if not isinstance(prepared, PreparedWinsorized):
            return
        error = float(np.mean([self._error(prepared, data) for _ in range(_BIN_DRAWS)]))
        yield Choice(method="winsorized", factor=factor), Judged(error=error)

    def _error(self, prepared: PreparedWinsorized, data: DataSet) -> float:
        """Expected over the noise, for one rotation and the bins chosen with it."""
        law: Any = prepared.law(data.table)
        number = law.first.draw(self.noise)
        coordinates = []
        for coordinate in law.then(number).parts:
            chosen = coordinate.first.draw(self.noise)
            coordinates.append((chosen, coordinate.then(chosen).position))
        outcome = prepared.outcome((number, coordinates))
        noise = outcome.parameters["noise_stddev"]
        return data.error_of(np.array(outcome.values)) + self.task.columns * float(noise) ** 2


class OfClipped(OfMechanism):
    """Told the bounds that user means span, which nobody knows: the best that libraries do which ask for bounds.

    Bounds tuned for least error would close in on the true mean and give it away.
    """

    names = ("clipped, right bounds",)
    tunes = False

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        low, high = self.task.span
        # Every data set has bounds of its own, since every one has its own truth.
        bounds = [(truth + low, truth + high) for truth in data.truth.tolist()]
        prepared = Clipped(bounds=bounds).prepare(self.request, self._facts)
        law = prepared.law(data.table)
        drawn = [prepared.outcome(law.draw(self.noise)).values for _ in range(_DRAWS)]
        error = float(np.mean([data.error_of(np.array(values)) for values in drawn]))
        yield Choice(method=self.names[0]), Judged(error=error)


class OfAuto(OfMechanism):
    """Told nothing but the budget. A refusal counts as one."""

    names: Sequence[str] = ("auto",)
    tunes = False

    def judge(self, factor: float, data: DataSet) -> Iterator[tuple[Choice, Judged]]:
        choice = Choice(method=self.names[0])
        prepared = self.prepared(factor, Auto.from_known(Known()))
        if prepared is None:
            return
        try:
            values: Floats = np.array(prepared.run(data.table, self.noise).values)
        except NotReleased:
            yield choice, Judged(error=0.0, chance=0.0)
        else:
            yield choice, Judged(error=data.error_of(values))


class OfAutoCountsHidden(OfAuto):
    """How many records a user has is private as well, which the paper leaves for later work."""

    names = ("auto, counts private",)

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(replace(task, counts_hidden=True), seed)


NON_PRIVATE = "non-private"


def methods_of(point: Point) -> tuple[type[Method], ...]:
    """In the order of plots and tables."""
    common: tuple[type[Method], ...] = (OfPaper, OfTwoStage, OfWinsorized, OfSmooth)
    ours: tuple[type[Method], ...] = (OfExact,) if point.panel.columns == 1 else (OfTested,)
    auto: tuple[type[Method], ...] = (OfAuto,)
    if point.panel.axis == "gamma":
        auto = (OfAuto, OfAutoCountsHidden)
    return (*common, *ours, *auto, OfClipped)
