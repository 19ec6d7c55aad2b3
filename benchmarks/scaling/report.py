"""How the scaling benchmark shows its results: lines for a terminal, and the page docs/evidence/scaling.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaling.run import Grouping, Row

PAGE = """# Scaling: time and memory

How long a release takes and how much memory it needs, from a table of users on, noise included. Reading and grouping
come before it ([speed](../../benchmarks/RESULTS.md)). Seconds depend on the machine; ratios to numpy's mean of the same
array, measured alternately in one process, depend on it less. This command writes the page and its figure:

```
make scaling     # python -m scaling.run; --quick for a short run, --widest for 100,000 columns
```

![Seconds against users, and against columns, on logarithmic scales: all mechanisms grow in proportion, like numpy's
mean.](../img/scaling.svg)

## Summary

{says}

## Compared with grouping

{grouping}

## By number of users

{users}

## By number of columns, {wide:,} users

{columns}

## How it is measured

- Users are Gaussian, epsilon = 1, delta = 1e-5 (`inverse-sensitivity`: 0), radius 1,000, threshold 2 sqrt(d) + 3
  standard deviations.
- Seconds are the best of three runs, of more for short ones. `over numpy` is the ratio of the best times, then the
  smallest and the largest ratio of a pair of runs.
- numpy has one thread (`OPENBLAS_NUM_THREADS=1`), like its mean. More threads slow `propose-test-release` and
  `smooth-sensitivity` down several times on a busy machine.
- Memory is the peak beyond the table, in megabytes, and as a multiple of the float64 array of user means.
- `weights to 50` is `per="record"` with one to fifty records per user, where `inverse-sensitivity` sorts its
  candidates at every level set.
"""
_HEADING = "\n".join(
    [
        "| mechanism | users | columns | seconds | over numpy | extra MB | over the array |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
)


def seconds(value: float) -> str:
    if value >= 0.995:
        return f"{value:.1f}"
    return f"{value:.3f}" if value >= 0.0095 else f"{value:.4f}"


def ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2f}"


def spread(values: tuple[float, float, float]) -> str:
    best, least, largest = values
    return f"{ratio(best)} ({ratio(least)} to {ratio(largest)})"


def memory(row: Row) -> tuple[str, str]:
    return f"{row.extra_bytes / 1e6:,.1f}", ratio(row.extra_bytes / row.array_bytes)


def print_header() -> None:
    print(
        f"{'mechanism':<22}{'users':>12}{'columns':>9}{'seconds':>10}{'numpy s':>10}  "
        f"{'over numpy (least to largest)':<32}{'extra MB':>10}{'over array':>12}"
    )


def print_row(row: Row) -> None:
    extra, over = memory(row)
    print(
        f"{row.mechanism:<22}{row.users:>12,}{row.columns:>9,}{seconds(row.seconds):>10}{row.mean_seconds:>10.6f}  "
        f"{spread(row.beside):<32}{extra:>10}{over:>12}",
        flush=True,
    )


def print_beside_grouping(found: Sequence[Grouping], rows: int, users: int, threads: int) -> None:
    for one in found:
        print(
            f"inverse-sensitivity per {one.per}, {users:,} users: {one.seconds:.3f} s; DuckDB groups {rows:,} rows "
            f"into them in {one.grouping_seconds:.3f} s ({threads} threads): {spread(one.ratio)}, target 0.3, "
            f"{'PASS' if one.met else 'FAIL'}"
        )


def write_markdown(
    path: Path, results: Sequence[Row], groupings: Sequence[Grouping], *, rows: int, users: int
) -> None:
    first_wide = next(
        (place for place, row in enumerate(results) if place and row.users < results[place - 1].users),
        len(results),
    )
    tall, wide = results[:first_wide], results[first_wide:]
    page = PAGE.format(
        says="\n".join(_says(tall, wide, groupings)),
        grouping="\n".join(_grouping(groupings, rows, users)),
        users="\n".join([_HEADING, *map(_line, sorted(tall, key=lambda row: (row.mechanism, row.columns)))]),
        columns="\n".join([_HEADING, *map(_line, sorted(wide, key=lambda row: row.mechanism))]),
        wide=wide[0].users if wide else 0,
    )
    path.write_text(page)


def _line(row: Row) -> str:
    cells = (
        row.mechanism,
        f"{row.users:,}",
        f"{row.columns:,}",
        seconds(row.seconds),
        spread(row.beside),
        *memory(row),
    )
    return "| " + " | ".join(cells) + " |"


def _grouping(found: Sequence[Grouping], rows: int, users: int) -> list[str]:
    if not found:
        return ["Not measured in this run."]
    lines = [
        f"`inverse-sensitivity` on {users:,} users, over DuckDB's `GROUP BY` of {rows:,} rows of a "
        f"Parquet file into the same users:",
        "",
        "| per | `inverse-sensitivity`, s | grouping, s | ratio | target | verdict |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for one in found:
        lines.append(
            f"| {one.per} | {one.seconds:.3f} | {one.grouping_seconds:.3f} | {spread(one.ratio)} | 0.3 | "
            f"{'PASS' if one.met else 'FAIL'} |"
        )
    return lines


def _says(tall: Sequence[Row], wide: Sequence[Row], groupings: Sequence[Grouping]) -> list[str]:
    """Each sentence from the numbers."""
    lines = []
    for name in dict.fromkeys(row.mechanism for row in tall):
        last = max((row for row in tall if row.mechanism == name), key=lambda row: (row.users, -row.columns))
        lines.append(
            f"- `{name}` releases {last.users:,} users in {seconds(last.seconds)} s, "
            f"{ratio(last.beside[0])} numpy means, with {ratio(last.extra_bytes / last.array_bytes)} times their array "
            f"as extra memory."
        )
    if wide:
        last = max(
            (row for row in wide if row.mechanism == "propose-test-release"), key=lambda row: row.columns
        )
        lines.append(
            f"- `propose-test-release` releases {last.columns:,} columns of {last.users:,} users in "
            f"{seconds(last.seconds)} s, "
            f"{ratio(last.beside[0])} numpy means."
        )
    for one in groupings:
        lines.append(
            f"- `inverse-sensitivity` per {one.per} takes {ratio(one.ratio[0])} times as long as the "
            f"grouping before it, for "
            f"a target of 0.3: {'met' if one.met else 'missed'}."
        )
    return lines
