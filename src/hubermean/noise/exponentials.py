"""Bounds on exp(-x) of any precision, in integer arithmetic."""

from __future__ import annotations

from fractions import Fraction

_SMALL_BITS = 8  # arguments of the series are at most 2^-8, so few terms are needed


def exponential_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return (low, high) with low <= 2^bits exp(-exponent) <= high, for exponent >= 0; they differ by at most two.

    exp(-x) = exp(-x / 2^r)^(2^r) with a small x / 2^r. Every step rounds down for low and up for high.

    >>> low, high = exponential_bounds(Fraction(1), 64)
    >>> low / 2**64, high - low
    (0.36787944117144233, 1)
    """
    if exponent < 0:
        raise ValueError("exp(-exponent) must be at most 1")
    halvings = _ceil(exponent.numerator, exponent.denominator).bit_length() + _SMALL_BITS
    work = bits + halvings + 16  # each squaring may double the error
    numerator, denominator = exponent.numerator << work, exponent.denominator << halvings
    low = _exp_below(_ceil(numerator, denominator), work)
    high = _exp_above(numerator // denominator, work)
    for _ in range(halvings):
        low, high = multiply_bounds((low, high), (low, high), work)
    return low >> (work - bits), min(_shifted_up(high, work - bits), 1 << bits)


def multiply_bounds(one: tuple[int, int], other: tuple[int, int], bits: int) -> tuple[int, int]:
    """Return bounds on a product from bounds on its factors, all as multiples of 2^-bits."""
    return one[0] * other[0] >> bits, _shifted_up(one[1] * other[1], bits)


def _exp_below(x: int, bits: int) -> int:
    """Return at most 2^bits exp(-x / 2^bits): the reciprocal of a series rounded up, with a bound on its tail."""
    one = 1 << bits
    total, term, place = one, one, 0
    while term > 1:
        place += 1
        term = _ceil(_shifted_up(term * x, bits), place)
        total += term
    # The terms at least halve, so the omitted ones add up to at most the last.
    return (one << bits) // (total + term)


def _exp_above(x: int, bits: int) -> int:
    """Return at least 2^bits exp(-x / 2^bits): the reciprocal of a truncated series rounded down."""
    one = 1 << bits
    total, term, place = one, one, 0
    while term > 0:
        place += 1
        term = (term * x >> bits) // place
        total += term
    return _ceil(one << bits, total)


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def _shifted_up(number: int, bits: int) -> int:
    return -(-number >> bits)
