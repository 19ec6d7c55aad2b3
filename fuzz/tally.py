"""A count of executions that outlives the process that counts."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from types import TracebackType
from typing import Self


class Tally:
    """One number in a file that two processes share."""

    def __init__(self, folder: Path) -> None:
        path = self.path(folder)
        if not path.exists():
            path.write_bytes(bytes(8))
        self._file = path.open("r+b")
        self._memory = mmap.mmap(self._file.fileno(), 8)

    @staticmethod
    def path(folder: Path) -> Path:
        return folder / "executions"

    @property
    def count(self) -> int:
        return int(struct.unpack("<q", self._memory[:8])[0])

    def add(self) -> None:
        self._memory[:8] = struct.pack("<q", self.count + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.close()
        self._file.close()
