"""Charts of text: an interval per row of a table, and a line with a band for groups in time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hubermean.errors import printable
from hubermean.types.axis import Axis

_HEIGHT = 7  # lines of a chart over time
_LEAST_APART = 2  # lines between two labels
_CLOSE = 0.5 / _HEIGHT  # within half a line, a label stands for the line
_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The characters of charts and tables."""

    dot: str
    rule: str
    left: str
    right: str
    beyond_left: str
    beyond_right: str
    band: str
    upright: str
    falls: tuple[str, str]
    rises: tuple[str, str]
    tick: str
    ellipsis: str
    bar: str
    arrow: str
    encoding: str = "utf-8"

    def fit(self, text: str) -> str:
        """Return text as the stream shows it, with escapes for letters that it lacks, so that columns are aligned."""
        return text.encode(self.encoding, "backslashreplace").decode(self.encoding)


UNICODE = Marks(
    dot="●",
    rule="─",
    left="├",
    right="┤",
    beyond_left="◂",
    beyond_right="▸",
    band="░",
    upright="│",
    falls=("╮", "╰"),
    rises=("╯", "╭"),
    tick="┤",
    ellipsis="…",
    bar="█",
    arrow="→",
)
ASCII = Marks(
    dot="o",
    rule="-",
    left="|",
    right="|",
    beyond_left="<",
    beyond_right=">",
    band=":",
    upright="|",
    falls=(".", "'"),
    rises=("'", "."),
    tick="|",
    ellipsis="...",
    bar="#",
    arrow=">",
    encoding="ascii",
)


def marks_for(encoding: str | None) -> Marks:
    """Return the characters that a stream can show; those of ASCII where it cannot show all others."""
    shown = "".join("".join(own) for own in vars(UNICODE).values())
    try:
        shown.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return replace(ASCII, encoding=encoding or "ascii")
    except LookupError:
        return ASCII
    return UNICODE


@dataclass(frozen=True, kw_only=True)
class Span:
    """A value and the ends of its interval, on an axis from 0 to 1; None without an interval."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def on(cls, axis: tuple[float, float], value: float, ends: Sequence[float] = ()) -> Span:
        """Place numbers on an axis."""
        placed = [_place(number, axis) for number in (value, *ends)]
        return cls(value=placed[0], low=placed[1] if ends else None, high=placed[2] if ends else None)

    def draw(self, width: int, marks: Marks = UNICODE) -> str:
        """Return the interval as a line of text; an arrow where it reaches beyond the axis.

        >>> Span(value=0.5, low=0.25, high=2.0).draw(9)
        '  ├─●───▸'
        """
        cells = [" "] * width
        if self.low is not None and self.high is not None:
            start, stop = _cell(self.low, width), _cell(self.high, width)
            cells[start : stop + 1] = marks.rule * (stop + 1 - start)
            cells[start] = marks.left if self.low >= 0.0 else marks.beyond_left
            cells[stop] = marks.right if self.high <= 1.0 else marks.beyond_right
        if 0.0 <= self.value <= 1.0:
            cells[_cell(self.value, width)] = marks.dot
        return "".join(cells).rstrip()


@dataclass(frozen=True, kw_only=True)
class TimePoint:
    """A group in time; `value` is None where it was refused, `ends` where it has no interval."""

    name: str
    time: float
    value: float | None
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class TimeChart:
    """Values over time as a line, with their intervals as a band around it."""

    points: tuple[TimePoint, ...]
    axis: tuple[float, float]

    def lines(self, width: int, marks: Marks = UNICODE) -> list[str]:
        """Return the chart: values upward, time to the right."""
        labels = self._labels()
        margin = max(map(len, labels))
        plot = max(width - margin - 2, 10)
        cells = [[" "] * plot for _ in range(_HEIGHT)]
        drawn = [point for point in self._in_time if point.value is not None]
        places = [self._across(point.time, plot) for point in drawn]
        self._draw_band(cells, drawn, places, marks)
        self._draw_line(cells, drawn, places, marks)
        shown = [
            f"{label:>{margin}} {marks.tick if label else marks.upright}{''.join(row)}".rstrip()
            for label, row in zip(labels, cells, strict=True)
        ]
        return [*shown, f"{'':{margin}}  {self._names(plot, marks)}".rstrip()]

    @property
    def _in_time(self) -> list[TimePoint]:
        return sorted(self.points, key=lambda point: point.time)

    def _across(self, time: float, width: int) -> int:
        times = [point.time for point in self.points]
        return _cell((time - min(times)) / ((max(times) - min(times)) or 1.0), width)

    def _down(self, value: float) -> int:
        return _HEIGHT - 1 - _cell(_place(value, self.axis), _HEIGHT)

    def _labels(self) -> list[str]:
        """Return a label for some lines: evenly spaced round numbers, with room between them."""
        ticks = [
            (_HEIGHT - 1 - _cell(place, _HEIGHT), tick.label)
            for tick in Axis.covering(self.axis).ticks
            if -_CLOSE <= (place := _place(float(tick.value), self.axis)) <= 1 + _CLOSE
        ]
        labels = [""] * _HEIGHT
        for every in range(1, len(ticks) + 1):
            lines = [line for line, _ in ticks[::every]]
            if all(lower - upper >= _LEAST_APART for lower, upper in itertools.pairwise(lines)):
                for line, label in ticks[::every]:
                    labels[line] = label
                break
        return labels

    def _draw_band(
        self, cells: list[list[str]], drawn: Sequence[TimePoint], places: Sequence[int], marks: Marks
    ) -> None:
        if any(point.ends is None for point in drawn):
            return
        lows = [point.ends[0] for point in drawn if point.ends is not None]
        highs = [point.ends[1] for point in drawn if point.ends is not None]
        for column, (low, high) in enumerate(
            zip(
                _interpolate(places, lows, len(cells[0])),
                _interpolate(places, highs, len(cells[0])),
                strict=True,
            )
        ):
            if low is not None and high is not None:
                for line in range(self._down(high), self._down(low) + 1):
                    cells[line][column] = marks.band

    def _draw_line(
        self, cells: list[list[str]], drawn: Sequence[TimePoint], places: Sequence[int], marks: Marks
    ) -> None:
        values = [point.value for point in drawn if point.value is not None]
        heights = [
            None if value is None else self._down(value)
            for value in _interpolate(places, values, len(cells[0]))
        ]
        for column, line in enumerate(heights):
            if line is None:
                continue
            before = heights[column - 1] if column else None
            if before is None or before == line:
                cells[line][column] = marks.rule
                continue
            leaves, arrives = marks.falls if line > before else marks.rises
            cells[before][column], cells[line][column] = leaves, arrives
            for between in range(min(before, line) + 1, max(before, line)):
                cells[between][column] = marks.upright
        for place, value in zip(places, values, strict=True):
            cells[self._down(value)][place] = marks.dot

    def _names(self, width: int, marks: Marks) -> str:
        """Return names of groups below their places: the first, the last, and some between."""
        line = [" "] * width
        ordered = self._in_time
        longest = max(len(point.name) for point in ordered)
        every = max(math.ceil(len(ordered) * (longest + 4) / width), 1)
        chosen = [0, len(ordered) - 1, *range(every, len(ordered) - 1, every)]
        free = [True] * width
        for number in chosen:
            name = marks.fit(printable(ordered[number].name))[:width]
            start = self._across(ordered[number].time, width) - len(name) // 2
            start = min(max(start, 0), width - len(name))
            around = slice(max(start - len(_GAP), 0), start + len(name) + len(_GAP))
            if all(free[around]):
                line[start : start + len(name)] = name
                free[start : start + len(name)] = [False] * len(name)
        return "".join(line)


def _place(number: float, axis: tuple[float, float]) -> float:
    """Return where a number lies on an axis from 0 to 1, in halves so that no difference overflows."""
    low, high = axis
    width = high / 2 - low / 2
    return (number / 2 - low / 2) / width if width > 0 else 0.5


def _cell(place: float, width: int) -> int:
    """Return the cell of a place from 0 to 1; the first or last one for a place beyond them."""
    return min(max(int(min(max(place, 0.0), 1.0) * width), 0), width - 1)


def _interpolate(places: Sequence[int], values: Sequence[float], width: int) -> list[float | None]:
    """Return a value per column between the first and the last place."""
    found: list[float | None] = [None] * width
    for position, place in enumerate(places):
        found[place] = values[position]
        if position == 0:
            continue
        before, share = places[position - 1], place - places[position - 1]
        for column in range(before + 1, place):
            along = (column - before) / share
            found[column] = values[position - 1] * (1.0 - along) + values[position] * along
    return found
