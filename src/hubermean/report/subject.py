"""The subject of a page: one release, or a table of releases, in one form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubermean.errors import printable
from hubermean.report.chart import Point
from hubermean.types.group_order import (
    GroupOrder,
    axis_ends,
    group_times,
    is_noise,
    is_total,
    order_groups,
    show_key,
)
from hubermean.types.release import DEFAULT_LEVEL, Interval, Release
from hubermean.types.release_info import ReleaseInfo, format_values
from hubermean.types.release_table import Refusal, ReleaseTable

NARROW_LEVEL = 0.5


@dataclass(frozen=True, kw_only=True)
class Line:
    """One release of a page; `reason` if the group was not released. `noise` says which values are noise alone."""

    group: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    wide: Interval | None = None
    narrow: Interval | None = None
    behind: str = ""
    statistic: str = "mean"
    reason: str | None = None
    noise: tuple[bool, ...] = ()
    is_total: bool = False

    @classmethod
    def of(cls, item: Release | Refusal, by: tuple[str, ...]) -> Line:
        """Return the line of a release or refusal."""
        keys: Mapping[str, Any] = getattr(item, "group", None) or {}
        group = tuple(_format_key(keys[name]) if name in keys else "" for name in by)
        if not isinstance(item, Release):
            return cls(group=group, reason=item.reason)
        wide, bounds = item.interval_details(DEFAULT_LEVEL), item.parameters.get("bounds")
        columns = len(item.values)
        return cls(
            group=group,
            is_total=is_total(tuple(keys.values())),
            values=item.values,
            statistic=item.statistic,
            noise=()
            if wide is None or not bounds or not by
            else tuple(
                bool(is_noise(bounds, columns, column, wide.low[column], wide.high[column]))
                for column in range(columns)
            ),
            wide=wide,
            narrow=item.interval_details(NARROW_LEVEL),
            behind="" if item.denominator is None or item.denominator.exact else item.denominator.describe(),
        )

    def format_column(self, column: int) -> tuple[str, str]:
        """Return the value and the interval of a column as text; the interval is empty if there is none."""
        if self.wide is None:
            return format_values(self.statistic, self.values[column])[0], ""
        ends = self.wide.low[column], self.wide.high[column]
        value, low, high = format_values(self.statistic, self.values[column], *ends)
        return f"{value} (noise)" if self.is_noise(column) else value, f"{low} to {high}"

    def is_noise(self, column: int) -> bool:
        """Whether the value of a column is noise alone."""
        return bool(self.noise) and self.noise[column]

    def point(self, column: int, name: str) -> Point:
        """Return the row of a chart."""
        if self.reason is not None:
            return Point(name=name, text=f"{name}: not released, {self.reason}")
        value, interval = self.format_column(column)
        text = f"{name}: {value}" + (f" ({self.wide.level:.0%} interval {interval})" if self.wide else "")
        ends = [
            None if one is None else (one.low[column], one.high[column]) for one in (self.wide, self.narrow)
        ]
        return Point(name=name, text=text, value=self.values[column], wide=ends[0], narrow=ends[1])


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a page shows: one release, or the rows of a table. All of it is released or public.

    Attributes:
        info: what holds for the whole release.
        guarantee: the guarantee in one sentence.
        columns, by: names of the value and group columns, printable.
        lines: one per release.
        n_users: the number of users if it is public.
        parameters: those of the release, and those that concern groups and the ledger.
        warnings: sentences on how the values should not be read.
        times: where each line lies in time; None unless groups are dates, periods or years.
    """

    info: ReleaseInfo
    guarantee: str
    columns: tuple[str, ...]
    by: tuple[str, ...]
    lines: tuple[Line, ...]
    n_users: int | None
    parameters: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    times: tuple[float, ...] | None = None

    @classmethod
    def of(cls, release: Release | ReleaseTable) -> Subject:
        """Return the subject of a page about a release or a table."""
        by = () if isinstance(release, Release) else tuple(release.by)
        items = [release] if isinstance(release, Release) else list(release)
        about: dict[str, Any] = {}
        if not isinstance(release, Release):
            about["groups"] = (
                "public" if release.public_keys else "selected privately: those with enough users"
            )
            if release.max_groups is not None:
                about["groups a user counts in"] = release.max_groups
        return cls(
            info=release,
            guarantee=release.guarantee,
            columns=tuple(map(printable, release.columns)),
            by=tuple(map(printable, by)),
            lines=tuple(Line.of(item, by) for item in items),
            n_users=release.n_users if isinstance(release, Release) else None,
            parameters={**about, **release.parameters, **_describe_charge(release)},
            warnings=release.warnings,
            times=group_times([tuple((item.group or {}).values()) for item in items]) if by else None,
        )

    def order(self, column: int) -> GroupOrder:
        """Return the order in which a chart of a column shows the lines."""
        return order_groups(
            [line.values[column] if line.values else math.nan for line in self.lines],
            uninformative=[line.is_noise(column) for line in self.lines],
            times=self.times,
            totals=[line.is_total for line in self.lines],
        )

    def axis_ends(self, column: int) -> tuple[float, float] | None:
        """Return the range that a chart of a column shows."""
        lines = [line for line in self.lines if line.values]
        return axis_ends(
            [line.values[column] for line in lines],
            [
                (math.nan, math.nan) if line.wide is None else (line.wide.low[column], line.wide.high[column])
                for line in lines
            ],
            uninformative=[line.is_noise(column) for line in lines],
        )

    @property
    def is_table(self) -> bool:
        return bool(self.by)

    @property
    def what(self) -> str:
        """What the values are, in words."""
        return self.info.description

    @property
    def behind(self) -> str | None:
        """The heading of the denominators; None if none was measured."""
        return f"{self.info.per}s" if any(line.behind for line in self.lines) else None

    @property
    def interval(self) -> Interval | None:
        """The interval of the first release that has one; level and coverage are the same for all."""
        return next((line.wide for line in self.lines if line.wide is not None), None)

    def is_cut_off(self, column: int) -> bool:
        """Whether a chart of a column does not show all of an interval."""
        shown = self.axis_ends(column)
        return shown is not None and any(
            line.wide.low[column] < shown[0] or line.wide.high[column] > shown[1]
            for line in self.lines
            if line.wide is not None
        )


def _format_key(key: Any) -> str:
    return printable(show_key(key))


def _describe_charge(info: ReleaseInfo) -> dict[str, str]:
    """Return where a release was charged; whether it was repeated later is not part of the release."""
    receipt = info.receipt
    return (
        {} if receipt is None else {"charged to": f"{receipt.dataset}, entry {receipt.entry} of its ledger"}
    )
