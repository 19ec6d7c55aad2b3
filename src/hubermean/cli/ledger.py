"""`hubermean ledger`: budgets of data sets, opened, looked at, spent, verified and exported."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.text import Text

from hubermean.cli.options import PRIVACY, AsJson, Neighbors, Quiet, check_output, one_of
from hubermean.cli.render import console, print_table
from hubermean.errors import InputError, LedgerDamaged
from hubermean.ledger import Dataset, Ledger
from hubermean.ledger.amounts import Cost
from hubermean.ledger.composition import COMPOSITIONS
from hubermean.ledger.export import charge_lines, exported, plain_entry
from hubermean.readable import number, one_sided, printable
from hubermean.relations import DEFAULT_NEIGHBORS
from hubermean.relations import Neighbors as Relation
from hubermean.report import Destination, ledger_page

ledger = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    help="Budgets of data sets: no release without a committed charge.",
    rich_markup_mode="rich",
)

ROWS_SHOWN = 40

Place = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        envvar="HUBERMEAN_LEDGER",
        show_envvar=False,
        help="A file, or a URL such as postgresql://user@host/database.",
    ),
]
Name = Annotated[str, typer.Option("--dataset", metavar="NAME", help="The data set.")]
NameOrAll = Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="One data set alone.")]


@ledger.command()
def init(
    place: Place,
    dataset: Name,
    epsilon: Annotated[float, typer.Option(metavar="NUMBER", help="Total epsilon.", rich_help_panel=PRIVACY)],
    delta: Annotated[
        float, typer.Option(metavar="NUMBER", help="Total delta.", rich_help_panel=PRIVACY)
    ] = 0.0,
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that identifies a user in all releases; repeat for several. Else the first release decides.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    composition: Annotated[
        str,
        typer.Option(
            metavar="|".join(COMPOSITIONS),
            help="How costs add up: 'basic', or 'concentrated' for many releases (needs --delta).",
            autocompletion=one_of(COMPOSITIONS),
            rich_help_panel=PRIVACY,
        ),
    ] = "basic",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Open a data set with a total that stays as it is; makes the ledger if there is none.

    [bold]Examples[/bold]

      hubermean ledger init budget.sqlite --dataset trips --epsilon 3 \\
        --user rider_id

      hubermean ledger init budget.sqlite --dataset clinic --epsilon 5 \\
        --delta 1e-6 --composition concentrated
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(place) as book:
        book.init(
            dataset,
            epsilon=epsilon,
            delta=delta,
            neighbors=neighbors,
            user=user or None,
            composition=composition,
        )
        opened = book.dataset(dataset)
        if as_json:
            _print_json(opened.to_dict())
        elif not quiet:
            _print_datasets("Opened", [opened])


@ledger.command()
def show(place: Place, dataset: NameOrAll = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """How the data sets stand: totals, what was spent, what is left.

    [bold]Examples[/bold]

      hubermean ledger show budget.sqlite

      hubermean ledger show budget.sqlite --dataset trips --quiet
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(place) as book:
        datasets = book.datasets() if dataset is None else [book.dataset(dataset)]
        if as_json:
            _print_json({"datasets": [one.to_dict() for one in datasets]})
        elif quiet:
            for one in datasets:
                typer.echo(f"{one.name}\t{one.left.to_dict()['loss']}\t{one.left.to_dict()['delta']}")
        elif not datasets:
            console().print("There is no data set in this ledger; open one with hubermean ledger init.")
        else:
            _print_datasets("Budgets", datasets)


@ledger.command()
def spend(
    place: Place,
    dataset: NameOrAll = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="Charge so much.", rich_help_panel="Charge for a release made elsewhere"
        ),
    ] = None,
    delta: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", help="And so much.", rich_help_panel="Charge for a release made elsewhere"
        ),
    ] = 0.0,
    neighbors: Annotated[
        str | None,
        typer.Option(
            metavar="RELATION",
            help="What that release hides; as the data set if left out.",
            autocompletion=one_of(relation.value for relation in Relation),
            rich_help_panel="Charge for a release made elsewhere",
        ),
    ] = None,
    note: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="What it is.", rich_help_panel="Charge for a release made elsewhere"
        ),
    ] = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """What was spent on what. With --epsilon: charge for a release that is made elsewhere, before it is made.

    [bold]Examples[/bold]

      hubermean ledger spend budget.sqlite

      hubermean ledger spend budget.sqlite --dataset trips --epsilon 0.5 \\
        --note histogram
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(place) as book:
        if epsilon is None:
            if delta or note or neighbors:
                raise InputError("to charge something give --epsilon as well (0 if it costs delta alone)")
            _show_charges(book, dataset, as_json=as_json, quiet=quiet)
            return
        if dataset is None:
            raise InputError("name the data set to charge with --dataset")
        standing = book.spend(dataset, epsilon=epsilon, delta=delta, neighbors=neighbors, note=note)
        if as_json:
            _print_json(standing.to_dict())
        elif quiet:
            typer.echo(standing.left.to_dict()["loss"])
        else:
            console().print(Text(f"Charged; {printable(dataset)} has {standing.left_in_words} left."))


@ledger.command()
def verify(
    place: Place,
    anchor: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="A digest that was noted down earlier and must still be there."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Look at every entry: is everything as it was written? Exit code 5 if not.

    The digest of the last entry, noted down where nobody else can write, is an anchor for a later --anchor.

    [bold]Examples[/bold]

      hubermean ledger verify budget.sqlite

      hubermean ledger verify budget.sqlite --anchor 3f0c...
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(place) as book:
        found = book.verify(anchor)
    if as_json:
        _print_json(found.to_dict())
    elif quiet:
        typer.echo("sound" if found.sound else "damaged")
    elif found.sound:
        console().print(Text(f"Sound: {found.entries:,} entries, all as they were written."), style="green")
        console().print(Text(f"The last digest is {found.head}."), soft_wrap=True)
    else:
        console().print(
            Text("Damaged: release nothing against this ledger; go back to a copy."), style="bold red"
        )
        for fault in found.faults:
            console().print(Text(f"  {fault}"), soft_wrap=True)
    if not (as_json or quiet):
        for remark in found.remarks:
            console().print(Text(f"Note: {remark}."), style="dim", soft_wrap=True)
    if not found.sound:
        raise typer.Exit(LedgerDamaged.exit_code)


@ledger.command()
def export(
    place: Place,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A page (.html) or data (.json); JSON on standard output if left out."
        ),
    ] = None,
) -> None:
    """Everything in the ledger, as a page to read or as JSON, with the verdict of verify.

    [bold]Examples[/bold]

      hubermean ledger export budget.sqlite --out budget.html

      hubermean ledger export budget.sqlite > budget.json
    """
    destination = None if out is None else Destination.checked(out, endings=(".html", ".htm", ".json"))
    with Ledger(place) as book:
        content = exported(book)
    if destination is None:
        _print_json(content)
    else:
        as_page = destination.path.suffix.lower() != ".json"
        try:
            destination.write(ledger_page(content) if as_page else json.dumps(content, indent=2) + "\n")
        except OSError:
            raise InputError(
                f"{destination.path} could not be written; make room, or name another file"
            ) from None
        console().print(Text(f"The ledger is in {destination.path}."), soft_wrap=True)
    if not content["verification"]["sound"]:
        typer.echo("error: the ledger is damaged; see hubermean ledger verify", err=True)
        raise typer.Exit(LedgerDamaged.exit_code)


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2))


def _print_datasets(title: str, datasets: list[Dataset]) -> None:
    headings = ("data set", "in", "total", "spent", "left", "hides", "user")
    rows = [
        (
            printable(one.name),
            one.composition.unit + ("; delta" if one.limit.delta > 0 else ""),
            _amounts(one.limit, up=False),
            _amounts(one.spent, up=True, always=one.limit.delta > 0),
            _amounts(one.left, up=False, always=one.limit.delta > 0),
            one.neighbors.value,
            ", ".join(map(printable, one.users)) if one.users else "(by the first release)",
        )
        for one in datasets
    ]
    print_table(title, headings, rows)
    for one in datasets:
        if one.composition.name != "basic":
            epsilon, delta = one.spent_as_epsilon
            come_to = f"epsilon = {one_sided(epsilon, up=True)}, delta = {one_sided(delta, up=True)}"
            total = f"epsilon = {number(one.epsilon)}, delta = {number(one.delta)}"
            told = f"{printable(one.name)}: what was spent comes to {come_to}, of {total}."
            console().print(Text(told), style="dim", soft_wrap=True)


def _amounts(cost: Cost, *, up: bool, always: bool = False) -> str:
    """A loss, and a delta where there is one."""
    loss, delta = (one_sided(one, up=up) for one in (cost.loss, cost.delta))
    return f"{loss}; {delta}" if always or cost.delta > 0 else loss


def _show_charges(book: Ledger, dataset: str | None, *, as_json: bool, quiet: bool) -> None:
    if dataset is not None:
        book.dataset(dataset)  # refuses a name that is not there
    lines = charge_lines(plain_entry(entry) for entry in book.entries(dataset))
    if as_json:
        _print_json({"charges": lines})
        return
    rows = [
        (
            str(line["entry"]),
            line["dataset"],
            line["at"][:16].replace("T", " "),
            *(line[name] for name in ("what", "came_out", "loss", "delta")),
        )
        for line in lines
    ]
    if quiet:
        for row in rows:
            typer.echo("\t".join(row))
        return
    if not rows:
        console().print("Nothing was charged yet.")
        return
    shown = [(row[0], printable(row[1]), *row[2:]) for row in rows[-ROWS_SHOWN:]]
    headings = ("entry", "data set", "when", "what", "came out", "loss", "delta")
    print_table("Charges", headings, shown)
    if len(rows) > ROWS_SHOWN:
        console().print(f"... and {len(rows) - ROWS_SHOWN:,} before them; --json prints all", style="dim")
