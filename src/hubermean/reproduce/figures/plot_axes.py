"""One pair of axes: all methods of a panel in one setting with one number of users, in double logarithms.

Some methods are millions of times worse than others. A frame that held them would press all others into one line, so
that what is far above is marked in a strip at the top instead, where it is, method by method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubermean.reproduce.figures.curves import Curve, theorem_curve
from hubermean.reproduce.figures.methods import NON_PRIVATE
from hubermean.reproduce.figures.panels import Axis, Panel
from hubermean.reproduce.figures.plot_styles import AS_PRINTED, LOCAL_NOISE, STYLES, THEOREM
from hubermean.reproduce.figures.point import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

HIGHEST = 300.0
"""Times the largest non-private error; a frame holds everything up to here."""

_ROOM = 1.5  # between the outermost points and the limits, as a factor
_ABOVE_HLM = 2.0  # where the slope of a theorem is drawn, times HLM's error
_SMALL = 0.75  # of markers
_MOST_MINOR = 3  # decades; more have ticks enough
_TICKS: dict[Axis, tuple[int, ...]] = {"records": (1, 10, 100, 1_000, 10_000), "gamma": (1, 2, 3, 5, 10)}
_AXIS_LABELS: dict[Axis, str] = {"records": "records per user, m", "gamma": "degree of imbalance, γ"}


@dataclass(frozen=True, kw_only=True)
class View:
    """What one pair of axes shows.

    Attributes:
        level: the non-private mean's error, by formula.
        slope: the theorem's curve, moved to lie a little above HLM's.
        curves: of the methods that serve somewhere.
        refused: the methods that do not serve everywhere.
    """

    panel: Panel
    level: Curve
    slope: Curve
    curves: tuple[Curve, ...]
    refused: frozenset[str]

    @classmethod
    def of(
        cls, panel: Panel, rows: Iterable[Row], *, setting: str, users: int, moment_order: float
    ) -> View | None:
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
            slope=_moved(theorem_curve(panel, users, level.x, moment_order=moment_order), curves, level),
            curves=curves,
            refused=frozenset(row.method for row in own if row.mse is None),
        )

    @property
    def names(self) -> set[str]:
        """Of everything that is drawn."""
        return {NON_PRIVATE, THEOREM, *(curve.method for curve in self.curves)}


def _place(method: str) -> int:
    return list(STYLES).index(method)


def _moved(slope: Curve, curves: Sequence[Curve], level: Curve) -> Curve:
    """Above HLM as printed, or with local noise where the former is off the frame."""
    by_name = {curve.method: curve for curve in curves}
    candidates = (by_name[name] for name in (AS_PRINTED, LOCAL_NOISE) if name in by_name)
    most = HIGHEST * max(level.mse)
    beside = next((curve for curve in candidates if max(curve.mse) <= most), level)
    factor = _ABOVE_HLM * beside.over(slope).value
    return replace(slope, mse=tuple(factor * height for height in slope.mse))


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The vertical limits that views share, and how many methods go above them in any one view."""

    bottom: float
    top: float
    above: int

    @classmethod
    def of(cls, views: Sequence[View]) -> Frame:
        most = HIGHEST * max(max(view.level.mse) for view in views)
        curves = [curve for view in views for curve in (view.level, *view.curves)]
        errors = sorted(mse for curve in curves for mse in curve.mse if mse > 0.0)
        highest = max(mse for mse in errors if mse <= most)
        for mse in errors:  # what is hardly higher stays too, so that no marker lies on the edge
            if highest < mse <= highest * _ROOM:
                highest = mse
        top = highest * _ROOM
        above = max(sum(max(curve.mse) > top for curve in view.curves) for view in views)
        return cls(bottom=errors[0] / _ROOM, top=top, above=above)


def draw(axes: Axes, view: View, frame: Frame, *, small: bool) -> None:
    """Draw a view; small axes have small markers, and no numbers beside the strip."""
    strip = 0.08 if small else 0.06  # the height of one method's row
    share = 1.0 - strip * frame.above  # of the height that is left for the frame itself
    reach = math.log(frame.top / frame.bottom) / share
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(frame.bottom, frame.bottom * math.exp(reach))
    _ticks(axes, view, frame)
    window = _window(axes, share)
    for curve in (view.slope, view.level):
        drawn = STYLES[curve.method].drawn
        axes.plot(curve.x, curve.mse, zorder=2, **drawn)[0].set_clip_path(window)
    for curve in view.curves:
        _points(axes, curve, frame, window, small=small)
    if frame.above:
        axes.axhspan(frame.top, frame.bottom * math.exp(reach), color="#f1f1f1", zorder=0)
        axes.axhline(frame.top, color="#bbbbbb", linewidth=0.8, zorder=1)
    gone = [curve for curve in view.curves if max(curve.mse) > frame.top]
    for number, curve in enumerate(gone):
        _carets(axes, curve, frame, height=1.0 - strip * (number + 0.5), small=small)


def _points(axes: Axes, curve: Curve, frame: Frame, window: Rectangle, *, small: bool) -> None:
    """The curve up to the edge of the frame; markers and bars only for the points within."""
    inside = [place for place, mse in enumerate(curve.mse) if mse <= frame.top]
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
    """The frame below the strip; a little wider than the axes, so that no marker at the side is cut."""
    from matplotlib.patches import Rectangle

    return Rectangle((-0.05, 0.0), 1.1, share, transform=axes.transAxes)


def _carets(axes: Axes, curve: Curve, frame: Frame, *, height: float, small: bool) -> None:
    """Where a method is above the frame, and at the side how many times the non-private error it reaches."""
    style = STYLES[curve.method]
    gone = [
        (x, ratio) for x, mse, ratio in zip(curve.x, curve.mse, curve.ratios, strict=True) if mse > frame.top
    ]
    axes.plot(
        [x for x, _ in gone],
        [height] * len(gone),
        linestyle="none",
        marker="^",
        markersize=5.5 * (_SMALL if small else 1.0),
        markerfacecolor="white" if style.hollow else style.colour,
        markeredgecolor=style.colour,
        transform=axes.get_xaxis_transform(),
        zorder=4,
        clip_on=False,
    )
    if not small:
        axes.annotate(
            _times(max(ratio for _, ratio in gone)),
            (1.0, height),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            fontsize="small",
            color="#333333",
            va="center",
        )


def _times(ratio: float) -> str:
    """A factor in one digit."""
    digits, power = f"{ratio:.0e}".split("e")
    if int(power) < 4:
        return f"{float(f'{ratio:.0e}'):,.0f}×"
    return _power_of_ten(int(digits), int(power)) + "×"


def _power_of_ten(digit: int, power: int) -> str:
    return f"$10^{{{power}}}$" if digit == 1 else f"${digit}\\cdot10^{{{power}}}$"


def _ticks(axes: Axes, view: View, frame: Frame) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    first, last = view.level.x[0], view.level.x[-1]
    pad = max((last / first) ** 0.04, 1.05)
    axes.set_xlim(first / pad, last * pad)
    axes.xaxis.set_major_locator(FixedLocator([x for x in _TICKS[view.panel.axis] if first <= x <= last]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(_AXIS_LABELS[view.panel.axis])
    powers = range(math.floor(math.log10(frame.bottom)), math.ceil(math.log10(frame.top)) + 1)
    ticks = [(digit, power) for power in powers for digit in range(1, 10)]
    inside = [one for one in ticks if frame.bottom <= one[0] * 10.0 ** one[1] <= frame.top]
    decades = [one for one in inside if one[0] == 1]
    labelled = decades if len(decades) > 1 else [one for one in inside if one[0] in (1, 2, 5)]
    axes.set_yticks(
        [digit * 10.0**power for digit, power in labelled],
        [_power_of_ten(digit, power) for digit, power in labelled],
    )
    fine = [digit * 10.0**power for digit, power in inside] if len(decades) <= _MOST_MINOR else []
    axes.yaxis.set_minor_locator(FixedLocator(fine))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="major", color="#e4e4e4", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
