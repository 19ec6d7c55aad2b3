"""Queries of SQLite files, as streams of Arrow batches.

A column of SQLite may hold cells of any type, whatever is declared. So each cell is read by itself, as in pandas
(`identity`, `pandas_frames`), and the declared type decides nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hubermean.errors import InputError
from hubermean.ingest.files import quote_identifier
from hubermean.ingest.frames import ArrowFrame, untyped_schema
from hubermean.ingest.identity import escape_invalid, identity_text
from hubermean.ingest.pandas_frames import convert_cells
from hubermean.ingest.schema import ColumnRoles, missing_column_message
from hubermean.ingest.sql import SqlQuery
from hubermean.ingest.text_format import TextFormat

if TYPE_CHECKING:
    import sqlite3

    import pyarrow as pa

_VIEW = "hubermean_query"
_BATCH_ROWS = 10_000


def is_sqlite(connection: str | None) -> bool:
    """Whether a connection string is that of a SQLite file."""
    return connection is not None and connection.startswith("sqlite")


def sqlite_path(connection: str) -> str:
    """Return the path of a connection string: absolute after four slashes, relative after three."""
    path = connection.partition("://")[2].partition("?")[0]
    if not path.startswith("/") or len(path) == 1:
        raise InputError("write sqlite:///path/to/file, with four slashes for an absolute path")
    return os.path.abspath(path[1:])


@contextlib.contextmanager
def open_sqlite(data: SqlQuery, roles: ColumnRoles, text: TextFormat) -> Iterator[ArrowFrame]:
    """Open a query of a SQLite file, of which only the names of its columns are read.

    Formal guarantees:
    - the file is opened read-only, and the query can read it and no other file;
    - the query is compiled but not run before the frame is read, so no record decides about an early error.
    """

    with _connect(data.connection) as opened:
        names = _compile(opened, data.query)
        for role in roles.columns:
            if role not in names:
                raise InputError(missing_column_message(role, names))
        schema = untyped_schema(roles)
        wanted = f"SELECT {', '.join(map(quote_identifier, schema.names))} FROM {_VIEW}"

        def read() -> Any:
            import pyarrow as pa

            return pa.RecordBatchReader.from_batches(schema, _batches(opened, wanted, schema, roles, text))

        yield ArrowFrame(schema=schema, read=read, once=True, countable=False, text=text, names_declared=True)


@contextlib.contextmanager
def _connect(location: str | None) -> Iterator[sqlite3.Connection]:
    """Open the file of a connection string for reading."""
    import sqlite3

    path = sqlite_path(location or "")
    if not os.path.isfile(path):
        raise InputError(f"there is no file {path}; check the path after sqlite:///")
    problem = f"{path} cannot be opened as a SQLite database; check the file and its permissions"
    connection: sqlite3.Connection | None = None
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(
            f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        problem = ""
    with contextlib.ExitStack() as stack:
        if connection is not None:
            stack.callback(connection.close)
        if problem or connection is None:
            raise InputError(problem)
        yield connection


def list_sqlite_tables(connection: str) -> list[tuple[str, ...]]:
    """Return the names of the tables and views of a SQLite file."""
    with _connect(connection) as opened:
        rows = opened.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
            "ORDER BY name LIMIT 1000"
        ).fetchall()
    return [(str(name),) for (name,) in rows]


def name_columns(data: SqlQuery) -> list[str]:
    """Return the names of the columns of a query, which is compiled and not run."""
    with _connect(data.connection) as opened:
        return _compile(opened, data.query)


def _compile(connection: sqlite3.Connection, query: str) -> list[str]:
    """Return the names of the columns of a query, which becomes a view of this connection."""
    import sqlite3

    problem = ""
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"CREATE TEMP VIEW {_VIEW} AS {query.rstrip().rstrip(';')}")
        found = connection.execute(f"PRAGMA temp.table_info({_VIEW})").fetchall()
        connection.text_factory = _decode
        connection.set_authorizer(_allow_reading)
    except (sqlite3.Error, sqlite3.Warning) as error:
        # Nothing has run: the error quotes the query and the schema.
        problem = str(error)
    if problem:
        raise InputError(f"the query cannot be run: {problem}; a query must be one SELECT statement")
    return [str(row[1]) for row in found]


def _allow_reading(action: int, *_: Any) -> int:
    import sqlite3

    reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reading else sqlite3.SQLITE_DENY


def _decode(stored: bytes) -> str:
    """Return a text with the bytes escaped that are no UTF-8."""
    try:
        text = stored.decode()
    except UnicodeDecodeError:
        return escape_invalid(stored.decode(errors="surrogateescape"))
    return text if text.isascii() else escape_invalid(text)


def _batches(
    connection: sqlite3.Connection, query: str, schema: pa.Schema, roles: ColumnRoles, text: TextFormat
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    cursor = connection.execute(query)
    with contextlib.closing(cursor):
        while rows := cursor.fetchmany(_BATCH_ROWS):
            columns = dict(zip(schema.names, zip(*rows, strict=True), strict=True))
            yield pa.record_batch(
                [
                    pa.array(convert_cells(columns[name], text))
                    if name in roles.values
                    else pa.array([identity_text(cell) for cell in columns[name]], type=pa.large_string())
                    for name in schema.names
                ],
                schema=schema,
            )
