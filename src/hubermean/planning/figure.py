"""The figures of plans: predicted errors against the number of users, of a release and of a group."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from hubermean.mechanisms.registry import REGISTRY
from hubermean.planning.words import format_title
from hubermean.types.figure import new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hubermean.planning.group_plan import GroupPlan
    from hubermean.planning.plan import Plan

_BLUE = "#1d5ea8"
_POINTS_PER_DECADE = 5
_DECADES = 1.5  # on either side of the planned number of users
_FEWEST, _MOST = 10, 10**12
_HIGHEST = 100.0  # times the non-private error; beyond, a release is of no use


def draw_plan(plan: Plan, path: str | Path | None) -> Figure:
    """Draw a plan, and write it to `path` if one is given.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    drawn = new_figure(7.2, 4.6)
    axes = drawn.add_subplot()
    _draw_lines(axes, plan)
    _draw_axes(axes, plan)
    write_figure(drawn, path)
    return drawn


def draw_group_plan(plan: GroupPlan, path: str | Path | None) -> Figure:
    """Draw the error of a group over its number of users, and write it to `path` if one is given.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    drawn = new_figure(7.2, 4.2)
    axes = drawn.add_subplot()
    users = [row.users for row in plan.rows]
    axes.plot(users, [row.error for row in plan.rows], color=_BLUE, linewidth=2.2, label="predicted error")
    sampling = [row.error / row.over_non_private for row in plan.rows]
    axes.plot(users, sampling, color="#777777", linewidth=1.4, linestyle=(0, (4, 3)), label="without privacy")
    axes.plot(
        [plan.average.users], [plan.average.error], "o", color=_BLUE, markersize=7, label="average group"
    )
    if plan.users_for_a_group is not None:
        rarely = max(plan.users_for_a_group, users[0])
        axes.axvspan(users[0], rarely, color="#777777", alpha=0.15, linewidth=0, label="seldom appears")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(users[0], users[-1])
    axes.set_xlabel("users of a group")
    axes.set_ylabel("error of its mean")
    axes.set_title(textwrap.fill(plan.title, 80), loc="left", fontsize="small")
    _clean_scales(axes)
    axes.legend(frameon=False, loc="upper right")
    write_figure(drawn, path)
    return drawn


def _clean_scales(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.6g}"))
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _users_around(n_users: int) -> list[int]:
    steps = round(_DECADES * _POINTS_PER_DECADE)
    around = (round(n_users * 10.0 ** (step / _POINTS_PER_DECADE)) for step in range(-steps, steps + 1))
    return sorted({users for users in around if _FEWEST <= users <= _MOST} | {n_users})


def _draw_lines(axes: Axes, plan: Plan) -> None:
    """A line per mechanism that can serve somewhere, and a dot on each at the planned number of users."""
    plans = [
        plan if users == plan.setting.n_users else plan.at(users)
        for users in _users_around(plan.setting.n_users)
    ]
    for name, entry in REGISTRY.items():
        found = [
            (one.setting.n_users, row.over_non_private)
            for one in plans
            for row in one.rows
            if row.mechanism == name
        ]
        points = [(users, error) for users, error in found if math.isfinite(error)]
        if not points:
            continue
        best = plan.best is not None and plan.best.mechanism == name
        axes.plot(
            *zip(*points, strict=True),
            color=entry.color,
            linestyle=entry.dashes,
            linewidth=2.6 if best else 1.6,
            label=f"{name} (chosen by auto)" if best else name,
            zorder=3 if best else 2,
        )
        for users, error in points:
            if users == plan.setting.n_users and error <= _HIGHEST:
                axes.plot([users], [error], "o", color=entry.color, markersize=7 if best else 4.5, zorder=4)


def _draw_axes(axes: Axes, plan: Plan) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    setting = plan.setting
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.95, _HIGHEST)
    axes.axhline(1.0, color="#777777", linewidth=0.8)
    axes.axvline(setting.n_users, color="#777777", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlabel("number of users")
    axes.set_ylabel("predicted error, times the non-private one")
    axes.set_title(format_title(plan), loc="left", fontsize="medium")
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda users, _: f"{users:,.0f}"))
    axes.yaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda error, _: f"{error:g}x"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="upper right")
