"""How things look on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubermean.readable import SHOWN
from hubermean.release import Release


def console(*, stderr: bool = False) -> Console:
    return Console(highlight=False, stderr=stderr)


def print_release(release: Release) -> None:
    """A release as a two-column table; the released numbers stand out."""
    table = Table(
        box=box.ROUNDED, show_header=False, title="Private mean", title_justify="left", title_style="bold"
    )
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    shown = min(len(release.columns), SHOWN)
    released = 2 * shown if release.interval_rule is not None else shown
    for number, (label, text) in enumerate(release.rows()):
        # Text, not markup: column names may hold square brackets.
        table.add_row(Text(label), Text(text, style="bold green" if number < released else ""))
    console().print(table)


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(
        box=box.ROUNDED,
        show_header=any(headings),
        title=Text(title),
        title_justify="left",
        title_style="bold",
    )
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)
