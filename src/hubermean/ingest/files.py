"""Which files a path or glob names, and how each kind is read without looking at what is in it.

Text formats carry no types. Guessing them from the content would let one user's value change how everyone's
are read, so every CSV and JSON column is read as text and each value is parsed on its own; the delimiter
follows from the file's name.
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubermean.errors import InputError

_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
}
LONGEST_LINE = 64_000_000
"""Bytes of the longest record that the engine makes room for, unless a file is found to have a longer one."""
LONGEST_POSSIBLE = 2**31 - 1
"""Bytes of the longest record that the engine can make room for."""
REJECTED = "SELECT count(*) FROM reject_errors"
"""How many CSV records the engine left out, after a query; those that were too long are the only ones."""
_SUPPORTED = (
    "Parquet (.parquet, .pq), CSV (.csv, .tsv), JSON lines (.jsonl, .ndjson); text may be gzipped (.gz)"
)


@dataclass(frozen=True, kw_only=True)
class FileSet:
    """Files of one kind, read as one table.

    `header` holds the column names of text files with a header, `longest` the bytes of the longest record to make room
    for.
    """

    kind: str
    paths: tuple[str, ...]
    delimiter: str = ","
    header: tuple[str, ...] = ()
    longest: int = LONGEST_LINE

    @classmethod
    def find(cls, pattern: str | os.PathLike[str]) -> FileSet:
        """The files a path or glob stands for."""
        text = os.fspath(pattern)
        if not isinstance(text, str) or not text or "\0" in text:
            raise InputError("a file name must be a non-empty text")
        paths = _expand(text)
        kinds = {_kind(path) for path in paths}
        if len(kinds) > 1:
            raise InputError(
                f"{text} names files of several kinds; give one kind at a time, such as *.parquet"
            )
        kind, delimiter = kinds.pop()
        for path in paths:
            if kind != "json" and os.path.getsize(path) == 0:  # the others lack a header then
                raise InputError(f"{path} is empty; give a file with a header or a schema")
        header = _common_header(paths, delimiter) if kind == "csv" else ()
        return cls(kind=kind, paths=paths, delimiter=delimiter, header=header)

    def scan(self, *, keys: Sequence[str] = (), values: Sequence[str] = ()) -> str:
        """The table function that reads these files; JSON lines have no schema, so it needs the names.

        Keys of JSON lines stay as they are written, so that numbers can be told from text.
        """
        paths = "[" + ", ".join(literal(path) for path in self.paths) + "]"
        match self.kind:
            case "parquet":
                return f"read_parquet({paths}, union_by_name = true, hive_partitioning = false)"
            case "csv":
                # One reader from front to back: several would start in the middle of quoted fields and read their
                # lines as records. Lenient about fields (strict_mode, null_padding): a malformed record must not touch
                # any other, nor vanish. About bytes, see `text_bytes`; about records that are too long, `REJECTED`.
                return (
                    f"read_csv({paths}, auto_detect = false, header = true, delim = {literal(self.delimiter)}, "
                    f"quote = '\"', escape = '\"', columns = {_as_text(self.header)}, ignore_errors = true, "
                    "store_rejects = true, strict_mode = false, null_padding = true, parallel = false, "
                    f"max_line_size = {self.longest}, buffer_size = {2 * self.longest})"
                )
            case _:
                columns = dict.fromkeys(keys, "JSON") | dict.fromkeys(values, "VARCHAR")
                return (
                    f"read_json({paths}, format = 'newline_delimited', columns = {_columns(columns)}, "
                    f"ignore_errors = true, maximum_object_size = {min(2 * self.longest, 2**32 - 1)})"
                )


def identifier(name: str) -> str:
    """A name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text quoted for SQL."""
    return "'" + text.replace("'", "''") + "'"


def _as_text(names: Sequence[str]) -> str:
    return _columns(dict.fromkeys(names, "VARCHAR"))


def _columns(types: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{literal(name)}: '{kind}'" for name, kind in types.items()) + "}"


def _expand(text: str) -> tuple[str, ...]:
    if "://" in text:
        raise InputError(f"{text} is not a local file; copy it here, or pass a data frame")
    if os.path.isdir(text):
        raise InputError(
            f"{text} is a folder; name its files with a pattern such as {os.path.join(text, '*.parquet')}"
        )
    if os.path.exists(text):
        found = [text]
    else:
        found = sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path))
    if not found:
        raise InputError(f"there is no file {text}; check the path")
    if not all(map(os.path.isfile, found)):  # a pipe or a device may never come to an end
        raise InputError(f"{text} is no plain file; copy what it gives into one")
    paths = tuple(os.path.abspath(path) for path in found)
    for path in paths:
        if not is_text(path):
            raise InputError("a file name holds bytes that are not text; rename the file")
        if not os.access(path, os.R_OK):
            raise InputError(f"{path} cannot be opened; check its permissions")
        if glob.has_magic(path):
            raise InputError(f"{path} holds a character that would be read as a pattern; rename it")
    return paths


def _kind(path: str) -> tuple[str, str]:
    name = path.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    kind = _KINDS.get(suffix)
    if kind is None or (kind == "parquet" and path.lower().endswith(".gz")):
        raise InputError(f"{path} is of no known kind; known are {_SUPPORTED}")
    return kind, "\t" if suffix == ".tsv" else ","


def _common_header(paths: Sequence[str], delimiter: str) -> tuple[str, ...]:
    headers = {path: _header(path, delimiter) for path in paths}
    first = headers[paths[0]]
    for path, header in headers.items():
        if header != first:
            raise InputError(
                f"{path} has another header line than {paths[0]}; files read together must agree"
            )
    if len(set(first)) != len(first) or not all(first):
        raise InputError(f"{paths[0]} needs a header line with a different, non-empty name for each column")
    return first


def _header(path: str, delimiter: str) -> tuple[str, ...]:
    try:
        with gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb") as opened:
            # Only the first line is looked at, byte for byte: what follows must not decide anything here.
            line = opened.readline(1 << 20).decode("utf-8-sig")
            return tuple(next(csv.reader([line], delimiter=delimiter), ()))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error):
        raise InputError(
            f"{path} has no readable header line; write it as UTF-8 text with a header"
        ) from None


def is_text(name: str) -> bool:
    """Whether a text can be written as UTF-8, which half a surrogate pair cannot."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
