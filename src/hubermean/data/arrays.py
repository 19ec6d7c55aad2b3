"""Array types, and passes over the rows of a matrix: squared norms, and which rows are finite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.threads import map_row_ranges

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_BLOCK_ELEMENTS = 2**19
# Linear algebra libraries compute longer products in threads of their own, which compete with ours.
_BLOCK_COLUMNS = 2**13


def squared_row_norms(rows: NDArray[Any], out: FloatArray) -> FloatArray:
    """Write the sum of squares of each row into `out` and return it; `rows` are of single or double precision.

    Formal guarantees: columns are added in some order, up to `_BLOCK_COLUMNS` of them in the precision of the rows, and
    these sums in double precision. A row with a number that is not finite has no finite sum.
    """
    n, d = rows.shape
    blocks = d // _BLOCK_COLUMNS
    whole = rows[:, : blocks * _BLOCK_COLUMNS].reshape(n, blocks, _BLOCK_COLUMNS)
    remainder = rows[:, blocks * _BLOCK_COLUMNS :]
    with np.errstate(all="ignore"):
        np.add.reduce(_self_products(whole), axis=-1, dtype=np.float64, out=out)
        out += _self_products(remainder)
    return out


def _self_products(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the inner product of every row with itself, by the faster function; einsum lets other threads run."""
    in_single = rows.dtype == np.float32
    products: NDArray[Any] = np.einsum("...i,...i->...", rows, rows) if in_single else np.vecdot(rows, rows)
    return products


def find_finite_rows(array: NDArray[Any]) -> tuple[NDArray[np.bool_], FloatArray | None]:
    """Return (whether all numbers of each row are finite as doubles, squared norms of the rows), in one pass.

    The norms are those of `squared_row_norms`; None for types that it does not support.
    """
    n_rows, dimension = array.shape
    finite = np.ones(n_rows, dtype=bool)
    if array.dtype.kind != "f":
        return finite, None
    squares = np.empty(n_rows) if array.dtype in (np.float32, np.float64) else None
    step = max(1, _BLOCK_ELEMENTS // dimension)

    def check(rows: slice) -> None:
        for start in range(rows.start, rows.stop, step):
            block = slice(start, min(start + step, rows.stop))
            finite[block] = _are_finite(array[block], None if squares is None else squares[block])

    map_row_ranges(check, n_rows, dimension)
    return finite, squares


def _are_finite(block: NDArray[Any], squares: FloatArray | None) -> NDArray[np.bool_]:
    if squares is not None:
        finite: NDArray[np.bool_] = np.isfinite(squared_row_norms(block, squares))
        # The sum of a finite row can overflow, so rows without a finite sum are checked number by number.
        doubtful = np.flatnonzero(~finite)
        finite[doubtful] = np.isfinite(block[doubtful]).all(axis=1)
        return finite
    with np.errstate(over="ignore"):
        return np.asarray(np.isfinite(block.astype(np.float64)).all(axis=1))
