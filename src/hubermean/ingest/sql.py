"""SQL queries over named files or in a database, as the data of a release."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from hubermean.errors import InputError
from hubermean.ingest.files import FileSet, is_utf8
from hubermean.ingest.locations import require_clear, without_credentials


@dataclass(frozen=True, kw_only=True)
class SqlQuery:
    """One SELECT over the named files, or in a database; made by `hubermean.sql`."""

    query: str
    files: tuple[tuple[str, FileSet], ...] = ()
    connection: str | None = field(default=None, repr=False)  # may hold a password


def sql(
    query: str,
    *,
    files: Mapping[str, str | os.PathLike[str]] | Sequence[str | os.PathLike[str]] = (),
    connection: str | None = None,
) -> SqlQuery:
    """Return the result of one SELECT statement, for use as the `data` of `hubermean.mean`.

    Args:
        query: the statement. It runs read-only, during the release, and can read no file but those in `files`.
        files: paths or globs, each of which is a table in the query. In a list, a table has the name of its file
            without the ending; in a mapping, the key is the name. Parquet files can also be named in the query by their
            full path; CSV files are loaded as tables of text before the query runs. Remote files are copied first.
        connection: in place of files, the database in which the query runs: `postgresql://user@host/database` or
            `sqlite:///path`. Records are streamed, in a transaction that can only read. Keep passwords out of it: a
            password file or PGPASSWORD is used as by other PostgreSQL programs. Messages and ledgers never show it.

    Returns:
        The query, not yet run: a release opens it.

    Raises:
        InputError: the query is empty, a file is missing, or two tables would have the same name.

    Formal guarantees: a release protects users as they appear in the *result* of the query. A query that mixes users
    (joins, window functions, aggregates over several users) can move one user's data into another user's row; you are
    responsible for keeping users apart. The same holds for a cast that fails on some value: use `try_cast`.

    >>> sql("select 1 as rider, 2.5 as fare").query
    'select 1 as rider, 2.5 as fare'
    """
    if not isinstance(query, str) or not query.strip():
        raise InputError("a query must be one SELECT statement")
    if not is_utf8(query):
        raise InputError("a query must be text that can be encoded as UTF-8")
    if connection is not None:
        return SqlQuery(query=query, connection=_check_connection(connection, files))
    if isinstance(files, str | os.PathLike):
        files = [files]
    try:
        if isinstance(files, Mapping):
            named = [(str(name), os.fspath(path)) for name, path in files.items()]
        else:
            named = [(_table_name(path), os.fspath(path)) for path in files]
    except TypeError:
        raise InputError(
            "files must be a list of paths, or a mapping from names of tables to paths"
        ) from None
    names = [name for name, _ in named]
    if not all(map(is_utf8, names)):
        raise InputError("names of tables must be text that can be encoded as UTF-8")
    if len(set(names)) != len(names) or not all(names):
        raise InputError(
            "two files would be tables of the same name; pass files as a mapping from name to path"
        )
    found = tuple((name, FileSet.find(path)) for name, path in named)
    for name, file_set in found:
        if file_set.kind == "json":
            raise InputError(
                f"JSON lines have no schema, so {name} cannot be queried; write it as Parquet first"
            )
        if file_set.kind == "arrow":
            raise InputError(
                f"Arrow files cannot be queried; write {name} as Parquet first, or release from it without a query"
            )
    return SqlQuery(query=query, files=found)


def _check_connection(connection: Any, files: Any) -> str:
    if files:
        raise InputError("a query runs over files or in a database; give files or connection, not both")
    kind = connection.partition("://")[0].partition("+")[0] if isinstance(connection, str) else ""
    if kind not in ("postgresql", "postgres", "sqlite") or "\0" in connection or not is_utf8(connection):
        raise InputError(
            "connection must begin with postgresql:// or sqlite:///; of another database, export the records to "
            "Parquet, or pass an Arrow stream of its driver"
        )
    require_clear(connection)
    return str(connection)


def identify_connection(connection: str) -> str:
    """Return what names the database of a connection string: who asks may see other records, but no password.

    >>> identify_connection("postgresql://ann:secret@host/db?password=x&dbname=b")
    'ann@host/db?dbname=b'
    """
    plain = without_credentials(connection)
    user = connection.partition("://")[2].partition("?")[0].rpartition("@")[0].partition(":")[0]
    if plain.startswith("sqlite"):
        return "sqlite://" + os.path.abspath(plain.partition("://")[2][1:])
    # Options may name another database, host or schema; with a clear @ they may be the rest of a password.
    options = connection.partition("?")[2]
    pairs = [] if "@" in options else parse_qsl(options, keep_blank_values=True)
    words = urlencode(sorted(pair for pair in pairs if "pass" not in pair[0].lower()))
    return f"{user}@{plain.partition('://')[2]}{'?' if words else ''}{words}"


def _table_name(path: str | os.PathLike[str]) -> str:
    return Path(os.fspath(path).partition("?")[0]).name.split(".")[0]
