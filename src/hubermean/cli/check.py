"""`hubermean check`: statistics of a file for its owner, outside any privacy guarantee."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Annotated, Any

import typer

from hubermean.cli.options import DATA, AsJson, File
from hubermean.cli.private_run import private_run
from hubermean.cli.render import print_table
from hubermean.ingest.inspection import UnsafeInspection, unsafe_inspection

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
        typer.Option(metavar="COLUMN", help="Column to inspect; repeat for several.", rich_help_panel=DATA),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Inspect a file before releasing from it. [bold]Not private[/bold]: for the data's owner only.

    [bold]Examples[/bold]

      hubermean check trips.parquet

      hubermean check trips.parquet --user rider_id --value fare
    """
    with private_run():
        seen = unsafe_inspection(file, user=user or None, value=value or [])
    if as_json:
        shown = {"private": False, **_replace_non_finite(dataclasses.asdict(seen))}
        typer.echo(json.dumps(shown, indent=2, default=str, allow_nan=False))
        return
    typer.secho(WARNING, fg="red", bold=True)
    print_table("Columns", ("column", "type"), seen.columns)
    print_table("Records", ("", ""), _format_counts(seen))
    for column in seen.values:
        rows = [
            ("unusable values (null, NaN, infinite, not a number)", f"{column.unusable:,}"),
            ("smallest, median, largest", _format_numbers((column.minimum, column.median, column.maximum))),
        ]
        if column.user_means is not None:
            rows.append(
                ("user means: smallest, 1%, median, 99%, largest", _format_numbers(column.user_means))
            )
        print_table(f"Values of {column.name}", ("", ""), rows)


def _format_counts(seen: UnsafeInspection) -> list[tuple[str, str]]:
    rows = [("records", f"{seen.records:,}")]
    if seen.records_without_user is not None:
        rows.append(("records without a user (dropped)", f"{seen.records_without_user:,}"))
    if seen.users is not None:
        rows.append(("users", f"{seen.users:,}"))
    if seen.records_per_user is not None:
        counts = ", ".join(f"{number:,}" for number in seen.records_per_user)
        rows.append(("records per user: fewest, median, 90%, 99%, most", counts))
    return rows


def _format_numbers(numbers: tuple[float | None, ...]) -> str:
    return ", ".join("-" if number is None else f"{number:.6g}" for number in numbers)


def _replace_non_finite(shown: Any) -> Any:
    """Replace numbers that JSON cannot write by null."""
    if isinstance(shown, dict):
        return {key: _replace_non_finite(value) for key, value in shown.items()}
    if isinstance(shown, list | tuple):
        return [_replace_non_finite(value) for value in shown]
    return None if isinstance(shown, float) and not math.isfinite(shown) else shown
