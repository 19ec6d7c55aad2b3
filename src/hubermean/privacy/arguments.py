"""Checks of the public privacy parameters; each message is made from the bound it checks."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from numbers import Integral, Real
from typing import SupportsIndex

from hubermean.errors import InputError


def positive(name: str, value: float) -> float:
    """`value` as a float if it is finite and above 0."""
    number = _as_float(name, value)
    if not (math.isfinite(number) and number > 0.0):
        raise InputError(f"{name} must be a finite number above 0, not {value!r}")
    return number


def non_negative(name: str, value: float) -> float:
    """`value` as a float if it is finite and at least 0."""
    number = _as_float(name, value)
    if not (math.isfinite(number) and number >= 0.0):
        raise InputError(f"{name} must be a finite number of at least 0, not {value!r}")
    return number


def probability(name: str, value: float) -> float:
    """`value` as a float if it lies strictly between 0 and 1."""
    number = _as_float(name, value)
    if not 0.0 < number < 1.0:
        raise InputError(f"{name} must lie strictly between 0 and 1, not {value!r}")
    return number


def whole_positive(name: str, value: SupportsIndex) -> int:
    """`value` as an int if it is an integer of at least 1."""
    return whole(name, value, least=1)


def whole(name: str, value: SupportsIndex, *, least: int = 0) -> int:
    """`value` as an int if it is an integer of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be an integer of at least {least}, not {value!r}") from None
    if number < least or isinstance(value, bool):
        raise InputError(f"{name} must be an integer of at least {least}, not {value!r}")
    return number


def exact_positive(name: str, value: float | Fraction) -> Fraction:
    """`value` as an exact fraction if it is finite and above 0; an integer of any size stays exact."""
    given: object = value
    number = Fraction(0)
    if isinstance(given, Integral):
        # A numpy integer would stay inside the fraction, and its arithmetic wraps around at 64 bits.
        number = Fraction(int(given))
    elif isinstance(given, Fraction):
        number = given
    elif isinstance(given, Real) and math.isfinite(given):
        number = Fraction(float(given))
    if number <= 0 or isinstance(value, bool):
        raise InputError(f"{name} must be a finite number above 0, not {value!r}")
    return number


def _as_float(name: str, value: float) -> float:
    if isinstance(value, str | bytes | bool):
        raise InputError(f"{name} must be a number, not {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number, not {value!r}") from None
