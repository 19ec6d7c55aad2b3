"""Where the time of a release goes: each step of reading and grouping by itself, as a query, beside the plain average.

Every line does what the line above it does and a little more, so that the differences say what a step costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from common.interleaved import Ratio, in_turns
from common.rows_file import AMOUNT, SCATTERED, USER, WHOLE, RowsFile
from common.sections import Table, seconds
from hubermean import mean
from hubermean.ingest.duckdb.fast_sums import choose_fast_sums
from hubermean.ingest.duckdb.source import open_source
from hubermean.ingest.files import FileSet
from hubermean.ingest.reading import user_table
from hubermean.ingest.schema import ColumnRoles, ValueColumn
from hubermean.types.options import ReadOptions
from speed.engines import EPSILON

SAYS = (
    "A read sums both columns and groups nothing. A count groups by user and sums nothing. Sums are "
    "exact, in 128 bits, with DuckDB's own settings; handed over, they are an Arrow table; as one "
    "aggregate, they are the state of an average; in parts, doubles are summed as two doubles whose sums "
    "are exact. hubermean's reading includes all of that, in its own "
    "locked-down connection, where ids that lie close together index an array. The release adds private "
    "searches, mechanism and noise. Seconds are the best of all runs; in parentheses is the median of the "
    "ratios of alternating runs.",
)


def where_it_goes(file: RowsFile, *, threads: int, repeats: int) -> Table:
    headings = ["what", *(f"{value}, {ids}" for ids, _ in _IDS for value, _ in _VALUES)]
    columns = [
        _measured(_steps(file, user, value, threads), repeats) for _, user in _IDS for _, value in _VALUES
    ]
    rows = [[step, *(column[step] for column in columns)] for step in columns[0]]
    title = f"{file.title}, {repeats} turns; seconds, in brackets over the plain average"
    return Table(title=title, headings=headings, rows=rows, left=["what"])


_IDS = (("ids from 0 on", USER), ("scattered ids", SCATTERED))
_VALUES = (("double", AMOUNT), ("integer", WHOLE))


def _steps(file: RowsFile, user: str, value: str, threads: int) -> dict[str, Callable[[], Any]]:
    connection = duckdb.connect(config={"threads": str(threads), "preserve_insertion_order": "false"})
    connection.execute("SET enable_progress_bar = false").fetchall()

    def asked(query: str) -> Callable[[], Any]:
        return lambda: connection.sql(query).fetchall()

    exact = f"try_cast({value} * {2.0**60!r} AS HUGEINT)" if value == AMOUNT else value
    numbers = f"(SELECT {user} AS u, {exact} AS v FROM '{file.path}') GROUP BY u"
    sums = f"SELECT sum(v) AS s, count(v) AS n FROM {numbers}"
    joint = f"SELECT avg(v) EXPORT_STATE AS state FROM {numbers}"
    in_parts = joint
    if value == AMOUNT:
        fast = choose_fast_sums(connection, FileSet.find(file.path), [_value_column(file.path, value)])
        if fast is not None:
            selected = f"SELECT {user} AS u, {', '.join(fast.numbers())} FROM '{file.path}'"
            in_parts = (
                f"SELECT {', '.join(fast.aggregates())} FROM ({fast.select(selected, ['u'])}) GROUP BY u"
            )
    how = {"user": user, "value": value, "threads": threads}
    return {
        "plain average of averages": asked(
            f"SELECT avg(m) FROM (SELECT avg({value}) AS m FROM '{file.path}' GROUP BY {user})"
        ),
        # Of sums no statistic of the file tells anything.
        "a read": asked(f"SELECT sum({user}), sum({value}) FROM '{file.path}'"),
        "a count by user": asked(
            f"SELECT max(n) FROM (SELECT count(*) AS n FROM '{file.path}' GROUP BY {user})"
        ),
        "sums and counts by user": asked(f"SELECT max(s), max(n) FROM ({sums})"),
        "the same, handed over": lambda: connection.sql(sums).to_arrow_table(),
        "the same as one aggregate": lambda: connection.sql(joint).to_arrow_table(),
        "the same in parts": lambda: connection.sql(in_parts).to_arrow_table(),
        "hubermean's reading": lambda: user_table(file.path, records=False, **how),
        "a release": lambda: mean(file.path, epsilon=EPSILON, **how),
    }


def _measured(steps: dict[str, Callable[[], Any]], repeats: int) -> dict[str, str]:
    times = in_turns(steps, repeats)
    plain = times["plain average of averages"]
    return {
        step: f"{seconds(min(taken))} ({Ratio.of(taken, plain).middle:.2f})" for step, taken in times.items()
    }


def _value_column(path: str, value: str) -> ValueColumn:
    with open_source(path, ColumnRoles(users=[], values=[value]), ReadOptions()) as opened:
        return opened.schema.value_column(value, resolution=None, clamp_infinities=False)
