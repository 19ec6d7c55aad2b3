"""`hubermean release`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from hubermean import api
from hubermean.cli.options import (
    DATA,
    KNOWN,
    OUTPUT,
    AsJson,
    Bounds,
    Delta,
    Epsilon,
    File,
    Mechanism,
    Neighbors,
    Per,
    Quiet,
    Radius,
    RecordCap,
    Threshold,
    check_output,
    one_of,
)
from hubermean.cli.render import console, print_release
from hubermean.release import Release
from hubermean.report import Destination, page

NOT_WRITTEN = 74  # sysexits' EX_IOERR: released and printed, but the report is not there


def release(
    file: File,
    user: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN",
            help="Column that identifies a user; repeat for several.",
            rich_help_panel=DATA,
        ),
    ],
    value: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", help="Column to average; repeat for several.", rich_help_panel=DATA),
    ],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    per: Per = "record",
    neighbors: Neighbors = "replace-user",
    mechanism: Mechanism = "auto",
    bounds: Bounds = None,
    record_cap: RecordCap = None,
    threshold: Threshold = None,
    scale: Annotated[
        list[float] | None,
        typer.Option(
            metavar="NUMBER",
            help="Public standard deviation of user means; repeat for several columns.",
            rich_help_panel=KNOWN,
        ),
    ] = None,
    radius: Radius = None,
    likeness: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="How alike a user's records are: 0, as different as anybody's, to 1, all the same.",
            rich_help_panel=KNOWN,
        ),
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Public number of users, about right; for 'add-remove'.",
            rich_help_panel=KNOWN,
        ),
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Public step that values are rounded to.", rich_help_panel=KNOWN),
    ] = None,
    non_finite: Annotated[
        str,
        typer.Option(
            metavar="drop|clamp",
            help="What becomes of infinite values.",
            autocompletion=one_of(("drop", "clamp")),
            rich_help_panel=DATA,
        ),
    ] = "drop",
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for grouping, such as 2GB.", rich_help_panel=DATA),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Threads for grouping.", rich_help_panel=DATA)
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="PAGE.html",
            help="Write the release as a page to read, print and publish.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Release a private mean of a file.

    Nothing need be known about the values; what is known and public, such as --bounds, saves budget.

    [bold]Examples[/bold]

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1 \\
        --bounds 0 200 --record-cap 50 --report fare.html

      hubermean release 'trips-*.csv' --user rider_id --value fare --epsilon 1 \\
        --value minutes --delta 1e-6 --per user --json
    """
    check_output(as_json=as_json, quiet=quiet)
    # Whatever stands in the way of the page is said before anything is spent.
    destination = None if report is None else Destination.checked(report)
    result = api.mean(
        file,
        user=user,
        value=value[0] if len(value) == 1 else value,
        epsilon=epsilon,
        delta=delta,
        per=per,  # type: ignore[arg-type]  # checked by the API, which names the choices
        neighbors=neighbors,
        mechanism=mechanism,
        bounds=bounds,
        record_cap=record_cap,
        threshold=threshold,
        scale=scale if scale is None or len(scale) > 1 else scale[0],
        radius=radius,
        likeness=likeness,
        n_users=users,
        resolution=resolution,
        non_finite=non_finite,
        memory_limit=memory_limit,
        threads=threads,
        progress=not (as_json or quiet),
    )
    if as_json:
        typer.echo(result.to_json(indent=2))
    elif quiet:
        for number in result.values:
            typer.echo(repr(number))
    else:
        print_release(result)
    if destination is not None:
        write_report(result, destination, source=file, announce=not (as_json or quiet))


def write_report(result: Release, destination: Destination, *, source: str, announce: bool) -> None:
    """The page, once the release is printed: what was paid for is not lost with it."""
    try:
        destination.write(page(result, source=source))
    except OSError:
        typer.echo(
            f"error: the mean is released and printed above, but no report could be written to {destination.path}; "
            "keep what is printed, since the budget is spent",
            err=True,
        )
        raise typer.Exit(NOT_WRITTEN) from None
    if announce:
        console().print(Text(f"The report is in {destination.path}."), soft_wrap=True)
