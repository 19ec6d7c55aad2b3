"""Choices made from bytes, so that a fuzzer that changes bytes changes choices."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Reads bytes front to back; once they have run out, every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def ended(self) -> bool:
        return self._place >= len(self._data)

    def take(self, count: int) -> bytes:
        """The next bytes, filled up with zeros."""
        taken = self._data[self._place : self._place + count]
        self._place += count
        return taken.ljust(count, b"\0")

    def rest(self) -> bytes:
        taken = self._data[self._place :]
        self._place = len(self._data)
        return taken

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1."""
        size = max((limit - 1).bit_length() + 7, 8) // 8
        return int.from_bytes(self.take(size), "little") % limit

    def flag(self) -> bool:
        return self.below(2) == 1

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def signed(self, bits: int) -> int:
        return int.from_bytes(self.take(bits // 8), "little", signed=True)

    def real(self) -> float:
        """Any float, but mostly one that people would write."""
        match self.below(4):
            case 0:
                return float(self.signed(8))
            case 1:
                return self.signed(32) / 1000.0
            case 2:
                return self.pick(_ODD)
            case _:
                return float(struct.unpack("<d", self.take(8))[0])

    def chunk(self, most: int = 255) -> bytes:
        """Some of the next bytes; a first one says how many."""
        return self.take(min(self.below(256), most, len(self._data)))

    def text(self, most: int = 40) -> str:
        """Any text, lone surrogates included."""
        return self.chunk(most).decode("utf-8", errors="surrogateescape")


_ODD = (
    *(0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7976931348623157e308),
    *(8e12, -8e12, 8.000000000000001e12, 2.0**-60, 2.0**-61, 3 * 2.0**-61, 2.0**63, -(2.0**63), 2.0**53 + 2),
    *(0.1, 1e-300, 1e15, 9007199254740993.0, 1e22, 0.5, 1.5),
)
