"""CSV files whose bytes are not UTF-8, in a form that the engine reads without losing a record or joining two keys.

The engine drops a record that is not UTF-8, and its other encodings refuse a whole file for one byte. So each byte that
is no UTF-8 is written as a letter of its own, from a range that nobody uses; where a file does use that range, its
letters are written so too, byte by byte. Different bytes stay different texts, equal ones equal, and text that is UTF-8
is left as it is: how a record is read does not depend on whether another one made the file need this.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO, cast

from hubermean.errors import InputError
from hubermean.ingest.files import FileSet
from hubermean.ingest.scratch import scratch_folder

_STAND_IN = 0x10FF00  # plus a byte from 0x80 on
_RESERVED = re.compile("[\U0010ff80-\U0010ffff]")
_TO_REPLACE = re.compile("[\udc80-\udcff\U0010ff80-\U0010ffff]")
_BLOCK = 1 << 22


@contextlib.contextmanager
def as_utf8(files: FileSet) -> Iterator[FileSet]:
    """The same files with copies in place of those that are not UTF-8, for as long as the context lasts."""
    needed = [path for path in files.paths if files.kind == "csv" and not _is_readable(path)]
    if not needed:
        yield files
        return
    with scratch_folder() as scratch:  # a copy of the data must not outlive a crash
        copies = {path: os.path.join(scratch, f"{number}.csv") for number, path in enumerate(needed)}
        for path, copy in copies.items():
            _write_readable(path, copy)
        yield replace(files, paths=tuple(copies.get(path, path) for path in files.paths))


def holds_stand_ins(text: str) -> bool:
    """Whether a text that was read stands for bytes that are no UTF-8."""
    return _RESERVED.search(text) is not None


def _is_readable(path: str) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = False
    try:
        for block in _blocks(path):
            if block.isascii() and not pending:  # nearly always, and much faster
                continue
            if holds_stand_ins(decoder.decode(block)):
                return False
            pending = bool(decoder.getstate()[0])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _write_readable(path: str, copy: str) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    with open(copy, "wb") as output:
        for block in _blocks(path):
            output.write(_TO_REPLACE.sub(_replaced, decoder.decode(block)).encode())
        output.write(_TO_REPLACE.sub(_replaced, decoder.decode(b"", final=True)).encode())


def _replaced(letter: re.Match[str]) -> str:
    held = letter.group().encode("utf-8", errors="surrogateescape")
    return "".join(chr(_STAND_IN + byte) for byte in held)


def _blocks(path: str) -> Iterator[bytes]:
    unzipped = path.lower().endswith(".gz")
    try:
        with cast(BinaryIO, gzip.open(path, "rb") if unzipped else open(path, "rb")) as opened:
            while block := opened.read(_BLOCK):
                yield block
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{path} cannot be read to the end; check that it is complete") from None
