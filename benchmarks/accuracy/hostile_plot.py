"""The figure of docs/evidence/robustness.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from common.figures import BLUE, DARK_ORANGE, GREY, ORANGE, RED, STYLE, save

if TYPE_CHECKING:
    from accuracy.hostile import Panel


def draw(panels: Sequence[Panel], shares: Sequence[float], path: Path) -> None:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(10.0, 4.9), sharey=True, layout="constrained")
        for panel, axis in zip(panels, axes, strict=True):
            _draw_panel(axis, panel, [100 * share for share in shares])
        axes[0].set_ylabel(
            "distance of the answer from the honest\nusers' center, in their standard deviations"
        )
        figure.supxlabel("hostile users, percent of all", fontsize=10.5)
        save(figure, path)


def _draw_panel(axis: Axes, panel: Panel, percent: Sequence[float]) -> None:
    axis.set_yscale("log")
    axis.fill_between(percent, 1e-3, panel.bound, color=BLUE, alpha=0.10, linewidth=0)
    axis.plot(percent[1:], panel.plain[1:], color=RED, marker="s")
    axis.plot(percent, panel.clipped, color=ORANGE, marker="D")
    axis.plot(percent, panel.bound, color=GREY, linestyle="--")
    axis.plot(percent, panel.robust, color=BLUE, marker="o")
    labels = (
        ("plain mean", 1.6e9, RED),
        ("clipped mean, bounds ±10,000", 1.6e4, DARK_ORANGE),
        ("stated bound, noise included (99.9%)", 5.5, GREY),
        (panel.mechanism, 0.13, BLUE),
    )
    for text, height, color in labels:
        axis.text(20.0, height, text, color=color, ha="right", va="center", fontweight="bold", fontsize=9.5)
    axis.set_title(panel.title)
    axis.set_ylim(1e-2, 8e9)
    axis.yaxis.set_major_locator(FixedLocator([10.0**power for power in range(-2, 11, 2)]))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(_plain_number))
    axis.set_xlim(-0.4, 20.6)
    axis.xaxis.set_major_locator(FixedLocator([0, 5, 10, 15, 20]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))


def _plain_number(value: float, _: object) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,.0f} million"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
