"""Exact integer sums, one per user, that may exceed 64 bits.

Almost every sum fits 64 bits and is kept in a plain int64 array. The few that do not are kept beside it as
Python integers, so that the vectorised code stays simple and no sum is ever rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.exact.encoding import BINARY, Encoding

IntArray = NDArray[np.int64]

USERS_AT_A_TIME = 1 << 17
"""In a pass over users: what is computed of them stays in the processor's cache, and threads, which take turns between
the steps of numpy, seldom wait for each other."""

BLOCK = 1 << 15
"""Users whose terms are added up in 64 bits: a term may have 48 bits."""


@dataclass(frozen=True, eq=False, repr=False)
class ExactIntegers:
    """An array of integers of any size: `small` holds those of 64 bits, `large` the others by position."""

    small: IntArray
    large: dict[int, int]

    @classmethod
    def from_words(cls, chunks: Iterable[tuple[IntArray, IntArray]]) -> ExactIntegers:
        """From the low and high 64-bit words of 128-bit two's complement integers, in chunks."""
        blocks = list(_blocks(chunks))
        small = np.empty(sum(len(low) for low, _ in blocks), dtype=np.int64)
        large: dict[int, int] = {}
        start = 0
        for low, high in blocks:
            part = small[start : start + len(low)]
            part[:] = low
            beyond = high != part >> 63
            if beyond.any():
                part[beyond] = 0
                large.update(_wide_values(low, high, beyond, start))
            start += len(low)
        return cls(small, large)

    @classmethod
    def from_integers(cls, values: Sequence[int]) -> ExactIntegers:
        fits = [-(2**63) <= value < 2**63 for value in values]
        small = np.array(
            [value if fit else 0 for value, fit in zip(values, fits, strict=True)], dtype=np.int64
        )
        return cls(
            small, {i: value for i, (value, fit) in enumerate(zip(values, fits, strict=True)) if not fit}
        )

    @classmethod
    def products(cls, left: IntArray, right: IntArray) -> ExactIntegers:
        """left * right, exactly; the product is judged in floats with room to spare, then made in integers."""
        wide = np.flatnonzero(np.abs(left.astype(np.float64)) * np.abs(right.astype(np.float64)) > 2.0**62)
        small = left * right
        large = {int(i): int(left[i]) * int(right[i]) for i in wide}
        small[wide] = 0
        return cls(small, large)

    def part(self, share: slice) -> ExactIntegers:
        """Those of a range, as a view."""
        start, stop = share.start, share.stop
        large = {place - start: value for place, value in self.large.items() if start <= place < stop}
        return ExactIntegers(self.small[share], large)

    def taken(self, positions: IntArray) -> ExactIntegers:
        """Some of them; position -1 stands for zero."""
        small = np.where(positions < 0, 0, self.small[positions] if len(self.small) else 0)
        large = {}
        if self.large:
            for place in np.flatnonzero(np.isin(positions, list(self.large))).tolist():
                large[place] = self.large[int(positions[place])]
        return ExactIntegers(small, large)

    def __len__(self) -> int:
        return len(self.small)

    def __getitem__(self, position: int) -> int:
        return self.large.get(position, int(self.small[position]))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExactSums:
    """One column's sum per user: `(high * radix + low) * unit`, exactly; `high` is None for one part."""

    encoding: Encoding
    low: ExactIntegers
    high: ExactIntegers | None = None

    @classmethod
    def from_binary_words(cls, chunks: Iterable[tuple[IntArray, IntArray]]) -> ExactSums:
        """From the words of 128-bit sums in units of 2^-60: the BINARY encoding, taken apart."""
        blocks = list(_blocks(chunks))
        n_users = sum(len(low) for low, _ in blocks)
        wholes, rests = np.empty(n_users, dtype=np.int64), np.empty(n_users, dtype=np.int64)
        large: dict[int, int] = {}
        start = 0
        for low, high in blocks:
            whole, rest = wholes[start : start + len(low)], rests[start : start + len(low)]
            np.right_shift(low, 40, out=whole)
            whole &= (1 << 24) - 1
            whole |= high << 24
            np.bitwise_and(low, BINARY.radix - 1, out=rest)
            beyond = (high + (1 << 38)) >> 39 != 0  # where the part above 2^40 does not fit 63 bits
            if beyond.any():
                whole[beyond] = 0
                wide = _wide_values(low, high, beyond, start)
                large.update((position, value >> 40) for position, value in wide.items())
            start += len(low)
        return cls(encoding=BINARY, high=ExactIntegers(wholes, large), low=ExactIntegers(rests, {}))

    @classmethod
    def from_parts(cls, encoding: Encoding, high: ExactIntegers, low: ExactIntegers) -> ExactSums:
        """From separate sums of the two parts, in the form that one sum would have.

        One form for one sum: what is computed from it in floats is then a function of that user's records alone, and
        does not tell how the sums of all users were added up.
        """
        if encoding != BINARY:
            totals = [high[position] * encoding.radix + low[position] for position in range(len(low))]
            return cls(encoding=encoding, low=ExactIntegers.from_integers(totals))
        whole, rest = high.small + (low.small >> 40), low.small & (BINARY.radix - 1)
        large: dict[int, int] = {}
        # Not by magnitude: that of -2^63 is negative.
        near_the_edge = np.flatnonzero((high.small > 2**61) | (high.small < -(2**61))).tolist()
        for position in {*high.large, *low.large, *near_the_edge}:
            upper, lower = divmod(high[position] * BINARY.radix + low[position], BINARY.radix)
            whole[position], rest[position] = 0, lower
            large[position] = upper
        return cls(encoding=BINARY, high=ExactIntegers(whole, large), low=ExactIntegers(rest, {}))

    def part(self, share: slice) -> ExactSums:
        """The sums of a range of users, as a view."""
        high = None if self.high is None else self.high.part(share)
        return ExactSums(encoding=self.encoding, low=self.low.part(share), high=high)

    def means(self, counts: IntArray) -> NDArray[np.float64]:
        """Each sum over a count, as floats; no number over zero.

        Formal guarantee: one is off by 4 parts in 2^53 of itself at most, if there is no lower part of 2^53 or more. A
        single part is off by 1 as a float and by 2 for its unit, unless that is a power of two, as it is with two
        parts. Of these the lower is exact then, and the upper exact, or off by 1 and much larger; their sum is off by 1
        more. The quotient adds the last.
        """
        floats = np.empty(len(self))
        for start in range(0, len(self), USERS_AT_A_TIME):
            block = slice(start, start + USERS_AT_A_TIME)
            self.means_of_block(counts, block, out=floats[block])
        unit, above = self._scales()
        for position in self.beyond_64_bits():
            one = float(self.low[position]) * unit
            if self.high is not None:
                one = float(self.high[position]) * above + one
            with np.errstate(invalid="ignore", divide="ignore"):
                floats[position] = np.float64(one) / counts[position]
        return floats

    def means_are_close(self) -> bool:
        """Whether the guarantee of `means` holds for all users."""
        return not self.beyond_64_bits() and (self.high is None or close(self.low.small))

    def means_of_block(
        self, counts: IntArray, block: slice, out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """As `means`, for some users; of those with a part beyond 64 bits it has no meaning."""
        unit, above = self._scales()
        means: NDArray[np.float64] = np.multiply(self.low.small[block], unit, out=out)
        if self.high is not None:
            means += self.high.small[block] * above
        with np.errstate(invalid="ignore", divide="ignore"):
            means /= counts[block]
        return means

    def _scales(self) -> tuple[float, float]:
        """Of a unit of `low` and of `high`; with two parts both are powers of two."""
        unit = float(self.encoding.unit)
        return unit, unit * float(self.encoding.radix)

    def taken(self, positions: IntArray) -> ExactSums:
        """The sums of some users; position -1 stands for a sum of zero."""
        high = None if self.high is None else self.high.taken(positions)
        return ExactSums(encoding=self.encoding, low=self.low.taken(positions), high=high)

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


def close(lows: IntArray) -> bool:
    """Whether lower parts are small enough to be floats."""
    return bool(lows.min(initial=0) > -(2**53) and lows.max(initial=0) < 2**53)


def _blocks(chunks: Iterable[tuple[IntArray, IntArray]]) -> Iterator[tuple[IntArray, IntArray]]:
    """The chunks in pieces whose temporaries stay in the processor's cache."""
    for low, high in chunks:
        for start in range(0, len(low), USERS_AT_A_TIME):
            yield low[start : start + USERS_AT_A_TIME], high[start : start + USERS_AT_A_TIME]


def _wide_values(low: IntArray, high: IntArray, where: NDArray[np.bool_], start: int) -> dict[int, int]:
    """The 128-bit integers at the marked positions, from their words; positions count from `start`."""
    return {
        start + position: (int(high[position]) << 64) | (int(low[position]) & 0xFFFF_FFFF_FFFF_FFFF)
        for position in np.flatnonzero(where).tolist()
    }
