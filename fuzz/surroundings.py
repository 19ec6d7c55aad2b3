"""A folder of its own for every execution, with files beside the named ones that nobody may open.

Python's own opens are seen by an audit hook. An engine's are not; the system is asked (inotify) whether a canary was
opened by anybody, and what comes back is searched for what the canaries hold.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.violation import Violation, require

SECRET = "canary-5d1f"
SECRET_NUMBER = 77345112
"""What every canary holds."""
VARIABLE = "HUBERMEAN_CANARY"
CANARIES = ("canary.csv", "canary.parquet", "canary.jsonl", "canary.txt", "nested/canary.csv")

_IN_ACCESS, _IN_OPEN, _IN_NONBLOCK = 0x1, 0x20, 0x800
_OUTSIDE = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "socket.connect",
    "socket.getaddrinfo",
}
# Of the installation itself, imports and time zones; an odd time zone is looked for among the system's.
_INSTALLED = tuple(
    {
        *(os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())),
        str(Path(__file__).resolve().parent.parent),
        "/usr/share/zoneinfo",
        "/dev/null",
        "/dev/urandom",
        "/proc",  # how many processors and how much memory there are
        "/sys",
    }
)


class Surroundings:
    """A working folder; `opened` lists what Python opened outside of it while `watching`."""

    def __init__(self) -> None:
        self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="hubermean-fuzz-")))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.watching = False
        self.opened: list[str] = []
        self._plant()
        self._alarm = _alarm([self.folder / name for name in CANARIES])
        sys.addaudithook(self._seen)

    def _plant(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (self.folder / "nested").mkdir()
        for name in CANARIES:
            path = self.folder / name
            match path.suffix:
                case ".parquet":
                    pq.write_table(pa.table({"u": [SECRET], "v": [SECRET_NUMBER]}), path)
                case ".jsonl":
                    path.write_text(f'{{"u": "{SECRET}", "v": {SECRET_NUMBER}}}\n')
                case _:
                    path.write_text(f"u,v\n{SECRET},{SECRET_NUMBER}\n")
        os.environ[VARIABLE] = SECRET

    def _seen(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event in _OUTSIDE:
            self.opened.append(event)
        elif event == "open" and isinstance(given[0], str | bytes):
            path = os.path.abspath(os.fsdecode(given[0]))
            inside = path.startswith((str(self.folder) + os.sep, tempfile.gettempdir() + "/hubermean-"))
            if inside and os.path.relpath(path, self.folder) not in CANARIES:
                return
            if not path.startswith(_INSTALLED):
                self.opened.append(path)

    def canary_was_opened(self) -> bool:
        if self._alarm is None:
            return False
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._alarm, 65536))
        return False

    def clear(self) -> None:
        """Remove all but the canaries."""
        for path in (*self.folder.iterdir(), *(self.folder / "nested").iterdir()):
            if str(path.relative_to(self.folder)) in (*CANARIES, "nested"):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _alarm(paths: list[Path]) -> int | None:
    """A descriptor that can be read once one of the files was opened; None where the system offers none."""
    if not sys.platform.startswith("linux"):
        return None
    system = ctypes.CDLL(None, use_errno=True)
    alarm: int = system.inotify_init1(_IN_NONBLOCK)
    for path in paths:
        if system.inotify_add_watch(alarm, os.fsencode(path), _IN_OPEN | _IN_ACCESS) < 0:
            raise OSError(ctypes.get_errno(), "a canary cannot be watched")
    return alarm


_made: dict[int, Surroundings] = {}  # one a process; audit hooks cannot be taken back


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """The working folder, empty but for the canaries; raises where something was opened that nobody named."""
    if os.getpid() not in _made:
        _made[os.getpid()] = Surroundings()
    here = _made[os.getpid()]
    before = os.getcwd()
    os.chdir(here.folder)
    here.opened.clear()
    here.canary_was_opened()
    here.watching = True
    try:
        yield here.folder
    finally:
        here.watching = False
        os.chdir(before)
        here.clear()
    require(not here.canary_was_opened(), "no file is opened that was not named: a canary was")
    if here.opened:
        raise Violation(f"no file is opened that was not named: {here.opened[0]}")


def holds_secret(shown: object) -> bool:
    """Whether what came back holds what only a canary does."""
    text = shown if isinstance(shown, str) else repr(shown)
    return SECRET in text or str(SECRET_NUMBER) in text
