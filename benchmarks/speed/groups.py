"""The cost of 10,000 private means beside the plain query, in one process, warm, interleaved.

The plain query is DuckDB's average of user averages by group; beside it runs the whole release: reading, grouping by
user and group in exact integers, the choice of each user's groups, rounding, noise for all groups, values and
denominators. Twenty million rows, one million users, 10,000 groups, by default; users are in one group each, or in
about five, of which they count in one or in five. `reading` is the reading half alone, with all groups of each user and
the number of the user of every entry.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import duckdb

from common.interleaved import Case, compare
from common.rows_file import DATA, make_file
from hubermean import mean
from hubermean.ingest.reading import group_table

TARGET, PRIVATE_TARGET = 1.4, 1.6


def make_grouped(rows: int, users: int, groups: int) -> Path:
    """The file of `rows_file`, with a group per user (`own`), and one per record, about five a user (`several`)."""
    path = DATA / f"rows-{rows}-users-{users}-groups-{groups}.parquet"
    if not path.exists():
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (SELECT *, (hash(user_id) % {groups})::BIGINT AS own, "
                f"(hash(user_id + 7 * (whole % 5)) % {groups})::BIGINT AS several "
                f"FROM '{make_file(rows, users).path}') TO '{path}' (FORMAT parquet)"
            ).fetchall()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reading", action="store_true", help="the reading half only")
    options = parser.parse_args()
    path = make_grouped(options.rows, options.users, options.groups)
    connection = duckdb.connect(config={"threads": str(options.threads)})
    connection.execute("SET enable_progress_bar = false").fetchall()

    def plain(column: str, by: str) -> Callable[[], object]:
        query = (
            f"SELECT {by}, avg(m) FROM (SELECT {by}, avg({column}) AS m FROM '{path}' GROUP BY user_id, {by}) "
            f"GROUP BY {by}"
        )
        return lambda: connection.sql(query).fetchall()

    def release(column: str, by: str, **more: object) -> Callable[[], object]:
        given = {"user": "user_id", "value": column, "by": by, "per": "user", "bounds": (0, 10_000), **more}
        return lambda: mean(str(path), epsilon=1.0, threads=options.threads, **given)

    def reading(column: str, by: str, *, public: bool) -> Callable[[], object]:
        keys = [(group,) for group in range(options.groups)] if public else None
        given = {"user": ["user_id"], "value": [column], "by": [by], "keys": keys, "max_groups": None}
        return lambda: group_table(str(path), threads=options.threads, **given)

    public = {"keys": range(options.groups)}
    cases = [
        Case(name=name, plain=plain(column, by), private=release(column, by, **more), target=TARGET)
        for name, column, by, more in (
            ("double, one group each", "amount", "own", public),
            ("the same, resolution 0.01", "amount", "own", {"resolution": 0.01, **public}),
            ("integer, one group each", "whole", "own", public),
            ("the same, private keys", "whole", "own", {"delta": 1e-6}),
            ("double, one group of five", "amount", "several", public),
            ("integer, one group of five", "whole", "several", public),
            ("integer, five groups of five", "whole", "several", {"max_groups": 5, **public}),
        )
    ]
    cases += [
        Case(
            name=f"reading, {what}, {those}",
            plain=plain(column, by),
            private=reading(column, by, public=those == "public"),
            target=TARGET if those == "public" else PRIVATE_TARGET,
        )
        for by in ("own", "several")
        for what, column, those in (
            (f"{by} double", "amount", "public"),
            (f"{by} integer", "whole", "public"),
            (f"{by} integer", "whole", "private"),
        )
    ]
    if options.reading:
        cases = [case for case in cases if case.name.startswith("reading")]
    print(
        f"{options.rows:,} rows, {options.users:,} users, {options.groups:,} groups, {options.threads} threads, "
        f"{options.repeats} repeats\n"
    )
    compare(cases, options.repeats)


if __name__ == "__main__":
    main()
