"""The tuning benchmark's parts `accuracy` and `intervals`: two views of the same releases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from page import number, percent, with_error
from tuning_part import Column, Effort, Part
from tuning_result import LARGEST_WIDTH, LEAST_COVERAGE, Result, results
from tuning_runs import AS_IS, CASE_COLUMNS, COVERAGE, RELEASED, SHIFTED, WILD

_NAMED = 6  # missed targets that a sentence names, worst first


def intervals(effort: Effort) -> Iterator[Result]:
    """Scaled data have the same intervals but for rounding."""
    return (one for one in results(effort) if one.place in (AS_IS.name, SHIFTED.name))


def _targets(what: str, *, judged: int, missed: Sequence[str], nothing: int) -> str:
    """How many targets are met, and the first of those that are not; `nothing` of them have nothing to judge."""
    sentence = f"{judged - len(missed) - nothing} of {judged} targets of {what} are met"
    if nothing:
        sentence += f"; {nothing} are missed for want of anything to judge"
    if missed:
        more = len(missed) - _NAMED
        sentence += "; missed: " + "; ".join(missed[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return f"{sentence}."


def _says_of_accuracy(found: Sequence[Result]) -> Iterable[str]:
    judged = [one for one in found if one.accurate is not None]
    for users in sorted({one.users for one in judged}):
        parts = []
        for kind, light in (("light", True), ("heavy", False)):
            ratios = [one.ratio for one in judged if one.users == users and one.light is light]
            ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
            if ratios:
                middle = number(float(np.median(ratios)))
                parts.append(f"at worst {number(max(ratios))} for {kind} tails (median case {middle})")
        yield f"With {users:,} users the mean squared error over the plain mean's is {', '.join(parts)}."
    answered = [one for one in judged if math.isfinite(one.ratio)]
    missed = sorted(
        (one for one in answered if not one.accurate), key=lambda one: one.over_target, reverse=True
    )
    yield _targets(
        "accuracy",
        judged=len(judged),
        missed=[
            f"{one.name}: {with_error(one.ratio, one.error)} for {one.target:g}, released {percent(one.released)}"
            for one in missed
        ],
        nothing=len(judged) - len(answered),
    )


def _says_of_intervals(found: Sequence[Result]) -> Iterable[str]:
    light = [one for one in found if one.light]
    for kind, group in (("light", light), ("heavy", [one for one in found if not one.light])):
        with_interval = [one for one in group if math.isfinite(one.coverage)]
        if with_interval:
            least, most = (pick(one.coverage for one in with_interval) for pick in (min, max))
            widths = [one.width for one in with_interval]
            yield (
                f"95% intervals hold the truth in {percent(least)} to {percent(most)} of runs with {kind} tails, at "
                f"{number(min(widths))} to {number(max(widths))} times the width of one that knows the spread of "
                f"releases around the truth; {len(group) - len(with_interval)} of {len(group)} such cases come "
                f"without an interval."
            )
    known = [one for one in found if math.isfinite(one.coverage)]
    light_known = [one for one in known if one.light]
    uncovered = sorted((one for one in light_known if not one.covered), key=lambda one: one.coverage)
    yield _targets(
        "coverage",
        judged=len(light),
        missed=[f"{one.name}: {percent(one.coverage)}" for one in uncovered],
        nothing=len(light) - len(light_known),
    )
    wide = sorted((one for one in known if not one.narrow), key=lambda one: one.width, reverse=True)
    yield _targets(
        "width",
        judged=len(found),
        missed=[f"{one.name}: {with_error(one.width, one.width_error)}" for one in wide],
        nothing=len(found) - len(known),
    )


_WAY_COLUMNS = (
    *CASE_COLUMNS,
    Column(heading="per", cell=lambda row: row.per, width=6, left=True),
    Column(heading="neighbors", cell=lambda row: row.neighbors, width=12, left=True),
    Column(heading="place", cell=lambda row: row.place, width=6, left=True),
)


ACCURACY = Part(
    name="accuracy",
    title="Accuracy",
    notes=f"""
Mean squared error over sigma^2/(n m). Targets: at most 1.5 for light and 3 for heavy tails with 10,000 users; 1.8, 2.5,
and 6 for heavy tails with one record, with 1,000 users; and a release in 99% of runs. With `per="record"` all users
have m records, which nobody is told. `wild` counts releases more than {WILD:g} standard errors off, one of which
decides the mean, though not the median.""",
    columns=[
        *_WAY_COLUMNS,
        Column(heading="ratio", cell=lambda row: with_error(row.ratio, row.error), width=16),
        Column(heading="target", cell=lambda row: "" if row.target is None else f"{row.target:g}", width=6),
        Column(heading="verdict", cell=lambda row: row.accuracy_verdict, width=11, left=True),
        Column(heading="paired", cell=lambda row: with_error(row.paired, row.paired_error), width=16),
        Column(heading="medians", cell=lambda row: with_error(row.median, row.median_error), width=14),
        Column(heading="wild", cell=lambda row: f"{row.wild}" if row.wild else ""),
        RELEASED,
    ],
    rows=results,
    says=_says_of_accuracy,
)

INTERVALS = Part(
    name="intervals",
    title="Intervals",
    notes=f"""
How often the 95% interval holds the true mean, and its median width over that of the central 95% of releases around
the truth, which only a simulation knows. Targets: {LEAST_COVERAGE:.0%} for light tails, a width of at most
{LARGEST_WIDTH:g} everywhere. The releases are those of the accuracy part.""",
    columns=[
        *_WAY_COLUMNS,
        COVERAGE,
        Column(heading="covered", cell=lambda row: row.coverage_verdict, width=11, left=True),
        Column(heading="width", cell=lambda row: with_error(row.width, row.width_error), width=13),
        Column(heading="narrow", cell=lambda row: row.width_verdict, width=11, left=True),
        Column(heading="covers", cell=lambda row: row.covers or "no interval", width=18, left=True),
    ],
    rows=intervals,
    says=_says_of_intervals,
)
