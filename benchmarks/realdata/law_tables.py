"""Tables of docs/evidence/realdata.md on simulated laws."""

from __future__ import annotations

import math
from collections.abc import Callable

from common.page import number, table_heading, table_line
from realdata.aims import LEAST_COVERAGE, WIDTHS, plain, ratio_aim
from realdata.law_runs import LawResult
from realdata.laws import LAWS, NEVER_TUNED_ON, TUNED_ON, SimulatedLaw
from realdata.releases import RELATIONS
from realdata.results import Results

_WORDS = ("distribution", "tail", "place", "relation")
_HEADINGS = (
    "distribution", "tail", "users", "released", "ratio", "aim", "medians", "far", "coverage", "width", "warned",
)  # fmt: skip


def law_section(results: Results) -> str:
    parts = []
    for title, chosen in (
        ("Distributions that no constant was tuned on", lambda law: law in NEVER_TUNED_ON),
        ("Distributions that constants were tuned on", lambda law: law in TUNED_ON),
    ):
        parts.append(f"### {title}")
        for relation in RELATIONS:
            if any(row.neighbors == relation and chosen(LAWS[row.law]) for row in results.laws):
                parts.append(f"**{relation[0].upper()}{relation[1:]}**")
                parts.append(_law_table(results, relation, chosen))
    parts += ["### Shifted and scaled", _PLACES, _place_table(results)]
    parts += ["### Three columns", _columns(results)]
    return "\n\n".join(parts)


_PLACES = """The true mean is shifted by a million, or all values are scaled; add-remove, n = 1,000 (90% zeros: 4,500).
Neither may change the result by more than chance does."""


def _law_table(results: Results, relation: str, chosen: Callable[[SimulatedLaw], bool]) -> str:
    rows = [row for row in results.laws if row.neighbors == relation and chosen(LAWS[row.law])]
    return "\n".join([*table_heading(_HEADINGS, left=_WORDS), *(table_line(_cells(row)) for row in rows)])


def _cells(row: LawResult) -> tuple[str, ...]:
    law, aim = LAWS[row.law], ratio_aim(row)
    if row.released == 0.0:
        return row.law, law.tail, f"{row.users:,}", "0.0%", *["-"] * (len(_HEADINGS) - 4)
    widest = WIDTHS.get(row.users, math.inf) if law.tail in ("light", "heavy") else math.inf
    uncovered = law.covered and row.users >= 1_000 and row.coverage < LEAST_COVERAGE
    return (
        row.law,
        law.tail,
        f"{row.users:,}",
        f"{row.released:.1%}",
        _bold(plain(row.ratio), row.ratio > aim) + f" ({number(row.ratio_error)})",
        f"{aim:g}" if math.isfinite(aim) else "",
        f"{row.medians:.2f}",
        f"{row.far:.1%}" if row.far else "0",
        _bold(f"{row.coverage:.1%}", uncovered),
        _bold(f"{row.width:.2f}", row.width > widest),
        f"{row.warned:.0%}",
    )


def _bold(text: str, when: bool) -> str:
    return f"**{text}**" if when else text


def _place_table(results: Results) -> str:
    places = list(dict.fromkeys(row.place for row in results.places))
    headings = (
        "distribution",
        *(f"ratio, {place}" for place in places),
        *(f"coverage, {place}" for place in places),
        "least released",
    )
    lines = []
    for name in dict.fromkeys(row.law for row in results.places):
        rows = [row for row in results.places if row.law == name]
        lines.append(
            (
                name,
                *(_bold(plain(row.ratio), row.ratio > ratio_aim(row)) for row in rows),
                *(f"{row.coverage:.1%}" for row in rows),
                f"{min(row.released for row in rows):.1%}",
            )
        )
    return "\n".join([*table_heading(headings, left=_WORDS), *map(table_line, lines)])


def _columns(results: Results) -> str:
    rows = [
        (
            row.law,
            row.neighbors,
            f"{row.users:,}",
            f"{row.delta:g}",
            f"{row.runs}",
            f"{row.released:.1%}",
            f"{row.ratio:.2f} ({number(row.ratio_error)})",
        )
        for row in results.columns
    ]
    headings = ("distribution", "relation", "users", "delta", "data sets", "released", "ratio")
    return "\n".join([*table_heading(headings, left=_WORDS), *map(table_line, rows)])
