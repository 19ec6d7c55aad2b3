"""Fixed-point encodings: how the value of one record becomes integers.

A value is encoded as `(high * radix + low) * unit` with 64-bit integers `high` and `low` (`low` alone if `radix` is 1).
The encoding depends on that value and the declared type of its column, never on other records, so it costs no privacy.
All later sums are sums of integers, so they do not depend on the order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray

INT64_LIMIT = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """A public rule that maps the value of one record to integers.

    Formal guarantees:
    - a finite value v with |v| <= limit is represented with an error of at most unit / 2;
    - a value beyond the limit is clamped to it, with its sign;
    - both parts fit a signed 64-bit integer.

    >>> BINARY.limit
    Fraction(8000000000000, 1)
    """

    unit: Fraction
    radix: int = 1
    limit: Fraction


BINARY = Encoding(unit=Fraction(1, 2**60), radix=2**40, limit=Fraction(8 * 10**12))
"""Two parts in units of 2^-20 and 2^-60: the default for floating-point columns."""


def whole_numbers(unit: Fraction = Fraction(1)) -> Encoding:
    """Return the encoding with one part in units of `unit`: integers, decimals, durations, or a given resolution."""
    return Encoding(unit=unit, limit=INT64_LIMIT * unit)


def wide_decimal(scale: int) -> Encoding:
    """Return the encoding with two parts of 18 digits each, for decimals that do not fit one 64-bit integer."""
    unit = Fraction(1, 10**scale)
    return Encoding(unit=unit, radix=10**18, limit=INT64_LIMIT * 10**18 * unit)


def encode_binary(values: FloatArray) -> tuple[IntArray, IntArray]:
    """Encode an array of finite doubles as BINARY; returns the same (high, low) integers as the engines.

    Both operations are exact: multiplying by a power of two, and subtracting the nearest integer.

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
