"""The page docs/evidence/groups.md."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from common.page import table_heading, table_line
from groups.aims import LARGEST_REFUSED, LEAST_COVERAGE, Verdict, ratio, verdicts
from groups.before import BEFORE, BEFORE_BEST, COMMIT
from groups.hindsight import HINDSIGHT
from groups.measures import ENOUGH_USERS, SIZES, Measured, delta_text
from groups.other_libraries import OPENDP, PIPELINEDP, RIGHT, WIDE, WIDE_BOUNDS, WIDE_CONTRIBUTIONS
from groups.plots import ERRORS
from groups.results import DIFFERENT_GROUPS, OURS, SEVERAL_GROUPS, Results

PAGE = """# Means by group on real data

How close `hm.mean(..., by=...)` comes to the plain means of groups when you provide only the privacy budget and the
keys, on {n_tables} real tables with {fewest} to {most:,} groups. This command writes the page with its plot:

```
make realgroups     # about {minutes} minutes; python -m groups takes --quick, for a rough run, and --epsilon 0.3 1 3
```

## Summary

{decide}

{met} of {all} aims are met. Aims are judged on the {n_judged} tables that no constant was tuned on, per user and per
record, with delta = 1e-6 and without delta: {n_cases} cases at epsilon = 1. Measured with revision {revision}.
The judged tables are not untouched: that small groups have a value at all was decided after refusals were seen on
them, too, and that few users without delta needed work, and users in one group each with delta. How, and all constants,
were decided on the other tables.

{summary}

{misses}

![Error of group means by table: hubermean with defaults only, hubermean before, the best norm bound in hindsight, and
PipelineDP and OpenDP with right and with tenfold bounds](../img/{plot})

*Error of a group mean by table. Green bars: the best norm bound in hindsight, which knows the data. Tables with \\* may
have been used to tune constants.*

## How large groups must be

RMSE of a group mean by the number of users in the group, epsilon = 1, delta = 1e-6: the median over groups of a table,
then over tables. A refused group counts as an error of 100%, here and on the whole page; `refused` is the share of
groups without a value.

{by_size}

## Tables

Each table comes from a package on PyPI and names the person, household or aircraft behind every record. `several`:
a user is in {several:g} groups or more on average. `differ`: of the groups of at least {enough} users, the mean at the
90th percentile is at least {different:g} times that at the 10th. `own error`: the standard error of a plain group mean
as an estimate for a larger population, per user; the median over groups of at least {enough} users.

{facts}

## Errors

RMSE of a group mean in percent of the plain mean: the median over groups of at least {enough} users; epsilon = 1.
hubermean is in bold where it has less error than every other contestant but hindsight.

{errors}

- **hubermean** gets the budget and the keys, nothing else.
- **before** is hubermean at commit {commit}, which counts a user in at most `max_groups` groups: 1 by default, or the
  number with the least error on the table, which nobody knows without the data. Its results are kept in
  `benchmarks/groups/before.json`.
- **hindsight** clips each user's row of groups to one norm bound around the true means, the best bound and the better
  of both norms, with the whole budget as noise on the sums and true weights as denominators. Cuts count in absolute
  value. Its error is computed, not drawn. It has no scale per group, so it is no lower limit where groups differ.
- **PipelineDP** and **OpenDP** get value bounds, contribution bounds (how many groups of a user count, and how many
  records in each), and the kind of noise. Right value bounds are the smallest and the largest value of the table. Right
  contribution bounds and the kind of noise are those with the least error in hindsight. `all x 10` stretches value
  bounds tenfold around their middle and allows ten times the contributions. Means are clamped to the bounds, in favor
  of both. OpenDP sums values as they are, so bounds far from zero cost it more than PipelineDP.
- What PipelineDP and OpenDP do is computed in NumPy after their documentation and source. `python -m
  groups.check_libraries` compares the noise with what both libraries set, and means with PipelineDP's, in their own
  environments; they agree. It does not compare the random choice of groups and records, nor OpenDP's means.

### What each part of wide bounds costs

The same, delta = 1e-6: only the value bounds ten times too wide, only the contribution bounds, or both.

{wide}

## Intervals

`coverage`: the share of 95% intervals that hold the plain group mean, over groups of at least {enough} users and all
runs in which they were released; in bold below 93%. `worst group`: the smallest share of one group. `width`: the median
width over that of the plain group mean's own 95% interval (2 x 1.96 standard errors), so 1 means that privacy costs as
much as sampling. `typical` is the median absolute error over groups and runs. `refused` is the share of groups without
a value. `all groups` takes small groups in.

{intervals}
{other_epsilons}
## How it is measured

- {runs} releases per case through `hubermean.mean` with public keys, each with another seed. A release before with the
  best `max_groups`: also {runs}, after three of each candidate. PipelineDP and OpenDP: two draws of the records that
  count, ten of noise each.
- Group means of 0 have no relative error and are left out of errors, not of coverage.
- The relation is add-remove. Constants may have been tuned on {tuned}. Judged tables of the same
  packages hold other groups or other values, but partly the same people; new to the package and to tuning are only
  {fresh}.
- Private keys, other relations, several columns and epsilon other than {epsilons} are not on this page.
- The code is in `benchmarks/groups`: `tables.py` loads, `hindsight.py` finds the best bounds,
  `other_libraries.py` holds PipelineDP and OpenDP, `aims.py` the aims.
"""

_OTHERS = (
    BEFORE,
    BEFORE_BEST,
    HINDSIGHT,
    *(f"{library}, {given}" for library in (PIPELINEDP, OPENDP) for given in (RIGHT, WIDE)),
)
_HEADINGS = {BEFORE: "before", BEFORE_BEST: "before, best", HINDSIGHT: "hindsight"}
_WORDS = ("table", "one record", "source", "per", "")


def write_page(path: Path, results: Results, *, revision: str, minutes: str = "ten") -> None:
    judged = verdicts(results)
    rows = results.of(OURS, epsilon=1.0, judged=True)
    text = PAGE.format(
        n_tables=len(results.facts),
        fewest=min(fact.groups for fact in results.facts),
        most=max(fact.groups for fact in results.facts),
        minutes=minutes,
        decide=_decide(results),
        met=sum(verdict.met for verdict in judged),
        all=len(judged),
        n_judged=sum(fact.judged for fact in results.facts),
        n_cases=len(rows),
        revision=revision,
        summary=_summary(judged),
        misses=_misses(judged),
        plot=ERRORS,
        by_size=_by_size(results),
        several=SEVERAL_GROUPS,
        different=DIFFERENT_GROUPS,
        enough=ENOUGH_USERS,
        facts=_facts(results),
        errors="\n\n".join(
            f"**Per {per}, delta = {delta_text(delta)}**\n\n{_errors(results, per, delta)}"
            for per in ("user", "record")
            for delta in results.deltas
        ),
        commit=COMMIT,
        wide=_wide(results),
        intervals="\n\n".join(
            f"**Delta = {delta_text(delta)}**\n\n{_intervals(results, delta)}" for delta in results.deltas
        ),
        other_epsilons=_other_epsilons(results),
        runs=rows[0].runs,
        epsilons=", ".join(f"{epsilon:g}" for epsilon in results.epsilons),
        tuned=", ".join(fact.name for fact in results.facts if not fact.judged),
        fresh=" and ".join(_fresh(results)) or "none",
    )
    path.write_text(text)


def _fresh(results: Results) -> list[str]:
    """Judged tables from data sets that no table to tune on comes from."""
    seen = {fact.package for fact in results.facts if not fact.judged}
    return [fact.name for fact in results.facts if fact.judged and fact.package not in seen]


def percent(value: float) -> str:
    """Two digits that matter."""
    if not math.isfinite(value):
        return "-"
    value *= 100.0
    return f"{value:,.0f}%" if value >= 9.95 else f"{value:.1f}%" if value >= 0.995 else f"{value:.2g}%"


def _decide(results: Results) -> str:
    """What a reader can decide from the page, in sentences."""
    delta = results.deltas[0]

    def middle(take: Callable[[Measured], float | None], per: str) -> float:
        rows = results.of(OURS, per=per, epsilon=1.0, delta=delta, judged=True)
        found = [take(row) for row in rows]
        return float(np.median([value for value in found if value is not None]))

    sentences = [
        "Whether to release by group, and with how many users per group. On the median judged table, epsilon = 1 and "
        f"delta = {delta_text(delta)}, a mean of a group of at least {ENOUGH_USERS} users is off by "
        f"{percent(middle(lambda row: row.rmse, 'user'))} per user and "
        f"{percent(middle(lambda row: row.rmse, 'record'))} per record (RMSE), "
        f"{middle(lambda row: ratio(results, row, HINDSIGHT), 'user'):.1f} and "
        f"{middle(lambda row: ratio(results, row, HINDSIGHT), 'record'):.1f} times what the best norm bound in "
        "hindsight would be. The plain mean's own standard error as an estimate for a larger population is "
        f"{percent(middle(lambda row: results.fact(row.table).sampling[row.per], 'user'))} and "
        f"{percent(middle(lambda row: results.fact(row.table).sampling[row.per], 'record'))}.",
        _word_on_intervals(results),
        _word_on_small_groups(results),
    ]
    return textwrap.fill(" ".join(sentences), 118, break_on_hyphens=False)


def _word_on_small_groups(results: Results) -> str:
    """From how many users on the median group is off by less than half of its mean."""
    rows = results.of(OURS, epsilon=1.0, delta=results.deltas[0])
    sizes = np.array([row.by_size for row in rows], dtype=float)
    usable = [
        size
        for size, column in zip(SIZES, sizes.T, strict=True)
        if np.isfinite(column).any() and np.nanmedian(column) < 0.5
    ]
    if not usable:
        return "At this budget, half of the groups of any size are refused or off by more than half of their mean."
    if min(usable) == SIZES[0]:
        return (
            "Groups of any size are usually off by less than half of their mean, but the values of small ones come "
            "mostly from the other groups: look at their intervals, or merge them."
        )
    return (
        f"Merge groups of fewer than {min(usable):,} users or raise epsilon: most of them are refused or off by more "
        "than half of their mean."
    )


def _word_on_intervals(results: Results) -> str:
    rows = results.of(OURS, epsilon=1.0, judged=True)
    honest = sum(row.coverage >= LEAST_COVERAGE for row in rows)
    refusing = sum(row.refused_large > LARGEST_REFUSED for row in rows)
    return (
        f"Its 95% intervals held the plain mean in at least {LEAST_COVERAGE:.0%} of releases in {honest} of "
        f"{len(rows)} cases. In {refusing} cases, more than {LARGEST_REFUSED:.0%} of these groups were refused."
    )


def _summary(judged: Sequence[Verdict]) -> str:
    lines = [table_line((v.aim, v.found, "met" if v.met else "**missed**")) for v in judged]
    return "\n".join([table_line(("aim", "found", "")), "|---|---|---|", *lines])


def _misses(judged: Sequence[Verdict]) -> str:
    listed = [f"- *{v.aim}*: {'; '.join(v.misses)}." for v in judged if v.misses]
    if not listed:
        return "No case is beyond an aim's limit."
    return "\n".join(["Cases beyond an aim's limit, also where the aim as a whole is met:", "", *listed])


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([*table_heading(headings, left=_WORDS), *map(table_line, rows)])


def _starred(results: Results, row: Measured) -> str:
    return row.table + ("" if results.fact(row.table).judged else " *")


def _by_size(results: Results) -> str:
    ends = [f"{end - 1:,}" for end in SIZES[1:]]
    classes = [f"{first:,} to {end}" for first, end in zip(SIZES, ends, strict=False)]
    classes.append(f"{SIZES[-1]:,} and more")
    delta = results.deltas[0]

    def middle(contestant: str, per: str, measure: str) -> list[str]:
        rows = results.of(contestant, per=per, epsilon=1.0, delta=delta)
        sizes = np.array([getattr(row, measure) for row in rows if len(getattr(row, measure))], dtype=float)
        return [
            percent(float(np.nanmedian(column))) if np.isfinite(column).any() else "-" for column in sizes.T
        ]

    rows = []
    for per in ("user", "record"):
        for name, contestant, measure in (
            ("hubermean", OURS, "by_size"),
            ("hubermean, refused", OURS, "refused_by_size"),
            ("before", BEFORE, "by_size"),
        ):
            cells = middle(contestant, per, measure)
            if cells:
                rows.append((per, name, *cells))
    counts = [
        sum(
            not math.isnan(row.by_size[place])
            for row in results.of(OURS, per="user", epsilon=1.0, delta=delta)
        )
        for place in range(len(SIZES))
    ]
    rows.append(("", "tables with such groups", *map(str, counts)))
    return _markdown(("per", "", *classes), rows)


def _facts(results: Results) -> str:
    return _markdown(
        (
            "table",
            "one record",
            "source",
            "records",
            "users",
            "groups",
            f"of {ENOUGH_USERS} users",
            "groups per user: median",
            "largest",
            "several",
            "differ",
            "own error",
        ),
        [
            (
                fact.name + ("" if fact.judged else " *"),
                fact.record,
                fact.package,
                f"{fact.records:,}",
                f"{fact.users:,}",
                f"{fact.groups:,}",
                f"{fact.large:,}",
                f"{fact.median_groups:g}",
                f"{fact.most_groups:,}",
                "yes" if fact.several else "no",
                "yes" if fact.different else "no",
                percent(fact.sampling["user"]),
            )
            for fact in results.facts
        ],
    )


def _errors(results: Results, per: str, delta: float) -> str:
    rows = []
    for row in results.of(OURS, per=per, epsilon=1.0, delta=delta):
        others = {name: results.beside(row, name) for name in _OTHERS}
        least = all(
            other is None or row.rmse <= other.rmse for name, other in others.items() if name != HINDSIGHT
        )
        ours = percent(row.rmse)
        rows.append(
            (
                _starred(results, row),
                f"**{ours}**" if least else ours,
                *("-" if other is None else percent(other.rmse) for other in others.values()),
                *(
                    "-" if (found := ratio(results, row, name)) is None else f"{found:.2f}"
                    for name in (BEFORE, HINDSIGHT)
                ),
            )
        )
    headings = ("table", OURS, *(_HEADINGS.get(name, name) for name in _OTHERS), "of before", "of hindsight")
    return _markdown(headings, rows)


def _wide(results: Results) -> str:
    givens = (RIGHT, WIDE_BOUNDS, WIDE_CONTRIBUTIONS, WIDE)
    names = [f"{library}, {given}" for library in (PIPELINEDP, OPENDP) for given in givens]
    rows = []
    for row in results.of(OURS, epsilon=1.0, delta=results.deltas[0]):
        others = [results.beside(row, name) for name in names]
        rows.append(
            (
                _starred(results, row),
                row.per,
                *("-" if other is None else percent(other.rmse) for other in others),
                "-" if others[0] is None else others[0].setting,
            )
        )
    return _markdown(("table", "per", *names, "right for PipelineDP"), rows)


def _intervals(results: Results, delta: float) -> str:
    rows = []
    for row in results.of(OURS, epsilon=1.0, delta=delta):
        before = results.beside(row, BEFORE)
        covered = f"{row.coverage:.1%}"
        rows.append(
            (
                _starred(results, row),
                row.per,
                covered if row.coverage >= LEAST_COVERAGE else f"**{covered}**",
                f"{row.worst_coverage:.0%}",
                f"{row.width:.1f}",
                "-" if before is None else f"{before.coverage:.1%}",
                "-" if before is None else f"{before.width:.1f}",
                percent(row.typical),
                percent(row.rmse_all),
                percent(row.typical_all),
                percent(row.rmse_released),
                f"{row.refused_large:.1%}",
                f"{row.refused:.1%}",
            )
        )
    return _markdown(
        (
            "table",
            "per",
            "coverage",
            "worst group",
            "width",
            "before: coverage",
            "before: width",
            "typical",
            "RMSE, all groups",
            "typical, all groups",
            "RMSE where released",
            "refused",
            "refused, all groups",
        ),
        rows,
    )


def _other_epsilons(results: Results) -> str:
    epsilons = results.epsilons
    if epsilons == [1.0]:
        return ""
    delta = results.deltas[0]
    rows = []
    for row in results.of(OURS, epsilon=1.0, delta=delta):
        cells = []
        for epsilon in epsilons:
            (found,) = (
                other
                for other in results.of(OURS, per=row.per, epsilon=epsilon, delta=delta)
                if other.table == row.table
            )
            best = ratio(results, found, HINDSIGHT)
            cells += [percent(found.rmse), "-" if best is None else f"{best:.2f}", f"{found.coverage:.1%}"]
        rows.append((_starred(results, row), row.per, *cells))
    headings = [
        heading
        for epsilon in epsilons
        for heading in (f"RMSE, epsilon = {epsilon:g}", "of hindsight", "coverage")
    ]
    table = _markdown(("table", "per", *headings), rows)
    return f"\n## Other budgets\n\nDelta = {delta_text(delta)}; groups of at least {ENOUGH_USERS} users.\n\n{table}\n\n"
