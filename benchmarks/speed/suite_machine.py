"""One machine: `hubermean.mean`, given nothing but epsilon, beside plain DuckDB and plain Polars on the same files.

Times are of whole calls in one process, in turns. Memory is of each alone, in a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common.interleaved import Ratio, in_turns
from common.measured import Limits, Measured, measure_engine
from common.rows_file import AMOUNT, PRICE, SCATTERED, TEXT, USER, WHOLE, RowsFile, make_file
from common.sections import Table, megabytes, seconds
from common.watched import watch
from peers.runners.whole_file import Work
from speed.engines import ENGINES, EPSILON, PLAIN, Question

SMALL_ROWS, SMALL_USERS = 200_000, 20_000
MEMORY_LIMIT, MEMORY_LIMIT_BYTES = "2GB", 2e9

SAYS = (
    "hubermean gets only epsilon: no bounds, no contribution bound. Its mean is the default, over "
    "records, or where the table says so the mean of user means, which the plain queries compute: `SELECT "
    "avg(m) FROM (SELECT avg(v) AS m FROM file GROUP BY user)` in DuckDB, and the same in Polars' "
    "streaming engine.",
    "Seconds are the best of all runs after a warm-up; `best` is the ratio of these. `in turns` is the "
    "median of the ratios of alternating runs, with quartiles in parentheses.",
    "Ids are whole numbers from 0 on unless the table says otherwise; scattered ones cover all 63 bits.",
    "MB is the peak resident memory of a process that does nothing else, interpreter and libraries included.",
    "The table of stages splits one call in its own process into reading, grouping and exact sums, and "
    "everything after them (private searches, mechanism, noise).",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    title: str
    column: str
    stated: Mapping[str, Any] = field(default_factory=dict)
    user: str = USER


CASES = (
    Case(title="double", column=AMOUNT),
    Case(title="double, mean of user means", column=AMOUNT, stated={"per": "user"}),
    Case(title="double, resolution=0.01", column=AMOUNT, stated={"resolution": 0.01}),
    Case(title="integer", column=WHOLE),
    Case(title="decimal(12, 2)", column=PRICE),
    Case(title="double, scattered ids", column=AMOUNT, user=SCATTERED),
    Case(
        title="double, resolution=0.01, scattered ids",
        column=AMOUNT,
        stated={"resolution": 0.01},
        user=SCATTERED,
    ),
    Case(title="integer, scattered ids", column=WHOLE, user=SCATTERED),
    Case(title="double, ids of text", column=AMOUNT, user=TEXT),
    Case(title="integer, ids of text", column=WHOLE, user=TEXT),
)
# Of the largest files: the first cases that differ in what is read or grouped.
LARGE = tuple(case for case in CASES if case.user != TEXT and "per" not in case.stated)


def beside_plain(file: RowsFile, *, threads: int, repeats: int, cases: Sequence[Case] | None = None) -> Table:
    rows = []
    for case in cases or CASES:
        question = Question(
            path=file.path, user=case.user, columns=[case.column], threads=threads, **case.stated
        )
        times = in_turns({name: engine(question) for name, engine in ENGINES.items()}, repeats)
        rows.append(
            [
                case.title,
                *(seconds(min(times[name])) for name in ENGINES),
                *(
                    cell
                    for name in PLAIN
                    for ratio in [Ratio.of(times["hubermean"], times[name])]
                    for cell in (f"{ratio.best:.2f}", str(ratio))
                ),
            ]
        )
    return Table(
        title=f"Time: {file.title}, {repeats} turns",
        headings=[
            "column",
            *(f"{name} s" for name in ENGINES),
            *(heading for name in PLAIN for heading in (f"over {name}, best", "in turns")),
        ],
        rows=rows,
        left=["column"],
    )


def memory(file: RowsFile, *, threads: int, limits: Limits) -> Table:
    small = make_file(SMALL_ROWS, SMALL_USERS)
    bare = [replace(case, stated={}, title="") for case in CASES]  # several cases ask the same of others
    plain = {
        (name, case.user, case.column): _peak(alone(name, file, small, case, threads=threads, limits=limits))
        for name in PLAIN
        for case in {(case.user, case.column): case for case in bare}.values()
    }
    rows = []
    for case in CASES:
        ours = alone("hubermean", file, small, case, threads=threads, limits=limits)
        rows.append([case.title, *(plain[name, case.user, case.column] for name in PLAIN), _peak(ours)])
    return Table(
        title=f"Memory: {file.title}",
        headings=["column", *(f"{name} MB" for name in ENGINES)],
        rows=rows,
        left=["column"],
    )


def _peak(found: Measured) -> str:
    return found.ended or megabytes(found.peak_bytes)


def within_memory(file: RowsFile, *, threads: int, limits: Limits) -> Table:
    """With a limit on what reading and grouping may hold."""
    small = make_file(SMALL_ROWS, SMALL_USERS)
    return Table(
        title=f'Memory of hubermean with memory_limit="{MEMORY_LIMIT}": {file.title}',
        headings=["column", "seconds", "MB", "MB beyond an idle process", "within the limit"],
        rows=list(_within(file, small, threads, limits)),
        left=["column", "within the limit"],
    )


def _within(file: RowsFile, small: RowsFile, threads: int, limits: Limits) -> Iterator[list[str]]:
    for case in LARGE:
        stated = {**case.stated, "memory_limit": MEMORY_LIMIT}
        found = alone("hubermean", file, small, replace(case, stated=stated), threads=threads, limits=limits)
        yield [
            case.title,
            found.ended or seconds(found.best_seconds),
            megabytes(found.peak_bytes),
            megabytes(found.extra_bytes),
            "yes" if found.peak_bytes <= MEMORY_LIMIT_BYTES and not found.ended else "NO",
        ]


def stages(file: RowsFile, *, threads: int, limits: Limits) -> Table:
    """What comes after reading and grouping, beside these."""
    rows = []
    for case in LARGE:
        given = {
            "path": file.path,
            "user": case.user,
            "value": case.column,
            "threads": threads,
            **case.stated,
        }
        command = [sys.executable, str(Path(__file__).with_name("stage_times.py")), json.dumps(given)]
        watched = watch(command, most_seconds=limits.seconds, most_bytes=limits.bytes)
        if not watched.done:
            rows.append([case.title, "-", "-", limits.exceeded(watched.stopped) or "failed"])
            continue
        said = json.loads(watched.output.splitlines()[-1])
        share = said["after"] / said["reading"]
        rows.append([case.title, seconds(said["reading"]), seconds(said["after"]), f"{share:.3f}"])
    return Table(
        title=f"Stages: {file.title}",
        headings=["column", "reading and grouping s", "after that s", "ratio"],
        rows=rows,
        left=["column"],
    )


def alone(
    engine: str,
    file: RowsFile,
    small: RowsFile,
    case: Case,
    *,
    threads: int,
    limits: Limits,
    releases: int = 1,
) -> Measured:
    """In a process of its own, which was asked the same of a small file before."""
    work = Work(
        path=file.path,
        user=case.user,
        value=case.column,
        epsilon=EPSILON,
        threads=threads,
        releases=releases,
        seconds=limits.seconds,
        rows=file.rows,
        options={"engine": engine, "small": small.path, **case.stated},
    )
    return measure_engine(work, limits)
