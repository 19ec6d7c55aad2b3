"""`Release`: the result of `mean` and `count`. It holds only what is safe to publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hubermean.accounting.arguments import is_real
from hubermean.errors import InputError
from hubermean.types.formatting import SHOWN, about
from hubermean.types.frames import make_table
from hubermean.types.release_info import DEFAULT_LEVEL as DEFAULT_LEVEL
from hubermean.types.release_info import ReleaseInfo, format_values, state_guarantee
from hubermean.types.screen import GROUP, Grid, Lines, Screen

if TYPE_CHECKING:
    from hubermean.types.frames import ArrowTable


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval per column, computed from released quantities only, with what it covers and assumes."""

    level: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    covers: str
    assumption: str = ""


class IntervalRule(Protocol):
    """Computes the interval of a release at any level, from released quantities only."""

    def at(self, level: float) -> Interval:
        """Return the interval at a level."""


MAY_BE_NONE = " (maybe none)"
"""The mark of a group that may have no users, as far as was measured."""


@dataclass(frozen=True, kw_only=True)
class Denominator:
    """What a mean was divided by: the number of users, or an estimate of the number of records.

    Users with far more records than the contribution bound are counted only in part, so with very unequal users the
    number of records is too low.

    Attributes:
        value: the measured number; never below zero.
        low, high: its 95% interval, which covers noise, and not the records of users far beyond the contribution bound.
        exact: whether it is public, so that it was not measured.
    """

    value: float
    low: float
    high: float
    exact: bool = False

    @property
    def may_be_none(self) -> bool:
        """Whether the interval reaches down to 0: as far as was measured, nobody may be behind the mean."""
        return not self.exact and self.low <= 0.0

    def describe(self) -> str:
        """Return the number, to as many digits as it was measured, with a mark if it may be none."""
        shown = about(self.value, self.high - self.low)
        return f"{shown}{MAY_BE_NONE}" if self.may_be_none else shown

    def to_dict(self) -> dict[str, Any]:
        """Return the denominator as plain data."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, kw_only=True, repr=False)
class Release(ReleaseInfo):
    """A private mean or count, with its guarantee. Everything in it is released or public: safe to store and publish.

    Attributes:
        values: the released values, one per column.
        n_users: the number of users if it is public, otherwise None.
        interval_rule: computes `interval`; None if the mechanism offers no interval.
        denominator: the number of users or bounded records that the mean was divided by, if the mechanism measured it
            (`clipped` and `adaptive` do, at no further cost).
        group: the group of the value, by column; None outside of a `ReleaseTable`.

    The other attributes are those of `ReleaseInfo`: columns, epsilon, delta, neighbors, mechanism, per, parameters,
    budget_breakdown, statistic, receipt and warnings.
    """

    values: tuple[float, ...]
    n_users: int | None
    interval_rule: IntervalRule | None = field(default=None, compare=False)
    denominator: Denominator | None = None
    group: Mapping[str, Any] | None = None

    @property
    def value(self) -> float | list[float]:
        """A number for one column, a list in the order of `columns` for several; counts are whole numbers."""
        if self.statistic == "count":
            return int(self.values[0])
        return self.values[0] if len(self.values) == 1 else list(self.values)

    def interval(
        self, level: float = DEFAULT_LEVEL
    ) -> tuple[float, float] | list[tuple[float, float]] | None:
        """Return (low, high), or one pair per column; None if the mechanism offers no interval.

        Args:
            level: the confidence level, between 0 and 1.

        Raises:
            InputError: the level is not between 0 and 1.

        The interval is computed from released numbers, so it costs no budget. `interval_details(level)` also says what
        it covers and assumes.
        """
        details = self.interval_details(level)
        if details is None:
            return None
        pairs = list(zip(details.low, details.high, strict=True))
        return pairs[0] if len(pairs) == 1 else pairs

    def interval_details(self, level: float = DEFAULT_LEVEL) -> Interval | None:
        """Return the interval with what it covers and assumes; None if the mechanism offers no interval.

        Args:
            level: the confidence level, between 0 and 1.

        Raises:
            InputError: the level is not between 0 and 1.
        """
        if not is_real(level) or not 0.0 < level < 1.0:
            raise InputError(f"level must be a number between 0 and 1, not {level!r}")
        return None if self.interval_rule is None else self.interval_rule.at(level)

    @property
    def total(self) -> float | list[float] | None:
        """The sum of all (clipped) values: the mean times its denominator; None if that was not measured."""
        if self.denominator is None:
            return None
        return _unpack(tuple(value * self.denominator.value for value in self.values))

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        grouped = self.group is not None
        return state_guarantee(self.epsilon, self.delta, self.neighbors, grouped=grouped)

    def to_dict(self) -> dict[str, Any]:
        """Return the release as plain data, stable across versions."""
        details = self.interval_details()
        interval = details and {
            "level": details.level,
            "low": _unpack(details.low),
            "high": _unpack(details.high),
            "covers": details.covers,
            **({"assumption": details.assumption} if details.assumption else {}),
        }
        return {
            **group_fields(self.group),
            "released": True,
            "statistic": self.statistic,
            "value": self.value,
            "columns": list(self.columns),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbors": self.neighbors.value,
            "mechanism": self.mechanism,
            "per": self.per,
            "n_users": self.n_users,
            "interval": interval,
            "denominator": self.denominator and self.denominator.to_dict(),
            "warnings": list(self.warnings),
            "parameters": dict(self.parameters),
            "budget_breakdown": [asdict(entry) for entry in self.budget_breakdown],
            "guarantee": self.guarantee,
            "ledger": self.receipt and self.receipt.to_dict(),
        }

    def to_arrow(self, level: float = DEFAULT_LEVEL) -> ArrowTable:
        """Return a PyArrow table with one row per column: `column`, `value`, `interval_low` and `interval_high`.

        Where the number of users or records behind the values was measured, it is in `users` or `records`.
        """
        details = self.interval_details(level)
        nothing = [None] * len(self.columns)
        low, high = (nothing, nothing) if details is None else (details.low, details.high)
        numbers: list[tuple[str, Sequence[float | None]]] = [
            ("value", self.values),
            ("interval_low", low),
            ("interval_high", high),
        ]
        if self.denominator is not None:
            numbers.append((f"{self.per}s", [self.denominator.value] * len(self.columns)))
        return make_table({"column": self.columns}, numbers)

    @property
    def screen(self) -> Screen:
        """What a terminal, a prompt and a notebook show first: estimate, warnings, interval and guarantee."""
        details = self.interval_details()
        interval = [("Interval", "none is available for this mechanism")]
        if len(self.columns) > 1:
            if details is not None:
                interval = [("Interval", f"{details.level:.0%}: {details.covers}")]
            lines = [*self.warning_lines(), *interval, *self._based_on(), *self.privacy_lines()]
            return Screen(title=self._title, grid=self._grid(details), lines=Lines((*self._group(), *lines)))
        ends = () if details is None else (details.low[0], details.high[0])
        value, *shown = format_values(self.statistic, self.values[0], *ends)
        if details is not None:
            interval = [(f"{details.level:.0%} interval", f"{' to '.join(shown)}   ({details.covers})")]
        note = f"   ({self.note})" if self.note else ""
        lines = [(self._title, value + note), *self.warning_lines(), *interval]
        return Screen(lines=Lines((*self._group(), *lines, *self._based_on(), *self.privacy_lines())))

    @property
    def _title(self) -> str:
        if self.statistic == "count":
            return f"Number of {self.columns[0]}"
        if len(self.columns) > 1:
            return f"Means of {len(self.columns):,} columns" + (f"   ({self.note})" if self.note else "")
        return "Mean" if self.columns == ("mean",) else f"Mean {self.columns[0]}"

    def _group(self) -> list[tuple[str, str]]:
        if self.group is None:
            return []
        named = ", ".join(f"{name} = {key}" for name, key in self.group.items())
        return [(GROUP, f"{named}, of a table under one guarantee")]

    def _grid(self, details: Interval | None) -> Grid:
        """Return the values of several columns, of many only the first."""
        rows = []
        for position, column in enumerate(self.columns[:SHOWN]):
            ends = () if details is None else (details.low[position], details.high[position])
            value, *shown = format_values(self.statistic, self.values[position], *ends)
            rows.append((column, value, *([" to ".join(shown)] if details is not None else [])))
        level = () if details is None else (f"{details.level:.0%} interval",)
        hidden = len(self.columns) - SHOWN
        return Grid(
            headings=("column", self.statistic, *level),
            rows=tuple(rows),
            notes=((len(rows), f"… and {hidden:,} more columns, in to_dict() and --json"),)
            if hidden > 0
            else (),
        )

    def _based_on(self) -> list[tuple[str, str]]:
        """Return what was averaged: numbers that are public, or that were measured with noise."""
        users = ""
        if self.n_users is not None:
            users = f"{self.n_users:,} users (a public number)"
        elif isinstance(measured := self.parameters.get("users_measured"), int | float):
            users = f"about {about(measured)} users"
        public = self.per == "user" and self.n_users is not None
        if public or self.denominator is None or self.denominator.exact or self.statistic == "count":
            return [("Based on", users)] if users and self.statistic != "count" else []
        width = self.denominator.high - self.denominator.low
        weight = f"about {about(self.denominator.value, width)} {self.per}s"
        return [("Based on", f"{weight} from {users}" if users and self.per == "record" else weight)]

    @property
    def details(self) -> Lines:
        """Everything else: how the interval is meant, the budget breakdown and the parameters, as labelled lines."""
        lines = [("what", self.description)]
        interval = self.interval_details()
        if interval is not None:
            lines.append(("interval covers", interval.covers))
            if interval.assumption:
                lines.append(("assumption", interval.assumption))
        if self.denominator is not None and not self.denominator.exact:
            lines.append((f"{self.per}s behind it", _format_denominator(self.denominator)))
        lines.append(("privacy", f"{self.budget}, {self.neighbors.value}"))
        lines += [*self.breakdown_lines(), ("mechanism", self.mechanism)]
        if self.n_users is not None:
            lines.append(("users (public)", f"{self.n_users:,}"))
        return Lines((*lines, *self.parameter_lines()))


RESERVED = frozenset(
    {
        "released",
        "reason",
        "statistic",
        "value",
        "columns",
        "epsilon",
        "delta",
        "neighbors",
        "mechanism",
        "per",
    }
    | {
        "warnings",
        "n_users",
        "interval",
        "denominator",
        "parameters",
        "guarantee",
        "group",
        "budget_breakdown",
        "ledger",
    }
)
"""Fields of a release in JSON, which a group column of the same name must not overwrite."""


def group_fields(group: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the group columns next to the other fields, and again under "group", where no name can collide."""
    if group is None:
        return {}
    keys = {name: plain_key(key) for name, key in group.items()}
    return {**{name: key for name, key in keys.items() if name not in RESERVED}, "group": keys}


def plain_key(key: Any) -> Any:
    """Return a key as JSON: integers, texts and flags unchanged, dates and other types as text."""
    return key if key is None or isinstance(key, str | int | bool) else str(key)


def _format_denominator(denominator: Denominator) -> str:
    value, low, high = (f"{one:,.0f}" for one in (denominator.value, denominator.low, denominator.high))
    return f"{value} ({low} to {high})"


def _unpack(numbers: tuple[float, ...]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)
