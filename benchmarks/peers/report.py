"""Tables of the comparison with other libraries, for a terminal and for docs/evidence/peers.md."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean

from rich import box
from rich.console import Console
from rich.table import Table

from accuracy.report import number
from hubermean import __version__
from peers.data import WIDTHS
from peers.excess import Comparison, Estimate
from peers.result import FAR, MOST_REFUSED, SURELY, TARGETS, Comparisons, Peer, Row, standing

PAGE = """# Compared with other libraries

hubermean {version} compared with {titles}:
one column, epsilon = 1 and delta = 0, private for whole users. This command writes the page:

```
make peers     # an environment per library, then about half an hour; python -m peers.run --quick for a rough run
```

## Summary

{says}

Their excess error divided by ours, where theirs is surely above zero. With the same bounds: the geometric mean over
distributions and m, because the smallest of several ties would be below 1. With no bounds given to hubermean: the
smallest.

{summary}

## Who guarantees what

Epsilon = 1 means something else under another neighbor relation. So each library is compared with hubermean under the
relation of its own guarantee ([neighbor relations](../guides/privacy-budget.md)).

{relations}

- Compared with OpenDP and diffprivlib, hubermean with the same bounds uses `replace-values`: each user has one mean,
  and one of these values changes. Without bounds it uses `replace-user`, which also hides whether a user has any usable
  value.
- With the same bounds, all three add Laplace noise of scale width / (n epsilon). By theory this is a tie, and ratios
  differ from 1 by chance.
- All libraries get user means, one number per user, so that a record is a user for libraries that protect records.

## How it is measured

- Records are Gaussian or Lomax(4), m per user. A data set is n user means around a true mean that is drawn anew for
  each data set, uniformly from -50 to 50. {runs} data sets per case, {releases} independent releases of each by
  everyone.
- *Right* bounds are those of someone who knows the distribution and its true mean. They end where the distribution does
  (a Lomax distribution begins at a known point), or else where one of all n users is expected beyond. The true mean
  lies in their middle for the Gaussian, where PipelineDP's noisy count costs least, and near their lower end for
  Lomax(4).
- Bounds 10 and 100 times too wide contain the right ones at a random position.
- *Excess* is the mean squared error less that of the non-private mean, sigma^2/(n m), in units of the latter: 1 means
  twice the error without privacy. It is below zero where clipping a heavy tail helps more than noise harms. The luck of
  the data sets is removed (`benchmarks/peers/excess.py`). Standard errors are in parentheses.
- *Ratio* is their excess divided by ours, with a 95% interval (Fieller); above 1 hubermean is better. There is none
  where an excess is not above zero.
- *Standing*: with the same bounds, hubermean is ahead or behind if the difference is more than {surely:g} standard
  errors; otherwise it is a tie.
- *Verdict*, without bounds, for n = 1,000: a ratio of at least {targets},
  and no more than {refused:.0%} refused. Close: the target is within the interval.

{tables}
"""
_TO_THE_LEFT = ("distribution", "bounds", "standing", "verdict", "library", "hides that", "how")


def print_tables(found: Comparisons) -> None:
    console = Console(width=178)
    for peer, version in found.versions.items():
        title = f"{peer.title} {version}: {peer.relation}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        for name in _headings(peer):
            table.add_column(name, justify="left" if name in _TO_THE_LEFT else "right")
        for row in _rows_of(found, peer):
            table.add_row(*_cells(row), end_section=row.factor == WIDTHS[-1])
        console.print(table)
    for sentence in _sentences(found):
        console.print(f"- {sentence}", highlight=False)


def write_markdown(path: Path, found: Comparisons) -> None:
    says = (
        textwrap.fill(f"- {sentence}", 118, subsequent_indent="  ", break_on_hyphens=False)
        for sentence in _sentences(found)
    )
    relations, tables = [], []
    for peer, version in found.versions.items():
        ours = [f"`{contestant.neighbors}`" for contestant in (peer.same_bounds, peer.no_bounds)]
        relations.append([f"{peer.title} {version}", peer.relation, peer.how, *ours])
        cells = [_cells(row) for row in _rows_of(found, peer)]
        tables.append(f"## {peer.title}\n\n{_markdown(_headings(peer), cells)}")
    targets = [f"{target:g} with bounds {factor} times too wide" for (_, factor), target in TARGETS.items()]
    page = PAGE.format(
        version=__version__,
        titles=_listed([relation[0] for relation in relations]),
        says="\n".join(says),
        summary=_summary(found),
        relations=_markdown(
            ["library", "hides that", "how", "ours, same bounds", "ours, no bounds"], relations
        ),
        runs=found.runs,
        releases=found.releases,
        surely=SURELY,
        refused=MOST_REFUSED,
        targets=_listed(targets),
        tables="\n\n".join(tables),
    )
    path.write_text(page)


def _headings(peer: Peer) -> list[str]:
    case = ["n", "distribution", "m", "bounds"]
    same_bounds = ["ours, same bounds", "ratio", "standing"]
    no_bounds = ["ours, no bounds", "refused", "ratio", "verdict"]
    return [*case, peer.title, *same_bounds, *no_bounds]


def _cells(row: Row) -> list[str]:
    return [
        f"{row.case.users:,}",
        row.case.law,
        str(row.case.records),
        _bounds(row.factor),
        _excess(row.theirs),
        _excess(row.same_bounds),
        _ratio(row.beside_same_bounds),
        standing(row.beside_same_bounds),
        _excess(row.no_bounds),
        f"{row.refused:.1%}" if row.refused else "0",
        _ratio(row.beside_no_bounds),
        _verdict(row),
    ]


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rules = ["---" if name in _TO_THE_LEFT else "--:" for name in headings]
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return "\n".join([lines[0], "|" + "|".join(rules) + "|", *lines[1:]])


def _bounds(factor: int) -> str:
    return "right" if factor == 1 else f"{factor} times"


def _excess(found: Estimate) -> str:
    """With two digits of the standard error."""
    if math.isnan(found.value):
        return "-"
    digits = min(max(1 - math.floor(math.log10(found.error)), 0), 4) if found.error > 0.0 else 4
    return f"{found.value:,.{digits}f} ({found.error:,.{digits}f})"


def _ratio(beside: Comparison) -> str:
    if math.isnan(beside.ratio):
        return "-"
    reach = f"to {number(beside.high)}" if math.isfinite(beside.high) else "or more"
    return f"{number(beside.ratio)} ({number(beside.low)} {reach})"


def _verdict(row: Row) -> str:
    if row.met is None:
        return ""
    return f"{'PASS' if row.met else 'FAIL'} {row.target:g}" + (", close" if row.close else "")


def _rows_of(found: Comparisons, peer: Peer) -> list[Row]:
    return [row for row in found.rows if row.peer == peer]


def _summary(found: Comparisons) -> str:
    lines = []
    for peer in found.versions:
        rows = _rows_of(found, peer)
        for users in sorted({row.case.users for row in rows}):
            chosen = [row for row in rows if row.case.users == users]
            same_bounds = [
                _over_cases(
                    geometric_mean, [row.beside_same_bounds for row in chosen if row.factor == factor]
                )
                for factor in WIDTHS
            ]
            no_bounds = [
                _over_cases(min, [row.beside_no_bounds for row in chosen if row.factor == factor])
                for factor in WIDTHS
            ]
            lines.append([peer.title, f"{users:,}", *same_bounds, *no_bounds])
    names = [f"{kind}, {_bounds(factor)}" for kind in ("same bounds", "no bounds") for factor in WIDTHS]
    return _markdown(["library", "n", *names], lines)


def _over_cases(of: Callable[[Sequence[float]], float], found: Sequence[Comparison]) -> str:
    known = [one.ratio for one in found if one.low > 0.0]
    return number(of(known)) if known else "-"


def _sentences(found: Comparisons) -> Iterable[str]:
    """Each from the numbers."""
    right = [row for row in found.rows if row.factor == 1]
    for peer in found.versions:
        judged = [row for row in _rows_of(found, peer) if row.met is not None]
        standings = [standing(row.beside_same_bounds) for row in right if row.peer == peer]
        counts = ", ".join(f"{word} in {standings.count(word)}" for word in ("ahead", "tie", "behind"))
        yield (
            f"{peer.title}: without bounds, hubermean meets {sum(row.met is True for row in judged)} of {len(judged)} "
            f"targets; with the same right bounds: {counts} of {len(standings)} cases."
        )
    if right:
        behind = sum(standing(row.beside_no_bounds) == "behind" for row in right)
        yield (
            f"Right bounds help: without them, hubermean is surely behind a library that has them in "
            f"{behind} of {len(right)} cases. Give bounds that are known and public."
        )
    yield from _replaced_users(right)
    refused = [row for row in right if row.refused]
    if refused:
        cases = sorted({f"n = {row.case.users:,} under `{row.peer.no_bounds.neighbors}`" for row in refused})
        yield (
            f"Without bounds, hubermean refused up to {max(row.refused for row in refused):.1%} of releases, for "
            f"{_listed(cases)}; what was refused has no error here."
        )
    yield from _far_answers(right, found.runs * found.releases)
    for one in found.missing:
        yield f"{one.peer.title} is not compared here: {one.why}."


def _replaced_users(right: Sequence[Row]) -> Iterable[str]:
    """What `replace-user` costs beside peers that hide less; for Gaussian users, where clipping plays no part."""
    rows = [
        row
        for row in right
        if row.peer.same_bounds.neighbors == "replace-values" and row.case.law == "Gaussian"
    ]
    costs = []
    for users in sorted({row.case.users for row in rows}):
        alike = [row for row in rows if row.case.users == users]
        replaced = sum(row.replaced.value for row in alike) / len(alike)
        same_bounds = sum(row.same_bounds.value for row in alike) / len(alike)
        costs.append(f"{replaced:.3f} for {same_bounds:.3f} at n = {users:,}")
    if costs:
        yield (
            f"hubermean's `replace-user` hides more than OpenDP and diffprivlib do. With right bounds of Gaussian "
            f"users its excess compares with that of `replace-values` as follows: {_listed(costs)}."
        )


def _far_answers(right: Sequence[Row], releases: int) -> Iterable[str]:
    once = {
        (row.peer.no_bounds, row.case): row for row in right
    }.values()  # two peers may share what we released
    if far := sum(row.far for row in once):
        cases = [_case(row) for row in once if row.far]
        yield (
            f"Without bounds, {far} of {len(once) * releases:,} answers of hubermean were more than {FAR:g} deviation "
            f"of a user mean off, for {_listed(cases)}; the excess there is mostly theirs."
        )


def _case(row: Row) -> str:
    return f"n = {row.case.users:,}, {row.case.law}, m = {row.case.records} under `{row.peer.no_bounds.neighbors}`"


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
