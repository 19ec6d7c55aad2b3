"""`hubermean`: the command line, and how it reports errors."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from hubermean._version import __version__
from hubermean.cli.lazy import LazyCommands, make_app
from hubermean.cli.private_run import no_core_dumps
from hubermean.cli.wording import describe_error
from hubermean.errors import BudgetExhausted, HubermeanError, InputError, NotReleased, printable

CLOSED_PIPE = 141  # 128 + SIGPIPE
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
    """Run the command line; an error is one sentence on standard error and an exit code."""
    no_core_dumps()
    _escape_what_cannot_be_written()
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = _end_quietly()
    sys.exit(code)


def _escape_what_cannot_be_written() -> None:
    """Escape letters that a terminal's encoding lacks: a release that is paid for must not be lost in printing it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run() -> int:
    """Return the exit code of a command; BrokenPipeError where nobody reads its output any more."""
    try:
        if sys.argv.count("--bounds") > 1:  # the last pair would silently serve all columns
            raise InputError(
                "give --bounds once, it serves all columns; one pair for each: bounds=[...] in Python"
            )
        return int(app(prog_name="hubermean", standalone_mode=False) or 0)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # which Typer turns into an exit
            raise stop.__context__ from None
        raise
    except HubermeanError as error:
        left = {}
        if isinstance(error, BudgetExhausted):
            left = {"epsilon_left": error.epsilon, "delta_left": error.delta}
        elif isinstance(error, NotReleased):
            left = {"epsilon_spent": error.epsilon, "delta_spent": error.delta}
        return _refuse(describe_error(error), error.exit_code, **left)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - its text might quote data, so only its location is shown
        if hasattr(error, "format_message"):  # of Typer: what was typed cannot be understood
            return _refuse_usage(error)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return _refuse(
            f"hubermean failed ({type(error).__name__} in {frame.name}, line {frame.lineno}); "
            "consider the budget spent, and please report this",
            INTERNAL_ERROR,
        )


def _refuse(reason: str, exit_code: int, **more: float) -> int:
    """Print why there is no result, as JSON too where that was typed, and return the exit code."""
    if "--json" in sys.argv:
        typer.echo(json.dumps({"released": False, "reason": reason, **more}))
    typer.echo(f"error: {reason}", err=True)
    return exit_code


def _refuse_usage(error: Any) -> int:
    """Print what is wrong with what was typed; the help where nothing was."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return InputError.exit_code
    command = "hubermean" if context is None else context.command_path
    message = printable(" ".join(error.format_message().split())).rstrip(".")
    option = next(iter(getattr(getattr(error, "param", None), "opts", [])), "")
    for kind in ("number", "integer"):
        if option.startswith("-") and f"valid {kind}" in message:
            message = f"{option} must be a {'whole ' if kind == 'integer' else ''}number"
    if message.startswith("Missing ") and getattr(error, "param", None) is not None:
        name = option if option.startswith("-") else error.param.metavar
        message = f"give {name} ({error.param.help.partition('.')[0]})"
    if message.startswith("Got unexpected extra argument"):
        message += "; quote a pattern such as '*.csv', and give --bounds two numbers"
    if message.startswith("No such command") and "." in message:
        message += "; to read a file, type hubermean release FILE"
    return _refuse(f"{message[:1].lower()}{message[1:]}; see {command} --help", InputError.exit_code)


def _end_quietly() -> int:
    """Write nothing more, since nobody reads it, and return what a shell reports for a closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE
