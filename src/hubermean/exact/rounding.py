"""Means of users, rounded exactly to a public grid of spacing 2^exponent.

The mean of a user is a ratio of integers. `rounded_means` gives floor(mean / spacing + 1/2) exactly: from floats where
their error cannot change it, else in integers, vectorised where 64 bits suffice and one by one for the few users where
they do not. Rounding a user's mean looks at that user alone and costs no privacy.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.exact.encoding import BINARY
from hubermean.exact.sums import USERS_AT_A_TIME, ExactSums, IntArray, close

_HEADROOM = 2**62
# A float mean is off by 4 parts in 2^53 at most (`ExactSums.means`), one more for the half that is added, two for the
# error that is added and taken off twice: all together less than half of this.
_ERROR = 2.0**-49
_EXPONENTS = range(-1000, 1001)  # whose powers of two are floats


def rounded_means(sums: ExactSums, counts: IntArray, *, exponent: int, low: int, high: int) -> IntArray:
    """floor(mean / 2^exponent + 1/2) for each user, clamped to the integers [low, high].

    Users with a count of zero have no mean; they get `low`, and callers give them weight zero.

    Formal guarantees:
    - the result is the exactly rounded and clamped mean, whatever the magnitudes;
    - it is the same integer for every encoding that represents the same sum.
    """
    if not -_HEADROOM < low <= high < _HEADROOM:
        raise ValueError("the clamp of a rounding must lie within 62 bits")
    if exponent not in _EXPONENTS:
        return _round_integers(sums, counts, exponent, low, high)
    result = np.empty(len(counts), dtype=np.int64)
    unsure = _round_floats(sums, counts, exponent, low, high, result)
    if beyond := sums.beyond_64_bits():
        unsure = np.union1d(unsure, list(beyond))
    if len(unsure) == len(counts):
        return _round_integers(sums, counts, exponent, low, high)
    if len(unsure):
        result[unsure] = _round_integers(sums.taken(unsure), counts[unsure], exponent, low, high)
    return result


def _round_floats(
    sums: ExactSums, counts: IntArray, exponent: int, low: int, high: int, result: IntArray
) -> IntArray:
    """Rounded means into `result`; returns the positions of those that an error of floats might change."""
    unsure = []
    scale = 2.0**-exponent
    # No nearer than the ends of the clamp, which need not be floats.
    least, most = math.nextafter(float(low), -math.inf), math.nextafter(float(high), math.inf)
    for start in range(0, len(counts), USERS_AT_A_TIME):
        block = slice(start, start + USERS_AT_A_TIME)
        above = sums.means_of_block(counts, block)
        # In place: to be given memory takes longer than to fill it.
        with np.errstate(over="ignore", invalid="ignore"):
            above *= scale
            above += 0.5
            below = np.abs(above)
            below += 1.0
            below *= _ERROR
            above += below
            below *= -2.0
            below += above
        for side in (below, above):
            np.floor(side, out=side)
            np.clip(side, least, most, out=side)
        different = below != above  # so are those of users without records, which are no numbers
        if sums.high is not None and not close(sums.low.small[block]):
            different |= (sums.low.small[block] + 2**53) >> 54 != 0
        if different.any():
            unsure.append(np.flatnonzero(different) + start)
            below[different] = 0.0
        rounded = result[block]
        rounded[:] = below
        np.clip(rounded, low, high, out=rounded)
    return np.concatenate(unsure) if unsure else np.empty(0, dtype=np.int64)


def _round_integers(sums: ExactSums, counts: IntArray, exponent: int, low: int, high: int) -> IntArray:
    """All means, without floats."""
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
    """sums * ratio / counts, rounded, into `result`; returns the users whose arithmetic may not fit."""
    numerator, denominator = ratio.numerator, ratio.denominator
    # Whole means beyond these limits round beyond the clamp, so clamping them first changes nothing but size.
    least = (low * denominator) // numerator - 2
    most = -((-high * denominator) // numerator) + 2
    size = 2 * numerator * (max(abs(least), abs(most)) + 2) + denominator
    if size >= _HEADROOM:
        return np.ones(len(sums), dtype=bool)
    for start in range(0, len(sums), USERS_AT_A_TIME):
        block = slice(start, start + USERS_AT_A_TIME)
        divisor = np.maximum(counts[block], 1)
        whole, rest = np.divmod(sums[block], divisor)
        np.clip(whole, least, most, out=whole)
        whole *= 2 * numerator
        rest *= 2 * numerator  # may wrap around for huge counts: those users are redone in Python integers
        rest //= divisor
        whole += rest
        whole += denominator
        whole //= 2 * denominator
        np.clip(whole, low, high, out=result[block])
    slow: NDArray[np.bool_] = counts >= _HEADROOM // (2 * numerator)
    return slow


def _round_binary(
    highs: IntArray, lows: IntArray, counts: IntArray, exponent: int, low: int, high: int, result: IntArray
) -> NDArray[np.bool_]:
    """(highs * 2^40 + lows) * 2^-60 / counts, rounded to 2^exponent, into `result`; returns unfit users."""
    shift = 61 + exponent  # the mean is held doubled at 2^-60, so that the bit below the last is at hand
    for start in range(0, len(counts), USERS_AT_A_TIME):
        block = slice(start, start + USERS_AT_A_TIME)
        divisor = np.maximum(counts[block], 1)
        whole, rest = np.divmod(highs[block], divisor)
        rest <<= 40  # fits for counts below 2^22; other users are redone in Python integers
        rest += lows[block]
        fine, rest = np.divmod(rest, divisor)
        fine <<= 1
        rest <<= 1
        fine += rest >= divisor
        # Now 2 * mean * 2^60 lies in [whole * 2^41 + fine, the same + 1), fine of either sign.
        whole += fine >> 41
        fine &= (1 << 41) - 1
        if shift > 41:
            # The half; |whole| <= 8e12 * 2^20 + 1 and exponent <= 40 leave room for it.
            whole += 1 << (shift - 42)
            whole >>= shift - 41
        else:
            # Clamp before scaling up: whole parts beyond the clamp stay beyond it.
            up = 41 - shift
            np.clip(whole, (low >> up) - 2, (high >> up) + 2, out=whole)
            whole <<= up
            fine += (1 << shift) >> 1
            fine >>= shift
            whole += fine
        np.clip(whole, low, high, out=result[block])
    slow: NDArray[np.bool_] = counts >= 2**22
    return slow
