"""How the figures of docs/evidence/gallery.md look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from common.figures import BLUE, DARK_ORANGE, GREEN, GREY, ORANGE, RED, STYLE, save

if TYPE_CHECKING:
    from accuracy.gallery import Cloud, TwoLaws
    from hubermean import Plan

LABEL = {"fontsize": 9.5, "fontweight": "bold"}


def draw_clouds(clouds: Sequence[Cloud], path: Path) -> None:
    """Each release a dot, by epsilon, beside the plain mean."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(clouds), figsize=(10.0, 4.2), layout="constrained")
        for axis, cloud in zip(axes, clouds, strict=True):
            for position, values in enumerate(cloud.releases.values()):
                axis.plot(
                    _spread(position, len(values)), values, "o", color=BLUE, alpha=0.45, markersize=4, mew=0
                )
            axis.axhline(cloud.plain, color=RED, linewidth=1.4)
            axis.text(-0.4, cloud.plain, "plain mean", color=RED, va="bottom", **LABEL)
            axis.set_title(cloud.title)
            axis.set_xticks(range(len(cloud.releases)), list(cloud.releases))
            axis.set_xlim(-0.5, len(cloud.releases) - 0.5)
            axis.set_xlabel("epsilon")
            axis.grid(visible=False, axis="x")
            axis.yaxis.set_major_formatter(FuncFormatter(_millions))
        axes[0].set_ylabel("released salary, dollars")
        save(figure, path)


def draw_given_bounds(cloud: Cloud, path: Path) -> None:
    """How far releases are off, by what was given, on a logarithmic scale."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.0, 3.6), layout="constrained")
        names = list(cloud.releases)
        for position, name in enumerate(names):
            off = np.abs(np.array(cloud.releases[name]) - cloud.plain)
            axis.plot(off, _spread(position, len(off)), "o", color=BLUE, alpha=0.45, markersize=4, mew=0)
            axis.plot([np.median(off)] * 2, [position - 0.38, position + 0.38], color=RED, linewidth=2.2)
        axis.text(
            np.median(np.abs(np.array(cloud.releases[names[0]]) - cloud.plain)) * 1.25,
            -0.42,
            "median",
            color=RED,
            va="center",
            **LABEL,
        )
        axis.set_xscale("log")
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_yticks(range(len(names)), names)
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("distance of the release from the plain mean of player means, dollars")
        axis.set_title("Bounds that were given, epsilon = 1")
        axis.xaxis.set_major_formatter(FuncFormatter(lambda dollars, _: f"{dollars:,.0f}"))
        axis.xaxis.set_minor_locator(NullLocator())
        save(figure, path)


def draw_neighbors(laws: TwoLaws, path: Path) -> None:
    """Two densities, and below them the privacy loss between its limits."""
    with plt.rc_context(STYLE):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(8.0, 5.2), sharex=True, height_ratios=[2, 1], layout="constrained"
        )
        above.plot(laws.points, laws.densities[0], color=BLUE)
        above.plot(laws.points, laws.densities[1], color=ORANGE, linestyle=(0, (5, 1.5)))
        peak = float(laws.densities[0].max())
        above.text(47.3, 0.72 * peak, "one user at 20", color=BLUE, ha="right", **LABEL)
        above.text(51.0, 0.72 * peak, "the same user at 1,000,000", color=DARK_ORANGE, ha="left", **LABEL)
        above.set_ylabel("density of the release")
        above.set_title("What 100 users release, and what they release if one of them changes")
        below.plot(laws.points, laws.loss, color=GREY)
        for limit in (-laws.epsilon, laws.epsilon):
            below.axhline(limit, color=RED, linewidth=1.4, linestyle="--")
        below.text(43.1, laws.epsilon, "epsilon", color=RED, va="bottom", **LABEL)
        below.text(43.1, -1.1 * laws.epsilon, "-epsilon", color=RED, va="top", **LABEL)
        below.set_ylim(-1.65 * laws.epsilon, 1.65 * laws.epsilon)
        below.set_ylabel("log-ratio")
        below.set_xlabel("released mean")
        below.set_xlim(laws.points[0], laws.points[-1])
        save(figure, path)


def draw_deltas(claimed: NDArray[np.float64], found: Mapping[int, Sequence[float]], path: Path) -> None:
    """Claimed against true delta; above the diagonal a guarantee is broken."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(7.0, 4.6), layout="constrained")
        looks = zip(found.items(), (RED, BLUE, GREEN), strict=True)
        for (dimension, deltas), color in looks:
            axis.plot(claimed, deltas, color=color)
            name = "1 column" if dimension == 1 else f"{dimension} columns"
            axis.text(claimed[-1] * 1.25, deltas[-1], name, color=color, va="center", **LABEL)
        axis.plot(claimed, claimed, color=GREY, linestyle="--")
        axis.text(claimed[-1] * 1.25, claimed[-1], "as claimed", color=GREY, va="center", **LABEL)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="delta that the paper claims",
            ylabel="delta that its constants give",
        )
        axis.set_ylim(1e-18, 1.0)
        axis.set_title("The paper's printed constants, epsilon = 1")
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_minor_locator(NullLocator())
        axis.yaxis.set_major_locator(LogLocator(base=10.0, numticks=8))
        axis.spines["right"].set_visible(False)
        axis.set_xlim(claimed[0], claimed[-1] * 8)
        axis.xaxis.set_major_locator(FixedLocator([1e-9, 1e-7, 1e-5, 1e-3]))
        save(figure, path)


def draw_appearing(sizes: Sequence[int], chances: Mapping[str, Sequence[float]], path: Path) -> None:
    """The chance of a group to appear, against its number of users; with its tiny beginnings on a second scale."""
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
        for (name, own), color in zip(chances.items(), (GREEN, BLUE, DARK_ORANGE), strict=True):
            for panel in panels:
                panel.plot(sizes, own, color=color, label=name)
        first, second = panels
        second.set_yscale("log")
        second.axhline(1e-6, color=GREY, linestyle="--")
        second.text(sizes[-1], 1.3e-6, "delta", color=GREY, ha="right", va="bottom", **LABEL)
        second.yaxis.set_minor_locator(NullLocator())
        for panel in panels:
            panel.set_xlabel("users in the group")
        first.set_ylabel("chance to appear")
        figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
        first.set_title("Groups chosen privately, epsilon = 1")
        second.set_title("The same, logarithmic")
        save(figure, path)


def draw_plan(plan: Plan, path: Path) -> None:
    with plt.rc_context({"svg.hashsalt": STYLE["svg.hashsalt"]}):
        save(plan.plot(), path)


def _spread(position: float, count: int) -> NDArray[np.float64]:
    """So many places side by side, always the same and in no order that the eye could follow."""
    return position + 0.56 * (np.arange(count) * 0.618034 % 1.0 - 0.5)


def _millions(dollars: float, _: object) -> str:
    return f"{dollars / 1e6:.2f} million"
