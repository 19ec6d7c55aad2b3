"""Releases from PostgreSQL and from S3 beside a full read of the same columns by the client library, in turns.

The client of PostgreSQL is the ADBC driver (`fetch_arrow_table`), that of S3 is PyArrow (`read_table`, `read_csv`);
both end with a table in memory. A release groups the records by user and adds noise as well. Both servers run on this
machine: PostgreSQL from Debian, moto for S3, in processes of their own.

    python -m speed.sources [--rows 3000000] [--repeats 7] [--only postgres]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet as pq

import hubermean as hm
from common.interleaved import Case, compare
from common.rows_file import AMOUNT, PRICE, TEXT, USER, WHOLE, RowsFile, make_file

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from helpers.postgres_server import running_server
from helpers.s3_server import BUCKET, S3Server, running_s3

TARGET = 1.3


def release(data: Any, user: str, value: str) -> Callable[[], object]:
    return lambda: hm.mean(data, user=user, value=value, epsilon=1.0, per="user", bounds=(0, 10_000))


def load_database(url: str, file: RowsFile) -> None:
    with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE trips ({USER} bigint, {TEXT} text, {AMOUNT} double precision, {WHOLE} bigint, "
            f"{PRICE} numeric(12, 2))"
        )
        # The driver writes decimals as numeric, whatever their digits.
        for batch in pq.ParquetFile(file.path).iter_batches(columns=[USER, TEXT, AMOUNT, WHOLE, PRICE]):
            cursor.adbc_ingest("trips", pa.Table.from_batches([batch]), mode="append")
        cursor.execute("VACUUM (ANALYZE, FREEZE) trips")


def read_database(url: str, user: str, value: str) -> Callable[[], object]:
    def read() -> object:
        with adbc.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {user}, {value} FROM trips")
            return cursor.fetch_arrow_table()

    return read


def cases_of_postgres(url: str) -> list[Case]:
    query = hm.sql("SELECT * FROM trips", connection=url)
    return [
        Case(
            name=f"PostgreSQL, {name}",
            plain=read_database(url, user, value),
            private=release(query, user, value),
            target=TARGET,
        )
        for name, user, value in (
            ("bigint id, double", USER, AMOUNT),
            ("bigint id, bigint", USER, WHOLE),
            ("bigint id, numeric(12, 2)", USER, PRICE),
            ("text id, double", TEXT, AMOUNT),
        )
    ]


def cases_of_s3(server: S3Server, file: RowsFile, folder: Path) -> list[Case]:
    server.upload(Path(file.path), "trips.parquet")
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(
            f"COPY (SELECT {USER}, {AMOUNT} FROM '{file.path}' LIMIT 2000000) TO '{folder}/trips.csv'"
        )
    server.upload(folder / "trips.csv", "trips.csv")
    storage, _ = pyarrow.fs.FileSystem.from_uri(f"s3://{BUCKET}")

    def read_parquet(user: str, value: str) -> Callable[[], object]:
        return lambda: pq.read_table(f"{BUCKET}/trips.parquet", filesystem=storage, columns=[user, value])

    def read_csv() -> object:
        with storage.open_input_stream(f"{BUCKET}/trips.csv") as stream:
            return pyarrow.csv.read_csv(stream)

    cases = [
        Case(
            name=f"S3, Parquet, {name}",
            plain=read_parquet(user, value),
            private=release(f"s3://{BUCKET}/trips.parquet", user, value),
            target=TARGET,
        )
        for name, user, value in (("bigint id, double", USER, AMOUNT), ("text id, double", TEXT, AMOUNT))
    ]
    return [
        *cases,
        Case(
            name="S3, CSV",
            plain=read_csv,
            private=release(f"s3://{BUCKET}/trips.csv", USER, AMOUNT),
            target=TARGET,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--users", type=int, default=150_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", choices=("postgres", "s3"), help="leave the other source out")
    options = parser.parse_args()
    file = make_file(options.rows, options.users)
    print(f"{file.title}, {options.repeats} repeats\n")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cases = []
        if options.only != "s3":
            url = stack.enter_context(running_server()).new_database("trips")
            load_database(url, file)
            cases += cases_of_postgres(url)
        if options.only != "postgres":
            cases += cases_of_s3(stack.enter_context(running_s3()), file, folder)
        compare(cases, options.repeats)


if __name__ == "__main__":
    main()
