"""What people see of a release: a grid of numbers and labelled lines, as text of a given width and as HTML.

A terminal, a Python prompt and a notebook show the same `Screen`. `Lines` are all further details. A terminal that
cannot show Unicode gets charts of ASCII.
"""

from __future__ import annotations

import html
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hubermean.errors import printable
from hubermean.types.text_chart import UNICODE, Marks, Span, TimeChart, marks_for

WIDTH = 76
WARNING, GROUP = "Warning", "Group"
_LABELS = 15  # characters of a label, at least
_LONGEST_LABEL, _LONGEST_CELL, _LONGEST_NAME = 34, 40, 26
_SHORTEST_NAME = 12  # to which names are shortened to make room for a chart
_NARROWEST_CHART, _WIDEST_CHART = 12, 40
_GAP = "  "
_BOLD, _CARE = ";font-weight:bold;font-size:120%", ";border-left:3px solid #d4572a;padding-left:8px"
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;border:none"


@dataclass(frozen=True)
class Lines:
    """Labelled lines, as pairs of texts; printing them wraps long ones."""

    pairs: tuple[tuple[str, str], ...]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def wrapped(self, width: int = WIDTH) -> Iterator[tuple[str, str]]:
        """Return the lines as printed: the label, padded and empty on further lines, and a part of the text."""
        labels = [shortened(printable(label), _LONGEST_LABEL) for label, _ in self.pairs]
        column = max([_LABELS, *map(len, labels)])
        for label, (_, text) in zip(labels, self.pairs, strict=True):
            parts = textwrap.wrap(
                printable(text), max(width - column - len(_GAP), 20), break_on_hyphens=False
            )
            for position, part in enumerate(parts or [""]):
                yield f"{'' if position else label:<{column}}{_GAP}", part

    def __repr__(self) -> str:
        return "\n".join((label + text).rstrip() for label, text in self.wrapped())

    def to_html(self, stands_out: str | None = None) -> str:
        """Return the lines as an HTML table; the line of a label may stand out."""
        rows = "".join(
            f'<tr><th style="{_CELL};font-weight:normal;opacity:0.75;white-space:nowrap">'
            f"{html.escape(printable(label))}</th>"
            f'<td style="{_CELL};max-width:46em;white-space:normal'
            f"{_BOLD if label == stands_out else _CARE if label == WARNING else ''}"
            f'">{html.escape(printable(text))}</td></tr>'
            for label, text in self.pairs
        )
        return f'<table style="border-collapse:collapse">{rows}</table>'

    def _repr_html_(self) -> str:
        return self.to_html()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of texts; the first `names` columns are left-justified, and the others, numbers, to the right.

    Attributes:
        headings, rows: the texts.
        names: how many columns are text.
        notes: lines between the rows, each with the number of rows above it.
        spans: the intervals of the rows on a common axis, for a chart beside them; empty for none.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    notes: tuple[tuple[int, str], ...] = ()
    spans: tuple[Span | None, ...] = ()

    def lines(self, width: int = WIDTH, marks: Marks = UNICODE) -> list[str]:
        """Return the heading and the rows as aligned text, with a chart if there is room for it."""
        longest = _LONGEST_NAME
        lines = self._aligned(longest, marks)
        while self.spans and longest > _SHORTEST_NAME and _chart_width(lines, width) < _NARROWEST_CHART:
            longest -= 1
            lines = self._aligned(longest, marks)
        chart = _chart_width(lines, width)
        if not self.spans or chart < _NARROWEST_CHART:
            heading, *rows = [line.rstrip() for line in self._aligned(_LONGEST_NAME, marks)]
        else:
            heading, *rows = [
                f"{line}{_GAP}{'' if span is None else span.draw(min(chart, _WIDEST_CHART), marks)}".rstrip()
                for line, span in zip(lines, (None, *self.spans), strict=True)
            ]
        for position, note in sorted(self.notes, reverse=True):
            rows.insert(position, note.replace(UNICODE.ellipsis, marks.ellipsis))
        return [heading, *rows]

    def _aligned(self, longest: int, marks: Marks) -> list[str]:
        cells = [self._shortened(row, longest, marks) for row in (self.headings, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return [
            _GAP.join(
                cell.ljust(width) if position < self.names else cell.rjust(width)
                for position, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]

    def _shortened(self, row: Sequence[str], longest: int, marks: Marks) -> list[str]:
        return [
            shortened(
                marks.fit(printable(cell)),
                longest if position < self.names else _LONGEST_CELL,
                marks.ellipsis,
            )
            for position, cell in enumerate(row)
        ]

    def to_html(self) -> str:
        """Return the grid as an HTML table."""
        head, *body = [
            "<tr>"
            + "".join(
                f'<{kind} style="{_CELL}{"" if position < self.names else ";text-align:right"}">'
                f"{html.escape(printable(cell))}</{kind}>"
                for position, cell in enumerate(row)
            )
            + "</tr>"
            for kind, row in (("th", self.headings), *(("td", row) for row in self.rows))
        ]
        for position, note in sorted(self.notes, reverse=True):
            cell = f'<td colspan="{len(self.headings)}" style="{_CELL};opacity:0.75">{html.escape(note)}</td>'
            body.insert(position, f"<tr>{cell}</tr>")
        return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


@dataclass(frozen=True, kw_only=True)
class Screen:
    """The first screen of a release: a title and a grid where there is more than one number, and labelled lines.

    `charts` are drawn below the grid, for groups in time.
    """

    lines: Lines
    title: str = ""
    grid: Grid | None = None
    charts: tuple[tuple[str, TimeChart], ...] = ()

    @property
    def number(self) -> str | None:
        """The label of the released number; None if it is in the grid."""
        return (
            None
            if self.grid is not None
            else next((label for label, _ in self.lines if label != GROUP), None)
        )

    def chart_lines(self, width: int = WIDTH, marks: Marks = UNICODE) -> list[str]:
        """Return the charts as text, each with an empty line above it, and its name where there are several."""
        drawn = []
        for name, chart in self.charts:
            drawn += ["", *([printable(name)] if len(self.charts) > 1 else []), *chart.lines(width, marks)]
        return drawn

    def __str__(self) -> str:
        marks = marks_for(getattr(sys.stdout, "encoding", None))
        parts = [printable(self.title)] if self.title else []
        if self.grid is not None:
            parts += [*self.grid.lines(marks=marks), *self.chart_lines(marks=marks), ""]
        return "\n".join([*parts, repr(self.lines)])

    def to_html(self, details: Lines, chart: str = "") -> str:
        """Return the screen as HTML, with a chart that is safe markup, and with the details folded beneath it."""
        title = f'<p style="font-weight:bold">{html.escape(printable(self.title))}</p>' if self.title else ""
        grid = "" if self.grid is None else self.grid.to_html()
        folded = f"<details><summary>Details</summary>{details.to_html()}</details>"
        return f"<div>{title}{chart}{grid}{self.lines.to_html(self.number)}{folded}</div>"


def shortened(text: str, longest: int, ellipsis: str = UNICODE.ellipsis) -> str:
    """Return a text without its middle where it is too long.

    >>> shortened("amount_of_the_invoice_in_euro", 17)
    'amount_o…_in_euro'
    """
    if len(text) <= longest:
        return text
    half = (longest - len(ellipsis)) // 2
    return f"{text[: longest - len(ellipsis) - half]}{ellipsis}{text[len(text) - half :]}"


def _chart_width(lines: Sequence[str], width: int) -> int:
    return width - max(map(len, lines)) - len(_GAP)
