"""The cost of a private mean of many columns beside the plain query, in one process, warm, interleaved.

The plain query is DuckDB's average of user averages of the same columns. Beside it stands the reading half of a release
(`user_table`: exact integers per user), and for one column a whole release. Columns are doubles, or doubles, whole
numbers and decimals in turn; ids are whole numbers close together, or scattered over 63 bits.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb

from common.interleaved import Case, compare
from common.rows_file import DATA, make_file, make_wide_file
from hubermean import mean
from hubermean.ingest.reading import user_table

TARGETS = {1: 1.2, 16: 1.8, 100: 2.2}
_TYPES = ("", "::BIGINT", "::DECIMAL(12, 2)")


def make_mixed(rows: int, users: int, columns: int) -> tuple[Path, list[str]]:
    """The file of `make_wide_file` with every second and third column of each three as integers and decimals."""
    plain, names = make_wide_file(rows, users, columns)
    path = DATA / f"rows-{rows}-users-{users}-columns-{columns}-mixed.parquet"
    if not path.exists():
        kept = ", ".join(f"{name}{_TYPES[place % 3]} AS {name}" for place, name in enumerate(names))
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (SELECT user_id, {kept} FROM '{plain.path}') TO '{path}' (FORMAT parquet)"
            ).fetchall()
    return path, names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=64_000_000, help="rows times columns of the wide files")
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows for one column")
    parser.add_argument("--columns", type=int, nargs="*", default=[16, 100])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    connection = duckdb.connect(config={"threads": str(options.threads)})
    connection.execute("SET enable_progress_bar = false").fetchall()

    def plain(path: str, columns: Sequence[str], user: str) -> Callable[[], object]:
        means = ", ".join(f"avg({name}) AS {name}" for name in columns)
        again = ", ".join(f"avg({name})" for name in columns)
        query = f"SELECT {again} FROM (SELECT {means} FROM '{path}' GROUP BY {user})"
        return lambda: connection.sql(query).fetchall()

    def reading(path: str, columns: Sequence[str], user: str) -> Callable[[], object]:
        return lambda: user_table(path, user=user, value=columns, threads=options.threads, records=False)

    def release(path: str, column: str, user: str) -> Callable[[], object]:
        given = {"user": user, "value": column, "per": "user", "bounds": (0, 10_000)}
        return lambda: mean(path, epsilon=1.0, threads=options.threads, **given)

    cases = []
    if options.rows:
        file = make_file(options.rows, options.rows // 20)
        for ids, user in (("close ids", "user_id"), ("scattered ids", "account")):
            for what, column in (("double", "amount"), ("integer", "whole")):
                base = plain(file.path, [column], user)
                read, made = reading(file.path, [column], user), release(file.path, column, user)
                title = f"{what}, {ids}"
                cases.append(Case(name=f"{title}, reading", plain=base, private=read, target=TARGETS[1]))
                cases.append(Case(name=f"{title}, release", plain=base, private=made, target=TARGETS[1]))
    for columns in options.columns:
        rows = options.cells // columns
        file, names = make_wide_file(rows, rows // 20, columns)
        mixed, _ = make_mixed(rows, rows // 20, columns)
        for title, path in (("doubles", file.path), ("of three types", str(mixed))):
            cases.append(
                Case(
                    name=f"{columns} columns, {title}",
                    plain=plain(path, names, "user_id"),
                    private=reading(path, names, "user_id"),
                    target=TARGETS.get(columns, 2.2),
                )
            )
    print(f"{options.threads} threads, {options.repeats} repeats\n")
    compare(cases, options.repeats)


if __name__ == "__main__":
    main()
