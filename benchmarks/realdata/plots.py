"""The plots of docs/evidence/realdata.md, and the figure of the README.

python -m realdata.plots docs/evidence/realdata.md docs/img/comparison.svg    # the figure alone; make figure
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from common.figures import BLUE, GREY, ORANGE, RED, STYLE, save
from realdata.releases import EPSILONS, Measured
from realdata.results import ENOUGH_USERS, Results

RATIO, COVERAGE, EPSILON = "realdata-hindsight.svg", "realdata-coverage.svg", "realdata-epsilon.svg"
_KINDS = (("user", BLUE, "o"), ("record", ORANGE, "D"))
_OURS = "adaptive"
_OPENDP = {
    "OpenDP, bounds x 1": ("#9a9a9a", "exactly right bounds"),
    "OpenDP, bounds x 3": (ORANGE, "bounds 3 times too wide"),
    "OpenDP, bounds x 10": (RED, "bounds 10 times too wide"),
}


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


def errors_by_table(page: str) -> dict[str, dict[str, float]]:
    """Return the RMSE in percent of the mean, by table and method, from the page's table of other methods."""
    lines = iter(page.splitlines())
    header = next(line for line in lines if line.startswith("|") and "OpenDP, bounds x 1 " in line)
    methods = [cell.strip() for cell in header.strip("|").split("|")][1:]
    next(lines)  # the line of dashes
    errors = {}
    for line in lines:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        errors[name] = {
            method: float(cell.rstrip("%")) for method, cell in zip(methods, cells, strict=True) if cell
        }
    return errors


def draw_comparison(page: Path, picture: Path) -> None:
    """Draw hubermean with defaults only beside OpenDP with bounds 1, 3 and 10 times the right ones."""
    with plt.rc_context(STYLE):
        save(_comparison(errors_by_table(page.read_text())), picture)


def _comparison(errors: Mapping[str, Mapping[str, float]]) -> plt.Figure:
    names = sorted(errors, key=lambda name: errors[name][_OURS])
    rows = range(len(names))
    figure, axis = plt.subplots(figsize=(8.4, 4.7), layout="constrained")
    for row, name in zip(rows, names, strict=True):
        others = [errors[name][method] for method in _OPENDP]
        axis.plot([min(others), max(others)], [row, row], color="#d5d5d5", linewidth=1.6, zorder=1)
    for method, (color, words) in _OPENDP.items():
        axis.scatter(
            [errors[name][method] for name in names],
            rows,
            s=30,
            color=color,
            zorder=2,
            label=f"OpenDP, {words}",
        )
    axis.scatter(
        [errors[name][_OURS] for name in names],
        rows,
        s=62,
        color=BLUE,
        marker="D",
        edgecolor="white",
        linewidth=0.8,
        zorder=3,
        label="hubermean, no bounds given",
    )
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator([0.01, 0.1, 1.0, 10.0]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
    axis.set_yticks(rows, names, fontsize=9.5)
    axis.set_ylim(-0.7, len(names) - 0.3)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("Root mean squared error, percent of the mean (epsilon = 1)")
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles[-1:] + handles[:-1],
        labels[-1:] + labels[:-1],
        loc="outside upper left",
        ncols=2,
        frameon=False,
    )
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figure of the README from the page of real data.")
    parser.add_argument("page", type=Path, help="docs/evidence/realdata.md")
    parser.add_argument("picture", type=Path, help="where the figure goes")
    options = parser.parse_args()
    draw_comparison(options.page, options.picture)


if __name__ == "__main__":
    main()
