"""The same mean by each engine on this machine: plain DuckDB, plain Polars, and hubermean, given nothing but epsilon.

A job is made once and run often, in one process beside the others, or alone in a process of its own
(`benchmarks/speed/file_engine.py`), so that the memory it takes is its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Job = Callable[[], Sequence[float]]
"""Gives the mean of every column."""

EPSILON = 1.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of every engine, and what hubermean is given beside it.

    Attributes:
        columns: one column, or several for a mean of each.
        resolution, memory_limit, per, bounds: as `hubermean.mean` takes them.
    """

    path: str
    user: str
    columns: Sequence[str]
    threads: int
    resolution: float | None = None
    memory_limit: str | None = None
    per: str = "record"
    bounds: tuple[float, float] | None = None


def hubermean(asked: Question) -> Job:
    from hubermean import mean

    value = asked.columns[0] if len(asked.columns) == 1 else list(asked.columns)

    def release() -> Sequence[float]:
        return mean(
            asked.path,
            user=asked.user,
            value=value,
            epsilon=EPSILON,
            per=asked.per,
            bounds=asked.bounds,
            resolution=asked.resolution,
            memory_limit=asked.memory_limit,
            threads=asked.threads,
        ).values

    return release


def duckdb(asked: Question) -> Job:
    import duckdb

    connection = duckdb.connect(config={"threads": str(asked.threads)})
    if asked.memory_limit:
        connection.execute(f"SET memory_limit = '{asked.memory_limit}'")
    outer = ", ".join(f"avg(m{place})" for place in range(len(asked.columns)))
    inner = ", ".join(f"avg({column}) AS m{place}" for place, column in enumerate(asked.columns))
    query = f"SELECT {outer} FROM (SELECT {inner} FROM '{asked.path}' GROUP BY {asked.user})"
    return lambda: connection.sql(query).fetchall()[0]


def polars(asked: Question) -> Job:
    use_threads(asked.threads)
    import polars

    columns = [polars.col(column).mean() for column in asked.columns]
    means = polars.scan_parquet(asked.path).group_by(asked.user).agg(columns)
    plan = means.select(polars.col(*asked.columns).mean())
    return lambda: plan.collect(engine="streaming").row(0)


PLAIN: dict[str, Callable[[Question], Job]] = {"DuckDB": duckdb, "Polars": polars}
ENGINES = {**PLAIN, "hubermean": hubermean}


def use_threads(threads: int) -> None:
    """Polars reads it once, when it is first imported."""
    os.environ["POLARS_MAX_THREADS"] = str(threads)
