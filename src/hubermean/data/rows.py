"""Distances, inner products and clipped sums of long rows, in which every row counts by its own numbers alone.

In wide data a pass over the array is what takes the time, so rows stay in single precision if the data are declared in
it (`UserTable.in_single`).
Rounding is then visible, but harmless: what a row becomes is a function of that row, whatever stands beside it, and
sums are of integers. So neighbors differ in what one user adds, exactly (proofs/norm-clipping.md, Lemmas 1 and 2).

For that reason all steps act on single elements, where IEEE arithmetic is deterministic, and sums along a row have one
order: halves are added to halves, or, for very long rows, a kernel is called on one row at a time, always in the same
aligned buffer, so that its order of additions cannot depend on where a row lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray, IntArray, squared_row_norms
from hubermean.data.threads import map_row_ranges

NORM_ERROR = 2.0**-11
"""A computed norm lies within this part of the exact one (Lemma 1)."""

_LONG_ROW = 2**13  # from here on a row is worth a call of its own
_CHUNK = 2**13  # of a long row: so many products at most are added in the precision of the rows
_BLOCK_ELEMENTS = 2**16
_ALIGNMENT = 64  # bytes
_TILE_ROWS, _TILE_COLUMNS = 16, 2**12


Precision = type[np.float32] | type[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Rows:
    """The rows of an array, in units of their columns and taken from a center. Private: its repr shows nothing.

    Attributes:
        array: (n, d), real numbers of any type. Read in blocks, never copied.
        precision: the type in which rows are computed. Public: the type of the array may follow from its content.
        usable: (n,), whether a row counts. Rows that do not may hold anything.
        scales: (d,), public factors that the columns are multiplied by; None for one.
        center: (d,), public or released, in these units and the precision of the rows; None for zero.
        squares: `squared_row_norms` of the array, if they are known.
    """

    array: NDArray[Any]
    precision: Precision
    usable: NDArray[np.bool_]
    center: NDArray[Any] | None = None
    scales: NDArray[Any] | None = None
    squares: FloatArray | None = None

    def distances(self) -> FloatArray:
        """Return the Euclidean norm of each row; infinite where its square overflows, or the row is not usable."""
        # Those of an aligned array are the same to the last bit as row by row in an aligned buffer.
        known = self._is_as_stored and _is_aligned(self.array) and self.array.shape[1] >= _LONG_ROW
        squares = self.squares if known else None
        with np.errstate(all="ignore"):
            norms = np.sqrt(self._reduce(None) if squares is None else squares)
        norms[~(self.usable & np.isfinite(norms))] = np.inf
        return norms

    def along(self, direction: NDArray[Any]) -> FloatArray:
        """Return the inner product of each row with a vector; zero where it is not finite, or the row not usable."""
        with np.errstate(all="ignore"):
            products = self._reduce(direction.astype(self.precision))
        products[~(self.usable & np.isfinite(products))] = 0.0
        return products

    def weighted_sum(self, factors: FloatArray) -> IntArray:
        """Return the sum over rows of factor * row, rounded toward zero, (d,), exactly; a row of factor 0 adds 0.

        The factors must make the norms of all rows at most 2^25 (1 + 2^-9), so that no sum leaves its integers.
        """
        n, d = self.array.shape
        parts = map_row_ranges(lambda share: self._sum(share, factors), n, d)
        total: IntArray = np.sum(parts, axis=0, dtype=np.int64)
        return total

    @property
    def _is_as_stored(self) -> bool:
        """Whether rows count as they are stored."""
        return self.center is None and self.scales is None and self.array.dtype == self.precision

    def _reduce(self, direction: NDArray[Any] | None) -> FloatArray:
        n, d = self.array.shape
        found = np.zeros(n)
        reduce = self._reduce_long if d >= _LONG_ROW else self._reduce_short
        map_row_ranges(lambda share: reduce(share, direction, found), n, d)
        return found

    def _reduce_short(self, share: slice, direction: NDArray[Any] | None, found: FloatArray) -> None:
        d = self.array.shape[1]
        size = max(1, _BLOCK_ELEMENTS // d)
        buffer = np.empty((size, d), dtype=self.precision)
        with np.errstate(all="ignore"):
            for block in _blocks(share, size):
                terms = self._shifted(block, slice(0, d), buffer)
                np.multiply(terms, terms if direction is None else direction, out=terms)
                found[block] = _add_halves(terms)

    def _reduce_long(self, share: slice, direction: NDArray[Any] | None, found: FloatArray) -> None:
        d = self.array.shape[1]
        buffer, other = _aligned(d, self.precision), _aligned(d, self.precision)
        if direction is not None:
            other[...] = direction
        with np.errstate(all="ignore"):
            for number in (np.flatnonzero(self.usable[share]) + share.start).tolist():
                row = self._aligned_row(number, buffer)
                if direction is None:
                    squared_row_norms(row[np.newaxis], found[number : number + 1])
                else:
                    found[number] = _add_chunks(row, other)

    def _aligned_row(self, number: int, buffer: NDArray[Any]) -> NDArray[Any]:
        """Return a row in the buffer, or the row itself where a copy would be equal and aligned in the same way."""
        stored: NDArray[Any] = self.array[number]
        if self._is_as_stored and _is_aligned(stored):
            return stored
        self._shifted(slice(number, number + 1), slice(0, len(buffer)), buffer[np.newaxis])
        return buffer

    def _sum(self, share: slice, factors: FloatArray) -> IntArray:
        d = self.array.shape[1]
        total = np.zeros(d, dtype=np.int64)
        factors = np.where(self.usable, factors, 0.0)
        scaled = np.empty((_TILE_ROWS, _TILE_COLUMNS), dtype=self.precision)
        whole, part = np.empty_like(scaled, dtype=np.int32), np.empty(_TILE_COLUMNS, dtype=np.int32)
        own = factors.astype(scaled.dtype)[:, np.newaxis]
        with np.errstate(all="ignore"):
            for rows in _blocks(share, _TILE_ROWS):
                absent = np.flatnonzero(factors[rows] == 0.0)
                for columns in _blocks(slice(0, d), _TILE_COLUMNS):
                    tile = self._shifted(rows, columns, scaled, own[rows])
                    integers = whole[: len(tile), : tile.shape[1]]
                    np.copyto(integers, tile, casting="unsafe")
                    if absent.size:  # it may have held what is no number
                        integers[absent] = 0
                    total[columns] += np.add.reduce(
                        integers, axis=0, dtype=np.int32, out=part[: tile.shape[1]]
                    )
        return total

    def _shifted(
        self, rows: slice, columns: slice, buffer: NDArray[Any], factors: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return some elements, in their units, taken from the center and times the factors, in the buffer."""
        stored = self.array[rows, columns]
        target: NDArray[Any] = buffer[: stored.shape[0], : stored.shape[1]]
        steps: list[tuple[Any, NDArray[Any]]] = []
        if self.scales is not None:
            steps.append((np.multiply, self.scales[columns]))
        if self.center is not None:
            steps.append((np.subtract, self.center[columns]))
        if factors is not None:
            steps.append((np.multiply, factors))
        if not steps or stored.dtype != target.dtype:
            np.copyto(target, stored, casting="unsafe")
            stored = target
        for function, operand in steps:
            stored = function(stored, operand, out=target)
        return target


def _blocks(share: slice, size: int) -> Iterator[slice]:
    for start in range(share.start, share.stop, size):
        yield slice(start, min(start + size, share.stop))


def _add_halves(terms: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of each row: the right half is added to the left one, until one column is left; overwrites."""
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, 0]


def _add_chunks(row: NDArray[Any], other: NDArray[Any]) -> float:
    """Return an inner product whose chunks are added in double precision."""
    whole = len(row) // _CHUNK * _CHUNK
    mine, theirs = row[:whole].reshape(-1, _CHUNK), other[:whole].reshape(-1, _CHUNK)
    total = sum(np.einsum("ij,ij->i", mine, theirs).tolist())
    return float(total + np.einsum("i,i->", row[whole:], other[whole:]))


def _is_aligned(array: NDArray[Any]) -> bool:
    """Whether every row is in one piece and begins at a multiple of `_ALIGNMENT` bytes."""
    rows = array.strides[0] % _ALIGNMENT == 0 or array.ndim == 1
    in_pieces = array.strides[-1] != array.dtype.itemsize
    return rows and not in_pieces and array.ctypes.data % _ALIGNMENT == 0


def _aligned(size: int, precision: Precision) -> NDArray[Any]:
    """Return an uninitialised vector that begins at a multiple of `_ALIGNMENT` bytes."""
    item = np.dtype(precision).itemsize
    spare = np.empty(size + _ALIGNMENT // item, dtype=precision)
    first = -spare.ctypes.data % _ALIGNMENT // item
    return spare[first : first + size]
