"""Sums of many rows whose rounding error does not grow with their number (proofs/huber-location.md, 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hubermean.location.rows import STRIP_ROWS, Floats


class Compensated:
    """A running sum of vectors by Knuth's two-sum with a running correction: over blocks, and over parts of a table.

    *Formal guarantees*
    - After N <= 2**26 vectors every element of `total()` is within 2 u times the sum of the magnitudes of what was
      added (Ogita, Rump and Oishi 2005, Prop. 4.5); of one vector it is that vector.
    """

    def __init__(self, size: int) -> None:
        self._high, self._low, self._spare, self._back = (
            np.zeros(size),
            np.zeros(size),
            np.empty(size),
            np.empty(size),
        )

    def add(self, part: Floats) -> None:
        """Add a vector, which is overwritten: in wide data these are as long as a block."""
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

    def total(self) -> Floats:
        return np.asarray(self._high + self._low)


def added_up(parts: Sequence[Floats]) -> Floats:
    """The sum of vectors, one at least, within 2 u of the sum of their magnitudes; they are left as they are."""
    running = Compensated(parts[0].size)
    for part in parts:
        running.add(part.copy())
    return running.total()


def strip_sum(factors: Floats, rows: Floats) -> Floats:
    """sum_i factors_i rows_i by strips of STRIP_ROWS: short sums keep the error bound short."""
    size, d = rows.shape
    whole = size - size % STRIP_ROWS
    if whole == 0:
        # Not by a library of linear algebra: of matrices of this size it makes work for threads of its own.
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
