"""`hubermean release`."""

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
    Mechanism,
    Neighbors,
    Per,
    Quiet,
    Report,
    Rollup,
    Timings,
    User,
    Verbose,
    add_options,
    check_dry_run,
    check_output,
    name_source,
    open_query,
    to_keywords,
)
from hubermean.cli.output import collect_unrecorded, deliver, make_group_arguments
from hubermean.cli.private_run import private_run
from hubermean.release.charging import LedgerOptions
from hubermean.report.file import Destination
from hubermean.types.options import PublicParameters, ReadOptions
from hubermean.types.request import DEFAULT_NEIGHBORS


@add_options(PublicParameters, ReadOptions, LedgerOptions)
def release(
    file: File,
    user: User,
    value: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", help="Column to average; repeat for several.", rich_help_panel=DATA),
    ],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    by: By = None,
    key: Key = None,
    keys: Keys = None,
    max_groups: MaxGroups = None,
    rollup: Rollup = False,
    per: Per = "record",
    expected_records: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Warn if fewer usable records were measured than you expect.",
            rich_help_panel=DATA,
        ),
    ] = None,
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    mechanism: Mechanism = "auto",
    connection: Connection = None,
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    unsafe_timings: Timings = False,
    **options: Any,
) -> None:
    """Release a private mean of a file.

    You provide only the privacy budget; bounds are estimated privately. Public parameters save budget.

    [bold]Examples[/bold]

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1 \\
        --bounds 0 200 --max-records 50 --report fare.html

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1 \\
        --by city --key Arden --key Brook --max-groups 2

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1 \\
        --ledger budget.sqlite --dataset trips --dry-run

      hubermean release 'trips-*.csv' --user rider_id --value fare --epsilon 1 \\
        --value minutes --delta 1e-6 --per user --json
    """
    check_output(as_json=as_json, quiet=quiet, verbose=verbose)
    check_dry_run(dry_run, report=report, quiet=quiet)
    # A report that cannot be written is refused before anything is spent.
    destination = None if report is None else Destination.checked(report)
    with private_run(unsafe_timings=unsafe_timings), collect_unrecorded() as lost:
        result = api.mean(  # type: ignore[call-overload]  # the API checks `per`, and names the choices
            open_query(file, connection),
            user=user,
            value=value[0] if len(value) == 1 else value,
            epsilon=epsilon,
            delta=delta,
            per=per,
            neighbors=neighbors,
            mechanism=mechanism,
            expected_records=expected_records,
            progress=not (as_json or quiet),
            dry_run=dry_run,
            rollup=rollup,
            **make_group_arguments(file, by, key, keys, max_groups),
            **to_keywords(options),
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
