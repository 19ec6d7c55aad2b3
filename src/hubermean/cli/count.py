"""`hubermean count`."""

from __future__ import annotations

from typing import Annotated

import typer

from hubermean import api
from hubermean.cli.options import (
    DATA,
    AsJson,
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
    MemoryLimit,
    Neighbors,
    Question,
    Quiet,
    RecordCap,
    Report,
    Threads,
    Timings,
    User,
    Users,
    check_output,
    one_of,
)
from hubermean.cli.private_run import private_run
from hubermean.cli.showing import finish, groups, show, unrecorded, write_report
from hubermean.relations import DEFAULT_NEIGHBORS
from hubermean.report import Destination


def count(
    file: File,
    user: User,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    of: Annotated[
        str,
        typer.Option(
            metavar="users|records",
            help="What is counted; of records, each user's up to a cap.",
            autocompletion=one_of(("users", "records")),
            rich_help_panel=DATA,
        ),
    ] = "users",
    value: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Count only what has a usable value here; repeat for several.",
            rich_help_panel=DATA,
        ),
    ] = None,
    by: By = None,
    key: Key = None,
    keys: Keys = None,
    max_groups: MaxGroups = 1,
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    record_cap: RecordCap = None,
    users: Users = None,
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
    """Release how many users or records there are.

    [bold]Examples[/bold]

      hubermean count trips.parquet --user rider_id --epsilon 1

      hubermean count trips.parquet --user rider_id --epsilon 1 --of records \\
        --by city --delta 1e-6
    """
    check_output(as_json=as_json, quiet=quiet)
    destination = None if report is None else Destination.checked(report)
    with private_run(unsafe_timings=unsafe_timings), unrecorded() as lost:
        result = api.count(
            file,
            user=user,
            epsilon=epsilon,
            delta=delta,
            of=of,
            value=value or None,
            **groups(file, by, key, keys, max_groups),
            neighbors=neighbors,
            record_cap=record_cap,
            n_users=users,
            memory_limit=memory_limit,
            threads=threads,
            engine=engine,
            progress=not (as_json or quiet),
            ledger=ledger,
            dataset=dataset,
            question=question,
            fresh=fresh,
        )
    show(result, as_json=as_json, quiet=quiet)
    if destination is not None:
        write_report(result, destination, source=file, announce=not (as_json or quiet))
    finish(result, lost)
