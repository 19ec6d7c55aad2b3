"""Parquet files of users and values for the benchmarks of speed, and what is true of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb

DATA = Path(__file__).parent.parent / "data"

USER, SCATTERED, TEXT = "user_id", "account", "name"
"""The same users, by whole numbers from 0 on, by whole numbers anywhere in 63 bits, and by text of 17 letters."""

AMOUNT, WHOLE, PRICE = "amount", "whole", "price"
"""Exponential doubles, whole numbers up to 10,000, decimals(12, 2)."""

_UNIFORM = "((hash(i, {which}) >> 11) * (2.0 ** -53))"
"""From the row's number alone: the same file, however many threads write it."""


@dataclass(frozen=True, kw_only=True)
class RowsFile:
    """Rows of random users: one file, or as many parts.

    Attributes:
        path: the file, or a pattern of all parts, as every engine here reads it.
    """

    path: str
    rows: int
    users: int
    parts: int

    @property
    def title(self) -> str:
        files = "one Parquet file" if self.parts == 1 else f"{self.parts} Parquet files"
        return f"{self.rows:,} rows, {self.users:,} users, {files}"


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What an owner of the data knows of one column: both means, the tightest bounds, and how far user means spread."""

    mean_of_means: float
    mean_of_records: float
    users: int
    low: float
    high: float
    mean_low: float
    mean_high: float
    most_records: int
    deviation_of_means: float


def make_file(rows: int, users: int, *, parts: int = 1) -> RowsFile:
    columns = (
        f"-ln(1 - {_uniform(1)}) * 13.7 + 2.5 AS {AMOUNT}, ({_uniform(2)} * 10000)::BIGINT AS {WHOLE}, "
        f"({_uniform(3)} * 10000)::DECIMAL(12, 2) AS {PRICE}"
    )
    return _made(f"rows-{rows}-users-{users}", columns, rows, users, parts)


def make_wide_file(rows: int, users: int, columns: int) -> tuple[RowsFile, list[str]]:
    """(file, names of its columns): exponential doubles in all of them."""
    names = [f"{AMOUNT}_{which}" for which in range(columns)]
    drawn = ", ".join(
        f"-ln(1 - {_uniform(which)}) * 13.7 + 2.5 AS {name}" for which, name in enumerate(names)
    )
    return _made(f"rows-{rows}-users-{users}-columns-{columns}", drawn, rows, users, 1), names


def truth_of(file: RowsFile, column: str) -> Truth:
    """Kept beside the file: at hundreds of millions of rows it takes a while."""
    name = Path(file.path).name if file.parts == 1 else Path(file.path).parent.name
    kept = DATA / f"{name}.{column}.json"
    if not kept.exists():
        with duckdb.connect() as connection:
            ((*row,),) = connection.sql(
                f"SELECT avg(m), sum(s) / sum(n), count(*), min(low), max(high), min(m), max(m), max(n), stddev(m) "
                f"FROM (SELECT avg({column}) AS m, sum({column}) AS s, count(*) AS n, min({column}) AS low, "
                f"max({column}) AS high FROM '{file.path}' GROUP BY {USER})"
            ).fetchall()
        kept.write_text(json.dumps(row))
    row = json.loads(kept.read_text())
    return Truth(**dict(zip(Truth.__dataclass_fields__, row, strict=True)))


def _uniform(which: int) -> str:
    return _UNIFORM.format(which=which)


def _made(name: str, columns: str, rows: int, users: int, parts: int) -> RowsFile:
    if parts == 1:
        path = DATA / f"{name}.parquet"
        _write(path, columns, range(rows), users)
        return RowsFile(path=str(path), rows=rows, users=users, parts=1)
    folder = DATA / f"{name}-parts-{parts}"
    for part in range(parts):
        ends = range(rows * part // parts, rows * (part + 1) // parts)
        _write(folder / f"part-{part:04}.parquet", columns, ends, users)
    return RowsFile(path=str(folder / "*.parquet"), rows=rows, users=users, parts=parts)


def _write(path: Path, columns: str, numbers: range, users: int) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false").fetchall()
        connection.execute(
            f"COPY (SELECT {USER}, (hash({USER}) >> 1)::BIGINT AS {SCATTERED}, "
            f"'u' || lpad(hex(hash({USER})), 16, '0') AS {TEXT}, {columns} "
            f"FROM (SELECT i, (hash(i) % {users})::BIGINT AS {USER} "
            f"FROM range({numbers.start}, {numbers.stop}) t(i))) TO '{unfinished}' (FORMAT parquet)"
        ).fetchall()
    unfinished.replace(path)
