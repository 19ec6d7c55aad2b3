"""How one record's value becomes integers.

A value is written as `(high * radix + low) * unit` with 64-bit integers `high` and `low` (or `low` alone when
`radix` is 1). The rule looks at that one value and at the column's declared type, never at other records, so
it costs no privacy; and it is integer from here on, so sums do not depend on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

INT64_LIMIT = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """A public, per-record rule from values to integers.

    Formal guarantees:
    - a finite value v with |v| <= limit is represented within unit / 2;
    - a value beyond is clamped to the limit, with its sign;
    - both parts fit a signed 64-bit integer.

    >>> BINARY.limit
    Fraction(8000000000000, 1)
    """

    unit: Fraction
    radix: int = 1
    limit: Fraction

    @property
    def parts(self) -> int:
        return 1 if self.radix == 1 else 2


def _binary() -> Encoding:
    return Encoding(unit=Fraction(1, 2**60), radix=2**40, limit=Fraction(8 * 10**12))


BINARY = _binary()
"""Two parts at 2^-20 and 2^-60: what a floating-point column becomes when nothing else is said."""


def whole_numbers(unit: Fraction = Fraction(1)) -> Encoding:
    """One part in steps of `unit`: integers, decimals, durations, or a resolution given by the caller."""
    return Encoding(unit=unit, limit=INT64_LIMIT * unit)


def wide_decimal(scale: int) -> Encoding:
    """Two parts of eighteen digits each, for decimals that do not fit one 64-bit integer."""
    unit = Fraction(1, 10**scale)
    return Encoding(unit=unit, radix=10**18, limit=INT64_LIMIT * 10**18 * unit)


def encode_binary(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The BINARY rule for an array of finite floats; the same integers as the engines make.

    Both steps are exact: multiplying by a power of two is, and so is subtracting the nearest integer.

    >>> [int(part[0]) for part in encode_binary(np.array([1.0 + 2.0**-60]))]
    [1048576, 0]
    >>> [int(part[0]) for part in encode_binary(np.array([2.0**-60]))]
    [0, 1]
    """
    limit = float(BINARY.limit)
    scaled = np.clip(values, -limit, limit) * 2.0**20
    high = np.rint(scaled)
    low = np.rint((scaled - high) * 2.0**40)
    return high.astype(np.int64), low.astype(np.int64)
