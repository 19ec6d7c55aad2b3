"""The mechanisms that the accuracy benchmark compares, each with its expected error on one data set.

What a mechanism adds at random is averaged out exactly where its law says how (`inverse-sensitivity`,
`propose-test-release`, the literal paper),
and drawn once per data set elsewhere. That changes no expectation; it takes the noise's own scatter out.
Noise is seeded: this is a simulation, not a release.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accuracy.draws import RADIUS, Floats
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import ExponentialMechanism
from hubermean.errors import InputError
from hubermean.mechanisms.base import Prepared
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, PreparedInverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease, ProposeTestRelease
from hubermean.mechanisms.propose_test_release.stability import StabilityTest
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import Neighbors, PublicFacts, Request
from hubermean_experiments.paper.literal import unsafe_paper_literal_diagnostics

EPSILON, DELTA = 1.0, 1e-5
SHARES = (0.8, 0.9, 0.95, 0.98)
FAR = 20.0
"""An answer so many deviations of a user mean off is counted apart.

Pure epsilon-DP leaves every point within the radius a chance, of the order of e^(-n epsilon / 4) for
`inverse-sensitivity`. With 100
users that is far too rare to be seen in a thousand runs, yet each such answer is off by the size of the radius, and
their expectation would hide everything else. So both are reported.
"""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A data set in the forms that contestants want, and the answer they do not see."""

    means: Floats
    truth: Floats
    table: UserTable

    @classmethod
    def of(cls, means: Floats, truth: Floats) -> Drawn:
        return cls(means=means, truth=truth, table=UserTable.from_means(means))

    @property
    def plain_error(self) -> float:
        return float(np.sum((self.means.mean(axis=0) - self.truth) ** 2))


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One data set.

    Attributes:
        error: squared error expected over the noise, given a release that is not far off.
        chance: the chance of a release.
        drawn: the squared error of one actual draw; not a number where there is none.
        far: the chance of an answer more than `FAR` deviations of a user mean off.
        total: as `error`, far answers included; where they are drawn and not computed, the same as `error`.
    """

    error: float
    chance: float = 1.0
    drawn: float = math.nan
    far: float = math.nan
    total: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is public and tuned: the threshold in deviations of a user mean, and for `propose-test-release`
    the share inside."""

    factor: float
    share: float | None = None


class Contestant(ABC):
    """A mechanism for a number of users and columns, and what it may tune."""

    name: str
    shares: Sequence[float | None] = (None,)
    tunes = True

    def __init__(
        self, sample: Drawn, spread: float, *, delta: float, seed: int, epsilon: float = EPSILON
    ) -> None:
        self.spread = spread
        self.noise = InsecureSeededNoise(seed)
        self.delta = delta
        self.request = Request(
            columns=sample.table.columns,
            epsilon=epsilon,
            delta=delta,
            neighbors=Neighbors.REPLACE_USER,
            per="user",
        )
        self.facts = PublicFacts.of(sample.table, self.request.neighbors)
        self._prepared: dict[Choices, Prepared] = {}

    @abstractmethod
    def judge(self, choices: Choices, data: Drawn) -> Judged: ...

    def judge_shares(self, factor: float, data: Drawn) -> dict[Choices, Judged]:
        """All choices with this threshold; a contestant may share work between them."""
        choices = [Choices(factor=factor, share=share) for share in self.shares]
        return {one: self.judge(one, data) for one in choices}

    def prepared(self, choices: Choices) -> Prepared:
        """Public decisions are made once per choice."""
        if choices not in self._prepared:
            self._prepared[choices] = self.prepare(choices.factor * self.spread, choices)
        return self._prepared[choices]

    def prepare(self, threshold: float, choices: Choices) -> Prepared:
        raise NotImplementedError

    def error_of(self, values: Sequence[float], data: Drawn) -> float:
        return float(np.sum((np.array(values) - data.truth) ** 2))


class OfExact(Contestant):
    name = "inverse-sensitivity"

    def prepare(self, threshold: float, choices: Choices) -> PreparedInverseSensitivity:
        return InverseSensitivity(threshold=threshold, radius=RADIUS).prepare(self.request, self.facts)

    def judge(self, choices: Choices, data: Drawn) -> Judged:
        prepared = self.prepared(choices)
        assert isinstance(prepared, PreparedInverseSensitivity)
        columns = tuple(prepared.distribution(data.table).parts)
        (law,), (truth,) = columns, data.truth.tolist()
        assert isinstance(law, ExponentialMechanism)
        drawn = self.error_of(prepared.outcome([law.sample(self.noise)]).values, data)
        return self._expected(prepared, law, truth, drawn)

    def _expected(
        self, prepared: PreparedInverseSensitivity, law: ExponentialMechanism, truth: float, drawn: float
    ) -> Judged:
        """Over the runs of equal score: the error at a run's middle and the variance within it."""
        spacing = 2.0**prepared.grid.exponent
        sizes = law.sizes.astype(np.float64)
        starts = np.concatenate([[0], np.cumsum(law.sizes)[:-1]]) - prepared.grid.radius
        middles = (starts + (sizes - 1.0) / 2.0) * spacing
        mass = sizes * np.exp(-float(law.rate) * (law.costs - law.costs.min()))
        mass /= mass.sum()
        errors = (middles - truth) ** 2 + spacing**2 * (sizes**2 - 1.0) / 12.0
        near = np.abs(middles - truth) <= FAR * self.spread
        return Judged(
            error=float(np.average(errors[near], weights=mass[near])),
            drawn=drawn,
            far=float(mass[~near].sum()),
            total=float(mass @ errors),
        )


class OfTested(Contestant):
    name = "propose-test-release"
    shares = SHARES

    def prepare(self, threshold: float, choices: Choices) -> PreparedProposeTestRelease:
        assert choices.share is not None
        return ProposeTestRelease(threshold=threshold, radius=RADIUS, share=choices.share).prepare(
            self.request, self.facts
        )

    def judge(self, choices: Choices, data: Drawn) -> Judged:
        """Through the very law of a release."""
        prepared = self._tested(choices)
        plan = self._plan(prepared)
        law = prepared.noisy_test(prepared.locate(data.table), plan)
        draw = law.sample(self.noise)
        center = np.array(law.inner.position) * 2.0**plan.exponent  # type: ignore[attr-defined]
        return Judged(
            error=self.error_of(center, data) + len(center) * plan.noise_stddev**2,
            chance=law.passes / 2**law.bits,
            drawn=math.nan if draw is None else self.error_of(prepared.outcome(draw).values, data),
        )

    def judge_shares(self, factor: float, data: Drawn) -> dict[Choices, Judged]:
        """The center does not depend on the share, so it is found once."""
        found: dict[Choices, Judged] = {}
        located = None
        for share in self.shares:
            choices = Choices(factor=factor, share=share)
            try:
                prepared = self._tested(choices)
            except InputError:  # too few users for a test with this share
                continue
            if located is None:
                located = prepared.geometry.locate(*prepared.points.read(data.table))
            plan = self._plan(prepared)
            chance = (
                plan.test.passes[plan.distance_to_instability(located, prepared.geometry)] / 2**plan.test.bits
            )
            error = self.error_of(located.center.tolist(), data) + len(data.truth) * plan.noise_stddev**2
            found[choices] = Judged(error=error, chance=chance)
        return found

    def _tested(self, choices: Choices) -> PreparedProposeTestRelease:
        prepared = self.prepared(choices)
        assert isinstance(prepared, PreparedProposeTestRelease)
        return prepared

    @staticmethod
    def _plan(prepared: PreparedProposeTestRelease) -> StabilityTest:
        plan = prepared._public_plan()
        assert plan is not None  # `prepare` has refused otherwise
        return plan


class OfWinsorized(Contestant):
    name = "winsorized"

    def prepare(self, threshold: float, choices: Choices) -> Prepared:
        return Winsorized(threshold=threshold, radius=RADIUS).prepare(self.request, self.facts)

    def judge(self, choices: Choices, data: Drawn) -> Judged:
        prepared = self.prepared(choices)
        error = self.error_of(prepared.run(data.table, self.noise).values, data)
        return Judged(error=error, drawn=error)


class OfClipped(Contestant):
    """Bounds are the radius: what is known to the others, too. Bounds around the true mean would give it away."""

    name = "clipped"
    tunes = False

    @cached_property
    def _to_radius(self) -> Prepared:
        return Clipped(bounds=(-RADIUS, RADIUS)).prepare(self.request, self.facts)

    def judge(self, choices: Choices, data: Drawn) -> Judged:
        error = self.error_of(self._to_radius.run(data.table, self.noise).values, data)
        return Judged(error=error, drawn=error)


class OfLiteral(Contestant):
    """The paper as printed; in one column its delta is not what it claims (docs/concepts/paper.md)."""

    name = "literal"

    def judge(self, choices: Choices, data: Drawn) -> Judged:
        found = unsafe_paper_literal_diagnostics(
            data.means,
            threshold=choices.factor * self.spread,
            radius=RADIUS,
            epsilon=self.request.epsilon,
            delta=DELTA,
        )
        error = self.error_of(np.atleast_1d(found.clipped).tolist(), data)
        return Judged(error=error + len(data.truth) * found.stddev**2)


IN_ONE_COLUMN: tuple[type[Contestant], ...] = (OfExact, OfWinsorized, OfLiteral, OfClipped)
IN_SEVERAL: tuple[type[Contestant], ...] = (OfTested, OfWinsorized, OfLiteral, OfClipped)
