"""What `release` and `count` share: which groups are asked for, and how an answer is printed and written."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import typer
from rich.text import Text

from hubermean.cli.render import console, print_release, print_release_table
from hubermean.errors import InputError, NotRecorded, NotReleased
from hubermean.ingest import keys_from_file
from hubermean.readable import printable
from hubermean.release import Release
from hubermean.release_table import Refusal, ReleaseTable
from hubermean.report import Destination, page

_LARGEST_WHOLE = 2.0**53
NOT_WRITTEN = 74  # sysexits' EX_IOERR: released and printed, but the report is not there


def groups(
    file: str, by: list[str] | None, key: list[str] | None, keys: str | None, max_groups: int
) -> dict[str, Any]:
    """The arguments of a release by group."""
    if key and keys is not None:
        raise InputError("give --key or --keys, not both")
    if not by:
        if key or keys is not None:
            raise InputError("--key and --keys are for groups; give --by as well")
        return {"by": None, "max_groups": max_groups}
    if key and len(by) > 1:
        raise InputError("with several --by, give the groups in a file, with --keys")
    listed = keys_from_file(keys, by, data=file) if keys is not None else (key or None)
    return {"by": by, "keys": listed, "max_groups": max_groups}


def show(result: Release | ReleaseTable, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(result.to_json(indent=2))
    elif quiet:
        if isinstance(result, Release):
            typer.echo("\n".join(map(_plain, result.values)))
        else:
            for row in result:
                typer.echo("\t".join(_bare(row)))
    elif isinstance(result, Release):
        print_release(result)
    else:
        print_release_table(result)


@contextlib.contextmanager
def unrecorded() -> Iterator[list[str]]:
    """What is said of a release that was paid for but that the ledger could not keep; empty if it could."""
    lost: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotRecorded)
        yield lost
    for one in caught:
        if issubclass(one.category, NotRecorded):
            lost.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def finish(result: Release | ReleaseTable, lost: list[str]) -> None:
    """Exit as one release would that was refused, where all groups were; or as one that was not kept."""
    if lost:
        typer.echo(f"error: {lost[0]}", err=True)
        raise typer.Exit(NOT_WRITTEN)
    if isinstance(result, ReleaseTable) and len(result) and len(result.refusals) == len(result):
        raise typer.Exit(NotReleased.exit_code)


def _bare(row: Release | Refusal) -> list[str]:
    """The keys of a group and its values; nothing after the keys where none were released."""
    keys = [printable(" ".join(str(key).split())) for key in (row.group or {}).values()]
    return keys if isinstance(row, Refusal) else [*keys, *map(_plain, row.values)]


def _plain(value: float) -> str:
    """All digits, and none after the point where there are none to show."""
    return f"{value:.0f}" if value == int(value) and abs(value) < _LARGEST_WHOLE else repr(value)


def write_report(
    result: Release | ReleaseTable, destination: Destination, *, source: str, announce: bool
) -> None:
    """The page, once the release is printed: what was paid for is not lost with it."""
    path = printable(str(destination.path))
    try:
        destination.write(page(result, source=source))
    except OSError:
        typer.echo(
            f"error: the answer is released and printed above, but no report could be written to {path}; "
            "keep what is printed, since the budget is spent",
            err=True,
        )
        raise typer.Exit(NOT_WRITTEN) from None
    if announce:
        console().print(Text(f"The report is in {path}."), soft_wrap=True)
