"""`hubermean release`."""

from __future__ import annotations

from typing import Annotated

import typer

from hubermean import api
from hubermean.cli.render import print_release


def release(
    file: Annotated[str, typer.Argument(help="Parquet, CSV or JSON lines; a path or a quoted pattern.")],
    user: Annotated[list[str], typer.Option(help="Column that identifies a user; repeat for several.")],
    value: Annotated[list[str], typer.Option(help="Column to average; repeat for several.")],
    epsilon: Annotated[float, typer.Option(help="Privacy budget epsilon.")],
    delta: Annotated[float, typer.Option(help="Privacy budget delta.")] = 0.0,
    per: Annotated[
        str, typer.Option(help="'record': mean over records; 'user': mean of user means.")
    ] = "record",
    neighbors: Annotated[
        str, typer.Option(help="What is hidden: 'replace-user', 'replace-values' or 'add-remove'.")
    ] = "replace-user",
    mechanism: Annotated[
        str, typer.Option(help="'auto', 'tuned', 'clipped', 'exact', 'tested', 'smooth' or 'winsorized'.")
    ] = "auto",
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Public LOW HIGH that user means are clamped to.")
    ] = None,
    record_cap: Annotated[
        int | None, typer.Option(help="Public cap on the records a user counts for.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Public distance from the centre beyond which a user mean is an outlier."),
    ] = None,
    scale: Annotated[
        list[float] | None,
        typer.Option(help="Public standard deviation of user means; repeat for several columns."),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="Public bound: the mean lies within this distance of 0.")
    ] = None,
    likeness: Annotated[
        float | None,
        typer.Option(
            help="How alike a user's records are: 0, as different as anybody's, to 1, all the same."
        ),
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="Public number of users, about right; for 'add-remove'.")
    ] = None,
    resolution: Annotated[float | None, typer.Option(help="Public step that values are rounded to.")] = None,
    non_finite: Annotated[str, typer.Option(help="'drop' or 'clamp' infinite values.")] = "drop",
    memory_limit: Annotated[str | None, typer.Option(help="Memory for grouping, such as 2GB.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads for grouping.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the release as JSON.")] = False,
) -> None:
    """Release a private mean of a file.

    Nothing need be known about the values; what is known and public, such as --bounds, saves budget.

    [bold]Examples[/bold]: hubermean release trips.parquet --user rider_id --value fare --epsilon 1

    hubermean release trips.parquet --user rider_id --value fare --epsilon 1 --bounds 0 200 --record-cap 50
    """
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
        progress=not as_json,
    )
    if as_json:
        typer.echo(result.to_json(indent=2))
    else:
        print_release(result)
