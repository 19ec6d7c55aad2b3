"""The private table every mechanism works on: exact sums and counts, one entry per user, no user ids."""

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

from hubermean.errors import InputError, is_real
from hubermean.exact import BINARY, ExactIntegers, ExactSums
from hubermean.exact.encoding import encode_binary
from hubermean.exact.sums import USERS_AT_A_TIME
from hubermean.row_squares import row_squares
from hubermean.threads import at_once, shared_out, shares

T = TypeVar("T")
IntArray = NDArray[np.int64]
LARGEST_COUNT = 2**40

_BLOCK_ELEMENTS = 2**19
_WORK_ON_A_USER = 2**5  # numbers that a pass over users reads or makes for each of them, or so
_MOST_KEPT = 2**25  # numbers of all columns: 256 MB for each thing that is kept
_NAMES_SHOWN = 8


class PrivateTable(Protocol):
    """What a mechanism may ask of users, whether they are held on one machine (`UserTable`) or on many."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def n_users(self) -> int: ...

    @property
    def limits(self) -> tuple[Fraction, ...]: ...

    @property
    def held_up_to(self) -> int | None:
        """How many users at most would be on one machine, were there so many: public. None if all, however many."""

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        """One pass over all users, part by part: what `look` makes of each part, which must be small.

        Every user is in one part, with the same numbers in every pass. There is at least one part, which may be empty.
        How many parts there are, how large they are and which users share one means nothing and may differ from pass to
        pass. `look` may run on another machine: it is pickled, and so is what it returns.
        """

    def collected(self) -> UserTable:
        """All users on this machine, for a mechanism that cannot work on parts."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserTable:
    """What is known of each user after grouping. Everything here is private, the arrays are read-only.

    Attributes:
        columns: names of the value columns, in the caller's order.
        sums: per column, each user's exact sum over its usable records; made when asked for where means are held.
        counts: each user's number of usable records (all of its values present and finite), shape (n,).
        records: each user's number of records, usable or not; what is public under `replace-values`.
        held_up_to: see `PrivateTable`; the same for every table of the same origin, on one machine or not.
        kept: what was made of these users for one release, by name; None where nothing is kept.

    A user whose records are all unusable stays in the table with a count of zero. The order of users means
    nothing. The representation shows no number, so that a table in a log or a traceback tells nothing.
    """

    columns: tuple[str, ...]
    sums: Sequence[ExactSums]
    counts: IntArray
    records: IntArray
    held_up_to: int | None = None
    kept: dict[Hashable, Any] | None = None

    def __post_init__(self) -> None:
        self.counts.flags.writeable = False
        self.records.flags.writeable = False

    @classmethod
    @np.errstate(all="ignore")  # whatever the caller has numpy do: an error would tell of the data
    def from_means(cls, means: ArrayLike, counts: ArrayLike | None = None) -> Self:
        """From user means that are held already: shape (n,) or (n, d), with the records behind each mean.

        A mean that is not finite makes that user unusable, the same rule as for records. An array of numbers is
        kept by reference, whatever its type, and read in blocks: it may be a memory map larger than memory.
        """
        array = _numbers(means, "means")
        if array.ndim == 1:
            array = array[:, np.newaxis]
        if array.ndim != 2 or array.shape[1] == 0:
            raise InputError("means must have shape (n,) or (n, d), one row per user")
        n_users, dimension = array.shape
        records = _record_counts(counts, n_users)
        finite, squares = looked_through(array)
        used = np.where(finite, records, 0)
        names = ("mean",) if dimension == 1 else tuple(f"mean_{column}" for column in range(dimension))
        return cls(columns=names, sums=HeldMeans(array, used, squares), counts=used, records=records)

    @property
    def n_users(self) -> int:
        """How many users there are: private under `add-remove`."""
        return len(self.counts)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        """Per column, the largest magnitude its encoding can hold: public, it follows from the declared type."""
        if isinstance(self.sums, HeldMeans):
            return (BINARY.limit,) * len(self.sums)
        return tuple(sums.encoding.limit for sums in self.sums)

    def matrix(self) -> NDArray[Any]:
        """Each user's mean, shape (n, d), for reading: held means as they are, of any type, others as floats.

        For vector mechanisms that bound their own rounding; one-column mechanisms round exactly from the integers.
        The rows of users with a count of zero have no meaning.
        """
        if isinstance(self.sums, HeldMeans):
            return self.sums.array
        array = np.empty((self.n_users, len(self.sums)))
        for column, sums in enumerate(self.sums):
            array[:, column] = sums.means(self.counts)
        return array

    def row_squares(self) -> NDArray[np.float64] | None:
        """About the sum of squares of each row of `matrix`, as `hubermean.row_squares` makes it, where it is held."""
        return self.sums.squares if isinstance(self.sums, HeldMeans) else None

    def keeping(self) -> UserTable:
        """The same users for a release that asks the same of them again and again, unless that takes much memory."""
        small = self.n_users * len(self.columns) <= _MOST_KEPT
        return replace(self, kept={}) if small else self

    def keep(self, what: Hashable, make: Callable[[], T]) -> T:
        """What is made of these users, where they are `keeping` only once; not to be written to."""
        if self.kept is None:
            return make()
        if what not in self.kept:
            self.kept[what] = make()
        made: T = self.kept[what]
        return made

    def column_means(self, column: int) -> NDArray[np.float64]:
        """As `matrix`, of one column, as floats."""
        return self.keep(("means", column), lambda: self._column_means(column))

    def means_are_close(self, column: int) -> bool:
        """Whether all of `column_means` are off by no more than 4 parts in 2^53 of themselves, or 2^-60."""
        return isinstance(self.sums, HeldMeans) or self.sums[column].means_are_close()

    def _column_means(self, column: int) -> NDArray[np.float64]:
        if not isinstance(self.sums, HeldMeans):
            return self.sums[column].means(self.counts)
        with np.errstate(over="ignore"):
            means = self.sums.array[:, column].astype(np.float64)
        # As their exact sums are: what lies beyond counts as the limit.
        return np.clip(means, -float(BINARY.limit), float(BINARY.limit), out=means)

    @property
    def means(self) -> NDArray[np.float64]:
        """Each user's mean as floats, shape (n,) for one column, else (n, d); NaN where a count is zero.

        For inspection: a copy.
        """
        with np.errstate(over="ignore"):
            means = self.matrix().astype(np.float64)
        means[self.counts == 0] = math.nan
        return means[:, 0] if means.shape[1] == 1 else means

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        """All users are one part, or, where they are many, a part for each processor."""
        return at_once(look, self.keep("parts", self._parts))

    def _parts(self) -> list[UserTable]:
        ranges = shares(self.n_users, _WORK_ON_A_USER)
        if len(ranges) == 1:
            return [self]
        return [replace(self._part(share), kept=None if self.kept is None else {}) for share in ranges]

    def blocks(self) -> Iterator[UserTable]:
        """All users, so many at a time that what is computed of them stays in the processor's cache."""
        # To find a block's sums beyond 64 bits all such sums are gone through, so with some there is one block.
        held = isinstance(self.sums, HeldMeans)
        if self.n_users <= USERS_AT_A_TIME or (not held and any(sums.beyond_64_bits() for sums in self.sums)):
            yield self
            return
        for start in range(0, self.n_users, USERS_AT_A_TIME):
            yield self._part(slice(start, min(start + USERS_AT_A_TIME, self.n_users)))

    def _part(self, share: slice) -> UserTable:
        """The users of a range, as a view."""
        if share == slice(0, self.n_users):
            return self
        counts = self.counts[share]
        if isinstance(self.sums, HeldMeans):
            sums: Sequence[ExactSums] = self.sums.part(share, counts)
        else:
            sums = tuple(one.part(share) for one in self.sums)
        return UserTable(columns=self.columns, sums=sums, counts=counts, records=self.records[share])

    def collected(self) -> UserTable:
        """It is here already."""
        return self

    def taken(self, positions: IntArray) -> UserTable:
        """The table of some of the users, or of entries -1, which stand for users without a usable record."""
        absent = positions < 0
        if not len(self.counts):  # nobody to take; all that was asked for is absent
            counts, records = np.zeros((2, len(positions)), dtype=np.int64)
        else:
            counts = np.where(absent, 0, self.counts[positions])
            records = np.where(absent, 0, self.records[positions])
        return UserTable(
            columns=self.columns,
            sums=tuple(sums.taken(positions) for sums in self.sums),
            counts=counts,
            records=records,
        )

    def __repr__(self) -> str:
        hidden = len(self.columns) - _NAMES_SHOWN
        more = f" and {hidden:,} more" if hidden > 0 else ""
        return f"UserTable(columns={self.columns[:_NAMES_SHOWN]!r}{more}, private contents not shown)"


class _Padded:
    """Users in parts, and so many more without a usable record."""

    def __init__(self, table: PrivateTable, more: int) -> None:
        self.columns, self.limits, self.held_up_to = table.columns, table.limits, table.held_up_to
        self.n_users = table.n_users + more
        self._table = table
        self._more = more
        self._others: UserTable | None = None

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        if self._others is None:
            answers = self._table.each_part(_LookAndForm(look))
            self._others = answers[0][1].taken(np.full(self._more, -1))
            return [*(answer for answer, _ in answers), look(self._others)]
        return [*self._table.each_part(look), look(self._others)]

    def collected(self) -> UserTable:
        return _with_more(self._table.collected(), self._more)

    def __repr__(self) -> str:
        return f"{self._table!r} and users without a usable record"


@dataclass(frozen=True)
class _LookAndForm(Generic[T]):
    """What a look makes of a part, and the same part without users, which has the form of any."""

    look: Callable[[UserTable], T]

    def __call__(self, part: UserTable) -> tuple[T, UserTable]:
        return self.look(part), part.taken(np.empty(0, dtype=np.int64))


def _with_more(table: UserTable, more: int) -> UserTable:
    """Means that are held stay so: made anew from sums, those of all users would tell that somebody is not there."""
    if not isinstance(table.sums, HeldMeans):
        positions = np.concatenate([np.arange(table.n_users), np.full(more, -1)]).astype(np.int64)
        return replace(table.taken(positions), held_up_to=table.held_up_to)
    nobody = np.zeros(more, dtype=np.int64)
    counts, records = np.append(table.counts, nobody), np.append(table.records, nobody)
    return replace(table, sums=table.sums.with_more(more, counts), counts=counts, records=records, kept=None)


def padded(table: PrivateTable, n_users: int) -> PrivateTable:
    """The table of so many users, of whom those who are not there have no usable record.

    Raises:
        InputError: there are more.
    """
    more = n_users - table.n_users
    if more < 0:
        raise InputError("there are more users than n_users says; give the number of all users")
    if more == 0:
        return table
    return _with_more(table, more) if isinstance(table, UserTable) else _Padded(table, more)


class HeldMeans(Sequence[ExactSums]):
    """The exact sums that stand behind means a caller holds, one per column, made anew whenever asked for.

    The integers of all columns would take several times the memory of the means.
    """

    def __init__(
        self, array: NDArray[Any], counts: IntArray, squares: NDArray[np.float64] | None = None
    ) -> None:
        self.array = array.view()
        self.array.flags.writeable = False
        self.squares = squares
        self._counts = counts

    def part(self, share: slice, counts: IntArray) -> HeldMeans:
        """Of users in succession, whose counts these are."""
        squares = None if self.squares is None else self.squares[share]
        return HeldMeans(self.array[share], counts, squares)

    def with_more(self, more: int, counts: IntArray) -> HeldMeans:
        """And so many more, without a usable record; `counts` are those of all."""
        array = np.concatenate([self.array, np.zeros((more, len(self)), dtype=self.array.dtype)])
        squares = None if self.squares is None else np.append(self.squares, np.zeros(more))
        return HeldMeans(array, counts, squares)

    def __len__(self) -> int:
        return int(self.array.shape[1])

    @overload
    def __getitem__(self, column: int) -> ExactSums: ...

    @overload
    def __getitem__(self, column: slice) -> tuple[ExactSums, ...]: ...

    def __getitem__(self, column: int | slice) -> ExactSums | tuple[ExactSums, ...]:
        if isinstance(column, slice):
            return tuple(self[position] for position in range(*column.indices(len(self))))
        held = self.array[:, column]  # an error beyond the last column, of which iteration makes its end
        n_users = len(held)
        high, low = (ExactIntegers(np.empty(n_users, dtype=np.int64), {}) for _ in range(2))
        # In blocks: what is made on the way would take three times the memory of the sums.
        for start in range(0, n_users, USERS_AT_A_TIME):
            block = slice(start, start + USERS_AT_A_TIME)
            counts = self._counts[block]
            with np.errstate(over="ignore"):
                means = held[block].astype(np.float64)
            means[counts == 0] = 0.0
            for integers, whole in zip(encode_binary(means), (high, low), strict=True):
                products = ExactIntegers.products(integers, counts)
                whole.small[block] = products.small
                whole.large.update({start + place: number for place, number in products.large.items()})
        return ExactSums(encoding=BINARY, high=high, low=low)


def looked_through(array: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.float64] | None]:
    """(whether all numbers of a row are finite as floats, the sum of its squares or None), in one pass, in blocks.

    The squares are those of `row_squares`, for the types that it takes.
    """
    n_users, dimension = array.shape
    finite = np.ones(n_users, dtype=bool)
    if array.dtype.kind != "f":
        return finite, None
    squares = np.empty(n_users) if array.dtype in (np.float32, np.float64) else None
    rows = max(1, _BLOCK_ELEMENTS // dimension)

    def look(share: slice) -> None:
        for start in range(share.start, share.stop, rows):
            window = slice(start, min(start + rows, share.stop))
            finite[window] = _finite(array[window], None if squares is None else squares[window])

    shared_out(look, n_users, dimension)
    return finite, squares


def _finite(block: NDArray[Any], squares: NDArray[np.float64] | None) -> NDArray[np.bool_]:
    if squares is not None:
        # That sum may also be too large, so then all numbers are looked at.
        found: NDArray[np.bool_] = np.isfinite(row_squares(block, squares))
        doubtful = np.flatnonzero(~found)
        found[doubtful] = np.isfinite(block[doubtful]).all(axis=1)
        return found
    with np.errstate(over="ignore"):
        return np.asarray(np.isfinite(block.astype(np.float64)).all(axis=1))


def _numbers(values: ArrayLike, name: str) -> NDArray[Any]:
    """An array of numbers; where the type does not say so for all, what is no number is NaN, judged one by one.

    numpy infers the type of an array from what it is made of: one text makes texts of all numbers beside it.
    """
    array = _array(values, name)
    if array.dtype.kind in "iufb":
        return array
    if array.dtype.names is not None:
        raise InputError(f"{name} must be an array of numbers")
    cells = array.ravel().tolist() if array.dtype.kind != "O" else array.ravel()
    if any(isinstance(value, list | tuple | np.ndarray) for value in cells):
        raise InputError(f"{name} must have shape (n,) or (n, d), with rows of one length")
    return np.array([_float(value) for value in cells], dtype=np.float64).reshape(array.shape)


def _record_counts(counts: ArrayLike | None, n_users: int) -> IntArray:
    if counts is None:
        return np.ones(n_users, dtype=np.int64)
    array = _array(counts, "counts")
    if array.shape != (n_users,) or array.dtype.names is not None:
        raise InputError("counts must be one whole number per user, in the order of the means")
    # A user's own count is forced into range, not refused: a refusal would depend on that user's data.
    if array.dtype.kind not in "iu":
        return np.array([_count(count) for count in array.tolist()], dtype=np.int64)
    forced: IntArray = np.clip(array, 0, LARGEST_COUNT).astype(np.int64)
    return forced


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    """As an array whose type does not depend on the values of some: lists with odd elements stay objects."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(object), None)
    try:
        return np.asarray(values, dtype=_list_type(values))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be an array with one row of numbers per user") from None


def _list_type(values: ArrayLike) -> Any:
    return object if isinstance(values, list | tuple) else None


def _float(value: Any) -> float:
    """A number, or the number that a text holds; NaN for all else."""
    try:
        if isinstance(value, complex):
            value = value.real if value.imag == 0.0 else math.nan
        return float(value) if is_real(value) or isinstance(value, bool | Decimal | str | bytes) else math.nan
    except Exception:  # noqa: BLE001 - a cell's own code may fail in any way; it is no number then
        return math.nan


def _count(value: Any) -> int:
    """A whole number, however it is stored; zero for all else."""
    if not isinstance(value, Integral):
        value = _float(value)
        if not (math.isfinite(value) and value == math.trunc(value)):
            return 0
    return min(max(int(value), 0), LARGEST_COUNT)
