"""What the page keeps between two starts: its secret, which table is charged to which data set, and the releases asked.

No value is kept here but one that a ledger could not record. Everything else is read from the ledger when it is shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hubermean.app.draft import Draft
from hubermean.errors import InputError, parameter
from hubermean.ledger.dataset import Dataset
from hubermean.ledger.entries import to_canonical_json

Status = Literal[
    "waiting", "running", "released", "not-released", "refused", "rejected", "failed", "interrupted"
]
"""The last six are outcomes: a release; a private refusal; too little budget; bad input; an error; a stopped server."""

_VERSION = 2
_TABLES = (
    "CREATE TABLE secret (value BLOB NOT NULL)",
    "CREATE TABLE ledger (first TEXT NOT NULL)",
    "CREATE TABLE assignments (table_id TEXT PRIMARY KEY, dataset TEXT NOT NULL, content TEXT NOT NULL)",
    "CREATE TABLE runs (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL)",
)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Which data set a table is charged to, and how the table is read; decided by a steward.

    Attributes:
        header: whether the first line of a CSV file may be shown as the names of its columns.
        text: how numbers and records of a text file are written.
    """

    table: str
    dataset: str
    header: bool = False
    text: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A release that somebody asked for, once.

    Attributes:
        id: the one-use token that it was asked with.
        draft: what was asked for.
        table, dataset, neighbors, text: what it is made from and charged to.
        composition: how the costs of the data set add up.
        by_whom: who asked.
        at: when, by the clock of this machine.
        status: how far it is.
        before: the number of the last entry of the ledger before it began.
        message: why there is no release.
        entry, digest: the entry of the ledger that holds the outcome.
        charged, left: what the ledger says about its cost.
        record: the release itself, only where the ledger could not record it.
    """

    id: str
    draft: Draft
    table: str
    dataset: str
    neighbors: str
    text: Mapping[str, Any]
    composition: str
    by_whom: str
    at: str
    status: Status = "waiting"
    before: int = 0
    message: str = ""
    entry: int | None = None
    digest: str = ""
    charged: str = ""
    left: str = ""
    record: Mapping[str, Any] | None = None

    @property
    def terms(self) -> str:
        """What somebody saw who asked for this, as text: a steward may change it until the release begins."""
        return to_canonical_json(
            [self.draft.to_dict(), self.dataset, self.neighbors, self.composition, dict(self.text)]
        )

    @property
    def is_over(self) -> bool:
        return self.status not in ("waiting", "running")

    def to_text(self) -> str:
        content = {one.name: getattr(self, one.name) for one in fields(self)} | {
            "draft": self.draft.to_dict()
        }
        return json.dumps(content)

    @classmethod
    def restore(cls, text: str) -> Run:
        content = json.loads(text)
        return cls(**content | {"draft": Draft.restore(content["draft"])})


def make_run(
    draft: Draft, assignment: Assignment, dataset: Dataset, *, by_whom: str, run_id: str = ""
) -> Run:
    """Return the run of a draft on the terms that hold now."""
    return Run(
        id=run_id,
        draft=replace(draft, user=dataset.users or ()),
        table=draft.table,
        dataset=dataset.name,
        neighbors=dataset.neighbors.value,
        text=assignment.text,
        composition=dataset.composition.name,
        by_whom=by_whom,
        at=now(),
    )


class State:
    """One file, which one process uses at a time.

    Raises:
        InputError: another process uses it, or it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.RLock()
        self.path = folder / "app.sqlite"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(self.path, 0o600)
            self._connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=1
            )
            # Held until this process ends, however it ends.
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN EXCLUSIVE")
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _TABLES:
                    self._connection.execute(statement)
                self._connection.execute("INSERT INTO secret VALUES (?)", (os.urandom(32),))
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
            self._connection.execute("COMMIT")
            self.secret = bytes(self._connection.execute("SELECT value FROM secret").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise InputError(
                    f"another hubermean app uses {folder}; end it, or name another folder"
                ) from None
            raise InputError(f"{self.path} cannot be used; check its permissions and the disk") from None
        except (OSError, sqlite3.Error, TypeError):
            raise InputError(f"{self.path} cannot be used; name another folder") from None
        if version not in (0, _VERSION) or len(self.secret) != 32:
            raise InputError(f"{self.path} was made by another version of hubermean; name another folder")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def bind(self, first: str | None) -> None:
        """Keep which ledger this folder belongs to; entry numbers mean nothing in another one.

        Args:
            first: the digest of the first entry of the ledger; None if it has none.

        Raises:
            InputError: it is another ledger.
        """
        with self._writing() as connection:
            row = connection.execute("SELECT first FROM ledger").fetchone()
            if row is None and first is not None:
                connection.execute("INSERT INTO ledger VALUES (?)", (first,))
            elif row is not None and row[0] != first:
                raise InputError(
                    f"{self.path.parent} belongs to another ledger; start with that one, or name another folder with "
                    f"{parameter('state')}"
                )

    # --- tables -------------------------------------------------------------------------------------------------------

    def assignments(self) -> dict[str, Assignment]:
        """Return the assignments of all tables that have one, by table."""
        with self._lock:
            rows = self._connection.execute("SELECT table_id, dataset, content FROM assignments").fetchall()
        return {row[0]: Assignment(table=row[0], dataset=row[1], **json.loads(row[2])) for row in rows}

    def assign(self, assignment: Assignment) -> None:
        """Keep an assignment, in place of an earlier one of the same table."""
        content = json.dumps({"header": assignment.header, "text": dict(assignment.text)})
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO assignments VALUES (?, ?, ?) ON CONFLICT (table_id) DO UPDATE SET "
                "dataset = excluded.dataset, content = excluded.content",
                (assignment.table, assignment.dataset, content),
            )

    # --- releases -----------------------------------------------------------------------------------------------------

    def add(self, run: Run) -> bool:
        """Keep a new run; False where its token was used before, and nothing changes."""
        with self._writing() as connection:
            added = connection.execute(
                "INSERT INTO runs (id, content) VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
                (run.id, run.to_text()),
            )
            return added.rowcount == 1

    def update(self, run: Run) -> None:
        """Keep the new state of a run."""
        with self._writing() as connection:
            connection.execute("UPDATE runs SET content = ? WHERE id = ?", (run.to_text(), run.id))

    def run(self, run_id: str) -> Run | None:
        """Return a run, if there is one of that id."""
        with self._lock:
            row = self._connection.execute("SELECT content FROM runs WHERE id = ?", (run_id,)).fetchone()
        return None if row is None else Run.restore(row[0])

    def runs(self, most: int = 200) -> list[Run]:
        """Return the latest runs, the latest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT content FROM runs ORDER BY number DESC LIMIT ?", (most,)
            ).fetchall()
        return [Run.restore(row[0]) for row in rows]

    def unfinished(self) -> list[Run]:
        """Return the runs that are not over, in the order in which they were asked."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT content FROM runs WHERE json_extract(content, '$.status') IN ('waiting', 'running') "
                "ORDER BY number"
            ).fetchall()
        return [Run.restore(row[0]) for row in rows]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def now() -> str:
    """Return the time by the clock of this machine."""
    return datetime.now(UTC).isoformat(timespec="seconds")
