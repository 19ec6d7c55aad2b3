"""Figures of the paper's panels: one panel in detail, or an overview of all panels of a figure."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hubermean.errors import InputError
from hubermean_experiments.figures.panels import (
    DELTA,
    EPSILON,
    FAIR,
    PANELS,
    PAPER,
    RECORDS_PER_USER,
    SETTINGS,
    Panel,
)
from hubermean_experiments.figures.plot_axes import HIGHEST, PanelView, VerticalLimits, draw_view
from hubermean_experiments.figures.plot_styles import LOOK, format_rounded, legend_entries
from hubermean_experiments.figures.rows import ResultRow
from hubermean_experiments.figures.run import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 9.0  # inches: 100 pixels each on a page that shows 900
_OVERVIEW_COLUMNS = 4
_TRUTHS = {PAPER.name: "true mean where the paper puts it", FAIR.name: "true mean drawn at random"}


def panel_figure(panel: Panel, rows: Iterable[ResultRow], *, moment_order: float) -> Figure:
    """One panel: a row of axes for each setting, a column for each number of users.

    The two settings with one number of users have the same vertical limits.
    """
    kept = list(rows)
    columns = sorted({row.users for row in kept if row.panel == panel.name})
    if not columns:
        raise InputError(f"there are no results of panel {panel.name} to draw; run it first")
    views: list[PanelView] = []
    above = False
    with _look():
        figure = _figure(height=3.4 * len(SETTINGS) + 1.9)
        grid = figure.subplots(len(SETTINGS), len(columns), squeeze=False)
        for place, users in enumerate(columns):
            found = {
                setting.name: PanelView.of(
                    panel, kept, setting=setting.name, users=users, moment_order=moment_order
                )
                for setting in SETTINGS
            }
            shown = [view for view in found.values() if view is not None]
            limits = VerticalLimits.of(shown)
            above |= limits.above > 0
            for axes, (name, view) in zip(grid[:, place], found.items(), strict=True):
                axes.set_title(f"{users:,} users, {_TRUTHS[name]}", loc="left", fontsize="medium")
                if view is None:
                    _mark_not_run(axes)
                    continue
                draw_view(axes, view, limits, small=False)
                if place == 0:
                    axes.set_ylabel("mean squared error")
            views += shown
        _title(figure, panel.title, panel)
        _legend(figure, views, _above(with_numbers=True) if above else "")
    return figure


def overview_figure(
    figure: Literal["1", "2"],
    rows_by_panel: Mapping[str, Sequence[ResultRow]],
    *,
    setting: str,
    users: int,
    moment_orders: Mapping[str, float],
) -> Figure:
    """All panels of a figure as the paper lays them out, in one setting and with one number of users.

    Args:
        rows_by_panel: by the panel's name, such as "1a"; a panel without rows stays empty.
        moment_orders: by the name of the distribution.
    """
    panels = [panel for panel in PANELS.values() if panel.name[0] == figure]
    height = len(panels) // _OVERVIEW_COLUMNS
    views: list[PanelView] = []
    above = False
    with _look(font_size=8.0):
        drawn = _figure(height=2.35 * height + 2.1)
        grid = drawn.subplots(height, _OVERVIEW_COLUMNS, squeeze=False)
        for place, (axes, panel) in enumerate(zip(grid.flat, panels, strict=True)):
            axes.set_title(panel.title, loc="left", fontsize="medium")
            rows = rows_by_panel.get(panel.name, ())
            view = None
            if rows:
                order = moment_orders[panel.distribution]
                view = PanelView.of(panel, rows, setting=setting, users=users, moment_order=order)
            if view is None:
                _mark_not_run(axes)
                continue
            limits = VerticalLimits.of([view])
            draw_view(axes, view, limits, small=True)
            above |= limits.above > 0
            if place % _OVERVIEW_COLUMNS == 0:
                axes.set_ylabel("mean squared error")
            views.append(view)
        _title(drawn, f"Figure {figure}: {users:,} users, {_TRUTHS[setting]}", panels[0])
        if views:
            _legend(drawn, views, _above(with_numbers=False) if above else "")
    return drawn


def save_figure(figure: Figure, folder: Path, stem: str) -> tuple[Path, Path]:
    """Write stem.svg and stem.png; equal figures give equal bytes."""
    paths = folder / f"{stem}.svg", folder / f"{stem}.png"
    with _look():
        for path, metadata in zip(paths, ({"Date": None, "Creator": None}, {"Software": None}), strict=True):
            out = io.BytesIO()
            figure.savefig(out, format=path.suffix[1:], metadata=metadata)
            content = out.getvalue()
            if path.suffix == ".svg":  # no blanks at line ends
                content = b"".join(line.rstrip() + b"\n" for line in content.splitlines())
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content)
            except OSError:
                raise InputError(f"{path} cannot be written; name another folder") from None
    return paths


@contextmanager
def _look(*, font_size: float = 9.0) -> Iterator[None]:
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError:
        raise InputError("a plot needs matplotlib; install it with pip install 'hubermean[plot]'") from None
    with mpl.rc_context(LOOK | {"font.size": font_size}):
        yield


def _figure(*, height: float) -> Figure:
    """A figure without pyplot: no global state remains and no window opens."""
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, height), dpi=150, layout="constrained")


def _title(figure: Figure, text: str, panel: Panel) -> None:
    budget = f"ε = {EPSILON:g}, δ = {format_rounded(DELTA)}"
    records = f", {RECORDS_PER_USER} records per user on average" if panel.axis == "gamma" else ""
    figure.suptitle(f"{text}; {budget}{records}", x=0.01, ha="left", fontweight="bold", fontsize="large")


def _legend(figure: Figure, views: Sequence[PanelView], above: str) -> None:
    """Add one legend below all plots, with notes on points outside the frame and methods without a release."""
    names = {name for view in views for name in view.names}
    notes = ["Bars are standard errors; most are smaller than their markers."]
    refused = {name for view in views for name in view.refused}
    if refused & names:
        notes[0] += " Where a curve has no point, the method does not release."
    if refused - names:
        notes.append(f"No release at any point: {'; '.join(sorted(refused - names))}.")
    panels = {view.panel.name: view.panel for view in views}
    figure.legend(
        handles=list(legend_entries(names, panels.values())),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        title="\n".join([*notes, above] if above else notes),
        alignment="left",
        title_fontsize="small",
        handlelength=4.0,
    )


def _above(*, with_numbers: bool) -> str:
    """The note on points above the frame; `with_numbers` if the strip has numbers at its side."""
    numbers = (
        "; next to it, the largest multiple of the non-private error at the same point"
        if with_numbers
        else ""
    )
    return f"▲ in the gray strip: an error above {HIGHEST:g} times the largest non-private error{numbers}."


def _mark_not_run(axes: Axes) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color="#777777")
