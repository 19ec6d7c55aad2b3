"""Output distributions: what a release is sampled from, and what an audit compares.

A mechanism turns a private table into an output distribution, and a sample from it into a release. The release path
samples from the same objects that `hm.audit` compares between neighbors, so the audit covers what is released. Basic
distributions are noisy sums, selections and uniform numbers; they combine independently, in stages, or behind a test.

Every field depends on private data except `claim`, so a repr shows no other field. A claim states the privacy cost
of a sample as it is charged; sampling ignores it.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.accounting.budget import Claim
from hubermean.data.arrays import IntArray
from hubermean.noise.source import NoiseSource


class OutputDistribution(Protocol):
    """A distribution that can be sampled."""

    def sample(self, noise: NoiseSource) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class NoiseDistribution:
    """Discrete Laplace or Gaussian noise on a public grid.

    `scale` is in grid units; for a Gaussian it is the standard deviation.
    """

    kind: Literal["laplace", "gaussian"]
    scale: float

    @property
    def name(self) -> str:
        return f"discrete {self.kind.capitalize()}"

    @property
    def stddev(self) -> float:
        return self.scale * math.sqrt(2.0) if self.kind == "laplace" else self.scale

    def sample(self, source: NoiseSource, size: int) -> list[int]:
        if self.kind == "laplace":
            return source.discrete_laplace(self.scale, size)
        return source.discrete_gaussian(self.scale, size)

    def bound(self, *, tail: float) -> float:
        """Return a bound that |noise| exceeds with probability at most `tail`."""
        if self.kind == "laplace":
            # P(|X| > t) = 2 r^(t + 1) / (1 + r) for whole t >= 0, with r = exp(-1 / scale).
            return self.scale * math.log(2.0 / (tail * (1.0 + math.exp(-1.0 / self.scale))))
        # Sub-Gaussian with the same variance (Canonne, Kamath & Steinke 2020, Cor. 17); the normal quantile is exact
        # up to one grid cell.
        from statistics import NormalDist

        return -self.scale * NormalDist().inv_cdf(tail / 2.0) + 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisySum:
    """Integers with independent integer noise on each; a sample is a list of integers.

    `noise` holds one distribution per integer, or one for all. Positions that are not integers can be compared, not
    sampled.
    """

    position: Sequence[int] | Sequence[float] = field(repr=False)
    noise: NoiseDistribution | Sequence[NoiseDistribution] = field(repr=False)
    claim: Claim | None = None

    def distributions(self) -> list[NoiseDistribution]:
        """Return the noise distribution of each integer."""
        if isinstance(self.noise, NoiseDistribution):
            return [self.noise] * len(self.position)
        return list(self.noise)

    def distance(self, other: NoisySum) -> float:
        """Return the Euclidean distance to the integers of another sum."""
        return math.dist(self.position, other.position)

    def sample(self, noise: NoiseSource) -> list[int]:
        if isinstance(self.noise, NoiseDistribution):
            extra = self.noise.sample(noise, len(self.position))
        else:
            # Samples of one distribution together: starting a sampler is slow.
            runs = itertools.groupby(self.noise)
            extra = [
                more for distribution, run in runs for more in distribution.sample(noise, sum(1 for _ in run))
            ]
        return list(itertools.starmap(operator.add, zip(map(int, self.position), extra, strict=True)))


@dataclass(frozen=True, kw_only=True, eq=False)
class ExponentialMechanism:
    """A candidate 0, 1, 2, ... with probability proportional to exp(-rate * cost), in runs of equal cost.

    Run i holds the next `sizes[i] >= 1` candidates, each of cost `costs[i]`; see `noise.exponential_mechanism`.
    """

    costs: IntArray = field(repr=False)
    sizes: IntArray = field(repr=False)
    rate: Fraction = field(repr=False)
    claim: Claim | None = None

    def sample(self, noise: NoiseSource) -> int:
        return noise.choose(self.costs, self.sizes, self.rate)


_NEGLIGIBLE = 70 * math.log(2)
"""Exponent from which on a candidate of permute-and-flip changes no digit of the probability of another."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PermuteAndFlip:
    """A candidate 0, 1, 2, ... by permute-and-flip (McKenna & Sheldon 2020).

    Each candidate is accepted with probability exp(-rate * (cost - minimum cost)); the sample is uniform among the
    accepted.
    """

    costs: IntArray = field(repr=False)
    rate: Fraction = field(repr=False)
    claim: Claim | None = None

    def sample(self, noise: NoiseSource) -> int:
        return noise.permute_and_flip(self.costs, self.rate)

    def log_probabilities(self) -> NDArray[np.float64]:
        """Return the log-probability of each candidate, to about ten digits; cached for audits."""
        return self._log_probabilities

    @cached_property
    def _log_probabilities(self) -> NDArray[np.float64]:
        """The log-probabilities, as an integral over arrival times.

        A candidate of acceptance probability q has probability q times the integral over t from 0 to 1 of the
        product of (1 - q_j t) over all others: with uniform arrival times, it is the first of the accepted.
        """
        different, which, sizes = np.unique(self.costs, return_inverse=True, return_counts=True)
        exponents = -float(self.rate) * (different - different[0]).astype(np.float64)
        nodes, weights = _integration_nodes()
        # Less likely candidates are never seen before others, to more digits than are kept.
        likely = int(np.searchsorted(-exponents, _NEGLIGIBLE))
        with np.errstate(under="ignore"):
            factors = np.multiply.outer(nodes, -np.exp(exponents[:likely]))
            logs = np.log(weights) + np.log1p(factors) @ sizes[:likely]
            shares = np.exp(logs - logs.max())
            integrals = np.full(len(different), shares.sum())
            factors += 1.0
            integrals[:likely] = shares @ np.reciprocal(
                factors
            )  # the product without the candidate's own factor
        found: NDArray[np.float64] = (exponents + logs.max() + np.log(integrals))[which]
        return found


@lru_cache(maxsize=1)
def _integration_nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Gauss-Legendre nodes and weights on [0, 1], in panels that halve toward 0."""
    points, weights = np.polynomial.legendre.leggauss(12)
    cuts = np.concatenate([[0.0], 0.5 ** np.arange(28, -1, -1)])
    starts, widths = cuts[:-1, np.newaxis], np.diff(cuts)[:, np.newaxis]
    return (starts + widths * (points + 1.0) / 2.0).ravel(), (widths * weights / 2.0).ravel()


def choose_selection(
    costs: IntArray, rate: Fraction, *, concentrated: bool
) -> ExponentialMechanism | PermuteAndFlip:
    """Return the selection mechanism: permute-and-flip for pure DP, the exponential mechanism for concentrated DP.

    Permute-and-flip is never worse in expectation. The exponential mechanism has bounded range, which concentrated DP
    charges at epsilon^2 / 8 (Cesar & Rogers 2021).
    """
    if concentrated:
        return ExponentialMechanism(costs=costs, sizes=np.ones_like(costs), rate=rate)
    return PermuteAndFlip(costs=costs, rate=rate)


def max_cost_difference(first: ExponentialMechanism, second: ExponentialMechanism) -> int:
    """Return the largest difference of a candidate's costs under two distributions over the same candidates."""
    ends = [np.cumsum(distribution.sizes) for distribution in (first, second)]
    cuts = np.union1d(*ends)
    costs = [
        distribution.costs[np.searchsorted(own, cuts)]
        for distribution, own in zip((first, second), ends, strict=True)
    ]
    return int(np.abs(costs[0] - costs[1]).max())


@dataclass(frozen=True, kw_only=True, eq=False)
class Uniform:
    """An integer from 0 to `limit` - 1, uniform for every data set."""

    limit: int

    def sample(self, noise: NoiseSource) -> int:
        return noise.below(self.limit)


@dataclass(frozen=True, kw_only=True, eq=False)
class Independent:
    """Several independent distributions; a sample is a tuple."""

    parts: Iterable[OutputDistribution] = field(repr=False)
    claim: Claim | None = None

    def sample(self, noise: NoiseSource) -> tuple[Any, ...]:
        return tuple(part.sample(noise) for part in self.parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Staged:
    """A first sample, which is released, and a second whose distribution may depend on it; a sample is the pair."""

    first: OutputDistribution = field(repr=False)
    then: Callable[[Any], OutputDistribution] = field(repr=False)

    def sample(self, noise: NoiseSource) -> tuple[Any, Any]:
        first = self.first.sample(noise)
        return first, self.then(first).sample(noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyTest:
    """A private test that decides whether anything is released: a sample of the inner distribution, or None.

    The test passes with probability `passes` / 2^`bits`, exactly.
    """

    passes: int = field(repr=False)
    bits: int
    inner: OutputDistribution = field(repr=False)
    claim: Claim | None = None

    def sample(self, noise: NoiseSource) -> Any:
        return self.inner.sample(noise) if noise.below(1 << self.bits) < self.passes else None


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectedPartitions:
    """Independent selection of partitions; a sample is the tuple of the selected keys, in order.

    A key is selected with probability `chances[key]` / 2^`bits`, exactly; keys not in `chances` never are.
    """

    chances: Mapping[Any, int] = field(repr=False)
    bits: int
    claim: Claim | None = None

    def sample(self, noise: NoiseSource) -> tuple[Any, ...]:
        whole = 1 << self.bits
        return tuple(
            key
            for key in sorted(self.chances, key=natural_sort_key)
            if self.chances[key] == whole or noise.below(whole) < self.chances[key]
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ThresholdedSums:
    """The keys whose noisy sums reach a public threshold; a sample is the tuple of these keys, in order."""

    sums: Mapping[Any, int] = field(repr=False)
    noise: NoiseDistribution
    threshold: int
    claim: Claim | None = None

    def sample(self, noise: NoiseSource) -> tuple[Any, ...]:
        keys = sorted(self.sums, key=natural_sort_key)
        noisy = self.noise.sample(noise, len(keys))
        return tuple(
            key for key, extra in zip(keys, noisy, strict=True) if self.sums[key] + extra >= self.threshold
        )

    def chance(self, key: Any) -> float:
        """Return the probability that a key appears, for audits: that of Gaussian noise on a continuous scale."""
        if key not in self.sums:
            return 0.0
        return math.erfc((self.threshold - self.sums[key]) / (self.noise.scale * math.sqrt(2.0))) / 2.0

    def as_selection(self, bits: int = 256) -> SelectedPartitions:
        """Return the same selection by independent chances, up to rounding, for audits."""
        chances = {key: int(math.ldexp(self.chance(key), bits)) for key in self.sums}
        return SelectedPartitions(chances=chances, bits=bits, claim=self.claim)


def get_claim(distribution: OutputDistribution) -> Claim | None:
    """Return what a distribution claims to cost by itself, or None; staged distributions state one claim per stage."""
    return (
        distribution.claim
        if isinstance(
            distribution,
            NoisySum
            | ExponentialMechanism
            | PermuteAndFlip
            | Independent
            | NoisyTest
            | SelectedPartitions
            | ThresholdedSums,
        )
        else None
    )


def with_claim(distribution: OutputDistribution, claim: Claim) -> OutputDistribution:
    """Return the same distribution with another claim; a distribution that never depends on data needs none."""
    return (
        replace(distribution, claim=claim)
        if isinstance(
            distribution, NoisySum | ExponentialMechanism | PermuteAndFlip | Independent | NoisyTest
        )
        else distribution
    )


def without_claims(distribution: OutputDistribution) -> OutputDistribution:
    """Return the same distribution without claims, for a caller that makes a claim for the whole."""
    match distribution:
        case Independent():
            return Independent(parts=[without_claims(part) for part in distribution.parts])
        case Staged():
            then = distribution.then
            return Staged(
                first=without_claims(distribution.first), then=lambda outcome: without_claims(then(outcome))
            )
        case NoisyTest():
            return replace(distribution, inner=without_claims(distribution.inner), claim=None)
        case (
            NoisySum() | ExponentialMechanism() | PermuteAndFlip() | SelectedPartitions() | ThresholdedSums()
        ):
            return replace(distribution, claim=None)
    return distribution


def natural_sort_key(key: Any) -> tuple[tuple[bool, int, str], ...]:
    """Return the sort key of a partition key: texts that are integers sort by value, before all others.

    Different texts have different sort keys, or the order of "1" and "01" would be that of the data.
    """
    texts = map(str, key if isinstance(key, tuple) else (key,))
    return tuple(
        (False, int(text), text) if re.fullmatch("-?[0-9]{1,18}", text, re.ASCII) else (True, 0, text)
        for text in texts
    )
