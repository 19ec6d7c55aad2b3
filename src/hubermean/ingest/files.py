"""Files: which ones a path or glob names, and the SQL that reads each format.

Text formats declare no types. Inferring them from content would let one user's value change how all values are read.
So every CSV and JSON column is read as text, each value is parsed by itself, and the delimiter follows from the file's
name.
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
DEFAULT_RECORD_BYTES = 64_000_000
"""Longest record that DuckDB reserves memory for, unless a file is known to have a longer one."""
MAX_RECORD_BYTES = 2**31 - 1
"""Longest record that DuckDB can reserve memory for."""
COUNT_REJECTED = "SELECT count(*) FROM reject_errors"
"""After a query, the number of CSV records that DuckDB left out; it leaves out only those that are too long."""
_SUPPORTED = (
    "Parquet (.parquet, .pq), CSV (.csv, .tsv), JSON lines (.jsonl, .ndjson); text may be gzipped (.gz)"
)


@dataclass(frozen=True, kw_only=True)
class FileSet:
    """Files of one format, read as one table.

    Attributes:
        kind: "parquet", "csv" or "json".
        paths: absolute paths.
        delimiter: of CSV files.
        header: column names of CSV files.
        max_record_bytes: longest text record to reserve memory for.
    """

    kind: str
    paths: tuple[str, ...]
    delimiter: str = ","
    header: tuple[str, ...] = ()
    max_record_bytes: int = DEFAULT_RECORD_BYTES

    @classmethod
    def find(cls, pattern: str | os.PathLike[str]) -> FileSet:
        """Return the files that a path or glob names.

        Raises:
            InputError: there are none, they are of several formats, or their headers differ.
        """
        text = os.fspath(pattern)
        if not isinstance(text, str) or not text or "\0" in text:
            raise InputError("a file name must be text that is not empty")
        paths = _expand(text)
        kinds = {_kind(path) for path in paths}
        if len(kinds) > 1:
            raise InputError(
                f"{text} names files of several formats; read one format at a time, such as *.parquet"
            )
        kind, delimiter = kinds.pop()
        for path in paths:
            if kind != "json" and os.path.getsize(path) == 0:  # without a header or schema
                raise InputError(f"{path} is empty; use a file with a header or a schema")
        header = _common_header(paths, delimiter) if kind == "csv" else ()
        return cls(kind=kind, paths=paths, delimiter=delimiter, header=header)

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(map(os.path.getsize, self.paths))

    def scan(self, *, keys: Sequence[str] = (), values: Sequence[str] = ()) -> str:
        """Return SQL of the table function that reads these files.

        JSON lines have no schema, so their columns must be named. Keys are read as JSON, which distinguishes numbers
        from text.
        """
        paths = quote_texts(self.paths)
        match self.kind:
            case "parquet":
                return f"read_parquet({paths}, union_by_name = true, hive_partitioning = false)"
            case "csv":
                # One reader from start to end: several would start within quoted fields and read their lines as
                # records. Lenient (strict_mode, null_padding): a malformed record must neither affect another one nor
                # vanish. For invalid bytes see `text_files`, for records that are too long `COUNT_REJECTED`.
                return (
                    f"read_csv({paths}, auto_detect = false, header = true, delim = {quote_text(self.delimiter)}, "
                    f"quote = '\"', escape = '\"', columns = {_as_text(self.header)}, ignore_errors = true, "
                    "store_rejects = true, strict_mode = false, null_padding = true, parallel = false, "
                    f"max_line_size = {self.max_record_bytes}, buffer_size = {2 * self.max_record_bytes})"
                )
            case _:
                columns = dict.fromkeys(keys, "JSON") | dict.fromkeys(values, "VARCHAR")
                return (
                    f"read_json({paths}, format = 'newline_delimited', columns = {_columns(columns)}, "
                    f"ignore_errors = true, maximum_object_size = {min(2 * self.max_record_bytes, 2**32 - 1)})"
                )


def quote_identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote_texts(texts: Sequence[str]) -> str:
    """Quote a list of texts for SQL."""
    return "[" + ", ".join(map(quote_text, texts)) + "]"


def _as_text(names: Sequence[str]) -> str:
    return _columns(dict.fromkeys(names, "VARCHAR"))


def _columns(types: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{quote_text(name)}: '{kind}'" for name, kind in types.items()) + "}"


def _expand(text: str) -> tuple[str, ...]:
    if "://" in text:
        raise InputError(f"{text} is not a local file; copy it to this machine, or pass a data frame")
    if os.path.isdir(text):
        raise InputError(
            f"{text} is a folder; name its files with a pattern such as {os.path.join(text, '*.parquet')}"
        )
    if os.path.exists(text):
        found = [text]
    else:
        found = sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path))
    if not found:
        query = text.lstrip()[:7].lower() in ("select ", "select\n")
        advice = "give a query as hubermean.sql(...)" if query else "check the path"
        raise InputError(f"there is no file {text}; {advice}")
    if not all(map(os.path.isfile, found)):  # a pipe or a device may never end
        raise InputError(f"{text} is not a regular file; copy its content into one")
    paths = tuple(os.path.abspath(path) for path in found)
    for path in paths:
        if not is_utf8(path):
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
        raise InputError(f"{path} has an unknown format; use {_SUPPORTED}")
    return kind, "\t" if suffix == ".tsv" else ","


def _common_header(paths: Sequence[str], delimiter: str) -> tuple[str, ...]:
    headers = {path: _header(path, delimiter) for path in paths}
    first = headers[paths[0]]
    for path, header in headers.items():
        if header != first:
            raise InputError(
                f"{path} and {paths[0]} have different header lines; write all files with the same header"
            )
    if len(set(first)) != len(first) or not all(first):
        raise InputError(f"{paths[0]} needs a header line with a different, non-empty name for each column")
    return first


def _header(path: str, delimiter: str) -> tuple[str, ...]:
    try:
        with gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb") as opened:
            # Only the first line is read: later lines must not influence the schema.
            line = opened.readline(1 << 20).decode("utf-8-sig")
            return tuple(next(csv.reader([line], delimiter=delimiter), ()))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error):
        raise InputError(
            f"{path} has no readable header line; write it as UTF-8 text with a header"
        ) from None


def is_utf8(name: str) -> bool:
    """Whether a text can be encoded as UTF-8; half a surrogate pair cannot."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
