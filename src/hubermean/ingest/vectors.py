"""Vectors: a column of lists in Parquet files, one vector per record, as the data of `mean_of_user_means`.

Model updates have more numbers than a table has columns. They are read a few records at a time into an array with one
row per user. A large array lies in the scratch folder and is mapped into memory, so neither the file nor the array need
fit in memory. Several threads read the files, each a range of Parquet row groups.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import IntArray, find_finite_rows
from hubermean.data.threads import choose_thread_count, run_in_threads
from hubermean.data.user_table import SumsFromMeans, UserTable
from hubermean.errors import InputError, parameter
from hubermean.ingest.duckdb.session import scratch_folder
from hubermean.ingest.engine import READ_FAILED, mask_engine_errors
from hubermean.ingest.files import FileSet
from hubermean.ingest.reading import READING_STAGE
from hubermean.ingest.schema import missing_column_message, type_name
from hubermean.types.timings import stage

if TYPE_CHECKING:
    import pyarrow as pa

MAX_LENGTH = 2**24
_MEMORY_BYTES = 2**26  # a smaller array needs no file
_READ_ELEMENTS = 2**22  # numbers that a thread reads at a time
_SORT_ELEMENTS = 2**20


@dataclass(frozen=True, kw_only=True)
class VectorFile:
    """Parquet files with one vector per record, and the types of both columns; made by `hubermean.vectors`."""

    files: FileSet
    user: str
    value: str
    length: int
    types: tuple[Any, Any]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.value}[{place}]" for place in range(self.length))


def vectors(data: str | os.PathLike[str], *, user: str, value: str, length: int | None = None) -> VectorFile:
    """Return a column of lists in Parquet files, for use as the `means` of `hubermean.mean_of_user_means`.

    A record is usable if its vector has the given length and only finite numbers. The vector of a user is the mean of
    its usable records. Only the schema is read before the release.

    Args:
        data: a path or glob.
        user: the column that identifies a user, of integers or text.
        value: the column of vectors: lists of integers or floats.
        length: the length of the vectors, a public number. Not needed if the type of the column has it (lists of fixed
            size).

    Returns:
        The file with its columns, not yet read: a release reads it. `columns` are the names of the coordinates.

    Raises:
        InputError: a file or column is missing, a column has another type, or the length is not known.

    Formal guarantees: the length is public, from the schema or from you, never from a record. Whether a record is
    usable depends on that record alone.

    >>> import pathlib, tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> updates = pa.array([[0.0, 2.0], [4.0, 6.0], [2.0, 1.0]], type=pa.list_(pa.float32(), 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "updates.parquet")
    ...     pq.write_table(pa.table({"client": ["a", "b", "b"], "update": updates}), path)
    ...     vectors(path, user="client", value="update").columns
    ('update[0]', 'update[1]')
    """
    if not isinstance(data, str | os.PathLike):
        raise InputError("vectors are read from Parquet files; pass a path or a pattern")
    for name, what in ((user, "user"), (value, "value")):
        if not isinstance(name, str) or not name:
            raise InputError(f"{parameter(what)} must be the name of one column")
    if user == value:
        raise InputError(f"column {user!r} is both user and value; name two different columns")
    valid = isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= MAX_LENGTH
    if length is not None and not valid:
        raise InputError(
            f"{parameter('length')} must be a whole number from 1 to {MAX_LENGTH:,}, not {length!r}"
        )
    files = FileSet.find(data)
    if files.kind != "parquet":
        raise InputError("vectors are read from Parquet files; write the data as Parquet first")
    if files.filesystem is not None:
        raise InputError("vectors are read from local files; copy them to this machine first")
    types = _read_types(files.paths[0], user, value)
    declared = _declared_length(types[1], value)
    if declared is None and length is None:
        raise InputError(
            f"the type of {value!r} does not include the length of its lists; set {parameter('length')}"
        )
    if declared is not None and length not in (None, declared):
        raise InputError(
            f"the lists of {value!r} have {declared:,} numbers, not {length:,}; leave length out"
        )
    chosen = declared if declared is not None else length
    assert chosen is not None
    file = VectorFile(files=files, user=user, value=value, length=chosen, types=types)
    _check_types(file)
    return file


@contextlib.contextmanager
def open_vectors(file: VectorFile) -> Iterator[UserTable]:
    """Yield the table with one vector per user, which exists until the context ends.

    Formal guarantees: the vector and the counts of a user follow from the multiset of that user's own records; no user
    id is kept, and no error message quotes data.
    """
    with scratch_folder() as scratch:
        with stage(READING_STAGE):
            table = mask_engine_errors(lambda: _read_table(file, scratch), READ_FAILED)
        yield table


def _check_types(file: VectorFile) -> None:
    for path in file.files.paths:
        if _read_types(path, file.user, file.value) != file.types:
            raise InputError(
                f"{path} stores {file.user!r} or {file.value!r} in another type; write all files with the same types"
            )


@np.errstate(all="ignore")  # a numpy warning that the caller turned into an error would depend on the data
def _read_table(file: VectorFile, scratch: str) -> UserTable:
    before = _file_versions(file.files.paths)
    _check_types(file)  # again: the files may have changed
    codes, n_users = _number_users(file)
    records: IntArray = np.bincount(codes[codes >= 0], minlength=n_users)
    narrow = str(file.types[1].value_type) in ("float", "halffloat")
    dtype = np.float32 if narrow else np.float64
    means = _allocate(scratch, "means", n_users, file.length, dtype)
    # A user with several records gets a row for each of them, next to each other. The last entry is for records without
    # a user, whose number is -1.
    several = np.append(records > 1, False)
    repeated = np.flatnonzero(several[codes])
    repeated = repeated[np.argsort(codes[repeated], kind="stable")]
    row_of = np.full(len(codes), -1)
    row_of[repeated] = np.arange(len(repeated))
    vectors_of_repeated = _allocate(scratch, "records", len(repeated), file.length, dtype)

    def read_range(rows: RowGroupRange) -> None:
        """Every record is written to a row of its own, so threads never write to the same row."""
        read = rows.first
        for block in _read_blocks(rows, file, dtype):
            now = slice(read, read + len(block))
            is_repeated = row_of[now] >= 0
            vectors_of_repeated[row_of[now][is_repeated]] = block[is_repeated]
            single = (codes[now] >= 0) & ~is_repeated
            means[codes[now][single]] = block[single]
            read += len(block)
        if read != rows.first + rows.records:
            raise ValueError("the columns of a file differ in length")

    ranges = split_row_groups(file.files.paths, choose_thread_count())
    if sum(rows.records for rows in ranges) != len(codes):
        raise ValueError("a file has changed")
    run_in_threads(read_range, ranges)
    if _file_versions(file.files.paths) != before:  # ids and vectors may belong to different records
        raise ValueError("a file has changed")
    counts = records.copy()
    usable, _ = find_finite_rows(vectors_of_repeated)
    stop = 0
    for code in np.flatnonzero(records > 1).tolist():
        start, stop = stop, stop + int(records[code])
        positions = start + np.flatnonzero(usable[start:stop])
        counts[code] = len(positions)
        _average(vectors_of_repeated, positions, means[code])
    finite, squares = find_finite_rows(means)
    counts = np.where(finite, counts, 0)
    return UserTable(
        columns=file.columns,
        sums=SumsFromMeans(means, counts, squares),
        counts=counts,
        records=records,
        in_single=narrow,
    )


def _file_versions(paths: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return inode, size and time of modification, which change if a file is replaced or written to."""
    return [(found.st_ino, found.st_size, found.st_mtime_ns) for found in map(os.stat, paths)]


def _average(rows: NDArray[Any], positions: NDArray[np.intp], out: NDArray[Any]) -> None:
    """Write the mean of some rows into `out`; numbers are sorted before they are added, so order has no effect."""
    if len(positions) == 0:
        out[...] = np.nan
        return
    width = max(1, _SORT_ELEMENTS // len(positions))
    for left in range(0, len(out), width):
        block = np.sort(rows[positions, left : left + width].astype(np.float64), axis=0)
        with np.errstate(all="ignore"):
            out[left : left + width] = np.add.reduce(block, axis=0) / len(positions)


def _number_users(file: VectorFile) -> tuple[IntArray, int]:
    """Return the number of the user of each record, -1 for none; and the number of users."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    kind = _key_type(file.types[0])
    chunks = [
        chunk.cast(kind)
        for path in file.files.paths
        for chunk in pq.read_table(path, columns=[file.user], partitioning=None).column(file.user).chunks
    ]
    keys = pc.dictionary_encode(pa.chunked_array(chunks, type=kind)).unify_dictionaries()
    codes = [pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False) for chunk in keys.chunks]
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *codes]).astype(np.int64)
    return numbers, int(numbers.max(initial=-1)) + 1


def _read_blocks(rows: RowGroupRange, file: VectorFile, dtype: type) -> Iterator[NDArray[Any]]:
    """Yield the vectors of a range in order, in blocks; a list of another length becomes a row of NaN."""
    import pyarrow.parquet as pq

    for path, row_groups in rows.row_groups:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as parquet:
            size = _choose_block_rows(parquet.metadata, file.length)
            for batch in parquet.iter_batches(
                batch_size=size, row_groups=row_groups, columns=[file.value], use_threads=False
            ):
                yield _to_rows(batch.column(file.value), file.length, dtype)


def _choose_block_rows(footer: Any, length: int) -> int:
    """Return a number of rows that is small enough for lists that are longer than they should be."""
    rows = _READ_ELEMENTS // length
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        most = max((group.column(place).num_values for place in range(group.num_columns)), default=0)
        if most > 0 and group.num_rows > 0:
            rows = min(rows, _READ_ELEMENTS * group.num_rows // most)
    return max(1, rows)


def _to_rows(lists: pa.Array, length: int, dtype: type) -> NDArray[Any]:
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


def _allocate(scratch: str, name: str, rows: int, columns: int, dtype: type) -> NDArray[Any]:
    """Return an array in memory if it is small, else in a file for which disk space is reserved."""
    size = rows * columns * np.dtype(dtype).itemsize
    if size <= _MEMORY_BYTES:
        return np.empty((rows, columns), dtype=dtype)
    path = os.path.join(scratch, name)
    try:
        with open(path, "wb") as made:
            if hasattr(os, "posix_fallocate"):
                # Without reserved space, a full disk would end the process while it writes to the mapped file.
                os.posix_fallocate(made.fileno(), 0, size)
            else:
                made.truncate(size)
    except OSError:
        raise InputError(
            "there is not enough disk space for the vectors; set TMPDIR to a folder on a larger disk"
        ) from None
    return np.memmap(path, dtype=dtype, mode="r+", shape=(rows, columns))


def _read_types(path: str, user: str, value: str) -> tuple[Any, Any]:
    """Return the declared types of both columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    broken = f"{path} cannot be read as Parquet; check that it is complete"
    schema = mask_engine_errors(lambda: pq.read_schema(path), broken)
    for name in (user, value):
        if schema.names.count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")
        if name not in schema.names:
            raise InputError(missing_column_message(name, schema.names))
    key, lists = schema.field(user).type, schema.field(value).type
    if not (pa.types.is_integer(_value_type(key)) or _is_text(_value_type(key))):
        raise InputError(
            f"column {user!r} has type {type_name(key)} and cannot identify users here; use integers or text"
        )
    return key, lists


def _declared_length(kind: Any, name: str) -> int | None:
    """Return the length of lists if their type has it."""
    import pyarrow as pa

    types = pa.types
    fixed = types.is_fixed_size_list(kind)
    lists = fixed or types.is_list(kind) or types.is_large_list(kind)
    if not lists or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise InputError(
            f"column {name!r} has type {type_name(kind)}; vectors are lists of integers or floats"
        )
    if fixed and not 1 <= kind.list_size <= MAX_LENGTH:
        raise InputError(f"the lists of {name!r} must have from 1 to {MAX_LENGTH:,} numbers")
    return kind.list_size if fixed else None


def _value_type(kind: Any) -> Any:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _key_type(kind: Any) -> Any:
    """Return the type to read keys as; text is read as bytes, which need not be UTF-8."""
    import pyarrow as pa

    return _value_type(kind) if pa.types.is_integer(_value_type(kind)) else pa.large_binary()


@dataclass(frozen=True, kw_only=True)
class RowGroupRange:
    """Consecutive Parquet row groups, by file; the number of their first record, and how many records they have."""

    row_groups: tuple[tuple[str, tuple[int, ...]], ...]
    first: int
    records: int


def split_row_groups(paths: Sequence[str], max_ranges: int) -> list[RowGroupRange]:
    """Split the records of some files, between row groups, into at most `max_ranges` ranges of similar size."""
    import pyarrow.parquet as pq

    sizes = [
        (path, number, footer.row_group(number).num_rows)
        for path in paths
        for footer in [pq.read_metadata(path)]
        for number in range(footer.num_row_groups)
    ]
    records = sum(size for _, _, size in sizes)
    ranges, first = [], 0
    ends = itertools.accumulate(size for _, _, size in sizes)
    # A row group belongs to the range in which it ends.
    by_range = itertools.groupby(
        zip(sizes, ends, strict=True), lambda one: max(one[1] - 1, 0) * max_ranges // max(records, 1)
    )
    for _, members in by_range:
        own = [size for size, _ in members]
        row_groups = [
            (path, tuple(number for _, number, _ in some))
            for path, some in itertools.groupby(own, lambda size: size[0])
        ]
        count = sum(size for _, _, size in own)
        ranges.append(RowGroupRange(row_groups=tuple(row_groups), first=first, records=count))
        first += count
    return ranges
