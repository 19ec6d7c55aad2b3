"""`hubermean plan`: the predicted error of each mechanism, without data."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from hubermean import planning
from hubermean.cli.options import (
    DATA,
    OUTPUT,
    PARAMETERS,
    AsJson,
    Delta,
    Epsilon,
    Neighbors,
    Per,
    Quiet,
    add_options,
    check_output,
    to_keywords,
)
from hubermean.cli.render import console, print_more
from hubermean.errors import printable
from hubermean.planning.words import (
    format_command,
    format_title,
    list_headings,
    list_notes,
    list_reasons,
    list_rows,
)
from hubermean.types.request import DEFAULT_NEIGHBORS
from hubermean.types.text_chart import UNICODE, Marks, marks_for

_BAR = 6
# A full bar stands for the largest error, in times the non-private one, but within these.
_SHORTEST_SCALE, _LONGEST_SCALE = 1.1, 100.0


@add_options("bounds", "max_records")
def plan(
    n_users: Annotated[
        int, typer.Option(metavar="NUMBER", help="How many users to expect.", rich_help_panel=DATA)
    ],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    columns: Annotated[
        int,
        typer.Option(metavar="NUMBER", help="How many columns are released together.", rich_help_panel=DATA),
    ] = 1,
    scale: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", help="Standard deviation of user means, a guess.", rich_help_panel=DATA
        ),
    ] = 1.0,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Public threshold; without it, the table assumes 3 --scale (times sqrt(columns) if joint).",
            rich_help_panel=PARAMETERS,
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Public bound: the mean lies within this distance of 0; without it, the table assumes 1e6 --scale.",
            rich_help_panel=PARAMETERS,
        ),
    ] = None,
    per: Per = "user",
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    groups: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Predict the error of each group of a release by this many groups.",
            rich_help_panel=DATA,
        ),
    ] = None,
    groups_per_user: Annotated[
        int,
        typer.Option(metavar="NUMBER", help="How many groups a user is in.", rich_help_panel=DATA),
    ] = 1,
    private_keys: Annotated[
        bool,
        typer.Option(
            "--private-keys",
            help="You will not list the groups, so that they are selected privately; needs --delta.",
            rich_help_panel=PARAMETERS,
        ),
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a figure to this file (.png, .svg or .pdf); needs matplotlib.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Also print why a mechanism cannot serve.", rich_help_panel=OUTPUT),
    ] = False,
    **options: Any,
) -> None:
    """Compare the predicted errors of all mechanisms, without data.

    With --groups it predicts the error of a group by its number of users instead.

    [bold]Examples[/bold]

      hubermean plan --n-users 10000 --epsilon 1 --delta 1e-6 --columns 3

      hubermean plan --n-users 500 --epsilon 0.5 --bounds 0 200 --plot plan.svg

      hubermean plan --n-users 10000 --epsilon 1 --groups 12 --groups-per-user 3
    """
    check_output(as_json=as_json, quiet=quiet, verbose=verbose)
    comparison: planning.Plan | planning.GroupPlan = planning.plan(  # type: ignore[call-overload]
        n_users=n_users,
        epsilon=epsilon,
        delta=delta,
        columns=columns,
        scale=scale,
        threshold=threshold,
        radius=radius,
        per=per,
        neighbors=neighbors,
        groups=groups,
        groups_per_user=groups_per_user,
        private_keys=private_keys,
        **to_keywords(options),
    )
    if plot is not None:
        comparison.plot(plot)
    if as_json:
        typer.echo(comparison.to_json(indent=2))
        return
    if quiet:
        typer.echo(_shortest(comparison))
        return
    if isinstance(comparison, planning.GroupPlan):
        _print_groups(comparison)
    else:
        _print(comparison, verbose=verbose)
    if plot is not None:
        console().print(Text(f"The figure is in {printable(plot)}."))


def _shortest(comparison: planning.Plan | planning.GroupPlan) -> str:
    """Return the mechanism that would be chosen; for groups, the predicted error of one of average size."""
    if isinstance(comparison, planning.GroupPlan):
        return f"{comparison.average.error:.6g}"
    return "none" if comparison.best is None else comparison.best.mechanism


def _print_groups(prediction: planning.GroupPlan) -> None:
    out = console()
    marks = marks_for(out.encoding)
    shown = Table(box=box.ROUNDED, title=Text(prediction.title), title_justify="left", title_style="bold")
    for position, heading in enumerate(prediction.headings):
        shown.add_column(Text(heading), justify="right" if position else "left", no_wrap=True)
    errors = [row.over_non_private for row in prediction.rows]
    longest = min(max([*errors, _SHORTEST_SCALE]), _LONGEST_SCALE)
    shown.add_column(Text(""), no_wrap=True)
    for row, cells in zip(prediction.rows, prediction.cells(), strict=True):
        cells[0] = cells[0].replace(UNICODE.arrow, marks.arrow)
        style = "bold green" if row is prediction.average else ""
        shown.add_row(
            *(Text(cell, style=style) for cell in [*cells, _bar(row.over_non_private, longest, marks)])
        )
    out.print(shown)
    for note in prediction.notes():
        out.print(Text(note))


def _print(comparison: planning.Plan, *, verbose: bool) -> None:
    shown = Table(
        box=box.ROUNDED,
        padding=(0, 1, 0, 0),  # the longest names fit into 80 columns
        title=Text(format_title(comparison)),
        title_justify="left",
        title_style="bold",
    )
    for heading in list_headings(comparison):
        words = heading in ("mechanism", "columns", "ratio")
        shown.add_column(Text(heading), justify="left" if words else "right", no_wrap=True)
    errors = [row.over_non_private for row in comparison.rows if row.reason is None]
    longest = min(max([*errors, _SHORTEST_SCALE]), _LONGEST_SCALE)
    out = console()
    marks = marks_for(out.encoding)
    for row, cells in zip(comparison.rows, list_rows(comparison), strict=True):
        style = "bold green" if row is comparison.best else "dim" if row.reason is not None else ""
        cells[0] = cells[0].replace(UNICODE.arrow, marks.arrow)
        cells[-1] = f"{cells[-1]:<7} {_bar(row.over_non_private, longest, marks)}".rstrip()
        shown.add_row(*(Text(cell, style=style) for cell in cells))
    out.print(shown)
    reasons = list_reasons(comparison)
    for note in [*list_notes(comparison), *(reasons if verbose or comparison.best is None else [])]:
        out.print(Text(note))
    if reasons and not verbose and comparison.best is not None:
        print_more("What the others need: --verbose")
    if code := format_command(comparison):
        # As one line, however wide the terminal, so that it can be copied.
        out.print(Text(f"\n{code}", style="bold"), soft_wrap=True)


def _bar(times: float, longest: float, marks: Marks) -> str:
    """A bar for how many times the non-private error, on a logarithmic scale, in eighths of a cell."""
    if math.isinf(times):
        return ""
    if times > longest:
        return marks.bar * (_BAR - 1) + marks.beyond_right
    eighths = max(round(math.log(times) / math.log(longest) * _BAR * 8), 1)
    whole, rest = divmod(eighths, 8)
    if marks is not UNICODE:
        return marks.bar * max(whole, 1)
    return marks.bar * whole + " ▏▎▍▌▋▊▉"[rest].strip()
