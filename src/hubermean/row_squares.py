"""The sum of the squares of every row of a table: what finite numbers, distances and balls are told from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Libraries of linear algebra give longer products to threads of their own, which wait for ours and ours for them.
_COLUMNS_AT_A_TIME = 2**13


def row_squares(rows: NDArray[Any], out: NDArray[np.float64]) -> NDArray[np.float64]:
    """One sum a row, into `out`; `rows` are of single or double precision.

    Formal guarantees: columns are added in some order, up to `_COLUMNS_AT_A_TIME` of them in the precision of the rows,
    these sums in double precision. A row with a number that is not finite has no finite sum.
    """
    n, d = rows.shape
    pieces = d // _COLUMNS_AT_A_TIME
    whole = rows[:, : pieces * _COLUMNS_AT_A_TIME].reshape(n, pieces, _COLUMNS_AT_A_TIME)
    rest = rows[:, pieces * _COLUMNS_AT_A_TIME :]
    with np.errstate(all="ignore"):
        np.add.reduce(_products(whole), axis=-1, dtype=np.float64, out=out)
        out += _products(rest)
    return out


def _products(rows: NDArray[Any]) -> NDArray[Any]:
    """Of every row with itself, by what is faster: the first lets other threads go on meanwhile."""
    in_single = rows.dtype == np.float32
    found: NDArray[Any] = np.einsum("...i,...i->...", rows, rows) if in_single else np.vecdot(rows, rows)
    return found
