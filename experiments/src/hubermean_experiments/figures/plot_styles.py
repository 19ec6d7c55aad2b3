"""The style and label of each method in the plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cache
from typing import TYPE_CHECKING, Any

from hubermean.accounting.gaussian import gaussian_delta
from hubermean_experiments.figures.methods import NON_PRIVATE
from hubermean_experiments.figures.panels import DELTA, EPSILON, Panel
from hubermean_experiments.paper.constants import printed_constants

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

THEOREM = "theorem"
AS_PRINTED, LOCAL_NOISE = "HLM as printed", "HLM, local noise"

LOOK: dict[Any, Any] = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "path",  # the same appearance on every machine
    "svg.hashsalt": "hubermean",  # reproducible names inside the file
}
"""Settings of matplotlib, so that a user's own settings do not change a figure."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """The style of one curve: Okabe and Ito's color-blind safe colors, with dashes and markers for print.

    Variants of one method share a color; the second has a small hollow marker, so that the first remains visible.
    Curves that nobody can use in practice are gray or black: non-private mean, right bounds, slope of a theorem.
    """

    color: str
    dashes: tuple[float, ...] = ()
    marker: str = ""
    size: float = 5.5
    hollow: bool = False
    width: float = 1.3
    label: str

    @property
    def drawn(self) -> dict[str, Any]:
        """Arguments of a line."""
        return {
            "color": self.color,
            "linestyle": (0, self.dashes) if self.dashes else "solid",
            "linewidth": self.width,
            "marker": self.marker or None,
            "markersize": self.size,
            "markerfacecolor": "white" if self.hollow else self.color,
            "markeredgecolor": self.color,
            "markeredgewidth": 1.1,
        }


STYLES: Mapping[str, Style] = {
    AS_PRINTED: Style(color="#D55E00", marker="o", label=AS_PRINTED),
    LOCAL_NOISE: Style(
        color="#D55E00",
        dashes=(1, 1.5),
        marker="o",
        size=4.0,
        hollow=True,
        label=f"{LOCAL_NOISE}: not private",
    ),
    "WME as printed": Style(color="#CC79A7", marker="s", label="WME as printed"),
    "winsorized": Style(
        color="#CC79A7",
        dashes=(4, 1.5),
        marker="s",
        size=3.5,
        hollow=True,
        label="winsorized: WME, tighter budget split",
    ),
    "smooth-sensitivity": Style(
        color="#E69F00",
        dashes=(6, 1.5, 1, 1.5),
        marker="d",
        label="smooth-sensitivity: the paper's framework, proved",
    ),
    "inverse-sensitivity": Style(color="#0072B2", marker="P", label="inverse-sensitivity (hubermean)"),
    "propose-test-release": Style(
        color="#009E73", dashes=(6, 1.5), marker="X", label="propose-test-release (hubermean)"
    ),
    "auto": Style(color="#56B4E9", marker="D", size=4.2, label="auto: given only ε and δ"),
    "auto, counts private": Style(
        color="#56B4E9",
        dashes=(2.5, 1.5),
        marker="D",
        size=3.4,
        hollow=True,
        label="auto, private counts",
    ),
    "clipped, right bounds": Style(
        color="#777777", dashes=(2, 2), marker="x", size=4.5, label="clipped, right bounds: an oracle"
    ),
    NON_PRIVATE: Style(color="#000000", label="non-private mean"),
    THEOREM: Style(
        color="#999999", width=0.9, label="slope of the panel's theorem; its height has no meaning"
    ),
}
"""Styles by method, in the order of legends."""


def legend_entries(names: Iterable[str], panels: Iterable[Panel]) -> Iterator[Line2D]:
    """A legend line for each name that is drawn in the panels."""
    from matplotlib.lines import Line2D

    shown, wanted = list(panels), set(names)
    for name, style in STYLES.items():
        if name in wanted:
            yield Line2D([], [], label=_label(name, shown), **style.drawn)


def _label(name: str, panels: list[Panel]) -> str:
    theorems = {panel.theorem for panel in panels}
    if name == AS_PRINTED:
        return f"{name} (claims δ = {format_rounded(DELTA)}, {real_delta(panels)})"
    if name == THEOREM and len(theorems) == 1:
        return f"slope of Thm {theorems.pop()}; its height has no meaning"
    return STYLES[name].label


def real_delta(panels: Iterable[Panel]) -> str:
    """The delta that the printed constants give, in place of the claimed one, as text.

    For unequal users the printed sensitivity is too small as well, so this is only a lower bound.

    >>> from hubermean_experiments.figures.panels import PANELS
    >>> real_delta([PANELS["1a"]]), real_delta([PANELS["2a"]]), real_delta([PANELS["1a"], PANELS["1d"]])
    ('actually 1.3e-3', 'actually at least 1.2e-3', 'actually 1.3e-3 for d = 1, 1.5e-12 for d = 3')
    """
    shown = list(panels)
    at_least = any(panel.axis == "gamma" for panel in shown)
    found = {
        columns: format_rounded(_delta(columns), ROUND_FLOOR if at_least else ROUND_CEILING)
        for columns in sorted({panel.columns for panel in shown})
    }
    texts = (f"{text} for d = {columns}" if len(found) > 1 else text for columns, text in found.items())
    return "actually " + ("at least " if at_least else "") + ", ".join(texts)


def format_rounded(value: float, rounding: str = ROUND_CEILING) -> str:
    """Format a number with at most two digits, rounded in the given direction.

    >>> format_rounded(1e-5), format_rounded(0.00127872), format_rounded(0.00127872, ROUND_FLOOR)
    ('1e-5', '1.3e-3', '1.2e-3')
    """
    rounded = float(Context(prec=2, rounding=rounding).create_decimal(repr(value)))
    digits, power = f"{rounded:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


@cache
def _delta(columns: int) -> float:
    printed = printed_constants(EPSILON, DELTA, dimension=columns)
    return gaussian_delta(EPSILON, alpha=printed.alpha, beta=printed.beta, dimension=columns)
