"""What `release` and `count` share: the arguments of groups, and how a result is printed and written."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import typer

from hubermean.cli.render import print_more, print_release, print_table
from hubermean.errors import InputError, NotRecorded, NotReleased, printable
from hubermean.ingest.groups import read_group_keys
from hubermean.report.file import Destination
from hubermean.report.page import page
from hubermean.types.dry_run import DryRun
from hubermean.types.release import Release
from hubermean.types.release_table import Refusal, ReleaseTable

_LARGEST_WHOLE = 2.0**53
NOT_WRITTEN = 74  # sysexits' EX_IOERR: released and printed, but the report is not there


def make_group_arguments(
    file: str, by: list[str] | None, key: list[str] | None, keys: str | None, max_groups: int | None
) -> dict[str, Any]:
    """Return the keyword arguments of a release by group, from what was typed."""
    if key and keys is not None:
        raise InputError("give --key or --keys, not both")
    if not by:
        if key or keys is not None:
            raise InputError("--key and --keys are for groups; give --by as well")
        return {"by": None, "max_groups": max_groups}
    if key and len(by) > 1:
        raise InputError("with several --by, give the groups in a file, with --keys")
    listed = read_group_keys(keys, by, data=file) if keys is not None else (key or None)
    return {"by": by, "keys": listed, "max_groups": max_groups}


def deliver(
    result: Release | ReleaseTable | DryRun,
    *,
    destination: Destination | None,
    source: str,
    lost: list[str],
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Print a result and write its report; what was charged is written even if nobody reads what is printed."""
    if isinstance(result, DryRun):
        if as_json:
            typer.echo(json.dumps(result.to_dict(), indent=2))
        else:
            print_table("Dry run: no record was read, nothing was charged", ("", ""), result.rows())
        return
    for_people = not (as_json or quiet)
    try:
        if for_people:
            print_release(result, verbose=verbose)
        else:
            text = result.to_json(indent=2) if as_json else _bare(result)
            typer.echo(text, nl=bool(text))
        sys.stdout.flush()
    finally:
        if destination is not None:
            _write_report(result, destination, source=source)
    if for_people:
        page = "--report page.html" if destination is None else printable(str(destination.path))
        print_more(f"{'' if verbose else 'Details: --verbose   '}Report: {page}")
    finish(result, lost)


def _bare(result: Release | ReleaseTable) -> str:
    """Return the values alone, one per line; of a table, one line per group."""
    if isinstance(result, Release):
        return "\n".join(map(_format_value, result.values))
    return "\n".join("\t".join(_format_row(row)) for row in result)


@contextlib.contextmanager
def collect_unrecorded() -> Iterator[list[str]]:
    """Collect the warnings about a release that was charged but that the ledger could not record."""
    lost: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotRecorded)
        yield lost
    for one in caught:
        if issubclass(one.category, NotRecorded):
            lost.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def finish(result: Release | ReleaseTable | DryRun, lost: list[str]) -> None:
    """Exit with an error where the ledger could not record the release, or where every group was refused."""
    if lost:
        typer.echo(f"error: {lost[0]}", err=True)
        raise typer.Exit(NOT_WRITTEN)
    if isinstance(result, ReleaseTable) and len(result) and len(result.refusals) == len(result):
        raise typer.Exit(NotReleased.exit_code)


def _format_row(row: Release | Refusal) -> list[str]:
    """Return the keys of a group and its values; the keys alone where the group was refused."""
    keys = [printable(" ".join(str(key).split())) for key in (row.group or {}).values()]
    return keys if isinstance(row, Refusal) else [*keys, *map(_format_value, row.values)]


def _format_value(value: float) -> str:
    """Format a value with all its digits; a whole number without a point."""
    return f"{value:.0f}" if value == int(value) and abs(value) < _LARGEST_WHOLE else repr(value)


def _write_report(result: Release | ReleaseTable, destination: Destination, *, source: str) -> None:
    """Write the report after the release is printed, so that a full disk does not lose what was charged."""
    path = printable(str(destination.path))
    try:
        destination.write(page(result, source=source))
    except OSError:
        typer.echo(
            f"error: the release is printed above, but no report could be written to {path}; "
            "keep the printed result, since its budget is spent",
            err=True,
        )
        raise typer.Exit(NOT_WRITTEN) from None
