"""All that was measured, for the page and the plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from realdata.law_runs import ColumnsResult, LawResult
from realdata.other_methods import Compared
from realdata.releases import Measured
from realdata.tables import UserSums

ENOUGH_USERS = 1_000
"""The aims are for tables with so many users or more."""


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """A real table in one line of the page."""

    name: str
    what: str
    source: str
    records: int
    users: int
    median_records: float
    largest_records: int
    mean_per_user: float
    mean_per_record: float
    kurtosis: float

    @classmethod
    def of(cls, table: UserSums) -> TableFacts:
        centered = table.means - table.means.mean()
        return cls(
            name=table.name,
            what=table.what,
            source=table.source,
            records=table.records,
            users=table.users,
            median_records=float(np.median(table.counts)),
            largest_records=int(table.counts.max()),
            mean_per_user=table.plain_mean("user"),
            mean_per_record=table.plain_mean("record"),
            kurtosis=float((centered**4).mean() / (centered**2).mean() ** 2),
        )


@dataclass(frozen=True, kw_only=True)
class Results:
    facts: Sequence[TableFacts]
    tables: Sequence[Measured]
    methods: Sequence[Compared]
    laws: Sequence[LawResult]
    places: Sequence[LawResult]
    columns: Sequence[ColumnsResult]

    def measured(
        self, *, per: str | None = None, epsilon: float | None = None, neighbors: str = "add-remove"
    ) -> list[Measured]:
        return [
            row
            for row in self.tables
            if row.neighbors == neighbors
            and (per is None or row.per == per)
            and (epsilon is None or row.epsilon == epsilon)
        ]

    def of_method(self, method: str) -> dict[str, float]:
        """RMSE by table."""
        return {row.table: row.rmse for row in self.methods if row.method == method}
