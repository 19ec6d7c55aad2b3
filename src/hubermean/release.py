"""What a release returns: only what is safe to publish."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hubermean.errors import InputError, is_real
from hubermean.relations import Neighbors

DEFAULT_LEVEL = 0.95

SHOWN = 10
"""Columns, and numbers of a list, that are shown to people; `to_dict` has them all."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval per column and what it covers, made of released quantities only."""

    level: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    covers: str


class IntervalRule(Protocol):
    """How a mechanism turns a level into an interval, from released quantities only."""

    def at(self, level: float) -> Interval: ...


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
    interval_rule: IntervalRule | None = field(default=None, compare=False)

    @property
    def value(self) -> float | list[float]:
        """The mean: a number for one column, a list in the order of `columns` for several."""
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
    def promise(self) -> str:
        """The guarantee in one sentence."""
        factor = f"{math.exp(self.epsilon):.3g}" if self.epsilon <= 20 else f"e^{_number(self.epsilon)}"
        failure = f", and {_number(self.delta)} in probability," if self.delta > 0 else ""
        return (
            f"every possible outcome stays as likely, up to a factor of {factor}{failure} "
            f"when {self.neighbors.promise}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The release as plain data, stable across versions."""
        details = self.interval_details()
        interval = details and {
            "level": details.level,
            "low": _unpack(details.low),
            "high": _unpack(details.high),
            "covers": details.covers,
        }
        return {
            "released": True,
            "value": self.value,
            "columns": list(self.columns),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbors": self.neighbors.value,
            "mechanism": self.mechanism,
            "per": self.per,
            "n_users": self.n_users,
            "interval": interval,
            "parameters": dict(self.parameters),
            "promise": self.promise,
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def rows(self) -> list[tuple[str, str]]:
        """The release as labelled lines, for people; the one source of every rendering.

        Of many columns only the first are shown, so that a release stays one screen.
        """
        of = "mean over records" if self.per == "record" else "mean of user means"
        details = self.interval_details()
        lines: list[tuple[str, str]] = []
        shown = zip(self.columns[:SHOWN], self.values[:SHOWN], strict=True)
        for position, (column, value) in enumerate(shown):
            ends = () if details is None else (details.low[position], details.high[position])
            shown_value, *shown_ends = _alike(value, *ends)
            lines.append((f"{_printable(column)}, {of}", shown_value))
            if details is not None:
                lines.append((f"{details.level:.0%} interval", " to ".join(shown_ends)))
        if len(self.columns) > SHOWN:
            lines.append(
                (f"and {len(self.columns) - SHOWN:,} more columns", "in values, to_dict() and to_json()")
            )
        if details is not None:
            lines.append(("interval covers", details.covers))
        budget = f"epsilon = {_number(self.epsilon)}" + (
            f", delta = {_number(self.delta)}" if self.delta > 0 else ""
        )
        lines.append(("privacy", f"{budget}, {self.neighbors.value}"))
        lines.append(("promise", self.promise))
        lines.append(("mechanism", self.mechanism))
        if self.n_users is not None:
            lines.append(("users (public)", f"{self.n_users:,}"))
        lines.extend((name.replace("_", " "), _readable(given)) for name, given in self.parameters.items())
        return lines

    def __repr__(self) -> str:
        lines = self.rows()
        width = max(len(label) for label, _ in lines)
        return "\n".join(
            textwrap.fill(
                text, 110, initial_indent=f"{label:<{width}}  ", subsequent_indent=" " * (width + 2)
            )
            for label, text in lines
        )

    def _repr_html_(self) -> str:
        cell = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;border:none"
        released = 2 * min(len(self.columns), SHOWN) if self.interval_rule is not None else len(self.columns)
        cells = "".join(
            f'<tr><th style="{cell};font-weight:normal;opacity:0.7">{html.escape(label)}</th>'
            f'<td style="{cell};max-width:46em;white-space:normal'
            f'{";font-weight:bold" if number < released else ""}">{html.escape(text)}</td></tr>'
            for number, (label, text) in enumerate(self.rows())
        )
        title = '<caption style="text-align:left;font-weight:bold;padding-bottom:4px">Private mean</caption>'
        return f'<table style="border-collapse:collapse">{title}{cells}</table>'


def _printable(name: str) -> str:
    """A column name without line breaks and control codes, which a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def _unpack(numbers: tuple[float, ...]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)


def _number(value: float) -> str:
    """Six significant digits, without an exponent where people write none."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-4 <= magnitude < 1e6:
        return f"{value:.6g}"
    return f"{value:,.0f}" if 1e6 <= magnitude < 1e15 else f"{value:.6g}"


def _alike(value: float, *ends: float) -> list[str]:
    """A value and the ends of its interval, with digits enough to tell these apart."""
    plain = [_number(value), *map(_number, ends)]
    if not ends or not 0.0 < (width := ends[1] - ends[0]) < 1e-3 * abs(value) or abs(value) >= 1e15:
        return plain
    decimals = max(2 - math.floor(math.log10(width)), 0)
    return [f"{one:,.{decimals}f}" for one in (value, *ends)] if decimals <= 12 else plain


def _readable(given: Any) -> str:
    if isinstance(given, float):
        return _number(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return f"{given:,}"
    if isinstance(given, list | tuple):
        more = [f"... ({len(given):,} in all)"] if len(given) > SHOWN else []
        return ", ".join([*map(_readable, given[:SHOWN]), *more])
    return str(given)
