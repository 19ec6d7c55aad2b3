"""The private table that every mechanism works on: exact sums and counts, one entry per user, no user ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubermean.accounting.arguments import is_real
from hubermean.data import threads
from hubermean.data.arrays import FloatArray, IntArray, find_finite_rows
from hubermean.data.encoding import BINARY, encode_binary
from hubermean.data.fixed_point import USERS_PER_BLOCK, ExactIntegers, ExactSums
from hubermean.data.threads import run_in_threads, split_rows
from hubermean.errors import InputError, parameter

T = TypeVar("T")
MAX_COUNT = 2**40

_WORK_PER_USER = 2**5  # numbers that a pass over users typically reads or writes per user
_MAX_CACHED_ELEMENTS = 2**25  # over all columns: 256 MB for each cached array
_SHOWN_NAMES = 8


class PrivateTable(Protocol):
    """Users and their sums and counts, on one machine (`UserTable`) or on many."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def n_users(self) -> int: ...

    @property
    def limits(self) -> tuple[Fraction, ...]: ...

    @property
    def max_local_users(self) -> int | None:
        """The number of users up to which data of this origin are held on one machine: public. None for any number."""

    def map_partitions(self, query: Callable[[UserTable], T]) -> list[T]:
        """Apply `query` to every partition in one pass over all users; return the results, which must be small.

        Every user is in exactly one partition, with the same numbers in every pass. There is at least one partition,
        which may be empty. Number, sizes and composition of partitions carry no meaning and may differ between passes.
        `query` may run on another machine: it is pickled, and so is its result.
        """

    def collect(self) -> UserTable:
        """Return all users on this machine, for a mechanism that does not run on partitions."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserTable:
    """Sums and counts of each user. Everything here is private; the arrays are read-only.

    Attributes:
        columns: names of the value columns, in the caller's order.
        sums: per column, each user's exact sum over its usable records.
        counts: each user's number of usable records (all of its values present and finite), shape (n,).
        records: each user's number of records, usable or not; public under `replace-values`.
        in_single: whether whole vectors may be computed in single precision: public, it follows from the declared type.
        max_local_users: see `PrivateTable`; the same for every table of the same origin, on one machine or not.
        cache: intermediate results of one release, by key; None for no caching.

    A user without usable records stays in the table with a count of zero. The order of users carries no meaning. The
    representation shows no number, so a table in a log or a traceback reveals nothing.
    """

    columns: tuple[str, ...]
    sums: Sequence[ExactSums]
    counts: IntArray
    records: IntArray
    in_single: bool = False
    max_local_users: int | None = None
    cache: dict[Hashable, Any] | None = None

    def __post_init__(self) -> None:
        self.counts.flags.writeable = False
        self.records.flags.writeable = False

    # A numpy warning that the caller turned into an error would depend on the data.
    @classmethod
    @np.errstate(all="ignore")
    def from_means(cls, means: ArrayLike, counts: ArrayLike | None = None) -> Self:
        """Return the table of given user means, shape (n,) or (n, d), and numbers of records behind each mean.

        A user whose mean is not finite counts as unusable, the same rule as for records. An array of numbers is kept by
        reference, whatever its type, and read in blocks: it may be a memory map larger than memory.
        """
        array = _numbers(means, "means")
        if array.ndim == 1:
            array = array[:, np.newaxis]
        if array.ndim != 2 or array.shape[1] == 0:
            raise InputError("means must have shape (n,) or (n, d), one row per user")
        n_users, dimension = array.shape
        records = _record_counts(counts, n_users)
        finite, squares = find_finite_rows(array)
        used = np.where(finite, records, 0)
        names = ("mean",) if dimension == 1 else tuple(f"mean_{column}" for column in range(dimension))
        return cls(
            columns=names,
            sums=SumsFromMeans(array, used, squares),
            counts=used,
            records=records,
            in_single=_is_declared_single(means),
        )

    @property
    def n_users(self) -> int:
        """Number of users: private under `add-remove`."""
        return len(self.counts)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        """Per column, the largest magnitude that its encoding can hold: public, it follows from the declared type."""
        if isinstance(self.sums, SumsFromMeans):
            return (BINARY.limit,) * len(self.sums)
        return tuple(sums.encoding.limit for sums in self.sums)

    def matrix(self) -> NDArray[Any]:
        """Return each user's mean, shape (n, d), read-only: given means as they are, of any type, others as doubles.

        For vector mechanisms that bound their own rounding; one-column mechanisms round exactly from the integers.
        Rows of users with a count of zero are undefined.
        """
        if isinstance(self.sums, SumsFromMeans):
            return self.sums.array
        array = np.empty((self.n_users, len(self.sums)))
        for column, sums in enumerate(self.sums):
            array[:, column] = sums.means(self.counts)
        return array

    def squared_row_norms(self) -> FloatArray | None:
        """Return `squared_row_norms` of `matrix` if they were computed when the table was made, else None."""
        return self.sums.squares if isinstance(self.sums, SumsFromMeans) else None

    def with_cache(self) -> UserTable:
        """Return the same users with a cache for one release, unless that would take much memory."""
        small = self.n_users * len(self.columns) <= _MAX_CACHED_ELEMENTS
        return replace(self, cache={}) if small else self

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what `compute` returns, computed once per key if this table has a cache; read-only."""
        if self.cache is None:
            return compute()
        if key not in self.cache:
            self.cache[key] = compute()
        found: T = self.cache[key]
        return found

    def column_means(self, column: int) -> FloatArray:
        """Return one column of `matrix` as doubles."""
        return self.cached(("means", column), lambda: self._column_means(column))

    def means_are_accurate(self, column: int) -> bool:
        """Whether every one of `column_means` has a relative error of at most 2^-51, or an absolute one of 2^-60."""
        return isinstance(self.sums, SumsFromMeans) or self.sums[column].means_are_accurate()

    def _column_means(self, column: int) -> FloatArray:
        if not isinstance(self.sums, SumsFromMeans):
            return self.sums[column].means(self.counts)
        with np.errstate(over="ignore"):
            means = self.sums.array[:, column].astype(np.float64)
        # Values beyond the limit are clamped to it, as in their exact sums.
        return np.clip(means, -float(BINARY.limit), float(BINARY.limit), out=means)

    @property
    def means(self) -> FloatArray:
        """Each user's mean as doubles, shape (n,) for one column, else (n, d); NaN for a count of zero. A copy."""
        with np.errstate(over="ignore"):
            means = self.matrix().astype(np.float64)
        means[self.counts == 0] = math.nan
        return means[:, 0] if means.shape[1] == 1 else means

    def map_partitions(self, query: Callable[[UserTable], T]) -> list[T]:
        """Apply `query` to all users as one partition, or, for many users, to one partition per processor."""
        partitions = self.cached("partitions", self._partitions)
        return [query(self)] if len(partitions) == 1 else run_in_threads(query, partitions)

    def _partitions(self) -> list[UserTable]:
        if self.n_users * _WORK_PER_USER < threads.MIN_PARALLEL_ELEMENTS:
            return [self]
        ranges = split_rows(self.n_users, _WORK_PER_USER)
        if len(ranges) == 1:
            return [self]
        return [replace(self._part(rows), cache=None if self.cache is None else {}) for rows in ranges]

    def blocks(self) -> Iterator[UserTable]:
        """Yield all users in blocks whose intermediate results fit the processor's cache."""
        # Every block would search all sums beyond 64 bits for its own, so with such sums there is one block.
        held = isinstance(self.sums, SumsFromMeans)
        if self.n_users <= USERS_PER_BLOCK or (not held and any(sums.beyond_64_bits() for sums in self.sums)):
            yield self
            return
        for start in range(0, self.n_users, USERS_PER_BLOCK):
            yield self._part(slice(start, min(start + USERS_PER_BLOCK, self.n_users)))

    def _part(self, rows: slice) -> UserTable:
        """Return the users of a range, as a view."""
        if rows == slice(0, self.n_users):
            return self
        counts = self.counts[rows]
        if isinstance(self.sums, SumsFromMeans):
            sums: Sequence[ExactSums] = self.sums.part(rows, counts)
        else:
            sums = tuple(one.part(rows) for one in self.sums)
        return UserTable(
            columns=self.columns,
            sums=sums,
            counts=counts,
            records=self.records[rows],
            in_single=self.in_single,
        )

    def collect(self) -> UserTable:
        """Return this table: all users are on this machine."""
        return self

    def take(self, positions: IntArray) -> UserTable:
        """Return the table of the users at `positions`; position -1 stands for a user without usable records."""
        absent = positions < 0
        if not len(self.counts):
            counts, records = np.zeros((2, len(positions)), dtype=np.int64)
        else:
            counts = np.where(absent, 0, self.counts[positions])
            records = np.where(absent, 0, self.records[positions])
        return UserTable(
            columns=self.columns,
            sums=tuple(sums.take(positions) for sums in self.sums),
            counts=counts,
            records=records,
            in_single=self.in_single,
        )

    def __repr__(self) -> str:
        hidden = len(self.columns) - _SHOWN_NAMES
        more = f" and {hidden:,} more" if hidden > 0 else ""
        return f"UserTable(columns={self.columns[:_SHOWN_NAMES]!r}{more}, private contents not shown)"


class _PaddedTable:
    """Partitioned users, and a number of additional users without usable records."""

    def __init__(self, table: PrivateTable, n_added: int) -> None:
        self.columns, self.limits, self.max_local_users = table.columns, table.limits, table.max_local_users
        self.n_users = table.n_users + n_added
        self._table = table
        self._n_added = n_added
        self._added: UserTable | None = None

    def map_partitions(self, query: Callable[[UserTable], T]) -> list[T]:
        if self._added is None:
            results = self._table.map_partitions(_QueryAndTemplate(query))
            self._added = results[0][1].take(np.full(self._n_added, -1))
            return [*(result for result, _ in results), query(self._added)]
        return [*self._table.map_partitions(query), query(self._added)]

    def collect(self) -> UserTable:
        return _add_unusable_users(self._table.collect(), self._n_added)

    def __repr__(self) -> str:
        return f"{self._table!r} and users without usable records"


@dataclass(frozen=True)
class _QueryAndTemplate(Generic[T]):
    """The result of a query on a partition, and the partition without users, as a template for an added partition."""

    query: Callable[[UserTable], T]

    def __call__(self, part: UserTable) -> tuple[T, UserTable]:
        return self.query(part), part.take(np.empty(0, dtype=np.int64))


def _add_unusable_users(table: UserTable, n_added: int) -> UserTable:
    """Add users without usable records.

    Given means stay as they are: recomputed from sums, those of all users would reveal that a user is missing.
    """
    if not isinstance(table.sums, SumsFromMeans):
        positions = np.concatenate([np.arange(table.n_users), np.full(n_added, -1)]).astype(np.int64)
        return replace(table.take(positions), max_local_users=table.max_local_users)
    zeros = np.zeros(n_added, dtype=np.int64)
    counts, records = np.append(table.counts, zeros), np.append(table.records, zeros)
    return replace(table, sums=table.sums.pad(n_added, counts), counts=counts, records=records, cache=None)


def check_user_count(found: int, n_users: int) -> None:
    """Raise InputError if the data have more users than the caller said."""
    if found > n_users:
        raise InputError(
            f"the data have more users than {parameter('n_users')}; set {parameter('n_users')} to "
            "the number of all users"
        )


def pad_users(table: PrivateTable, n_users: int) -> PrivateTable:
    """Return the table extended to `n_users` users; the added users have no usable records.

    Raises:
        InputError: the table has more users.
    """
    check_user_count(table.n_users, n_users)
    more = n_users - table.n_users
    if more == 0:
        return table
    return _add_unusable_users(table, more) if isinstance(table, UserTable) else _PaddedTable(table, more)


class SumsFromMeans(Sequence[ExactSums]):
    """The exact sums that correspond to given means, one per column, computed on each access.

    Holding the integers of all columns would take several times the memory of the means.
    """

    def __init__(self, array: NDArray[Any], counts: IntArray, squares: FloatArray | None = None) -> None:
        self.array = array.view()
        self.array.flags.writeable = False
        self.squares = squares
        self._counts = counts

    def part(self, rows: slice, counts: IntArray) -> SumsFromMeans:
        """Return the sums of a range of users, who have these counts."""
        squares = None if self.squares is None else self.squares[rows]
        return SumsFromMeans(self.array[rows], counts, squares)

    def pad(self, n_added: int, counts: IntArray) -> SumsFromMeans:
        """Return the sums with those of added users without usable records; `counts` are those of all users."""
        array = np.concatenate([self.array, np.zeros((n_added, len(self)), dtype=self.array.dtype)])
        squares = None if self.squares is None else np.append(self.squares, np.zeros(n_added))
        return SumsFromMeans(array, counts, squares)

    def __len__(self) -> int:
        return int(self.array.shape[1])

    @overload
    def __getitem__(self, column: int) -> ExactSums: ...

    @overload
    def __getitem__(self, column: slice) -> tuple[ExactSums, ...]: ...

    def __getitem__(self, column: int | slice) -> ExactSums | tuple[ExactSums, ...]:
        if isinstance(column, slice):
            return tuple(self[position] for position in range(*column.indices(len(self))))
        held = self.array[:, column]  # IndexError beyond the last column ends an iteration
        n_users = len(held)
        high, low = (ExactIntegers(np.empty(n_users, dtype=np.int64), {}) for _ in range(2))
        # In blocks: intermediate arrays would take three times the memory of the sums.
        for start in range(0, n_users, USERS_PER_BLOCK):
            block = slice(start, start + USERS_PER_BLOCK)
            counts = self._counts[block]
            with np.errstate(over="ignore"):
                means = held[block].astype(np.float64)
            means[counts == 0] = 0.0
            for integers, whole in zip(encode_binary(means), (high, low), strict=True):
                products = ExactIntegers.products(integers, counts)
                whole.small[block] = products.small
                whole.large.update({start + place: number for place, number in products.large.items()})
        return ExactSums(encoding=BINARY, high=high, low=low)


def _is_declared_single(values: ArrayLike) -> bool:
    """Whether the caller declared single precision or half of it: with an array of numpy's, in any byte order.

    Other containers choose the type of an array from their content: a missing value makes floats of integers, a text
    makes objects of floats. The data of one user must not decide how those of others are rounded.
    """
    if type(values) not in (np.ndarray, np.memmap):
        return False
    dtype = np.asarray(values).dtype
    return dtype.kind == "f" and dtype.itemsize <= np.dtype(np.float32).itemsize


def _numbers(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return an array of numbers; without a numeric type, each cell is converted by itself, to NaN if it is no number.

    numpy infers the type of an array from its content: one text would turn all numbers beside it into texts.
    """
    array = _array(values, name)
    if array.dtype.kind in "iufb":
        return array
    if array.dtype.names is not None:
        raise InputError(f"{parameter(name)} must be an array of numbers")
    cells = array.ravel().tolist() if array.dtype.kind != "O" else array.ravel()
    if any(isinstance(value, list | tuple | np.ndarray) for value in cells):
        raise InputError(f"{parameter(name)} must have shape (n,) or (n, d), with rows of one length")
    return np.array([_float(value) for value in cells], dtype=np.float64).reshape(array.shape)


def _record_counts(counts: ArrayLike | None, n_users: int) -> IntArray:
    if counts is None:
        return np.ones(n_users, dtype=np.int64)
    array = _array(counts, "counts")
    if array.shape != (n_users,) or array.dtype.names is not None:
        raise InputError("counts must be one whole number per user, in the order of the means")
    # A count out of range is clamped, not refused: an error would depend on that user's data.
    if array.dtype.kind not in "iu":
        return np.array([_count(count) for count in array.tolist()], dtype=np.int64)
    clamped: IntArray = np.clip(array, 0, MAX_COUNT).astype(np.int64)
    return clamped


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Convert to an array whose type does not depend on single values: lists become arrays of objects."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(object), None)
    try:
        return np.asarray(values, dtype=_list_type(values))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{parameter(name)} must be an array with one row of numbers per user") from None


def _list_type(values: ArrayLike) -> Any:
    return object if isinstance(values, list | tuple) else None


def _float(value: Any) -> float:
    """Return a number, or the number that a text holds; NaN for anything else."""
    try:
        if isinstance(value, complex):
            value = value.real if value.imag == 0.0 else math.nan
        return float(value) if is_real(value) or isinstance(value, bool | Decimal | str | bytes) else math.nan
    except Exception:  # noqa: BLE001 - code of a cell's class may raise anything; the cell is then no number
        return math.nan


def _count(value: Any) -> int:
    """Return a whole number, of whatever type; zero for anything else."""
    if not isinstance(value, Integral):
        value = _float(value)
        if not (math.isfinite(value) and value == math.trunc(value)):
            return 0
    return min(max(int(value), 0), MAX_COUNT)
