"""Text files: copies in UTF-8 that DuckDB reads without losing a record or merging two identities.

DuckDB drops a CSV record that is no UTF-8, and a JSON record with half a surrogate pair in any text. So each byte that
is no UTF-8, and each byte of half a pair, is written as one character from a range that no text uses
(`identity.escape_bytes`); if a file does use that range, the bytes of those characters are escaped as well. Different
bytes stay different texts, equal bytes stay equal, and valid text is unchanged. So how a record is read does not depend
on whether another record made a copy necessary.
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
from hubermean.ingest.duckdb.session import scratch_folder
from hubermean.ingest.files import FileSet, decode_incrementally
from hubermean.ingest.identity import ESCAPED_BYTES, escape_bytes, escape_invalid

_BLOCK = 1 << 22
_BYTE_ORDER_MARK = codecs.BOM_UTF8  # DuckDB reads it as part of the first JSON record
_SURROGATE_BYTES = re.compile(rb"\\u[dD][89a-fA-F]")
# A pair, half a pair, or any other escape: all must be matched to know which backslash begins an escape.
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


@contextlib.contextmanager
def make_readable(files: FileSet) -> Iterator[FileSet]:
    """Yield the files, with temporary copies in place of those that DuckDB would misread."""
    encoded = files.encoding != "utf_8"
    found = {} if encoded else {path: _check_text(path, files.kind) for path in files.paths}
    longest = max((one.longest_line for one in found.values()), default=0)
    files = replace(files, max_record_bytes=max(longest, files.max_record_bytes))
    # Archives always: Python and DuckDB treat bytes after their end differently.
    needed = [path for path in files.paths if encoded or not found[path].readable or _is_archive(path)]
    if not needed:
        yield files
        return
    with scratch_folder() as scratch:  # a copy of the data must not outlive a crash
        copies = {path: os.path.join(scratch, f"{number}.copy") for number, path in enumerate(needed)}
        for path, copy in copies.items():
            _write_json(path, copy) if files.kind == "json" else _write_csv(path, copy, files.encoding)
        paths = tuple(copies.get(path, path) for path in files.paths)
        yield replace(files, paths=paths, encoding="utf_8")


@dataclass(frozen=True, kw_only=True)
class _TextCheck:
    """Whether DuckDB reads a file correctly, and a bound on the bytes of its longest line (JSON only)."""

    readable: bool
    longest_line: int


def _check_text(path: str, kind: str) -> _TextCheck:
    decoder = codecs.getincrementaldecoder("utf-8")()
    readable, pending = True, False
    longest = since = 0
    before = b""
    for number, block in enumerate(_blocks(path)):
        if kind == "json":
            first = block.find(b"\n")
            longest = max(longest, since + (len(block) if first < 0 else first))
            since = since + len(block) if first < 0 else len(block) - block.rfind(b"\n") - 1
            marked = number == 0 and block.startswith(_BYTE_ORDER_MARK)
            if marked or _SURROGATE_BYTES.search(before + block):
                readable = False
            before = block[-3:]
        if not readable or (block.isascii() and not pending):  # the common case, and much faster
            continue
        try:
            readable = ESCAPED_BYTES.search(decoder.decode(block)) is None
            pending = bool(decoder.getstate()[0])
        except UnicodeDecodeError:
            readable = False
    # Lines within a block are at most as long as it is. `pending`: the file ends within a character.
    return _TextCheck(readable=readable and not pending, longest_line=max(longest, since) + _BLOCK)


def _write_csv(path: str, copy: str, encoding: str) -> None:
    decoder = decode_incrementally(encoding)
    with open(copy, "wb") as output:
        for block in _blocks(path):
            output.write(escape_invalid(decoder.decode(block)).encode())
        output.write(escape_invalid(decoder.decode(b"", final=True)).encode())


def _write_json(path: str, copy: str) -> None:
    """Write line by line, since an escape must not be cut."""
    with open(copy, "wb") as output, _open(path) as lines, _mask_file_errors(path):
        for number, line in enumerate(lines):
            if number == 0:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if not line.isascii() or b"\\u" in line:
                text = escape_invalid(line.decode("utf-8", errors="surrogateescape"))
                line = _ESCAPES.sub(_escape_half_pair, text).encode()
            output.write(line)


def _escape_half_pair(escape: re.Match[str]) -> str:
    code = escape.group(1)
    if code is None:
        return escape.group()
    held = chr(int(code, 16)).encode("utf-8", errors="surrogatepass")
    return escape_bytes(held.decode("utf-8", errors="surrogateescape"))


def _blocks(path: str) -> Iterator[bytes]:
    with _open(path) as file, _mask_file_errors(path):
        while block := file.read(_BLOCK):
            yield block


def _open(path: str) -> BinaryIO:
    with _mask_file_errors(path):
        return cast(BinaryIO, gzip.open(path, "rb") if _is_archive(path) else open(path, "rb"))


def _is_archive(path: str) -> bool:
    return path.lower().endswith(".gz")


@contextlib.contextmanager
def _mask_file_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{path} cannot be read completely; check that it is not damaged") from None
