"""Fixed-point arithmetic: exact sums per user, and user means rounded exactly to a grid.

Sums are integers in units of an encoding (`data.encoding`). Almost every sum fits 64 bits and is held in an int64
array; the few that do not are held beside it as Python integers. So vectorised code stays simple and no sum is rounded.

A user's mean is a ratio of integers. `round_means` returns floor(mean / spacing + 1/2) for a public grid spacing of
2^exponent, exactly: from doubles where their error cannot change the result, else in integers, vectorised where 64 bits
suffice and one by one for the few users where they do not. Each user is rounded by itself, which costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.encoding import BINARY, Encoding

USERS_PER_BLOCK = 1 << 17
"""Users per block of a pass: intermediate arrays fit the processor's cache, and threads, which take turns between numpy
operations, seldom wait for each other."""

BLOCK = 1 << 15
"""Number of 48-bit terms that can be added in 64 bits."""

_HEADROOM = 2**62
# A mean in doubles has a relative error of at most 4 parts in 2^53 (`ExactSums.means`); adding one half costs one more,
# and adding and subtracting the error bound two more: together less than half of this.
_RELATIVE_ERROR = 2.0**-49
_DOUBLE_EXPONENTS = range(-1000, 1001)  # exponents whose powers of two are doubles


@dataclass(frozen=True, eq=False, repr=False)
class ExactIntegers:
    """An array of integers of any size: `small` holds those that fit 64 bits, `large` the others by position."""

    small: IntArray
    large: dict[int, int]

    @classmethod
    def from_words(cls, chunks: Iterable[tuple[IntArray, IntArray]]) -> ExactIntegers:
        """Build from the low and high 64-bit words of 128-bit two's complement integers, in chunks."""
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
        """Return left * right, exactly; a safe estimate in doubles finds products that may not fit 64 bits."""
        wide = np.flatnonzero(np.abs(left.astype(np.float64)) * np.abs(right.astype(np.float64)) > 2.0**62)
        small = left * right
        large = {int(i): int(left[i]) * int(right[i]) for i in wide}
        small[wide] = 0
        return cls(small, large)

    def part(self, rows: slice) -> ExactIntegers:
        """Return the integers of a range, as a view."""
        start, stop = rows.start, rows.stop
        large = {place - start: value for place, value in self.large.items() if start <= place < stop}
        return ExactIntegers(self.small[rows], large)

    def take(self, positions: IntArray) -> ExactIntegers:
        """Return the integers at `positions`; position -1 stands for zero."""
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
        """Build from the words of 128-bit sums in units of 2^-60, split into the two parts of the BINARY encoding."""
        blocks = list(_blocks(chunks))
        n_users = sum(len(low) for low, _ in blocks)
        wholes, remainders = np.empty(n_users, dtype=np.int64), np.empty(n_users, dtype=np.int64)
        large: dict[int, int] = {}
        start = 0
        for low, high in blocks:
            whole, remainder = wholes[start : start + len(low)], remainders[start : start + len(low)]
            np.right_shift(low, 40, out=whole)
            whole &= (1 << 24) - 1
            whole |= high << 24
            np.bitwise_and(low, BINARY.radix - 1, out=remainder)
            beyond = (high + (1 << 38)) >> 39 != 0  # where the part above 2^40 does not fit 63 bits
            if beyond.any():
                whole[beyond] = 0
                wide = _wide_values(low, high, beyond, start)
                large.update((position, value >> 40) for position, value in wide.items())
            start += len(low)
        return cls(encoding=BINARY, high=ExactIntegers(wholes, large), low=ExactIntegers(remainders, {}))

    @classmethod
    def from_parts(cls, encoding: Encoding, high: ExactIntegers, low: ExactIntegers) -> ExactSums:
        """Build from separate sums of the two parts, in the representation that a single sum would have.

        The representation of a sum is unique. So what is computed from it in doubles is a function of that user's
        records alone, and does not reveal how the sums of all users were added.
        """
        if encoding != BINARY:
            totals = [high[position] * encoding.radix + low[position] for position in range(len(low))]
            return cls(encoding=encoding, low=ExactIntegers.from_integers(totals))
        whole, remainder = high.small + (low.small >> 40), low.small & (BINARY.radix - 1)
        large: dict[int, int] = {}
        # Not by np.abs, which is negative for -2^63.
        near_the_edge = np.flatnonzero((high.small > 2**61) | (high.small < -(2**61))).tolist()
        for position in {*high.large, *low.large, *near_the_edge}:
            upper, lower = divmod(high[position] * BINARY.radix + low[position], BINARY.radix)
            whole[position], remainder[position] = 0, lower
            large[position] = upper
        return cls(encoding=BINARY, high=ExactIntegers(whole, large), low=ExactIntegers(remainder, {}))

    def part(self, rows: slice) -> ExactSums:
        """Return the sums of a range of users, as a view."""
        high = None if self.high is None else self.high.part(rows)
        return ExactSums(encoding=self.encoding, low=self.low.part(rows), high=high)

    def means(self, counts: IntArray) -> FloatArray:
        """Return each sum divided by a count, as doubles; not finite for a count of zero.

        Formal guarantee: the relative error is at most 4 parts in 2^53, if every lower part is below 2^53. A single
        part has an error of 1 part as a double and of 2 for its unit, unless the unit is a power of two, as it is with
        two parts. Of two parts the lower is exact, and the upper exact, or off by 1 part and much larger; their sum
        adds 1 part. The division adds the last.
        """
        floats = np.empty(len(self))
        for start in range(0, len(self), USERS_PER_BLOCK):
            block = slice(start, start + USERS_PER_BLOCK)
            self.means_of_block(counts, block, out=floats[block])
        unit, above = self._scales()
        for position in self.beyond_64_bits():
            one = float(self.low[position]) * unit
            if self.high is not None:
                one = float(self.high[position]) * above + one
            with np.errstate(invalid="ignore", divide="ignore"):
                floats[position] = np.float64(one) / counts[position]
        return floats

    def means_are_accurate(self) -> bool:
        """Whether the guarantee of `means` holds for all users."""
        return not self.beyond_64_bits() and (self.high is None or are_exact_doubles(self.low.small))

    def means_of_block(self, counts: IntArray, block: slice, out: FloatArray | None = None) -> FloatArray:
        """Return `means` of a block of users; undefined for users with a part beyond 64 bits."""
        unit, above = self._scales()
        means: FloatArray = np.multiply(self.low.small[block], unit, out=out)
        if self.high is not None:
            means += self.high.small[block] * above
        with np.errstate(invalid="ignore", divide="ignore"):
            means /= counts[block]
        return means

    def _scales(self) -> tuple[float, float]:
        """Return the values of 1 in `low` and in `high`; with two parts both are powers of two."""
        unit = float(self.encoding.unit)
        return unit, unit * float(self.encoding.radix)

    def take(self, positions: IntArray) -> ExactSums:
        """Return the sums of the users at `positions`; position -1 stands for a sum of zero."""
        high = None if self.high is None else self.high.take(positions)
        return ExactSums(encoding=self.encoding, low=self.low.take(positions), high=high)

    def __len__(self) -> int:
        return len(self.low)

    def integer(self, position: int) -> int:
        """Return one user's sum in units of `encoding.unit`."""
        low = self.low[position]
        return low if self.high is None else self.high[position] * self.encoding.radix + low

    def fraction(self, position: int) -> Fraction:
        """Return one user's sum, exactly."""
        return self.integer(position) * self.encoding.unit

    def beyond_64_bits(self) -> set[int]:
        """Return the positions of users with a part that does not fit 64 bits."""
        return set(self.low.large) | set(self.high.large if self.high is not None else ())


def are_exact_doubles(lows: IntArray) -> bool:
    """Whether all lower parts are small enough to be exact as doubles."""
    return bool(lows.min(initial=0) > -(2**53) and lows.max(initial=0) < 2**53)


def _blocks(chunks: Iterable[tuple[IntArray, IntArray]]) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the chunks in blocks whose intermediate arrays fit the processor's cache."""
    for low, high in chunks:
        for start in range(0, len(low), USERS_PER_BLOCK):
            yield low[start : start + USERS_PER_BLOCK], high[start : start + USERS_PER_BLOCK]


def _wide_values(low: IntArray, high: IntArray, where: NDArray[np.bool_], start: int) -> dict[int, int]:
    """Return the 128-bit integers at the marked positions, from their words; positions count from `start`."""
    return {
        start + position: (int(high[position]) << 64) | (int(low[position]) & 0xFFFF_FFFF_FFFF_FFFF)
        for position in np.flatnonzero(where).tolist()
    }


def round_means(sums: ExactSums, counts: IntArray, *, exponent: int, low: int, high: int) -> IntArray:
    """Return floor(mean / 2^exponent + 1/2) for each user, clamped to the integers [low, high].

    A user with a count of zero gets `low`; callers give it weight zero.

    Formal guarantees:
    - the result is the exactly rounded and clamped mean, whatever the magnitudes;
    - it is the same integer for every encoding that represents the same sum.
    """
    if not -_HEADROOM < low <= high < _HEADROOM:
        raise ValueError("low and high must lie within 62 bits")
    if exponent not in _DOUBLE_EXPONENTS:
        return _round_integers(sums, counts, exponent, low, high)
    result = np.empty(len(counts), dtype=np.int64)
    unsure = _round_floats(sums, counts, exponent, low, high, result)
    if beyond := sums.beyond_64_bits():
        unsure = np.union1d(unsure, list(beyond))
    if len(unsure) == len(counts):
        return _round_integers(sums, counts, exponent, low, high)
    if len(unsure):
        result[unsure] = _round_integers(sums.take(unsure), counts[unsure], exponent, low, high)
    return result


def _round_floats(
    sums: ExactSums, counts: IntArray, exponent: int, low: int, high: int, result: IntArray
) -> IntArray:
    """Write rounded means into `result`; return the positions where the error of doubles might change the result."""
    unsure = []
    scale = 2.0**-exponent
    # Outside of the clamp, whose ends need not be doubles.
    least, most = math.nextafter(float(low), -math.inf), math.nextafter(float(high), math.inf)
    for start in range(0, len(counts), USERS_PER_BLOCK):
        block = slice(start, start + USERS_PER_BLOCK)
        above = sums.means_of_block(counts, block)
        # In place: allocating memory takes longer than filling it.
        with np.errstate(over="ignore", invalid="ignore"):
            above *= scale
            above += 0.5
            below = np.abs(above)
            below += 1.0
            below *= _RELATIVE_ERROR
            above += below
            below *= -2.0
            below += above
        for side in (below, above):
            np.floor(side, out=side)
            np.clip(side, least, most, out=side)
        different = below != above  # true for users without records, whose means are NaN
        if sums.high is not None and not are_exact_doubles(sums.low.small[block]):
            different |= (sums.low.small[block] + 2**53) >> 54 != 0
        if different.any():
            unsure.append(np.flatnonzero(different) + start)
            below[different] = 0.0
        rounded = result[block]
        rounded[:] = below
        np.clip(rounded, low, high, out=rounded)
    return np.concatenate(unsure) if unsure else np.empty(0, dtype=np.int64)


def _round_integers(sums: ExactSums, counts: IntArray, exponent: int, low: int, high: int) -> IntArray:
    """Return all rounded means, computed in integers."""
    n_users = len(counts)
    result = np.empty(n_users, dtype=np.int64)
    ratio = sums.encoding.unit / Fraction(2) ** exponent
    if sums.high is None:
        slow = _round_one_part(sums.low.small, counts, ratio, low, high, result)
    elif sums.encoding == BINARY and -60 <= exponent <= 40:
        slow = _round_binary(sums.high.small, sums.low.small, counts, exponent, low, high, result)
    else:
        slow = np.ones(n_users, dtype=bool)
    if beyond := sums.beyond_64_bits():
        slow[list(beyond)] = True
    numerator, denominator = ratio.numerator, ratio.denominator
    for position in np.flatnonzero(slow & (counts > 0)).tolist():
        double = 2 * denominator * int(counts[position])
        rounded = (2 * numerator * sums.integer(position) + double // 2) // double
        result[position] = min(max(rounded, low), high)
    if not counts.all():
        result[counts == 0] = low
    return result


def _round_one_part(
    sums: IntArray, counts: IntArray, ratio: Fraction, low: int, high: int, result: IntArray
) -> NDArray[np.bool_]:
    """Write sums * ratio / counts, rounded, into `result`; return the users whose arithmetic may overflow."""
    numerator, denominator = ratio.numerator, ratio.denominator
    # Means beyond these limits are clamped after rounding, so clamping them first changes no result.
    least = (low * denominator) // numerator - 2
    most = -((-high * denominator) // numerator) + 2
    size = 2 * numerator * (max(abs(least), abs(most)) + 2) + denominator
    if size >= _HEADROOM:
        return np.ones(len(sums), dtype=bool)
    for start in range(0, len(sums), USERS_PER_BLOCK):
        block = slice(start, start + USERS_PER_BLOCK)
        divisor = np.maximum(counts[block], 1)
        whole, remainder = np.divmod(sums[block], divisor)
        np.clip(whole, least, most, out=whole)
        whole *= 2 * numerator
        # May overflow for huge counts: those users are computed again in Python integers.
        remainder *= 2 * numerator
        remainder //= divisor
        whole += remainder
        whole += denominator
        whole //= 2 * denominator
        np.clip(whole, low, high, out=result[block])
    slow: NDArray[np.bool_] = counts >= _HEADROOM // (2 * numerator)
    return slow


def _round_binary(
    highs: IntArray, lows: IntArray, counts: IntArray, exponent: int, low: int, high: int, result: IntArray
) -> NDArray[np.bool_]:
    """Write (highs * 2^40 + lows) * 2^-60 / counts, rounded to 2^exponent, into `result`.

    Returns the users whose arithmetic may overflow.
    """
    shift = 61 + exponent  # twice the mean in units of 2^-60: one more bit decides the rounding
    for start in range(0, len(counts), USERS_PER_BLOCK):
        block = slice(start, start + USERS_PER_BLOCK)
        divisor = np.maximum(counts[block], 1)
        whole, remainder = np.divmod(highs[block], divisor)
        remainder <<= 40  # fits for counts below 2^22; other users are computed again in Python integers
        remainder += lows[block]
        fine, remainder = np.divmod(remainder, divisor)
        fine <<= 1
        remainder <<= 1
        fine += remainder >= divisor
        # Now 2 * mean * 2^60 lies in [whole * 2^41 + fine, the same + 1), fine of either sign.
        whole += fine >> 41
        fine &= (1 << 41) - 1
        if shift > 41:
            # Add one half; |whole| <= 8e12 * 2^20 + 1 and exponent <= 40 leave room for it.
            whole += 1 << (shift - 42)
            whole >>= shift - 41
        else:
            # Clamp before scaling up: values beyond the clamp stay beyond it.
            up = 41 - shift
            np.clip(whole, (low >> up) - 2, (high >> up) + 2, out=whole)
            whole <<= up
            fine += (1 << shift) >> 1
            fine >>= shift
            whole += fine
        np.clip(whole, low, high, out=result[block])
    slow: NDArray[np.bool_] = counts >= 2**22
    return slow
