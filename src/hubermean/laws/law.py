"""The law of a release given the data: five kinds, and three ways to put them together.

A mechanism turns a private table into a law and a draw into a release. The release path draws from the very object
that `audit` compares between neighbours, so what is audited is what is released. A law depends on private data in
every field but its claim; none of them is shown. The claim says what a draw costs, as it is booked; a draw ignores it.
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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.laws.claim import Claim
from hubermean.noise import NoiseLaw, NoiseSource

IntArray = NDArray[np.int64]


class Law(Protocol):
    """Something random that can be drawn."""

    def draw(self, noise: NoiseSource) -> Any: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisySum:
    """Integers with independent integer noise on each; a draw is a list of integers.

    `noise` holds one law per integer, or one for all. (Positions that are no integers can be compared, not drawn from.)
    """

    position: Sequence[int] | Sequence[float] = field(repr=False)
    noise: NoiseLaw | Sequence[NoiseLaw] = field(repr=False)
    claim: Claim | None = None

    def laws(self) -> list[NoiseLaw]:
        """The law of the noise on each integer."""
        if isinstance(self.noise, NoiseLaw):
            return [self.noise] * len(self.position)
        return list(self.noise)

    def distance(self, other: NoisySum) -> float:
        """How far the integers are from those of another sum."""
        return math.dist(self.position, other.position)

    def draw(self, noise: NoiseSource) -> list[int]:
        if isinstance(self.noise, NoiseLaw):
            extra = self.noise.draw(noise, len(self.position))
        else:
            # Draws of one law together: a sampler is slow to start.
            runs = itertools.groupby(self.noise)
            extra = [more for law, run in runs for more in law.draw(noise, sum(1 for _ in run))]
        return list(itertools.starmap(operator.add, zip(map(int, self.position), extra, strict=True)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """A candidate 0, 1, 2, ... with probability proportional to exp(-rate * cost), in runs of equal cost.

    Run i holds the next `sizes[i] >= 1` candidates, each of cost `costs[i]`; see `noise.selection`.
    """

    costs: IntArray = field(repr=False)
    sizes: IntArray = field(repr=False)
    rate: Fraction = field(repr=False)
    claim: Claim | None = None

    def draw(self, noise: NoiseSource) -> int:
        return noise.choose(self.costs, self.sizes, self.rate)


@dataclass(frozen=True, kw_only=True, eq=False)
class PermuteAndFlip:
    """A candidate 0, 1, 2, ... by permute-and-flip: each is accepted with probability exp(-rate * (cost - least cost)),
    and the draw is uniform among the accepted (McKenna & Sheldon 2020).
    """

    costs: IntArray = field(repr=False)
    rate: Fraction = field(repr=False)
    claim: Claim | None = None

    def draw(self, noise: NoiseSource) -> int:
        return noise.permute_and_flip(self.costs, self.rate)

    def log_probabilities(self) -> NDArray[np.float64]:
        """Of each candidate, to about ten digits; for audits, which look at one law many times."""
        return self._log_probabilities

    @cached_property
    def _log_probabilities(self) -> NDArray[np.float64]:
        """As an integral over arrival times.

        A candidate of acceptance probability q has q times the integral over t from 0 to 1 of the product of
        (1 - q_j t) over all others: if each draws a uniform arrival time, it is the first of the accepted.
        """
        different, which, sizes = np.unique(self.costs, return_inverse=True, return_counts=True)
        exponents = -float(self.rate) * (different - different[0]).astype(np.float64)
        chances = np.exp(exponents)
        nodes, weights = _integration_nodes()
        with np.errstate(under="ignore"):
            alone = np.log1p(-np.multiply.outer(nodes, chances))
            # Against all others; its own factor is taken out of the product again.
            logs = (np.log(weights) + alone @ sizes)[:, np.newaxis] - alone
            most = logs.max(axis=0)
            integrals = most + np.log(np.exp(logs - most).sum(axis=0))
        found: NDArray[np.float64] = (exponents + integrals)[which]
        return found


@lru_cache(maxsize=1)
def _integration_nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss-Legendre nodes and weights on [0, 1], in pieces that halve toward 0, where many candidates leave little."""
    points, weights = np.polynomial.legendre.leggauss(12)
    cuts = np.concatenate([[0.0], 0.5 ** np.arange(28, -1, -1)])
    starts, widths = cuts[:-1, np.newaxis], np.diff(cuts)[:, np.newaxis]
    return (starts + widths * (points + 1.0) / 2.0).ravel(), (widths * weights / 2.0).ravel()


def select(costs: IntArray, rate: Fraction, *, concentrated: bool) -> Choice | PermuteAndFlip:
    """One of few candidates: permute-and-flip for pure privacy, the exponential mechanism for concentrated privacy.

    Permute-and-flip is never worse in expectation; the exponential mechanism has bounded range, which concentrated
    privacy counts at epsilon^2 / 8 (Cesar & Rogers 2021).
    """
    if concentrated:
        return Choice(costs=costs, sizes=np.ones_like(costs), rate=rate)
    return PermuteAndFlip(costs=costs, rate=rate)


def costs_apart(first: Choice, second: Choice) -> int:
    """The largest difference between the costs of one candidate under two laws over the same candidates."""
    ends = [np.cumsum(law.sizes) for law in (first, second)]
    cuts = np.union1d(*ends)
    costs = [law.costs[np.searchsorted(own, cuts)] for law, own in zip((first, second), ends, strict=True)]
    return int(np.abs(costs[0] - costs[1]).max())


@dataclass(frozen=True, kw_only=True, eq=False)
class Uniform:
    """A whole number from 0 to `limit` - 1, all equally likely whatever the data."""

    limit: int

    def draw(self, noise: NoiseSource) -> int:
        return noise.below(self.limit)


@dataclass(frozen=True, kw_only=True, eq=False)
class Independent:
    """Several laws drawn independently of each other; a draw is a tuple."""

    parts: Iterable[Law] = field(repr=False)
    claim: Claim | None = None

    def draw(self, noise: NoiseSource) -> tuple[Any, ...]:
        return tuple(part.draw(noise) for part in self.parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Staged:
    """A first draw that is released, and a second one from a law that may depend on it; a draw is the pair."""

    first: Law = field(repr=False)
    then: Callable[[Any], Law] = field(repr=False)

    def draw(self, noise: NoiseSource) -> tuple[Any, Any]:
        first = self.first.draw(noise)
        return first, self.then(first).draw(noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gate:
    """A coin that decides whether anything is released: the inner law's draw, or None.

    The probability is `passes` / 2^`bits`, exactly.
    """

    passes: int = field(repr=False)
    bits: int
    inner: Law = field(repr=False)
    claim: Claim | None = None

    def draw(self, noise: NoiseSource) -> Any:
        return self.inner.draw(noise) if noise.below(1 << self.bits) < self.passes else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Each key appears or does not, independently of the others; a draw is the tuple of those that do, in order.

    A key appears with probability `chances[key]` / 2^`bits`, exactly; one without a chance never does.
    """

    chances: Mapping[Any, int] = field(repr=False)
    bits: int
    claim: Claim | None = None

    def draw(self, noise: NoiseSource) -> tuple[Any, ...]:
        whole = 1 << self.bits
        return tuple(
            key
            for key in sorted(self.chances, key=natural_order)
            if self.chances[key] == whole or noise.below(whole) < self.chances[key]
        )


def claim_of(law: Law) -> Claim | None:
    """What a law claims to cost by itself, if it says so; of draws in stages each states its own."""
    return (
        law.claim
        if isinstance(law, NoisySum | Choice | PermuteAndFlip | Independent | Gate | Selection)
        else None
    )


def claiming(law: Law, claim: Claim) -> Law:
    """The same law with another claim of what it costs; a draw that never depends on data costs nothing anyway."""
    return (
        replace(law, claim=claim)
        if isinstance(law, NoisySum | Choice | PermuteAndFlip | Independent | Gate)
        else law
    )


def without_claims(law: Law) -> Law:
    """The same law with nothing claimed, for a caller that claims something of the whole."""
    match law:
        case Independent():
            return Independent(parts=[without_claims(part) for part in law.parts])
        case Staged():
            then = law.then
            return Staged(first=without_claims(law.first), then=lambda outcome: without_claims(then(outcome)))
        case Gate():
            return replace(law, inner=without_claims(law.inner), claim=None)
        case NoisySum() | Choice() | PermuteAndFlip() | Selection():
            return replace(law, claim=None)
    return law


def natural_order(key: Any) -> tuple[tuple[bool, int, str], ...]:
    """By which keys are sorted: texts that are whole numbers by their size, before all others."""
    texts = map(str, key if isinstance(key, tuple) else (key,))
    return tuple(
        (False, int(text), "") if re.fullmatch("-?[0-9]{1,18}", text, re.ASCII) else (True, 0, text)
        for text in texts
    )
