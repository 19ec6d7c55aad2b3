"""The figure of docs/evidence/scaling.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, save

if TYPE_CHECKING:
    from scaling.run import Row

LOOKS = {
    "inverse-sensitivity": (BLUE, "o", "-"),
    "inverse-sensitivity, weights to 50": (BLUE, "v", "--"),
    "propose-test-release": (GREEN, "s", "-"),
    "smooth-sensitivity": (ORANGE, "D", "-"),
    "winsorized": (PURPLE, "^", "-"),
    "numpy's mean": (GREY, "", ":"),
}


def draw(results: Sequence[Row], path: Path) -> None:
    tall = [row for row in results if row.columns == 1 and str(row.users).strip("0") == "1"]
    users = tall[0].users
    wide_users = next((row.users for row in results if str(row.users).strip("0") != "1"), users)
    wide = [row for row in results if row.users == wide_users]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.6), sharey=True, layout="constrained")
        _draw(left, tall, lambda row: row.users, "users", "One column")
        _draw(right, wide, lambda row: row.columns, "columns", f"{wide_users:,} users")
        left.set_ylabel("seconds per release")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize=9.5, loc="outside right center")
        save(figure, path)


def _draw(axis: Axes, rows: Sequence[Row], size: Callable[[Row], int], what: str, title: str) -> None:
    for name, (color, marker, line) in LOOKS.items():
        if name == "numpy's mean":
            best: dict[int, float] = {}
            for row in rows:
                best[size(row)] = min(row.mean_seconds, best.get(size(row), row.mean_seconds))
            points = sorted(best.items())
        else:
            points = sorted((size(row), row.seconds) for row in rows if row.mechanism == name)
        if points:
            axis.plot(*zip(*points, strict=True), color=color, marker=marker, linestyle=line, label=name)
    axis.set(xscale="log", yscale="log", xlabel=what, title=title)
    axis.xaxis.set_major_formatter(FuncFormatter(_plain))
    axis.yaxis.set_major_formatter(FuncFormatter(_plain))
    axis.yaxis.set_major_locator(LogLocator(base=10.0, numticks=12))
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_minor_locator(NullLocator())


def _plain(value: float, _: object) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} million"
    return f"{value:,.0f}" if value >= 1 else f"{value:.6f}".rstrip("0")
