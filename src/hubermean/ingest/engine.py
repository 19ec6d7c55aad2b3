"""The contract between reading and the engines: what an engine is given, what it returns, how its errors are masked.

An engine turns rows into exact integers, one entry per user or per user and group. What the integers mean is decided by
`Schema`, in the same way for all engines. To add an engine, write a package with a `source` module that has an `ENGINE`
and list it in `ENGINES`; the conformance suite (tests/ingest/test_engines.py) then runs on it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.encoding import BINARY
from hubermean.data.fixed_point import ExactIntegers, ExactSums
from hubermean.data.group_table import GroupKey
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.errors import InputError, parameter
from hubermean.ingest.schema import ColumnRoles, Schema, ValueColumn
from hubermean.types.options import EngineOptions, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

ENGINES = {"duckdb": "hubermean.ingest.duckdb.source", "spark": "hubermean.ingest.spark.source"}
"""Name of each engine, and the module that holds it as `ENGINE`; modules are imported on first use."""

MAX_THREADS = 1024
IDENTITY_SEPARATOR = 31
"""Code of the character between the identities of a user and of a group in the text that is hashed to order groups."""

READ_FAILED = (
    "the data could not be read completely; check that the files or the query are complete and well formed, and that "
    "there is enough memory and space for temporary files"
)
"""The message for every failure after reading has begun: the cause may depend on one user's records."""

_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(i?)B\s*", re.IGNORECASE | re.ASCII)
_SIZE_PREFIXES = ("", "K", "M", "G", "T")
MIN_MEMORY = 10**7  # DuckDB does not start with less


# --- what an engine is given -----------------------------------------------------------------------------------------


def check_engine_options(options: EngineOptions) -> None:
    """Raise InputError for a memory limit or a number of threads that no engine accepts."""
    if options.memory_limit is not None and parse_size(options.memory_limit) < MIN_MEMORY:
        raise InputError(
            f"{parameter('memory_limit')} must be at least {MIN_MEMORY // 10**6}MB, not "
            f"{options.memory_limit!r}"
        )
    threads = options.threads
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS
    ):
        raise InputError(
            f"{parameter('threads')} must be a whole number from 1 to {MAX_THREADS}, not {threads!r}"
        )


def parse_size(text: str) -> int:
    """Return the bytes that a memory limit such as "2GB" or "512 MiB" stands for."""
    found = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"{parameter('memory_limit')} must be a size such as '2GB', not {text!r}")
    number, prefix, binary = found.groups()
    unit = (1024 if binary else 1000) ** _SIZE_PREFIXES.index(prefix.upper())
    return int(Fraction(number) * unit)


@dataclass(frozen=True, kw_only=True)
class PublicGroups:
    """Public groups: as the caller wrote them, and as the texts that identify them (`ingest.identity`)."""

    keys: Sequence[GroupKey]
    texts: Sequence[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """Which groups to read.

    Attributes:
        public: the public groups; None if groups are private.
        max_groups: number of groups that a user counts in; None for all of its groups.
    """

    public: PublicGroups | None
    max_groups: int | None


@dataclass(frozen=True, kw_only=True, repr=False)
class GroupEntries:
    """What an engine makes of records in groups; no identity of a user is left.

    Attributes:
        entries: sums and counts, one entry per user and group.
        owners: the number of the user of each entry; see `ingest.numbering`.
        n_owners: number of users, in a group or not; all numbers are below it.
        groups: the position in `names` of the group of each entry; -1 for none.
        names: the texts that identify each group, one per group column; None for one that is no UTF-8.
    """

    entries: UserTable
    owners: IntArray
    n_owners: int
    groups: IntArray
    names: Sequence[tuple[str | None, ...]]


class Source(Protocol):
    """Data that an engine has opened. Only the schema is read before `read_users` or `read_group_entries`."""

    @property
    def schema(self) -> Schema: ...

    @property
    def countable(self) -> bool:
        """Whether users may be counted under relations that make their number public.

        False for a query, whose rows may depend on what users hold, and for text files, where a malformed record may
        have no known user.
        """

    def max_local_users(self, values: Sequence[ValueColumn], *, records: bool) -> int | None:
        """`PrivateTable.max_local_users` of the table that `read_users` will return."""

    def read_users(self, values: Sequence[ValueColumn], *, records: bool) -> PrivateTable:
        """Return exact sums and counts per user; with `records`, also the number of all records.

        Raises:
            InputError: any failure, always with the same message.
        """

    def read_group_entries(self, values: Sequence[ValueColumn], groups: GroupOptions) -> GroupEntries:
        """Return exact sums and counts per user and group.

        Where a user counts in a bounded number of groups, which ones follows from the identities of the user and of its
        groups alone (the order of MD5 sums of both).

        Raises:
            InputError: any failure, always with the same message.
        """


class Engine(Protocol):
    """A way to read and group data."""

    @property
    def name(self) -> str: ...

    def open(self, data: Any, roles: ColumnRoles, options: ReadOptions) -> AbstractContextManager[Source]:
        """Open data and read its schema.

        Raises:
            InputError: this engine cannot read the data, or a column is missing; the message quotes no data.
        """


def select_engine(data: Any, name: str | None = None) -> Engine:
    """Return the engine of that name; by default Spark for PySpark data frames and DuckDB for everything else."""
    if name is None:
        name = "spark" if type(data).__module__.startswith("pyspark.sql") else "duckdb"
    if not isinstance(name, str) or name not in ENGINES:
        raise InputError(f"{parameter('engine')} must be {' or '.join(map(repr, ENGINES))}, not {name!r}")
    engine: Engine = import_module(ENGINES[name]).ENGINE
    return engine


# --- what an engine returns ------------------------------------------------------------------------------------------


def build_user_table(
    table: pa.Table, values: Sequence[ValueColumn], *, sums: Sequence[ExactSums | None] | None = None
) -> UserTable:
    """Return the sums and counts of an engine, per user or per user and group, as a `UserTable`.

    Args:
        table: column `usable` has the number of usable records, `records` that of all records (if they were counted).
            The sum of the first value is in `value_0`, or in `value_0_high` and `value_0_low` for the two parts of its
            encoding, or in `value_0_0`, `value_0_1`, ... for the parts of `ValueColumn.parts`.
        values: the value columns.
        sums: the sums of columns that are not in the table; None for one that is.
    """
    usable = int64_array(table.column("usable"))
    records = int64_array(table.column("records")) if "records" in table.column_names else usable
    known = sums or [None] * len(values)
    whole = tuple(
        own if own is not None else _column_sums(table, f"value_{number}", value)
        for number, (value, own) in enumerate(zip(values, known, strict=True))
    )
    return UserTable(
        columns=tuple(value.name for value in values), sums=whole, counts=usable, records=records
    )


def _column_sums(table: pa.Table, name: str, value: ValueColumn) -> ExactSums:
    if f"{name}_0" in table.column_names:
        columns = [table.column(f"{name}_{place}") for place in range(len(value.parts))]
        return _combine_parts(value, [_exact_integers(column) for column in columns])
    if name not in table.column_names:
        high, low = (_exact_integers(table.column(f"{name}_{part}")) for part in ("high", "low"))
        return ExactSums.from_parts(value.encoding, high, low)
    if value.encoding == BINARY:
        return ExactSums.from_binary_words(map(decimal_words, table.column(name).chunks))
    return ExactSums(encoding=value.encoding, low=_exact_integers(table.column(name)))


def _combine_parts(value: ValueColumn, parts: Sequence[ExactIntegers]) -> ExactSums:
    """Combine the sums of the parts of a value into the same representation that one sum would have."""
    if len(parts) == 1:
        return ExactSums(encoding=value.encoding, low=parts[0])
    if value.encoding == BINARY:
        return ExactSums.from_parts(BINARY, *parts)
    factors = [part.factor for part in value.parts]
    totals = [
        sum(factor * part[position] for factor, part in zip(factors, parts, strict=True))
        for position in range(len(parts[0]))
    ]
    return ExactSums(encoding=value.encoding, low=ExactIntegers.from_integers(totals))


def _exact_integers(column: pa.ChunkedArray) -> ExactIntegers:
    """Read a column of 128-bit or 64-bit integers; null, for a user without usable records, is zero."""
    if str(column.type) == "int64":
        return ExactIntegers(int64_array(column.fill_null(0) if column.null_count else column), {})
    return ExactIntegers.from_words(map(decimal_words, column.chunks))


def int64_array(column: pa.ChunkedArray | pa.Array) -> IntArray:
    """Return a column of integers as a numpy array."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = np.from_dlpack(whole)  # `to_numpy` would import pandas
    # Counts of DuckDB have no sign, and are far below the largest integer with one.
    signed: IntArray = (
        array.view(np.int64) if array.dtype == np.uint64 else array.astype(np.int64, copy=False)
    )
    return signed


def decimal_words(chunk: Any) -> tuple[IntArray, IntArray]:
    """Return the low and high 64-bit words of each decimal128 (Arrow's layout); null is zero."""
    if not str(chunk.type).startswith("decimal128"):
        raise TypeError("a sum of integers must arrive as a 128-bit decimal")
    words = np.frombuffer(chunk.buffers()[1], dtype="<i8").reshape(-1, 2)[
        chunk.offset : chunk.offset + len(chunk)
    ]
    if chunk.null_count:
        words = np.where(np.asarray(chunk.is_null())[:, np.newaxis], 0, words)
    return words[:, 0], words[:, 1]


# --- errors of an engine ---------------------------------------------------------------------------------------------


def mask_engine_errors(work: Callable[[], T], message: str, *, foreign: bool = False) -> T:
    """Run `work`; raise InputError with a fixed message in place of an engine's error, whose text may quote data.

    The new error is raised outside the handler of the old one, so that it does not carry it as context. Set `foreign`
    for work that runs code of other libraries, such as a lazy frame's, which may raise any exception.
    """
    import duckdb
    import pyarrow as pa

    try:
        return work()
    except InputError:
        raise
    except (
        duckdb.Error,
        pa.ArrowException,
        LookupError,
        UnicodeError,
        ValueError,
        TypeError,
        OSError,
        RuntimeError,
        MemoryError,
    ) as error:
        interrupted = type(error) is RuntimeError and str(error) == "Query interrupted"
    except BaseException as error:
        # A panic of Rust code is no Exception.
        failed = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if not (foreign and failed):
            raise
        interrupted = False
    if interrupted:  # DuckDB noticed the interrupt and raised an error of its own
        raise KeyboardInterrupt
    raise InputError(message)


def mask_errors(work: Callable[[], T], message: str) -> T:
    """Run `work` on records; raise InputError with a fixed message in place of every error, InputError included."""
    with contextlib.suppress(InputError):
        return mask_engine_errors(work, message, foreign=True)
    raise InputError(message)
