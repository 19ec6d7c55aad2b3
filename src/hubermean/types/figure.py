"""The figure of a release: values and intervals on an axis per column; for groups, one row per group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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


def draw_release(release: ReleaseInfo, path: str | Path | None, *, level: float) -> Figure:
    """Draw a release or a table, and write it to `path` if one is given.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure()
    if isinstance(release, ReleaseTable):
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
    columns, rows = table.columns[:COLUMNS_DRAWN], table[:GROUPS_DRAWN]
    height = _ROW * max(len(rows), 1) + 0.9
    figure.set_size_inches(max(_WIDTH, 3.2 * len(columns)), height + 0.4)
    axes = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
    names = [_name(", ".join(str(key) for key in (row.group or {}).values())) for row in rows]
    for position, (column, own) in enumerate(zip(columns, axes, strict=True)):
        for number, row in enumerate(rows):
            if isinstance(row, Release):
                wide, narrow = row.interval_details(level), row.interval_details(_NARROW)
                _draw_row(own, float(number), row.values[position], wide, narrow, position)
        own.set_yticks(range(len(rows)), names)
        own.set_ylim(max(len(rows), 1) - 0.4, -0.6)
        own.set_title(_name(column), loc="left", fontsize=10)
        _clean(own)
    _caption(figure, table, level, intervals=table.intervals is not None)
    if len(table) > GROUPS_DRAWN or len(table.columns) > COLUMNS_DRAWN:
        axes[0].set_xlabel(f"first {len(rows)} of {len(table):,} groups", fontsize=8)


def _draw_row(
    axes: Axes, place: float, value: float, wide: Interval | None, narrow: Interval | None, column: int
) -> None:
    for interval, thickness in ((wide, 1.4), (narrow, 5.0)):
        if interval is not None:
            ends = (interval.low[column], interval.high[column])
            axes.plot(ends, (place, place), color=_COLOR, linewidth=thickness, alpha=0.55)
    axes.plot([value], [place], marker="o", markersize=6, color=_COLOR)


def _clean(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.10g}"))
    axes.xaxis.get_major_locator().set_params(nbins=6)  # type: ignore[call-arg]
    axes.grid(axis="x", color="#d9dee5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", labelsize=8, length=0)
    for side in ("left", "top", "right"):
        axes.spines[side].set_visible(False)


def _caption(figure: Figure, release: ReleaseInfo, level: float, *, intervals: bool) -> None:
    covered = f"; line: {100.0 * level:g}% interval, thick part: {_NARROW:.0%}" if intervals else ""
    figure.supxlabel(
        f"Private {release.description}, {release.budget} for each user{covered}", fontsize=8, color="#526071"
    )


def _name(name: str) -> str:
    """Return a name as matplotlib shows it: no markup, not too long."""
    return shortened(printable(name), _LONGEST_NAME).replace("$", r"\$")
