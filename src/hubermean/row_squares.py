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
    out[...] = 0.0
    with np.errstate(all="ignore"):
        for left in range(0, rows.shape[1], _COLUMNS_AT_A_TIME):
            part = rows[:, left : left + _COLUMNS_AT_A_TIME]
            out += np.vecdot(part, part)
    return out
