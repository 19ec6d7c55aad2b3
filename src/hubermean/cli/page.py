"""`hubermean app`: a page in the browser that plans, releases and accounts."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hubermean.app.settings import DEFAULT_HOST, DEFAULT_PORT, DEFAULT_STATE, Settings
from hubermean.cli.example_trips import example_trips
from hubermean.cli.options import DATA, LEDGER
from hubermean.cli.private_run import private_run
from hubermean.cli.render import console
from hubermean.errors import InputError, parameter, printable
from hubermean.release.charging import ENVIRONMENT
from hubermean.release.ledger import Ledger

if TYPE_CHECKING:
    from hubermean.app.server import Server

ACCESS = "Access"
DEMO_EPSILON, DEMO_DELTA = 5.0, 1e-5
_FILE = "trips.parquet"


def app(
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder whose tables can be chosen; by default the current one.",
            rich_help_panel=DATA,
        ),
    ] = None,
    connection: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Database whose tables can be chosen; repeat for several.",
            envvar="HUBERMEAN_CONNECTION",
            rich_help_panel=DATA,
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Use made-up trips and a new ledger.", rich_help_panel=DATA),
    ] = False,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="LEDGER",
            help="File or postgresql:// URL of the ledger; by default a file in the folder of --state.",
            envvar=ENVIRONMENT["ledger"],
            rich_help_panel=LEDGER,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for what the page keeps; by default ./hubermean-app.",
            rich_help_panel=LEDGER,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen at.", rich_help_panel=ACCESS),
    ] = DEFAULT_HOST,
    port: Annotated[
        int,
        typer.Option(metavar="PORT", help="Port to listen at; 0 for any free one.", rich_help_panel=ACCESS),
    ] = DEFAULT_PORT,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Name under which browsers reach the page, where it is not the address; repeat for several.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of access tokens, a role, a name and a token per line; made where there is none. "
            "By default new tokens at each start.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
) -> None:
    """Open a page in the browser that plans, releases and accounts.

    It prints one link for a steward, who may open budgets, and one for an analyst, who may not. Press Ctrl+C to end it.

    [bold]Examples[/bold]

      hubermean app --demo

      hubermean app --data tables

      hubermean app --data tables --ledger postgresql://ana@db/budgets \\
        --tokens tokens.txt
    """
    make_server = _import_server()
    with contextlib.ExitStack() as stack:
        if demo:
            if data is not None or connection or ledger is not None or state is not None:
                raise InputError(
                    f"{parameter('demo')} has its own table and ledger; leave out {parameter('data')}, "
                    f"{parameter('connection')}, {parameter('ledger')} and {parameter('state')}, and unset "
                    f"{ENVIRONMENT['ledger']}"
                )
            data, state = stack.enter_context(_make_demo())
        folder = state or Path(DEFAULT_STATE)
        server = make_server(
            Settings(
                folder=data or Path(),
                ledger=ledger or str(folder / "budget.sqlite"),
                state=folder,
                connections=tuple(connection or ()),
                host=host,
                port=port,
                names=tuple(name or ()),
                tokens=tokens,
            )
        )
        _print_links(server, demo=demo, tokens=tokens)
        with private_run():  # SIGTERM ends it as Ctrl+C does, after the releases that are running
            server.run()


def _import_server() -> type[Server]:
    try:
        from hubermean.app.server import Server
    except ImportError as missing:
        if (missing.name or "").startswith("hubermean"):
            raise
        raise InputError("the page needs more packages; run pip install 'hubermean[app]'") from None
    return Server


@contextlib.contextmanager
def _make_demo() -> Iterator[tuple[Path, Path]]:
    """Make a folder with made-up trips and a ledger with a budget for them; both go when the page ends."""
    import pyarrow.parquet as pq

    from hubermean.app.state import Assignment, State

    with tempfile.TemporaryDirectory(prefix="hubermean-demo-") as place:
        data, state = Path(place) / "data", Path(place) / "state"
        data.mkdir()
        pq.write_table(example_trips(), data / _FILE)
        kept = State(state)
        kept.assign(Assignment(table=f"file:{_FILE}", dataset="trips"))
        kept.close()
        with Ledger(state / "budget.sqlite") as book:
            book.init("trips", epsilon=DEMO_EPSILON, delta=DEMO_DELTA, user="rider_id")
        yield data, state


def _print_links(server: Server, *, demo: bool, tokens: Path | None) -> None:
    out = console()

    def say(text: str, style: str = "") -> None:
        out.print(Text(text, style=style), soft_wrap=True)

    say(f"hubermean is at {server.address}" + (", with made-up trips about nobody." if demo else "."))
    if tokens is None:
        say("Open one of these links. Whoever has a link can use it until this program ends.\n")
        for role, person, link in server.links():
            say(f"  {printable(person if person == role else f'{person} ({role})'):<10}{link}", "bold")
    else:
        people = ", ".join(f"{printable(person)} ({role})" for role, person, _ in server.links())
        say(
            f"The tokens of {people} are in {printable(str(tokens))}; add one to {server.address}/enter?token="
        )
    if not server.settings.is_local:
        say(
            "\nOther machines can connect, and this address is not encrypted. Put a proxy with HTTPS in front of it.",
            "bold red",
        )
    say("\nPress Ctrl+C to end it.")
