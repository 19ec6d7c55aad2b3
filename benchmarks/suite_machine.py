"""One machine: `hubermean.mean`, told nothing but epsilon, beside plain DuckDB and plain Polars on the same files.

Times are of whole calls in one process, in turns. Memory is of each alone, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engines import ENGINES, EPSILON, PLAIN, Question
from measured import Limits, Measured, measure_engine
from peer_runners.whole_file import Work
from rows_file import AMOUNT, PRICE, USER, WHOLE, RowsFile, make_file
from sections import Table, megabytes, seconds
from side_by_side import Ratio, in_turns

SMALL_ROWS, SMALL_USERS = 200_000, 20_000
MEMORY_LIMIT, MEMORY_LIMIT_BYTES = "2GB", 2e9

SAYS = (
    "hubermean is told nothing but epsilon: not the bounds, not how many records a user has. Its mean is the default, "
    "over records, or, where the table says so, of user means, which is what the plain queries compute: "
    "`SELECT avg(m) FROM (SELECT avg(v) AS m FROM file GROUP BY user)` in DuckDB, and the same by Polars' streaming "
    "engine.",
    "Seconds are the best of all turns, after one that is not counted. Ratios are the median of the turns, in brackets "
    "their quartiles.",
    "MB is the most resident memory of a process that does nothing else, interpreter and libraries included.",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    title: str
    column: str
    told: Mapping[str, Any]


CASES = (
    Case(title="double", column=AMOUNT, told={}),
    Case(title="double, mean of user means", column=AMOUNT, told={"per": "user"}),
    Case(title="double, resolution=0.01", column=AMOUNT, told={"resolution": 0.01}),
    Case(title="integer", column=WHOLE, told={}),
    Case(title="decimal(12, 2)", column=PRICE, told={}),
)


def beside_plain(file: RowsFile, *, threads: int, repeats: int) -> Table:
    rows = []
    for case in CASES:
        question = Question(path=file.path, user=USER, columns=[case.column], threads=threads, **case.told)
        times = in_turns({name: engine(question) for name, engine in ENGINES.items()}, repeats)
        rows.append(
            [
                case.title,
                *(seconds(min(times[name])) for name in ENGINES),
                *(str(Ratio.of(times["hubermean"], times[name])) for name in PLAIN),
            ]
        )
    return Table(
        title=f"Time: {file.title}, {repeats} turns",
        headings=["column", *(f"{name} s" for name in ENGINES), *(f"over {name}" for name in PLAIN)],
        rows=rows,
        left=["column"],
    )


def memory(file: RowsFile, *, threads: int, limits: Limits) -> Table:
    small = make_file(SMALL_ROWS, SMALL_USERS)
    plain = {  # several cases ask for the same column
        (name, column): _peak(alone(name, file, small, column, {}, threads=threads, limits=limits))
        for name in PLAIN
        for column in dict.fromkeys(case.column for case in CASES)
    }
    rows = []
    for case in CASES:
        ours = alone("hubermean", file, small, case.column, case.told, threads=threads, limits=limits)
        rows.append([case.title, *(plain[name, case.column] for name in PLAIN), _peak(ours)])
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
    for case in CASES:
        told = {**case.told, "memory_limit": MEMORY_LIMIT}
        found = alone("hubermean", file, small, case.column, told, threads=threads, limits=limits)
        yield [
            case.title,
            found.ended or seconds(found.best_seconds),
            megabytes(found.peak_bytes),
            megabytes(found.extra_bytes),
            "yes" if found.peak_bytes <= MEMORY_LIMIT_BYTES and not found.ended else "NO",
        ]


def alone(
    engine: str,
    file: RowsFile,
    small: RowsFile,
    column: str,
    told: Mapping[str, Any],
    *,
    threads: int,
    limits: Limits,
    releases: int = 1,
) -> Measured:
    """In a process of its own, which was asked the same of a small file before."""
    work = Work(
        path=file.path,
        user=USER,
        value=column,
        epsilon=EPSILON,
        threads=threads,
        releases=releases,
        seconds=limits.seconds,
        rows=file.rows,
        options={"engine": engine, "small": small.path, **told},
    )
    return measure_engine(work, limits)
