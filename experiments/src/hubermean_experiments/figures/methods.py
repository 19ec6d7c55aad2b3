"""The methods of a panel, each with its expected squared error on one data set.

The expectation over the noise is exact where the output distribution gives it in closed form, and a mean over draws
elsewhere. This changes no expectation and reduces the variance. Noise is seeded: this is a simulation, not a release.

HLM is the paper's estimator and WME its baseline, both as printed. The others are the mechanisms of hubermean.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.data.user_table import UserTable
from hubermean.distributions.output import ExponentialMechanism
from hubermean.errors import InputError, NotReleased
from hubermean.mechanisms.base import Mechanism, Prepared
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, PreparedInverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease, ProposeTestRelease
from hubermean.mechanisms.registry import Auto
from hubermean.mechanisms.smooth_sensitivity.mechanism import PreparedSmoothSensitivity, SmoothSensitivity
from hubermean.mechanisms.winsorized.mechanism import PreparedWinsorized, Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request
from hubermean_experiments.figures.data import DataSet
from hubermean_experiments.figures.panels import DELTA, EPSILON, PanelPoint, TrueMeanSetting
from hubermean_experiments.figures.records import Floats, RecordDistribution
from hubermean_experiments.paper.constants import printed_constants
from hubermean_experiments.paper.literal import unsafe_paper_literal_diagnostics
from hubermean_experiments.paper.two_stage import two_stage_moments

_SHARES = (0.8, 0.9, 0.95, 0.98)  # of users within the threshold, for `propose-test-release`
_DRAWS = 8  # draws of noise per data set, where the expectation has no closed form
_BIN_DRAWS = 4  # draws of rotation and bins, likewise


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Tuned public parameters: the threshold, as a factor, and for `propose-test-release` the share inside."""

    method: str
    factor: float = 1.0
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The expected squared error over the noise, given a release, and the probability of a release."""

    error: float
    probability: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is public about a point in a setting.

    Attributes:
        radius: bound on the absolute mean of each column.
        user_mean_stddev: the standard deviation of a typical user mean in one column.
        span: how far user means typically reach below and above the true mean; for an oracle only.
        thresholds: candidates, as factors of a standard deviation.
        private_counts: whether the number of records of a user is private too, which the paper does not require.
    """

    point: PanelPoint
    distribution: RecordDistribution
    setting: TrueMeanSetting
    span: tuple[float, float]
    thresholds: tuple[float, ...]
    private_counts: bool = False

    @property
    def columns(self) -> int:
        return self.point.panel.columns

    @property
    def unequal(self) -> bool:
        return self.point.panel.axis == "gamma"

    @property
    def radius(self) -> float:
        return self.setting.radius(self.distribution)

    @property
    def joint_radius(self) -> float:
        """Bound on the norm of the mean of all columns."""
        return self.radius * math.sqrt(self.columns)

    @property
    def user_mean_stddev(self) -> float:
        typical = np.array([max(1, round(float(self.point.counts.mean())))])
        return math.sqrt(float(self.distribution.mean_variances(typical)[0]))

    def request(self) -> Request:
        table = UserTable.from_means(np.zeros((1, self.columns)))
        public = self.unequal and not self.private_counts
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
    """A method in one setting of one point, with seeded noise."""

    names: Sequence[str]
    tunes = True

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self.noise = InsecureSeededNoise(seed)

    @property
    def grid(self) -> tuple[float, ...]:
        return self.problem.thresholds if self.tunes else (1.0,)

    @abstractmethod
    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        """Evaluate the candidates with this threshold that can release."""


class HuberAsPrinted(Method):
    """HLM as printed, and with noise for G(D, 0) in place of S(D): the bound on the local sensitivity alone.

    The second is what the paper's error bounds amount to for large n. It is not private: the scale of the noise reveals
    a change of one user.
    """

    names = ("HLM as printed", "HLM, local noise")

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self._alpha = printed_constants(EPSILON, DELTA, dimension=problem.columns).alpha
        self._counts = problem.point.counts if problem.unequal else None
        self._gamma = None
        if problem.unequal:
            # m_c = gamma N / n and k_0 = floor(n / (8 gamma)) count all n users; here are only those with records.
            self._gamma = Fraction(problem.point.x * len(problem.point.counts), problem.point.users)

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        problem = self.problem
        scale = (
            problem.distribution.deviation
            if problem.unequal
            else problem.user_mean_stddev * math.sqrt(problem.columns)
        )
        found = unsafe_paper_literal_diagnostics(
            data.means,
            self._counts,
            threshold=factor * scale,
            radius=problem.joint_radius,
            epsilon=EPSILON,
            delta=DELTA,
            gamma=self._gamma,
            outliers="witness",
        )
        center = data.error_of(np.atleast_1d(np.asarray(found.clipped)))
        local = float(found.G[0]) / self._alpha
        for name, stddev in zip(self.names, (found.stddev, local), strict=True):
            yield (
                Candidate(method=name, factor=factor),
                Evaluation(error=center + problem.columns * stddev**2),
            )


def add_centered_bins(problem: Problem, reach: float, unit: float) -> tuple[float, ...]:
    """Add to each threshold, in the paper's setting, the nearest one that centers a bin on 0.

    Bins cover [-reach, reach]; an odd number of them has one in the middle. In the paper's setting the true mean is at
    or near 0, and tuning would find such a width.
    """
    if problem.setting.mean_range is not None:
        return problem.thresholds
    odd = (2 * round((reach / (factor * unit) - 1.0) / 2.0) + 1 for factor in problem.thresholds)
    centered = (reach / (bins * unit) for bins in odd if bins >= 1)
    # Slightly wider, so that rounding does not add a bin.
    return tuple(sorted({*problem.thresholds, *(factor * (1.0 + 1e-12) for factor in centered)}))


class TwoStageAsPrinted(Method):
    """WME as printed; one rotation is drawn for each data set and threshold."""

    names = ("WME as printed",)

    @property
    def grid(self) -> tuple[float, ...]:
        padded = 1 << (self.problem.columns - 1).bit_length()
        return add_centered_bins(
            self.problem, self.problem.radius * math.sqrt(padded), self.problem.user_mean_stddev
        )

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        signs = None
        if self.problem.columns > 1:
            padded = 1 << (self.problem.columns - 1).bit_length()
            signs = np.array([1.0 - 2.0 * self.noise.below(2) for _ in range(padded)])
        found = two_stage_moments(
            data.means,
            data.counts if self.problem.unequal else None,
            threshold=factor * self.problem.user_mean_stddev,
            radius=self.problem.radius,
            epsilon=EPSILON,
            delta=DELTA,
            signs=signs,
        )
        error = data.error_of(found.expectation) + float(found.variance.sum())
        yield Candidate(method=self.names[0], factor=factor), Evaluation(error=error)


class MechanismMethod(Method):
    """A mechanism of hubermean, prepared once per threshold from public numbers."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self.request = problem.request()
        self._facts = problem.facts(self.request)
        self._prepared: dict[Any, Prepared | None] = {}

    def prepared(self, key: Any, mechanism: Mechanism) -> Prepared | None:
        """Prepare a mechanism, memoized by key; None where public numbers already rule out a release."""
        if key not in self._prepared:
            try:
                self._prepared[key] = mechanism.prepare(self.request, self._facts)
            except InputError:
                self._prepared[key] = None
        return self._prepared[key]

    @property
    def joint_stddev(self) -> float:
        return self.problem.user_mean_stddev * math.sqrt(self.problem.columns)


class InverseSensitivityMethod(MechanismMethod):
    names = ("inverse-sensitivity",)

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        mechanism = InverseSensitivity(
            threshold=factor * self.problem.user_mean_stddev, radius=self.problem.radius
        )
        prepared = self.prepared(factor, mechanism)
        if isinstance(prepared, PreparedInverseSensitivity):
            parts = zip(prepared.distribution(data.table).parts, data.truth.tolist(), strict=True)
            error = sum(_expected_error(prepared, distribution, truth) for distribution, truth in parts)
            yield Candidate(method="inverse-sensitivity", factor=factor), Evaluation(error=error)


def _expected_error(prepared: PreparedInverseSensitivity, distribution: Any, truth: float) -> float:
    """Sum over runs of equal score: the error at the middle of a run plus the variance within it."""
    assert isinstance(distribution, ExponentialMechanism)
    spacing = 2.0**prepared.grid.exponent
    sizes = distribution.sizes.astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(distribution.sizes)[:-1]]) - prepared.grid.radius
    middles = (starts + (sizes - 1.0) / 2.0) * spacing
    mass = sizes * np.exp(-float(distribution.rate) * (distribution.costs - distribution.costs.min()))
    errors = (middles - truth) ** 2 + spacing**2 * (sizes**2 - 1.0) / 12.0
    return float(np.average(errors, weights=mass))


class ProposeTestReleaseMethod(MechanismMethod):
    names = ("propose-test-release",)

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        located = None
        for share in _SHARES:
            mechanism = ProposeTestRelease(
                threshold=factor * self.joint_stddev, radius=self.problem.joint_radius, share=share
            )
            prepared = self.prepared((factor, share), mechanism)
            if not isinstance(prepared, PreparedProposeTestRelease):
                continue
            if located is None:  # the center does not depend on the share
                located = prepared.locate(data.table)
            assert prepared.total_weight is not None
            plan = prepared.plan_at(prepared.total_weight)
            assert plan is not None  # `prepare` has refused otherwise
            probability = (
                plan.test.passes[plan.distance_to_instability(located, prepared.geometry)] / 2**plan.test.bits
            )
            error = data.error_of(located.center) + self.problem.columns * plan.noise_stddev**2
            yield (
                Candidate(method="propose-test-release", factor=factor, share=share),
                Evaluation(error=error, probability=probability),
            )


class SmoothSensitivityMethod(MechanismMethod):
    names = ("smooth-sensitivity",)

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        mechanism = SmoothSensitivity(threshold=factor * self.joint_stddev, radius=self.problem.joint_radius)
        prepared = self.prepared(factor, mechanism)
        if not isinstance(prepared, PreparedSmoothSensitivity):
            return
        distribution = prepared.distribution(data.table)
        spacing = 2.0**prepared.exponent
        center, stddev = (
            np.array(distribution.position) * spacing,
            distribution.distributions()[0].stddev * spacing,
        )
        if np.linalg.norm(center) + 8.0 * stddev < prepared.radius:
            error = data.error_of(center) + self.problem.columns * stddev**2
        else:  # values outside the radius are projected back, which has no closed form
            drawn = [prepared.outcome(distribution.sample(self.noise)).values for _ in range(_DRAWS)]
            error = float(np.mean([data.error_of(np.array(values)) for values in drawn]))
        yield Candidate(method="smooth-sensitivity", factor=factor), Evaluation(error=error)


class WinsorizedMethod(MechanismMethod):
    """WME with a tighter budget split and composition; rotation and bins are drawn several times."""

    names = ("winsorized",)

    @property
    def grid(self) -> tuple[float, ...]:
        # Bins of a rotated coordinate cover columns * radius with half-widths of sqrt(columns) * threshold.
        return add_centered_bins(self.problem, self.problem.radius, self.problem.user_mean_stddev)

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        mechanism = Winsorized(threshold=factor * self.joint_stddev, radius=self.problem.radius)
        prepared = self.prepared(factor, mechanism)
        if not isinstance(prepared, PreparedWinsorized):
            return
        error = float(np.mean([self._error(prepared, data) for _ in range(_BIN_DRAWS)]))
        yield Candidate(method="winsorized", factor=factor), Evaluation(error=error)

    def _error(self, prepared: PreparedWinsorized, data: DataSet) -> float:
        """The error expected over the noise, for one draw of the rotation and the bins."""
        distribution: Any = prepared.distribution(data.table)
        number = distribution.first.sample(self.noise)
        coordinates = []
        for coordinate in distribution.then(number).parts:
            chosen = coordinate.first.sample(self.noise)
            coordinates.append((chosen, coordinate.then(chosen).position))
        outcome = prepared.outcome((number, coordinates))
        noise = outcome.parameters["noise_stddev"]
        return data.error_of(np.array(outcome.values)) + self.problem.columns * float(noise) ** 2


class ClippedMethod(MechanismMethod):
    """An oracle that knows the range of user means: the best that a library can do that requires bounds.

    Bounds are not tuned for least error: they would shrink to the true mean and reveal it.
    """

    names = ("clipped, right bounds",)
    tunes = False

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        low, high = self.problem.span
        # Each data set has its own bounds because it has its own true mean.
        bounds = [(truth + low, truth + high) for truth in data.truth.tolist()]
        prepared = Clipped(bounds=bounds).prepare(self.request, self._facts)
        distribution = prepared.distribution(data.table)
        drawn = [prepared.outcome(distribution.sample(self.noise)).values for _ in range(_DRAWS)]
        error = float(np.mean([data.error_of(np.array(values)) for values in drawn]))
        yield Candidate(method=self.names[0]), Evaluation(error=error)


class AutoMethod(MechanismMethod):
    """`auto`, given only the privacy budget. A refused release counts as not released."""

    names: Sequence[str] = ("auto",)
    tunes = False

    def evaluate(self, factor: float, data: DataSet) -> Iterator[tuple[Candidate, Evaluation]]:
        candidate = Candidate(method=self.names[0])
        prepared = self.prepared(factor, Auto.from_parameters(PublicParameters()))
        if prepared is None:
            return
        try:
            values: Floats = np.array(prepared.run(data.table, self.noise).values)
        except NotReleased:
            yield candidate, Evaluation(error=0.0, probability=0.0)
        else:
            yield candidate, Evaluation(error=data.error_of(values))


class AutoPrivateCounts(AutoMethod):
    """`auto` with private numbers of records per user, which the paper leaves for later work."""

    names = ("auto, counts private",)

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(replace(problem, private_counts=True), seed)


NON_PRIVATE = "non-private"


def methods_for(point: PanelPoint) -> tuple[type[Method], ...]:
    """The methods of a point, in the order of plots and tables."""
    common: tuple[type[Method], ...] = (
        HuberAsPrinted,
        TwoStageAsPrinted,
        WinsorizedMethod,
        SmoothSensitivityMethod,
    )
    ours: tuple[type[Method], ...] = (
        (InverseSensitivityMethod,) if point.panel.columns == 1 else (ProposeTestReleaseMethod,)
    )
    auto: tuple[type[Method], ...] = (AutoMethod,)
    if point.panel.axis == "gamma":
        auto = (AutoMethod, AutoPrivateCounts)
    return (*common, *ours, *auto, ClippedMethod)
