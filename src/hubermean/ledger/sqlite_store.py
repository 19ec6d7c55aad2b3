"""A ledger in one SQLite file: a write-ahead log, one writer at a time, on disk before a charge counts."""

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
"""Marks the file as a ledger of ours, in its header."""

WAIT_SECONDS = 120
"""How long a writer waits for the others."""

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
}
"""What each version of the schema added, by name."""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR}
_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full; make room",
    sqlite3.SQLITE_READONLY: "it is read-only; ask for permission to write it and its folder",
    sqlite3.SQLITE_PERM: "it is read-only; ask for permission to write it and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the permissions of the file and its folder",
    sqlite3.SQLITE_BUSY: f"others wrote to it for {WAIT_SECONDS} seconds; try again later",
    sqlite3.SQLITE_NOMEM: "memory does not suffice for it, or it is damaged",
    sqlite3.SQLITE_LOCKED: "others write to it; try again later",
}


class SqliteStore:
    """One file. A connection is kept open for one process; another process opens its own.

    The file is what its name stands for now: one that was moved, removed or replaced is no longer written to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # the same file wherever the process goes
        self._given = os.fspath(path)
        self._file: tuple[int, int] | None = None
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._writable = False
        self._process = 0

    @property
    def place(self) -> str:
        return self._given

    def create(self) -> None:
        with self._lock, self._translated():
            self.close()
            if not self.path.parent.is_dir():
                raise InputError(
                    f"there is no folder {os.path.dirname(self._given)} for the ledger {self.path.name}; make it first"
                )
            if self.path.exists() and not self.path.is_file():
                raise InputError(f"{self.place} is no file; name a file for the ledger")
            connection = self._connect("rwc")
            try:
                self._require_ours(connection)  # before anything is written to it
                _enter(connection, self._migrate)
            finally:
                connection.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Rows]:
        with self._lock, self._translated():
            connection = self._opened(write=False)
            connection.execute("BEGIN")
            try:
                kind = OldRows if _version(connection) < 2 else Rows
                yield kind(_execute(connection))
            finally:
                _roll_back(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Rows]:
        with self._lock, self._translated():
            connection = self._opened(write=True)
            self._require_one_name()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Rows(_execute(connection))
                connection.execute("COMMIT")
            finally:
                _roll_back(connection)
            if self._file != _identity(self.path):  # it went to a file that nobody will read
                self.close()
                raise LedgerUnavailable(
                    f"the ledger {self.place} was moved or replaced while it was written; see that it is in place, "
                    "and try again"
                )

    def faults(self) -> list[str]:
        with self._lock, self._translated():
            connection = self._opened(write=False)
            found = connection.execute("PRAGMA integrity_check(10)").fetchall()
        return [f"the file is damaged: {str(row[0])[:200]}" for row in found if row[0] != "ok"]

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
            self._connection = None

    def _opened(self, *, write: bool) -> sqlite3.Connection:
        # What was opened before a fork must not be used, nor closed, after it; nor what the name no longer stands for.
        mine = self._process == os.getpid() and self._file == _identity(self.path)
        if self._connection is not None and mine and (self._writable or not write):
            return self._connection
        self.close()
        if not self.path.is_file():
            raise InputError(f"there is no ledger {self.place}; make one with hubermean ledger init")
        writable = all(os.access(place, os.W_OK) for place in (self.path, self.path.parent))
        self._file = _identity(
            self.path
        )  # before it is opened: if it is replaced between, it is opened again
        connection = self._connect("rw" if writable or write else self._mode_for_readers())
        try:
            version = _version(connection)
            if version == 0:
                raise LedgerDamaged(f"{self.place} is no ledger, or is damaged")
            self._require_not_newer(version)
            if (writable or write) and version < SCHEMA:
                _enter(connection, self._migrate)
            _require_known(connection, self.place)
        except BaseException:
            connection.close()
            raise
        self._connection, self._writable, self._process = connection, writable or write, os.getpid()
        return connection

    def _require_one_name(self) -> None:
        """The log beside a file goes by its name: writers by another name would not see it, nor be seen."""
        if os.stat(self.path).st_nlink > 1:
            raise LedgerUnavailable(
                f"the ledger {self.place} has a second name (a hard link), by which charges would be missed; "
                "remove that name, or put a copy in its place"
            )

    def _mode_for_readers(self) -> str:
        # A log beside the file needs a folder that can be written; without one, nothing is missing from the file.
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
        # What is no text any more is a damaged entry, to be named as such.
        connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * LARGEST_BODY)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        try:
            # A file from elsewhere must not run functions of its own.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_ours(self, connection: sqlite3.Connection) -> None:
        """An empty file, or a ledger."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if (_objects(connection) and application != APPLICATION) or application not in (0, APPLICATION):
            raise InputError(
                f"{self.place} holds something else than a ledger; name another file, or a new one"
            )
        self._require_not_newer(_version(connection))

    def _require_not_newer(self, version: int) -> None:
        if version > SCHEMA:
            raise InputError(f"{self.place} was made by a newer hubermean; upgrade to use it")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """From whatever version there is, none included, to this one, in the transaction that is under way."""
        self._require_ours(connection)
        version = _version(connection)
        for number in range(version + 1, SCHEMA + 1):
            for statement in _VERSIONS[number].values():
                connection.execute(statement)
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(
                "INSERT INTO hubermean_heads (name, number, digest) VALUES (?, 0, ?)", (WHOLE, GENESIS)
            )
        elif version == 1:
            Rows(_execute(connection)).remember_all()
        connection.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the engine as ours; raised outside its handler, so that nothing of it is carried along."""
        try:
            yield
            return
        except (sqlite3.Error, OSError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            primary = None if code is None else code & 0xFF
        except MemoryError:
            primary = sqlite3.SQLITE_NOMEM
        except (UnicodeError, OverflowError):  # names of tables, or numbers, that are none
            primary = sqlite3.SQLITE_CORRUPT
        self.close()
        if primary in _DAMAGED:
            raise LedgerDamaged(
                f"{self.place} is damaged, or is no ledger; go back to a copy, and release nothing against it"
            )
        reason = _REASONS.get(primary or -1, "the disk does not answer as it should; check it")
        raise LedgerUnavailable(f"the ledger {self.place} cannot be used: {reason}")


def _enter(connection: sqlite3.Connection, work: Any) -> None:
    """Do some work as the only writer, in a file that has a write-ahead log."""
    for attempt in range(WAIT_SECONDS * 20):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as busy:  # changing the journal does not wait by itself
            if busy.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt + 1 == WAIT_SECONDS * 20:
                raise
            time.sleep(0.05)
    connection.execute("BEGIN IMMEDIATE")
    try:
        work(connection)
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a name stands for; None if for none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _execute(connection: sqlite3.Connection) -> Any:
    def execute(statement: str, **parameters: Any) -> Sequence[Sequence[Any]]:
        return connection.execute(statement, parameters).fetchall()

    return execute


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _version(connection: sqlite3.Connection) -> int:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    return max(int(version), 0) if application == APPLICATION else 0


def _objects(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return [(str(name), str(statement)) for name, statement in found]


def _require_known(connection: sqlite3.Connection, place: str) -> None:
    """A table, view or trigger that is not ours could change what is written."""
    version = _version(connection)
    known = {name: made for number in range(1, version + 1) for name, made in _VERSIONS[number].items()}
    if sorted(_objects(connection)) != sorted(known.items()):  # a trigger may bear the name of a table
        raise LedgerDamaged(f"{place} is damaged: its tables are not those of a ledger; go back to a copy")
