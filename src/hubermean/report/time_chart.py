"""Values over time as a line with a band of intervals, as SVG.

The line and the band are stretched to the width of the page; dots and text keep their shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hubermean.report.chart import Ends, Point
from hubermean.report.document import safe, tag
from hubermean.types.axis import Axis

_HEIGHT, _AXIS = 220, 30
_LEFT, _RIGHT = 11.0, 3.0  # percent of the width
_MOST_NAMES = 6  # below the chart, and on a phone half of them
_SCALE = 1000.0  # of the stretched drawing
_MOST_DOTS = 120


def time_chart(points: Sequence[Point], times: Sequence[float], *, name: str, title: str, ends: Ends) -> str:
    """Return a chart of points in time order; those without a value are left out of the line.

    Args:
        points: the values with their intervals.
        times: one per point; distances along the chart are those in time.
        name: unique on the page.
        title: the chart in words.
        ends: of the axis; what is not on it is cut off.
    """
    axis = Axis.covering(ends)
    begin, span = min(times), (max(times) - min(times)) or 1.0
    ordered = sorted(zip(times, points, strict=True), key=lambda pair: pair[0])
    placed = [((time - begin) / span, point) for time, point in ordered]
    drawn = [(at, point) for at, point in placed if point.value is not None]

    def down(value: float) -> float:
        return _HEIGHT * (1.0 - axis.position(value) / 100.0)

    def along(at: float) -> str:
        return f"{_LEFT + (100.0 - _LEFT - _RIGHT) * at:.3f}%"

    stretched = []
    if drawn and all(point.wide is not None for _, point in drawn):
        low = [(at, down(point.wide[0])) for at, point in drawn if point.wide is not None]
        high = [(at, down(point.wide[1])) for at, point in drawn if point.wide is not None]
        stretched.append(tag("polygon", points=_path([*high, *reversed(low)]), class_="over-time"))
    line = [(at, down(point.value)) for at, point in drawn if point.value is not None]
    stretched.append(tag("polyline", points=_path(line), class_="line", vector_effect="non-scaling-stroke"))
    marks = []
    for at, point in placed:
        if point.value is None or not axis.holds(point.value):
            continue
        radius = 3.5 if len(drawn) <= _MOST_DOTS else 1.5
        dot = tag("circle", cx=along(at), cy=down(point.value), r=radius, class_="dot")
        marks.append(tag("g", tag("title", safe(point.text)), dot))
    content = [
        *_grid(axis, down),
        tag(
            "svg",
            *stretched,
            x=f"{_LEFT}%",
            y=0,
            width=f"{100.0 - _LEFT - _RIGHT}%",
            height=_HEIGHT,
            viewBox=f"0 0 {_SCALE:g} {_HEIGHT}",
            preserveAspectRatio="none",
        ),
        *marks,
        *_names(placed, along),
    ]
    return tag(
        "svg",
        tag("title", safe(title), id=f"{name}-title"),
        tag("desc", safe("; ".join(point.text for _, point in placed)), id=f"{name}-desc"),
        *content,
        width="100%",
        height=_HEIGHT + _AXIS,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_="chart time",
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_SCALE * x:.2f},{y:.2f}" for x, y in points)


def _grid(axis: Axis, down: Callable[[float], float]) -> list[str]:
    """Return lines at the ticks, each with its number above its beginning."""
    lines = []
    for tick in axis.ticks:
        y = down(float(tick.value))
        lines.append(
            tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="zero" if tick.value == 0 else "grid")
        )
        lines.append(tag("text", safe(tick.label), x="0%", y=y - 4, class_="tick"))
    return lines


def _names(placed: Sequence[tuple[float, Point]], along: Callable[[float], str]) -> list[str]:
    """Return names of some points below the chart."""
    every = math.ceil((len(placed) - 1) / (_MOST_NAMES - 1)) or 1
    names = []
    for number in range(0, len(placed), every):
        at, point = placed[number]
        end = at > 1.0 - 0.5 / _MOST_NAMES
        names.append(
            tag(
                "text",
                safe(point.name),
                x=along(at),
                y=_HEIGHT + 20,
                text_anchor="end" if end else "middle",
                class_="tick spare" if number // every % 2 else "tick",
            )
        )
        tick = tag("line", x1=along(at), x2=along(at), y1=_HEIGHT, y2=_HEIGHT + 5, class_="base")
        names.append(tick)
    return [tag("line", x1="0%", x2="100%", y1=_HEIGHT, y2=_HEIGHT, class_="base"), *names]
