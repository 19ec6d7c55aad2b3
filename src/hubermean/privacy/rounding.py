"""Exact numbers as floats, on the safe side."""

from __future__ import annotations

import math
from fractions import Fraction


def float_down(exact: Fraction) -> float:
    """The largest float that is at most `exact` >= 0: a budget that is divided never grows.

    >>> Fraction(float_down(Fraction(1, 10))) <= Fraction(1, 10)
    True
    """
    value = float(exact)
    return math.nextafter(value, 0.0) if Fraction(value) > exact else value
