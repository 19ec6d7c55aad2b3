"""DuckDB, for files, queries and data frames on one machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from hubermean.errors import InputError
from hubermean.ingest.coarse_sums import CoarseSums, NoRoomError, coarse_sums
from hubermean.ingest.columns import Schema, ValueColumn
from hubermean.ingest.duckdb_sql import DuckdbSql
from hubermean.ingest.engine import UNREADABLE, GroupsAsked, Limits, Roles
from hubermean.ingest.files import FileSet, identifier, literal
from hubermean.ingest.frames import arrow_source, is_duckdb_relation
from hubermean.ingest.group_query import GroupQuery
from hubermean.ingest.grouping import grouping_query, read_user_table
from hubermean.ingest.id_index import bits_of_ids
from hubermean.ingest.query import SqlQuery
from hubermean.ingest.session import fetch, open_session, quietly
from hubermean.ingest.sum_and_count import is_known
from hubermean.ingest.text_bytes import as_utf8
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DuckdbSource:
    """Something the engine can select from; `once` if it cannot be read again.

    `relation` is None where `connection` knows it by `name`. `marks`: see `ArrowSource`. `statistics`: Parquet files
    that may say how large values are, where there is room for `CoarseSums`, which take more memory.
    """

    name: str
    roles: Roles
    schema: Schema
    connection: duckdb.DuckDBPyConnection | None
    relation: duckdb.DuckDBPyRelation | None = None
    once: bool = False
    progress: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)
    statistics: FileSet | None = None

    def run(self, query: str) -> duckdb.DuckDBPyRelation:
        if self.relation is not None:
            return _relation(self.relation.query(self.name, query))
        assert self.connection is not None
        return self.connection.sql(query)

    def users(self, values: Sequence[ValueColumn], *, records: bool) -> UserTable:
        has_user = [self.schema.key(name) for name in self.roles.users]
        joint = quietly(lambda: is_known(self.run), UNREADABLE)

        def grouped(split: bool, coarse: CoarseSums | None = None) -> UserTable:
            query = grouping_query(
                self.name,
                users=self.roles.users,
                has_user=has_user,
                values=values,
                records=records,
                split=split,
                joint=joint,
                coarse=coarse,
            )
            return read_user_table(self._fetched(query), values, coarse=coarse)

        def table() -> UserTable:
            coarse = self._coarse(values) if joint else None
            if coarse is not None:
                with contextlib.suppress(*_does_not_fit()):
                    return grouped(False, coarse)
            return self._with_room(grouped)

        return quietly(table, UNREADABLE)

    def _coarse(self, values: Sequence[ValueColumn]) -> CoarseSums | None:
        """Of several columns the rests would cost more than the narrower steps save."""
        if self.statistics is None or self.connection is None or len(values) != 1 or not values[0].floats:
            return None
        return coarse_sums(self.connection, self.statistics, values[0].name)

    def entries(self, values: Sequence[ValueColumn], asked: GroupsAsked) -> pa.Table:
        query = GroupQuery(
            source=self.name,
            users=self.roles.users,
            marks=[self.marks.get(name) for name in self.roles.users],
            has_user=[self.schema.key(name) for name in self.roles.users],
            groups=self.roles.groups,
            values=values,
            keys=None if asked.keys is None else asked.keys.query,
            max_groups=asked.max_groups,
            pooled=asked.pooled,
        )

        def grouped(split: bool) -> pa.Table:
            table = self._fetched(query.text(split=split, quick=not self.once))
            if "several" in table.column_names and not _fits(table):
                table = self._fetched(query.text(split=split, quick=False))
            return table

        return quietly(lambda: self._with_room(grouped), UNREADABLE)

    def _fetched(self, query: str) -> pa.Table:
        return fetch(self.run(query), self.connection, progress=self.progress)

    def _with_room(self, grouped: Callable[[bool], T]) -> T:
        """Group in one 128-bit sum, or in two parts where that overflows; the integers are the same.

        What can be read only once is grouped in two parts at once.
        """
        import duckdb

        if not self.once:
            with contextlib.suppress(duckdb.OutOfRangeException):
                return grouped(False)
        return grouped(True)


def _does_not_fit() -> tuple[type[Exception], ...]:
    """Of `CoarseSums`: what a value that its statistics leave out, or a very large sum, ends in."""
    import duckdb

    return (duckdb.ConversionException, duckdb.OutOfRangeException, NoRoomError)


def _fits(table: pa.Table) -> bool:
    """Whether every user of several groups was given one."""
    import pyarrow.compute as pc

    return (pc.sum(table.column("chosen")).as_py() or 0) == (pc.max(table.column("several")).as_py() or 0)


def _relation(result: duckdb.DuckDBPyRelation | None) -> duckdb.DuckDBPyRelation:
    if result is None:  # only statements that return no rows give none
        raise InputError("the data must be something to select from")
    return result


@contextlib.contextmanager
def open_source(data: Any, roles: Roles, limits: Limits) -> Iterator[DuckdbSource]:
    if isinstance(data, str | os.PathLike):
        found = FileSet.find(data)
        with (
            as_utf8(found) as files,
            _session(files.paths, limits, settings=_id_index(files, roles, limits)) as connection,
        ):
            yield _file_source(files, connection, roles, limits, named=found.paths[0])
    elif isinstance(data, SqlQuery):
        # Text files are loaded first and then shut out: a query that named their path would have the engine guess
        # their types from the content.
        texts = [(name, files) for name, files in data.files if files.kind != "parquet"]
        paths = [path for _, files in data.files if files.kind == "parquet" for path in files.paths]
        with contextlib.ExitStack() as copies:
            tables = [(name, copies.enter_context(as_utf8(files)).scan(())) for name, files in texts]
            session = _session(paths, limits, tables=tables)
            yield _query_source(data, copies.enter_context(session), roles, limits)
    elif is_duckdb_relation(data):
        if limits.memory_limit is not None or limits.threads is not None:
            raise InputError(
                "a DuckDB relation runs in its own connection; set memory_limit and threads there"
            )
        yield DuckdbSource(
            name=f"hubermean_{id(data):x}", roles=roles, schema=_schema(data), connection=None, relation=data
        )
    else:
        source = quietly(
            lambda: arrow_source(data, roles.users, roles.values, roles.groups), UNREADABLE, foreign=True
        )
        with _session((), limits) as connection:

            def registered() -> duckdb.DuckDBPyRelation:
                connection.register("frame", source.data)
                return connection.sql("SELECT * FROM frame")

            columns = quietly(
                registered, "the data frame has a column of a type that cannot be read; convert it first"
            )
            schema = _schema(columns, units=source.units)
            yield DuckdbSource(
                name="frame",
                roles=roles,
                schema=schema,
                connection=connection,
                once=source.once,
                progress=limits.progress,
                marks=source.marks,
            )


def _session(
    paths: Sequence[str], limits: Limits, **given: Any
) -> contextlib.AbstractContextManager[duckdb.DuckDBPyConnection]:
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


def _file_source(
    files: FileSet, connection: duckdb.DuckDBPyConnection, roles: Roles, limits: Limits, *, named: str
) -> DuckdbSource:
    scan = files.scan(roles.columns)
    broken = f"{named} cannot be read as {files.kind}; check that it is complete"
    relation = quietly(lambda: connection.sql(f"SELECT * FROM {scan}"), broken)
    if files.kind == "parquet" and len(files.paths) > 1:
        _require_one_type(files, connection, roles.columns)
    return DuckdbSource(
        name=scan,
        roles=roles,
        schema=_schema(relation, text_values=files.kind != "parquet", byte_text=files.kind == "csv"),
        connection=connection,
        progress=limits.progress,
        statistics=files if files.kind == "parquet" and limits.memory_limit is None else None,
    )


def _query_source(
    data: SqlQuery, connection: duckdb.DuckDBPyConnection, roles: Roles, limits: Limits
) -> DuckdbSource:
    import duckdb

    for name, files in data.files:
        if files.kind == "parquet":
            view = f"CREATE VIEW {identifier(name)} AS SELECT * FROM {files.scan(())}"
            broken = f"{files.paths[0]} cannot be read as parquet; check that it is complete"
            quietly(lambda view=view: connection.execute(view).fetchall(), broken)  # type: ignore[misc]
    problem = ""
    try:
        statements = duckdb.extract_statements(data.query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InputError("a query must be one SELECT statement")
        connection.execute(
            f"CREATE VIEW hubermean_query AS {statements[0].query.rstrip().rstrip(';')}"
        ).fetchall()
        relation = connection.sql("SELECT * FROM hubermean_query")
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        # These speak of the query and of schemas, never of rows.
        problem = f"the query cannot be run: {str(error).splitlines()[0]}"
    except duckdb.Error:
        problem = "the query cannot be run; it may only read the files named in files="
    if problem:
        raise InputError(problem)
    bytewise = any(files.kind == "csv" for _, files in data.files)
    return DuckdbSource(
        name="hubermean_query",
        roles=roles,
        schema=_schema(relation, byte_text=bytewise),
        connection=connection,
        progress=limits.progress,
    )


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


def _schema(
    relation: duckdb.DuckDBPyRelation,
    *,
    text_values: bool = False,
    byte_text: bool = False,
    units: dict[str, Fraction] | None = None,
) -> Schema:
    types = dict(zip(relation.columns, relation.types, strict=True))
    return Schema(types=types, dialect=DuckdbSql(), text_values=text_values, byte_text=byte_text, units=units)


class DuckdbEngine:
    """Reads files, queries, and whatever is or becomes an Arrow table."""

    name = "duckdb"

    def open(
        self, data: Any, roles: Roles, limits: Limits
    ) -> contextlib.AbstractContextManager[DuckdbSource]:
        return open_source(data, roles, limits)


ENGINE = DuckdbEngine()
