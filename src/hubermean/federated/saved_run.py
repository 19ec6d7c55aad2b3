"""What a run has released so far, in memory or in a file that survives a crash.

A round is over when its answer is committed, before anybody sees it. A process that dies earlier has released nothing
of the round; one that dies later leaves the answer in the file, and it is returned again. Round numbers are unique in
the file, so that of two processes that compute the same round only one gets an answer to return. An older copy of the
file knows nothing of the rounds after it and would answer them again: only a ledger can tell.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError, parameter
from hubermean.federated.server_step import ServerStep

_APPLICATION = 0x48624672
"""The application id in the header of the file, which marks it as a run."""
_CHUNK_BYTES = 2**24
_WAIT_SECONDS = 120.0
_SCHEMA = (
    "CREATE TABLE run (id TEXT NOT NULL, plan TEXT NOT NULL, shape TEXT, secure INTEGER NOT NULL)",
    "CREATE TABLE rounds (number INTEGER PRIMARY KEY NOT NULL, threshold TEXT NOT NULL, token TEXT NOT NULL, "
    "step TEXT NOT NULL)",
    "CREATE TABLE answer (part INTEGER PRIMARY KEY NOT NULL, numbers BLOB NOT NULL)",
)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands; all of it is released or public.

    Attributes:
        run_id: random name of the run, by which a ledger knows it.
        plan: the parameters as text.
        shape: the shape of updates as text; None before the first round.
        rounds: number of finished rounds.
        token: random name of the last finished round, by which the process that computed it knows its answer.
        threshold: of the next round; None before the first.
        answer: the last average or move, as a row; None before the first.
        step: the adaptive step of the next round; None before the first, or where the step is a number.
        secure: whether the noise of all rounds was real.
    """

    run_id: str
    plan: str
    shape: str | None = None
    rounds: int = 0
    token: str | None = None
    threshold: float | None = None
    answer: FloatArray | None = None
    step: ServerStep | None = None
    secure: bool = True


class RunStore(Protocol):
    """Where the progress of a run is kept."""

    @property
    def lasts(self) -> bool: ...

    def load(self) -> Progress | None: ...

    def begin(self, progress: Progress) -> None: ...

    def finish_round(self, finished: Progress) -> None: ...


class MemoryStore:
    """Keeps nothing beyond the process."""

    lasts = False

    def load(self) -> Progress | None:
        return None

    def begin(self, progress: Progress) -> None:
        pass

    def finish_round(self, finished: Progress) -> None:
        pass


class FileStore:
    """One SQLite file per run; every commit is synchronised to disk."""

    lasts = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        if not self.path.parent.is_dir():
            raise InputError(
                f"the folder of {parameter('state_file')} {self.path.name} does not exist; create it"
            )

    def load(self) -> Progress | None:
        if not self.path.exists():
            return None
        with self._open() as file, _transaction(file, "BEGIN"):  # all of one moment
            if file.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
                empty = file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
                raise InputError(
                    f"{self.path.name} is {'empty' if empty else 'no saved run'}; choose another "
                    f"{parameter('state_file')}, or delete this one if no run ever used it"
                )
            run_id, plan, shape, secure = file.execute("SELECT id, plan, shape, secure FROM run").fetchone()
            last = file.execute(
                "SELECT number, threshold, token, step FROM rounds ORDER BY number DESC LIMIT 1"
            ).fetchone()
            (number,) = file.execute("SELECT count(*) FROM rounds").fetchone()
            parts = file.execute("SELECT numbers FROM answer ORDER BY part").fetchall()
            begun = Progress(run_id=run_id, plan=plan, shape=shape, secure=bool(secure))
            if last is None:
                return begun
            threshold = float.fromhex(last[1])
            answer = np.frombuffer(b"".join(part for (part,) in parts), dtype="<f8").astype(np.float64)
            if number != last[0] or not (0.0 < threshold < math.inf) or not np.isfinite(answer).all():
                raise ValueError("damaged")
            step = ServerStep.from_text(last[3]) if last[3] else None
            return replace(begun, rounds=number, threshold=threshold, token=last[2], answer=answer, step=step)

    def begin(self, progress: Progress) -> None:
        """Write the file, complete or not at all: an empty one is then damaged, and never taken for a new run."""
        new = self.path.with_name(f".{self.path.name}.{progress.run_id}.new")
        try:
            with self._open(new, "rwc") as file, _transaction(file):
                for statement in _SCHEMA:
                    file.execute(statement)
                file.execute(
                    "INSERT INTO run VALUES (?, ?, ?, 1)", (progress.run_id, progress.plan, progress.shape)
                )
                file.execute(f"PRAGMA application_id = {_APPLICATION}")
            try:
                os.link(new, self.path)
            except FileExistsError:
                raise
            except OSError:  # no hard links here
                if self.path.exists():
                    raise FileExistsError from None
                os.rename(new, self.path)
            sync_folder(self.path.parent)
        except FileExistsError:
            raise InputError(
                f"another process began a run in {self.path.name} just now; start again"
            ) from None
        except OSError as error:
            raise InputError(
                f"the {parameter('state_file')} {self.path.name} cannot be written: {type(error).__name__}; check the "
                "disk and the permissions"
            ) from None
        finally:
            new.unlink(missing_ok=True)

    def finish_round(self, finished: Progress) -> None:
        if finished.answer is None or finished.threshold is None:
            raise AssertionError("a finished round has an answer")
        number = finished.rounds
        written = np.ascontiguousarray(finished.answer, dtype="<f8").tobytes()
        with self._open() as file, _transaction(file):
            (run_id,) = file.execute("SELECT id FROM run").fetchone()
            if run_id != finished.run_id:
                raise InputError(
                    f"{self.path.name} holds another run by now; the answer of round {number} was discarded"
                )
            done = file.execute("SELECT coalesce(max(number), 0) FROM rounds").fetchone()[0]
            if done != number - 1:
                raise InputError(
                    f"round {number} was answered by another process; this one's answer was discarded. Run one "
                    "process at a time, and resume from the file"
                )
            file.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?)",
                (
                    number,
                    finished.threshold.hex(),
                    finished.token,
                    finished.step.to_text() if finished.step else "",
                ),
            )
            file.execute("UPDATE run SET shape = ?, secure = ?", (finished.shape, finished.secure))
            file.execute("DELETE FROM answer")
            for part, start in enumerate(range(0, len(written), _CHUNK_BYTES)):
                file.execute(
                    "INSERT INTO answer VALUES (?, ?)", (part, written[start : start + _CHUNK_BYTES])
                )

    @contextlib.contextmanager
    def _open(self, path: Path | None = None, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        address = f"{(path or self.path).as_uri()}?mode={mode}"
        try:
            with contextlib.closing(
                sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
            ) as file:
                file.execute("PRAGMA synchronous = EXTRA")
                yield file
        except InputError:
            raise
        except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"the {parameter('state_file')} {self.path.name} cannot be read or written: {type(error).__name__}; "
                "check the disk and the permissions. Do not put back an older copy: it would answer rounds again"
            ) from None


@contextlib.contextmanager
def _transaction(file: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    file.execute(begin)
    try:
        yield
    except BaseException:
        file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")


def sync_folder(folder: Path) -> None:
    """Make new names in a folder last, where a folder can be opened."""
    with contextlib.suppress(OSError, AttributeError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
