"""What a user can choose from before a release: the tables of a database, the columns of a table and their roles.

Only schemas are read. The names of CSV columns come from the first line of a file, which is a record where a file has
no header: show them only where somebody who may see the data says that there is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from hubermean.errors import InputError
from hubermean.ingest.duckdb.source import open_source
from hubermean.ingest.files import FileSet, quote_identifier
from hubermean.ingest.periods import PERIODS, TIME_KINDS
from hubermean.ingest.postgres import describe_query, list_postgres_tables
from hubermean.ingest.reading import ReadRequest
from hubermean.ingest.schema import ColumnRoles, Schema, type_name
from hubermean.ingest.sql import SqlQuery, sql
from hubermean.ingest.sqlite import is_sqlite, list_sqlite_tables, name_columns
from hubermean.types.options import ReadOptions, TextKeywords

UNTYPED = "text"
"""The type of a column of CSV files and of SQLite, where any cell may hold anything."""


@dataclass(frozen=True, kw_only=True)
class ColumnChoice:
    """A column and the roles that its declared type allows.

    Attributes:
        name, kind: its name and its declared type.
        is_user, is_value: whether it can identify users, or has a mean.
        groups: how it can name groups: itself, or periods such as "month(date)".
    """

    name: str
    kind: str
    is_user: bool = True
    is_value: bool = True
    groups: tuple[str, ...] = ()


def list_tables(connection: str) -> list[tuple[str, ...]]:
    """Return the names of the tables and views of a database, each with its schema where it has one."""
    return list_sqlite_tables(connection) if is_sqlite(connection) else list_postgres_tables(connection)


def select_table(name: tuple[str, ...], connection: str) -> SqlQuery:
    """Return all of a table as a query."""
    return sql(f"select * from {'.'.join(map(quote_identifier, name))}", connection=connection)


def describe_columns(data: str | SqlQuery, **text: Unpack[TextKeywords]) -> list[ColumnChoice] | None:
    """Return the columns of a file or query with the roles that each may have; None where no schema names them.

    Raises:
        InputError: the file or the database cannot be opened.
    """
    if isinstance(data, SqlQuery):
        if is_sqlite(data.connection):
            return [_choose_untyped(name) for name in name_columns(data)]
        return [_choose_described(name, kinds) for name, kinds in describe_query(data).items()]
    files = FileSet.find(data)
    if files.kind == "json":
        return None
    names: list[str] = []
    if files.kind == "arrow":
        import pyarrow.ipc as ipc

        with contextlib.suppress(OSError, ValueError), ipc.open_file(files.paths[0]) as opened:
            names = list(opened.schema.names)
    with open_source(data, ColumnRoles(users=names), ReadOptions(**text)) as source:
        schema = source.schema
        if files.kind == "csv":
            return [_choose_untyped(name) for name in schema.types]
        return [_choose(name, schema) for name in schema.types]


def check_users(data: str | SqlQuery, user: Sequence[str], **text: Unpack[TextKeywords]) -> None:
    """Raise InputError where these columns are missing or cannot identify users."""
    with ReadRequest(user=user, value=(), **text).open(data):
        pass


def _choose(name: str, schema: Schema) -> ColumnChoice:
    periods = [f"{period}({name})" for period in PERIODS] if schema.types[name].id in TIME_KINDS else []
    return ColumnChoice(
        name=name,
        kind=type_name(schema.types[name]).lower(),
        is_user=_accepts(lambda: schema.check_user(name)),
        is_value=_accepts(lambda: schema.value_column(name, resolution=None, clamp_infinities=False)),
        groups=tuple(one for one in [name, *periods] if _accepts(lambda one=one: schema.check_group(one))),  # type: ignore[misc]
    )


def _choose_untyped(name: str) -> ColumnChoice:
    return ColumnChoice(name=name, kind=UNTYPED, groups=(name, *(f"{period}({name})" for period in PERIODS)))


def _choose_described(name: str, kinds: Mapping[str, str | None]) -> ColumnChoice:
    """Return the roles of a column that a server described: under which type it would travel in each, if any."""
    periods = [f"{period}({name})" for period in PERIODS] if kinds["period"] == "date32" else []
    as_group = [name] if kinds["key"] not in (None, "float", "double", "binary") else []
    return ColumnChoice(
        name=name,
        kind=str(kinds["name"]),
        is_user=kinds["key"] is not None and kinds["key"] != "date32",
        is_value=kinds["value"] not in (None, "string", "date32", "binary"),
        groups=(*as_group, *periods),
    )


def _accepts(check: Callable[[], Any]) -> bool:
    try:
        check()
    except InputError:
        return False
    return True
