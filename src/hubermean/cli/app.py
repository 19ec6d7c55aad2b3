"""`hubermean`: the commands, and what becomes of an error."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Annotated

import typer

from hubermean._version import __version__
from hubermean.cli.audit import audit
from hubermean.cli.check import check
from hubermean.cli.count import count
from hubermean.cli.demo import demo
from hubermean.cli.doctor import doctor
from hubermean.cli.ledger import ledger
from hubermean.cli.plan import plan
from hubermean.cli.private_run import no_core_dumps
from hubermean.cli.release import release
from hubermean.cli.reproduce import reproduce
from hubermean.cli.wording import spoken
from hubermean.errors import BudgetExhausted, HubermeanError, InputError

INTERNAL_ERROR = 70  # sysexits' EX_SOFTWARE: a bug of ours, not of the input

app = typer.Typer(
    name="hubermean",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(release)
app.command()(count)
app.command()(plan)
app.command()(audit)
app.add_typer(ledger)
app.command()(reproduce)
app.command()(check)
app.command()(doctor)
app.command()(demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hubermean {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Means that are differentially private for whole people.

    [bold]A first look[/bold]

      hubermean demo
    """


def main() -> None:
    """Run the command line; every error of ours is one sentence and an exit code that means something."""
    no_core_dumps()
    try:
        if sys.argv.count("--bounds") > 1:  # the last pair would silently serve all columns
            raise InputError(
                "give --bounds once, it serves all columns; one pair for each: bounds=[...] in Python"
            )
        app()
    except SystemExit as stop:
        if stop.code == InputError.exit_code and "--json" in sys.argv:  # the words are on standard error
            typer.echo(json.dumps({"released": False, "reason": "wrong usage; see hubermean --help"}))
        raise
    except HubermeanError as error:
        reason = spoken(str(error), sys.argv[1:])
        if "--json" in sys.argv:
            left = {}
            if isinstance(error, BudgetExhausted):
                left = {"epsilon_left": error.epsilon, "delta_left": error.delta}
            typer.echo(json.dumps({"released": False, "reason": reason, **left}))
        typer.echo(f"error: {reason}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - its text might quote data, so only the place is shown
        place = traceback.extract_tb(error.__traceback__)[-1]
        typer.echo(
            f"error: hubermean failed ({type(error).__name__} in {place.name}, line {place.lineno}); "
            "take the budget as spent, and please report this",
            err=True,
        )
        sys.exit(INTERNAL_ERROR)
