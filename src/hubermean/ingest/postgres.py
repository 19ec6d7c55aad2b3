"""Queries of a PostgreSQL database, as streams of Arrow batches.

The server describes the columns of the query without running it. Records then arrive as a binary COPY, which the ADBC
driver turns into Arrow. Each column is selected in a form in which no value can make the transfer fail:

| type | travels as | is read as |
|---|---|---|
| boolean, smallint, integer, bigint, real, double precision, bytea | itself | itself |
| numeric(p, s) of up to 38 digits | text | decimal(p, s); NaN is missing |
| other numeric, money | text | double; as an id, its digits without trailing zeros |
| text, varchar, char, name, uuid, enum | text | text; char without its padding |
| date | date | date; infinite dates are missing |
| timestamp, timestamptz | its day, in UTC | date; only for groups such as "month(column)" |
| interval | double | seconds |

Formal guarantees: the statement is a single SELECT, in a transaction that the server keeps from writing; its types are
those that the server declared before the charge, or nothing is read.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.ingest.files import quote_identifier
from hubermean.ingest.frames import ArrowFrame
from hubermean.ingest.locations import without_credentials
from hubermean.ingest.periods import GroupColumn
from hubermean.ingest.schema import ColumnRoles, missing_column_message
from hubermean.ingest.sql import SqlQuery

if TYPE_CHECKING:
    import pyarrow as pa

_SETTINGS = {
    "default_transaction_read_only": "'on'",
    # Notices may quote records: no version of the driver shall have any to print.
    "client_min_messages": "'error'",
    "standard_conforming_strings": "'on'",
    # Whether a release ends must not depend on how long one user's records take.
    "statement_timeout": "'0'",
    "lock_timeout": "'120s'",
    "idle_in_transaction_session_timeout": "'600s'",
}
# A database without an encoding holds any bytes, which the server would refuse to send as UTF-8.
_ENCODING = "CASE current_setting('server_encoding') WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END"
_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LIST_TABLES = (
    "SELECT table_schema, table_name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') "
    "AND has_table_privilege(format('%I.%I', table_schema, table_name), 'SELECT') "
    "ORDER BY table_schema, table_name LIMIT 1000"
)
_IS_READ_ONLY = "SELECT current_setting('transaction_read_only') AS setting"
_CONNECT_SECONDS = 10
_BATCH_BYTES = 1 << 23
_BATCHES_AHEAD = 4

_PLAIN = {16: "bool", 21: "int16", 23: "int32", 20: "int64", 700: "float", 701: "double", 17: "binary"}
_TEXT = {25, 1043, 1042, 19, 2950, 705}  # text, varchar, char, name, uuid, an untyped literal
_NUMERIC, _MONEY, _DATE, _TIMESTAMP, _TIMESTAMPTZ, _INTERVAL = 1700, 790, 1082, 1114, 1184, 1186
_MAX_DIGITS = 38


@dataclass(frozen=True, kw_only=True)
class ServerColumn:
    """A column as the server describes it: the number of its type, its modifier, the type's name and kind."""

    kind: int
    modifier: int
    name: str
    is_enum: bool

    @property
    def digits(self) -> tuple[int, int] | None:
        """Precision and scale of a numeric column, if a 128-bit decimal holds them."""
        if self.kind != _NUMERIC or self.modifier < 4:
            return None
        precision, scale = (self.modifier - 4) >> 16, ((self.modifier - 4) & 0x7FF ^ 0x400) - 0x400
        return (precision, scale) if 0 <= scale <= precision <= _MAX_DIGITS else None


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """How a column travels: SQL of the server, the Arrow type, and SQL of DuckDB that converts it back."""

    select: str
    kind: str
    convert: str | None = None


@contextlib.contextmanager
def open_postgres(data: SqlQuery, roles: ColumnRoles) -> Iterator[ArrowFrame]:
    """Open a query of a PostgreSQL database; only its description is read before the frame is."""
    import pyarrow as pa

    assert data.connection is not None
    shown = without_credentials(data.connection)
    url = "postgresql://" + data.connection.partition("://")[2]
    # On lines of its own: the query may end with a comment.
    source = f"(\n{data.query.rstrip().rstrip(';')}\n) AS hubermean_query"
    with _connect_to_describe(url, shown) as describing:
        found = _describe(describing, f"SELECT * FROM {source}")
        periods = {GroupColumn.parse(name).column for name in roles.groups if GroupColumn.parse(name).period}
        transfers = {}
        for role in roles.columns:
            if role not in found:
                raise InputError(missing_column_message(role, list(found)))
            transfers[role] = _choose_transfer(
                role, found[role], is_value=role in roles.values, is_period=role in periods
            )
        columns = ", ".join(f"{one.select} AS {quote_identifier(name)}" for name, one in transfers.items())
        wanted = f"SELECT {columns} FROM {source}"
        _describe(describing, wanted)
        _check_rights(describing, wanted)
    schema = pa.schema([(name, pa.type_for_alias(one.kind)) for name, one in transfers.items()])
    with _connect(url, shown) as connection, contextlib.ExitStack() as cursors:

        def read() -> Any:
            cursors.close()
            cursor = cursors.enter_context(connection.cursor())
            return cursors.enter_context(_fetch_ahead(_run(cursor, wanted, schema), cursor.adbc_cancel))

        yield ArrowFrame(
            schema=schema,
            read=read,
            once=True,
            countable=False,
            conversions={name: one.convert for name, one in transfers.items() if one.convert},
            names_declared=True,
        )


def list_postgres_tables(connection: str) -> list[tuple[str, ...]]:
    """Return schema and name of the tables and views that this role may select from."""
    shown = without_credentials(connection)
    with _connect_to_describe("postgresql://" + connection.partition("://")[2], shown) as describing:
        rows = describing.execute(_LIST_TABLES).fetchall()
    return [(str(schema), str(name)) for schema, name in rows]


def describe_query(data: SqlQuery) -> dict[str, dict[str, str | None]]:
    """Return the columns of a query: the name of each type, and how it would travel as key, value and period.

    None stands for a role that the column cannot have.
    """
    assert data.connection is not None
    url, shown = "postgresql://" + data.connection.partition("://")[2], without_credentials(data.connection)
    with _connect_to_describe(url, shown) as describing:
        found = _describe(describing, data.query)
    roles = {"key": (False, False), "value": (True, False), "period": (False, True)}
    described: dict[str, dict[str, str | None]] = {}
    for name, column in found.items():
        described[name] = {role: _name_transfer(name, column, *flags) for role, flags in roles.items()}
        described[name]["name"] = column.name
    return described


def _name_transfer(name: str, column: ServerColumn, is_value: bool, is_period: bool) -> str | None:
    try:
        transfer = _choose_transfer(name, column, is_value=is_value, is_period=is_period)
    except InputError:
        return None
    return "number" if transfer.convert else transfer.kind


def _choose_transfer(name: str, column: ServerColumn, *, is_value: bool, is_period: bool) -> Transfer:
    quoted = quote_identifier(name)
    kind = column.kind
    text = f"CAST({quoted} AS text)"
    if kind in _PLAIN:
        return Transfer(select=quoted, kind=_PLAIN[kind])
    if kind in _TEXT or column.is_enum:
        return Transfer(select=text, kind="string")
    if column.digits is not None:
        precision, scale = column.digits
        return Transfer(
            select=text, kind="string", convert=f"try_cast({quoted} AS DECIMAL({precision}, {scale}))"
        )
    if kind == _MONEY and is_value:
        return Transfer(
            select=f"CAST(CAST({quoted} AS numeric) AS text)",
            kind="string",
            convert=f"try_cast({quoted} AS DOUBLE)",
        )
    if kind == _NUMERIC and is_value:
        return Transfer(select=text, kind="string", convert=f"try_cast({quoted} AS DOUBLE)")
    if kind == _NUMERIC:
        digits = f"CAST(trim_scale({quoted}) AS text)"
        return Transfer(select=f"CASE WHEN {quoted} <> 'NaN' THEN {digits} END", kind="string")
    if kind == _DATE:
        return Transfer(select=f"CASE WHEN isfinite({quoted}) THEN {quoted} END", kind="date32")
    if kind in (_TIMESTAMP, _TIMESTAMPTZ) and is_period:
        local = quoted if kind == _TIMESTAMP else f"({quoted} AT TIME ZONE 'UTC')"
        return Transfer(select=f"CASE WHEN isfinite({quoted}) THEN CAST({local} AS date) END", kind="date32")
    if kind == _INTERVAL and is_value:
        return Transfer(select=f"CAST(extract(epoch FROM {quoted}) AS double precision)", kind="double")
    role = "has no mean" if is_value else "cannot identify users or name groups"
    advice = "cast it in the query"
    if kind in (_TIMESTAMP, _TIMESTAMPTZ):
        advice = f"group by month({name}), or by its day, week, quarter or year"
    raise InputError(f"column {name!r} has type {column.name}, which {role}; {advice}")


def _set_all(*, encoding: str) -> str:
    """Return one statement for all settings of a session: each of its own would be a message to and fro."""
    settings = _SETTINGS | {"client_encoding": encoding}
    return "SELECT " + ", ".join(f"set_config('{name}', {value}, false)" for name, value in settings.items())


@contextlib.contextmanager
def _connect_to_describe(url: str, shown: str) -> Iterator[Any]:
    """Open a connection in which queries are described; errors of the server become InputError."""
    psycopg = _import_driver()[0]
    problem = f"{shown} cannot be reached; check host, port, database, user and password"
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_SECONDS, autocommit=True) as connection:
            problem = f"{shown} does not answer as PostgreSQL does; check what runs there"
            connection.execute(_set_all(encoding="'UTF8'"))
            yield connection
        return
    except InputError:
        raise
    except (psycopg.Error, ValueError, UnicodeError):
        pass
    raise InputError(problem)


def _describe(connection: Any, statement: str) -> Mapping[str, ServerColumn]:
    """Return the columns of a statement, which the server parses and does not run."""
    psycopg = _import_driver()[0]
    # The extended protocol takes a single statement.
    result = connection.pgconn.prepare(b"", statement.encode())
    if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
        raise InputError(f"the query cannot be run: {_primary_message(psycopg, result)}")
    result = connection.pgconn.describe_prepared(b"")
    columns = [
        ((result.fname(place) or b"").decode(), result.ftype(place), result.fmod(place))
        for place in range(result.nfields)
    ]
    rows = connection.execute(
        "SELECT oid, format_type(oid, NULL), typtype = 'e' FROM pg_catalog.pg_type WHERE oid = ANY(%s)",
        [[kind for _, kind, _ in columns]],
    ).fetchall()
    kinds = {int(oid): (str(name), bool(enum)) for oid, name, enum in rows}
    names = [name for name, _, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")
    return {
        name: ServerColumn(kind=kind, modifier=modifier, name=kinds[kind][0], is_enum=kinds[kind][1])
        for name, kind, modifier in columns
    }


def _check_rights(connection: Any, statement: str) -> None:
    """Raise InputError where this role may not run a statement, or it locks; the server plans it and does not run it.

    All other errors are left for the time of reading, when they are charged: they may depend on a record.
    """
    from psycopg import errors

    problem = ""
    connection.execute(_BEGIN)
    try:
        plan = connection.execute(f"EXPLAIN (COSTS OFF) {statement}").fetchall()
        if any(re.match(r"\s*(->\s+)?LockRows\b", line) for (line,) in plan):
            problem = "FOR UPDATE and its like lock records, and a release only reads; leave it out"
    except errors.InsufficientPrivilege as error:
        problem = f"{error.diag.message_primary}; ask for the right to select from it"
    except errors.Error:
        pass
    connection.execute("ROLLBACK")
    if problem:
        raise InputError(f"the query cannot be run: {problem}")


def _primary_message(psycopg: Any, result: Any) -> str:
    """Return what the server says of a statement that it does not accept; it has seen no record."""
    said: bytes = (
        result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) or b"not accepted by the server"
    )
    return said.decode(errors="replace")


@contextlib.contextmanager
def _connect(url: str, shown: str) -> Iterator[Any]:
    adbc = _import_driver()[1]
    connection = None
    with contextlib.suppress(adbc.Error):
        connection = adbc.connect(url, autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute(_set_all(encoding=_ENCODING))
            cursor.fetchall()
    if connection is None:
        raise InputError(f"{shown} cannot be reached; check host, port, database, user and password")
    try:
        yield connection
    finally:
        with contextlib.suppress(adbc.Error):
            connection.close()


def _run(cursor: Any, wanted: str, schema: pa.Schema) -> Any:
    """Run the query in a new transaction that can only read; the stream lives as long as the cursor."""
    for statement in ("ROLLBACK", _BEGIN):
        cursor.execute(statement)
    cursor.execute(_IS_READ_ONLY)
    if cursor.fetchall() != [("on",)]:
        raise ValueError("the transaction is not read-only")
    # Few large batches cost less; several small ones let fetching and grouping overlap.
    cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
    cursor.execute(wanted)
    reader = cursor.fetch_record_batch()
    if [(one.name, one.type) for one in reader.schema] != [(one.name, one.type) for one in schema]:
        raise ValueError("the columns are not those that were declared")
    return reader


@contextlib.contextmanager
def _fetch_ahead(
    reader: pa.RecordBatchReader, cancel: Callable[[], object]
) -> Iterator[pa.RecordBatchReader]:
    """Yield the same stream, fetched by a thread of its own while earlier batches are grouped.

    At the end no thread uses the stream any more; `cancel` makes the server give up what nobody will read.
    """
    import pyarrow as pa

    fetched: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(maxsize=_BATCHES_AHEAD)
    unwanted = threading.Event()

    def fetch() -> None:
        last: BaseException | None = None
        try:
            for batch in reader:
                fetched.put(batch)
                if unwanted.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the stream is read
            last = error
        fetched.put(last)

    def batches() -> Iterator[pa.RecordBatch]:
        while (found := fetched.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found

    thread = threading.Thread(target=fetch, name="hubermean-fetch", daemon=True)
    thread.start()
    try:
        yield pa.RecordBatchReader.from_batches(reader.schema, batches())
    finally:
        unwanted.set()
        if thread.is_alive():
            with contextlib.suppress(Exception):
                cancel()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                fetched.get_nowait()
            thread.join(timeout=0.01)


def _import_driver() -> tuple[Any, Any]:
    try:
        import adbc_driver_postgresql.dbapi as adbc
        import psycopg
    except ImportError:
        raise InputError(
            "reading from PostgreSQL needs more packages; run pip install 'hubermean[postgres]'"
        ) from None
    return psycopg, adbc
