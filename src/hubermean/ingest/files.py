"""Files: which ones a path or glob names, and the SQL that reads each format.

Text formats declare no types. Inferring them from content would let one user's value change how all values are read.
So every CSV and JSON column is read as text, each value is parsed by itself, and the delimiter follows from the file's
name or is stated by the caller (`text_format`).
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import glob
import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from hubermean.errors import InputError, parameter
from hubermean.ingest.locations import (
    copy_files,
    find_remote_files,
    mask_storage_errors,
    open_location,
    without_credentials,
)
from hubermean.ingest.text_format import TextFormat

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
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
    "Parquet (.parquet, .pq), Arrow (.arrow, .feather), CSV (.csv, .tsv) or JSON lines (.jsonl, .ndjson); text may be "
    "gzipped (.gz)"
)
_LONGEST_HEADER, _HEADER_BLOCK = 1 << 20, 1 << 13


@dataclass(frozen=True, kw_only=True)
class FileSet:
    """Files of one format, read as one table.

    Attributes:
        kind: "parquet", "arrow", "csv" or "json".
        paths: absolute paths, or paths within the file system.
        filesystem: the remote file system; None for local files.
        root: what stands before the paths where they are shown, such as "s3://".
        delimiter, quote, encoding: of CSV files.
        header: column names of CSV files, once the format is known.
        max_record_bytes: longest text record to reserve memory for.
    """

    kind: str
    paths: tuple[str, ...]
    filesystem: pafs.FileSystem | None = field(default=None, repr=False)
    root: str = ""
    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf_8"
    header: tuple[str, ...] = ()
    max_record_bytes: int = DEFAULT_RECORD_BYTES

    @classmethod
    def find(cls, pattern: str | os.PathLike[str]) -> FileSet:
        """Return the files that a path, a glob or a URI names.

        Raises:
            InputError: there are none, or they are of several formats.
        """
        text = os.fspath(pattern)
        if not isinstance(text, str) or not text or "\0" in text:
            raise InputError("a file name must be text that is not empty")
        scheme, separator, rest = text.partition("://")
        remote = find_remote_files(text) if separator and scheme.lower() != "file" else None
        paths = remote.paths if remote is not None else _expand_local(rest if separator else text)
        kinds = {_kind(path) for path in paths}
        if len(kinds) > 1:
            raise InputError(
                f"{pattern if remote is None else without_credentials(text)} names files of several formats; "
                "read one format at a time, such as *.parquet"
            )
        kind, delimiter = kinds.pop()
        files = cls(
            kind=kind,
            paths=paths,
            filesystem=None if remote is None else remote.filesystem,
            root="" if remote is None else remote.root,
            delimiter=delimiter,
        )
        for path, size in zip(files.paths, files._sizes(), strict=True):
            if kind != "json" and size == 0:  # without a header or schema
                raise InputError(f"{files.shown(path)} is empty; use a file with a header or a schema")
        return files

    def formatted(self, text: TextFormat) -> FileSet:
        """Return the files with the format of CSV files, whose headers are read; InputError if these differ."""
        if self.kind != "csv":
            return self
        files = replace(
            self, delimiter=text.delimiter or self.delimiter, quote=text.quote, encoding=text.encoding
        )
        return replace(files, header=_common_header(files))

    @contextlib.contextmanager
    def local(self) -> Iterator[FileSet]:
        """Yield local files: these, or private copies of remote ones."""
        if self.filesystem is None:
            yield self
            return
        from hubermean.ingest.duckdb.session import scratch_folder

        with scratch_folder() as scratch:
            yield replace(
                self, paths=copy_files(self.paths, self.filesystem, scratch), filesystem=None, root=""
            )

    def shown(self, path: str) -> str:
        """Return the name of a file for a message."""
        return f"{self.root}{path}"

    def _sizes(self) -> list[int | None]:
        if self.filesystem is None:
            return [os.path.getsize(path) for path in self.paths]
        with mask_storage_errors(self.shown(self.paths[0])):
            return [info.size for info in self.filesystem.get_file_info(list(self.paths))]

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(size or 0 for size in self._sizes())

    def scan(self, *, keys: Sequence[str] = (), values: Sequence[str] = ()) -> str:
        """Return SQL of the table function that reads these files.

        JSON lines have no schema, so their columns must be named. Keys are read as JSON, which distinguishes numbers
        from text.
        """
        paths, quote = quote_texts(self.paths), quote_text(self.quote)
        match self.kind:
            case "parquet":
                return f"read_parquet({paths}, union_by_name = true, hive_partitioning = false)"
            case "csv":
                # One reader from start to end: several would start within quoted fields and read their lines as
                # records. Lenient (strict_mode, null_padding): a malformed record must neither affect another one nor
                # vanish. For invalid bytes see `text_files`, for records that are too long `COUNT_REJECTED`.
                return (
                    f"read_csv({paths}, auto_detect = false, header = true, delim = {quote_text(self.delimiter)}, "
                    f"quote = {quote}, escape = {quote}, columns = {_as_text(self.header)}, ignore_errors = true, "
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


def _expand_local(text: str) -> tuple[str, ...]:
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


def _common_header(files: FileSet) -> tuple[str, ...]:
    headers = {path: _header(files, path) for path in files.paths}
    first = headers[files.paths[0]]
    for path, header in headers.items():
        if header != first:
            raise InputError(
                f"{files.shown(path)} and {files.shown(files.paths[0])} have different header lines; write all files "
                "with the same header"
            )
    if len(set(first)) != len(first) or not all(first):
        raise InputError(
            f"{files.shown(files.paths[0])} needs a header line with a different, non-empty name for each column"
        )
    return first


def _header(files: FileSet, path: str) -> tuple[str, ...]:
    quoting: dict[str, Any] = {"quotechar": files.quote} if files.quote else {"quoting": csv.QUOTE_NONE}
    try:
        with open_location(path, files.filesystem) as stored:
            opened = gzip.GzipFile(fileobj=stored) if path.lower().endswith(".gz") else stored
            line = read_first_line(cast(IO[bytes], opened), files.encoding)
        if is_utf8(line):
            return tuple(next(csv.reader([line], delimiter=files.delimiter, **quoting), ()))
    except (OSError, EOFError, zlib.error, csv.Error, UnicodeError):  # UTF-16 without a byte order mark
        pass
    raise InputError(
        f"{files.shown(path)} has no readable header line; set {parameter('encoding')}, or write it as UTF-8 text with "
        "a header"
    )


def read_first_line(opened: IO[bytes], encoding: str) -> str:
    """Return the first line, or the beginning of a long one: later lines must not influence the schema."""
    decoder = decode_incrementally(encoding)
    line = ""
    while len(line) < _LONGEST_HEADER:
        block = opened.read(_HEADER_BLOCK)
        line += decoder.decode(block, final=not block)
        if not block or "\n" in line:
            break
    return line.partition("\n")[0][:_LONGEST_HEADER].removeprefix("\ufeff")


# --- encodings -------------------------------------------------------------------------------------------------------


def decode_incrementally(encoding: str) -> codecs.IncrementalDecoder:
    """Return a decoder that never fails: each byte that is invalid becomes half a surrogate pair of its own."""
    return codecs.getincrementaldecoder(encoding)(errors=_KEEP_BYTES)


def _keep_bytes(error: UnicodeError) -> tuple[str, int]:
    """Handle an invalid byte; one at a time, so that no byte of another record is taken with it."""
    assert isinstance(error, UnicodeDecodeError)
    held = error.object[error.start : error.end]
    if error.encoding.replace("_", "-").startswith("utf-16"):
        # Half a surrogate pair, as the bytes that it has elsewhere; or a byte that is left at the end of a file.
        units = [int.from_bytes(held, order) for order in ("little", "big")] if len(held) == 2 else []
        half = next((unit for unit in units if 0xD800 <= unit < 0xE000), None)
        if half is not None:
            held = chr(half).encode("utf-8", errors="surrogatepass")
        return "".join(chr(0xDC00 + byte) if byte >= 0x80 else "\ufffd" for byte in held), error.end
    byte = held[0]
    return chr(0xDC00 + byte) if byte >= 0x80 else chr(byte), error.start + 1


_KEEP_BYTES = "hubermean.keep_bytes"
codecs.register_error(_KEEP_BYTES, _keep_bytes)


def is_utf8(name: str) -> bool:
    """Whether a text can be encoded as UTF-8; half a surrogate pair cannot."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
