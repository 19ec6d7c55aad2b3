"""What a page is about: one release, or a table of them, in one shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hubermean.readable import printable
from hubermean.relations import Neighbors
from hubermean.release import DEFAULT_LEVEL, Interval, Release, what_is_released, written
from hubermean.report.chart import Point
from hubermean.spending import Receipt, Spent

NARROW_LEVEL = 0.5


class Refused(Protocol):
    """A group whose own private test said no."""

    @property
    def group(self) -> Mapping[str, Any]: ...

    @property
    def reason(self) -> str: ...


class Table(Protocol):
    """Releases of groups that share one promise; each has a `group`, from names of columns to keys."""

    @property
    def by(self) -> tuple[str, ...]: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...

    @property
    def neighbors(self) -> Neighbors: ...

    @property
    def mechanism(self) -> str: ...

    @property
    def per(self) -> str: ...

    @property
    def statistic(self) -> str: ...

    @property
    def promise(self) -> str: ...

    @property
    def max_groups(self) -> int: ...

    @property
    def public_keys(self) -> bool: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def spent(self) -> tuple[Spent, ...]: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Line:
    """One release of the page; `reason` where there is none."""

    group: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    wide: Interval | None = None
    narrow: Interval | None = None
    behind: str = ""
    statistic: str = "mean"
    reason: str | None = None

    @classmethod
    def of(cls, item: Release | Refused, by: tuple[str, ...]) -> Line:
        keys: Mapping[str, Any] = getattr(item, "group", None) or {}
        group = tuple(_key(keys[name]) if name in keys else "" for name in by)
        if not isinstance(item, Release):
            return cls(group=group, reason=item.reason)
        return cls(
            group=group,
            values=item.values,
            statistic=item.statistic,
            wide=item.interval_details(DEFAULT_LEVEL),
            narrow=item.interval_details(NARROW_LEVEL),
            behind=""
            if item.denominator is None or item.denominator.exact
            else f"{item.denominator.value:,.0f}",
        )

    def written(self, column: int) -> tuple[str, str]:
        """(value, interval) for people; an interval that is not offered is empty."""
        if self.wide is None:
            return written(self.statistic, self.values[column])[0], ""
        ends = self.wide.low[column], self.wide.high[column]
        value, low, high = written(self.statistic, self.values[column], *ends)
        return value, f"{low} to {high}"

    def point(self, column: int, name: str) -> Point:
        """The row of a chart."""
        if self.reason is not None:
            return Point(name=name, told=f"{name}: not released, {self.reason}")
        value, interval = self.written(column)
        told = f"{name}: {value}" + (f" ({self.wide.level:.0%} interval {interval})" if self.wide else "")
        ends = [
            None if one is None else (one.low[column], one.high[column]) for one in (self.wide, self.narrow)
        ]
        return Point(name=name, told=told, value=self.values[column], wide=ends[0], narrow=ends[1])


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a page shows: released or public, all of it."""

    columns: tuple[str, ...]
    by: tuple[str, ...]
    lines: tuple[Line, ...]
    epsilon: float
    delta: float
    neighbors: Neighbors
    mechanism: str
    per: str
    statistic: str
    promise: str
    n_users: int | None
    parameters: Mapping[str, Any]
    spent: tuple[Spent, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, release: Release | Table) -> Subject:
        n_users = release.n_users if isinstance(release, Release) else None
        by = () if isinstance(release, Release) else tuple(release.by)
        items = [release] if isinstance(release, Release) else list(release)
        about: dict[str, Any] = {}
        if not isinstance(release, Release):
            about["groups"] = "public" if release.public_keys else "chosen privately: those with enough users"
            about["groups a user counts in"] = release.max_groups
        return cls(
            columns=tuple(map(printable, release.columns)),
            by=tuple(map(printable, by)),
            lines=tuple(Line.of(item, by) for item in items),
            epsilon=release.epsilon,
            delta=release.delta,
            neighbors=release.neighbors,
            mechanism=release.mechanism,
            per=release.per,
            statistic=release.statistic,
            promise=release.promise,
            n_users=n_users,
            parameters={**about, **release.parameters, **_ledger(release)},
            spent=release.spent,
            warnings=release.warnings if isinstance(release, Release) else (),
        )

    @property
    def is_table(self) -> bool:
        return bool(self.by)

    @property
    def what(self) -> str:
        """What the values are, in words."""
        return what_is_released(self.statistic, self.per)

    @property
    def behind(self) -> str | None:
        """What was measured beside the values, in words; None where nothing was."""
        return f"{self.per}s behind it" if any(line.behind for line in self.lines) else None

    @property
    def interval(self) -> Interval | None:
        """Of the first release that offers one: level and cover are the same for all."""
        return next((line.wide for line in self.lines if line.wide is not None), None)


def _key(key: Any) -> str:
    return "(missing)" if key is None else printable(str(key))


def _ledger(release: Release | Table) -> dict[str, str]:
    """Where a release was charged; that it was asked for again later is no part of it."""
    receipt: Receipt | None = getattr(release, "receipt", None)
    return (
        {} if receipt is None else {"charged to": f"{receipt.dataset}, entry {receipt.entry} of its ledger"}
    )
