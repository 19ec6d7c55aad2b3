"""A ledger in one SQLite file: a write-ahead log, one writer at a time, every commit synchronised to disk."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hubermean.errors import InputError, LedgerDamaged, LedgerUnavailable
from hubermean.ledger.entries import GENESIS, LARGEST_BODY
from hubermean.ledger.store import SCHEMA, WHOLE, OldRows, Rows

APPLICATION = 0x48624D6E
"""The application id in the header of the file, which marks it as a ledger."""

WAIT_SECONDS = 120
"""How long a writer waits for other writers."""

_VERSIONS: dict[int, dict[str, str]] = {
    1: {
        "hubermean_entries": "CREATE TABLE hubermean_entries (number INTEGER PRIMARY KEY, dataset TEXT NOT NULL, "
        "kind TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL)",
        "hubermean_heads": "CREATE TABLE hubermean_heads (name TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL, "
        "digest TEXT NOT NULL) WITHOUT ROWID",
    },
    2: {
        "hubermean_answers": "CREATE TABLE hubermean_answers (question TEXT PRIMARY KEY NOT NULL, "
        "number INTEGER NOT NULL) WITHOUT ROWID",
        "hubermean_no_update": "CREATE TRIGGER hubermean_no_update BEFORE UPDATE ON hubermean_entries "
        "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END",
        "hubermean_no_delete": "CREATE TRIGGER hubermean_no_delete BEFORE DELETE ON hubermean_entries "
        "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END",
    },
    3: {},
}
"""What each version of the schema added, by name."""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR}
_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_READONLY: "it is read-only; ask for permission to write to the file and its folder",
    sqlite3.SQLITE_PERM: "it is read-only; ask for permission to write to the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the permissions of the file and its folder",
    sqlite3.SQLITE_BUSY: f"other processes kept it locked for {WAIT_SECONDS} seconds; try again later",
    sqlite3.SQLITE_NOMEM: "there is not enough memory, or the file is damaged",
    sqlite3.SQLITE_LOCKED: "other processes have locked it; try again later",
}


class SqliteStore:
    """One file. Each process keeps one connection open.

    The path decides: a file that was moved, removed or replaced is no longer written to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # also after the process changes its folder
        self._given = os.fspath(path)
        self._file: tuple[int, int] | None = None
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._writable = False
        self._process = 0

    @property
    def location(self) -> str:
        return self._given

    def create(self) -> None:
        with self._lock, self._translate_errors():
            self.close()
            if not self.path.parent.is_dir():
                raise InputError(
                    f"the folder {os.path.dirname(self._given)} of ledger {self.path.name} does not exist; create it"
                )
            if self.path.exists() and not self.path.is_file():
                raise InputError(f"{self.location} is not a file; give a file name for the ledger")
            connection = self._connect("rwc")
            try:
                self._require_ledger(connection)  # before anything is written to it
                _run_as_writer(connection, self._migrate)
            finally:
                connection.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Rows]:
        with self._lock, self._translate_errors():
            connection = self._open(write=False)
            connection.execute("BEGIN")
            try:
                kind = OldRows if _read_version(connection) < 2 else Rows
                yield kind(_make_execute(connection))
            finally:
                _roll_back(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Rows]:
        with self._lock, self._translate_errors():
            connection = self._open(write=True)
            self._require_one_name()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Rows(_make_execute(connection))
                connection.execute("COMMIT")
            finally:
                _roll_back(connection)
            if self._file != _identify_file(self.path):  # the commit went to a file that nobody will read
                self.close()
                raise LedgerUnavailable(
                    f"the ledger {self.location} was moved or replaced during a write; put it back, "
                    "and try again"
                )

    def faults(self) -> list[str]:
        with self._lock, self._translate_errors():
            connection = self._open(write=False)
            found = connection.execute("PRAGMA integrity_check(10)").fetchall()
        return [f"the file is damaged: {str(row[0])[:200]}" for row in found if row[0] != "ok"]

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
            self._connection = None

    def _open(self, *, write: bool) -> sqlite3.Connection:
        # Neither use nor close a connection from before a fork; reopen a file that was replaced.
        mine = self._process == os.getpid() and self._file == _identify_file(self.path)
        if self._connection is not None and mine and (self._writable or not write):
            return self._connection
        self.close()
        if not self.path.is_file():
            raise InputError(f"there is no ledger {self.location}; create one with hubermean ledger init")
        writable = all(os.access(path, os.W_OK) for path in (self.path, self.path.parent))
        # Before opening: if the file is replaced in between, it is opened again.
        self._file = _identify_file(self.path)
        connection = self._connect("rw" if writable or write else self._mode_for_readers())
        try:
            version = _read_version(connection)
            if version == 0:
                raise LedgerDamaged(f"{self.location} is not a ledger, or is damaged")
            self._require_not_newer(version)
            if (writable or write) and version < SCHEMA:
                _run_as_writer(connection, self._migrate)
            _require_known_schema(connection, self.location)
        except BaseException:
            connection.close()
            raise
        self._connection, self._writable, self._process = connection, writable or write, os.getpid()
        return connection

    def _require_one_name(self) -> None:
        """Refuse a second name: the write-ahead log belongs to one name, and writers by another one would miss it."""
        if os.stat(self.path).st_nlink > 1:
            raise LedgerUnavailable(
                f"the ledger {self.location} has a second name (a hard link), so charges could be missed; "
                "remove that name, or replace it by a copy"
            )

    def _mode_for_readers(self) -> str:
        # Reading a log needs a writable folder; without a log, the file is complete.
        log = self.path.with_name(self.path.name + "-wal")
        return "ro" if log.exists() else "ro&immutable=1"

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=WAIT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        # Invalid text is decoded anyway, so that the damaged entry can be named.
        connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * LARGEST_BODY)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        try:
            # A file from elsewhere must not run functions from its schema.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_ledger(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is neither empty nor a ledger."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if (_read_schema(connection) and application != APPLICATION) or application not in (0, APPLICATION):
            raise InputError(f"{self.location} is a database, but not a ledger; choose another file name")
        self._require_not_newer(_read_version(connection))

    def _require_not_newer(self, version: int) -> None:
        if version > SCHEMA:
            raise InputError(f"{self.location} was made by a newer hubermean; upgrade to use it")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring an empty file or any older version to this one, within the current transaction."""
        self._require_ledger(connection)
        version = _read_version(connection)
        for number in range(version + 1, SCHEMA + 1):
            for statement in _VERSIONS[number].values():
                connection.execute(statement)
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(
                "INSERT INTO hubermean_heads (name, number, digest) VALUES (?, 0, ?)", (WHOLE, GENESIS)
            )
        elif version == 1:
            Rows(_make_execute(connection)).remember_all()
        connection.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of the engine; `from None`, so that a traceback does not show the original."""
        try:
            yield
            return
        except (sqlite3.Error, OSError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            primary = None if code is None else code & 0xFF
        except MemoryError:
            primary = sqlite3.SQLITE_NOMEM
        except (UnicodeError, OverflowError):  # invalid names of tables, or numbers
            primary = sqlite3.SQLITE_CORRUPT
        self.close()
        if primary in _DAMAGED:
            raise LedgerDamaged(
                f"{self.location} is damaged, or not a ledger; restore a backup, and release nothing against it"
            ) from None
        reason = _REASONS.get(primary or -1, "the disk cannot be read or written; check it")
        raise LedgerUnavailable(f"the ledger {self.location} cannot be used: {reason}") from None


def _run_as_writer(connection: sqlite3.Connection, work: Any) -> None:
    """Do some work as the only writer, in a file that has a write-ahead log."""
    for attempt in range(WAIT_SECONDS * 20):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as busy:  # a change of the journal mode does not wait
            if busy.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt + 1 == WAIT_SECONDS * 20:
                raise
            time.sleep(0.05)
    connection.execute("BEGIN IMMEDIATE")
    try:
        work(connection)
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)


def _identify_file(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a path; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_execute(connection: sqlite3.Connection) -> Any:
    def execute(statement: str, **parameters: Any) -> Sequence[Sequence[Any]]:
        return connection.execute(statement, parameters).fetchall()

    return execute


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _read_version(connection: sqlite3.Connection) -> int:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    return max(int(version), 0) if application == APPLICATION else 0


def _read_schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return [(str(name), str(statement)) for name, statement in found]


def _require_known_schema(connection: sqlite3.Connection, location: str) -> None:
    """Refuse a foreign table, view or trigger, which could change what is written."""
    version = _read_version(connection)
    known = {name: made for number in range(1, version + 1) for name, made in _VERSIONS[number].items()}
    if sorted(_read_schema(connection)) != sorted(known.items()):  # a trigger may have the name of a table
        raise LedgerDamaged(f"{location} is damaged: its tables are not those of a ledger; restore a backup")
