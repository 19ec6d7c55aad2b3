"""`ReleaseTable`: the result of a release by group, one row per group. It holds only what is safe to publish."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np

from hubermean.accounting.arguments import is_real
from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError, printable
from hubermean.types.formatting import labelled
from hubermean.types.release import (
    DEFAULT_LEVEL,
    Denominator,
    Interval,
    Release,
    group_fields,
)
from hubermean.types.release_info import ReleaseInfo, format_values, state_guarantee

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

ROWS_SHOWN = 20
"""Rows that `repr` shows; `to_dict` and the data frames have all."""


class TableIntervals(Protocol):
    """Computes the intervals of all groups at any level, from released quantities only."""

    @property
    def covers(self) -> str:
        """What the intervals cover."""

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return (low, high) of shape (groups, columns); NaN for groups without an interval."""


class Denominators(Protocol):
    """Computes what the means of all groups were divided by."""

    def denominators(self) -> list[Denominator]:
        """Return one denominator per group."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A group without a value: the mechanism's private test decided against a release."""

    group: Mapping[str, Any]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the refusal as plain data."""
        return {**group_fields(self.group), "released": False, "reason": self.reason}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReleaseTable(ReleaseInfo, Sequence["Release | Refusal"]):
    """Private means, or counts, of many groups under one guarantee.

    The table is a sequence: `table[0]` is the `Release` of the first group, or a `Refusal`. Groups are in the order of
    `keys`, or sorted if they were selected privately. Which groups appear is part of the release; nothing else is
    known about the others.

    Attributes:
        by: names of the group columns.
        keys: the groups, each a tuple with one entry per group column.
        values: shape (groups, columns); NaN for a group that was refused.
        max_groups: the most groups that a user counts in.
        public_keys: whether the caller gave the groups; otherwise they were selected privately.
        intervals: computes `interval_at`; None if the mechanism offers no interval.
        measured: computes `denominators`; None if they were not measured.
        refusals: reasons, by position of the group.

    The other attributes are those of `ReleaseInfo`, for the whole table: columns, epsilon, delta, neighbors,
    mechanism, per, parameters, budget_breakdown, statistic and receipt.
    """

    by: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]
    values: FloatArray
    max_groups: int
    public_keys: bool
    intervals: TableIntervals | None = None
    measured: Denominators | None = None
    refusals: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, position: int) -> Release | Refusal: ...

    @overload
    def __getitem__(self, position: slice) -> list[Release | Refusal]: ...

    def __getitem__(self, position: int | slice) -> Release | Refusal | list[Release | Refusal]:
        if isinstance(position, slice):
            return [self[one] for one in range(*position.indices(len(self)))]
        row = range(len(self))[position]  # negative and out of range as for any sequence
        group = dict(zip(self.by, self.keys[row], strict=True))
        if row in self.refusals:
            return Refusal(group=group, reason=self.refusals[row])
        return Release(
            **self.info_fields(),
            values=tuple(self.values[row].tolist()),
            n_users=None,
            interval_rule=Row(table=self, number=row) if self._has_interval(row) else None,
            denominator=self.denominators[row] if self.denominators else None,
            group=group,
        )

    def group(self, *key: Any) -> Release | Refusal:
        """Return the row of a group.

        Args:
            key: its keys in the order of `by`, or one of `keys`.

        Raises:
            InputError: the table has no such group.
        """
        if len(key) == 1 and isinstance(key[0], tuple):
            (key,) = key
        if key not in self._positions:
            raise InputError(f"there is no group {', '.join(map(str, key))} in this release")
        return self[self._positions[key]]

    @cached_property
    def _positions(self) -> dict[tuple[Any, ...], int]:
        return {key: position for position, key in enumerate(self.keys)}

    @cached_property
    def denominators(self) -> Sequence[Denominator]:
        """What each mean was divided by; empty if the mechanism did not measure it."""
        return () if self.measured is None else self.measured.denominators()

    @property
    def covers(self) -> str:
        """What the intervals cover and what they do not; each interval is for one group alone."""
        covered = "" if self.intervals is None else self.intervals.covers
        left_out = f"not records left out for users in more than {self.max_groups:,} of the groups"
        return f"{covered}; {left_out}; for each group separately"

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence; it holds for the whole table."""
        return state_guarantee(self.epsilon, self.delta, self.neighbors, grouped=True)

    def interval_at(self, level: float = DEFAULT_LEVEL) -> tuple[FloatArray, FloatArray] | None:
        """Return (low, high) of shape (groups, columns); None if the mechanism offers no interval.

        Args:
            level: the confidence level, between 0 and 1. It holds for each group separately, not for all at once.

        Raises:
            InputError: the level is not between 0 and 1.

        NaN stands for a group without an interval.
        """
        if not is_real(level) or not 0.0 < level < 1.0:
            raise InputError(f"level must be a number between 0 and 1, not {level!r}")
        if self.intervals is None:
            return None
        if level not in self._ends:
            self._ends[level] = self.intervals.ends(level)
        return self._ends[level]

    def _has_interval(self, row: int) -> bool:
        ends = self.interval_at()
        return ends is not None and not np.isnan(ends[0][row]).any()

    @cached_property
    def _ends(self) -> dict[float, tuple[FloatArray, FloatArray]]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data, stable across versions."""
        return {
            "released": not len(self) or len(self.refusals) < len(self),
            "statistic": self.statistic,
            "by": list(self.by),
            "columns": list(self.columns),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbors": self.neighbors.value,
            "mechanism": self.mechanism,
            "per": self.per,
            "max_groups": self.max_groups,
            "public_keys": self.public_keys,
            "parameters": dict(self.parameters),
            "budget_breakdown": [asdict(entry) for entry in self.budget_breakdown],
            "guarantee": self.guarantee,
            "ledger": self.receipt and self.receipt.to_dict(),
            "rows": [row.to_dict() for row in self],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_arrow(self, level: float = DEFAULT_LEVEL) -> pyarrow.Table:
        """Return a PyArrow table: group columns, then value, low and high per column, and the denominator."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            name: _key_column([key[position] for key in self.keys]) for position, name in enumerate(self.by)
        }

        def add(name: str, numbers: Any) -> None:
            while name in columns:
                name += "_"
            columns[name] = pa.array(numbers, type=pa.float64(), from_pandas=True)

        ends = self.interval_at(level)
        for position, column in enumerate(self.columns):
            add(column, self.values[:, position])
            if ends is not None:
                add(f"{column}_low", ends[0][:, position])
                add(f"{column}_high", ends[1][:, position])
        if self.denominators:
            add("denominator", [one.value for one in self.denominators])
        return pa.table(columns)

    def to_pandas(self, level: float = DEFAULT_LEVEL) -> pandas.DataFrame:
        """Return the columns of `to_arrow` as a pandas frame."""
        return self.to_arrow(level).to_pandas()

    def to_polars(self, level: float = DEFAULT_LEVEL) -> polars.DataFrame:
        """Return the columns of `to_arrow` as a Polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow(level))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def shown(self, most: int = ROWS_SHOWN) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows as text, which every rendering shows."""
        headings = [printable(name) for name in self.by]
        for column in self.columns:
            headings += [printable(column), f"{DEFAULT_LEVEL:.0%} interval"] if self.intervals else [column]
        behind = bool(self.denominators) and not self.denominators[0].exact
        if behind:
            headings.append(f"{self.per}s behind it")
        rows = []
        for row in self[:most]:
            cells = [printable(str(key)) for key in (row.group or {}).values()]
            if isinstance(row, Refusal):
                cells += [f"not released: {row.reason}"] + [""] * (len(headings) - len(cells) - 1)
                rows.append(cells)
                continue
            details = row.interval_details()
            for position, value in enumerate(row.values):
                ends = () if details is None else (details.low[position], details.high[position])
                text, *shown_ends = format_values(self.statistic, value, *ends)
                cells.append(f"{text} (noise)" if self._is_uninformative(position, ends) else text)
                if self.intervals is not None:
                    cells.append(" to ".join(shown_ends))
            if behind and row.denominator is not None:
                cells.append(f"{row.denominator.value:,.0f}")
            rows.append(cells)
        return headings, rows

    def _is_uninformative(self, column: int, ends: Sequence[float]) -> bool:
        """Whether an interval reaches from bound to bound, so that the value carries no information."""
        bounds = self.parameters.get("bounds")
        if not bounds or not ends:
            return False
        low, high = bounds if len(self.columns) == 1 else bounds[column]
        room = 1e-9 * (high - low)
        return bool(ends[0] <= low + room and ends[1] >= high - room)

    def facts(self) -> list[tuple[str, str]]:
        """Return what holds for the whole table, as labelled lines."""
        chosen = "public" if self.public_keys else "selected privately: those with enough users"
        if not len(self):
            chosen = (
                f"selected privately: none has enough users (about {self.parameters['users_for_a_group']:,})"
            )
        lines = [("groups", f"{len(self):,}, {chosen}; a user counts in at most {self.max_groups:,}")]
        lines.append(("what", self.description))
        if self.intervals is not None:
            lines.append(("interval covers", self.covers))
        elif len(self):
            lines.append(
                ("interval", "not available; the value of a group with few or no users may be pure noise")
            )
        lines += [
            ("privacy", f"{self.budget}, {self.neighbors.value}, for the whole table"),
            ("guarantee", self.guarantee),
            ("mechanism", self.mechanism),
        ]
        return [*lines, *self.breakdown_lines(), *self.parameter_lines(), *self.receipt_lines()]

    @property
    def more(self) -> str:
        """A note on the groups that are not shown; empty if all are."""
        hidden = len(self) - ROWS_SHOWN
        return f"... and {hidden:,} more groups" if hidden > 0 else ""

    def __repr__(self) -> str:
        headings, rows = self.shown()
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        left = len(self.by)

        def line(cells: Sequence[str]) -> str:
            padded = (
                cell.ljust(width) if position < left else cell.rjust(width)
                for position, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            return "  ".join(padded).rstrip()

        lines = [line(headings), line(["-" * width for width in widths]), *map(line, rows)]
        if self.more:
            lines.append(f"{self.more}: to_polars(), to_pandas(), to_arrow(), to_dict()")
        return "\n".join([*lines, "", labelled(self.facts())])

    def _repr_html_(self) -> str:
        headings, rows = self.shown()
        cell = "text-align:left;padding:2px 12px 2px 0"
        head = "".join(f'<th style="{cell}">{html.escape(one)}</th>' for one in headings)
        body = "".join(
            "<tr>" + "".join(f'<td style="{cell}">{html.escape(one)}</td>' for one in row) + "</tr>"
            for row in rows
        )
        more = f"<p>{self.more}</p>"
        facts = "".join(
            f'<tr><th style="{cell};font-weight:normal;opacity:0.7;vertical-align:top">{html.escape(label)}</th>'
            f'<td style="{cell};max-width:46em;white-space:normal">{html.escape(text)}</td></tr>'
            for label, text in self.facts()
        )
        title = (
            f'<caption style="text-align:left;font-weight:bold">Private {self.statistic}s by group</caption>'
        )
        return (
            f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
            f"<table>{facts}</table>"
        )


def _key_column(keys: Sequence[Any]) -> pyarrow.Array:
    """Return keys in an Arrow type, or as text where there is none: integers beyond 64 bits."""
    import pyarrow as pa

    try:
        return pa.array(keys)
    except (OverflowError, pa.ArrowException):
        return pa.array([str(key) for key in keys], type=pa.string())


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Row:
    """Computes the interval of one group of a table."""

    table: ReleaseTable
    number: int

    def at(self, level: float) -> Interval:
        ends = self.table.interval_at(level)
        assert ends is not None
        low, high = (tuple(one[self.number].tolist()) for one in ends)
        return Interval(level=level, low=low, high=high, covers=self.table.covers)
