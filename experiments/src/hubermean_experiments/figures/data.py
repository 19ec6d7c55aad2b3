"""Simulated data sets of a point, and the incomes that some panels draw from.

Every setting sees the same deviations, each around its own true mean. All randomness follows from the seed, the point
and the purpose of the data, so results depend neither on the order of points nor on the number of processes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from hubermean.data.user_table import UserTable
from hubermean.errors import InputError
from hubermean_experiments.figures.panels import (
    SALARY,
    SYNTHETIC,
    TOTAL_INCOME,
    Panel,
    PanelPoint,
    TrueMeanSetting,
)
from hubermean_experiments.figures.records import EmpiricalDistribution, Floats, Integers, RecordDistribution
from hubermean_experiments.incomes.ipums import read_extract
from hubermean_experiments.incomes.records import IncomeRecords, player_salaries, survey_incomes

Purpose = Literal["tuning", "evaluation"]


def derive_seed(*names: object) -> int:
    """Derive a seed of 128 bits from names."""
    text = "\x00".join(str(name) for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest())


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """The data that methods see, and the true mean, which only an oracle may use.

    Attributes:
        means: a row per user, shape (n, d).
        counts: records of each user.
        truth: the mean of the distribution, shape (d,).
    """

    means: Floats = field(repr=False)
    counts: Integers = field(repr=False)
    truth: Floats

    @cached_property
    def table(self) -> UserTable:
        return UserTable.from_means(self.means, self.counts)

    def error_of(self, values: Floats) -> float:
        """The squared distance from the true mean, summed over columns."""
        return float(np.sum((values - self.truth) ** 2))

    @cached_property
    def non_private_error(self) -> float:
        """The squared error of the mean over all records."""
        return self.error_of(np.average(self.means, axis=0, weights=self.counts))


def simulate_data_sets(
    point: PanelPoint,
    distribution: RecordDistribution,
    settings: tuple[TrueMeanSetting, ...],
    *,
    seed: int,
    purpose: Purpose,
    first: int,
    size: int,
) -> Iterator[dict[str, DataSet]]:
    """Draw `size` data sets from number `first` on; each is returned once per setting, by its name."""
    counts, columns = point.counts, point.panel.columns
    for number in range(first, first + size):
        generator = np.random.default_rng(derive_seed(seed, point.key, purpose, number))
        deviations = np.empty((len(counts), columns))
        for column in range(columns):
            deviations[:, column] = distribution.draw_user_means(generator, counts)
        made = {}
        for setting in settings:
            truth = setting.truth(distribution, generator, columns)
            made[setting.name] = DataSet(means=deviations + truth, counts=counts, truth=truth)
        yield made


def non_private_variance(point: PanelPoint, distribution: RecordDistribution) -> float:
    """The expected squared error of the mean over all records, summed over columns, by formula."""
    counts = point.counts
    one = float(np.sum(counts**2 * distribution.mean_variances(counts)) / np.sum(counts) ** 2)
    return point.panel.columns * one


def measure_span(sets: Iterable[DataSet]) -> tuple[float, float]:
    """How far user means reach below and above the true mean in one column: medians over data sets and columns."""
    reaches = [(np.min(off, axis=0), np.max(off, axis=0)) for off in (one.means - one.truth for one in sets)]
    lows, highs = zip(*reaches, strict=True)
    return float(np.median(lows)), float(np.median(highs))


IncomeUser = Literal["person", "household"]

_VARIABLES = {TOTAL_INCOME: "INCTOT", SALARY: "INCWAGE"}
_STAND_INS = {TOTAL_INCOME: survey_incomes, SALARY: player_salaries}


@dataclass(frozen=True, kw_only=True)
class Extract:
    """An IPUMS extract, and what a user is in it.

    With `user="person"` records are drawn from all persons, as in the paper. With `user="household"` all records of a
    simulated user are drawn from one household, so that users differ.
    """

    path: Path
    ddi: Path | None = None
    user: IncomeUser = "person"


def load_incomes(panels: Iterable[Panel], extract: Extract | None) -> dict[str, IncomeRecords]:
    """Load the incomes that these panels need, by the name of their distribution."""
    needed = dict.fromkeys(panel.distribution for panel in panels if panel.distribution in _VARIABLES)
    if extract is None:
        return {name: _STAND_INS[name]() for name in needed}
    if not needed:
        raise InputError(
            "--ipums applies to panels 1g, 1h and 2d only; select one of them, or leave --ipums out"
        )
    return {
        name: read_extract(extract.path, variable=_VARIABLES[name], user=extract.user, ddi=extract.ddi)
        for name in needed
    }


def load_stored_incomes(
    marks: Mapping[str, str], known: Mapping[str, IncomeRecords], extract: Extract | None
) -> dict[str, IncomeRecords]:
    """Load packaged incomes of earlier runs in this folder, if their fingerprints still match."""
    if extract is not None:
        return {}
    found = {}
    for name in marks:
        if name in _STAND_INS and name not in known:
            with contextlib.suppress(InputError):  # the package is no longer installed
                records = _STAND_INS[name]()
                if fingerprint(records) == marks[name]:
                    found[name] = records
    return found


def record_distributions(
    incomes: Mapping[str, IncomeRecords], extract: Extract | None
) -> dict[str, RecordDistribution]:
    """The distributions of the paper for which there are records, by name."""
    distributions = dict(SYNTHETIC)
    whole_users = extract is not None and extract.user == "household"
    for name, records in incomes.items():
        if records.deviation == 0.0:
            raise InputError(
                f"all records of {records.variable} are equal; use an extract with different incomes"
            )
        distributions[name] = EmpiricalDistribution(
            name, records.values, records.sizes, whole_users=whole_users
        )
    return distributions


def fingerprint(records: IncomeRecords) -> str:
    """Identify a data set, so that results of one are never mixed with those of another."""
    digest = hashlib.blake2b(records.values.tobytes(), digest_size=8)
    digest.update(records.sizes.tobytes())
    return f"{records.variable} by {records.user}, {digest.hexdigest()}"
