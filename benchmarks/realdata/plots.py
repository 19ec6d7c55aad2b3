"""The plots of docs/realdata.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from figures import BLUE, GREY, ORANGE, RED, STYLE, save
from realdata.releases import EPSILONS, Measured
from realdata.results import ENOUGH_USERS, Results

RATIO, COVERAGE, EPSILON = "realdata-hindsight.svg", "realdata-coverage.svg", "realdata-epsilon.svg"
_KINDS = (("user", BLUE, "o"), ("record", ORANGE, "D"))


def draw_all(folder: Path, results: Results) -> None:
    with plt.rc_context(STYLE):
        save(_ratios(results), folder / RATIO)
        save(_coverage(results), folder / COVERAGE)
        save(_by_epsilon(results), folder / EPSILON)


def _names(results: Results) -> list[str]:
    """Tables in the order of their worse ratio at epsilon = 1, the best on top."""
    worst: dict[str, float] = {}
    for row in results.measured(epsilon=1.0):
        worst[row.table] = max(worst.get(row.table, 0.0), row.ratio)
    return sorted(worst, key=lambda name: -worst[name])


def _labels(axis: Axes, results: Results, names: Sequence[str]) -> None:
    users = {fact.name: fact.users for fact in results.facts}
    axis.set_yticks(
        range(len(names)),
        [f"{name} ({users[name]:,} users{'*' if users[name] < ENOUGH_USERS else ''})" for name in names],
    )
    axis.set_ylim(-0.7, len(names) - 0.3)
    axis.grid(axis="y", visible=False)
    for row in range(0, len(names), 2):
        axis.axhspan(row - 0.5, row + 0.5, color="#f6f6f6", zorder=0, linewidth=0)


def _points(axis: Axes, rows: Sequence[Measured], names: Sequence[str], value: str) -> None:
    for per, color, marker in _KINDS:
        kept = [row for row in rows if row.per == per]
        axis.plot(
            [getattr(row, value) for row in kept],
            [names.index(row.table) + (0.13 if per == "user" else -0.13) for row in kept],
            linestyle="none",
            color=color,
            marker=marker,
            label=f"per {per}",
        )


def _ratios(results: Results) -> plt.Figure:
    names = _names(results)
    rows = results.measured(epsilon=1.0)
    figure, axis = plt.subplots(figsize=(8.2, 6.4), layout="constrained")
    _points(axis, rows, names, "ratio")
    for limit, color in ((3.0, GREY), (6.0, RED)):
        axis.axvline(limit, color=color, linestyle="--", linewidth=1.2)
    axis.text(3.06, len(names) - 0.62, "aim: nine of ten", color=GREY, fontsize=9, va="center")
    axis.text(6.06, len(names) - 0.62, "aim: all", color=RED, fontsize=9, va="center")
    axis.set_xlim(0.0, max(7.0, 1.05 * max(row.ratio for row in rows)))
    _labels(axis, results, names)
    axis.set_ylim(-0.7, len(names))
    axis.set_xlabel("RMSE, in multiples of the best bounds in hindsight (epsilon = 1)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
    return figure


def _coverage(results: Results) -> plt.Figure:
    names = _names(results)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 6.4), sharey=True, layout="constrained")
    rows = results.measured(epsilon=1.0)
    _points(axes[0], rows, names, "coverage")
    axes[0].axvline(0.93, color=GREY, linestyle="--", linewidth=1.2)
    axes[0].set_xlim(-0.03, 1.03)
    axes[0].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes[0].set_xlabel("95% intervals that hold the plain mean\n(dashed: the aim, 93%)")
    _points(axes[1], rows, names, "half_width")
    axes[1].set_xscale("log")
    axes[1].xaxis.set_major_locator(FixedLocator([0.001, 0.003, 0.01, 0.03, 0.1, 0.3]))
    axes[1].xaxis.set_minor_locator(NullLocator())
    axes[1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    axes[1].set_xlabel("median half width of the interval,\nin percent of the mean")
    _labels(axes[0], results, names)
    for row in range(0, len(names), 2):
        axes[1].axhspan(row - 0.5, row + 0.5, color="#f6f6f6", zorder=0, linewidth=0)
    axes[1].grid(axis="y", visible=False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
    return figure


def _by_epsilon(results: Results) -> plt.Figure:
    names = list(dict.fromkeys(row.table for row in results.tables))
    columns = 5
    lines = -(-len(names) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(11.0, 2.15 * lines), sharex=True, layout="constrained"
    )
    for name, axis in zip(names, axes.flat, strict=False):
        for per, color, marker in _KINDS:
            rows = sorted(
                (row for row in results.measured(per=per) if row.table == name), key=lambda row: row.epsilon
            )
            epsilons = [row.epsilon for row in rows]
            axis.plot(
                epsilons, [100 * row.hindsight for row in rows], color=color, linestyle=":", linewidth=1.5
            )
            axis.plot(epsilons, [100 * row.rmse for row in rows], color=color, marker=marker, markersize=4)
        axis.set_title(name, fontsize=9.5)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_major_locator(FixedLocator([0.3, 3, 30]))
        axis.xaxis.set_minor_locator(FixedLocator(EPSILONS))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        axis.tick_params(labelsize=8.5)
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    for axis in axes.flat[len(names) - columns : len(names)]:
        axis.xaxis.set_tick_params(labelbottom=True)
    handles = [
        Line2D([], [], color=color, marker=marker, label=f"RMSE per {per}") for per, color, marker in _KINDS
    ]
    handles.append(Line2D([], [], color=GREY, linestyle=":", label="best bounds in hindsight"))
    figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False)
    figure.supxlabel("epsilon", fontsize=10.5)
    figure.supylabel("RMSE, in percent of the mean", fontsize=10.5)
    return figure
