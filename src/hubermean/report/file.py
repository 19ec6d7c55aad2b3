"""Where a page is written: refused before a budget is spent, and never half there."""

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
    """A file that can be written, as far as can be told beforehand."""

    path: Path

    @classmethod
    def checked(cls, path: str | Path, *, endings: Sequence[str] = PAGES) -> Destination:
        """InputError where the file could not be written, or is no page; nothing is left behind."""
        path = Path(path)
        if not path.name or path.is_dir():
            raise InputError(
                f"{path} is a folder; name the file of the report, such as {path / 'report.html'}"
            )
        if path.suffix.lower() not in endings:  # so that no slip of the pen overwrites data
            raise InputError(
                f"a report is a page: its file name must end in .html, not {path.name!r}"
                if endings == PAGES
                else f"the file name must end in {' or '.join(endings)}, not {path.name!r}"
            )
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} for the report; make it first")
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{path} may not be written to; name another file for the report")
        try:
            # What is asked of the folder later, asked now: permission bits do not tell about full or read-only disks.
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError:
            raise InputError(f"no file can be made in {path.parent}; name another for the report") from None
        return cls(path)

    def write(self, text: str) -> None:
        """All of it, under its name at once. OSError where that fails; the file is then as it was before."""
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
    """What the system takes from the permissions of a new file; temporary files have fewer."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
