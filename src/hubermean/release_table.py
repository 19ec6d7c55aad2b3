"""What a grouped release returns: a row a group, and only what is safe to publish."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError, is_real
from hubermean.readable import labelled, number, printable, readable
from hubermean.relations import Neighbors
from hubermean.release import (
    DEFAULT_LEVEL,
    Denominator,
    Interval,
    Release,
    account_line,
    group_fields,
    promise,
    what_is_released,
    written,
)
from hubermean.spending import Receipt, Spent, has_stages

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Floats = NDArray[np.float64]
ROWS_SHOWN = 20
"""Rows that are shown to people; `to_dict` and the data frames have them all."""


class TableIntervals(Protocol):
    """How a mechanism turns a level into the intervals of all groups, from released quantities only."""

    @property
    def covers(self) -> str: ...

    def ends(self, level: float) -> tuple[Floats, Floats]:
        """(low, high), shape (groups, columns); NaN where there is none."""


class Denominators(Protocol):
    """How a mechanism tells what the means of all groups were divided by."""

    def denominators(self) -> list[Denominator]: ...


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A group that the mechanism's own private test did not let through."""

    group: Mapping[str, Any]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {**group_fields(self.group), "released": False, "reason": self.reason}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReleaseTable(Sequence["Release | Refusal"]):
    """Private means, or counts, of many groups, with the one promise that all of them were made under.

    A sequence: `table[0]` is the `Release` of the first group, or a `Refusal`. Groups stand in the order in which they
    were given, or sorted. Which of them appear, and that is all there is to know of the others, is part of the release.

    Attributes:
        by: names of the group columns.
        keys: the groups, a tuple each with one entry per group column.
        values: shape (groups, columns); NaN where a group was refused.
        epsilon, delta: the privacy loss of the whole table.
        max_groups: how many groups a user counts in at most.
        public_keys: whether the caller gave the groups; else they were chosen privately.

    The other attributes are those of `Release`, for all groups alike.
    """

    by: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]
    values: Floats
    columns: tuple[str, ...]
    epsilon: float
    delta: float
    neighbors: Neighbors
    mechanism: str
    per: str
    statistic: str
    max_groups: int
    public_keys: bool
    parameters: Mapping[str, Any]
    spent: tuple[Spent, ...]
    intervals: TableIntervals | None = None
    measured: Denominators | None = None
    refusals: Mapping[int, str] = field(default_factory=dict)
    receipt: Receipt | None = None

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
            values=tuple(self.values[row].tolist()),
            columns=self.columns,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbors=self.neighbors,
            mechanism=self.mechanism,
            per=self.per,
            n_users=None,
            parameters=self.parameters,
            spent=self.spent,
            interval_rule=Row(table=self, number=row) if self._has_interval(row) else None,
            statistic=self.statistic,
            denominator=self.denominators[row] if self.denominators else None,
            group=group,
            receipt=self.receipt,
        )

    def group(self, *key: Any) -> Release | Refusal:
        """The row of a group, named by its keys in the order of `by`, or by one of `keys`."""
        if len(key) == 1 and isinstance(key[0], tuple):
            (key,) = key
        if key not in self._places:
            raise InputError(f"there is no group {', '.join(map(str, key))} in this release")
        return self[self._places[key]]

    @cached_property
    def _places(self) -> dict[tuple[Any, ...], int]:
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def denominators(self) -> Sequence[Denominator]:
        """What each mean was divided by, where the mechanism measured that; empty where not."""
        return () if self.measured is None else self.measured.denominators()

    @property
    def covers(self) -> str:
        """What the intervals cover, and what not; they are of each group by itself."""
        covered = "" if self.intervals is None else self.intervals.covers
        left_out = f"not what is left out of users in more than {self.max_groups:,} of the groups"
        return f"{covered}; {left_out}; of each group by itself"

    @property
    def promise(self) -> str:
        """The guarantee in one sentence; it holds for the whole table."""
        return promise(self.epsilon, self.delta, self.neighbors, grouped=True)

    def interval_at(self, level: float = DEFAULT_LEVEL) -> tuple[Floats, Floats] | None:
        """(low, high), shape (groups, columns), each group's at the level, not all together; None where there is none.

        NaN stands for a group that has no interval.
        """
        if not is_real(level) or not 0.0 < level < 1.0:
            raise InputError(f"level must lie strictly between 0 and 1, not {level!r}")
        if self.intervals is None:
            return None
        if level not in self._ends:
            self._ends[level] = self.intervals.ends(level)
        return self._ends[level]

    def _has_interval(self, row: int) -> bool:
        ends = self.interval_at()
        return ends is not None and not np.isnan(ends[0][row]).any()

    @cached_property
    def _ends(self) -> dict[float, tuple[Floats, Floats]]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data, stable across versions."""
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
            "spent": [asdict(entry) for entry in self.spent],
            "promise": self.promise,
            "ledger": self.receipt and self.receipt.to_dict(),
            "rows": [row.to_dict() for row in self],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_arrow(self, level: float = DEFAULT_LEVEL) -> pyarrow.Table:
        """A PyArrow table: group columns, then value, low and high of each column, and the denominator."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            name: _key_column([key[place] for key in self.keys]) for place, name in enumerate(self.by)
        }

        def add(name: str, numbers: Any) -> None:
            while name in columns:
                name += "_"
            columns[name] = pa.array(numbers, type=pa.float64(), from_pandas=True)

        ends = self.interval_at(level)
        for place, column in enumerate(self.columns):
            add(column, self.values[:, place])
            if ends is not None:
                add(f"{column}_low", ends[0][:, place])
                add(f"{column}_high", ends[1][:, place])
        if self.denominators:
            add("denominator", [one.value for one in self.denominators])
        return pa.table(columns)

    def to_pandas(self, level: float = DEFAULT_LEVEL) -> pandas.DataFrame:
        """The columns of `to_arrow` as a pandas frame."""
        return self.to_arrow(level).to_pandas()

    def to_polars(self, level: float = DEFAULT_LEVEL) -> polars.DataFrame:
        """The columns of `to_arrow` as a Polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow(level))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def shown(self, most: int = ROWS_SHOWN) -> tuple[list[str], list[list[str]]]:
        """Headings and rows as text, for people; the one source of every rendering."""
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
            for place, value in enumerate(row.values):
                ends = () if details is None else (details.low[place], details.high[place])
                text, *shown_ends = written(self.statistic, value, *ends)
                cells.append(f"{text} (noise)" if self._says_nothing(place, ends) else text)
                if self.intervals is not None:
                    cells.append(" to ".join(shown_ends))
            if behind and row.denominator is not None:
                cells.append(f"{row.denominator.value:,.0f}")
            rows.append(cells)
        return headings, rows

    def _says_nothing(self, column: int, ends: Sequence[float]) -> bool:
        """Whether an interval reaches from one bound to the other, so that the value is as good as any."""
        bounds = self.parameters.get("bounds")
        if not bounds or not ends:
            return False
        low, high = bounds if len(self.columns) == 1 else bounds[column]
        room = 1e-9 * (high - low)
        return bool(ends[0] <= low + room and ends[1] >= high - room)

    def facts(self) -> list[tuple[str, str]]:
        """What is said of the whole table, as labelled lines."""
        budget = f"epsilon = {number(self.epsilon)}" + (
            f", delta = {number(self.delta)}" if self.delta > 0 else ""
        )
        chosen = "public" if self.public_keys else "chosen privately: those with enough users"
        if not len(self):
            chosen = (
                f"chosen privately: none has enough users, about {self.parameters['users_for_a_group']:,}"
            )
        lines = [("groups", f"{len(self):,}, {chosen}; a user counts in at most {self.max_groups:,}")]
        lines.append(("what", what_is_released(self.statistic, self.per)))
        if self.intervals is not None:
            lines.append(("interval covers", self.covers))
        elif len(self):
            lines.append(("interval", "none is offered; a group of few users, or of none, may be all noise"))
        lines += [
            ("privacy", f"{budget}, {self.neighbors.value}, for the whole table"),
            ("promise", self.promise),
            ("mechanism", self.mechanism),
        ]
        if has_stages(self.spent):
            lines.append(account_line(self.spent))
        lines += [(name.replace("_", " "), readable(given)) for name, given in self.parameters.items()]
        if self.receipt is not None:
            lines.append(("ledger", str(self.receipt)))
        return lines

    @property
    def more(self) -> str:
        """That there are more groups than are shown; empty if there are not."""
        hidden = len(self) - ROWS_SHOWN
        return f"... and {hidden:,} more groups" if hidden > 0 else ""

    def __repr__(self) -> str:
        headings, rows = self.shown()
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        left = len(self.by)

        def line(cells: Sequence[str]) -> str:
            padded = (
                cell.ljust(width) if place < left else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
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
    """Keys in a type of their own, or as text where there is none: whole numbers beyond 64 bits."""
    import pyarrow as pa

    try:
        return pa.array(keys)
    except (OverflowError, pa.ArrowException):
        return pa.array([str(key) for key in keys], type=pa.string())


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Row:
    """The interval of one group of a table."""

    table: ReleaseTable
    number: int

    def at(self, level: float) -> Interval:
        ends = self.table.interval_at(level)
        assert ends is not None
        low, high = (tuple(one[self.number].tolist()) for one in ends)
        return Interval(level=level, low=low, high=high, covers=self.table.covers)
