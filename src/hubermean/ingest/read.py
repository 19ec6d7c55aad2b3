"""`user_table`: any supported data, grouped by user."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from hubermean.errors import InputError
from hubermean.ingest.columns import Schema, ValueColumn
from hubermean.ingest.files import FileSet, identifier, literal
from hubermean.ingest.frames import arrow_source, is_duckdb_relation
from hubermean.ingest.grouping import grouping_query, read_user_table
from hubermean.ingest.query import SqlQuery
from hubermean.ingest.session import fetch, open_session, quietly
from hubermean.ingest.text_bytes import as_utf8
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
UNREADABLE = "the data could not be read to the end; check that the file or query is complete and well formed"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Something the engine can select from; `once` if it cannot be read again.

    `relation` is None where `connection` knows it by `name`. `byte_text`: text may hold letters that
    stand for bytes (`text_bytes`). `marks`: see `ArrowSource`.
    """

    name: str
    schema: Schema
    connection: duckdb.DuckDBPyConnection | None
    relation: duckdb.DuckDBPyRelation | None = None
    once: bool = False
    byte_text: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)

    def run(self, query: str) -> duckdb.DuckDBPyRelation:
        if self.relation is not None:
            return _relation(self.relation.query(self.name, query))
        assert self.connection is not None
        return self.connection.sql(query)


def _relation(result: duckdb.DuckDBPyRelation | None) -> duckdb.DuckDBPyRelation:
    if result is None:  # only statements that return no rows give none
        raise InputError("the data must be something to select from")
    return result


def user_table(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str] | None,
    resolution: float | Decimal | Fraction | None = None,
    non_finite: str = "drop",
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    records: bool = True,
) -> UserTable:
    """Group `data` by user in exact integers.

    Args:
        data: a path or glob (Parquet, CSV, JSON lines), `hubermean.sql(...)`, or a pandas, Polars, PyArrow
            or DuckDB frame.
        user: the column or columns that identify a user.
        value: the column or columns to sum; None counts records alone.
        resolution: values are rounded to whole multiples of this public step, which is faster than the two
            parts of floating-point columns.
        non_finite: "drop" leaves infinite values out; "clamp" moves them to the largest value representable.
            Null and NaN are always left out.
        memory_limit: what the engine may hold in memory, such as "2GB"; beyond it, it uses disk.
        threads: how many threads the engine may use.
        progress: show a progress bar on a terminal after one second.
        records: also count the records that are not usable, which `replace-values` needs.

    Formal guarantees:
    - sums and counts are exact integers, the same for every order of rows, thread count and container;
    - each record is judged by itself: its values and the declared types of its columns, nothing else;
    - no user id is kept, and no error message quotes data.
    """
    users, values = column_names(user, "user"), [] if value is None else column_names(value, "value")
    require_apart(user=users, value=values)
    rule = ValueRule.checked(resolution, non_finite)
    with open_source(data, users, values, memory_limit=memory_limit, threads=threads) as source:
        readers = rule.readers(source.schema, values)
        has_user = [source.schema.key(name) for name in users]

        def grouped(split: bool) -> UserTable:
            query = grouping_query(
                source.name, users=users, has_user=has_user, values=readers, records=records, split=split
            )
            return read_user_table(fetch(source.run(query), source.connection, progress=progress), readers)

        return quietly(lambda: with_room(grouped, once=source.once), UNREADABLE)


def with_room(grouped: Callable[[bool], T], *, once: bool) -> T:
    """Group in one 128-bit sum, or in two parts where that overflows; the integers are the same.

    What can be read only once is grouped in two parts at once.
    """
    import duckdb

    if not once:
        with contextlib.suppress(duckdb.OutOfRangeException):
            return grouped(False)
    return grouped(True)


def column_names(given: str | Sequence[str], what: str) -> list[str]:
    try:
        names = [given] if isinstance(given, str) else list(given)
    except TypeError:
        names = []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{what} must be a column name or a list of column names")
    if len(set(names)) != len(names):
        raise InputError(f"{what} names a column twice; name each column once")
    return names


def require_apart(**roles: Sequence[str]) -> None:
    """Refuse a column that plays two roles."""
    seen: dict[str, str] = {}
    for role, names in roles.items():
        for name in names:
            if name in seen:
                raise InputError(
                    f"column {name!r} is both {seen[name]} and {role}; name two different columns"
                )
            seen[name] = role


@dataclass(frozen=True, kw_only=True)
class ValueRule:
    """How values are read: the public step they are rounded to, and whether infinite ones are clamped."""

    step: Fraction | None
    clamp_infinities: bool

    @classmethod
    def checked(cls, resolution: float | Decimal | Fraction | None, non_finite: str) -> ValueRule:
        step = _resolution(resolution)
        if not isinstance(non_finite, str) or non_finite not in ("drop", "clamp"):
            raise InputError(f"non_finite must be 'drop' or 'clamp', not {non_finite!r}")
        return cls(step=step, clamp_infinities=non_finite == "clamp")

    def readers(self, schema: Schema, values: Sequence[str]) -> list[ValueColumn]:
        return [
            schema.value(name, resolution=self.step, clamp_infinities=self.clamp_infinities)
            for name in values
        ]


def _resolution(given: float | Decimal | Fraction | None) -> Fraction | None:
    if given is None:
        return None
    try:
        # A float is meant as it is written: 0.01 is one hundredth, not its nearest binary fraction.
        step = Fraction(repr(given)) if isinstance(given, float) else Fraction(given)
    except (TypeError, ValueError, OverflowError):
        step = Fraction(0)
    if isinstance(given, bool) or not Fraction(1, 10**18) <= step <= 10**18:
        raise InputError(f"resolution must be a positive number from 1e-18 to 1e18, not {given!r}")
    return step


@contextlib.contextmanager
def open_source(
    data: Any,
    users: Sequence[str],
    values: Sequence[str],
    groups: Sequence[str] = (),
    *,
    memory_limit: str | None,
    threads: int | None,
) -> Iterator[Source]:
    if isinstance(data, str | os.PathLike):
        found = FileSet.find(data)
        with (
            as_utf8(found) as files,
            open_session(files.paths, memory_limit=memory_limit, threads=threads) as connection,
        ):
            yield _file_source(files, connection, [*users, *values, *groups], named=found.paths[0])
    elif isinstance(data, SqlQuery):
        # Text files are loaded first and then shut out: a query that named their path would have the engine guess
        # their types from the content.
        texts = [(name, files) for name, files in data.files if files.kind != "parquet"]
        paths = [path for _, files in data.files if files.kind == "parquet" for path in files.paths]
        with contextlib.ExitStack() as copies:
            tables = [(name, copies.enter_context(as_utf8(files)).scan(())) for name, files in texts]
            session = open_session(paths, memory_limit=memory_limit, threads=threads, tables=tables)
            yield _query_source(data, copies.enter_context(session))
    elif is_duckdb_relation(data):
        if memory_limit is not None or threads is not None:
            raise InputError(
                "a DuckDB relation runs in its own connection; set memory_limit and threads there"
            )
        yield Source(name=f"hubermean_{id(data):x}", schema=_schema(data), connection=None, relation=data)
    else:
        source = quietly(lambda: arrow_source(data, users, values, groups), UNREADABLE, foreign=True)
        with open_session((), memory_limit=memory_limit, threads=threads) as connection:

            def registered() -> duckdb.DuckDBPyRelation:
                connection.register("frame", source.data)
                return connection.sql("SELECT * FROM frame")

            columns = quietly(
                registered, "the data frame has a column of a type that cannot be read; convert it first"
            )
            schema = _schema(columns, units=source.units)
            yield Source(
                name="frame", schema=schema, connection=connection, once=source.once, marks=source.marks
            )


def _file_source(
    files: FileSet, connection: duckdb.DuckDBPyConnection, columns: Sequence[str], *, named: str
) -> Source:
    scan = files.scan(columns)
    broken = f"{named} cannot be read as {files.kind}; check that it is complete"
    relation = quietly(lambda: connection.sql(f"SELECT * FROM {scan}"), broken)
    if files.kind == "parquet" and len(files.paths) > 1:
        _require_one_type(files, connection, columns)
    return Source(
        name=scan,
        schema=_schema(relation, text_values=files.kind != "parquet"),
        connection=connection,
        byte_text=files.kind == "csv",
    )


def _query_source(data: SqlQuery, connection: duckdb.DuckDBPyConnection) -> Source:
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
    return Source(name="hubermean_query", schema=_schema(relation), connection=connection, byte_text=bytewise)


def _require_one_type(files: FileSet, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> None:
    """Refuse files that store a column in different types: made one type, different users could become one."""
    paths = "[" + ", ".join(literal(path) for path in files.paths) + "]"
    names = ", ".join(literal(name) for name in columns)
    different = quietly(
        lambda: connection.sql(
            f"SELECT name FROM parquet_schema({paths}) WHERE name IN ({names}) GROUP BY name "
            "HAVING count(DISTINCT concat_ws('/', type, converted_type, logical_type, scale, precision)) > 1"
        ).fetchall(),
        "the files cannot be read as parquet; check that they are complete",
    )
    if different:
        raise InputError(
            f"column {different[0][0]!r} has different types in different files; write it with one"
        )


def _schema(
    relation: duckdb.DuckDBPyRelation, *, text_values: bool = False, units: dict[str, Fraction] | None = None
) -> Schema:
    types = dict(zip(relation.columns, relation.types, strict=True))
    return Schema(types=types, text_values=text_values, units=units)
