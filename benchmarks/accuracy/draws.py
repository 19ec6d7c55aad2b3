"""Simulated users for the benchmarks: laws of records, and user means with a random true mean.

The true mean is drawn afresh for every data set: a mechanism that works with bins around zero would be lucky there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from hubermean_experiments.figures.records import GAUSSIAN, LOMAX, UNIFORM, Floats, SyntheticDistribution

RADIUS = 100.0
"""What everybody is given about the mean: its distance from zero is at most this, in every number of columns."""


def _log_normal(generator: np.random.Generator, out: Floats, *, sigma: float) -> None:
    """e^(sigma Z), centered, in units of its deviation: that of sigma = 2 is 54, of a size with `RADIUS`."""
    generator.standard_normal(out=out)
    out *= sigma
    np.exp(out, out=out)
    out -= math.exp(sigma**2 / 2.0)
    out /= math.sqrt(math.expm1(sigma**2) * math.exp(sigma**2))


def _of_log_normal(sigma: float) -> SyntheticDistribution:
    return SyntheticDistribution(
        name=f"log-normal({sigma:g})",
        mean=0.0,
        deviation=1.0,
        lowest=-1.0 / math.sqrt(math.expm1(sigma**2)),
        fill=partial(_log_normal, sigma=sigma),
    )


LAWS = {law.name: law for law in (UNIFORM, GAUSSIAN, LOMAX, _of_log_normal(1.0), _of_log_normal(2.0))}


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
        return LAWS[self.distribution].deviation / self.records**0.5

    def draw(self, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """(user means, true mean): shapes (n, d) and (d,)."""
        truth = generator.uniform(-RADIUS / 2, RADIUS / 2, self.columns)
        means = np.empty((self.users, self.columns))
        for column in range(self.columns):
            counts = np.full(self.users, self.records)
            means[:, column] = LAWS[self.distribution].draw_user_means(generator, counts)
        means += truth
        return means, truth
