"""`hubermean reproduce`: run the paper's figures again, with every method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from hubermean.cli.options import DATA, OUTPUT, Quiet, one_of
from hubermean.cli.render import console
from hubermean.errors import InputError

if TYPE_CHECKING:
    from hubermean_experiments.figures.data import Extract
    from hubermean_experiments.figures.panels import PanelPoint

FIGURES = ("1", *(f"1{letter}" for letter in "abcdefgh"), "2", *(f"2{letter}" for letter in "abcd"))
INTERRUPTED = 130


def reproduce(
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="1a",
            help="A panel (1a to 1h, 2a to 2d) or a figure (1, 2); repeat for several. All by default.",
            autocompletion=one_of(FIGURES),
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few points and draws: rough results in minutes.")
    ] = False,
    jobs: Annotated[int, typer.Option(metavar="NUMBER", help="Number of parallel processes.")] = 2,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Random seed; the same seed gives the same results.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the results; default 'reproduction', or 'reproduction-quick' with --quick.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    ipums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="IPUMS extract for the income panels: DDI codebook (.xml), data file, or table with INCTOT, INCWAGE.",
            rich_help_panel=DATA,
        ),
    ] = None,
    ddi: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="DDI codebook, if it is not next to the extract.", rich_help_panel=DATA
        ),
    ] = None,
    ipums_user: Annotated[
        str,
        typer.Option(
            metavar="person|household",
            help="Draw the records of a simulated user from all persons, or from one household.",
            autocompletion=one_of(("person", "household")),
            rich_help_panel=DATA,
        ),
    ] = "person",
    quiet: Quiet = False,
) -> None:
    """Run the figures of Zhao et al. (2024) again: both methods as printed and made private, and all baselines.

    A run that was interrupted continues where it stopped when you give the same command again.

    [bold]Examples[/bold]

      hubermean reproduce --quick

      hubermean reproduce --figure 1c --figure 2 --out figures

      hubermean reproduce --figure 1g --ipums usa_00001.xml
    """
    # Imported on use: no other command needs them.
    from hubermean_experiments.figures.claims import check_claims
    from hubermean_experiments.figures.panels import FULL, QUICK
    from hubermean_experiments.figures.reproduction import Reproduction
    from hubermean_experiments.figures.run import estimate_seconds

    folder = out or Path("reproduction-quick" if quick else "reproduction")
    extract = _extract(ipums, ddi, ipums_user)
    try:
        reproduction = Reproduction(
            figure or (),
            effort=QUICK if quick else FULL,
            folder=folder,
            seed=seed,
            jobs=jobs,
            extract=extract,
        )
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[points]} points"),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
            disable=quiet or not console(stderr=True).is_terminal,
        ) as bar:
            total, found = len(reproduction.points), 0
            task = bar.add_task(
                "running",
                total=sum(estimate_seconds(point) for point in reproduction.points),
                points=f"0 of {total}",
            )

            def done(point: PanelPoint) -> None:
                nonlocal found
                found += 1
                bar.update(task, advance=estimate_seconds(point), points=f"{found} of {total}")

            reproduction.run(done)
            bar.update(task, description="drawing")
            results = reproduction.publish()
    except KeyboardInterrupt:
        typer.echo(
            f"stopped; finished points are in {folder}, and the same command continues from there", err=True
        )
        raise typer.Exit(INTERRUPTED) from None
    if quiet:
        typer.echo(str(folder / "RESULTS.md"))
        return
    shown = Table(box=box.ROUNDED, title="Claims of the paper", title_justify="left", title_style="bold")
    for heading in ("panel", "claim", "verdict"):
        shown.add_column(heading, overflow="fold")
    for claim in check_claims(results):
        style = {"holds": "green", "does not hold": "red"}.get(claim.verdict, "yellow")
        verdict = Text(claim.verdict, style=style)
        shown.add_row(Text(claim.name), Text(claim.says), verdict.append(_more(claim.qualifier), style="dim"))
    screen = console()
    if shown.row_count:
        screen.print(shown)
    screen.print(
        Text(f"Pages, plots and CSV files are in {folder}; start with {folder / 'RESULTS.md'}"),
        soft_wrap=True,
    )


def _more(qualifier: str) -> str:
    return f", {qualifier}" if qualifier else ""


def _extract(path: Path | None, ddi: Path | None, user: str) -> Extract | None:
    from hubermean_experiments.figures.data import Extract

    if path is None:
        if ddi is not None or user != "person":
            raise InputError("--ddi and --ipums-user describe an extract; name it with --ipums")
        return None
    if user not in ("person", "household"):
        raise InputError(f"--ipums-user must be 'person' or 'household', not {user!r}")
    return Extract(path=path, ddi=ddi, user="person" if user == "person" else "household")
