"""`vectors`: a column of lists, one vector a record, as what `mean_of_user_means` averages.

Model updates have more numbers than a table has columns. They are read a few records at a time into an array of one row
a user, which lies in the scratch folder and is mapped into memory where it is large: neither the file nor the array
need fit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError
from hubermean.ingest.columns import kind_of, missing_column
from hubermean.ingest.engine import UNREADABLE
from hubermean.ingest.files import FileSet
from hubermean.ingest.reading import READING
from hubermean.ingest.row_groups import RowGroups, shares_of
from hubermean.ingest.scratch import scratch_folder
from hubermean.ingest.session import quietly
from hubermean.threads import at_once, most_at_once
from hubermean.unsafe_timings import stage
from hubermean.user_table import HeldMeans, IntArray, UserTable, looked_through

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 2**24
_HELD_BYTES = 2**26  # an array up to this size needs no file
_READ_ELEMENTS = 2**22  # numbers that a thread reads at a time
_SORTED_ELEMENTS = 2**20


@dataclass(frozen=True, kw_only=True)
class VectorFile:
    """Parquet files with a vector in every record, and the types of both columns; made by `hubermean.vectors`."""

    files: FileSet
    user: str
    value: str
    length: int
    types: tuple[Any, Any]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.value}[{place}]" for place in range(self.length))


def vectors(data: str | os.PathLike[str], *, user: str, value: str, length: int | None = None) -> VectorFile:
    """A column of lists in Parquet files, for use as the `means` of `hubermean.mean_of_user_means`.

    Args:
        data: a path or glob.
        user: the column that identifies a user, of integers or text.
        value: the column of vectors: lists of integers or floats.
        length: of the vectors, a public number; it may be left out where the type of the column says it (a list of
            fixed size).

    A record is usable if its vector has that length and finite numbers alone; a user's vector is the mean of its usable
    records. Nothing but the schema is read before the release.

    >>> import pathlib, tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> updates = pa.array([[0.0, 2.0], [4.0, 6.0], [2.0, 1.0]], type=pa.list_(pa.float32(), 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "updates.parquet")
    ...     pq.write_table(pa.table({"client": ["a", "b", "b"], "update": updates}), path)
    ...     vectors(path, user="client", value="update").columns
    ('update[0]', 'update[1]')
    """
    if not isinstance(data, str | os.PathLike):
        raise InputError("vectors are read from files; give a path or a pattern")
    for name, what in ((user, "user"), (value, "value")):
        if not isinstance(name, str) or not name:
            raise InputError(f"{what} must be the name of one column")
    if user == value:
        raise InputError(f"column {user!r} is both user and value; name two different columns")
    whole = isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= LONGEST
    if length is not None and not whole:
        raise InputError(f"length must be a whole number from 1 to {LONGEST:,}, not {length!r}")
    files = FileSet.find(data)
    if files.kind != "parquet":
        raise InputError("vectors are read from Parquet files; write the data as Parquet first")
    types = _types(files.paths[0], user, value)
    declared = _declared_length(types[1], value)
    if declared is None and length is None:
        raise InputError(f"the type of {value!r} does not say how long its lists are; give length=")
    if declared is not None and length not in (None, declared):
        raise InputError(
            f"the lists of {value!r} have {declared:,} numbers, not {length:,}; leave length out"
        )
    chosen = declared if declared is not None else length
    assert chosen is not None
    file = VectorFile(files=files, user=user, value=value, length=chosen, types=types)
    _require_types(file)
    return file


@contextlib.contextmanager
def opened_vectors(file: VectorFile) -> Iterator[UserTable]:
    """A vector a user, as long as it is needed.

    Formal guarantees: the vector and the counts of a user follow from the multiset of that user's own records; no user
    id is kept, and no error message quotes data.
    """
    with scratch_folder() as scratch:
        with stage(READING):
            table = quietly(lambda: _table(file, scratch), UNREADABLE)
        yield table


def _require_types(file: VectorFile) -> None:
    for path in file.files.paths:
        if _types(path, file.user, file.value) != file.types:
            raise InputError(
                f"{path} stores {file.user!r} or {file.value!r} in another type; write all files with one"
            )


@np.errstate(all="ignore")  # whatever the caller has numpy do: an error would tell of the data
def _table(file: VectorFile, scratch: str) -> UserTable:
    before = _marks(file.files.paths)
    _require_types(file)  # again: the files may have changed since
    codes, n_users = _users(file)
    records: IntArray = np.bincount(codes[codes >= 0], minlength=n_users)
    narrow = str(file.types[1].value_type) in ("float", "halffloat")
    dtype = np.float32 if narrow else np.float64
    means = _room(scratch, "means", n_users, file.length, dtype)
    # Users who have several records get a place for each, next to each other.
    several = np.append(records > 1, False)  # the last is nobody, whose number is -1
    crowded = np.flatnonzero(several[codes])
    crowded = crowded[np.argsort(codes[crowded], kind="stable")]
    place_of = np.full(len(codes), -1)
    place_of[crowded] = np.arange(len(crowded))
    places = _room(scratch, "records", len(crowded), file.length, dtype)

    def put(share: RowGroups) -> None:
        """Every record has a row of its own to go to, so threads do not meet."""
        read = share.first
        for block in _blocks(share, file, dtype):
            now = slice(read, read + len(block))
            apart = place_of[now] >= 0
            places[place_of[now][apart]] = block[apart]
            alone = (codes[now] >= 0) & ~apart
            means[codes[now][alone]] = block[alone]
            read += len(block)
        if read != share.first + share.records:
            raise ValueError("the columns of a file differ in length")

    shares = shares_of(file.files.paths, most_at_once())
    if sum(share.records for share in shares) != len(codes):
        raise ValueError("a file has changed")
    at_once(put, shares)
    if _marks(file.files.paths) != before:  # ids and vectors may be of different records
        raise ValueError("a file has changed")
    counts = records.copy()
    usable, _ = looked_through(places)
    stop = 0
    for code in np.flatnonzero(records > 1).tolist():
        start, stop = stop, stop + int(records[code])
        mine = start + np.flatnonzero(usable[start:stop])
        counts[code] = len(mine)
        _average(places, mine, means[code])
    finite, squares = looked_through(means)
    counts = np.where(finite, counts, 0)
    return UserTable(
        columns=file.columns, sums=HeldMeans(means, counts, squares), counts=counts, records=records
    )


def _marks(paths: Sequence[str]) -> list[tuple[int, int, int]]:
    """By which a file that was written anew, or further, is told from what it was."""
    return [(found.st_ino, found.st_size, found.st_mtime_ns) for found in map(os.stat, paths)]


def _average(places: NDArray[Any], mine: NDArray[np.intp], into: NDArray[Any]) -> None:
    """The mean of some rows: sorted number by number before they are added, so that their order means nothing."""
    if len(mine) == 0:
        into[...] = np.nan
        return
    width = max(1, _SORTED_ELEMENTS // len(mine))
    for left in range(0, len(into), width):
        block = np.sort(places[mine, left : left + width].astype(np.float64), axis=0)
        with np.errstate(all="ignore"):
            into[left : left + width] = np.add.reduce(block, axis=0) / len(mine)


def _users(file: VectorFile) -> tuple[NDArray[np.int64], int]:
    """A number for the user of every record, -1 for none; and how many users there are."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    kind = _wide(file.types[0])
    chunks = [
        chunk.cast(kind)
        for path in file.files.paths
        for chunk in pq.read_table(path, columns=[file.user], partitioning=None).column(file.user).chunks
    ]
    keys = pc.dictionary_encode(pa.chunked_array(chunks, type=kind)).unify_dictionaries()
    codes = [pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False) for chunk in keys.chunks]
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *codes]).astype(np.int64)
    return numbers, int(numbers.max(initial=-1)) + 1


def _blocks(share: RowGroups, file: VectorFile, dtype: type) -> Iterator[NDArray[Any]]:
    """The vectors of a share in order, some at a time; what is no vector of the length has no number in it."""
    import pyarrow.parquet as pq

    for path, groups in share.groups:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as opened:
            rows = _rows_at_a_time(opened.metadata, file.length)
            for batch in opened.iter_batches(
                batch_size=rows, row_groups=groups, columns=[file.value], use_threads=False
            ):
                yield _vectors(batch.column(file.value), file.length, dtype)


def _rows_at_a_time(footer: Any, length: int) -> int:
    """So few that lists longer than they should be, which are read like others, hardly take more memory."""
    rows = _READ_ELEMENTS // length
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        most = max((group.column(place).num_values for place in range(group.num_columns)), default=0)
        if most > 0 and group.num_rows > 0:
            rows = min(rows, _READ_ELEMENTS * group.num_rows // most)
    return max(1, rows)


def _vectors(lists: pa.Array, length: int, dtype: type) -> NDArray[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    fits = pc.fill_null(pc.equal(pc.list_value_length(lists), length), False)
    numbers = pc.list_flatten(lists if pc.all(fits).as_py() else lists.filter(fits))
    floats = numbers.cast(pa.from_numpy_dtype(dtype), safe=False).to_numpy(zero_copy_only=False)
    found: NDArray[Any] = floats.reshape(-1, length)
    if len(found) == len(lists):
        return found
    result: NDArray[Any] = np.full((len(lists), length), np.nan, dtype=dtype)
    result[fits.to_numpy(zero_copy_only=False)] = found
    return result


def _room(scratch: str, name: str, rows: int, columns: int, dtype: type) -> NDArray[Any]:
    """An array, in memory if it is small, else in a file whose room on the disk is sure."""
    size = rows * columns * np.dtype(dtype).itemsize
    if size <= _HELD_BYTES:
        return np.empty((rows, columns), dtype=dtype)
    path = os.path.join(scratch, name)
    try:
        with open(path, "wb") as made:
            if hasattr(os, "posix_fallocate"):
                # A mapped file for which the disk has no room ends the process.
                os.posix_fallocate(made.fileno(), 0, size)
            else:
                made.truncate(size)
    except OSError:
        raise InputError(
            "there is no room for the vectors; let TMPDIR name a folder on a larger disk"
        ) from None
    return np.memmap(path, dtype=dtype, mode="r+", shape=(rows, columns))


def _types(path: str, user: str, value: str) -> tuple[Any, Any]:
    """The declared types of both columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    broken = f"{path} cannot be read as parquet; check that it is complete"
    schema = quietly(lambda: pq.read_schema(path), broken)
    for name in (user, value):
        if schema.names.count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")
        if name not in schema.names:
            raise InputError(missing_column(name, schema.names))
    key, lists = schema.field(user).type, schema.field(value).type
    if not (pa.types.is_integer(_plain(key)) or _is_text(_plain(key))):
        raise InputError(
            f"column {user!r} has type {kind_of(key)} and cannot identify users here; use integers or text"
        )
    return key, lists


def _declared_length(kind: Any, name: str) -> int | None:
    """The length of lists, if their type says it."""
    import pyarrow as pa

    types = pa.types
    fixed = types.is_fixed_size_list(kind)
    lists = fixed or types.is_list(kind) or types.is_large_list(kind)
    if not lists or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise InputError(f"column {name!r} has type {kind_of(kind)}; vectors are lists of integers or floats")
    if fixed and not 1 <= kind.list_size <= LONGEST:
        raise InputError(f"the lists of {name!r} must have from 1 to {LONGEST:,} numbers")
    return kind.list_size if fixed else None


def _plain(kind: Any) -> Any:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _wide(kind: Any) -> Any:
    """Text as bytes, of which any will do, and as many as there are."""
    import pyarrow as pa

    return _plain(kind) if pa.types.is_integer(_plain(kind)) else pa.large_binary()
