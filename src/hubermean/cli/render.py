"""Releases and tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubermean.errors import printable
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable
from hubermean.types.screen import WARNING, Lines
from hubermean.types.text_chart import marks_for

GOOD, BAD = "bold green", "bold red"
_MARGIN = "  "
_NARROWEST, _WIDEST = 40, 80  # characters of a line


class PipeConsole(Console):
    """A console that leaves a closed pipe to the program, which then ends quietly."""

    def on_broken_pipe(self) -> None:
        """Raise what rich would turn into an exit."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console that highlights nothing by itself."""
    return PipeConsole(highlight=False, stderr=stderr)


def print_release(release: Release | ReleaseTable, *, verbose: bool = False) -> None:
    """Print the first screen of a release; with `verbose`, its details as well."""
    out, screen = console(), release.screen
    out.print()
    if screen.title:
        _print(out, Text(printable(screen.title), style="bold"))
    if screen.grid is not None:
        marks = marks_for(out.encoding)
        heading, *rows = screen.grid.lines(_width(out), marks)
        _print(out, Text(heading, style="dim"))
        for row in [*rows, *screen.chart_lines(_width(out), marks)]:
            _print(out, Text(row))
        out.print()
    _print_lines(out, screen.lines, stands_out=screen.number)
    if verbose:
        out.print()
        _print_lines(out, release.details)


def print_lines(lines: Lines, *, stands_out: str | None = None, style: str = GOOD) -> None:
    """Print labelled lines, of which one may stand out."""
    out = console()
    out.print()
    _print_lines(out, lines, stands_out=stands_out, style=style)


def print_more(text: str) -> None:
    """Print a line on what else there is, below a release."""
    out = console()
    out.print()
    _print(out, Text(text, style="dim"))


def _print_lines(out: Console, lines: Lines, *, stands_out: str | None = None, style: str = GOOD) -> None:
    """Print labelled lines; Text, not markup, because column names may hold square brackets."""
    current = ""
    for label, text in lines.wrapped(_width(out)):
        current = label.strip() or current
        shown = style if current == stands_out else "yellow" if current == WARNING else ""
        _print(out, Text.assemble((label, shown or "dim"), (text, shown)))


def _width(out: Console) -> int:
    """Return the characters of a line between the margins."""
    return min(max(out.width, _NARROWEST), _WIDEST) - 2 * len(_MARGIN)


def _print(out: Console, text: Text) -> None:
    """Print a line as it is, however narrow the terminal."""
    out.print(Text.assemble(_MARGIN, text), soft_wrap=True)


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under a title."""
    table = Table(
        box=box.ROUNDED,
        show_header=any(headings),
        title=Text(printable(title)),
        title_justify="left",
        title_style="bold",
    )
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)
