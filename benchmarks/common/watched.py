"""A command run to its end, or to the end of its time or memory, with the most that it and all it started held.

Memory is resident memory, of all processes together, looked at in /proc every few hundredths of a second. The most that
a single process held, which the kernel keeps, is the least that is reported. (What it tells of a process that has ended
is no use: that counts the process which started it.)
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.03
_FAMILY_SECONDS = 0.3  # finding all processes takes longer than reading what they hold
_PROC = Path("/proc")
_HELD = re.compile(r"^VmHWM:\s*(\d+) kB$.*?^VmRSS:\s*(\d+) kB$", re.MULTILINE | re.DOTALL)
_TAIL = 2_000


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What a command said, took and held.

    Attributes:
        stopped: "time" or "memory" where it was stopped for using too much of it, else None.
        complaints: the end of its standard error.
    """

    output: str
    complaints: str
    seconds: float
    peak_bytes: int
    stopped: str | None
    exit_code: int

    @property
    def done(self) -> bool:
        return self.exit_code == 0


def watch(
    command: Sequence[str],
    *,
    most_seconds: float,
    most_bytes: float,
    environment: Mapping[str, str] | None = None,
) -> Watched:
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=complaints,
            env=_with_benchmarks(environment or os.environ),
            start_new_session=True,
        )
        peak, stopped = 0, None
        family = [process.pid]
        counted = started
        while process.poll() is None:
            time.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            if now - counted > _FAMILY_SECONDS:
                family, counted = list(_family(process.pid)), now
            held = [_held(pid) for pid in family]
            peak = max(peak, sum(present for _, present in held), *(most for most, _ in held))
            if stopped is None and (now - started > most_seconds or peak > most_bytes):
                stopped = "memory" if peak > most_bytes else "time"
                _kill(_family(process.pid))
        output.seek(0)
        complaints.seek(0)
        return Watched(
            output=output.read(),
            complaints=complaints.read()[-_TAIL:],
            seconds=time.monotonic() - started,
            peak_bytes=peak,
            stopped=stopped,
            exit_code=process.returncode,
        )


def _family(pid: int) -> Iterator[int]:
    """The process and all that descend from it."""
    yield pid
    parents: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        try:
            # The name of a process, in brackets, may hold anything; what follows it is fields.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        yield from children
        waiting += children


def _held(pid: int) -> tuple[int, int]:
    """(the most so far, now), in bytes; zeros for one that has ended."""
    try:
        found = _HELD.search((_PROC / str(pid) / "status").read_text())
    except OSError:
        return 0, 0
    return (int(found[1]) * 1024, int(found[2]) * 1024) if found else (0, 0)


def _kill(family: Iterator[int]) -> None:
    for pid in list(family):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _with_benchmarks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with these benchmarks on the path, so that a script run by name can import them."""
    path = [str(Path(__file__).parent.parent), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}
