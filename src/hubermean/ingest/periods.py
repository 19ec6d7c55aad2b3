"""Periods: groups of records by the day, week, month, quarter or year of a date, written like "month(date)".

| written | groups | stands for |
|---|---|---|
| day(date) | 2024-02-29 | the date |
| week(date) | 2024-W09 | the week of ISO 8601, which begins on Monday: 100 * year of the week + week |
| month(date) | 2024-02 | 12 * year + month - 1 |
| quarter(date) | 2024-Q1 | 4 * year + quarter - 1 |
| year(date) | 2024 | the year |

Records are grouped by the integers of the last column, which no date overflows, and groups are named by the texts.
Points in time are in UTC, whatever the time zone of the session or the machine. Texts, where types are absent, are
dates by ISO 8601; other texts have no group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Period:
    """How the name of a period is written."""

    pattern: str
    example: str


PERIODS: Mapping[str, Period] = MappingProxyType(
    {
        "day": Period(pattern=r"[0-9]{4}-[0-9]{2}-[0-9]{2}", example="2024-02-29"),
        "week": Period(pattern=r"[0-9]{4}-W[0-9]{2}", example="2024-W09"),
        "month": Period(pattern=r"[0-9]{4}-(0[1-9]|1[0-2])", example="2024-02"),
        "quarter": Period(pattern=r"[0-9]{4}-Q[1-4]", example="2024-Q1"),
        "year": Period(pattern=r"[0-9]{4}", example="2024"),
    }
)
TIME_KINDS = frozenset(
    {"date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"}
)
"""Declared types that have periods."""
TEXT_KINDS = frozenset({"varchar", "json"})
_WRITTEN = re.compile(rf"({'|'.join(PERIODS)})\((.+)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class GroupColumn:
    """A column that names groups, or whose periods do."""

    column: str
    period: str = ""

    @classmethod
    def parse(cls, name: str) -> GroupColumn:
        """Return the column and the period of a name.

        >>> GroupColumn.parse("month(date)")
        GroupColumn(column='date', period='month')
        """
        written = _WRITTEN.fullmatch(name)
        return cls(column=name) if written is None else cls(column=written[2].strip(), period=written[1])
