"""One plot: all methods of a panel in one setting with one number of users, in log-log scale.

Some methods are millions of times worse than others. A frame that included them would compress all other
curves into one line, so points far above the frame are marked in a strip at the top, with one row per method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubermean_experiments.figures.curves import Curve, theorem_curve
from hubermean_experiments.figures.methods import NON_PRIVATE
from hubermean_experiments.figures.panels import Axis, Panel
from hubermean_experiments.figures.plot_styles import AS_PRINTED, LOCAL_NOISE, STYLES, THEOREM
from hubermean_experiments.figures.rows import ResultRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

HIGHEST = 300.0
"""The upper end of a frame, as a multiple of the largest non-private error."""

_ROOM = 1.5  # between the outermost points and the limits, as a factor
_ABOVE_HLM = 2.0  # where the slope of a theorem is drawn, times HLM's error
_SMALL = 0.75  # of markers
_MOST_MINOR = 3  # decades; more have ticks enough
_TICKS: dict[Axis, tuple[int, ...]] = {"records": (1, 10, 100, 1_000, 10_000), "gamma": (1, 2, 3, 5, 10)}
_AXIS_LABELS: dict[Axis, str] = {"records": "records per user, m", "gamma": "degree of imbalance, γ"}


@dataclass(frozen=True, kw_only=True)
class PanelView:
    """The contents of one plot.

    Attributes:
        level: the non-private mean's error, by formula.
        slope: the curve of the theorem, shifted to slightly above that of HLM.
        curves: of the methods that release at some point.
        refused: the methods that do not release at some point.
    """

    panel: Panel
    level: Curve
    slope: Curve
    curves: tuple[Curve, ...]
    refused: frozenset[str]

    @classmethod
    def of(
        cls, panel: Panel, rows: Iterable[ResultRow], *, setting: str, users: int, moment_order: float
    ) -> PanelView | None:
        """None where there are no rows."""
        own = sorted(
            (row for row in rows if (row.panel, row.setting, row.users) == (panel.name, setting, users)),
            key=lambda row: row.x,
        )
        if not own:
            return None
        exact = {row.x: replace(row, method=NON_PRIVATE, mse=row.non_private, mse_error=0.0) for row in own}
        level = Curve.of(exact.values(), method=NON_PRIVATE, setting=setting, users=users)
        names = [name for name in dict.fromkeys(row.method for row in own) if name != NON_PRIVATE]
        found = (Curve.of(own, method=name, setting=setting, users=users) for name in names)
        curves = tuple(sorted((curve for curve in found if curve.x), key=lambda curve: _place(curve.method)))
        return cls(
            panel=panel,
            level=level,
            slope=_shift_above(
                theorem_curve(panel, users, level.x, moment_order=moment_order), curves, level
            ),
            curves=curves,
            refused=frozenset(row.method for row in own if row.mse is None),
        )

    @property
    def names(self) -> set[str]:
        """The names of all curves."""
        return {NON_PRIVATE, THEOREM, *(curve.method for curve in self.curves)}


def _place(method: str) -> int:
    return list(STYLES).index(method)


def _shift_above(slope: Curve, curves: Sequence[Curve], level: Curve) -> Curve:
    """Shift the slope above HLM as printed, or above HLM with local noise where the former is off the frame."""
    by_name = {curve.method: curve for curve in curves}
    candidates = (by_name[name] for name in (AS_PRINTED, LOCAL_NOISE) if name in by_name)
    most = HIGHEST * max(level.mse)
    reference = next((curve for curve in candidates if max(curve.mse) <= most), level)
    factor = _ABOVE_HLM * reference.over(slope).value
    return replace(slope, mse=tuple(factor * height for height in slope.mse))


@dataclass(frozen=True, kw_only=True)
class VerticalLimits:
    """The vertical limits that views share, and the largest number of methods above them in one view."""

    bottom: float
    top: float
    above: int

    @classmethod
    def of(cls, views: Sequence[PanelView]) -> VerticalLimits:
        most = HIGHEST * max(max(view.level.mse) for view in views)
        curves = [curve for view in views for curve in (view.level, *view.curves)]
        errors = sorted(mse for curve in curves for mse in curve.mse if mse > 0.0)
        highest = max(mse for mse in errors if mse <= most)
        for mse in errors:  # include slightly higher points, so that no marker is on the edge
            if highest < mse <= highest * _ROOM:
                highest = mse
        top = highest * _ROOM
        above = max(sum(max(curve.mse) > top for curve in view.curves) for view in views)
        return cls(bottom=errors[0] / _ROOM, top=top, above=above)


def draw_view(axes: Axes, view: PanelView, limits: VerticalLimits, *, small: bool) -> None:
    """Draw a view; small axes have small markers and no numbers next to the strip."""
    strip = 0.08 if small else 0.06  # the height of one method's row
    share = 1.0 - strip * limits.above  # of the height that is left for the frame itself
    reach = math.log(limits.top / limits.bottom) / share
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(limits.bottom, limits.bottom * math.exp(reach))
    _ticks(axes, view, limits)
    window = _window(axes, share)
    for curve in (view.slope, view.level):
        drawn = STYLES[curve.method].drawn
        axes.plot(curve.x, curve.mse, zorder=2, **drawn)[0].set_clip_path(window)
    for curve in view.curves:
        _points(axes, curve, limits, window, small=small)
    if limits.above:
        axes.axhspan(limits.top, limits.bottom * math.exp(reach), color="#f1f1f1", zorder=0)
        axes.axhline(limits.top, color="#bbbbbb", linewidth=0.8, zorder=1)
    gone = [curve for curve in view.curves if max(curve.mse) > limits.top]
    for number, curve in enumerate(gone):
        _carets(axes, curve, limits, height=1.0 - strip * (number + 0.5), small=small)


def _points(axes: Axes, curve: Curve, limits: VerticalLimits, window: Rectangle, *, small: bool) -> None:
    """Draw the curve up to the edge of the frame, with markers and bars only for the points inside."""
    inside = [place for place, mse in enumerate(curve.mse) if mse <= limits.top]
    style = STYLES[curve.method]
    look = style.drawn | ({"markersize": _SMALL * style.size, "markeredgewidth": 0.9} if small else {})
    drawn = axes.errorbar(
        curve.x,
        curve.mse,
        yerr=[error if place in inside else math.nan for place, error in enumerate(curve.errors)],
        elinewidth=1.0,
        capsize=1.5 if small else 2.0,
        zorder=3 + 0.01 * _place(curve.method),
        **look,
    )
    line, caps, bars = drawn.lines
    line.set_markevery(inside)
    for artist in (line, *caps, *bars):
        artist.set_clip_path(window)


def _window(axes: Axes, share: float) -> Rectangle:
    """The frame below the strip, slightly wider than the axes, so that no marker at the side is cut."""
    from matplotlib.patches import Rectangle

    return Rectangle((-0.05, 0.0), 1.1, share, transform=axes.transAxes)


def _carets(axes: Axes, curve: Curve, limits: VerticalLimits, *, height: float, small: bool) -> None:
    """Mark where a method is above the frame, with its largest multiple of the non-private error at the side."""
    style = STYLES[curve.method]
    gone = [
        (x, ratio) for x, mse, ratio in zip(curve.x, curve.mse, curve.ratios, strict=True) if mse > limits.top
    ]
    axes.plot(
        [x for x, _ in gone],
        [height] * len(gone),
        linestyle="none",
        marker="^",
        markersize=5.5 * (_SMALL if small else 1.0),
        markerfacecolor="white" if style.hollow else style.color,
        markeredgecolor=style.color,
        transform=axes.get_xaxis_transform(),
        zorder=4,
        clip_on=False,
    )
    if not small:
        axes.annotate(
            _format_factor(max(ratio for _, ratio in gone)),
            (1.0, height),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            fontsize="small",
            color="#333333",
            va="center",
        )


def _format_factor(ratio: float) -> str:
    """Format a factor with one digit."""
    digits, power = f"{ratio:.0e}".split("e")
    if int(power) < 4:
        return f"{float(f'{ratio:.0e}'):,.0f}×"
    return _format_power(int(digits), int(power)) + "×"


def _format_power(digit: int, power: int) -> str:
    return f"$10^{{{power}}}$" if digit == 1 else f"${digit}\\cdot10^{{{power}}}$"


def _ticks(axes: Axes, view: PanelView, limits: VerticalLimits) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    first, last = view.level.x[0], view.level.x[-1]
    pad = max((last / first) ** 0.04, 1.05)
    axes.set_xlim(first / pad, last * pad)
    axes.xaxis.set_major_locator(FixedLocator([x for x in _TICKS[view.panel.axis] if first <= x <= last]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(_AXIS_LABELS[view.panel.axis])
    powers = range(math.floor(math.log10(limits.bottom)), math.ceil(math.log10(limits.top)) + 1)
    ticks = [(digit, power) for power in powers for digit in range(1, 10)]
    inside = [one for one in ticks if limits.bottom <= one[0] * 10.0 ** one[1] <= limits.top]
    decades = [one for one in inside if one[0] == 1]
    labeled = decades if len(decades) > 1 else [one for one in inside if one[0] in (1, 2, 5)]
    axes.set_yticks(
        [digit * 10.0**power for digit, power in labeled],
        [_format_power(digit, power) for digit, power in labeled],
    )
    fine = [digit * 10.0**power for digit, power in inside] if len(decades) <= _MOST_MINOR else []
    axes.yaxis.set_minor_locator(FixedLocator(fine))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="major", color="#e4e4e4", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
