"""What people see of a release: a grid of numbers and labelled lines, as text of a given width and as HTML.

A terminal, a Python prompt and a notebook show the same `Screen`. `Lines` are all further details.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hubermean.errors import printable

WIDTH = 76
WARNING, GROUP = "Warning", "Group"
_LABELS = 15  # characters of a label, at least
_LONGEST_LABEL, _LONGEST_CELL, _LONGEST_NAME = 34, 40, 26
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
    """A table of texts; the first `names` columns are left-justified, and the others, numbers, to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    more: str = ""

    def lines(self) -> list[str]:
        """Return the heading and the rows as aligned text, and a note on the rows that are not shown."""
        cells = [self._shortened(row) for row in (self.headings, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            _GAP.join(
                cell.ljust(width) if position < self.names else cell.rjust(width)
                for position, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return [*lines, self.more] if self.more else lines

    def _shortened(self, row: Sequence[str]) -> list[str]:
        return [
            shortened(printable(cell), _LONGEST_NAME if position < self.names else _LONGEST_CELL)
            for position, cell in enumerate(row)
        ]

    def to_html(self) -> str:
        """Return the grid as an HTML table."""
        head, *body = (
            "<tr>"
            + "".join(
                f'<{kind} style="{_CELL}{"" if position < self.names else ";text-align:right"}">'
                f"{html.escape(printable(cell))}</{kind}>"
                for position, cell in enumerate(row)
            )
            + "</tr>"
            for kind, row in (("th", self.headings), *(("td", row) for row in self.rows))
        )
        more = f"<p>{html.escape(self.more)}</p>" if self.more else ""
        return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>{more}"


@dataclass(frozen=True, kw_only=True)
class Screen:
    """The first screen of a release: a title and a grid where there is more than one number, and labelled lines."""

    lines: Lines
    title: str = ""
    grid: Grid | None = None

    @property
    def number(self) -> str | None:
        """The label of the released number; None if it is in the grid."""
        return (
            None
            if self.grid is not None
            else next((label for label, _ in self.lines if label != GROUP), None)
        )

    def __str__(self) -> str:
        parts = [printable(self.title)] if self.title else []
        if self.grid is not None:
            parts += [*self.grid.lines(), ""]
        return "\n".join([*parts, repr(self.lines)])

    def to_html(self, details: Lines) -> str:
        """Return the screen as HTML, with the details folded beneath it."""
        title = f'<p style="font-weight:bold">{html.escape(printable(self.title))}</p>' if self.title else ""
        grid = "" if self.grid is None else self.grid.to_html()
        folded = f"<details><summary>Details</summary>{details.to_html()}</details>"
        return f"<div>{title}{grid}{self.lines.to_html(self.number)}{folded}</div>"


def shortened(text: str, longest: int) -> str:
    """Return a text without its middle where it is too long.

    >>> shortened("amount_of_the_invoice_in_euro", 17)
    'amount_o…_in_euro'
    """
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[: longest - 1 - half]}…{text[len(text) - half :]}"
