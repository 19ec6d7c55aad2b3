"""A random rotation in whole numbers: signs, then the Walsh-Hadamard transform without its factor.

With H the D x D matrix of +1 and -1 (D a power of two) and S a diagonal of random signs, H S is sqrt(D) times a
rotation: integers stay integers, and S H / D undoes it. Levy et al. (2021), Alg. 2 use H S / sqrt(D) in
floating point; without the factor the rotation is exact, so there is no rounding to account for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import IntArray
from hubermean.distributions.output import Uniform


def padded_dimension(dimension: int) -> int:
    """The least power of two that is at least `dimension`.

    >>> [padded_dimension(d) for d in (1, 2, 3, 4, 5)]
    [1, 2, 4, 4, 8]
    """
    return 1 << (dimension - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """H S, for the signs of the padded dimension. The signs are public: drawn afresh, independent of the data.

    Formal guarantees:
    - exact for columns whose sum of magnitudes stays below 2^63;
    - the coordinates of a rotated user depend on that user alone;
    - `undo(apply(v))` is D v, padded with zeros: H S is sqrt(D) times an orthogonal matrix.
    """

    signs: tuple[int, ...]

    @staticmethod
    def distribution(dimension: int) -> Uniform:
        """Fresh signs, all equally likely, encoded as the bits of a number; one column is not rotated."""
        return Uniform(limit=1 if dimension == 1 else 1 << padded_dimension(dimension))

    @classmethod
    def numbered(cls, number: int, dimension: int) -> Rotation:
        """The rotation whose signs are the bits of a number."""
        return cls(
            signs=tuple(1 - 2 * (number >> position & 1) for position in range(padded_dimension(dimension)))
        )

    def apply(self, columns: Sequence[IntArray]) -> IntArray:
        """The rotated users: d columns of n integers in, shape (D, n) out."""
        rotated = np.zeros((len(self.signs), len(columns[0])), dtype=np.int64)
        for row, column, sign in zip(rotated, columns, self.signs, strict=False):
            np.multiply(column, sign, out=row)
        return _hadamard(rotated)

    def undo(self, coordinates: Sequence[int]) -> list[int]:
        """S H times the coordinates: D times what was rotated, in Python integers."""
        transformed = _hadamard(np.array([int(one) for one in coordinates], dtype=object)[:, np.newaxis])
        return [sign * int(one) for sign, one in zip(self.signs, transformed[:, 0], strict=True)]


def _hadamard(rows: NDArray[Any]) -> NDArray[Any]:
    """H times the rows, in place: sums and differences of pairs at distances 1, 2, 4, ..."""
    distance = 1
    while distance < len(rows):
        for start in range(0, len(rows), 2 * distance):
            upper, lower = rows[start : start + distance], rows[start + distance : start + 2 * distance]
            upper += lower
            lower *= -2
            lower += upper
        distance *= 2
    return rows
