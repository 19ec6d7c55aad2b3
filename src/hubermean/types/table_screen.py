"""What a terminal shows of a table of groups: rows with intervals, in order, and lines over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubermean.types.group_order import show_key
from hubermean.types.release_info import DEFAULT_LEVEL, format_values
from hubermean.types.screen import Grid
from hubermean.types.text_chart import Span, TimeChart, TimePoint

if TYPE_CHECKING:
    from hubermean.types.release_table import ReleaseTable

ALL_SHOWN, ROWS_SHOWN = 12, 8
"""Rows of a table that are all shown, and how many of a longer one; `to_dict` and the data frames have all."""
COLUMNS_SHOWN = 4
_CHARTS = 2  # columns that are drawn over time
_ELSEWHERE = "in to_pandas(), to_dict() and --json"


def show_groups(table: ReleaseTable) -> Grid:
    """Return one row per group, in order; of several columns, the rows of one column after those of another."""
    columns = table.columns[:COLUMNS_SHOWN]
    several = len(table.columns) > 1
    headings = [*(["column"] if several else []), *table.by, *([table.statistic] if several else columns)]
    if table.intervals is not None:
        headings.append(f"{DEFAULT_LEVEL:.0%} interval")
    if _measures(table):
        headings.append(f"{table.per}s")
    rows: list[tuple[str, ...]] = []
    spans: list[Span | None] = []
    notes = []
    for position, column in enumerate(columns):
        most, all_up_to = max(ROWS_SHOWN // len(columns), 2), ALL_SHOWN // len(columns)
        shown = table.order(position).cut(most, all_up_to=all_up_to)
        axis, noise = table.axis_ends(position), table.is_uninformative(position)
        if shown.left_out:
            more = f"… and {shown.left_out:,} more groups, {_ELSEWHERE}"
            notes.append((len(rows) + len(shown.first), more))
        for row in shown.rows:
            cells = _cells(table, row, position, noise=bool(noise[row]))
            rows.append((*([column] if several else []), *cells))
            span = None
            if axis is not None and row not in table.refusals:
                ends = table.ends_of(row, position) or ()
                span = Span.on(axis, float(table.values[row, position]), ends)
            spans.append(span)
    if len(columns) < len(table.columns):
        notes.append((len(rows), f"… and {len(table.columns) - len(columns):,} more columns, {_ELSEWHERE}"))
    return Grid(
        headings=tuple(headings),
        rows=tuple(rows),
        names=len(table.by) + several,
        notes=tuple(notes),
        spans=() if table.is_line else tuple(spans),
    )


def _cells(table: ReleaseTable, row: int, column: int, *, noise: bool) -> list[str]:
    """Return the cells of a group: its keys, the value, the interval and the number behind it."""
    cells = [show_key(key) for key in table.keys[row]]
    width = len(cells) + 1 + (table.intervals is not None) + _measures(table)
    if row in table.refusals:
        cells.append("not released")
    else:
        ends = table.ends_of(row, column) or ()
        text, *shown = format_values(table.statistic, float(table.values[row, column]), *ends)
        cells.append(f"{text} (noise)" if noise else text)
        if table.intervals is not None:
            cells.append(" to ".join(shown))
        if _measures(table):
            cells.append(table.denominators[row].describe())
    return [*cells, *[""] * (width - len(cells))]


def _measures(table: ReleaseTable) -> bool:
    """Whether the numbers of users or records behind the values were measured."""
    return bool(table.denominators) and not table.denominators[0].exact


def draw_times(table: ReleaseTable) -> tuple[tuple[str, TimeChart], ...]:
    """Return a chart for each of the first columns; none unless groups are in time."""
    charts = []
    for position, column in enumerate(table.columns[:_CHARTS] if table.is_line else ()):
        axis = table.axis_ends(position)
        if axis is None or table.times is None:
            continue
        points = tuple(
            TimePoint(
                name=str(table.keys[row][0]),
                time=table.times[row],
                value=None if row in table.refusals else float(table.values[row, position]),
                ends=table.ends_of(row, position),
            )
            for row in table.order(position).rows
        )
        charts.append((column, TimeChart(points=points, axis=axis)))
    return tuple(charts)
