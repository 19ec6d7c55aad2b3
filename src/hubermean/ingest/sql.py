"""SQL queries over named files, as the data of a release."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubermean.errors import InputError
from hubermean.ingest.files import FileSet, is_utf8


@dataclass(frozen=True, kw_only=True)
class SqlQuery:
    """One SELECT over the named files; made by `hubermean.sql`."""

    query: str
    files: tuple[tuple[str, FileSet], ...]


def sql(
    query: str,
    *,
    files: Mapping[str, str | os.PathLike[str]] | Sequence[str | os.PathLike[str]] = (),
) -> SqlQuery:
    """Return the result of one SELECT statement, for use as the `data` of `hubermean.mean`.

    Args:
        query: the statement. It runs read-only, during the release, and can read no file but those in `files`.
        files: paths or globs, each of which is a table in the query. In a list, a table has the name of its file
            without the ending; in a mapping, the key is the name. Parquet files can also be named in the query by their
            full path; CSV files are loaded as tables of text before the query runs.

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
    return SqlQuery(query=query, files=found)


def _table_name(path: str | os.PathLike[str]) -> str:
    return Path(os.fspath(path)).name.split(".")[0]
