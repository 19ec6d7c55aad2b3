"""Options that several commands share: their words, their panels in the help, and what a shell completes them with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from hubermean.errors import InputError
from hubermean.relations import Neighbors as Relation

DATA, GROUPS, PRIVACY, KNOWN, OUTPUT = "Data", "Groups", "Privacy", "What is known", "Output"
LEDGER = "Ledger"

MECHANISMS = ("auto", "adaptive", "clipped", "exact", "tested", "smooth", "winsorized")
AUDITED = (*MECHANISMS, "count", "paper-literal")


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
        help="Which change of the data is hidden: 'add-remove', 'replace-user' or 'replace-values'.",
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
    tuple[str, str] | None,
    typer.Option(
        metavar="LOW HIGH",
        help="Public limits that user means are clamped to; 'none' leaves an end open.",
        rich_help_panel=KNOWN,
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
ThresholdPower = Annotated[
    float | None,
    typer.Option(
        metavar="POWER",
        help="From 0 to 1: with it the threshold shrinks with the records of a user; 1 bounds what a user adds.",
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
User = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN", help="Column that identifies a user; repeat for several.", rich_help_panel=DATA
    ),
]
Users = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Public number of users: about right under 'add-remove', exact under 'replace-user'.",
        rich_help_panel=KNOWN,
    ),
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory for grouping, such as 2GB.", rich_help_panel=DATA)
]
Threads = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="Threads for grouping.", rich_help_panel=DATA)
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="duckdb|spark",
        help="What reads and groups; with spark, FILE may also be the name of a table.",
        autocompletion=one_of(("duckdb", "spark")),
        rich_help_panel=DATA,
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="Column that tells groups apart; repeat for several.", rich_help_panel=GROUPS
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY",
        help="A public group, with one --by; repeat. Without --key or --keys, groups are chosen privately (--delta).",
        rich_help_panel=GROUPS,
    ),
]
Keys = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Public groups in a file of their own, with the columns of --by.",
        rich_help_panel=GROUPS,
    ),
]
MaxGroups = Annotated[
    int,
    typer.Option(
        metavar="NUMBER",
        help="How many groups a user counts in at most; too few leave people out, too many cost noise.",
        rich_help_panel=GROUPS,
    ),
]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="LEDGER",
        envvar="HUBERMEAN_LEDGER",
        help="File or postgresql:// URL of the ledger that is charged, before the release is made.",
        rich_help_panel=LEDGER,
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The data set of the ledger whose budget pays.", rich_help_panel=LEDGER
    ),
]
Question = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Public name of what is asked, in place of the file's; asked again, it costs nothing.",
        rich_help_panel=LEDGER,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="Ask again, and pay again: for data that have changed.", rich_help_panel=LEDGER
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        metavar="PAGE.html",
        help="Write the release as a page to read, print and publish.",
        rich_help_panel=OUTPUT,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.", rich_help_panel=OUTPUT)]
Timings = Annotated[
    bool,
    typer.Option(
        "--unsafe-timings",
        help="Print how long each stage took; it depends on the data and is not to be published.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the answer alone.", rich_help_panel=OUTPUT)]


def check_output(*, as_json: bool, quiet: bool) -> None:
    """The two ways of printing less exclude each other."""
    if as_json and quiet:
        raise InputError("give --json or --quiet, not both")


def bounds_of(given: tuple[str, str] | None) -> tuple[float | None, float | None] | None:
    """What --bounds says; InputError where an end is neither a number nor 'none'."""
    if given is None:
        return None
    try:
        low, high = (None if end.strip().lower() == "none" else float(end) for end in given)
    except ValueError:
        raise InputError("--bounds takes two numbers, low and high; 'none' leaves an end open") from None
    return low, high
