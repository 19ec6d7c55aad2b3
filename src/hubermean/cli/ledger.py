"""`hubermean ledger`: open, show, charge, verify and export the budgets of data sets."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.text import Text

from hubermean.cli.options import PRIVACY, AsJson, Neighbors, Quiet, check_output, one_of
from hubermean.cli.render import console, print_table
from hubermean.errors import InputError, LedgerDamaged, printable
from hubermean.ledger.amounts import Cost
from hubermean.ledger.composition import COMPOSITIONS
from hubermean.ledger.dataset import Dataset
from hubermean.release.ledger import Ledger
from hubermean.report.file import Destination
from hubermean.report.ledger_export import export_entry, export_ledger, list_charges
from hubermean.report.ledger_page import ledger_page
from hubermean.types.formatting import number, one_sided
from hubermean.types.request import DEFAULT_NEIGHBORS
from hubermean.types.request import Neighbors as Relation

ledger = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    add_completion=False,
    help="Privacy budgets of data sets: every release is charged before it is computed.",
    rich_markup_mode="rich",
)

ROWS_SHOWN = 40

Location = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        envvar="HUBERMEAN_LEDGER",
        show_envvar=False,
        help="A file, or a URL such as postgresql://user@host/database.",
    ),
]
Name = Annotated[str, typer.Option("--dataset", metavar="NAME", help="The data set.")]
ByWhom = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who asks, as the ledger shows it; by default the system's user."),
]
NameOrAll = Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="Only this data set.")]


@ledger.command()
def init(
    location: Location,
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
            help="Column that identifies a user in all releases; repeat for several. Default: as in the first release.",
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
    by_whom: ByWhom = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Open a data set with a fixed total budget; creates the ledger if there is none.

    [bold]Examples[/bold]

      hubermean ledger init budget.sqlite --dataset trips --epsilon 3 \\
        --user rider_id

      hubermean ledger init budget.sqlite --dataset clinic --epsilon 5 \\
        --delta 1e-6 --composition concentrated
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(location) as book:
        book.init(
            dataset,
            epsilon=epsilon,
            delta=delta,
            neighbors=neighbors,
            user=user or None,
            composition=composition,
            by_whom=by_whom,
        )
        opened = book.dataset(dataset)
        if as_json:
            _print_json(opened.to_dict())
        elif not quiet:
            _print_datasets("Opened", [opened])


@ledger.command()
def show(
    location: Location, dataset: NameOrAll = None, as_json: AsJson = False, quiet: Quiet = False
) -> None:
    """Show the budgets of data sets: total, spent and left.

    [bold]Examples[/bold]

      hubermean ledger show budget.sqlite

      hubermean ledger show budget.sqlite --dataset trips --quiet
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(location) as book:
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
    location: Location,
    dataset: NameOrAll = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="Epsilon to charge.", rich_help_panel="Charge for a release made elsewhere"
        ),
    ] = None,
    delta: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", help="Delta to charge.", rich_help_panel="Charge for a release made elsewhere"
        ),
    ] = 0.0,
    neighbors: Annotated[
        str | None,
        typer.Option(
            metavar="RELATION",
            help="Neighbor relation of that release; by default that of the data set.",
            autocompletion=one_of(relation.value for relation in Relation),
            rich_help_panel="Charge for a release made elsewhere",
        ),
    ] = None,
    note: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="What was released.", rich_help_panel="Charge for a release made elsewhere"
        ),
    ] = "",
    by_whom: ByWhom = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List what the budget was spent on. With --epsilon, charge for a release made with other software.

    Charge before you make that release.

    [bold]Examples[/bold]

      hubermean ledger spend budget.sqlite

      hubermean ledger spend budget.sqlite --dataset trips --epsilon 0.5 \\
        --note histogram
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(location) as book:
        if epsilon is None:
            if delta or note or neighbors or by_whom:
                raise InputError("a charge needs --epsilon as well (0 if it costs only delta)")
            _show_charges(book, dataset, as_json=as_json, quiet=quiet)
            return
        if dataset is None:
            raise InputError("give the data set to charge with --dataset")
        budget = book.spend(
            dataset, epsilon=epsilon, delta=delta, neighbors=neighbors, note=note, by_whom=by_whom
        )
        if as_json:
            _print_json(budget.to_dict())
        elif quiet:
            typer.echo(budget.left.to_dict()["loss"])
        else:
            console().print(Text(f"Charged. {printable(dataset)} has {budget.left_in_words} left."))


@ledger.command()
def verify(
    location: Location,
    anchor: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST", help="Digest from an earlier verification, which must still be in the ledger."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check that no entry was altered, removed or moved. Exit code 5 if one was.

    Keep the printed digest where nobody else can write: as --anchor, it later proves that nothing was rewritten.

    [bold]Examples[/bold]

      hubermean ledger verify budget.sqlite

      hubermean ledger verify budget.sqlite --anchor 3f0c...
    """
    check_output(as_json=as_json, quiet=quiet)
    with Ledger(location) as book:
        found = book.verify(anchor)
    if as_json:
        _print_json(found.to_dict())
    elif quiet:
        typer.echo("sound" if found.sound else "damaged")
    elif found.sound:
        console().print(
            Text(f"Sound: all {found.entries:,} entries match their digests and follow from one another."),
            style="green",
        )
        console().print(Text(f"The digest of the last entry is {found.head}."), soft_wrap=True)
    else:
        console().print(
            Text("Damaged: release nothing against this ledger; restore a backup."), style="bold red"
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
    location: Location,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A page (.html) or data (.json); by default JSON on standard output."
        ),
    ] = None,
) -> None:
    """Export the whole ledger as a page or as JSON, with the result of verify.

    [bold]Examples[/bold]

      hubermean ledger export budget.sqlite --out budget.html

      hubermean ledger export budget.sqlite > budget.json
    """
    destination = None if out is None else Destination.checked(out, endings=(".html", ".htm", ".json"))
    with Ledger(location) as book:
        content = export_ledger(book)
    if destination is None:
        _print_json(content)
    else:
        as_page = destination.path.suffix.lower() != ".json"
        try:
            destination.write(ledger_page(content) if as_page else json.dumps(content, indent=2) + "\n")
        except OSError:
            raise InputError(
                f"{destination.path} could not be written; free some space, or choose another file"
            ) from None
        console().print(Text(f"Exported the ledger to {destination.path}."), soft_wrap=True)
    if not content["verification"]["sound"]:
        typer.echo("error: the ledger is damaged; run hubermean ledger verify", err=True)
        raise typer.Exit(LedgerDamaged.exit_code)


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2))


def _print_datasets(title: str, datasets: list[Dataset]) -> None:
    headings = ("data set", "unit", "total", "spent", "left", "neighbors", "user")
    rows = [
        (
            printable(one.name),
            one.composition.unit + ("; delta" if one.limit.delta > 0 else ""),
            _format_amounts(one.limit, up=False),
            _format_amounts(one.spent, up=True, always=one.limit.delta > 0),
            _format_amounts(one.left, up=False, always=one.limit.delta > 0),
            one.neighbors.value,
            ", ".join(map(printable, one.users)) if one.users else "(set by the first release)",
        )
        for one in datasets
    ]
    print_table(title, headings, rows)
    for one in datasets:
        if one.composition.name != "basic":
            epsilon, delta = one.spent_as_epsilon
            converted = f"epsilon = {one_sided(epsilon, up=True)}, delta = {one_sided(delta, up=True)}"
            total = f"epsilon = {number(one.epsilon)}, delta = {number(one.delta)}"
            sentence = f"{printable(one.name)}: spent {converted}, of {total}."
            console().print(Text(sentence), style="dim", soft_wrap=True)


def _format_amounts(cost: Cost, *, up: bool, always: bool = False) -> str:
    """Return a loss, and a delta if there is one, as text."""
    loss, delta = (one_sided(one, up=up) for one in (cost.loss, cost.delta))
    return f"{loss}; {delta}" if always or cost.delta > 0 else loss


def _show_charges(book: Ledger, dataset: str | None, *, as_json: bool, quiet: bool) -> None:
    if dataset is not None:
        book.dataset(dataset)  # refuses an unknown name
    lines = list_charges(export_entry(book, entry) for entry in book.entries(dataset))
    if as_json:
        _print_json({"charges": lines})
        return
    rows = [
        (
            str(line["entry"]),
            line["dataset"],
            line["at"][:16].replace("T", " "),
            *(line[name] for name in ("by_whom", "what", "outcome", "loss", "delta")),
        )
        for line in lines
    ]
    if quiet:
        for row in rows:
            typer.echo("\t".join(row))
        return
    if not rows:
        console().print("Nothing has been charged yet.")
        return
    shown = [(row[0], printable(row[1]), *row[2:]) for row in rows[-ROWS_SHOWN:]]
    headings = ("entry", "data set", "when", "by whom", "what", "outcome", "loss", "delta")
    # What all rows have in common takes no room.
    common = {1} if len({row[1] for row in shown}) == 1 else set()
    common |= {7} if all(row[7] == "0" for row in shown) else set()
    kept = [position for position in range(len(headings)) if position not in common]
    title = f"Charges of {shown[0][1]}" if 1 in common else "Charges"
    print_table(
        title,
        [headings[position] for position in kept],
        [[row[position] for position in kept] for row in shown],
    )
    if len(rows) > ROWS_SHOWN:
        console().print(f"... and {len(rows) - ROWS_SHOWN:,} earlier charges; --json prints all", style="dim")
