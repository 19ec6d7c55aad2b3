"""Rows of user means, read a block at a time: some users left out, far ones brought back to a ball.

The means may be a memory map larger than memory, of any real type; nothing of their size is ever made. What is kept
beside them is a position and a factor per user.

A user's row as it is read is a function of that user's own numbers, whichever block or pass reads it and wherever the
user stands (proofs/smooth.md, Lemma 1). For that, every step acts on single elements, where IEEE arithmetic leaves no
choice; a library's reduction over an axis may add in another order for another alignment or another neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hubermean.row_squares import row_squares
from hubermean.threads import shared_out

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

# Enough that threads, which take turns between the steps of numpy, seldom wait for each other.
BLOCK_ELEMENTS = 2**18
MOST_ROWS = (
    2**16
)  # no block has more: bounds that hold for any number of users rest on it (proofs/smooth.md, 1)
STRIP_ROWS = 128
LEAST_ROWS = 8

# Numbers beyond are taken for this one where a row is shrunk, so that the sum of its squares is finite.
_HUGE = 2.0**400


def block_rows(dimension: int) -> int:
    """Rows per block: about BLOCK_ELEMENTS numbers, whole strips where more than one strip fits.

    Very long rows come a few at a time, since there is work per block that is as long as a row.
    """
    rows = min(max(LEAST_ROWS, BLOCK_ELEMENTS // dimension), MOST_ROWS)
    return rows if rows < STRIP_ROWS else rows // STRIP_ROWS * STRIP_ROWS


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Rows:
    """Rows of an array as float64, shape (n, d). Private: nothing of it is shown.

    Attributes:
        array: (m, d) real numbers of any type, best with each row in one piece; read, never copied or written.
        chosen: rising positions of the n rows that are meant, None for all.
        factors: what each of the n rows is multiplied by, None for 1.
        squares: what `row_squares` makes of each of the n rows, infinite where it is multiplied; None if not known.
    """

    array: npt.NDArray[Any]
    chosen: Positions | None = None
    factors: Floats | None = None
    squares: Floats | None = None

    @classmethod
    def within_ball(
        cls,
        array: npt.NDArray[Any],
        radius: float,
        *,
        chosen: Positions | None = None,
        squares: Floats | None = None,
    ) -> Self:
        """The chosen rows, finite, those farther than `radius` from 0 shrunk to it up to rounding; one pass.

        `squares`, what `row_squares` makes of all rows, saves the pass over those that are surely within.
        """
        rows = Rows(array=array, chosen=chosen)
        n, d = rows.shape
        factors, doubtful = np.ones(n), np.arange(n)
        if squares is not None and chosen is not None:
            squares = squares[chosen]
        if squares is not None and _few_squares_lost(array.dtype, d, radius):
            doubtful = np.flatnonzero(~_surely_within(squares, radius))
        far = rows.some(doubtful)
        found = shared_out(lambda share: far.part(share)._factors(radius), len(doubtful), d)
        factors[doubtful] = np.concatenate(found)
        if squares is not None:
            squares = np.where(factors == 1.0, squares, np.inf)
        return cls(array=array, chosen=chosen, factors=factors, squares=squares)

    def _factors(self, radius: float) -> Floats:
        """What brings each row into the ball; 1 for those that are in it."""
        n, d = self.shape
        factors = np.ones(n)
        size = min(max(n, 1), block_rows(d))
        buffer = np.empty((size, d))
        quick = _few_squares_lost(self.array.dtype, d, radius)
        for start in range(0, n, size):
            window = slice(start, min(start + size, n))
            if quick and _surely_within(_squares(self.stored(window)), radius).all():
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

    def part(self, share: slice) -> Rows:
        """Rows in succession, where they are."""
        factors = None if self.factors is None else self.factors[share]
        squares = None if self.squares is None else self.squares[share]
        if self.chosen is None:
            return Rows(array=self.array[share], factors=factors, squares=squares)
        return Rows(array=self.array, chosen=self.chosen[share], factors=factors, squares=squares)

    def some(self, which: Positions) -> Rows:
        """The rows at rising positions, where they are."""
        if len(which) == len(self):
            return self
        return Rows(
            array=self.array,
            chosen=which if self.chosen is None else self.chosen[which],
            factors=None if self.factors is None else self.factors[which],
            squares=None if self.squares is None else self.squares[which],
        )

    def __getitem__(self, which: slice | Positions) -> Floats:
        """Some of the rows, in an array of their own."""
        positions = np.arange(len(self))[which]
        result = np.empty((len(positions), self.shape[1]))
        size = block_rows(self.shape[1])
        for start in range(0, len(positions), size):
            part = result[start : start + size]
            part[...] = self.read(positions[start : start + size], part)
        return result

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All rows at once, for tests and for small data."""
        return self[:].astype(dtype or np.float64, copy=False)

    def read(self, which: slice | Positions, buffer: Floats) -> Floats:
        """Some of the rows: in `buffer`, or where they are if nothing has to be done to them.

        `buffer` has at least as many rows as are asked for. What is returned is for reading.
        """
        part = self.stored(which)
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

    def are_as_stored(self, which: slice | Positions) -> bool:
        """Whether nothing has to be done to these rows but to make floats of their numbers."""
        return self.factors is None or bool((self.factors[which] == 1.0).all())

    def stored(self, which: slice | Positions) -> npt.NDArray[Any]:
        """Some of the rows as they are in the array, whatever is to be done to them."""
        if self.chosen is None:
            return self.array[which]
        positions = self.chosen[which]
        if isinstance(which, slice) and len(positions) > 0:
            # Few users are left out as a rule, so most blocks are rows in succession and need no copy.
            first, last = int(positions[0]), int(positions[-1])
            if last - first + 1 == len(positions):
                return self.array[first : last + 1]
        return self.array[positions]


def _surely_within(squares: Floats, radius: float) -> npt.NDArray[np.bool_]:
    """Which rows are so far inside the ball that no way of adding their squares could find them outside.

    In single precision, too, a sum of squares is off by less than one part in 2^7, however it is added
    (`row_squares`), and by less than the smallest normal number for every square that is lost
    (`_few_squares_lost`): with half of the radius squared to spare, neither matters. What is no number is not within.
    """
    return np.asarray(squares <= 0.75 * (0.5 * radius * radius))


def _few_squares_lost(dtype: npt.DTypeLike, columns: int, radius: float) -> bool:
    """Whether all squares that a product in this precision may lose are little beside the radius."""
    if dtype not in (np.float32, np.float64):
        return False
    return 0.5 * radius * radius > 2.0**6 * columns * float(np.finfo(np.dtype(dtype)).tiny)


def _squares(rows: npt.NDArray[Any]) -> Floats:
    return row_squares(rows, np.empty(len(rows)))


def _sum_over_columns(terms: Floats) -> Floats:
    """The sum of each row, (rows,), by adding the right half to the left until one column is left; overwrites.

    Which elements are added to which depends on the number of columns alone.
    """
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, 0].copy()
