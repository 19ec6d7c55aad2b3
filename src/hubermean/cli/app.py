"""`hubermean`: the command line, and how it reports errors."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Annotated

import typer

from hubermean._version import __version__
from hubermean.cli.lazy import LazyCommands, make_app
from hubermean.cli.private_run import no_core_dumps
from hubermean.cli.wording import describe_error
from hubermean.errors import BudgetExhausted, HubermeanError, InputError, NotReleased

INTERNAL_ERROR = 70  # sysexits' EX_SOFTWARE: a bug of ours, not of the input

app = make_app(name="hubermean", cls=LazyCommands)


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
    """Release means that are differentially private for whole users.

    [bold]Try it[/bold]

      hubermean demo
    """


def main() -> None:
    """Run the command line; an error is one line on standard error and an exit code."""
    no_core_dumps()
    try:
        if sys.argv.count("--bounds") > 1:  # the last pair would silently serve all columns
            raise InputError(
                "give --bounds once, it serves all columns; one pair for each: bounds=[...] in Python"
            )
        app()
    except SystemExit as stop:
        if stop.code == InputError.exit_code and "--json" in sys.argv:  # the message is on standard error
            typer.echo(json.dumps({"released": False, "reason": "wrong usage; see hubermean --help"}))
        raise
    except HubermeanError as error:
        reason = describe_error(error)
        if "--json" in sys.argv:
            left = {}
            if isinstance(error, BudgetExhausted):
                left = {"epsilon_left": error.epsilon, "delta_left": error.delta}
            elif isinstance(error, NotReleased):
                left = {"epsilon_spent": error.epsilon, "delta_spent": error.delta}
            typer.echo(json.dumps({"released": False, "reason": reason, **left}))
        typer.echo(f"error: {reason}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - its text might quote data, so only its location is shown
        frame = traceback.extract_tb(error.__traceback__)[-1]
        typer.echo(
            f"error: hubermean failed ({type(error).__name__} in {frame.name}, line {frame.lineno}); "
            "consider the budget spent, and please report this",
            err=True,
        )
        sys.exit(INTERNAL_ERROR)
