"""Dots and intervals on an axis, as SVG.

Lengths along the axis are percentages and heights are pixels, so that a chart fills whatever width it is shown in while
its text keeps its size. Colors come from the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hubermean.report.document import safe, tag
from hubermean.types.axis import Axis

Ends = tuple[float, float]

_ROW = 24
_STRIP = 44
_AXIS = 30
_LABELS = 26.0  # percent of the width, for the names of rows
_DOT = 5.0
_HALF_CHARACTER = 0.9  # percent of the width of a chart, about, on a phone
_LONGEST_LABEL = 26
_COLORS = 8  # of the style sheet
_NARROWEST = 40  # an axis may be this many times as wide as an interval that is to be visible


@dataclass(frozen=True, kw_only=True)
class Point:
    """A row of a chart: a value with a wide and a narrow interval, each optional, or only a name.

    `text` is the row in words, for tooltips and screen readers; `missing` is shown where there is no value.
    """

    name: str
    text: str
    value: float | None = None
    wide: Ends | None = None
    narrow: Ends | None = None
    missing: str = "not released"

    def numbers(self) -> list[float]:
        value = [] if self.value is None else [self.value]
        return [*value, *(self.wide or ()), *(self.narrow or ())]


def comparable(points: Sequence[Point]) -> bool:
    """Whether all intervals would be visible on one axis; true without intervals."""
    shown = [number for point in points for number in point.numbers()]
    if not all(map(math.isfinite, shown)):
        return False
    numbers = [Fraction(number) for number in shown]
    widths = [Fraction(point.wide[1]) - Fraction(point.wide[0]) for point in points if point.wide is not None]
    return not widths or min(widths) * _NARROWEST >= max(numbers) - min(numbers)


def strip(point: Point, *, name: str, title: str) -> str:
    """Return a chart of one interval on its own axis. `name` is unique on the page."""
    axis = Axis.covering(point.numbers())
    content = [*_draw_grid(axis, _STRIP), _draw_point(point, axis, _STRIP / 2, thick=10)]
    return _svg(content, height=_STRIP + _AXIS, name=name, title=title, description=point.text)


def forest(points: Sequence[Point], *, name: str, title: str, ends: Ends | None = None) -> str:
    """Return a chart with one row per point, in the order given, on a common axis.

    The axis reaches from one of `ends` to the other, and covers all numbers if there are none. What is not on it is cut
    off.
    """
    axis = Axis.covering(ends or [number for point in points for number in point.numbers()])
    height = _ROW * len(points)
    # Every second row is shaded; the bands lie beneath the grid, the grid beneath the marks.
    bands = [_draw_band(number) for number in range(1, len(points), 2)]
    names, marks = [], []
    for number, point in enumerate(points):
        middle = _ROW * (number + 0.5)
        words = tag("text", safe(_shorten(point.name)), x=0, y=middle, dy="0.35em", class_="name")
        names.append(tag("g", tag("title", safe(point.text)), words))
        if point.value is None:
            words = tag("text", safe(point.missing), x="1%", y=middle, dy="0.35em", class_="missing")
            marks.append(tag("g", tag("title", safe(point.text)), words))
        else:
            marks.append(_draw_point(point, axis, middle, thick=7))
    content = [
        *bands,
        tag("svg", *names, x=6, y=0, width=f"{_LABELS - 1.5}%", height=height),
        tag(
            "svg",
            *_draw_grid(axis, height),
            *marks,
            x=f"{_LABELS}%",
            y=0,
            width=f"{100 - _LABELS}%",
            height=height + _AXIS,
            class_="plot",
        ),
    ]
    description = "; ".join(point.text for point in points)
    return _svg(
        content, height=height + _AXIS, name=name, title=title, description=description, kind="chart forest"
    )


def color_class(number: int) -> str:
    """Return the style class of a color, by number."""
    return f"part{number % _COLORS}"


def bar(shares: Sequence[tuple[str, float, int]], *, name: str, title: str) -> str:
    """Return a stacked bar; each share has a name, a size from 0 to 1 and the number of its color."""
    parts, start = [], 0.0
    for text, share, color in shares:
        width = 100.0 * max(min(share, 1.0 - start), 0.0)
        box = tag(
            "rect",
            tag("title", safe(text)),
            x=f"{100.0 * start:.3f}%",
            y=0,
            width=f"{width:.3f}%",
            height=22,
            class_=color_class(color),
        )
        parts.append(box)
        start += width / 100.0
    description = "; ".join(text for text, _, _ in shares)
    return _svg(parts, height=22, name=name, title=title, description=description, kind="bar")


def _svg(
    content: Sequence[str], *, height: int, name: str, title: str, description: str, kind: str = "chart"
) -> str:
    return tag(
        "svg",
        tag("title", safe(title), id=f"{name}-title"),
        tag("desc", safe(description), id=f"{name}-desc"),
        *content,
        width="100%",
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_=kind,
    )


def _draw_grid(axis: Axis, height: float) -> list[str]:
    """Return lines at the ticks and at zero, with labels below."""
    lines = []
    for tick in axis.ticks:
        position = axis.position(tick.value)
        along = f"{position:.3f}%"
        lines.append(tag("line", x1=along, x2=along, y1=0, y2=height + 5, class_="grid"))
        lines.append(
            tag(
                "text",
                safe(tick.label),
                x=along,
                y=height + 20,
                text_anchor=_anchor(position, tick.label),
                class_="tick spare" if tick.spare else "tick",
            )
        )
    if axis.zero is not None:
        along = f"{axis.zero:.3f}%"
        lines.append(tag("line", x1=along, x2=along, y1=0, y2=height, class_="zero"))
    lines.append(tag("line", x1="0%", x2="100%", y1=height, y2=height, class_="base"))
    return lines


def _anchor(position: float, label: str) -> str:
    """Labels stay within the chart: near an end they begin or end at their tick."""
    room = _HALF_CHARACTER * len(label)
    return "start" if position < room else "end" if position > 100.0 - room else "middle"


def _draw_point(point: Point, axis: Axis, middle: float, *, thick: int) -> str:
    marks = [tag("title", safe(point.text))]
    if point.wide is not None:
        low, high = (f"{axis.position(end):.3f}%" for end in point.wide)
        marks.append(tag("line", x1=low, x2=high, y1=middle, y2=middle, class_="wide"))
        for end in (at for at, number in zip((low, high), point.wide, strict=True) if axis.holds(number)):
            marks.append(tag("line", x1=end, x2=end, y1=middle - 5, y2=middle + 5, class_="wide"))
    if point.narrow is not None and axis.holds(point.narrow[0]) and axis.holds(point.narrow[1]):
        start, stop = map(axis.position, point.narrow)
        marks.append(
            tag(
                "rect",
                x=f"{start:.3f}%",
                y=middle - thick / 2,
                width=f"{max(stop - start, 0.0):.3f}%",
                height=thick,
                rx=thick / 2,
                class_="narrow",
            )
        )
    if point.value is not None and axis.holds(point.value):
        marks.append(tag("circle", cx=f"{axis.position(point.value):.3f}%", cy=middle, r=_DOT, class_="dot"))
    return tag("g", *marks)


def _draw_band(number: int) -> str:
    return tag("rect", x=0, y=_ROW * number, width="100%", height=_ROW, class_="band")


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"
