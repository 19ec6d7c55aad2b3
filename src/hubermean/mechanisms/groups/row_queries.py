"""Private queries on the rows of users over groups, and chains of them.

A query has a cost and an output distribution. A chain is a generator: it yields queries and receives their samples, so
that each query is decided from public numbers and earlier samples alone. The same generator makes the output
distribution of a release and takes the estimates from a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import PrivacyBudget
from hubermean.accounting.concentrated import concentrated_sigma
from hubermean.accounting.discrete import laplace_scale
from hubermean.data.arrays import FloatArray, IntArray
from hubermean.distributions.output import (
    NoiseDistribution,
    NoisySum,
    NoisyTest,
    OutputDistribution,
    Staged,
    Uniform,
    with_claim,
)
from hubermean.errors import InputError
from hubermean.mechanisms.adaptive.parameters import InfeasibleError
from hubermean.mechanisms.groups.rows import NORM_GRID, ROW_UNITS, Norm, UserRows
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.searches.bounds import RankSearch

T = TypeVar("T")
Terms = Literal["signed", "sides", "nonnegative"]
"""What is added up of each clipped entry: itself, or what lies on either side of 0; some are never negative."""


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """How queries are accounted for, and by which norm rows are clipped.

    In pure epsilon rows are clipped in 1-norm and noise is Laplace; in concentrated privacy they are clipped in
    Euclidean norm and noise is Gaussian.
    """

    budget: PrivacyBudget
    add_remove: bool

    @property
    def concentrated(self) -> bool:
        return self.budget.accounting == "concentrated"

    @property
    def norm(self) -> Norm:
        return "L2" if self.concentrated else "L1"

    def noise(self, cost: Fraction, *, nonnegative: bool) -> NoiseDistribution:
        """Return the noise on the sums of clipped rows that costs so much (proofs/groups.md, Lemma 5).

        A replaced user takes one row away and adds another. In 1-norm the sums move by two bounds; in Euclidean norm by
        two as well, but by the root of two if no entry is negative.

        Raises:
            InputError: the noise would be too large for its sampler.
        """
        amount = round_down(cost)
        if self.concentrated:
            moved = 1 if self.add_remove else 2 if nonnegative else 4
            noise = NoiseDistribution(
                kind="gaussian", scale=concentrated_sigma(amount, squared_sensitivity=moved * ROW_UNITS**2)
            )
        else:
            sensitivity = ROW_UNITS * (1 if self.add_remove else 2)
            noise = NoiseDistribution(kind="laplace", scale=laplace_scale(amount, sensitivity=sensitivity))
        if noise.scale > LARGEST_SCALE:
            raise InputError("epsilon is too small for this number of steps; raise it")
        return noise

    def noise_stddev(self, cost: Fraction, *, nonnegative: bool) -> float:
        """Return the standard deviation of that noise, in bounds."""
        return self.noise(cost, nonnegative=nonnegative).stddev / ROW_UNITS


class Entries(Protocol):
    """Makes the entries of all rows from private data and released numbers; each from its own record sums alone."""

    def __call__(self, rows: UserRows) -> FloatArray: ...


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The weight of each entry: its records, at most `cap`; None for no bound, 1 to count users."""

    cap: int | None

    def __call__(self, rows: UserRows) -> FloatArray:
        return rows.weights(self.cap)


@dataclass(frozen=True, kw_only=True, eq=False)
class Deviations:
    """Weight times the distance of the mean from the center of its group, in units of the scale of the group.

    Means beyond `low` or `high`, public bounds, count as these.
    """

    column: int
    weights: Weights
    centers: FloatArray
    scales: FloatArray
    low: float | None = None
    high: float | None = None

    def __call__(self, rows: UserRows) -> FloatArray:
        weights = self.weights(rows)
        means = rows.members.column_means(self.column)
        if self.low is not None or self.high is not None:
            means = np.clip(means, self.low, self.high)
        with np.errstate(all="ignore"):
            entries: FloatArray = weights * (means - self.centers[rows.groups]) / self.scales[rows.groups]
        entries[weights == 0.0] = 0.0  # without records the mean is undefined
        return entries


class Query(Protocol):
    """One private step of a chain."""

    @property
    def what(self) -> str:
        """The name of the step in the budget breakdown."""

    @property
    def cost(self) -> Fraction:
        """What it costs, in the accounting of its budget."""

    @property
    def budget(self) -> PrivacyBudget:
        """In whose accounting it costs that."""

    def distribution(self, rows: UserRows) -> OutputDistribution: ...


@dataclass(frozen=True, kw_only=True)
class NormSearch:
    """A bound on the norm of rows that few rows exceed; the sample is a number of `NORM_GRID`."""

    entries: Entries
    unit: float
    search: RankSearch
    accounting: Accounting
    what: str = "norm bounds"

    @property
    def cost(self) -> Fraction:
        return self.budget.cost_of_selection(self.search.epsilon)

    @property
    def budget(self) -> PrivacyBudget:
        return self.accounting.budget

    def distribution(self, rows: UserRows) -> OutputDistribution:
        longer = rows.count_longer(self.entries(rows), unit=self.unit, norm=self.accounting.norm)
        chosen = self.search.distribution(longer, NORM_GRID, concentrated=self.accounting.concentrated)
        return with_claim(chosen, self.budget.claim(self.what, self.cost))

    def found(self, number: int) -> float:
        return self.unit * float(NORM_GRID[number])


@dataclass(frozen=True, kw_only=True)
class RowSums:
    """Sums per group of clipped rows, with noise; the sample is a list of integers, term by term.

    Squares have a noise of their own, for `squares_cost` in addition to `sums_cost`.
    """

    what: str
    entries: Entries
    bound: float
    terms: Terms
    sums_cost: Fraction
    squares_cost: Fraction = Fraction(0)
    accounting: Accounting

    def __post_init__(self) -> None:
        """Refuse noise that cannot be sampled here, where public numbers decide, not where data are at hand."""
        _ = self.sums_noise, self.squares_cost and self.squares_noise

    @property
    def cost(self) -> Fraction:
        return self.sums_cost + self.squares_cost

    @property
    def budget(self) -> PrivacyBudget:
        return self.accounting.budget

    @property
    def stddev(self) -> float:
        """The standard deviation of the noise in the sums, in the units of the entries."""
        return self.sums_noise.stddev * self.bound / ROW_UNITS

    @property
    def squares_stddev(self) -> float:
        return self.squares_noise.stddev * self.bound**2 / ROW_UNITS

    @property
    def sums_noise(self) -> NoiseDistribution:
        return self.accounting.noise(self.sums_cost, nonnegative=self.terms != "signed")

    @property
    def squares_noise(self) -> NoiseDistribution:
        return self.accounting.noise(self.squares_cost, nonnegative=True)

    def distribution(self, rows: UserRows) -> NoisySum:
        clipped = rows.clip(self.entries(rows), bound=self.bound, norm=self.accounting.norm)
        terms = [rows.totals(term) for term in self._terms(clipped)]
        noises = [self.sums_noise] * len(terms)
        if self.squares_cost:
            terms.append(rows.totals(_squares(clipped)))
            noises.append(self.squares_noise)
        return NoisySum(
            position=[total for term in terms for total in term],
            noise=[noise for noise in noises for _ in range(rows.n_groups)],
            claim=self.budget.claim(self.what, self.cost),
        )

    def _terms(self, clipped: IntArray) -> list[IntArray]:
        if self.terms == "sides":
            return [np.maximum(clipped, 0), np.maximum(-clipped, 0)]
        return [clipped]

    def found(self, sample: list[int], groups: int) -> list[FloatArray]:
        """Return the noisy sums, one array per term, in the units of the entries; squares in their squares."""
        numbers = np.array(sample, dtype=np.float64).reshape(-1, groups) / ROW_UNITS
        terms = list(numbers * self.bound)
        if self.squares_cost:
            terms[-1] = numbers[-1] * self.bound**2
        return terms


def _squares(clipped: IntArray) -> IntArray:
    # Up to 2^60: no overflow.
    return clipped * clipped // ROW_UNITS


_NOTHING = NoisyTest(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))
_END = Uniform(limit=1)
Chain = Callable[[], Generator[Query, Any, T]]


def chain_queries(chain: Chain[Any], rows: UserRows) -> OutputDistribution:
    """Return the joint output distribution of a chain's queries."""
    return _chain(chain, rows, ())


def _chain(chain: Chain[Any], rows: UserRows, samples: tuple[Any, ...]) -> OutputDistribution:
    try:
        query, _ = _advance(chain, samples)
        if query is None:
            return _END
        first = query.distribution(rows)
    except (InputError, InfeasibleError):
        return _NOTHING
    return Staged(first=first, then=lambda sample: _chain(chain, rows, (*samples, sample)))


def replay_queries(chain: Chain[T], sample: Any) -> tuple[T, list[Query]]:
    """Return what a chain makes of a sample from its distribution, and the queries that ran.

    Raises:
        ChainRefusedError: the sample allows no release.
    """
    samples: tuple[Any, ...] = ()
    queries: list[Query] = []
    while True:
        try:
            query, made = _advance(chain, samples)
        except (InputError, InfeasibleError) as refusal:
            raise ChainRefusedError(str(refusal), queries) from None
        if query is None:
            return made, queries
        first, sample = sample
        samples = (*samples, first)
        queries.append(query)


class ChainRefusedError(InfeasibleError):
    """A sample allows no release; `queries` are those that ran."""

    def __init__(self, reason: str, queries: list[Query]) -> None:
        super().__init__(reason)
        self.queries = queries


def _advance(chain: Chain[T], samples: tuple[Any, ...]) -> tuple[Query | None, Any]:
    """Return the query after these samples, or None and what the chain made of them."""
    running = chain()
    try:
        query = next(running)
        for sample in samples:
            query = running.send(sample)
    except StopIteration as finished:
        return None, finished.value
    return query, None
