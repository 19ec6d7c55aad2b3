"""`hubermean demo`: a release of made-up data, beside its true mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from hubermean import _api as api
from hubermean.cli.example_trips import CITIES, RIDERS, example_trips
from hubermean.cli.options import OUTPUT, PRIVACY, AsJson
from hubermean.cli.render import console, print_release
from hubermean.errors import InputError
from hubermean.types.release import Release

MADE_UP = "made-up data about nobody, so its true mean may be shown"
FILE = "trips.parquet"


def demo(
    epsilon: Annotated[
        float, typer.Option(metavar="NUMBER", help="Privacy budget epsilon.", rich_help_panel=PRIVACY)
    ] = 1.0,
    save: Annotated[
        str | None,
        typer.Option(
            metavar=FILE,
            help="Also save the made-up trips as a Parquet file.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Release a private mean of made-up trips, beside the true one.

    [bold]Examples[/bold]

      hubermean demo

      hubermean demo --epsilon 0.5

      hubermean demo --save trips.parquet
    """
    trips = example_trips()
    if save is not None:
        _save(trips, Path(save))
    release = api.mean(trips, user="rider_id", value="fare", epsilon=epsilon)
    truth = float(trips["fare"].to_numpy().mean())
    if as_json:
        typer.echo(json.dumps({**release.to_dict(), "data": MADE_UP, "true_mean": truth}, indent=2))
        return
    _explain(release, truth, records=trips.num_rows, saved=save)


def _save(trips: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    if path.suffix != ".parquet":
        raise InputError(f"trips are saved as Parquet: name a file such as {FILE}, not {path.name!r}")
    if path.exists():
        raise InputError(f"{path} exists already; name another file")
    try:
        pq.write_table(trips, path)
    except OSError:
        raise InputError(f"{path} cannot be written; name another file") from None


def _explain(release: Release, truth: float, *, records: int, saved: str | None) -> None:
    out = console()

    def say(words: str, style: str = "") -> None:
        out.print(Text(words, style=style))

    say(f"{records:,} trips of {RIDERS:,} riders in {len(CITIES)} cities. This is {MADE_UP}.")
    print_release(release)
    say(
        f"\nTrue mean of all fares: {truth:.2f}. A release never shows it; compare it with the private mean.",
        "bold",
    )
    say(
        "Some riders took hundreds of trips, but the result hides whether any one rider is in the data. Run it again "
        "to see fresh noise, or try --epsilon 0.3 for a stronger guarantee."
    )
    if saved is None:
        say("\nNext, save the trips to a file:")
        _print_command(f"hubermean demo --save {FILE}")
        saved = FILE
    else:
        say(f"\nThe trips are in {saved}. Next:")
    _print_command(f"hubermean release {saved} --user rider_id --value fare --epsilon 1 --report fare.html")


def _print_command(line: str) -> None:
    """Print a command on one line, however narrow the terminal, so that it can be copied."""
    console().print(Text(f"  {line}", style="bold"), soft_wrap=True)
