"""DuckDB, for files, queries and data frames on one machine."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from hubermean.errors import InputError
from hubermean.ingest.columns import JSON_TOKEN, ColumnType, Schema, ValueColumn, kind_of
from hubermean.ingest.duckdb_sql import DuckdbSql
from hubermean.ingest.engine import UNREADABLE, GroupsAsked, Limits, Roles
from hubermean.ingest.files import LONGEST_POSSIBLE, FileSet, identifier, literal
from hubermean.ingest.frames import Frame, frame_of, is_duckdb_relation
from hubermean.ingest.id_index import bits_of_ids
from hubermean.ingest.parquet_batches import WIDEST, parquet_batches
from hubermean.ingest.query import SqlQuery
from hubermean.ingest.rows import Rows
from hubermean.ingest.session import TooLongError, check_limits, in_one_sentence, open_session, quietly
from hubermean.ingest.text_bytes import as_utf8
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")

_TEXT = ColumnType(id="varchar", name="VARCHAR")
_TOKEN = ColumnType(id=JSON_TOKEN, name="JSON")
_MEMBERS = re.compile(r"\b(STRUCT|ENUM|UNION|MAP) ?\(", re.IGNORECASE)
_FRAME = "frame"
_QUERY = "hubermean_query"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """How data are read: again and differently, where one user's records made the usual way fail.

    Attributes:
        longest: the bytes of the longest text record to make room for; None for what suffices nearly always.
        bytewise: read Parquet files through Arrow, which does not mind text that is no UTF-8.
    """

    limits: Limits
    longest: int | None = None
    bytewise: bool = False


@dataclass(frozen=True, kw_only=True)
class DuckdbSource:
    """Data with their schema; `rows` opens what they hold."""

    schema: Schema
    limits: Limits
    countable: bool
    rows: Callable[[Attempt], AbstractContextManager[Rows]]

    def held_up_to(self, values: Sequence[ValueColumn], *, records: bool) -> None:
        return None

    def users(self, values: Sequence[ValueColumn], *, records: bool) -> UserTable:
        return self._read(lambda rows: rows.users(values, records=records))

    def entries(self, values: Sequence[ValueColumn], asked: GroupsAsked) -> pa.Table:
        return self._read(lambda rows: rows.entries(values, asked))

    def opened(self) -> AbstractContextManager[Rows]:
        return self.rows(Attempt(limits=self.limits))

    def _read(self, work: Callable[[Rows], T]) -> T:
        return in_one_sentence(lambda: self._until_read(work), UNREADABLE)

    def _until_read(self, work: Callable[[Rows], T]) -> T:
        """Whether there is an answer must not depend on what one user holds, as far as the machine allows it."""
        import duckdb

        attempt = Attempt(limits=self.limits)
        while True:
            try:
                with self.rows(attempt) as rows:
                    return work(rows)
            except TooLongError:
                again = replace(attempt, longest=LONGEST_POSSIBLE)
            except duckdb.OutOfMemoryException:
                again = replace(attempt, limits=replace(self.limits, memory_limit=None))
            except duckdb.InvalidInputException:  # of Parquet files: text that is no UTF-8
                again = replace(attempt, bytewise=True)
            if again == attempt:
                raise ValueError("there is no other way to read this")
            attempt = again


@contextlib.contextmanager
def open_source(data: Any, roles: Roles, limits: Limits) -> Iterator[DuckdbSource]:
    check_limits(limits)
    if isinstance(data, str | os.PathLike):
        files = FileSet.find(data)
        opened = _parquet_source if files.kind == "parquet" else _text_source
        with opened(files, roles, limits) as source:
            yield source
    elif isinstance(data, SqlQuery):
        with _query_source(data, roles, limits) as source:
            yield source
    elif is_duckdb_relation(data):
        if limits.memory_limit is not None or limits.threads is not None:
            raise InputError(
                "a DuckDB relation runs in its own connection; set memory_limit and threads there"
            )
        schema = _schema(data)
        rows = Rows(
            name=f"hubermean_{id(data):x}", roles=roles, schema=schema, connection=None, relation=data
        )
        yield DuckdbSource(
            schema=schema, limits=limits, countable=False, rows=lambda _: contextlib.nullcontext(rows)
        )
    else:
        frame = quietly(lambda: frame_of(data, roles), _NO_FRAME, foreign=True)
        with _frame_source(frame, roles, limits) as source:
            yield source


_NO_FRAME = (
    "the data frame cannot be read; check that its query is well formed, and convert columns of unusual types"
)


@contextlib.contextmanager
def _parquet_source(files: FileSet, roles: Roles, limits: Limits) -> Iterator[DuckdbSource]:
    broken = f"{files.paths[0]} cannot be read as parquet; check that it is complete"

    @contextlib.contextmanager
    def scanned(attempt: Attempt) -> Iterator[Rows]:
        if attempt.bytewise:
            frame = parquet_batches(files, roles)
            with _session((), attempt.limits) as connection:
                yield _registered(frame, connection, roles, attempt.limits)
            return
        settings = _id_index(files, roles, attempt.limits)
        with _session(files.paths, attempt.limits, settings=settings) as connection:
            scan = files.scan()
            relation = quietly(lambda: connection.sql(f"SELECT * FROM {scan}"), broken)
            yield Rows(
                name=scan,
                roles=roles,
                schema=_schema(relation, names_declared=True),
                connection=connection,
                progress=attempt.limits.progress,
                statistics=files if attempt.limits.memory_limit is None else None,
            )

    first = Attempt(limits=limits)
    with scanned(first) as rows:
        assert rows.connection is not None
        _require_plain_schema(files, roles)
        if len(files.paths) > 1:
            _require_one_type(files, rows.connection, roles.columns)
        _require_second_way(files, rows, roles)

        def opened(attempt: Attempt) -> AbstractContextManager[Rows]:
            return contextlib.nullcontext(rows) if attempt == first else scanned(attempt)

        yield DuckdbSource(schema=rows.schema, limits=limits, countable=True, rows=opened)


@contextlib.contextmanager
def _text_source(files: FileSet, roles: Roles, limits: Limits) -> Iterator[DuckdbSource]:
    """CSV and JSON lines: all text, of which the names of columns are known beforehand."""
    types: dict[str, Any]
    if files.kind == "csv":
        types = dict.fromkeys(files.header, _TEXT)
    else:
        types = dict.fromkeys(roles.values, _TEXT) | dict.fromkeys([*roles.users, *roles.groups], _TOKEN)
    schema = Schema(types=types, dialect=DuckdbSql(), text_values=True)

    @contextlib.contextmanager
    def opened(attempt: Attempt) -> Iterator[Rows]:
        with as_utf8(files) as readable, _session(readable.paths, attempt.limits) as connection:
            yield Rows(
                name=_with_room(readable, attempt).scan(
                    keys=[*roles.users, *roles.groups], values=roles.values
                ),
                roles=roles,
                schema=schema,
                connection=connection,
                progress=attempt.limits.progress,
                rejects=files.kind == "csv",
            )

    yield DuckdbSource(schema=schema, limits=limits, countable=False, rows=opened)


def _with_room(files: FileSet, attempt: Attempt) -> FileSet:
    return files if attempt.longest is None else replace(files, longest=attempt.longest)


@contextlib.contextmanager
def _query_source(data: SqlQuery, roles: Roles, limits: Limits) -> Iterator[DuckdbSource]:
    """A query, bound to tables without records first: that tells the types of what it gives."""
    texts = [(name, files) for name, files in data.files if files.kind != "parquet"]

    @contextlib.contextmanager
    def bound(attempt: Attempt, *, loaded: bool) -> Iterator[Rows]:
        # Text files are loaded and then shut out: a query that named their path would have the engine guess their types
        # from the content.
        paths = [path for _, files in data.files if files.kind == "parquet" for path in files.paths]
        with contextlib.ExitStack() as opened:
            tables = []
            for name, files in texts:
                if loaded:
                    readable = opened.enter_context(as_utf8(files))
                    tables.append((name, f"SELECT * FROM {_with_room(readable, attempt).scan()}"))
                else:
                    empty = ", ".join(
                        f"CAST(NULL AS VARCHAR) AS {identifier(column)}" for column in files.header
                    )
                    tables.append((name, f"SELECT {empty} LIMIT 0"))
            session = _session(paths, attempt.limits, tables=tables, rejects=loaded)
            connection = opened.enter_context(session)
            schema = _schema(_view(data, connection))
            yield Rows(
                name=_QUERY,
                roles=roles,
                schema=schema,
                connection=connection,
                progress=attempt.limits.progress,
            )

    first = Attempt(limits=limits)
    with bound(first, loaded=False) as rows:

        def opened(attempt: Attempt) -> AbstractContextManager[Rows]:
            if attempt == first and not texts:
                return contextlib.nullcontext(rows)
            return bound(attempt, loaded=True)

        yield DuckdbSource(schema=rows.schema, limits=limits, countable=False, rows=opened)


def _view(data: SqlQuery, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
    import duckdb

    for name, files in data.files:
        if files.kind == "parquet":
            view = f"CREATE VIEW {identifier(name)} AS SELECT * FROM {files.scan()}"
            broken = f"{files.paths[0]} cannot be read as parquet; check that it is complete"
            quietly(lambda view=view: connection.execute(view).fetchall(), broken)  # type: ignore[misc]
    try:
        statements = duckdb.extract_statements(data.query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InputError("a query must be one SELECT statement")
        connection.execute(f"CREATE VIEW {_QUERY} AS {statements[0].query.rstrip().rstrip(';')}").fetchall()
        return connection.sql(f"SELECT * FROM {_QUERY}")
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        # These speak of the query and of schemas, never of rows.
        problem = f"the query cannot be run: {str(error).splitlines()[0]}"
        if _MEMBERS.search(problem):  # the first line of a file without a header among them
            problem = "the query cannot be run; a function or an operator does not fit the type of a column"
    except duckdb.Error:
        problem = "the query cannot be run; it may only read the files named in files="
    raise InputError(problem)


@contextlib.contextmanager
def _frame_source(frame: Frame, roles: Roles, limits: Limits) -> Iterator[DuckdbSource]:
    if frame.once:  # which cannot be read again, should the limit not suffice
        limits = replace(limits, memory_limit=None)
    with _session((), limits) as connection:
        empty = replace(frame, read=frame.schema.empty_table)
        schema = quietly(lambda: _registered(empty, connection, roles, limits).schema, _NO_FRAME)

        @contextlib.contextmanager
        def opened(attempt: Attempt) -> Iterator[Rows]:
            if attempt == Attempt(limits=limits):
                yield _registered(frame, connection, roles, limits)
                return
            if frame.once:
                raise ValueError("a stream cannot be read again")
            with _session((), attempt.limits) as another:
                yield _registered(frame, another, roles, attempt.limits)

        yield DuckdbSource(schema=schema, limits=limits, countable=frame.countable, rows=opened)


def _registered(frame: Frame, connection: duckdb.DuckDBPyConnection, roles: Roles, limits: Limits) -> Rows:
    connection.register(_FRAME, frame.read())
    schema = _schema(connection.sql(f"SELECT * FROM {_FRAME}"), units=frame.units)
    return Rows(
        name=_FRAME,
        roles=roles,
        schema=schema,
        connection=connection,
        once=frame.once,
        progress=limits.progress,
    )


def _session(
    paths: Sequence[str], limits: Limits, **given: Any
) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    return open_session(paths, memory_limit=limits.memory_limit, threads=limits.threads, **given)


def _id_index(
    files: FileSet, roles: Roles, limits: Limits
) -> Callable[[duckdb.DuckDBPyConnection], Sequence[str]]:
    def settings(connection: duckdb.DuckDBPyConnection) -> Sequence[str]:
        if roles.groups or len(roles.users) > 1:  # grouped by more than one column
            return ()
        sums = len(roles.values) + (limits.memory_limit is None)  # one more for the rests of `CoarseSums`
        bits = bits_of_ids(connection, files, sums=sums, memory_limit=limits.memory_limit)
        return (f"perfect_ht_threshold = {bits}",)

    return settings


def _require_one_type(files: FileSet, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> None:
    """Refuse files that store a column in different types: made one type, different users could become one.

    To the engine names that differ in case alone are one column.
    """
    paths = "[" + ", ".join(literal(path) for path in files.paths) + "]"
    names = ", ".join(f"lower({literal(name)})" for name in columns)
    different = quietly(
        lambda: connection.sql(
            f"SELECT min(name) FROM parquet_schema({paths}) WHERE lower(name) IN ({names}) GROUP BY lower(name) "
            "HAVING count(DISTINCT concat_ws('/', type, converted_type, logical_type, scale, precision)) > 1"
        ).fetchall(),
        "the files cannot be read as parquet; check that they are complete",
    )
    if different:
        raise InputError(
            f"column {different[0][0]!r} has different types in different files; write it with one"
        )


def _require_plain_schema(files: FileSet, roles: Roles) -> None:
    """Refuse names that differ in case alone, and keys that the engine would round.

    Which column is meant would depend on who reads it. Decimals of more digits than the engine has it reads as doubles,
    so that different users would become one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = {name.lower() for name in roles.columns}
    keys = {name.lower() for name in (*roles.users, *roles.groups)}
    for path in files.paths:
        schema = quietly(lambda path=path: pq.read_schema(path), f"{path} cannot be read as parquet")  # type: ignore[misc]
        found = [name.lower() for name in schema.names if name.lower() in wanted]
        if len(set(found)) != len(found):
            raise InputError(
                f"{path} has several columns of one name, upper and lower case apart; give each column its own"
            )
        for one in schema:
            if one.name.lower() in keys and pa.types.is_decimal(one.type) and one.type.precision > WIDEST:
                raise InputError(
                    f"column {one.name!r} has decimals of more than {WIDEST} digits, which cannot be told apart; "
                    "convert it to text"
                )


def _require_second_way(files: FileSet, rows: Rows, roles: Roles) -> None:
    """Refuse columns that are of another type where one text that is no UTF-8 has the file read through Arrow."""
    kinds = {name: rows.schema.types[name] for name in roles.columns if name in rows.schema.types}
    if len(kinds) < len(roles.columns) or not any(kind.id == "varchar" for kind in kinds.values()):
        return
    with _session((), Limits(threads=1)) as connection:

        def otherwise() -> dict[str, Any]:
            frame = parquet_batches(files, roles)
            empty = replace(frame, read=frame.schema.empty_table)
            return dict(_registered(empty, connection, roles, Limits()).schema.types)

        odd = "a column is of a type that cannot be read beside text"
        for name, kind in quietly(otherwise, f"{odd}; convert it first", foreign=True).items():
            if str(kind) != str(kinds[name]):
                raise InputError(f"column {name!r} has type {kind_of(kinds[name])}; {odd}; convert it first")


def _schema(
    relation: duckdb.DuckDBPyRelation,
    *,
    names_declared: bool = False,
    units: dict[str, Fraction] | None = None,
) -> Schema:
    types = dict(zip(relation.columns, relation.types, strict=True))
    return Schema(types=types, dialect=DuckdbSql(), names_declared=names_declared, units=units)


class DuckdbEngine:
    """Reads files, queries, and whatever is or becomes an Arrow table."""

    name = "duckdb"

    def open(self, data: Any, roles: Roles, limits: Limits) -> AbstractContextManager[DuckdbSource]:
        return open_source(data, roles, limits)


ENGINE = DuckdbEngine()
