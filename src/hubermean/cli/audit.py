"""`hubermean audit`: the worst pair of neighbours that a search finds, and what it gives away."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from hubermean.auditing import CONTAINERS
from hubermean.auditing import audit as run_audit
from hubermean.cli.options import (
    AUDITED,
    DATA,
    GROUPS,
    PRIVACY,
    AsJson,
    Bounds,
    Delta,
    Epsilon,
    MaxGroups,
    Neighbors,
    Per,
    Quiet,
    Radius,
    RecordCap,
    Threshold,
    ThresholdPower,
    bounds_of,
    check_output,
    one_of,
)
from hubermean.cli.render import console, print_table
from hubermean.relations import DEFAULT_NEIGHBORS

BROKEN = 4
SEARCH = "Search"


def audit(
    mechanism: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="One of " + ", ".join(f"'{name}'" for name in AUDITED) + ".",
            autocompletion=one_of(AUDITED),
            rich_help_panel=PRIVACY,
        ),
    ] = "auto",
    epsilon: Epsilon = 1.0,
    delta: Delta = 0.0,
    per: Per = "user",
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    columns: Annotated[
        int, typer.Option(metavar="NUMBER", help="Number of value columns.", rich_help_panel=DATA)
    ] = 1,
    users: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="Users per world; as few as work if left out.", rich_help_panel=DATA
        ),
    ] = None,
    bounds: Bounds = None,
    record_cap: RecordCap = None,
    threshold: Threshold = None,
    threshold_power: ThresholdPower = None,
    radius: Radius = None,
    groups: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Audit a release by group with so many groups: users move between them.",
            rich_help_panel=GROUPS,
        ),
    ] = None,
    max_groups: MaxGroups = 1,
    private_keys: Annotated[
        bool, typer.Option("--private-keys", help="Groups are chosen privately.", rich_help_panel=GROUPS)
    ] = False,
    container: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Read both data sets from this container, such as 'csv' or 'pandas', as a release would.",
            autocompletion=one_of(tuple(CONTAINERS)),
            rich_help_panel=DATA,
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Pairs of neighbours to judge; if left out 2,000, fewer by group, for 'adaptive' or a container.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Seed of the synthetic worlds.", rich_help_panel=SEARCH)
    ] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search for neighbours on which a mechanism gives away more than it promises. Reads no data.

    Exit code 4 means that a promise is broken.

    [bold]Examples[/bold]

      hubermean audit --mechanism exact --epsilon 1 --threshold 1 --radius 100

      hubermean audit --mechanism clipped --epsilon 0.5 --bounds 0 10 --quiet

      hubermean audit --mechanism clipped --bounds 0 10 --groups 4 --max-groups 2
    """
    check_output(as_json=as_json, quiet=quiet)
    with Progress(
        TextColumn("judging pairs"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(stderr=True),
        transient=True,
        disable=as_json or quiet or not console(stderr=True).is_terminal,
    ) as bar:
        # How many there will be if nothing is said is known once the mechanism is.
        task = bar.add_task("", total=pairs)
        result = run_audit(
            mechanism,
            epsilon=epsilon,
            delta=delta,
            per=per,  # type: ignore[arg-type]  # checked by the API, which names the choices
            neighbors=neighbors,
            columns=columns,
            users=users,
            bounds=bounds_of(bounds),
            record_cap=record_cap,
            threshold=threshold,
            threshold_power=threshold_power,
            radius=radius,
            groups=groups,
            max_groups=max_groups,
            private_keys=private_keys,
            container=container,
            pairs=pairs,
            seed=seed,
            progress=lambda judged: bar.update(task, completed=judged),
        )
    if as_json:
        typer.echo(result.to_json(indent=2))
    elif quiet:
        typer.echo("kept" if result.kept else "broken")
    else:
        print_table("Audit", ("", ""), result.rows())
    if not result.kept:
        raise typer.Exit(BROKEN)
