"""A ledger in a PostgreSQL database, for a team. A lock on the last head admits one writer at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from hubermean.errors import InputError, LedgerDamaged, LedgerUnavailable
from hubermean.ledger.entries import GENESIS
from hubermean.ledger.store import SCHEMA, WHOLE, Rows

_CREATION_LOCK = 0x48624D6E  # advisory lock that is held while tables are created
_VERSIONS: dict[int, tuple[str, ...]] = {
    1: (
        "CREATE TABLE hubermean_schema (version INTEGER PRIMARY KEY)",
        "CREATE TABLE hubermean_entries (number BIGINT PRIMARY KEY, dataset TEXT NOT NULL, kind TEXT NOT NULL, "
        "body TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL)",
        "CREATE TABLE hubermean_heads (name TEXT PRIMARY KEY, number BIGINT NOT NULL, digest TEXT NOT NULL)",
        f"INSERT INTO hubermean_heads (name, number, digest) VALUES ('{WHOLE}', 0, '{GENESIS}')",
    ),
    2: (
        "CREATE TABLE hubermean_answers (question TEXT PRIMARY KEY, number BIGINT NOT NULL)",
        "CREATE FUNCTION hubermean_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'entries are append-only'; END $$",
        "CREATE TRIGGER hubermean_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON hubermean_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION hubermean_append_only()",
    ),
    3: (),
}
"""What each version of the schema added."""
_TABLES = ("hubermean_entries", "hubermean_heads", "hubermean_answers", "hubermean_schema")
# A server that does not respond must not block a release for ever.
_SETTINGS = (
    "SET lock_timeout = '120s'",
    "SET statement_timeout = '300s'",
    "SET idle_in_transaction_session_timeout = '300s'",
    "SET synchronous_commit = on",
    "SET standard_conforming_strings = on",
)
# The same tables for everyone who connects, whatever their search path is. synchronous_commit is set once more because
# a connection pool may have applied the initial setting to another session.
_FOR_THIS_TRANSACTION = (
    "SELECT set_config('search_path', 'public, pg_temp', true), set_config('synchronous_commit', 'on', true)"
)
_CONNECTING: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "client_encoding": "utf8",  # a database without an encoding would return bytes
    "prepare_threshold": None,  # a pool may hand each transaction to another session
}
_NO_TABLE, _NOT_ALLOWED, _NO_SUCH_CHARACTER = "42P01", "42501", "22P05"
_DAMAGED = ("22", "23", "42", "P0", "XX")  # classes of states: data, constraint, schema, trigger, internal


class PostgresStore:
    """A database, given by its URL."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: F401 - the driver, needed later
            from sqlalchemy import create_engine, event, make_url
            from sqlalchemy.exc import ArgumentError
        except ModuleNotFoundError:
            raise InputError(
                "a ledger in PostgreSQL needs two more packages; run pip install 'hubermean[postgres]'"
            ) from None
        problem = False
        try:
            parsed = make_url(url).set(drivername="postgresql+psycopg")
            problem = "@" in (parsed.host or "")  # the rest of a password that contains an @
            port = "" if parsed.port is None else f":{parsed.port}"
            self.location = f"postgresql://{parsed.host or ''}{port}/{parsed.database or ''}"
            self._engine = create_engine(
                parsed, pool_size=1, max_overflow=0, pool_pre_ping=True, connect_args=_CONNECTING
            )
        except (ArgumentError, ValueError, TypeError):
            problem = True
        if problem:  # raised outside the handler, whose error may quote the password
            raise InputError(
                "the URL of the ledger cannot be read; write postgresql://user:password@host:port/database, "
                "with %40 for an @ in the password"
            )
        self._lock = threading.RLock()
        self._process = os.getpid()

        @event.listens_for(self._engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            with connection.cursor() as cursor:
                for setting in _SETTINGS:
                    cursor.execute(setting)
            connection.commit()

    def create(self) -> None:
        with self._transaction("READ COMMITTED") as rows:
            self._migrate(rows)

    def _migrate(self, rows: Rows) -> None:
        """Bring an empty database or any older version to this one, within the current transaction."""
        rows.execute(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
        version = _read_version(rows)
        self._require_not_newer(version)
        for number in range(version + 1, SCHEMA + 1):
            for statement in _VERSIONS[number]:
                rows.execute(statement)
        if version == 0:
            rows.execute("INSERT INTO hubermean_schema (version) VALUES (:version)", version=SCHEMA)
        elif version < SCHEMA:
            rows.execute("UPDATE hubermean_schema SET version = :version", version=SCHEMA)
        if version == 1:
            rows.remember_all()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Rows]:
        with self._transaction("REPEATABLE READ") as rows:
            self._require_usable(rows.execute("SELECT version FROM hubermean_schema"))
            yield rows

    def _require_not_newer(self, version: int) -> None:
        if version > SCHEMA:
            raise InputError(f"{self.location} was made by a newer hubermean; upgrade to use it")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Rows]:
        with self._transaction("READ COMMITTED") as rows:
            # The holder of the head is the only writer; the next one sees what was committed.
            found = rows.execute(
                "SELECT version FROM hubermean_schema, hubermean_heads AS heads "
                f"WHERE heads.name = '{WHOLE}' FOR UPDATE OF heads"
            )
            if self._require_usable(found) < SCHEMA:
                self._migrate(rows)
            yield rows

    def _require_usable(self, found: Sequence[Sequence[Any]]) -> int:
        """Return the version of the tables, which is one row."""
        if len(found) != 1:
            raise LedgerDamaged(
                f"the ledger in {self.location} is damaged: it does not state the version of its schema"
            )
        version = int(found[0][0])
        self._require_not_newer(version)
        return version

    def faults(self) -> list[str]:
        with self.reading() as rows:
            found = rows.execute(
                "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'hubermean_entries'::regclass "
                "AND tgname = 'hubermean_append_only' AND tgenabled = 'O'"
            )
            others = rows.execute(
                "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgname <> 'hubermean_append_only' "
                "AND tgrelid IN (SELECT oid FROM pg_class WHERE relname = ANY(:tables))",
                tables=list(_TABLES),
            )
            plain = rows.execute(
                "SELECT count(*) FROM pg_class "
                "WHERE oid IN (SELECT CAST(to_regclass(name) AS oid) FROM unnest(CAST(:tables AS text[])) AS name) "
                "AND relkind = 'r' AND relpersistence = 'p' AND NOT relrowsecurity AND NOT EXISTS "
                "(SELECT FROM pg_rewrite WHERE ev_class = pg_class.oid)",
                tables=list(_TABLES),
            )
        faults = [] if found[0][0] else ["the trigger that prevents changes of entries is missing"]
        if others[0][0]:
            faults.append("its tables have a trigger that does not belong to the ledger")
        if plain[0][0] != len(_TABLES):
            faults.append("one of its tables is a view, is unlogged, or has additional rules or policies")
        return faults

    def close(self) -> None:
        self._engine.dispose(close=self._process == os.getpid())
        self._process = os.getpid()

    @contextlib.contextmanager
    def _transaction(self, isolation: str) -> Iterator[Rows]:
        from sqlalchemy import text
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        with self._lock:
            if self._process != os.getpid():  # connections opened before a fork belong to the parent
                self.close()
            try:
                with self._engine.connect().execution_options(isolation_level=isolation) as connection:

                    def execute(statement: str, **parameters: Any) -> Sequence[Sequence[Any]]:
                        result = connection.execute(text(statement), parameters)
                        return [tuple(row) for row in result] if result.returns_rows else []

                    with connection.begin():
                        execute(_FOR_THIS_TRANSACTION)
                        yield Rows(execute)
                return
            except DBAPIError as error:
                state = getattr(error.orig, "sqlstate", None) or ""
            except (SQLAlchemyError, OSError, UnicodeError):
                state = ""
            # Raised outside the handlers and `from None`: errors of the driver quote the URL and the statement.
            self.close()
        if state == _NO_TABLE:
            raise InputError(
                f"there is no ledger in {self.location}; create one with hubermean ledger init"
            ) from None
        if state == _NOT_ALLOWED:
            raise LedgerUnavailable(
                f"you lack a permission for the ledger in {self.location}; ask for SELECT, INSERT and UPDATE "
                "on its tables, or for the right to create them"
            ) from None
        if state == _NO_SUCH_CHARACTER:
            raise InputError(
                f"the database of the ledger in {self.location} cannot store a character of this name; choose another "
                "name, or a database with the encoding UTF8"
            ) from None
        if state[:2] in _DAMAGED:
            raise LedgerDamaged(
                f"the ledger in {self.location} is damaged; restore a backup, and release nothing against it"
            ) from None
        raise LedgerUnavailable(
            f"the ledger in {self.location} cannot be reached; check the server, the address and the password"
        ) from None


def _read_version(rows: Rows) -> int:
    if rows.execute("SELECT to_regclass('hubermean_schema')")[0][0] is None:
        return 0
    found = rows.execute("SELECT version FROM hubermean_schema")
    return int(found[0][0]) if found else 0
