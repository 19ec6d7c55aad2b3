"""The file of a report: checked before any budget is spent, and written atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hubermean.errors import InputError

PAGES = (".html", ".htm")


@dataclass(frozen=True)
class Destination:
    """A file that was checked to be writable."""

    path: Path

    @classmethod
    def checked(cls, path: str | Path, *, endings: Sequence[str] = PAGES) -> Destination:
        """Return the destination; InputError if the file cannot be written or has another ending. Leaves no file."""
        path = Path(path)
        if not path.name or path.is_dir():
            raise InputError(
                f"{path} is a folder; give a file name for the report, such as {path / 'report.html'}"
            )
        if path.suffix.lower() not in endings:  # so that a typing error does not overwrite data
            raise InputError(
                f"the file name of a report must end in .html, not {path.name!r}"
                if endings == PAGES
                else f"the file name must end in {' or '.join(endings)}, not {path.name!r}"
            )
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent} for the report does not exist; create it first")
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"you may not write to {path}; choose another file for the report")
        try:
            # Create a file now, as later: permission bits do not show full or read-only disks.
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError:
            raise InputError(
                f"no file can be created in {path.parent}; choose another folder for the report"
            ) from None
        return cls(path)

    def write(self, text: str) -> None:
        """Write the whole file atomically; if that fails (OSError), an earlier file stays unchanged."""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".part")
        try:
            with open(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _umask() -> int:
    """Return the umask, to give the file its usual permissions; temporary files have fewer."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
