"""Containers that only tests have, beside those of audits: served by servers, or read with options."""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import hubermean as hm
from helpers.servers import postgres_server, s3_server
from hubermean.auditing.cells import Columns, Kinds, arrow_table, identity, with_types
from hubermean.auditing.containers import CONTAINERS, Container

_NUMBERS = itertools.count()
_VALUE = "v"


# --- text in another format -------------------------------------------------------------------------------------------

FORMAT: Mapping[str, Any] = {
    "decimal": ",",
    "thousands": ".",
    "currency": ["EUR", "€"],
    "null": ["n/a"],
    "delimiter": ";",
    "quote": "'",
    "encoding": "utf-16",
}


def formatted(text: str | None, number: int) -> str | None:
    """A number as it is written in Germany; other text with both marks exchanged."""
    if text is None:
        return None
    whole = re.fullmatch(r"( *-?)([0-9]+)(\.[0-9]+)?( *)", text)
    if whole is None:
        return text.translate(str.maketrans(".,", ",."))
    digits = f"{int(whole[2]):,}".replace(",", ".") if whole[2] == str(int(whole[2])) else whole[2]
    before, after = [("", ""), ("€ ", ""), ("", " EUR"), ("", "")][number % 4]
    return f"{whole[1]}{before}{digits}{(whole[3] or '').replace('.', ',')}{after}{whole[4]}"


def _formatted_csv(columns: Columns, folder: Path, _: Kinds | None = None) -> str:
    path = folder / "records.csv"
    with path.open("w", encoding="utf-16", errors="surrogatepass", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", delimiter=";", quotechar="'")
        writer.writerow(columns)
        for number, row in enumerate(zip(*columns.values(), strict=True)):
            cells = dict(zip(columns, map(identity, row), strict=True))
            if _VALUE in cells:
                cells[_VALUE] = formatted(cells[_VALUE], number)
            writer.writerow(["n/a" if cell is None else cell for cell in cells.values()])
    return str(path)


# --- databases and tables ---------------------------------------------------------------------------------------------


@functools.cache
def _database() -> str:
    return postgres_server().new_database("records")


def postgres_table(table: pa.Table) -> Any:
    """Store a table in the database, with columns of the same types, and return the query that selects it."""
    import psycopg

    name = f"records_{next(_NUMBERS)}"
    columns = ", ".join(f'"{one.name}" {_postgres_type(one.type)}' for one in table.schema)
    with psycopg.connect(_database(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE UNLOGGED TABLE {name} ({columns})")
        with cursor.copy(f"COPY {name} FROM STDIN") as copy:
            for row in table.to_pylist():
                copy.write_row(list(row.values()))
    return hm.sql(f"SELECT * FROM {name}", connection=_database())


def _postgres_type(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if types.is_list(kind):
        return "bigint[]"
    names = {
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.bool_(): "boolean",
        pa.date32(): "date",
        pa.binary(): "bytea",
        pa.string(): "text",
        pa.timestamp("us"): "timestamp",
        pa.timestamp("us", "UTC"): "timestamptz",
    }
    return names[kind]


def declared_table(columns: Columns, kinds: Kinds | None) -> pa.Table:
    """The columns with types that databases have: no unsigned integers, and none without a type."""
    table = with_types(arrow_table(columns, kinds), {pa.uint64(): pa.decimal128(20, 0)})
    for place, one in enumerate(table.schema):
        if pa.types.is_null(one.type):
            kind = pa.float64() if one.name == _VALUE else pa.string()
            table = table.set_column(place, one.name, table.column(place).cast(kind))
    return table


def _postgres(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    table = declared_table(columns, kinds)
    for place, one in enumerate(table.schema):
        if pa.types.is_string(one.type):  # a text of PostgreSQL has no character 0
            texts = [
                None if text is None else text.replace("\0", "\\0")
                for text in table.column(place).to_pylist()
            ]
            table = table.set_column(place, one.name, pa.array(texts, pa.string()))
    return postgres_table(table)


def _delta(columns: Columns, folder: Path, kinds: Kinds | None = None) -> str:
    from deltalake import write_deltalake

    path = str(folder / f"table-{next(_NUMBERS)}")
    write_deltalake(path, declared_table(columns, kinds))
    return path


# --- remote files -----------------------------------------------------------------------------------------------------


def _s3_parquet(columns: Columns, folder: Path, kinds: Kinds | None = None) -> str:
    pq.write_table(arrow_table(columns, kinds), folder / "remote.parquet")
    return s3_server().upload(folder / "remote.parquet", f"{next(_NUMBERS)}/records.parquet")


def _s3_csv(columns: Columns, folder: Path, kinds: Kinds | None = None) -> str:
    path = CONTAINERS["csv-gz"].make(columns, folder, kinds)
    return s3_server().upload(Path(path), f"{next(_NUMBERS)}/records.csv.gz")


ALL_CONTAINERS: Mapping[str, Container] = {
    **CONTAINERS,
    **{
        name: Container(name, typed, query, make)
        for name, typed, query, make in (
            ("csv-formatted", False, False, _formatted_csv),
            ("postgres", True, True, _postgres),
            ("delta", True, True, _delta),
            ("s3-parquet", True, False, _s3_parquet),
            ("csv-s3", False, False, _s3_csv),
        )
    },
}
OPTIONS: Mapping[str, Mapping[str, Any]] = {"csv-formatted": FORMAT}
"""How data of a container must be read; for most there is nothing to say."""

NAMED_BY_A_SCHEMA = frozenset(
    {"parquet", "parquet-two-files", "arrow-file", "s3-parquet", "delta", "postgres", "sqlite"}
)
"""Containers whose columns somebody has declared, so that their names may be listed."""
