"""Simulated users for the benchmarks: laws of records, and user means with a random true mean.

The true mean is drawn afresh for every data set: a mechanism that works with bins around zero would be lucky there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RADIUS = 100.0
"""What everybody is told about the mean: its distance from zero is at most this, in every number of columns."""

_BLOCK = 1 << 16  # records drawn at a time: what they pass through stays in the processor's cache


@dataclass(frozen=True, kw_only=True)
class RecordLaw:
    """The law of one record.

    Attributes:
        deviation: its standard deviation.
        fill: fills a buffer with independent records, centred at zero.
        closed: the mean of m records is Gaussian, so it is drawn at once.
    """

    name: str
    deviation: float
    fill: Callable[[np.random.Generator, Floats], None]
    closed: bool = False

    def user_means(self, generator: np.random.Generator, users: int, records: int) -> Floats:
        """Centred means of so many records of so many users."""
        means = np.empty(users)
        if self.closed or records == 1:
            self.fill(generator, means)
            means /= records**0.5
            return means
        rows = max(1, _BLOCK // records)
        buffer = np.empty(rows * records)
        for start in range(0, users, rows):
            part = means[start : start + rows]
            block = buffer[: len(part) * records]
            self.fill(generator, block)
            np.mean(block.reshape(len(part), records), axis=1, out=part)
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


def _log_normal(generator: np.random.Generator, out: Floats, *, sigma: float) -> None:
    """e^(sigma Z), centred, in units of its deviation: that of sigma = 2 is 54, of a size with `RADIUS`."""
    generator.standard_normal(out=out)
    out *= sigma
    np.exp(out, out=out)
    out -= math.exp(sigma**2 / 2.0)
    out /= math.sqrt(math.expm1(sigma**2) * math.exp(sigma**2))


LAWS = {
    law.name: law
    for law in (
        RecordLaw(name="uniform", deviation=3**-0.5, fill=_uniform),
        RecordLaw(name="Gaussian", deviation=1.0, fill=_gaussian, closed=True),
        RecordLaw(name="Lomax(4)", deviation=2**0.5 / 3, fill=_lomax),
        RecordLaw(name="log-normal(1)", deviation=1.0, fill=partial(_log_normal, sigma=1.0)),
        RecordLaw(name="log-normal(2)", deviation=1.0, fill=partial(_log_normal, sigma=2.0)),
    )
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A law, a number of users, records per user, and how many columns are drawn."""

    law: str
    users: int
    records: int
    columns: int

    @property
    def spread(self) -> float:
        """The standard deviation of a user mean in each column: the unit in which thresholds are tuned."""
        return LAWS[self.law].deviation / self.records**0.5

    def draw(self, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """(user means, true mean): shapes (n, d) and (d,)."""
        truth = generator.uniform(-RADIUS / 2, RADIUS / 2, self.columns)
        means = np.empty((self.users, self.columns))
        for column in range(self.columns):
            means[:, column] = LAWS[self.law].user_means(generator, self.users, self.records)
        means += truth
        return means, truth
