"""The DuckDB engine: files, databases, queries and data frames on one machine."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hubermean.data.user_table import UserTable
from hubermean.errors import InputError, parameter
from hubermean.ingest.arrow_files import (
    MAX_DECIMAL_DIGITS,
    select_parquet_schema,
    stream_arrow,
    stream_delta,
    stream_parquet,
)
from hubermean.ingest.duckdb.dialect import DuckdbSql
from hubermean.ingest.duckdb.fast_sums import MIN_FILE_BYTES
from hubermean.ingest.duckdb.queries import DuckdbRows
from hubermean.ingest.duckdb.session import RecordTooLongError, open_session
from hubermean.ingest.duckdb.text_files import make_readable
from hubermean.ingest.engine import (
    MIN_MEMORY,
    READ_FAILED,
    GroupEntries,
    GroupOptions,
    mask_engine_errors,
    mask_errors,
    parse_size,
)
from hubermean.ingest.files import MAX_RECORD_BYTES, FileSet, quote_identifier, quote_text, quote_texts
from hubermean.ingest.frames import ArrowFrame, describe_frame, empty_stream, is_duckdb_relation
from hubermean.ingest.locations import is_table_folder, without_credentials
from hubermean.ingest.postgres import open_postgres
from hubermean.ingest.schema import JSON_TOKEN, ColumnRoles, ColumnType, Schema, ValueColumn, type_name
from hubermean.ingest.sql import SqlQuery
from hubermean.ingest.sqlite import is_sqlite, open_sqlite
from hubermean.ingest.text_format import TextFormat
from hubermean.types.options import EngineOptions, ReadOptions

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

_TEXT = ColumnType(id="varchar", name="VARCHAR")
_TOKEN = ColumnType(id=JSON_TOKEN, name="JSON")
_TYPE_MEMBERS = re.compile(r"\b(STRUCT|ENUM|UNION|MAP) ?\(", re.IGNORECASE)
_FRAME = "frame"
_QUERY = "hubermean_query"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One way to read data. Where one user's records make the usual way fail, data are read again in another.

    Attributes:
        options: memory and threads.
        max_record_bytes: longest text record to reserve memory for; None for the default, which nearly always suffices.
        bytewise: read Parquet files through Arrow, which accepts text that is no UTF-8.
    """

    options: EngineOptions
    max_record_bytes: int | None = None
    bytewise: bool = False


@dataclass(frozen=True, kw_only=True)
class DuckdbSource:
    """Data with their schema; `open_rows` opens the records."""

    schema: Schema
    options: EngineOptions
    countable: bool
    open_rows: Callable[[Attempt], AbstractContextManager[DuckdbRows]]

    def max_local_users(self, values: Sequence[ValueColumn], *, records: bool) -> None:
        return None

    def read_users(self, values: Sequence[ValueColumn], *, records: bool) -> UserTable:
        return self._read(lambda rows: rows.read_users(values, records=records))

    def read_group_entries(self, values: Sequence[ValueColumn], groups: GroupOptions) -> GroupEntries:
        return self._read(lambda rows: rows.read_group_entries(values, groups))

    def open(self) -> AbstractContextManager[DuckdbRows]:
        """Open the records in the usual way."""
        return self.open_rows(Attempt(options=self.options))

    def _read(self, work: Callable[[DuckdbRows], T]) -> T:
        return mask_errors(lambda: self._retry(work), READ_FAILED)

    def _retry(self, work: Callable[[DuckdbRows], T]) -> T:
        """Read in other ways until one succeeds.

        Whether there is a result must not depend on one user's records, as far as the machine allows it.
        """
        import duckdb

        attempt = Attempt(options=self.options)
        while True:
            try:
                with self.open_rows(attempt) as rows:
                    return work(rows)
            except RecordTooLongError:
                again = replace(attempt, max_record_bytes=MAX_RECORD_BYTES)
            except duckdb.OutOfMemoryException:
                again = replace(attempt, options=replace(self.options, memory_limit=None))
            except duckdb.InvalidInputException:  # in Parquet files: text that is no UTF-8
                again = replace(attempt, bytewise=True)
            if again == attempt:
                raise ValueError("there is no other way to read the data")
            attempt = again


@contextlib.contextmanager
def open_source(data: Any, roles: ColumnRoles, options: ReadOptions) -> Iterator[DuckdbSource]:
    """Open files, a table of Delta, a query, a DuckDB relation or a data frame; see `Engine.open`."""
    text = TextFormat() if options.is_plain else TextFormat.checked(options)
    if roles.groups and options.memory_limit is not None:
        # Entries of groups are about as large when they are handed over as in the engine, which still holds them then.
        options = replace(options, memory_limit=f"{max(parse_size(options.memory_limit) // 2, MIN_MEMORY)}B")
    if isinstance(data, str | os.PathLike):
        opened = _open_location(os.fspath(data), roles, options, text)
    elif isinstance(data, SqlQuery) and data.connection is not None:
        opened = _open_database(data, roles, options, text)
    elif isinstance(data, SqlQuery):
        opened = _open_query(data, roles, options, text)
    elif is_duckdb_relation(data):
        opened = _open_relation(data, roles, options, text)
    else:
        frame = mask_engine_errors(lambda: describe_frame(data, roles, text), _NO_FRAME, foreign=True)
        options.refuse("this data frame, whose columns have types", numbers=frame.text is None)
        opened = _open_frame(frame, roles, options, text)
    with opened as source:
        yield source


def _open_location(
    location: str, roles: ColumnRoles, options: ReadOptions, text: TextFormat
) -> AbstractContextManager[DuckdbSource]:
    if not isinstance(location, str):
        raise InputError("a file name must be text that is not empty")
    typed = "files whose columns have types"
    if "://" in location or os.path.isdir(location):
        if is_table_folder(location, "_delta_log"):
            options.refuse(typed)
            return _open_frame(stream_delta(location, roles), roles, options, text)
        if is_table_folder(location, "metadata") and is_table_folder(location, "data"):
            raise InputError(
                f"{without_credentials(location)} looks like an Iceberg table; pass "
                "table.scan().to_arrow_batch_reader() of pyiceberg instead"
            )
    files = FileSet.find(location)
    if files.kind in ("parquet", "arrow"):
        options.refuse(typed)
        if files.kind == "parquet" and files.filesystem is None:
            return _open_parquet(files, roles, options, text)
        stream = stream_parquet if files.kind == "parquet" else stream_arrow
        broken = f"{files.shown(files.paths[0])} cannot be read; check that it is complete"
        frame = mask_engine_errors(lambda: stream(files, roles), broken)
        return _open_frame(frame, roles, options, text)
    options.refuse("JSON lines", numbers=False, files=files.kind == "json")
    return _open_text(files.formatted(text), roles, options, text)


@contextlib.contextmanager
def _open_database(
    data: SqlQuery, roles: ColumnRoles, options: ReadOptions, text: TextFormat
) -> Iterator[DuckdbSource]:
    if is_sqlite(data.connection):
        options.refuse("a database", numbers=False)
        opened = open_sqlite(data, roles, text)
    else:
        options.refuse("a database, whose columns have types")
        if options.threads is None:
            # A thread of its own fetches the stream; more threads than cores would only add tables to combine.
            options = replace(options, threads=max((os.cpu_count() or 1) - 1, 1))
        opened = open_postgres(data, roles)
    with opened as frame, _open_frame(frame, roles, options, text) as source:
        yield source


@contextlib.contextmanager
def _open_relation(
    data: duckdb.DuckDBPyRelation, roles: ColumnRoles, options: ReadOptions, text: TextFormat
) -> Iterator[DuckdbSource]:
    options.refuse("a DuckDB relation, whose columns have types")
    if options.memory_limit is not None or options.threads is not None:
        raise InputError(
            f"a DuckDB relation runs in its own connection; set {parameter('memory_limit')} and threads there"
        )
    schema = _schema(data, null=text.null)
    rows = DuckdbRows(
        name=f"hubermean_{id(data):x}", roles=roles, schema=schema, connection=None, relation=data
    )
    yield DuckdbSource(
        schema=schema, options=options, countable=False, open_rows=lambda _: contextlib.nullcontext(rows)
    )


_NO_FRAME = (
    "the data frame cannot be read; check that its query is well formed, and convert columns of unusual types"
)


@contextlib.contextmanager
def _open_parquet(
    files: FileSet, roles: ColumnRoles, options: EngineOptions, text: TextFormat
) -> Iterator[DuckdbSource]:
    broken = f"{files.paths[0]} cannot be read as Parquet; check that it is complete"

    @contextlib.contextmanager
    def scan_files(attempt: Attempt) -> Iterator[DuckdbRows]:
        if attempt.bytewise:
            frame = stream_parquet(files, roles)
            with open_session((), attempt.options) as connection:
                yield _register(frame, connection, roles, attempt.options, text)
            return
        index_ids = None
        if not roles.groups and len(roles.users) == 1:
            # Doubles are added in up to three parts, each of half the size of a sum of integers.
            index_ids = (files, len(roles.values) + (len(roles.values) + 1) // 2)
        with open_session(files.paths, attempt.options, index_ids=index_ids) as connection:
            scan = files.scan()
            relation = mask_engine_errors(lambda: connection.sql(f"SELECT * FROM {scan}"), broken)
            yield DuckdbRows(
                name=scan,
                roles=roles,
                schema=_schema(relation, names_declared=True, null=text.null),
                connection=connection,
                progress=attempt.options.progress,
                statistics=files if files.total_bytes >= MIN_FILE_BYTES else None,
            )

    first = Attempt(options=options)
    with scan_files(first) as rows:
        assert rows.connection is not None
        _check_parquet_names(files, roles)
        if len(files.paths) > 1:
            _check_parquet_types(files, rows.connection, roles.columns)
        _check_bytewise_types(files, rows, roles)

        def open_rows(attempt: Attempt) -> AbstractContextManager[DuckdbRows]:
            return contextlib.nullcontext(rows) if attempt == first else scan_files(attempt)

        yield DuckdbSource(schema=rows.schema, options=options, countable=True, open_rows=open_rows)


@contextlib.contextmanager
def _open_text(
    files: FileSet, roles: ColumnRoles, options: EngineOptions, text: TextFormat
) -> Iterator[DuckdbSource]:
    """Open CSV files or JSON lines: every column is text, and the names are known before reading."""
    types: dict[str, Any]
    keys, values = [*roles.users, *roles.group_columns], list(roles.values)
    if files.kind == "json" and (text.null or not text.numbers.is_plain):
        keys, values = [*keys, *values], []  # numbers of JSON are not written in the caller's format
    if files.kind == "csv":
        types = dict.fromkeys(files.header, _TEXT)
    else:
        types = dict.fromkeys(values, _TEXT) | dict.fromkeys(keys, _TOKEN)
    schema = Schema(types=types, dialect=DuckdbSql(), text=text, null=text.null)

    @contextlib.contextmanager
    def open_rows(attempt: Attempt) -> Iterator[DuckdbRows]:
        with (
            files.local() as local,
            make_readable(local) as readable,
            open_session(readable.paths, attempt.options) as connection,
        ):
            yield DuckdbRows(
                name=_reserve(readable, attempt).scan(keys=keys, values=values),
                roles=roles,
                schema=schema,
                connection=connection,
                progress=attempt.options.progress,
                rejects=files.kind == "csv",
            )

    yield DuckdbSource(schema=schema, options=options, countable=False, open_rows=open_rows)


def _reserve(files: FileSet, attempt: Attempt) -> FileSet:
    if attempt.max_record_bytes is None:
        return files
    return replace(files, max_record_bytes=attempt.max_record_bytes)


@contextlib.contextmanager
def _open_query(
    data: SqlQuery, roles: ColumnRoles, options: ReadOptions, text: TextFormat
) -> Iterator[DuckdbSource]:
    """Open a query; it is first bound to tables without records, which shows the types of its result."""
    texts = [(name, files.formatted(text)) for name, files in data.files if files.kind != "parquet"]
    options.refuse("a query, which casts its text itself", files=not texts)
    with contextlib.ExitStack() as copies:
        parquet = [
            (name, copies.enter_context(files.local()))
            for name, files in data.files
            if files.kind == "parquet"
        ]
        with _open_local_query(data.query, parquet, texts, roles, options, text) as source:
            yield source


@contextlib.contextmanager
def _open_local_query(
    query: str,
    parquet: Sequence[tuple[str, FileSet]],
    texts: Sequence[tuple[str, FileSet]],
    roles: ColumnRoles,
    options: EngineOptions,
    text: TextFormat,
) -> Iterator[DuckdbSource]:

    @contextlib.contextmanager
    def bind(attempt: Attempt, *, loaded: bool) -> Iterator[DuckdbRows]:
        # Text files are loaded before access is disabled: a query that named their path would make DuckDB infer types
        # from content.
        paths = [path for _, files in parquet for path in files.paths]
        with contextlib.ExitStack() as stack:
            tables = []
            for name, files in texts:
                if loaded:
                    readable = stack.enter_context(make_readable(stack.enter_context(files.local())))
                    tables.append((name, f"SELECT * FROM {_reserve(readable, attempt).scan()}"))
                else:
                    empty = ", ".join(
                        f"CAST(NULL AS VARCHAR) AS {quote_identifier(column)}" for column in files.header
                    )
                    tables.append((name, f"SELECT {empty} LIMIT 0"))
            session = open_session(paths, attempt.options, tables=tables, rejects=loaded)
            connection = stack.enter_context(session)
            schema = _schema(_create_view(query, parquet, connection), null=text.null)
            yield DuckdbRows(
                name=_QUERY,
                roles=roles,
                schema=schema,
                connection=connection,
                progress=attempt.options.progress,
            )

    first = Attempt(options=options)
    with bind(first, loaded=False) as rows:

        def open_rows(attempt: Attempt) -> AbstractContextManager[DuckdbRows]:
            if attempt == first and not texts:
                return contextlib.nullcontext(rows)
            return bind(attempt, loaded=True)

        yield DuckdbSource(schema=rows.schema, options=options, countable=False, open_rows=open_rows)


def _create_view(
    query: str, parquet: Sequence[tuple[str, FileSet]], connection: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyRelation:
    import duckdb

    def execute(statement: str) -> None:
        connection.execute(statement).fetchall()

    for name, files in parquet:
        view = f"CREATE VIEW {quote_identifier(name)} AS SELECT * FROM {files.scan()}"
        broken = f"the files of table {name!r} cannot be read as Parquet; check that they are complete"
        mask_engine_errors(partial(execute, view), broken)
    try:
        statements = duckdb.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InputError("a query must be one SELECT statement; nothing else is run")
        connection.execute(f"CREATE VIEW {_QUERY} AS {statements[0].query.rstrip().rstrip(';')}").fetchall()
        return connection.sql(f"SELECT * FROM {_QUERY}")
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        # These errors quote the query and schemas, never rows.
        problem = f"the query cannot be run, correct it: {str(error).splitlines()[0]}"
        if _TYPE_MEMBERS.search(problem):  # may quote the first line of a file without a header
            problem = "the query cannot be run: a function or an operator does not accept the type of a column; cast it"
    except duckdb.Error:
        problem = "the query cannot be run; it may only read the files named in files="
    raise InputError(problem)


@contextlib.contextmanager
def _open_frame(
    frame: ArrowFrame, roles: ColumnRoles, options: EngineOptions, text: TextFormat
) -> Iterator[DuckdbSource]:
    if not frame.repeatable:  # it cannot be read again without the limit
        options = replace(options, memory_limit=None)
    with open_session((), options) as connection:
        empty = replace(frame, read=partial(empty_stream, frame.schema))
        schema = mask_engine_errors(
            lambda: _register(empty, connection, roles, options, text).schema, _NO_FRAME
        )

        @contextlib.contextmanager
        def open_rows(attempt: Attempt) -> Iterator[DuckdbRows]:
            if attempt == Attempt(options=options):
                yield _register(frame, connection, roles, options, text)
                return
            if not frame.repeatable or attempt.bytewise:
                raise ValueError("there is no other way to read a stream")
            with open_session((), attempt.options) as another:
                yield _register(frame, another, roles, attempt.options, text)

        yield DuckdbSource(schema=schema, options=options, countable=frame.countable, open_rows=open_rows)


def _register(
    frame: ArrowFrame,
    connection: duckdb.DuckDBPyConnection,
    roles: ColumnRoles,
    options: EngineOptions,
    text: TextFormat,
) -> DuckdbRows:
    def register() -> None:
        connection.register(_FRAME, frame.read())

    register()
    name = _FRAME
    if frame.conversions:
        columns = ", ".join(
            f"{frame.conversions.get(column, quote_identifier(column))} AS {quote_identifier(column)}"
            for column in frame.schema.names
        )
        name = f"(SELECT {columns} FROM {_FRAME})"
    schema = _schema(
        connection.sql(f"SELECT * FROM {name}"),
        units=frame.units,
        text=frame.text,
        null=text.null,
        names_declared=frame.names_declared,
    )
    return DuckdbRows(
        name=name,
        roles=roles,
        schema=schema,
        connection=connection,
        once=frame.once,
        renew=register if frame.repeatable else None,
        progress=options.progress,
    )


def _check_parquet_types(
    files: FileSet, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]
) -> None:
    """Raise InputError if files store a column in different types: converted to one type, users could become one.

    DuckDB treats names that differ only in case as one column.
    """
    paths = quote_texts(files.paths)
    names = ", ".join(f"lower({quote_text(name)})" for name in columns)
    different = mask_engine_errors(
        lambda: connection.sql(
            f"SELECT min(name) FROM parquet_schema({paths}) WHERE lower(name) IN ({names}) GROUP BY lower(name) "
            "HAVING count(DISTINCT concat_ws('/', type, converted_type, logical_type, scale, precision)) > 1"
        ).fetchall(),
        "the files cannot be read as Parquet; check that they are complete",
    )
    if different:
        raise InputError(
            f"column {different[0][0]!r} has different types in different files; write it with one type"
        )


def _check_parquet_names(files: FileSet, roles: ColumnRoles) -> None:
    """Raise InputError for names that differ only in case, and for keys that DuckDB would round.

    Which of the columns is meant would depend on the engine. DuckDB reads decimals of more digits than it supports as
    doubles, so different users could become one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = {name.lower() for name in roles.columns}
    keys = {name.lower() for name in (*roles.users, *roles.group_columns)}
    for path in files.paths:
        schema = mask_engine_errors(
            partial(pq.read_schema, path), f"{path} cannot be read as Parquet; check that it is complete"
        )
        found = [name.lower() for name in schema.names if name.lower() in wanted]
        if len(set(found)) != len(found):
            raise InputError(
                f"{path} has columns whose names differ only in upper and lower case; rename them"
            )
        for one in schema:
            if (
                one.name.lower() in keys
                and pa.types.is_decimal(one.type)
                and one.type.precision > MAX_DECIMAL_DIGITS
            ):
                raise InputError(
                    f"column {one.name!r} has decimals of more than {MAX_DECIMAL_DIGITS} digits, which DuckDB rounds; "
                    "convert it to text"
                )


def _check_bytewise_types(files: FileSet, rows: DuckdbRows, roles: ColumnRoles) -> None:
    """Raise InputError for columns whose type would change if one invalid text made DuckDB read through Arrow."""
    import pyarrow.parquet as pq

    kinds = {name: rows.schema.types[name] for name in roles.columns if name in rows.schema.types}
    if len(kinds) < len(roles.columns) or not any(kind.id == "varchar" for kind in kinds.values()):
        return
    connection = rows.connection
    assert connection is not None

    def bytewise_types() -> dict[str, Any]:
        schema = select_parquet_schema([pq.read_schema(path) for path in files.paths], roles)
        empty = ArrowFrame(schema=schema, read=partial(empty_stream, schema))
        types = _register(empty, connection, roles, EngineOptions(), TextFormat()).schema.types
        connection.unregister(_FRAME)
        return dict(types)

    odd = "a column is of a type that cannot be read beside text"
    for name, kind in mask_engine_errors(bytewise_types, f"{odd}; convert it first", foreign=True).items():
        if str(kind) != str(kinds[name]):
            raise InputError(f"column {name!r} has type {type_name(kinds[name])}; {odd}; convert it first")


def _schema(
    relation: duckdb.DuckDBPyRelation,
    *,
    names_declared: bool = False,
    units: dict[str, Fraction] | None = None,
    text: TextFormat | None = None,
    null: tuple[str, ...] = (),
) -> Schema:
    types = dict(zip(relation.columns, relation.types, strict=True))
    return Schema(
        types=types, dialect=DuckdbSql(), names_declared=names_declared, units=units, text=text, null=null
    )


class DuckdbEngine:
    """Reads files, queries, DuckDB relations and data frames."""

    name = "duckdb"

    def open(
        self, data: Any, roles: ColumnRoles, options: ReadOptions
    ) -> AbstractContextManager[DuckdbSource]:
        return open_source(data, roles, options)


ENGINE = DuckdbEngine()
