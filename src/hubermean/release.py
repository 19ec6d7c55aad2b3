"""What a release returns: only what is safe to publish."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from hubermean.errors import InputError, is_real
from hubermean.readable import SHOWN, labelled, number, printable, readable, to_width
from hubermean.relations import Neighbors
from hubermean.spending import Receipt, Spent, has_stages, shown_amounts

DEFAULT_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval per column, what it covers and under which assumption, made of released quantities only."""

    level: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    covers: str
    assumption: str = ""


class IntervalRule(Protocol):
    """How a mechanism turns a level into an interval, from released quantities only."""

    def at(self, level: float) -> Interval: ...


@dataclass(frozen=True, kw_only=True)
class Denominator:
    """What a mean was divided by, as far as it was measured: users, or records up to the cap of each.

    Attributes:
        value: the measured number; never below zero.
        low, high: an interval for it at the usual level of 95%, which covers noise.
        exact: whether it is public and needed no measuring.
    """

    value: float
    low: float
    high: float
    exact: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, kw_only=True, repr=False)
class Release:
    """A private mean, with the promise it was made under.

    Everything in it has passed the mechanism or was public before; it can be printed, stored and published.

    Attributes:
        values: the released mean, one number per column.
        columns: names of the value columns.
        epsilon, delta: the privacy loss of this release.
        neighbors: which change of the data the promise covers.
        mechanism: the name of the mechanism.
        per: "record" (mean over records) or "user" (mean of user means).
        n_users: the number of users where it is public, else None.
        parameters: public and privately chosen parameters of the mechanism.
        spent: what the budget was spent on.
        statistic: "mean" or "count".
        denominator: how many users or capped records the mean was divided by, where the mechanism measured that
            beside the sums (`clipped` and `adaptive` do, at no further cost).
        warnings: sentences about what the number should not be taken for.
        group: the group it is the mean of, column by column; None outside a `ReleaseTable`.
        receipt: what the ledger says that it was charged to; None without one.
    """

    values: tuple[float, ...]
    columns: tuple[str, ...]
    epsilon: float
    delta: float
    neighbors: Neighbors
    mechanism: str
    per: str
    n_users: int | None
    parameters: Mapping[str, Any]
    spent: tuple[Spent, ...]
    interval_rule: IntervalRule | None = field(default=None, compare=False)
    statistic: str = "mean"
    denominator: Denominator | None = None
    warnings: tuple[str, ...] = ()
    group: Mapping[str, Any] | None = None
    receipt: Receipt | None = field(default=None, compare=False)

    @property
    def value(self) -> float | list[float]:
        """The mean: a number for one column, a list in the order of `columns` for several. A count is a whole one."""
        if self.statistic == "count":
            return int(self.values[0])
        return self.values[0] if len(self.values) == 1 else list(self.values)

    def interval(
        self, level: float = DEFAULT_LEVEL
    ) -> tuple[float, float] | list[tuple[float, float]] | None:
        """An interval around the value, one per column; None where the mechanism offers none.

        `interval_details(level)` says what it covers.
        """
        details = self.interval_details(level)
        if details is None:
            return None
        pairs = list(zip(details.low, details.high, strict=True))
        return pairs[0] if len(pairs) == 1 else pairs

    def interval_details(self, level: float = DEFAULT_LEVEL) -> Interval | None:
        """The interval with its level and what it covers; None where the mechanism offers none."""
        if not is_real(level) or not 0.0 < level < 1.0:
            raise InputError(f"level must lie strictly between 0 and 1, not {level!r}")
        return None if self.interval_rule is None else self.interval_rule.at(level)

    @property
    def total(self) -> float | list[float] | None:
        """The sum of all (clamped) values: the mean times its denominator; None where that was not measured."""
        if self.denominator is None:
            return None
        return _unpack(tuple(value * self.denominator.value for value in self.values))

    @property
    def promise(self) -> str:
        """The guarantee in one sentence."""
        grouped = self.group is not None
        return promise(self.epsilon, self.delta, self.neighbors, grouped=grouped)

    def to_dict(self) -> dict[str, Any]:
        """The release as plain data, stable across versions."""
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
            "spent": [asdict(entry) for entry in self.spent],
            "promise": self.promise,
            "ledger": self.receipt and self.receipt.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def rows(self) -> list[tuple[str, str]]:
        """The release as labelled lines, for people; the one source of every rendering.

        Of many columns only the first are shown, so that a release stays one screen.
        """
        details = self.interval_details()
        lines: list[tuple[str, str]] = []
        if self.group is not None:
            named = ", ".join(
                f"{printable(name)} = {printable(str(key))}" for name, key in self.group.items()
            )
            lines.append(("group", f"{named}, of a table under one promise"))
        shown = zip(self.columns[:SHOWN], self.values[:SHOWN], strict=True)
        for position, (column, value) in enumerate(shown):
            ends = () if details is None else (details.low[position], details.high[position])
            shown_value, *shown_ends = written(self.statistic, value, *ends)
            lines.append((f"{printable(column)}, {what_is_released(self.statistic, self.per)}", shown_value))
            if details is not None:
                lines.append((f"{details.level:.0%} interval", " to ".join(shown_ends)))
        if len(self.columns) > SHOWN:
            lines.append(
                (f"and {len(self.columns) - SHOWN:,} more columns", "in values, to_dict() and to_json()")
            )
        lines.extend(("warning", warning) for warning in self.warnings)
        if details is not None:
            lines.append(("interval covers", details.covers))
        if self.denominator is not None and not self.denominator.exact:
            lines.append((f"{self.per}s behind it", _measured(self.denominator)))
        budget = f"epsilon = {number(self.epsilon)}" + (
            f", delta = {number(self.delta)}" if self.delta > 0 else ""
        )
        lines.append(("privacy", f"{budget}, {self.neighbors.value}"))
        lines.append(("promise", self.promise))
        if has_stages(self.spent):
            lines.append(account_line(self.spent))
        lines.append(("mechanism", self.mechanism))
        if self.n_users is not None:
            lines.append(("users (public)", f"{self.n_users:,}"))
        lines.extend((name.replace("_", " "), readable(given)) for name, given in self.parameters.items())
        if self.receipt is not None:
            lines.append(("ledger", str(self.receipt)))
        return lines

    def __repr__(self) -> str:
        return labelled(self.rows())

    def _repr_html_(self) -> str:
        cell = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;border:none"
        released = 2 * min(len(self.columns), SHOWN) if self.interval_rule is not None else len(self.columns)
        cells = "".join(
            f'<tr><th style="{cell};font-weight:normal;opacity:0.7">{html.escape(label)}</th>'
            f'<td style="{cell};max-width:46em;white-space:normal'
            f'{";font-weight:bold" if position < released else ""}">{html.escape(text)}</td></tr>'
            for position, (label, text) in enumerate(self.rows())
        )
        caption = "text-align:left;font-weight:bold;padding-bottom:4px"
        title = f'<caption style="{caption}">Private {self.statistic}</caption>'
        return f'<table style="border-collapse:collapse">{title}{cells}</table>'


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
    | {"warnings", "n_users", "interval", "denominator", "parameters", "promise", "group", "spent", "ledger"}
)
"""Fields of a release, which a group column of the same name must not overwrite."""


def group_fields(group: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of a group beside the other fields, and once more under "group", where no name can collide."""
    if group is None:
        return {}
    keys = {name: plain_key(key) for name, key in group.items()}
    return {**{name: key for name, key in keys.items() if name not in RESERVED}, "group": keys}


def plain_key(key: Any) -> Any:
    """A key as JSON has it: whole numbers, text and flags as they are, dates and the like as text."""
    return key if isinstance(key, str | int | bool) else str(key)


def promise(epsilon: float, delta: float, neighbors: Neighbors, *, grouped: bool = False) -> str:
    """The guarantee in one sentence."""
    factor = f"{math.exp(epsilon):.3g}" if epsilon <= 20 else f"e^{number(epsilon)}"
    failure = f", plus {number(delta)}" if delta > 0 else ""
    change = neighbors.grouped_change if grouped else neighbors.change
    sentence = f"{change} changes the probability of any result by at most a factor of {factor}{failure}."
    return f"{sentence} {neighbors.public_numbers}".rstrip()


def written(statistic: str, value: float, *ends: Any) -> list[str]:
    """A value and the ends of its interval for people; counts are whole numbers."""
    if statistic == "count":
        return [f"{one:,.0f}" for one in (value, *ends)]
    return [number(value)] if not ends else list(to_width(value, *ends))


def what_is_released(statistic: str, per: str) -> str:
    if statistic == "count":
        return "counted" if per == "user" else "counted up to the cap"
    return "mean over records" if per == "record" else "mean of user means"


def _measured(denominator: Denominator) -> str:
    value, low, high = (f"{one:,.0f}" for one in (denominator.value, denominator.low, denominator.high))
    return f"{value} ({low} to {high})"


def account_line(spent: tuple[Spent, ...]) -> tuple[str, str]:
    """What was spent on what, in one line; delta, if any, pays for one thing."""
    entries = [entry for entry in spent if entry.unit != "delta"]
    texts = shown_amounts([entry.amount for entry in entries])
    parts = ", ".join(f"{entry.what} {text}" for entry, text in zip(entries, texts, strict=True))
    return f"{entries[0].unit} spent on", parts


def _unpack(numbers: tuple[float, ...]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)
