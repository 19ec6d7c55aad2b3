"""User means, read in blocks, optionally restricted to some users and clipped to a ball.

The array may have any real type and may be a memory map larger than memory. It is never copied; only a position and a
factor per user are stored beside it.

The row that is read for a user is a function of that user's own numbers only. It does not depend on the block, the
pass or the position of the user (proofs/smooth-sensitivity.md, Lemma 1). For that reason every step acts on single
elements, where IEEE arithmetic is deterministic; a library's reduction over an axis may add in a different order
for a different alignment or a different neighbor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray, squared_row_norms
from hubermean.data.threads import map_row_ranges
from hubermean.huber.numerics import Positions, block_rows

# Larger numbers are replaced by this one before a row is clipped, so that the sum of its squares is finite.
_HUGE = 2.0**400


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PointRows:
    """Rows of an array as float64, shape (n, d). Private: its repr shows nothing.

    Attributes:
        array: (m, d) real numbers of any type, preferably with contiguous rows. Read, never copied or written.
        chosen: increasing positions of the n selected rows; None selects all rows.
        factors: factor of each of the n rows; None for 1.
        squares: `squared_row_norms` of each of the n rows, infinite where a factor is not 1; None if not known.
    """

    array: npt.NDArray[Any]
    chosen: Positions | None = None
    factors: FloatArray | None = None
    squares: FloatArray | None = None

    @classmethod
    def within_ball(
        cls,
        array: npt.NDArray[Any],
        radius: float,
        *,
        chosen: Positions | None = None,
        squares: FloatArray | None = None,
    ) -> Self:
        """Clip the selected rows to the ball of radius `radius` around 0, up to rounding, in one pass.

        All results are finite. `squares`, the `squared_row_norms` of all rows, saves the pass over rows that are
        certainly inside.
        """
        rows = PointRows(array=array, chosen=chosen)
        n, d = rows.shape
        factors, doubtful = np.ones(n), np.arange(n)
        if squares is not None and chosen is not None:
            squares = squares[chosen]
        if squares is not None and _few_squares_lost(array.dtype, d, radius):
            doubtful = np.flatnonzero(~_surely_within(squares, radius))
        far = rows.take(doubtful)
        found = map_row_ranges(lambda share: far.part(share)._factors(radius), len(doubtful), d)
        factors[doubtful] = np.concatenate(found)
        if squares is not None:
            squares = np.where(factors == 1.0, squares, np.inf)
        return cls(array=array, chosen=chosen, factors=factors, squares=squares)

    def _factors(self, radius: float) -> FloatArray:
        """Return the factor that scales each row into the ball; 1 for rows inside."""
        n, d = self.shape
        factors = np.ones(n)
        size = min(max(n, 1), block_rows(d))
        buffer = np.empty((size, d))
        quick = _few_squares_lost(self.array.dtype, d, radius)
        for start in range(0, n, size):
            window = slice(start, min(start + size, n))
            if quick and _surely_within(_squares(self.read_stored(window)), radius).all():
                continue
            part = self.read(window, buffer)
            squares = np.clip(part, -_HUGE, _HUGE, out=buffer[: len(part)])
            np.multiply(squares, squares, out=squares)
            square = _sum_over_columns(squares)
            far = np.flatnonzero(square > radius * radius)
            factors[start + far] = radius / np.sqrt(square[far])
        return factors

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.array.shape
        return (rows if self.chosen is None else len(self.chosen)), columns

    def __len__(self) -> int:
        return self.shape[0]

    def part(self, share: slice) -> PointRows:
        """Return a view of consecutive rows."""
        factors = None if self.factors is None else self.factors[share]
        squares = None if self.squares is None else self.squares[share]
        if self.chosen is None:
            return PointRows(array=self.array[share], factors=factors, squares=squares)
        return PointRows(array=self.array, chosen=self.chosen[share], factors=factors, squares=squares)

    def take(self, which: Positions) -> PointRows:
        """Return a view of the rows at increasing positions."""
        if len(which) == len(self):
            return self
        return PointRows(
            array=self.array,
            chosen=which if self.chosen is None else self.chosen[which],
            factors=None if self.factors is None else self.factors[which],
            squares=None if self.squares is None else self.squares[which],
        )

    def __getitem__(self, which: slice | Positions) -> FloatArray:
        """Return some of the rows as a new array."""
        positions = np.arange(len(self))[which]
        result = np.empty((len(positions), self.shape[1]))
        size = block_rows(self.shape[1])
        for start in range(0, len(positions), size):
            part = result[start : start + size]
            part[...] = self.read(positions[start : start + size], part)
        return result

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return all rows at once, for tests and small data."""
        return self[:].astype(dtype or np.float64, copy=False)

    def read(self, which: slice | Positions, buffer: FloatArray) -> FloatArray:
        """Return some of the rows, in `buffer` or as a view if they need no conversion; read-only.

        `buffer` must have at least as many rows as requested.
        """
        part = self.read_stored(which)
        factors = np.ones(0) if self.factors is None else self.factors[which]
        far = np.flatnonzero(factors != 1.0)
        if part.dtype == np.float64 and far.size == 0:
            return part
        filled = buffer[: len(part)]
        with np.errstate(over="ignore"):
            filled[...] = part
        if far.size:
            filled[far] = np.clip(filled[far], -_HUGE, _HUGE) * factors[far, np.newaxis]
        return filled

    def are_unscaled(self, which: slice | Positions) -> bool:
        """Return whether these rows need no scaling, only conversion to float64."""
        return self.factors is None or bool((self.factors[which] == 1.0).all())

    def read_stored(self, which: slice | Positions) -> npt.NDArray[Any]:
        """Return some of the rows as stored in the array, without scaling."""
        if self.chosen is None:
            return self.array[which]
        positions = self.chosen[which]
        if isinstance(which, slice) and len(positions) > 0:
            # Most users are usually selected, so most blocks are consecutive rows and need no copy.
            first, last = int(positions[0]), int(positions[-1])
            if last - first + 1 == len(positions):
                return self.array[first : last + 1]
        return self.array[positions]


def _surely_within(squares: FloatArray, radius: float) -> npt.NDArray[np.bool_]:
    """Return which rows are so far inside the ball that no order of summation could place them outside.

    Even in single precision a sum of squares has a relative error below 2^-7 in any order (`squared_row_norms`), plus
    less than the smallest normal number for every square that underflows (`_few_squares_lost`). Half of the squared
    radius leaves room for both. NaN is not inside.
    """
    return np.asarray(squares <= 0.75 * (0.5 * radius * radius))


def _few_squares_lost(dtype: npt.DTypeLike, columns: int, radius: float) -> bool:
    """Return whether the squares that may underflow in this precision are negligible beside the radius."""
    if dtype not in (np.float32, np.float64):
        return False
    return 0.5 * radius * radius > 2.0**6 * columns * float(np.finfo(np.dtype(dtype)).tiny)


def _squares(rows: npt.NDArray[Any]) -> FloatArray:
    return squared_row_norms(rows, np.empty(len(rows)))


def _sum_over_columns(terms: FloatArray) -> FloatArray:
    """Return the sum of each row, (rows,), by repeatedly adding the right half to the left half; overwrites.

    The order of the additions depends on the number of columns only.
    """
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, 0].copy()
