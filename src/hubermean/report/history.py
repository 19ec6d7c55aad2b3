"""What is left of a budget over time, as a line of steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from hubermean.report.document import safe, tag
from hubermean.types.formatting import one_sided

_HEIGHT, _AXIS = 120, 28
_MOST_STEPS = 400
"""Steps drawn; of more, the last ones."""


def draw_history(left: Sequence[tuple[str, Decimal]], *, total: Decimal, name: str, title: str) -> str:
    """Return a figure of what was left after each change, or nothing where fewer than two times can be read.

    Args:
        left: times (ISO 8601) and amounts, in order.
        total: the amount at the top of the figure.
        name: unique on the page.
        title: the figure in words.
    """
    read = [(time, amount) for at, amount in left if (time := _read_time(at)) is not None][-_MOST_STEPS:]
    if len(read) < 2 or total <= 0:
        return ""
    begin, end = read[0][0], max(time for time, _ in read)
    span = (end - begin).total_seconds() or 1.0
    points = [
        (100.0 * max((time - begin).total_seconds(), 0.0) / span, _HEIGHT * (1.0 - float(amount / total)))
        for time, amount in read
    ]
    lines = [
        tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid") for y in (0.0, _HEIGHT / 2, float(_HEIGHT))
    ]
    for (x, y), (then, lower) in itertools.pairwise(points):
        lines.append(_line(x, y, then, y))
        lines.append(_line(then, y, then, lower))
    x, y = points[-1]
    lines.append(tag("circle", cx=f"{x:.3f}%", cy=y, r=4.0, class_="dot"))
    ends = ((begin, "0%", "start"), (end, "100%", "end"))
    days = begin.date() != end.date()
    lines += [
        tag(
            "text",
            safe(f"{time:%Y-%m-%d}" if days else f"{time:%Y-%m-%d %H:%M}"),
            x=at,
            y=_HEIGHT + 20,
            text_anchor=anchor,
            class_="tick",
        )
        for time, at, anchor in ends
    ]
    words = f"{one_sided(read[0][1], up=False)} at first, {one_sided(read[-1][1], up=False)} in the end"
    drawn = tag(
        "svg",
        tag("title", safe(title), id=f"{name}-title"),
        tag("desc", safe(words), id=f"{name}-desc"),
        *lines,
        width="100%",
        height=_HEIGHT + _AXIS,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_="chart history",
    )
    return tag(
        "figure", drawn, tag("figcaption", safe(f"{title}; the top line is the total, the lowest is 0."))
    )


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return tag("line", x1=f"{x:.3f}%", x2=f"{to_x:.3f}%", y1=y, y2=to_y, class_="step")


def _read_time(at: str) -> datetime | None:
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        return None
