"""The private table every mechanism works on: exact sums and counts, one entry per user, no user ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubermean.errors import InputError
from hubermean.exact import BINARY, ExactIntegers, ExactSums
from hubermean.exact.encoding import encode_binary

IntArray = NDArray[np.int64]


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
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufb":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers") from None


def _record_counts(counts: ArrayLike | None, n_users: int) -> IntArray:
    if counts is None:
        return np.ones(n_users, dtype=np.int64)
    array = np.asarray(counts)
    if array.dtype.kind not in "iu" or array.shape != (n_users,):
        raise InputError("counts must be one whole number per user, in the order of the means")
    # A user's own count is forced into range, not refused: a refusal would depend on that user's data.
    forced: IntArray = np.clip(array, 0, 2**40).astype(np.int64)
    return forced
