"""Options that several commands share: their words, their panels in the help, and what a shell completes them with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from hubermean.errors import InputError
from hubermean.relations import Neighbors as Relation

DATA, PRIVACY, KNOWN, OUTPUT = "Data", "Privacy", "What is known", "Output"

MECHANISMS = ("auto", "tuned", "clipped", "exact", "tested", "smooth", "winsorized")
AUDITED = (*MECHANISMS, "paper-literal")


def one_of(choices: Iterable[str]) -> Callable[[str], list[str]]:
    """What a shell offers for a word that was begun."""
    known = tuple(choices)

    def begun(incomplete: str) -> list[str]:
        return [choice for choice in known if choice.startswith(incomplete)]

    return begun


File = Annotated[
    str, typer.Argument(metavar="FILE", help="Parquet, CSV or JSON lines; a path or a quoted pattern.")
]
Epsilon = Annotated[
    float, typer.Option(metavar="NUMBER", help="Privacy budget epsilon.", rich_help_panel=PRIVACY)
]
Delta = Annotated[
    float, typer.Option(metavar="NUMBER", help="Privacy budget delta.", rich_help_panel=PRIVACY)
]
Per = Annotated[
    str,
    typer.Option(
        metavar="record|user",
        help="'record': mean over records; 'user': mean of user means.",
        autocompletion=one_of(("record", "user")),
        rich_help_panel=DATA,
    ),
]
Neighbors = Annotated[
    str,
    typer.Option(
        metavar="RELATION",
        help="What is hidden: 'replace-user', 'replace-values' or 'add-remove'.",
        autocompletion=one_of(relation.value for relation in Relation),
        rich_help_panel=PRIVACY,
    ),
]
Mechanism = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="One of " + ", ".join(f"'{name}'" for name in MECHANISMS) + ".",
        autocompletion=one_of(MECHANISMS),
        rich_help_panel=PRIVACY,
    ),
]
Bounds = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="LOW HIGH", help="Public limits that user means are clamped to.", rich_help_panel=KNOWN
    ),
]
RecordCap = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", help="Public cap on the records a user counts for.", rich_help_panel=KNOWN
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="Public distance from the centre beyond which a user mean is an outlier.",
        rich_help_panel=KNOWN,
    ),
]
Radius = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="Public bound: the mean lies within this distance of 0.",
        rich_help_panel=KNOWN,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the answer alone.", rich_help_panel=OUTPUT)]


def check_output(*, as_json: bool, quiet: bool) -> None:
    """The two ways of printing less exclude each other."""
    if as_json and quiet:
        raise InputError("give --json or --quiet, not both")
