"""`sql`: a caller's query over named files, as the input of a release."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubermean.errors import InputError
from hubermean.ingest.files import FileSet, is_text


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
    """A table made by one SELECT, for use as the `data` of `hubermean.mean`.

    Each file is a table in the query: under its own name without the ending when `files` is a list, under
    the key when it is a mapping. Parquet files can also be named in the query by their full path; CSV files are
    loaded as tables of text before it runs. The query runs read-only, sees no file that is not named, and is
    not run before the release.

    A release protects users as they stand in the *result* of the query. A query that mixes users (joins,
    window functions, aggregates over several users) can carry one user's data into another's row; keeping
    users apart is the caller's responsibility. So is a cast that fails on some value: use `try_cast`.

    >>> sql("select 1 as rider, 2.5 as fare").query
    'select 1 as rider, 2.5 as fare'
    """
    if not isinstance(query, str) or not query.strip():
        raise InputError("a query must be one SELECT statement")
    if not is_text(query):
        raise InputError("a query must be text that can be written as UTF-8")
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
    if not all(map(is_text, names)):
        raise InputError("the names of tables must be text that can be written as UTF-8")
    if len(set(names)) != len(names) or not all(names):
        raise InputError("two files would be tables of one name; pass files as a mapping from name to path")
    found = tuple((name, FileSet.find(path)) for name, path in named)
    for name, file_set in found:
        if file_set.kind == "json":
            raise InputError(
                f"JSON lines carry no schema, so {name} cannot be queried; write it as Parquet first"
            )
    return SqlQuery(query=query, files=found)


def _table_name(path: str | os.PathLike[str]) -> str:
    return Path(os.fspath(path)).name.split(".")[0]
