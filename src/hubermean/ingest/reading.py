"""What is read of any data, and how: decided once, then asked for by user or by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hubermean.group_table import GroupTable, Key
from hubermean.ingest.groups import group_table
from hubermean.ingest.read import user_table
from hubermean.unsafe_timings import stage
from hubermean.user_table import PrivateTable

READING = "reading and grouping"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The columns to read and the arguments of `user_table` that say how."""

    user: Sequence[str]
    value: Sequence[str]
    resolution: float | Decimal | Fraction | None = None
    non_finite: str = "drop"
    memory_limit: str | None = None
    threads: int | None = None
    progress: bool = False
    engine: str | None = None

    @stage(READING)
    def user_table(self, data: Any, *, records: bool) -> PrivateTable:
        return user_table(data, value=self.value or None, records=records, user=self.user, **self._how())

    @stage(READING)
    def group_table(
        self, data: Any, *, by: Sequence[str], keys: Sequence[Key] | None, max_groups: int, pooled: bool
    ) -> GroupTable:
        return group_table(
            data,
            user=self.user,
            value=self.value,
            by=by,
            keys=keys,
            max_groups=max_groups,
            pooled=pooled,
            **self._how(),
        )

    def _how(self) -> dict[str, Any]:
        names = ("resolution", "non_finite", "memory_limit", "threads", "progress", "engine")
        return {name: getattr(self, name) for name in names}
