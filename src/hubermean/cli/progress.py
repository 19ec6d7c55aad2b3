"""The progress of a long search on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from hubermean.auditing.effort import Progress
from hubermean.cli.render import console

EVERY = 10.0
"""Seconds between two lines."""


@contextlib.contextmanager
def show_progress(*, hidden: bool) -> Iterator[Progress]:
    """Return what a search calls with the number of pairs compared and the share of the search that is done."""
    if hidden:
        yield lambda compared, share: None
    elif not sys.stderr.isatty():
        yield _lines()
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with RichProgress(*columns, console=console(stderr=True), transient=True) as bar:
            task = bar.add_task("comparing pairs", total=1.0)
            yield lambda compared, share: bar.update(
                task, completed=share, description=f"compared {compared:,} pairs"
            )


def _lines() -> Progress:
    """Return a function that prints a line every few seconds."""
    begin = last = time.monotonic()

    def report(compared: int, share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < EVERY or share >= 1.0:
            return
        last = now
        left = (now - begin) * (1.0 / share - 1.0)
        typer.echo(f"compared {compared:,} pairs, about {_duration(left)} left", err=True)

    return report


def _duration(seconds: float) -> str:
    """Return a duration in words.

    >>> _duration(42.3), _duration(150.0), _duration(9000.0)
    ('43 seconds', '3 minutes', '150 minutes')
    """
    return f"{int(seconds) + 1} seconds" if seconds < 100 else f"{round(seconds / 60 + 0.5):,} minutes"
