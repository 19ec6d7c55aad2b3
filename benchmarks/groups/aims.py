"""What is aimed for with groups, and whether what was measured meets it: on the tables that nothing was tuned on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from groups.before import BEFORE, BEFORE_BEST
from groups.hindsight import HINDSIGHT
from groups.measures import Measured, delta_text
from groups.other_libraries import OPENDP, PIPELINEDP, RIGHT, WIDE
from groups.results import OURS, Results

LEAST_COVERAGE = 0.93
LARGEST_SHARE_OF_BEFORE = 0.5
USUAL_RATIO = 2.0
LARGEST_REFUSED = 0.01
Case = Callable[[Measured], "float | None"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One aim: what it says, what was found, every case that misses it, and whether it is met."""

    aim: str
    found: str
    misses: Sequence[str]
    met: bool


def verdicts(results: Results) -> list[Verdict]:
    rows = results.of(OURS, epsilon=1.0, judged=True)
    return [
        _half_of_before(results, rows),
        _below(results, rows, BEFORE, "no more error than before, with defaults only"),
        _below(
            results, rows, BEFORE_BEST, "no more error than before with the best `max_groups` in hindsight"
        ),
        _coverage(rows),
        _hindsight(results, rows),
        *(
            _below(results, rows, f"{library}, {given}", f"less error than {library} with {words}")
            for library in (PIPELINEDP, OPENDP)
            for given, words in (
                (WIDE, "bounds and contribution bounds ten times too wide"),
                (RIGHT, "exactly right bounds"),
            )
        ),
        _released(rows),
    ]


def ratio(results: Results, row: Measured, contestant: str) -> float | None:
    """RMSE over the contestant's in the same case; None if it was not measured."""
    other = results.beside(row, contestant)
    return None if other is None else row.rmse / other.rmse


def case_name(row: Measured) -> str:
    return f"{row.table}, per {row.per}, delta = {delta_text(row.delta)}"


def _half_of_before(results: Results, rows: Sequence[Measured]) -> Verdict:
    wanted = [row for row in rows if results.fact(row.table).several or results.fact(row.table).different]
    ratios = {case_name(row): ratio(results, row, BEFORE) for row in wanted}
    known = {name: value for name, value in ratios.items() if value is not None}
    middle = float(np.median(list(known.values()))) if known else math.nan
    return Verdict(
        aim="at most half of the error before, with defaults only, where users are in several groups or groups "
        "differ (median over cases)",
        found=f"median {middle:.2f}, of what was released {_released_ratio(results, wanted):.2f}; "
        f"{_count(known, LARGEST_SHARE_OF_BEFORE)}",
        misses=_above(known, LARGEST_SHARE_OF_BEFORE),
        met=middle <= LARGEST_SHARE_OF_BEFORE,
    )


def _released_ratio(results: Results, rows: Sequence[Measured]) -> float:
    """The median ratio to before if refused groups are left out on both sides."""
    others = [(row, results.beside(row, BEFORE)) for row in rows]
    known = [row.rmse_released / other.rmse_released for row, other in others if other is not None]
    return float(np.nanmedian(known)) if known else math.nan


def _below(results: Results, rows: Sequence[Measured], contestant: str, aim: str) -> Verdict:
    ratios = {case_name(row): ratio(results, row, contestant) for row in rows}
    known = {name: value for name, value in ratios.items() if value is not None}
    return Verdict(
        aim=aim,
        found=_count(known, 1.0),
        misses=_above(known, 1.0),
        met=bool(known) and max(known.values()) <= 1.0,
    )


def _coverage(rows: Sequence[Measured]) -> Verdict:
    return Verdict(
        aim="95% intervals hold the plain group mean in at least 93% of cases, groups of at least 200 users",
        found=f"{min(row.coverage for row in rows):.1%} to {max(row.coverage for row in rows):.1%}",
        misses=[
            f"{case_name(row)}: {row.coverage:.1%}" for row in rows if not row.coverage >= LEAST_COVERAGE
        ],
        met=all(row.coverage >= LEAST_COVERAGE for row in rows),
    )


def _hindsight(results: Results, rows: Sequence[Measured]) -> Verdict:
    ratios = {case_name(row): ratio(results, row, HINDSIGHT) for row in rows}
    known = {name: value for name, value in ratios.items() if value is not None}
    middle = float(np.median(list(known.values()))) if known else math.nan
    return Verdict(
        aim=f"at most {USUAL_RATIO:g} times the error of the best norm bound in hindsight (median over cases)",
        found=f"median {middle:.2f}; {_count(known, USUAL_RATIO)}",
        misses=_above(known, USUAL_RATIO),
        met=middle <= USUAL_RATIO,
    )


def _released(rows: Sequence[Measured]) -> Verdict:
    return Verdict(
        aim=f"at most {LARGEST_REFUSED:.0%} of groups of at least 200 users are refused",
        found=f"{sum(row.refused_large <= LARGEST_REFUSED for row in rows)} of {len(rows)} cases; "
        f"largest share {max(row.refused_large for row in rows):.1%}",
        misses=[
            f"{case_name(row)}: {row.refused_large:.1%}"
            for row in rows
            if not row.refused_large <= LARGEST_REFUSED
        ],
        met=all(row.refused_large <= LARGEST_REFUSED for row in rows),
    )


def _count(ratios: dict[str, float], limit: float) -> str:
    if not ratios:
        return "not measured"
    within = sum(value <= limit for value in ratios.values())
    return f"{within} of {len(ratios)} cases at most {limit:g}; largest {max(ratios.values()):.2f}"


def _above(ratios: dict[str, float], limit: float) -> list[str]:
    """The worst first."""
    beyond = {name: value for name, value in ratios.items() if not value <= limit}
    return [f"{name}: {beyond[name]:.2f}" for name in sorted(beyond, key=lambda name: -beyond[name])]
