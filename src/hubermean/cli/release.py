"""`hubermean release`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hubermean import api
from hubermean.cli.options import (
    DATA,
    KNOWN,
    AsJson,
    Bounds,
    By,
    Dataset,
    Delta,
    Engine,
    Epsilon,
    File,
    Fresh,
    Key,
    Keys,
    LedgerPlace,
    MaxGroups,
    Mechanism,
    MemoryLimit,
    Neighbors,
    Per,
    Question,
    Quiet,
    Radius,
    RecordCap,
    Report,
    Threads,
    Threshold,
    ThresholdPower,
    Timings,
    User,
    Users,
    bounds_of,
    check_output,
    one_of,
)
from hubermean.cli.private_run import private_run
from hubermean.cli.showing import finish, groups, show, unrecorded, write_report
from hubermean.relations import DEFAULT_NEIGHBORS
from hubermean.report import Destination


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
    max_groups: MaxGroups = 1,
    per: Per = "record",
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    mechanism: Mechanism = "auto",
    bounds: Bounds = None,
    record_cap: RecordCap = None,
    threshold: Threshold = None,
    threshold_power: ThresholdPower = None,
    scale: Annotated[
        list[float] | None,
        typer.Option(
            metavar="NUMBER",
            help="Public standard deviation of user means; repeat for several columns.",
            rich_help_panel=KNOWN,
        ),
    ] = None,
    radius: Radius = None,
    hostile: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the users, up to 0.2, that may be malicious; bounds then resist so many.",
            rich_help_panel=KNOWN,
        ),
    ] = None,
    users: Users = None,
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
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
    engine: Engine = None,
    ledger: LedgerPlace = None,
    dataset: Dataset = None,
    question: Question = None,
    fresh: Fresh = False,
    report: Report = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    unsafe_timings: Timings = False,
) -> None:
    """Release a private mean of a file.

    Nothing need be known about the values; what is known and public, such as --bounds, saves budget.

    [bold]Examples[/bold]

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1 \\
        --bounds 0 200 --record-cap 50 --report fare.html

      hubermean release trips.parquet --user rider_id --value fare --epsilon 1 \\
        --by city --key Bern --key Zug --max-groups 2

      hubermean release 'trips-*.csv' --user rider_id --value fare --epsilon 1 \\
        --value minutes --delta 1e-6 --per user --json
    """
    check_output(as_json=as_json, quiet=quiet)
    # Whatever stands in the way of the page is said before anything is spent.
    destination = None if report is None else Destination.checked(report)
    options: dict[str, Any] = {
        "value": value[0] if len(value) == 1 else value,
        "per": per,
        "mechanism": mechanism,
        "bounds": bounds_of(bounds),
        "threshold": threshold,
        "threshold_power": threshold_power,
        "scale": scale if scale is None or len(scale) > 1 else scale[0],
        "radius": radius,
        "hostile": hostile,
        "n_users": users,
        "resolution": resolution,
        "non_finite": non_finite,
    }
    with private_run(unsafe_timings=unsafe_timings), unrecorded() as lost:
        result = api.mean(
            file,
            user=user,
            epsilon=epsilon,
            delta=delta,
            **groups(file, by, key, keys, max_groups),
            neighbors=neighbors,
            record_cap=record_cap,
            memory_limit=memory_limit,
            threads=threads,
            engine=engine,
            progress=not (as_json or quiet),
            ledger=ledger,
            dataset=dataset,
            question=question,
            fresh=fresh,
            **options,
        )
    show(result, as_json=as_json, quiet=quiet)
    if destination is not None:
        write_report(result, destination, source=file, announce=not (as_json or quiet))
    finish(result, lost)
