"""`hubermean check`: a look at the data by its owner, outside any privacy promise."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Annotated, Any

import typer

from hubermean.cli.options import DATA, AsJson, File
from hubermean.cli.private_run import private_run
from hubermean.cli.render import print_table
from hubermean.ingest.inspect import UnsafeInspection, unsafe_inspection

WARNING = (
    "NOT PRIVATE: these numbers come straight from the data; do not publish them or tune a release on them."
)


def check(
    file: File,
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that identifies a user; repeat for several.",
            rich_help_panel=DATA,
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to look at; repeat for several.", rich_help_panel=DATA),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at a file before releasing from it. [bold]Not private[/bold]: for the data's owner only.

    [bold]Examples[/bold]

      hubermean check trips.parquet

      hubermean check trips.parquet --user rider_id --value fare
    """
    with private_run():
        seen = unsafe_inspection(file, user=user or None, value=value or [])
    if as_json:
        shown = {"private": False, **_finite(dataclasses.asdict(seen))}
        typer.echo(json.dumps(shown, indent=2, default=str, allow_nan=False))
        return
    typer.secho(WARNING, fg="red", bold=True)
    print_table("Columns", ("column", "type"), seen.columns)
    print_table("Records", ("", ""), _counts(seen))
    for column in seen.values:
        rows = [
            ("unusable values (null, NaN, infinite, not a number)", f"{column.unusable:,}"),
            ("smallest, median, largest", _numbers((column.minimum, column.median, column.maximum))),
        ]
        if column.user_means is not None:
            rows.append(("user means: smallest, 1%, median, 99%, largest", _numbers(column.user_means)))
        print_table(f"Values of {column.name}", ("", ""), rows)


def _counts(seen: UnsafeInspection) -> list[tuple[str, str]]:
    rows = [("records", f"{seen.records:,}")]
    if seen.records_without_user is not None:
        rows.append(("records without a user (dropped)", f"{seen.records_without_user:,}"))
    if seen.users is not None:
        rows.append(("users", f"{seen.users:,}"))
    if seen.records_per_user is not None:
        spread = ", ".join(f"{number:,}" for number in seen.records_per_user)
        rows.append(("records per user: fewest, median, 90%, 99%, most", spread))
    return rows


def _numbers(numbers: tuple[float | None, ...]) -> str:
    return ", ".join("-" if number is None else f"{number:.6g}" for number in numbers)


def _finite(shown: Any) -> Any:
    """The same with null for numbers that JSON cannot write."""
    if isinstance(shown, dict):
        return {key: _finite(value) for key, value in shown.items()}
    if isinstance(shown, list | tuple):
        return [_finite(value) for value in shown]
    return None if isinstance(shown, float) and not math.isfinite(shown) else shown
