"""All that was measured, for the page and the plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groups.measures import Measured, large_groups
from groups.tables import JUDGE, GroupTable

OURS = "hubermean"
SEVERAL_GROUPS, DIFFERENT_GROUPS = 1.5, 2.0


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """A table in one line of the page.

    Attributes:
        judged: whether aims are judged on it; constants may have been tuned on the others.
        large: groups of at least 200 users.
        mean_groups, median_groups, most_groups: of a user.
        spread: the 90th over the 10th percentile of the means per record of the large groups.
        sampling: by `per`, the median standard error of the plain means of large groups, relative to each.
    """

    name: str
    judged: bool
    record: str
    package: str
    records: int
    users: int
    groups: int
    large: int
    mean_groups: float
    median_groups: float
    most_groups: int
    spread: float
    sampling: dict[str, float]

    @classmethod
    def of(cls, table: GroupTable) -> TableFacts:
        large = large_groups(table)
        low, high = np.percentile(np.abs(table.plain_means("record")[large]), [10, 90])
        return cls(
            name=table.name,
            judged=table.source in JUDGE,
            record=table.source.record,
            package=table.source.package,
            records=len(table.record_values),
            users=table.n_users,
            groups=table.n_groups,
            large=int(large.sum()),
            mean_groups=float(table.groups_per_user.mean()),
            median_groups=float(np.median(table.groups_per_user)),
            most_groups=int(table.groups_per_user.max()),
            spread=float(high / low),
            sampling={
                per: float(
                    np.median(table.sampling_errors(per)[large] / np.abs(table.plain_means(per)[large]))
                )
                for per in ("user", "record")
            },
        )

    @property
    def several(self) -> bool:
        """Whether users are in several groups."""
        return self.mean_groups >= SEVERAL_GROUPS

    @property
    def different(self) -> bool:
        """Whether groups differ."""
        return self.spread >= DIFFERENT_GROUPS


@dataclass(frozen=True, kw_only=True)
class Results:
    """Facts and measures, in the order of the tables."""

    facts: Sequence[TableFacts]
    measured: Sequence[Measured]

    def of(
        self,
        contestant: str,
        *,
        per: str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        judged: bool | None = None,
    ) -> list[Measured]:
        """Rows of one contestant; whatever is None may be anything."""
        wanted = {fact.name for fact in self.facts if judged is None or fact.judged == judged}
        return [
            row
            for row in self.measured
            if row.contestant == contestant
            and row.table in wanted
            and (per is None or row.per == per)
            and (epsilon is None or row.epsilon == epsilon)
            and (delta is None or row.delta == delta)
        ]

    def beside(self, row: Measured, contestant: str) -> Measured | None:
        """The same case of another contestant."""
        return next(
            (
                other
                for other in self.of(contestant, per=row.per, epsilon=row.epsilon, delta=row.delta)
                if other.table == row.table
            ),
            None,
        )

    def fact(self, name: str) -> TableFacts:
        return next(fact for fact in self.facts if fact.name == name)

    @property
    def epsilons(self) -> list[float]:
        return sorted({row.epsilon for row in self.of(OURS)})

    @property
    def deltas(self) -> list[float]:
        return sorted({row.delta for row in self.of(OURS)}, reverse=True)
