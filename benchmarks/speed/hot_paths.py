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
from hubermean.ingest.duckdb.fast_sums import choose_coarse_sums
from hubermean.ingest.files import FileSet
from hubermean.ingest.reading import user_table
from speed.engines import EPSILON

SAYS = (
    "A read sums both columns and groups nothing. A count groups by user and sums nothing. Sums are "
    "exact, in 128 bits, with DuckDB's own settings; handed over, they are an Arrow table; as one "
    "aggregate, they are the state of an average; in steps of 64 bits, doubles are summed in whole units, "
    "with remainders in a sum of their own. hubermean's reading includes all of that, in its own "
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
    coarse = choose_coarse_sums(connection, FileSet.find(file.path), value) if value == AMOUNT else None
    if coarse is None:
        in_steps = joint
    else:
        wanted = f"avg(value_0) EXPORT_STATE AS state, {coarse.sum_remainders()}"
        parts = ", ".join(coarse.select_parts(value))
        in_steps = f"SELECT {wanted} FROM (SELECT {user} AS u, {parts} FROM '{file.path}') GROUP BY u"
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
        "the same in steps of 64 bits": lambda: connection.sql(in_steps).to_arrow_table(),
        "hubermean's reading": lambda: user_table(file.path, records=False, **how),
        "a release": lambda: mean(file.path, epsilon=EPSILON, **how),
    }


def _measured(steps: dict[str, Callable[[], Any]], repeats: int) -> dict[str, str]:
    times = in_turns(steps, repeats)
    plain = times["plain average of averages"]
    return {
        step: f"{seconds(min(taken))} ({Ratio.of(taken, plain).middle:.2f})" for step, taken in times.items()
    }
