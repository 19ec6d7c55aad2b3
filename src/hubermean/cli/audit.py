"""`hubermean audit`: the worst pair of neighbours that a search finds, and what it gives away."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from hubermean.auditing import audit as run_audit
from hubermean.cli.render import console, print_table

BROKEN = 4


def audit(
    mechanism: Annotated[
        str,
        typer.Option(
            help="'tuned', 'clipped', 'exact', 'tested', 'smooth', 'winsorized', 'paper-literal' or 'auto'."
        ),
    ] = "auto",
    epsilon: Annotated[float, typer.Option(help="Promised epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Promised delta.")] = 0.0,
    per: Annotated[str, typer.Option(help="'user' or 'record', as for release.")] = "user",
    neighbors: Annotated[
        str, typer.Option(help="'replace-user', 'replace-values' or 'add-remove'.")
    ] = "replace-user",
    columns: Annotated[int, typer.Option(help="Number of value columns.")] = 1,
    users: Annotated[int | None, typer.Option(help="Users per world; as few as work if left out.")] = None,
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Public LOW HIGH, for 'clipped'.")
    ] = None,
    record_cap: Annotated[
        int | None, typer.Option(help="Public cap on the records a user counts for.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Public threshold.")] = None,
    radius: Annotated[float | None, typer.Option(help="Public radius.")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs of neighbours to judge.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic worlds.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Search for neighbours on which a mechanism gives away more than it promises. Reads no data.

    Exit code 4 means that a promise is broken.

    [bold]Example[/bold]: hubermean audit --mechanism exact --epsilon 1 --threshold 1 --radius 100
    """
    with Progress(
        TextColumn("judging pairs"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(stderr=True),
        transient=True,
        disable=as_json or not console(stderr=True).is_terminal,
    ) as bar:
        task = bar.add_task("", total=pairs)
        result = run_audit(
            mechanism,
            epsilon=epsilon,
            delta=delta,
            per=per,  # type: ignore[arg-type]  # checked by the API, which names the choices
            neighbors=neighbors,
            columns=columns,
            users=users,
            bounds=bounds,
            record_cap=record_cap,
            threshold=threshold,
            radius=radius,
            pairs=pairs,
            seed=seed,
            progress=lambda judged: bar.update(task, completed=judged),
        )
    if as_json:
        typer.echo(result.to_json(indent=2))
    else:
        print_table("Audit", ("", ""), result.rows())
    if not result.kept:
        raise typer.Exit(BROKEN)
