"""The cost of a private mean beside the plain query, in one process, warm, best of several.

The plain query is DuckDB's mean of user means; beside it runs the whole release: reading, grouping in exact
integers, rounding, noise. Twenty million rows, one million users, one Parquet file, by default.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import duckdb

from hubermean import mean
from side_by_side import Case, compare

DATA = Path(__file__).parent / "data"


def make_file(rows: int, users: int) -> Path:
    """Random users, exponential doubles, whole numbers and decimals."""
    path = DATA / f"rows-{rows}-users-{users}.parquet"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        with duckdb.connect() as connection:
            connection.execute("SELECT setseed(0.5)").fetchall()
            connection.execute(
                f"COPY (SELECT (hash(i) % {users})::BIGINT AS user_id, -ln(1 - random()) * 13.7 + 2.5 AS amount, "
                f"(random() * 10000)::BIGINT AS whole, (random() * 10000)::DECIMAL(12, 2) AS price "
                f"FROM range({rows}) t(i)) TO '{path}' (FORMAT parquet)"
            ).fetchall()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    path = make_file(options.rows, options.users)
    connection = duckdb.connect(config={"threads": str(options.threads)})

    def plain(column: str) -> Callable[[], object]:
        query = f"SELECT avg(m) FROM (SELECT avg({column}) AS m FROM '{path}' GROUP BY user_id)"
        return lambda: connection.sql(query).fetchall()

    def release(column: str, resolution: float | None = None) -> Callable[[], object]:
        return lambda: mean(
            str(path),
            user="user_id",
            value=column,
            epsilon=1.0,
            bounds=(0, 10_000),
            record_cap=50,
            resolution=resolution,
            threads=options.threads,
        )

    cases = [
        Case(name=name, plain=plain(column), private=release(column, step), target=target)
        for name, column, step, target in (
            ("double, two parts", "amount", None, 1.6),
            ("double, resolution 0.01", "amount", 0.01, 1.35),
            ("integer", "whole", None, 1.35),
            ("decimal(12, 2)", "price", None, 1.35),
        )
    ]
    print(
        f"{options.rows:,} rows, {options.users:,} users, {options.threads} threads, {options.repeats} repeats\n"
    )
    compare(cases, options.repeats)


if __name__ == "__main__":
    main()
