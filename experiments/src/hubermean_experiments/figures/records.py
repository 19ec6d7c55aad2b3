"""Distributions of records, and the means of users who hold a given number of them.

Samples are centered: they are deviations from the mean of the distribution. The setting (`panels`) decides where that
mean lies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BLOCK = 1 << 16  # records drawn at a time, so that the buffer stays in the processor's cache


class RecordDistribution(ABC):
    """The distribution of one record, and what is public about it.

    Attributes:
        mean: the mean in the paper.
        deviation: the standard deviation.
        lowest: the least value of a centered record; minus infinity if there is none.
        unit: the order of magnitude that an analyst would guess beforehand; public radii are multiples of it.
        moment_order: p, for which the p-th moment is bounded (Assumption tail); infinite for bounded records.
    """

    name: str
    mean: float
    deviation: float
    lowest: float
    unit: float
    moment_order: float

    @abstractmethod
    def draw_user_means(self, generator: np.random.Generator, counts: Integers) -> Floats:
        """Draw the centered mean of each user, given the number of records of each."""

    def mean_variances(self, counts: Integers) -> Floats:
        """The variance of each user's mean; records are independent here."""
        variances: Floats = self.deviation**2 / counts
        return variances


@dataclass(frozen=True, kw_only=True)
class SyntheticDistribution(RecordDistribution):
    """Independent records, by a function that fills a buffer with centered samples.

    `closed`: the mean of m records has the same distribution divided by sqrt(m), so that it is drawn directly.
    """

    name: str
    mean: float
    deviation: float
    lowest: float
    unit: float = 1.0
    moment_order: float = math.inf
    fill: Callable[[np.random.Generator, Floats], None] = field(repr=False)
    closed: bool = False

    def draw_user_means(self, generator: np.random.Generator, counts: Integers) -> Floats:
        if self.closed or counts.max() == 1:
            means = np.empty(len(counts))
            self.fill(generator, means)
            means /= np.sqrt(counts)
            return means
        return draw_means_in_blocks(partial(self.fill, generator), counts)


def draw_means_in_blocks(fill: Callable[[Floats], None], counts: Integers) -> Floats:
    """Draw means of independent records block by block; at most one block of records is in memory."""
    if counts.min() < counts.max():  # unequal users hold few records altogether
        records = np.empty(int(counts.sum()))
        fill(records)
        sums: Floats = np.add.reduceat(records, np.cumsum(counts) - counts)
        return sums / counts
    users, each = len(counts), int(counts[0])
    means = np.empty(users)
    rows = max(1, _BLOCK // each)
    buffer = np.empty(rows * each)
    for start in range(0, users, rows):
        part = means[start : start + rows]
        block = buffer[: len(part) * each]
        fill(block)
        np.mean(block.reshape(len(part), each), axis=1, out=part)
    return means


def _uniform(generator: np.random.Generator, out: Floats) -> None:
    generator.random(out=out)
    out *= 2.0
    out -= 1.0


def _gaussian(generator: np.random.Generator, out: Floats) -> None:
    generator.standard_normal(out=out)


def _lomax(generator: np.random.Generator, out: Floats) -> None:
    """(1 - U)^(-1/4) - 1, less its mean 1/3: two square roots are faster than a power."""
    generator.random(out=out)
    np.subtract(1.0, out, out=out)  # in (0, 1]
    np.sqrt(out, out=out)
    np.sqrt(out, out=out)
    np.divide(1.0, out, out=out)
    out -= 4.0 / 3.0


def _exponential(generator: np.random.Generator, out: Floats) -> None:
    generator.standard_exponential(out=out)
    out -= 1.0


UNIFORM = SyntheticDistribution(name="uniform", mean=0.0, deviation=3**-0.5, lowest=-1.0, fill=_uniform)
GAUSSIAN = SyntheticDistribution(
    name="Gaussian", mean=0.0, deviation=1.0, lowest=-math.inf, moment_order=8.0, fill=_gaussian, closed=True
)
LOMAX = SyntheticDistribution(
    name="Lomax(4)", mean=1 / 3, deviation=2**0.5 / 3, lowest=-1 / 3, moment_order=4.0, fill=_lomax
)
EXPONENTIAL = SyntheticDistribution(
    name="exponential", mean=1.0, deviation=1.0, lowest=-1.0, moment_order=8.0, fill=_exponential
)


class EmpiricalDistribution(RecordDistribution):
    """Records of a real data set, drawn with replacement; the data set's own mean is the truth.

    The records of a simulated user are drawn from all records or, with `whole_users`, from those of one real user. The
    real user is chosen with a probability proportional to its number of records. Then users differ, and each record is
    still distributed uniformly over all records.
    """

    moment_order = 4.0  # income tails are about cubic (Hill estimate); the paper's theorem needs one number

    def __init__(
        self, name: str, values: Floats, sizes: Integers | None = None, *, whole_users: bool = False
    ) -> None:
        self.name = name
        self.mean = float(values.mean())
        self._centered: Floats = values - self.mean
        self.deviation = float(self._centered.std())
        self.lowest = float(self._centered.min())
        self.unit = 10.0 ** math.ceil(math.log10(max(abs(self.mean), self.deviation)))
        self._sizes: Integers | None = None
        self._between = 0.0
        if whole_users:
            if sizes is None:
                raise ValueError("whole users need their sizes")
            starts = np.cumsum(sizes) - sizes
            self._sizes, self._starts = np.repeat(sizes, sizes), np.repeat(starts, sizes)
            of_users = np.add.reduceat(self._centered, starts) / sizes
            self._between = float(np.average(of_users**2, weights=sizes))

    def draw_user_means(self, generator: np.random.Generator, counts: Integers) -> Floats:
        if self._sizes is not None:
            return self._draw_from_whole_users(generator, counts, self._sizes)

        def fill(out: Floats) -> None:
            chosen = generator.integers(len(self._centered), size=len(out), dtype=np.uint32)
            np.take(self._centered, chosen, out=out)

        return draw_means_in_blocks(fill, counts)

    def _draw_from_whole_users(
        self, generator: np.random.Generator, counts: Integers, sizes: Integers
    ) -> Floats:
        means = np.empty(len(counts))
        step = max(1, _BLOCK // int(counts.max()))
        for start in range(0, len(counts), step):
            part = counts[start : start + step]
            of_users = generator.integers(
                len(sizes), size=len(part)
            )  # a record of each, which tells the user
            record = np.repeat(of_users, part)
            chosen = self._starts[record] + (generator.random(len(record)) * sizes[record]).astype(np.int64)
            sums = np.add.reduceat(self._centered[chosen], np.cumsum(part) - part)
            means[start : start + step] = sums / part
        return means

    def mean_variances(self, counts: Integers) -> Floats:
        variances: Floats = self._between + (self.deviation**2 - self._between) / counts
        return variances
