"""The plot of docs/evidence/groups.md: error by table and contestant."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.figures import BLUE, GREEN, GREY, ORANGE, RED, STYLE, save
from groups.before import BEFORE, BEFORE_BEST
from groups.hindsight import HINDSIGHT
from groups.measures import delta_text
from groups.other_libraries import OPENDP, PIPELINEDP, RIGHT, WIDE
from groups.results import OURS, Results

ERRORS = "groups-errors.svg"
_LOOKS = {
    f"{PIPELINEDP}, {WIDE}": (RED, "s", 4.5),
    f"{OPENDP}, {WIDE}": (RED, "^", 5.0),
    f"{PIPELINEDP}, {RIGHT}": (ORANGE, "s", 4.5),
    f"{OPENDP}, {RIGHT}": (ORANGE, "^", 5.0),
    BEFORE: (GREY, "o", 5.0),
    BEFORE_BEST: ("#a5a5a5", "o", 5.0),
    HINDSIGHT: (GREEN, "|", 11.0),
    OURS: (BLUE, "D", 6.5),
}


def draw_all(folder: Path, results: Results) -> None:
    with plt.rc_context(STYLE):
        save(_errors(results), folder / ERRORS)


def _errors(results: Results) -> plt.Figure:
    """One panel per kind of mean, tables in the order of hubermean's error per user."""
    delta = results.deltas[0]
    ours = {row.table: row.rmse for row in results.of(OURS, per="user", epsilon=1.0, delta=delta)}
    names = sorted(ours, key=lambda name: -ours[name])
    figure, axes = plt.subplots(
        1, 2, figsize=(11.0, 1.6 + 0.27 * len(names)), sharey=True, layout="constrained"
    )
    for per, axis in zip(("user", "record"), axes, strict=True):
        for row in range(0, len(names), 2):
            axis.axhspan(row - 0.5, row + 0.5, color="#f6f6f6", zorder=0, linewidth=0)
        for contestant, (color, marker, size) in _LOOKS.items():
            rows = results.of(contestant, per=per, epsilon=1.0, delta=delta)
            axis.plot(
                [100.0 * row.rmse for row in rows],
                [names.index(row.table) for row in rows],
                linestyle="none",
                color=color,
                marker=marker,
                markersize=size,
                markeredgewidth=2.2 if marker == "|" else 0.6,
                markeredgecolor=color if marker == "|" else "white",
                label="hubermean, defaults only" if contestant == OURS else contestant,
            )
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(numticks=8))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        axis.set_title(f"per {per}")
        axis.grid(axis="y", visible=False)
        axis.set_ylim(-0.7, len(names) - 0.3)
    marks = {fact.name: "" if fact.judged else " *" for fact in results.facts}
    axes[0].set_yticks(range(len(names)), [name + marks[name] for name in names], fontsize=9.5)
    figure.supxlabel(
        "Error of a group mean (RMSE, median over groups of at least 200 users; epsilon = 1, "
        f"delta = {delta_text(delta)})",
        fontsize=10.5,
    )
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], loc="outside upper center", ncols=4, frameon=False, fontsize=9.5
    )
    return figure
