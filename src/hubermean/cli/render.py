"""Releases and tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubermean.errors import printable
from hubermean.types.formatting import SHOWN
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable


def console(*, stderr: bool = False) -> Console:
    """Return a console that highlights nothing by itself."""
    return Console(highlight=False, stderr=stderr)


def print_release(release: Release) -> None:
    """Print a release as a two-column table; the released numbers stand out."""
    table = Table(
        box=box.ROUNDED,
        show_header=False,
        title=f"Private {release.statistic}",
        title_justify="left",
        title_style="bold",
    )
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    shown = min(len(release.columns), SHOWN)
    released = 2 * shown if release.interval_rule is not None else shown
    for number, (label, text) in enumerate(release.rows()):
        # Text, not markup: column names may hold square brackets.
        table.add_row(Text(label), Text(text, style="bold green" if number < released else ""))
    console().print(table)


def print_release_table(release: ReleaseTable) -> None:
    """Print the groups as a table, and what holds for all of them below it."""
    headings, rows = release.shown()
    table = Table(
        box=box.ROUNDED, title=f"Private {release.statistic}s", title_justify="left", title_style="bold"
    )
    keys = len(release.by)
    for position, heading in enumerate(headings):
        table.add_column(Text(heading), overflow="fold", justify="left" if position < keys else "right")
    for row in rows:
        table.add_row(
            *(Text(cell, style="bold green" if position == keys else "") for position, cell in enumerate(row))
        )
    console().print(table)
    if release.more:
        console().print(Text(f"{release.more}; --json prints all"), style="dim")
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for label, text in release.facts():
        facts.add_row(Text(label), Text(text))
    console().print(facts)


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
