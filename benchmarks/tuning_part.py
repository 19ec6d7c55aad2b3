"""A part of the tuning benchmark: rows that are printed as they are made, and a section of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from page import table_heading, table_line

_GAP = 2  # blanks between the columns on a terminal
_COLOURS = {"PASS": "green", "FAIL": "red"}


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is drawn.

    Attributes:
        runs: data sets per case.
        tuning: separate data sets on which a threshold is tuned.
        wild: releases in all that are searched for wild values.
    """

    runs: int
    tuning: int
    wild: int


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a part's table: what it is called and what it says of a row."""

    heading: str
    cell: Callable[[Any], str]
    width: int = 0
    left: bool = False


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part.

    Attributes:
        name: what the command line calls it.
        notes: what the page says before its table, in Markdown.
        rows: makes the rows, frozen dataclasses; their `refusal` is what was said where nothing was released.
        says: what the rows say, each sentence from the numbers.
    """

    name: str
    title: str
    notes: str
    columns: Sequence[Column]
    rows: Callable[[Effort], Iterator[Any]]
    says: Callable[[Sequence[Any]], Iterable[str]]

    def run(self, effort: Effort) -> list[Any]:
        """All rows, each printed when it is there."""
        console = Console(highlight=False, width=sum(map(self._width, self.columns)))
        console.print(f"\n[bold]{self.title}[/bold]", soft_wrap=True)
        self._print(console, [one.heading for one in self.columns], style="bold")
        rows = []
        for row in self.rows(effort):
            self._print(console, [one.cell(row) for one in self.columns])
            rows.append(row)
        for reason in _refusals(rows):
            console.print(f"refused: {reason}", markup=False, soft_wrap=True)
        return rows

    def _print(self, console: Console, cells: Sequence[str], style: str = "") -> None:
        line = Table.grid(padding=(0, _GAP, 0, 0))
        for one in self.columns:
            line.add_column(
                width=self._width(one) - _GAP, justify="left" if one.left else "right", no_wrap=True
            )
        line.add_row(*(Text(cell, style=_COLOURS.get(cell[:4], style)) for cell in cells))
        console.print(line)

    @staticmethod
    def _width(column: Column) -> int:
        return max(column.width, len(column.heading)) + _GAP

    def section(self, rows: Sequence[Any]) -> str:
        """For the page."""
        heading = table_heading(
            [one.heading for one in self.columns], left=[one.heading for one in self.columns if one.left]
        )
        lines = [table_line(one.cell(row) for one in self.columns) for row in rows]
        reasons = [f"- Refused: {reason}." for reason in _refusals(rows)]
        return "\n".join(
            [
                f"## {self.title}",
                "",
                self.notes.strip(),
                "",
                *heading,
                *lines,
                *([""] if reasons else []),
                *reasons,
            ]
        )


def _refusals(rows: Sequence[Any]) -> list[str]:
    """What was said, each once: a reader can tell a fault of the benchmark from one of the mechanism."""
    return list(dict.fromkeys(row.refusal for row in rows if row.refusal))
