"""Options that several commands share: their help, their panels, and what a shell completes them with.

The options that are fields of `PublicParameters`, `ReadOptions` and `LedgerOptions` are made from these classes
(`add_options`): `max_records` becomes `--max-records`, and the first sentence of its description is the help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any, get_args, get_type_hints

import typer

from hubermean.cli.wording import flag
from hubermean.errors import InputError
from hubermean.mechanisms.registry import REGISTRY
from hubermean.release.charging import ENVIRONMENT, LedgerOptions
from hubermean.types.options import PublicParameters, describe_fields
from hubermean.types.request import Neighbors as Relation

DATA, GROUPS, PRIVACY, PARAMETERS, OUTPUT = "Data", "Groups", "Privacy", "Public parameters", "Output"
LEDGER = "Ledger"

# What a command line writes differently from Python: types that Typer can read, and names of values.
_TYPES: Mapping[str, Any] = {
    "bounds": tuple[str, str] | None,
    "scale": list[float] | None,
    "currency": list[str] | None,
    "null": list[str] | None,
    "resolution": float | None,
    "ledger": str | None,
}
_METAVARS = {
    "bounds": "LOW HIGH",
    "threshold_power": "POWER",
    "scale": "NUMBER",
    "hostile": "SHARE",
    "memory_limit": "SIZE",
    "engine": "duckdb|spark",
    "decimal": "MARK",
    "thousands": "MARK",
    "currency": "SIGN",
    "null": "WORD",
    "delimiter": "CHARACTER",
    "quote": "CHARACTER",
    "encoding": "NAME",
    "non_finite": "drop|clamp",
    "ledger": "LEDGER",
    "dataset": "NAME",
    "question": "NAME",
    "by_whom": "NAME",
}
_MORE_HELP = {
    "bounds": " 'none' leaves an end open.",
    "scale": " Repeat for several columns.",
    "currency": " Repeat for several.",
    "null": " Repeat for several.",
    "delimiter": " '\\t' is a tab.",
    "engine": " With spark, FILE may also be the name of a table.",
    "question": " A repeated query costs nothing.",
}
_NOT_TYPED = ("progress",)  # shown unless the output is for machines


def complete(choices: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return the function by which a shell completes a word, from choices that are looked up when it does."""

    def begun(incomplete: str) -> list[str]:
        return [choice for choice in choices() if choice.startswith(incomplete)]

    return begun


def one_of(choices: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the function by which a shell completes a word, from fixed choices."""
    known = tuple(choices)
    return complete(lambda: known)


def add_options(*wanted: type | str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command that takes `**options`: give it the options of these classes, or these public parameters.

    They stand before the options for output, which commands have last.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            one
            for one in inspect.signature(command, eval_str=True).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        made: list[inspect.Parameter] = []
        for one in wanted:
            if isinstance(one, str):
                made.append(_make_option(PublicParameters, one))
            else:
                made += [
                    _make_option(one, field.name) for field in fields(one) if field.name not in _NOT_TYPED
                ]
        position = next(number for number, one in enumerate(own) if _panel(one) == OUTPUT)
        typed: Any = command
        typed.__signature__ = inspect.Signature([*own[:position], *made, *own[position:]])
        return command

    return decorate


def _make_option(options: type, name: str) -> inspect.Parameter:
    field = next(one for one in fields(options) if one.name == name)
    kind = _TYPES.get(name, get_type_hints(options)[name])
    values = _METAVARS.get(name, "NUMBER" if {int, float} & {kind, *get_args(kind)} else "TEXT")
    option = typer.Option(
        flag(name),
        metavar=None if kind is bool else values,
        help=describe_fields(options).get(name, "").partition(". ")[0].rstrip(".")
        + "."
        + _MORE_HELP.get(name, ""),
        envvar=ENVIRONMENT.get(name) if options is LedgerOptions else None,
        autocompletion=one_of(values.split("|")) if "|" in values else None,
        rich_help_panel={PublicParameters: PARAMETERS, LedgerOptions: LEDGER}.get(options, DATA),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=field.default,
        annotation=Annotated[kind, option],
    )


def _panel(parameter: inspect.Parameter) -> str | None:
    return getattr(get_args(parameter.annotation)[-1], "rich_help_panel", None)


def to_keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return typed options as keywords for Python: a pair of bounds, and one scale where one was typed."""
    keywords = dict(options)
    if "bounds" in keywords:
        keywords["bounds"] = _parse_bounds(keywords["bounds"])
    if len(keywords.get("scale") or ()) == 1:
        (keywords["scale"],) = keywords["scale"]
    return keywords


def _parse_bounds(given: tuple[str, str] | None) -> tuple[float | None, float | None] | None:
    """Return what --bounds says; InputError where an end is neither a number nor 'none'."""
    if given is None:
        return None
    try:
        low, high = (None if end.strip().lower() == "none" else float(end) for end in given)
    except ValueError:
        raise InputError("--bounds takes two numbers, low and high; 'none' leaves an end open") from None
    return low, high


def open_query(file: str, connection: str | None) -> Any:
    """Return FILE, or the query that it is where a database is named."""
    if connection is None:
        return file
    from hubermean.ingest.sql import sql

    return sql(file, connection=connection)


def name_source(file: str, connection: str | None) -> str:
    """Return what a report says of the data: no password and no query."""
    if connection is not None:
        return "a query of a database"
    from hubermean.ingest.locations import without_credentials

    return without_credentials(file)


def list_mechanisms(*more: str) -> str:
    """Return the sentence that names the mechanisms of the registry."""
    return "One of " + ", ".join(f"'{name}'" for name in (*REGISTRY, *more)) + "."


File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Parquet, Arrow, CSV, JSON lines or a Delta table: a path, a quoted pattern or s3://... "
        "With --connection, a query.",
    ),
]
Connection = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Database in which FILE is run as a query: postgresql://... or sqlite:///...",
        envvar="HUBERMEAN_CONNECTION",
        rich_help_panel=DATA,
    ),
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
        help="Change of the data that the release hides: 'add-remove', 'replace-user' or 'replace-values'.",
        autocompletion=one_of(relation.value for relation in Relation),
        rich_help_panel=PRIVACY,
    ),
]
Mechanism = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=list_mechanisms(),
        autocompletion=complete(lambda: REGISTRY),
        rich_help_panel=PRIVACY,
    ),
]
User = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN", help="Column that identifies a user; repeat for several.", rich_help_panel=DATA
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Column that names the group of a record; repeat for several.",
        rich_help_panel=GROUPS,
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY",
        help="Public group, with one --by; repeat. Without --key or --keys, groups are selected privately (--delta).",
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
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Most groups a user counts in, by default all of its groups. Fewer drop records.",
        rich_help_panel=GROUPS,
    ),
]
Rollup = Annotated[
    bool,
    typer.Option("--rollup", help="Add totals over groups; they cost no budget.", rich_help_panel=GROUPS),
]
Report = Annotated[
    str | None,
    typer.Option(
        metavar="PAGE.html",
        help="Write the release as an HTML page.",
        rich_help_panel=OUTPUT,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check the request and the budget and print what would happen; nothing is read or charged.",
        rich_help_panel=PRIVACY,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]
Timings = Annotated[
    bool,
    typer.Option(
        "--unsafe-timings",
        help="Print how long each stage took. Not private: do not publish it.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the result.", rich_help_panel=OUTPUT)]


Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", help="Also print the budget breakdown and the parameters.", rich_help_panel=OUTPUT
    ),
]


def check_output(*, as_json: bool, quiet: bool, verbose: bool = False) -> None:
    """Refuse more than one of --json, --quiet and --verbose."""
    if as_json and quiet:
        raise InputError("give --json or --quiet, not both")
    if verbose and (as_json or quiet):
        raise InputError("--verbose is for the terminal; give it without --json and --quiet")


def check_dry_run(dry_run: bool, *, report: str | None, quiet: bool) -> None:
    """Refuse --dry-run together with output that only a release has."""
    if dry_run and (report is not None or quiet):
        raise InputError("a dry run releases nothing; leave --report and --quiet out")
