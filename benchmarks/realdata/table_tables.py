"""Tables of docs/evidence/realdata.md on real tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.page import table_heading, table_line
from realdata.aims import USUAL_RATIO, honest
from realdata.releases import EPSILONS, Measured
from realdata.results import ENOUGH_USERS, Results

WORDS = ("table", "one record", "source", "per")


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([*table_heading(headings, left=WORDS), *map(table_line, rows)])


def percent(value: float) -> str:
    """Of a mean: two digits that matter."""
    if not math.isfinite(value):
        return "-"
    value *= 100.0
    if value == 0.0:
        return "0%"
    digits = max(0, min(4, 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{digits}f}%"


def _starred(row: Measured) -> str:
    return f"{row.table}{'' if row.users >= ENOUGH_USERS else ' *'}"


def _bold(text: str, when: bool) -> str:
    return f"**{text}**" if when else text


def facts_table(results: Results) -> str:
    return markdown(
        (
            "table",
            "one record",
            "source",
            "records",
            "users",
            "records per user: median",
            "largest",
            "mean per user",
            "mean per record",
            "kurtosis",
        ),
        [
            (
                fact.name + ("" if fact.users >= ENOUGH_USERS else " *"),
                fact.what,
                fact.source,
                f"{fact.records:,}",
                f"{fact.users:,}",
                f"{fact.median_records:g}",
                f"{fact.largest_records:,}",
                _number(fact.mean_per_user),
                _number(fact.mean_per_record),
                f"{fact.kurtosis:,.0f}",
            )
            for fact in results.facts
        ],
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _measured_table(rows: Sequence[Measured]) -> str:
    return markdown(
        (
            "table",
            "per",
            "RMSE",
            "bias",
            "hindsight",
            "ratio",
            "of sampling",
            "coverage",
            "half width",
            "warned",
            "released",
        ),
        [
            (
                _starred(row),
                row.per,
                percent(row.rmse),
                percent(row.bias),
                percent(row.hindsight),
                _bold(f"{row.ratio:.2f}", row.ratio > USUAL_RATIO),
                f"{row.of_sampling:.2f}",
                _bold(f"{row.coverage:.1%}", not honest(row)),
                percent(row.half_width),
                f"{row.warned:.0%}",
                f"{row.released:.1%}",
            )
            for row in rows
        ],
    )


def main_table(results: Results) -> str:
    return "**Epsilon = 1.** In bold: a ratio above 3, coverage below 93%.\n\n" + _measured_table(
        results.measured(epsilon=1.0)
    )


def replace_table(results: Results) -> str:
    return _measured_table(results.measured(epsilon=1.0, neighbors="replace-user"))


def _by_epsilon(results: Results) -> list[list[Measured]]:
    series: dict[tuple[str, str], list[Measured]] = {}
    for row in results.measured():
        series.setdefault((row.table, row.per), []).append(row)
    return [sorted(rows, key=lambda row: row.epsilon) for rows in series.values()]


def ratio_table(results: Results) -> str:
    kept = (0.3, 1.0, 3.0, 10.0)
    rows = [
        (
            _starred(series[0]),
            series[0].per,
            *(_bold(f"{row.ratio:.2f}", row.ratio > USUAL_RATIO) for row in series if row.epsilon in kept),
            *(_bold(f"{row.coverage:.0%}", not honest(row)) for row in series if row.epsilon in kept),
            f"{min(row.released for row in series):.0%}",
        )
        for series in _by_epsilon(results)
    ]
    headings = (
        "table",
        "per",
        *(f"ratio, epsilon = {epsilon:g}" for epsilon in kept),
        *(f"coverage, {epsilon:g}" for epsilon in kept),
        "least released",
    )
    return "**Ratio to hindsight and coverage by epsilon.**\n\n" + markdown(headings, rows)


def rmse_table(results: Results) -> str:
    rows = [
        (_starred(series[0]), series[0].per, *(percent(row.rmse) for row in series))
        for series in _by_epsilon(results)
    ]
    return "**RMSE in percent of the mean, by epsilon.**\n\n" + markdown(
        ("table", "per", *(f"{epsilon:g}" for epsilon in EPSILONS)), rows
    )


def methods_table(results: Results) -> str:
    """One column per method; of variants that differ in a constant, the best on each table, in hindsight."""
    methods = list(dict.fromkeys(row.method for row in results.methods))
    shown = {method: results.of_method(method) for method in methods if method.startswith("OpenDP")}
    for family in ("CoinPress", "Durfee"):
        variants = [results.of_method(method) for method in methods if method.startswith(family)]
        shown[f"{family}, best"] = {name: min(rmses[name] for rmses in variants) for name in variants[0]}
    own = {row.table: row.rmse for row in results.measured(per="user", epsilon=1.0)}
    best = {row.table: row.hindsight for row in results.measured(per="user", epsilon=1.0)}
    others = list(shown.values())
    rows = [
        (
            name,
            percent(best[name]),
            _bold(percent(rmse), all(rmse <= rmses[name] for rmses in others[1:])),
            *(percent(rmses[name]) for rmses in others),
        )
        for name, rmse in own.items()
    ]
    wins = {method: sum(own[name] < rmse for name, rmse in rmses.items()) for method, rmses in shown.items()}
    said = "; ".join(f"{method}: {count} of {len(own)}" for method, count in wins.items())
    return (
        markdown(("table", "hindsight", "adaptive", *shown), rows)
        + "\n\nIn bold: smaller than every method but OpenDP with exactly right bounds. Tables on which `adaptive` "
        f"has the smaller error: {said}."
    )
