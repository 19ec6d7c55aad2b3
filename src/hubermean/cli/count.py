"""`hubermean count`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hubermean import _api as api
from hubermean.cli.options import (
    DATA,
    AsJson,
    By,
    Connection,
    Delta,
    DryRun,
    Epsilon,
    File,
    Key,
    Keys,
    MaxGroups,
    Neighbors,
    Quiet,
    Report,
    Timings,
    User,
    Verbose,
    add_options,
    check_dry_run,
    check_output,
    name_source,
    one_of,
    open_query,
)
from hubermean.cli.output import collect_unrecorded, deliver, make_group_arguments
from hubermean.cli.private_run import private_run
from hubermean.release.charging import LedgerOptions
from hubermean.report.file import Destination
from hubermean.types.options import EngineOptions, TextOptions
from hubermean.types.request import DEFAULT_NEIGHBORS


@add_options("max_records", "n_users", EngineOptions, TextOptions, LedgerOptions)
def count(
    file: File,
    user: User,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    of: Annotated[
        str,
        typer.Option(
            metavar="users|records",
            help="What to count; each user counts for at most --max-records records.",
            autocompletion=one_of(("users", "records")),
            rich_help_panel=DATA,
        ),
    ] = "users",
    value: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Count only records with a usable value here; repeat for several.",
            rich_help_panel=DATA,
        ),
    ] = None,
    by: By = None,
    key: Key = None,
    keys: Keys = None,
    max_groups: MaxGroups = None,
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    connection: Connection = None,
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    unsafe_timings: Timings = False,
    **options: Any,
) -> None:
    """Release the number of users or records.

    [bold]Examples[/bold]

      hubermean count trips.parquet --user rider_id --epsilon 1

      hubermean count trips.parquet --user rider_id --epsilon 1 --of records \\
        --by city --delta 1e-6
    """
    check_output(as_json=as_json, quiet=quiet, verbose=verbose)
    check_dry_run(dry_run, report=report, quiet=quiet)
    destination = None if report is None else Destination.checked(report)
    with private_run(unsafe_timings=unsafe_timings), collect_unrecorded() as lost:
        result = api.count(  # type: ignore[call-overload]  # a dry run has a result of its own
            open_query(file, connection),
            user=user,
            epsilon=epsilon,
            delta=delta,
            of=of,
            value=value or None,
            neighbors=neighbors,
            progress=not (as_json or quiet),
            dry_run=dry_run,
            **make_group_arguments(file, by, key, keys, max_groups),
            **options,
        )
    deliver(
        result,
        destination=destination,
        source=name_source(file, connection),
        lost=lost,
        as_json=as_json,
        quiet=quiet,
        verbose=verbose,
    )
