"""Text files in a form that the engine reads without losing a record or joining two identities.

The engine drops a CSV record that is not UTF-8, and a JSON record that holds half a surrogate pair in any of its texts.
So each byte that is no UTF-8, and each byte of half a pair, is written as a letter of its own, from a range that nobody
uses (`identity.stand_ins_for`); where a file does use that range, its letters are written so too, byte by byte.
Different bytes stay different texts, equal ones equal, and text that is UTF-8 is left as it is: how a record is read
does not depend on whether another one made the file need this.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

from hubermean.errors import InputError
from hubermean.ingest.files import FileSet
from hubermean.ingest.identity import STAND_INS, stand_ins_for
from hubermean.ingest.scratch import scratch_folder

_BLOCK = 1 << 22
_MARK = codecs.BOM_UTF8  # which the engine takes for a part of the first JSON record
_SURROGATE_BYTES = re.compile(rb"\\u[dD][89a-fA-F]")
# A pair, half a pair, or any other escape: only so is it plain which backslash begins one.
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


@contextlib.contextmanager
def as_utf8(files: FileSet) -> Iterator[FileSet]:
    """The same files with copies in place of those that the engine could not read, for as long as the context lasts."""
    found = {path: _look_through(path, files.kind) for path in files.paths}
    longest = max((one.longest_line for one in found.values()), default=0)
    files = replace(files, longest=max(longest, files.longest))
    # Archives always: what follows their end would be read by one and refused by the other.
    needed = [path for path, one in found.items() if not one.readable or _is_archive(path)]
    if not needed:
        yield files
        return
    with scratch_folder() as scratch:  # a copy of the data must not outlive a crash
        copies = {path: os.path.join(scratch, f"{number}.copy") for number, path in enumerate(needed)}
        for path, copy in copies.items():
            (_write_json if files.kind == "json" else _write_csv)(path, copy)
        yield replace(files, paths=tuple(copies.get(path, path) for path in files.paths))


@dataclass(frozen=True, kw_only=True)
class _Look:
    """Whether the engine reads a file as it is, and a bound on the bytes of its longest line (JSON alone)."""

    readable: bool
    longest_line: int


def _look_through(path: str, kind: str) -> _Look:
    decoder = codecs.getincrementaldecoder("utf-8")()
    readable, pending = True, False
    longest = since = 0
    before = b""
    for number, block in enumerate(_blocks(path)):
        if kind == "json":
            first = block.find(b"\n")
            longest = max(longest, since + (len(block) if first < 0 else first))
            since = since + len(block) if first < 0 else len(block) - block.rfind(b"\n") - 1
            if (number == 0 and block.startswith(_MARK)) or _SURROGATE_BYTES.search(before + block):
                readable = False
            before = block[-3:]
        if not readable or (block.isascii() and not pending):  # nearly always, and much faster
            continue
        try:
            readable = STAND_INS.search(decoder.decode(block)) is None
            pending = bool(decoder.getstate()[0])
        except UnicodeDecodeError:
            readable = False
    # Lines within a block may be as long as it is; of a letter cut off at the end, `pending` tells.
    return _Look(readable=readable and not pending, longest_line=max(longest, since) + _BLOCK)


def _write_csv(path: str, copy: str) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    with open(copy, "wb") as output:
        for block in _blocks(path):
            output.write(_replaced(decoder.decode(block)).encode())
        output.write(_replaced(decoder.decode(b"", final=True)).encode())


def _write_json(path: str, copy: str) -> None:
    """Line by line, since an escape may not be cut."""
    with open(copy, "wb") as output, _opened(path) as lines, _errors_of(path):
        for number, line in enumerate(lines):
            if number == 0:
                line = line.removeprefix(_MARK)
            if not line.isascii() or b"\\u" in line:
                text = _replaced(line.decode("utf-8", errors="surrogateescape"))
                line = _ESCAPES.sub(_half_pair, text).encode()
            output.write(line)


def _half_pair(escape: re.Match[str]) -> str:
    code = escape.group(1)
    if code is None:
        return escape.group()
    held = chr(int(code, 16)).encode("utf-8", errors="surrogatepass")
    return stand_ins_for(held.decode("utf-8", errors="surrogateescape"))


def _replaced(text: str) -> str:
    """Letters for bytes that are no UTF-8, and for the bytes of letters that would be taken for those."""
    if STAND_INS.search(text):
        text = STAND_INS.sub(
            lambda letter: letter.group().encode().decode("ascii", errors="surrogateescape"), text
        )
    return stand_ins_for(text)


def _blocks(path: str) -> Iterator[bytes]:
    with _opened(path) as opened, _errors_of(path):
        while block := opened.read(_BLOCK):
            yield block


def _opened(path: str) -> BinaryIO:
    with _errors_of(path):
        return cast(BinaryIO, gzip.open(path, "rb") if _is_archive(path) else open(path, "rb"))


def _is_archive(path: str) -> bool:
    return path.lower().endswith(".gz")


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{path} cannot be read to the end; check that it is complete") from None
