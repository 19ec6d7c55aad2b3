"""Checks of public parameters, and exact numbers rounded to floats on the safe side."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from numbers import Integral, Real
from typing import SupportsIndex

from hubermean.errors import InputError, parameter


def check_positive(name: str, value: float) -> float:
    """Return `value` as a float if it is finite and above 0; raise InputError otherwise."""
    number = _as_float(name, value)
    if not (math.isfinite(number) and number > 0.0):
        raise InputError(f"{parameter(name)} must be a finite number above 0, not {value!r}")
    return number


def check_non_negative(name: str, value: float) -> float:
    """Return `value` as a float if it is finite and at least 0; raise InputError otherwise."""
    number = _as_float(name, value)
    if not (math.isfinite(number) and number >= 0.0):
        raise InputError(f"{parameter(name)} must be a finite number of at least 0, not {value!r}")
    return number


def check_probability(name: str, value: float) -> float:
    """Return `value` as a float if it lies strictly between 0 and 1; raise InputError otherwise."""
    number = _as_float(name, value)
    if not 0.0 < number < 1.0:
        raise InputError(f"{parameter(name)} must lie strictly between 0 and 1, not {value!r}")
    return number


def check_positive_integer(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int if it is an integer of at least 1; raise InputError otherwise."""
    return check_integer(name, value, least=1)


def check_integer(name: str, value: SupportsIndex, *, least: int = 0) -> int:
    """Return `value` as an int if it is an integer of at least `least`; raise InputError otherwise."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{parameter(name)} must be an integer of at least {least}, not {value!r}") from None
    if number < least or isinstance(value, bool):
        raise InputError(f"{parameter(name)} must be an integer of at least {least}, not {value!r}")
    return number


def check_exact_positive(name: str, value: float | Fraction) -> Fraction:
    """Return `value` as an exact fraction if it is finite and above 0; integers of any size stay exact."""
    given: object = value
    number = Fraction(0)
    if isinstance(given, Integral):
        # A numpy integer would stay inside the fraction, and its arithmetic overflows at 64 bits.
        number = Fraction(int(given))
    elif isinstance(given, Fraction):
        number = given
    elif isinstance(given, Real) and math.isfinite(given):
        number = Fraction(float(given))
    if number <= 0 or isinstance(value, bool):
        raise InputError(f"{parameter(name)} must be a finite number above 0, not {value!r}")
    return number


def _as_float(name: str, value: float) -> float:
    if isinstance(value, str | bytes | bool):
        raise InputError(f"{parameter(name)} must be a number, not {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{parameter(name)} must be a number, not {value!r}") from None


def round_down(exact: Fraction) -> float:
    """Return the largest float that is at most `exact` >= 0, so that a divided budget never grows.

    >>> Fraction(round_down(Fraction(1, 10))) <= Fraction(1, 10)
    True
    """
    value = float(exact)
    return math.nextafter(value, 0.0) if Fraction(value) > exact else value


def is_real(given: object) -> bool:
    """Return whether a parameter is a real number of Python or numpy; True and False are not."""
    return isinstance(given, Real) and not isinstance(given, bool)
