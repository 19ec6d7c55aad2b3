"""What a run has released so far, in memory or in a file that survives a crash.

A round is over when its answer is committed, before anybody sees it. A process that dies earlier has released nothing
of the round; one that dies later leaves the answer in the file, and it is returned again. Round numbers are unique in
the file, so that of two processes that compute the same round only one gets an answer to return.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError, parameter

_APPLICATION = 0x48624672
"""The application id in the header of the file, which marks it as a run."""
_CHUNK_BYTES = 2**24
_WAIT_SECONDS = 120.0
_SCHEMA = (
    "CREATE TABLE run (id TEXT NOT NULL, plan TEXT NOT NULL, shape TEXT, charged INTEGER NOT NULL)",
    "CREATE TABLE rounds (number INTEGER PRIMARY KEY NOT NULL, threshold TEXT NOT NULL)",
    "CREATE TABLE answer (part INTEGER PRIMARY KEY NOT NULL, numbers BLOB NOT NULL)",
)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands; all of it is released or public.

    Attributes:
        run_id: random name of the run, by which a ledger knows it.
        plan: the parameters as text.
        shape: the shape of updates as text; None before the first round.
        charged: whether the ledger was charged, where there is one.
        rounds: number of finished rounds.
        threshold: of the next round; None before the first.
        answer: the last average, as a row; None before the first.
    """

    run_id: str
    plan: str
    shape: str | None = None
    charged: bool = False
    rounds: int = 0
    threshold: float | None = None
    answer: FloatArray | None = None


class RunStore(Protocol):
    """Where the progress of a run is kept."""

    def load(self) -> Progress | None: ...

    def begin(self, progress: Progress) -> None: ...

    def note_charge(self) -> None: ...

    def finish_round(self, number: int, *, shape: str, threshold: float, answer: FloatArray) -> None: ...


class MemoryStore:
    """Keeps nothing beyond the process."""

    def load(self) -> Progress | None:
        return None

    def begin(self, progress: Progress) -> None:
        pass

    def note_charge(self) -> None:
        pass

    def finish_round(self, number: int, *, shape: str, threshold: float, answer: FloatArray) -> None:
        pass


class FileStore:
    """One SQLite file per run; every commit is synchronised to disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        if not self.path.parent.is_dir():
            raise InputError(
                f"the folder of {parameter('state_file')} {self.path.name} does not exist; create it"
            )

    def load(self) -> Progress | None:
        if not self.path.exists():
            return None
        with self._open() as file:
            if file.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
                if file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    raise InputError(
                        f"{self.path.name} is no saved run; choose another {parameter('state_file')}"
                    )
                return None  # the process died before anything was written
            run_id, plan, shape, charged = file.execute("SELECT id, plan, shape, charged FROM run").fetchone()
            last = file.execute(
                "SELECT number, threshold FROM rounds ORDER BY number DESC LIMIT 1"
            ).fetchone()
            parts = file.execute("SELECT numbers FROM answer ORDER BY part").fetchall()
        return Progress(
            run_id=run_id,
            plan=plan,
            shape=shape,
            charged=bool(charged),
            rounds=last[0] if last else 0,
            threshold=float.fromhex(last[1]) if last else None,
            answer=np.frombuffer(b"".join(part for (part,) in parts), dtype="<f8").astype(np.float64)
            if last
            else None,
        )

    def begin(self, progress: Progress) -> None:
        with self._open() as file, _transaction(file):
            if file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise InputError(f"another process began a run in {self.path.name} just now; start again")
            for statement in _SCHEMA:
                file.execute(statement)
            file.execute(
                "INSERT INTO run VALUES (?, ?, ?, 0)", (progress.run_id, progress.plan, progress.shape)
            )
            file.execute(f"PRAGMA application_id = {_APPLICATION}")

    def note_charge(self) -> None:
        with self._open() as file, _transaction(file):
            file.execute("UPDATE run SET charged = 1")

    def finish_round(self, number: int, *, shape: str, threshold: float, answer: FloatArray) -> None:
        written = np.ascontiguousarray(answer, dtype="<f8").tobytes()
        with self._open() as file, _transaction(file):
            finished = file.execute("SELECT coalesce(max(number), 0) FROM rounds").fetchone()[0]
            if finished != number - 1:
                raise InputError(
                    f"round {number} was answered by another process; this one's answer was discarded. Run one "
                    "process at a time, and resume from the file"
                )
            file.execute("INSERT INTO rounds VALUES (?, ?)", (number, threshold.hex()))
            file.execute("UPDATE run SET shape = ?", (shape,))
            file.execute("DELETE FROM answer")
            for part, start in enumerate(range(0, len(written), _CHUNK_BYTES)):
                file.execute(
                    "INSERT INTO answer VALUES (?, ?)", (part, written[start : start + _CHUNK_BYTES])
                )

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
            ) as file:
                file.execute("PRAGMA synchronous = EXTRA")
                yield file
        except InputError:
            raise
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise InputError(
                f"the {parameter('state_file')} {self.path.name} cannot be read or written: {type(error).__name__}; "
                "check the disk and the permissions, or restore the file"
            ) from None


@contextlib.contextmanager
def _transaction(file: sqlite3.Connection) -> Iterator[None]:
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")
