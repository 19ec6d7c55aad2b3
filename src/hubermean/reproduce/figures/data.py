"""Simulated data sets of a point: the same deviations in every setting, each with its own true mean.

All randomness follows from the seed, the point and what the data are for, so that nothing depends on the order in which
points are run or on how many processes run them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from hubermean.reproduce.figures.panels import Point, Setting
from hubermean.reproduce.figures.records import Floats, Integers, RecordLaw
from hubermean.user_table import UserTable

Purpose = Literal["tuning", "evaluation"]


def seed_for(*names: object) -> int:
    """A seed of 128 bits that names decide."""
    text = "\x00".join(str(name) for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest())


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What methods see, and the true mean, which only an oracle may look at.

    Attributes:
        means: a row per user, shape (n, d).
        counts: records of each user.
        truth: the mean of the law, shape (d,).
    """

    means: Floats = field(repr=False)
    counts: Integers = field(repr=False)
    truth: Floats

    @cached_property
    def table(self) -> UserTable:
        return UserTable.from_means(self.means, self.counts)

    def error_of(self, values: Floats) -> float:
        """The squared distance from the truth, all columns together."""
        return float(np.sum((values - self.truth) ** 2))

    @cached_property
    def plain_error(self) -> float:
        """Of the mean over all records."""
        return self.error_of(np.average(self.means, axis=0, weights=self.counts))


def data_sets(
    point: Point,
    law: RecordLaw,
    settings: tuple[Setting, ...],
    *,
    seed: int,
    purpose: Purpose,
    first: int,
    size: int,
) -> Iterator[dict[str, DataSet]]:
    """`size` data sets from number `first` on, each once for every setting."""
    counts, columns = point.counts, point.panel.columns
    for number in range(first, first + size):
        generator = np.random.default_rng(seed_for(seed, point.key, purpose, number))
        deviations = np.empty((len(counts), columns))
        for column in range(columns):
            deviations[:, column] = law.user_means(generator, counts)
        made = {}
        for setting in settings:
            truth = setting.truth(law, generator, columns)
            made[setting.name] = DataSet(means=deviations + truth, counts=counts, truth=truth)
        yield made


def plain_variance(point: Point, law: RecordLaw) -> float:
    """The expected squared error of the mean over all records, all columns together: known, not simulated."""
    counts = point.counts
    one = float(np.sum(counts**2 * law.mean_variances(counts)) / np.sum(counts) ** 2)
    return point.panel.columns * one


def typical_span(sets: Iterable[DataSet]) -> tuple[float, float]:
    """How far below and above the truth user means reach in one column: medians over data sets and columns."""
    reaches = [(np.min(off, axis=0), np.max(off, axis=0)) for off in (one.means - one.truth for one in sets)]
    lows, highs = zip(*reaches, strict=True)
    return float(np.median(lows)), float(np.median(highs))
