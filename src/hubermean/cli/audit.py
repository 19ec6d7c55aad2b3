"""`hubermean audit`: the worst pair of neighboring data sets that a search finds, and its privacy loss."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hubermean.auditing.audit import audit as run_audit
from hubermean.auditing.containers import CONTAINERS
from hubermean.cli.experiments import INSTALLED, PAPER_LITERAL, paper_mechanism
from hubermean.cli.options import (
    DATA,
    GROUPS,
    PRIVACY,
    AsJson,
    Delta,
    Epsilon,
    MaxGroups,
    Neighbors,
    Per,
    Quiet,
    add_options,
    check_output,
    complete,
    list_mechanisms,
    one_of,
    to_keywords,
)
from hubermean.cli.progress import show_progress
from hubermean.cli.render import BAD, GOOD, print_lines, print_more
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.registry import REGISTRY
from hubermean.types.options import PublicParameters
from hubermean.types.request import DEFAULT_NEIGHBORS

ONLY_AUDITED = ("count", *((PAPER_LITERAL,) if INSTALLED else ()))
BROKEN = 4
SEARCH = "Search"


@add_options(PublicParameters)
def audit(
    mechanism: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=list_mechanisms(*ONLY_AUDITED),
            autocompletion=complete(lambda: (*REGISTRY, *ONLY_AUDITED)),
            rich_help_panel=PRIVACY,
        ),
    ] = "auto",
    epsilon: Epsilon = 1.0,
    delta: Delta = 0.0,
    per: Per = "user",
    neighbors: Neighbors = DEFAULT_NEIGHBORS,
    columns: Annotated[
        int, typer.Option(metavar="NUMBER", help="Number of value columns.", rich_help_panel=DATA)
    ] = 1,
    users: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Users per data set; by default as few as the mechanism works with.",
            rich_help_panel=DATA,
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Audit a release by group, with this many groups.",
            rich_help_panel=GROUPS,
        ),
    ] = None,
    max_groups: MaxGroups = None,
    private_keys: Annotated[
        bool, typer.Option("--private-keys", help="Groups are selected privately.", rich_help_panel=GROUPS)
    ] = False,
    container: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Read both data sets from this container, such as 'csv' or 'pandas', as a release would.",
            autocompletion=one_of(tuple(CONTAINERS)),
            rich_help_panel=DATA,
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Pairs of neighbors to compare; by default as many as fit in 75 seconds, at most 2,000.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Compare ten times as many pairs, without a time limit: minutes to hours.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Seed of the synthetic data sets.", rich_help_panel=SEARCH)
    ] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Search for neighboring data sets that break a mechanism's guarantee. Reads no data.

    Exit code 4 means that a guarantee is broken. The search ends within two minutes; --thorough goes on for longer.

    [bold]Examples[/bold]

      hubermean audit --mechanism inverse-sensitivity --threshold 1 --radius 100

      hubermean audit --mechanism clipped --epsilon 0.5 --bounds 0 10 --quiet

      hubermean audit --mechanism clipped --bounds 0 10 --groups 4 --max-groups 2
    """
    check_output(as_json=as_json, quiet=quiet)
    parameters = to_keywords(options)
    audited: str | Mechanism = mechanism
    if mechanism == PAPER_LITERAL:
        audited, parameters = paper_mechanism(PublicParameters.from_keywords(**parameters)), {}
    with show_progress(hidden=quiet) as progress:
        result = run_audit(
            audited,
            epsilon=epsilon,
            delta=delta,
            per=per,  # type: ignore[arg-type]  # checked by the API, which names the choices
            neighbors=neighbors,
            columns=columns,
            users=users,
            **parameters,
            groups=groups,
            max_groups=max_groups,
            private_keys=private_keys,
            container=container,
            pairs=pairs,
            thorough=thorough,
            seed=seed,
            progress=progress,
        )
    if as_json:
        typer.echo(result.to_json(indent=2))
    elif quiet:
        typer.echo("kept" if result.kept else "broken")
    else:
        print_lines(result.lines, stands_out="Verdict", style=GOOD if result.kept else BAD)
        if not thorough and pairs is None:
            print_more("More pairs: --thorough")
    if not result.kept:
        raise typer.Exit(BROKEN)
