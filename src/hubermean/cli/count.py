"""`hubermean count`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hubermean import _api as api
from hubermean.cli.options import (
    DATA,
    AsJson,
    By,
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
    add_options,
    check_dry_run,
    check_output,
    one_of,
)
from hubermean.cli.output import (
    collect_unrecorded,
    finish,
    make_group_arguments,
    print_result,
    write_report,
)
from hubermean.cli.private_run import private_run
from hubermean.release.charging import LedgerOptions
from hubermean.report.file import Destination
from hubermean.types.options import EngineOptions
from hubermean.types.request import DEFAULT_NEIGHBORS


@add_options("max_records", "n_users", EngineOptions, LedgerOptions)
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
    max_groups: MaxGroups = 1,
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    dry_run: DryRun = False,
    report: Report = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    unsafe_timings: Timings = False,
    **options: Any,
) -> None:
    """Release the number of users or records.

    [bold]Examples[/bold]

      hubermean count trips.parquet --user rider_id --epsilon 1

      hubermean count trips.parquet --user rider_id --epsilon 1 --of records \\
        --by city --delta 1e-6
    """
    check_output(as_json=as_json, quiet=quiet)
    check_dry_run(dry_run, report=report, quiet=quiet)
    destination = None if report is None else Destination.checked(report)
    with private_run(unsafe_timings=unsafe_timings), collect_unrecorded() as lost:
        result = api.count(  # type: ignore[call-overload]  # a dry run has a result of its own
            file,
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
    print_result(result, as_json=as_json, quiet=quiet)
    if destination is not None:
        write_report(result, destination, source=file, announce=not (as_json or quiet))
    finish(result, lost)
