"""Exact integer sums, one per user, that may exceed 64 bits.

Almost every sum fits 64 bits and is kept in a plain int64 array. The few that do not are kept beside it as
Python integers, so that the vectorised code stays simple and no sum is ever rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.exact.encoding import Encoding

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ExactIntegers:
    """An array of integers of any size: `small` holds those of 64 bits, `large` the others by position."""

    small: IntArray
    large: dict[int, int]

    @classmethod
    def from_words(cls, low: IntArray, high: IntArray) -> ExactIntegers:
        """From the two 64-bit words of 128-bit two's complement integers."""
        wide = np.flatnonzero(high != low >> 63)
        small = np.ascontiguousarray(low)
        if not len(wide):
            return cls(small, {})
        small = small.copy()
        large = {
            int(position): (int(high[position]) << 64) | (int(low[position]) & 0xFFFF_FFFF_FFFF_FFFF)
            for position in wide
        }
        small[wide] = 0
        return cls(small, large)

    @classmethod
    def from_integers(cls, values: Sequence[int]) -> ExactIntegers:
        fits = [-(2**63) <= value < 2**63 for value in values]
        small = np.array([value if fit else 0 for value, fit in zip(values, fits, strict=True)], dtype=np.int64)
        return cls(small, {i: value for i, (value, fit) in enumerate(zip(values, fits, strict=True)) if not fit})

    @classmethod
    def products(cls, left: IntArray, right: IntArray) -> ExactIntegers:
        """left * right, exactly; the product is judged in floats with room to spare, then made in integers."""
        wide = np.flatnonzero(np.abs(left.astype(np.float64)) * np.abs(right.astype(np.float64)) > 2.0**62)
        small = left * right
        large = {int(i): int(left[i]) * int(right[i]) for i in wide}
        small[wide] = 0
        return cls(small, large)

    def __len__(self) -> int:
        return len(self.small)

    def __getitem__(self, position: int) -> int:
        return self.large.get(position, int(self.small[position]))

    def approximate(self) -> NDArray[np.float64]:
        """As floats, each within half a unit in the last place."""
        floats = self.small.astype(np.float64)
        for position, value in self.large.items():
            floats[position] = float(value)
        return floats


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExactSums:
    """One column's sum per user: `(high * radix + low) * unit`, exactly; `high` is None for one part."""

    encoding: Encoding
    low: ExactIntegers
    high: ExactIntegers | None = None

    def __len__(self) -> int:
        return len(self.low)

    def integer(self, position: int) -> int:
        """One user's sum in units of `encoding.unit`."""
        low = self.low[position]
        return low if self.high is None else self.high[position] * self.encoding.radix + low

    def fraction(self, position: int) -> Fraction:
        """One user's sum, exactly."""
        return self.integer(position) * self.encoding.unit

    def beyond_64_bits(self) -> set[int]:
        """Positions of the users with a part that does not fit 64 bits."""
        return set(self.low.large) | set(self.high.large if self.high is not None else ())
