"""The scratch folder of a release: private, and gone after it, at the latest when the next release begins.

The engine spills to disk what does not fit in memory: users and their values as they are. So the folder is nobody
else's to read, it is removed when the release ends in any way that Python sees, and what a killed process leaves is
swept by the next release. Whose a folder is follows from a lock, which the system takes back when its holder dies.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from types import ModuleType

from hubermean.errors import InputError

locks: ModuleType | None
try:
    import fcntl as locks
except ImportError:  # not a POSIX system
    locks = None

PREFIX = "hubermean-scratch-"
UNSWEPT_PREFIX = "hubermean-unswept-"
LOCK = "hubermean.lock"
_NAME = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")
_TRIES = 100


class _NoLocksError(Exception):
    """The file system takes no locks."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder of this release's own, in the system's place for temporary files.

    Formal guarantees:
    - nobody but the user may enter it;
    - while its process lives no other removes it; when the process is dead, the next release of the same user does;
    - nothing is removed but folders of this kind, told by name, owner, rights and lock; no symbolic link is followed;
    - where there are no locks, the folder is removed after the release, but none is swept.
    """
    parent = tempfile.gettempdir()
    sweep(parent)
    made = _make(parent)
    if made is None:
        with tempfile.TemporaryDirectory(prefix=UNSWEPT_PREFIX) as path:
            yield path
        return
    path, folder, lock = made
    try:
        yield path
    finally:
        _remove(path, folder)
        os.close(lock)
        os.close(folder)


def sweep(parent: str) -> None:
    """Remove what killed releases of this user left; what cannot be removed is left for another time."""
    if locks is None:
        return
    with contextlib.suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(parent)):
            with contextlib.suppress(OSError, _NoLocksError):
                _sweep_one(os.path.join(parent, name))


def _make(parent: str) -> tuple[str, int, int] | None:
    """A new folder, open, and the lock that holds it; None where there are no locks.

    A sweeper may find the folder before it is locked. Then it holds the lock, or has removed it or the folder: the lock
    taken here is in each case not the one in the folder, and another folder is made.
    """
    if locks is None:
        return None
    for _ in range(_TRIES):
        try:
            path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        except OSError:
            break
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            folder = _opened(opened, path, os.O_RDONLY | os.O_DIRECTORY)
            lock = _opened(opened, LOCK, os.O_RDWR | os.O_CREAT, within=folder)
            try:
                held = _holds(lock, folder)
            except _NoLocksError:
                _remove(path, folder)
                return None
            if held:
                opened.pop_all()
                return path, folder, lock
    raise InputError("no scratch folder can be made; let TMPDIR name a folder that can be written to")


def _sweep_one(path: str) -> None:
    """Remove a folder whose process is dead. OSError where it is no such folder."""
    with contextlib.ExitStack() as opened:
        folder = _opened(opened, path, os.O_RDONLY | os.O_DIRECTORY)
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return
        try:
            lock = _opened(opened, LOCK, os.O_RDWR, within=folder)
        except FileNotFoundError:
            os.rmdir(
                path
            )  # its process died before there was a lock, so it is empty; if not, it is none of ours
            return
        if _holds(lock, folder):
            _remove(path, folder)


def _opened(opened: contextlib.ExitStack, name: str, flags: int, *, within: int | None = None) -> int:
    """A file or folder, closed with the others; OSError where it is a symbolic link."""
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=within)
    opened.callback(os.close, descriptor)
    return descriptor


def _holds(lock: int, folder: int) -> bool:
    """Take the lock, if nobody has it, and see that it is still the one in the folder."""
    assert locks is not None
    try:
        locks.flock(lock, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        raise _NoLocksError from None
    try:
        return os.path.samestat(os.fstat(lock), os.stat(LOCK, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _remove(path: str, folder: int) -> None:
    """What is in the folder, then the lock, then the folder: wherever this ends early, what is left can be swept."""
    with contextlib.suppress(OSError):
        for name in set(os.listdir(folder)) - {LOCK}:
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)
        if os.listdir(folder) == [LOCK]:
            os.unlink(LOCK, dir_fd=folder)
            os.rmdir(path)
