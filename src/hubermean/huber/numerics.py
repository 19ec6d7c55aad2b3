"""Constants, block sizes, norms and sums in float64 whose rounding errors are bounded.

The error model is in proofs/huber-location.md, section 3. Sums over users are compensated, so their rounding error
does not grow with the number of users (3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import FloatArray

Positions = npt.NDArray[np.intp]

# Numbers per block: large enough that threads, which take turns between numpy calls, seldom wait for each other.
BLOCK_ELEMENTS = 2**18
MAX_BLOCK_ROWS = 2**16  # bounds for any number of users rely on it (proofs/smooth-sensitivity.md, 1)
STRIP_ROWS = 128
MIN_BLOCK_ROWS = 8

# Unit roundoff of float64, the smallest positive float64, and a factor that absorbs every second-order term
# and the rounding of scalar sums (proofs/huber-location.md, 3.1).
UNIT = 2.0**-53
TINY = 2.0**-1074
SLACK = 1.0 + 2.0**-20

# A square below 2**-1022 underflows. The distance lost is at most this times the square root of the number of
# columns.
LOST_DISTANCE = 2.0**-510


def block_rows(dimension: int) -> int:
    """Return the number of rows per block: about BLOCK_ELEMENTS numbers, in whole strips if more than one strip fits.

    A block has at least MIN_BLOCK_ROWS rows, because some work per block takes as long as a whole row.
    """
    rows = min(max(MIN_BLOCK_ROWS, BLOCK_ELEMENTS // dimension), MAX_BLOCK_ROWS)
    return rows if rows < STRIP_ROWS else rows // STRIP_ROWS * STRIP_ROWS


def euclidean_norm(vector: FloatArray) -> float:
    """Return the Euclidean norm. The vector is scaled first, because squares may overflow or underflow (proof 3.1)."""
    largest = float(np.max(np.abs(vector), initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(vector / largest))


class CompensatedSum:
    """A running sum of vectors with error compensation (Knuth's two-sum), over blocks or partitions.

    **Formal guarantees**
    - After N <= 2**26 vectors, every element of `total()` is within 2 u times the sum of the magnitudes added (Ogita,
      Rump and Oishi 2005, Prop. 4.5). The total of one vector is that vector.
    """

    def __init__(self, size: int) -> None:
        self._high, self._low, self._spare, self._back = (
            np.zeros(size),
            np.zeros(size),
            np.empty(size),
            np.empty(size),
        )

    def add(self, part: FloatArray) -> None:
        """Add a vector and overwrite it, because a copy would be as long as a block in wide data."""
        # total = high + part, back = total - high, low += (high - (total - back)) + (part - back), all in place.
        total, back, high = self._spare, self._back, self._high
        np.add(high, part, out=total)
        np.subtract(total, high, out=back)
        part -= back
        np.subtract(total, back, out=back)
        np.subtract(high, back, out=back)
        back += part
        self._low += back
        self._high, self._spare = total, high

    def total(self) -> FloatArray:
        """Return the sum of all vectors added so far."""
        return np.asarray(self._high + self._low)


def sum_vectors(parts: Sequence[FloatArray]) -> FloatArray:
    """Return the sum of at least one vector, within 2 u of the sum of their magnitudes. The inputs are not changed."""
    running = CompensatedSum(parts[0].size)
    for part in parts:
        running.add(part.copy())
    return running.total()


def weighted_row_sum(factors: FloatArray, rows: FloatArray) -> FloatArray:
    """Return sum_i factors_i rows_i, in strips of STRIP_ROWS rows: short sums keep the error bound small."""
    size, d = rows.shape
    whole = size - size % STRIP_ROWS
    if whole == 0:
        # Not matmul: for matrices this small, BLAS would start threads of its own.
        return np.asarray(np.einsum("i,ij->j", factors, rows))
    strips_of_factors = factors[:whole].reshape(-1, STRIP_ROWS)
    if d == 1:
        strips = np.einsum("ij,ij->i", strips_of_factors, rows[:whole].reshape(-1, STRIP_ROWS))[:, None]
    else:
        strips = np.matmul(strips_of_factors[:, None, :], rows[:whole].reshape(-1, STRIP_ROWS, d))[:, 0, :]
    part = np.add.reduce(strips, axis=0)
    if whole < size:
        part += factors[whole:] @ rows[whole:]
    return np.asarray(part)
