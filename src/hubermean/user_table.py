"""The private table every mechanism works on: exact sums and counts, one entry per user, no user ids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubermean.errors import InputError, is_real
from hubermean.exact import BINARY, ExactIntegers, ExactSums
from hubermean.exact.encoding import encode_binary

IntArray = NDArray[np.int64]
LARGEST_COUNT = 2**40


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserTable:
    """What is known of each user after grouping. Everything here is private, the arrays are read-only.

    Attributes:
        columns: names of the value columns, in the caller's order.
        sums: per column, each user's exact sum over its usable records.
        counts: each user's number of usable records (all of its values present and finite), shape (n,).
        records: each user's number of records, usable or not; what is public under `replace-values`.

    A user whose records are all unusable stays in the table with a count of zero. The order of users means
    nothing. The representation shows no number, so that a table in a log or a traceback tells nothing.
    """

    columns: tuple[str, ...]
    sums: tuple[ExactSums, ...]
    counts: IntArray
    records: IntArray

    def __post_init__(self) -> None:
        self.counts.flags.writeable = False
        self.records.flags.writeable = False

    @classmethod
    def from_means(cls, means: ArrayLike, counts: ArrayLike | None = None) -> Self:
        """From user means that are held already: shape (n,) or (n, d), with the records behind each mean.

        A mean that is not finite makes that user unusable, the same rule as for records.
        """
        array = _floats(means, "means")
        if array.ndim == 1:
            array = array[:, np.newaxis]
        if array.ndim != 2 or array.shape[1] == 0:
            raise InputError("means must have shape (n,) or (n, d), one row per user")
        n_users, dimension = array.shape
        records = _record_counts(counts, n_users)
        usable = np.isfinite(array).all(axis=1)
        used = np.where(usable, records, 0)
        sums = []
        for column in range(dimension):
            high, low = encode_binary(np.where(usable, array[:, column], 0.0))
            sums.append(
                ExactSums(
                    encoding=BINARY,
                    high=ExactIntegers.products(high, used),
                    low=ExactIntegers.products(low, used),
                )
            )
        names = ("mean",) if dimension == 1 else tuple(f"mean_{column}" for column in range(dimension))
        return cls(columns=names, sums=tuple(sums), counts=used, records=records)

    @property
    def n_users(self) -> int:
        """How many users there are: private under `add-remove`."""
        return len(self.counts)

    @property
    def means(self) -> NDArray[np.float64]:
        """Each user's mean as floats, shape (n,) for one column, else (n, d); NaN where a count is zero.

        For inspection and for vector mechanisms that bound their own rounding; one-column mechanisms round
        exactly from the integers.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            columns = [_approximate(sums) / self.counts for sums in self.sums]
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)

    def __repr__(self) -> str:
        return f"UserTable(columns={self.columns!r}, private contents not shown)"


def _approximate(sums: ExactSums) -> NDArray[np.float64]:
    unit, radix = float(sums.encoding.unit), float(sums.encoding.radix)
    low = sums.low.approximate() * unit
    return low if sums.high is None else sums.high.approximate() * (unit * radix) + low


def _floats(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """An array of floats; in a list or an object array, what is no number is NaN, judged one by one."""
    array = _array(values, name)
    if array.dtype.kind == "O":
        if any(isinstance(value, list | tuple | np.ndarray) for value in array.ravel()):
            raise InputError(f"{name} must have shape (n,) or (n, d), with rows of one length")
        return np.array([_float(value) for value in array.ravel()], dtype=np.float64).reshape(array.shape)
    if array.dtype.kind not in "iufb":
        raise InputError(f"{name} must be an array of numbers")
    with np.errstate(over="ignore"):
        return array.astype(np.float64)


def _record_counts(counts: ArrayLike | None, n_users: int) -> IntArray:
    if counts is None:
        return np.ones(n_users, dtype=np.int64)
    array = _array(counts, "counts")
    if array.shape != (n_users,) or array.dtype.kind not in "iuO":
        raise InputError("counts must be one whole number per user, in the order of the means")
    # A user's own count is forced into range, not refused: a refusal would depend on that user's data.
    if array.dtype.kind == "O":
        return np.array([_count(count) for count in array], dtype=np.int64)
    forced: IntArray = np.clip(array, 0, LARGEST_COUNT).astype(np.int64)
    return forced


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    """As an array whose type does not depend on the values of some: lists with odd elements stay objects."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(object), None)
    try:
        return values if isinstance(values, np.ndarray) else np.asarray(values, dtype=_list_type(values))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be an array with one row of numbers per user") from None


def _list_type(values: ArrayLike) -> Any:
    return object if isinstance(values, list | tuple) else None


def _float(value: Any) -> float:
    try:
        return float(value) if is_real(value) or isinstance(value, bool | Decimal) else math.nan
    except (OverflowError, ValueError):
        return math.nan


def _count(value: Any) -> int:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return min(max(int(value), 0), LARGEST_COUNT) if whole else 0
