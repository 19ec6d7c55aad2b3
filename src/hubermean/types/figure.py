"""The figure of a release: values and intervals on an axis per column; for groups, one row per group, sorted.

Groups in time are a line with a band.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hubermean.errors import InputError, printable
from hubermean.types.formatting import SHOWN
from hubermean.types.release import Release
from hubermean.types.release_info import ReleaseInfo
from hubermean.types.release_table import ReleaseTable
from hubermean.types.screen import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hubermean.types.release import Interval

GROUPS_DRAWN, COLUMNS_DRAWN = 40, 4
_LONGEST_NAME = 28
_COLOR = "#1d5ea8"
_ROW, _AXIS, _WIDTH = 0.26, 0.95, 6.4  # inches
_NARROW = 0.5  # the level of the thick part
_NAMES = 8  # groups in time that are named
_MARGIN = 0.05  # of the range of an axis


def draw_release(release: ReleaseInfo, path: str | Path | None, *, level: float) -> Figure:
    """Draw a release or a table, and write it to `path` if one is given.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure()
    if isinstance(release, ReleaseTable) and release.is_line and release.times is not None:
        _draw_times(figure, release, release.times, level)
    elif isinstance(release, ReleaseTable):
        _draw_groups(figure, release, level)
    elif isinstance(release, Release):
        _draw_columns(figure, release, level)
    write_figure(figure, path)
    return figure


def new_figure(width: float = _WIDTH, height: float = 2.0) -> Figure:
    """Return an empty figure; InputError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("a plot needs matplotlib; install it with pip install 'hubermean[plot]'") from None
    # Not a figure of pyplot's, which would stay in the process and open a window.
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def write_figure(figure: Figure, path: str | Path | None) -> None:
    """Write a figure to a file, if one is given; InputError if it cannot be written."""
    if path is None:
        return
    try:
        figure.savefig(path)
    except (OSError, ValueError):
        raise InputError(
            f"the plot cannot be written to {str(path)!r}; give a file that ends in .png, .svg or .pdf, in a "
            "folder that exists"
        ) from None


def _draw_columns(figure: Figure, release: Release, level: float) -> None:
    """Draw each column on an axis of its own, since their units differ."""
    columns = release.columns[:SHOWN]
    figure.set_size_inches(_WIDTH, max(_AXIS * len(columns) + 0.5, 1.6))
    axes = figure.subplots(len(columns), 1, squeeze=False)[:, 0]
    wide, narrow = release.interval_details(level), release.interval_details(_NARROW)
    for position, (column, own) in enumerate(zip(columns, axes, strict=True)):
        _draw_row(own, 0.0, release.values[position], wide, narrow, position)
        own.set_yticks([])
        own.set_ylim(-0.6, 0.6)
        own.set_title(_name(column), loc="left", fontsize=10)
        _clean(own)
    _caption(figure, release, level, intervals=wide is not None)


def _draw_groups(figure: Figure, table: ReleaseTable, level: float) -> None:
    """Draw one row per group, sorted by the first column; of many, the first and the last ones."""
    columns, shown = table.columns[:COLUMNS_DRAWN], table.order().cut(GROUPS_DRAWN)
    left_out = [f"… {shown.left_out:,} more groups"] if shown.left_out else []
    count = len(shown.rows) + len(left_out)
    figure.set_size_inches(max(_WIDTH, 3.2 * len(columns)), _ROW * max(count, 1) + 1.3)
    axes = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
    places = [*range(len(shown.first)), *range(len(shown.first) + len(left_out), count)]
    names = [_name_of(table, row) for row in shown.rows]
    names[len(shown.first) : len(shown.first)] = left_out
    for position, (column, own) in enumerate(zip(columns, axes, strict=True)):
        for place, number in zip(places, shown.rows, strict=True):
            row = table[number]
            if isinstance(row, Release):
                wide, narrow = row.interval_details(level), row.interval_details(_NARROW)
                _draw_row(own, float(place), row.values[position], wide, narrow, position)
        own.set_yticks(range(count), names)
        own.set_ylim(max(count, 1) - 0.4, -0.6)
        if (ends := _with_margin(table.axis_ends(position, level))) is not None:
            own.set_xlim(*ends)
        own.set_title(_name(column), loc="left", fontsize=10)
        _clean(own)
    _caption(figure, table, level, intervals=table.intervals is not None)


def _draw_times(figure: Figure, table: ReleaseTable, times: Sequence[float], level: float) -> None:
    """Draw a line with a band per column, one below the other."""
    columns, rows = (
        table.columns[:COLUMNS_DRAWN],
        [row for row in table.order().rows if row not in table.refusals],
    )
    figure.set_size_inches(_WIDTH, 2.1 * len(columns) + 1.0)
    axes = figure.subplots(len(columns), 1, squeeze=False, sharex=True)[:, 0]
    along, found = [times[row] for row in rows], table.interval_at(level)
    for position, (column, own) in enumerate(zip(columns, axes, strict=True)):
        if found is not None:
            low, high = (ends[rows, position] for ends in found)
            own.fill_between(along, low, high, color=_COLOR, alpha=0.22, linewidth=0)
        size = 4 if len(rows) <= GROUPS_DRAWN else 0
        own.plot(
            along, table.values[rows, position], color=_COLOR, linewidth=1.6, marker="o", markersize=size
        )
        if (ends := _with_margin(table.axis_ends(position, level))) is not None:
            own.set_ylim(*ends)
        own.set_title(_name(column), loc="left", fontsize=10)
        _clean(own, "y")
    every = -(-len(rows) // _NAMES)
    axes[-1].set_xticks(along[::every], [_name_of(table, row) for row in rows[::every]])
    _caption(figure, table, level, intervals=found is not None, band=True)


def _with_margin(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the range of an axis with a margin; None to leave it to matplotlib."""
    if ends is None or not ends[0] < ends[1]:
        return None
    margin = _MARGIN * (ends[1] - ends[0])
    return ends[0] - margin, ends[1] + margin


def _name_of(table: ReleaseTable, row: int) -> str:
    return _name(", ".join(map(str, table.keys[row])))


def _draw_row(
    axes: Axes, place: float, value: float, wide: Interval | None, narrow: Interval | None, column: int
) -> None:
    for interval, thickness in ((wide, 1.4), (narrow, 5.0)):
        if interval is not None:
            ends = (interval.low[column], interval.high[column])
            axes.plot(ends, (place, place), color=_COLOR, linewidth=thickness, alpha=0.55)
    axes.plot([value], [place], marker="o", markersize=6, color=_COLOR)


def _clean(axes: Axes, along: Literal["x", "y"] = "x") -> None:
    """Leave little but lines at round numbers; `along` is the axis of the values."""
    from matplotlib.ticker import FuncFormatter

    axis = axes.xaxis if along == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.10g}"))
    axis.get_major_locator().set_params(nbins=6)  # type: ignore[call-arg]
    axes.grid(axis=along, color="#d9dee5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", labelsize=8, length=0)
    for side in ("left", "top", "right"):
        axes.spines[side].set_visible(False)


def _caption(
    figure: Figure, release: ReleaseInfo, level: float, *, intervals: bool, band: bool = False
) -> None:
    marks = "band: {}% interval" if band else f"line: {{}}% interval, thick part: {_NARROW:.0%}"
    covered = f"; {marks.format(f'{100.0 * level:g}')}" if intervals else ""
    figure.supxlabel(
        f"Private {release.description}, {release.budget} for each user{covered}", fontsize=8, color="#526071"
    )


def _name(name: str) -> str:
    """Return a name as matplotlib shows it: no markup, not too long."""
    return shortened(printable(name), _LONGEST_NAME).replace("$", r"\$")
