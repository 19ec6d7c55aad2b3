"""The privacy loss between two output distributions: how well one sample distinguishes them.

For distributions P and Q let L = ln(dP/dQ) under P. A loss provides H_eps(P || Q) = E_P (1 - e^(eps - L))_+, the
delta of the pair at eps, and the largest L, which pure differential privacy bounds. eps may be negative here, because
conditioning on an earlier sample shifts it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from hubermean.accounting.hockey_stick import log_divergence_equal_scale, log_divergence_wide_first
from hubermean.data.arrays import FloatArray


class Loss(Protocol):
    """The privacy loss of a pair of distributions."""

    @property
    def largest(self) -> float: ...

    def delta(self, epsilon: float) -> float: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DiscreteLoss:
    """A loss with finitely many values; `unmatched` is the probability of outcomes that only P can produce."""

    values: FloatArray
    masses: FloatArray
    unmatched: float = 0.0

    @property
    def largest(self) -> float:
        if self.unmatched > 0.0:
            return math.inf
        return float(np.max(self.values, initial=-math.inf, where=self.masses > 0.0))

    def delta(self, epsilon: float) -> float:
        with np.errstate(over="ignore"):
            gains = -np.expm1(np.minimum(epsilon - self.values, 0.0))
        return float(self.masses @ gains) + self.unmatched

    def plus(self, other: DiscreteLoss) -> DiscreteLoss:
        """Return the loss of two independent samples; many values are rounded down to a grid of `_MOST_ATOMS`."""
        one, two = self._few(), other._few()
        return DiscreteLoss(
            values=np.add.outer(one.values, two.values).ravel(),
            masses=np.multiply.outer(one.masses, two.masses).ravel(),
            unmatched=one.unmatched + two.unmatched - one.unmatched * two.unmatched,
        )._few()

    def _few(self) -> DiscreteLoss:
        """Return at most about `_MOST_ATOMS` values, rounded down; infinite values become unmatched."""
        values, masses, unmatched = self.values, self.masses, self.unmatched
        finite = values < math.inf
        if not finite.all():
            unmatched += float(masses[~finite].sum())
            values, masses = values[finite], masses[finite]
        if len(values) > _MOST_ATOMS:
            least, most = float(values.min()), float(values.max())
            width = max(most - least, 1e-300) / _MOST_ATOMS
            cells = np.floor((values - least) / width).astype(np.int64)
            masses = np.bincount(cells, weights=masses).astype(np.float64)
            values = least + width * np.arange(len(masses), dtype=np.float64)
        return DiscreteLoss(values=values, masses=masses, unmatched=unmatched)


_MOST_ATOMS = 2048
_ABSOLUTE_ERROR, _RELATIVE_ERROR = 1e-14, 1e-8  # of noncentral chi-square probabilities
NO_LOSS = DiscreteLoss(values=np.zeros(1), masses=np.ones(1))
TOTAL_LOSS = DiscreteLoss(values=np.zeros(1), masses=np.zeros(1), unmatched=1.0)


@dataclass(frozen=True, kw_only=True)
class GaussianShift:
    """Two Gaussians of one scale, `shift` standard deviations apart."""

    shift: float

    @property
    def largest(self) -> float:
        return math.inf if self.shift > 0.0 else 0.0

    def delta(self, epsilon: float) -> float:
        if self.shift == 0.0:
            return NO_LOSS.delta(epsilon)
        if epsilon > 0.0:
            return math.exp(log_divergence_equal_scale(epsilon, self.shift))
        if epsilon == 0.0:
            return math.erf(self.shift / (2.0 * math.sqrt(2.0)))
        # The pair is symmetric, so H_eps = 1 - e^eps + e^eps H_-eps (proofs/gaussian-calibration.md, (1)).
        return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)


@dataclass(frozen=True, kw_only=True)
class GaussianScales:
    """N(0, I) against N(shift e_1, ratio^2 I) in some dimension, for ratio != 1."""

    shift: float
    log_ratio: float
    dimension: int

    @property
    def largest(self) -> float:
        return math.inf

    def delta(self, epsilon: float) -> float:
        if self.log_ratio < 0.0:  # P is wider: measure in units of Q's scale
            shift, log_ratio = self.shift / math.exp(self.log_ratio), -self.log_ratio
            if epsilon > 0.0:
                # The kernel needs distinct centers; for one center use a negligible distance.
                apart = max(shift, 1e-9)
                return math.exp(log_divergence_wide_first(epsilon, apart, log_ratio, self.dimension))
            return _wide_first(epsilon, shift, log_ratio, self.dimension)
        return _narrow_first(epsilon, self.shift, self.log_ratio, self.dimension)


def _wide_first(epsilon: float, shift: float, log_ratio: float, dimension: int) -> float:
    """H_eps( N(0, t^2 I) || N(shift e_1, I) ), as probabilities of the outside of a ball; for eps <= 0."""
    wide, narrow = _in_ball(epsilon, shift, log_ratio, dimension)
    # Minus the error of the probabilities: an audit must not raise a false alarm.
    return max(1.0 - wide - math.exp(epsilon) * (1.0 - narrow) - _ABSOLUTE_ERROR, 0.0)


def _narrow_first(epsilon: float, shift: float, log_ratio: float, dimension: int) -> float:
    """Return H_eps( N(0, I) || N(shift e_1, t^2 I) ), as probabilities of the inside of a ball.

    The identity H_eps(P || Q) = 1 - e^eps + e^eps H_-eps(Q || P) would cancel for large e^eps.
    """
    # The ball of the other order is measured from the center of the wide distribution, so the names stay.
    wide, narrow = _in_ball(-epsilon, shift, log_ratio, dimension)
    if wide <= 0.0:
        return narrow
    expected = math.exp(min(epsilon + math.log(wide), 700.0))
    return max(narrow - expected - _RELATIVE_ERROR * (narrow + expected), 0.0)


def _in_ball(epsilon: float, shift: float, log_ratio: float, dimension: int) -> tuple[float, float]:
    """Return the probabilities of a ball under N(0, t^2 I) and N(shift e_1, I).

    Outside the ball the first density is more than e^eps times the second (proofs/gaussian-calibration.md, (2)).
    """
    from scipy import special  # deferred: it would dominate the import time of the package

    t2, excess = math.exp(2.0 * log_ratio), math.expm1(2.0 * log_ratio)
    center = shift * t2 / excess
    square = 2.0 * t2 / excess * (epsilon + dimension * log_ratio + shift * shift / (2.0 * excess))
    if square <= 0.0:
        return 0.0, 0.0
    wide = special.chndtr(square / t2, dimension, center * center / t2)
    narrow = special.chndtr(square, dimension, (center - shift) ** 2)
    return float(wide), float(narrow)


@dataclass(frozen=True, kw_only=True)
class LaplaceShift:
    """Two Laplace distributions of one scale, `shift` scales apart, on a fine grid."""

    shift: float

    @property
    def largest(self) -> float:
        return self.shift

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.shift:
            return 0.0
        if epsilon <= -self.shift:
            return -math.expm1(epsilon)
        return -math.expm1(0.5 * (epsilon - self.shift))

    def atoms(self) -> DiscreteLoss:
        """Return cells of the loss between -shift and shift, each at its lower end: a lower bound on the loss."""
        edges = np.linspace(-self.shift, self.shift, 129)
        # Under P the loss is +shift with probability 1/2, -shift with e^-shift / 2, and in between has density
        # exp((l - shift) / 2) / 4.
        upto = 0.5 * np.exp(0.5 * (edges - self.shift))
        masses = np.append(np.diff(upto), 0.5)
        masses[0] += upto[0]
        return DiscreteLoss(values=edges, masses=masses)


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionalOutcome:
    """One outcome of an earlier sample: its probability under P, its log-ratio, and the loss of later stages."""

    mass: float
    loss: float
    then: Loss


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionalLoss:
    """A sample, then another that depends on it; `unmatched` is the probability of what only P can produce."""

    cases: Sequence[ConditionalOutcome]
    unmatched: float = 0.0

    @property
    def largest(self) -> float:
        if self.unmatched > 0.0:
            return math.inf
        return max(
            (float(case.loss + case.then.largest) for case in self.cases if case.mass > 0.0), default=0.0
        )

    def delta(self, epsilon: float) -> float:
        return self.unmatched + math.fsum(
            case.mass * case.then.delta(epsilon - case.loss) for case in self.cases
        )

    def likely(self, number: int) -> Sequence[ConditionalOutcome]:
        """Return the outcomes of largest probability."""
        return sorted(self.cases, key=lambda case: -case.mass)[:number]


class IndependentLosses:
    """Independent discrete losses together with one Gaussian shift.

    The largest loss is exact. delta is computed on request, with values rounded down, so it never exceeds the true
    one.
    """

    def __init__(self, parts: Sequence[DiscreteLoss | LaplaceShift], shift: float) -> None:
        self._parts = parts
        self._gaussian = GaussianShift(shift=shift)
        self.largest = self._gaussian.largest + math.fsum(part.largest for part in parts)

    @cached_property
    def _atoms(self) -> DiscreteLoss:
        atoms = NO_LOSS
        for part in self._parts:
            atoms = atoms.plus(part.atoms() if isinstance(part, LaplaceShift) else part)
        return atoms

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.largest:
            return 0.0
        if self._gaussian.shift == 0.0:
            return self._atoms.delta(epsilon)
        pairs = zip(self._atoms.values.tolist(), self._atoms.masses.tolist(), strict=True)
        return self._atoms.unmatched + math.fsum(
            mass * self._gaussian.delta(epsilon - value) for value, mass in pairs if mass > _NEGLIGIBLE
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Joint:
    """Outcomes of several independent staged samples: the likely ones, so delta is a lower bound."""

    cases: ConditionalLoss
    largest: float

    def delta(self, epsilon: float) -> float:
        return self.cases.delta(epsilon)


_NEGLIGIBLE = 1e-18
_LIKELY = 4
_MOST_JOINT_CASES = 256


def combine_independent(losses: Sequence[Loss]) -> Loss:
    """Return the loss of independent samples together.

    Gaussian shifts add in squares, discrete losses by convolution. Staged samples are evaluated in their likely
    outcomes only: the largest loss stays exact, delta becomes a lower bound.
    """
    losses = [loss for loss in losses if loss is not NO_LOSS]
    if not losses:
        return NO_LOSS
    if len(losses) == 1:
        return losses[0]
    staged = [loss for loss in losses if isinstance(loss, ConditionalLoss)]
    if staged:
        rest = [loss for loss in losses if not isinstance(loss, ConditionalLoss)]
        likely = max(1, min(_LIKELY, int(_MOST_JOINT_CASES ** (1.0 / len(staged)))))
        joint = [
            ConditionalOutcome(
                mass=math.prod(case.mass for case in combined),
                loss=sum(case.loss for case in combined),
                then=combine_independent([*rest, *(case.then for case in combined)]),
            )
            for combined in itertools.product(*(loss.likely(likely) for loss in staged))
        ]
        return Joint(cases=ConditionalLoss(cases=joint), largest=math.fsum(loss.largest for loss in losses))
    shift, parts = 0.0, []
    for loss in losses:
        match loss:
            case GaussianShift():
                shift = math.hypot(shift, loss.shift)
            case LaplaceShift() | DiscreteLoss():
                parts.append(loss)
            case _:
                # Different scales or a mixture: a single part bounds the whole from below.
                return max(losses, key=lambda part: part.delta(1.0))
    return IndependentLosses(parts, shift) if parts else GaussianShift(shift=shift)
