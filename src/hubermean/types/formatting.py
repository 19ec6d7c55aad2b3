"""Numbers and parameters as text."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

SHOWN = 10
"""Columns, and numbers of a list, that are shown; `to_dict` has all."""

_LARGEST_PLAIN, _MOST_DECIMALS = 1e15, 12  # larger or finer numbers have an exponent
_END_DIGITS, _COUNT_DIGITS = 2, 3


def number(value: float) -> str:
    """Return six significant digits, without an exponent for numbers of ordinary size."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-4 <= magnitude < 1e6:
        return f"{value:,.6g}"
    return f"{value:,.0f}" if 1e6 <= magnitude < 1e15 else f"{value:.6g}"


def to_width(value: float, low: float, high: float, *, whole: bool = False) -> tuple[str, str, str]:
    """Return a value and its interval with the digits that the interval's width warrants.

    The ends have two digits of the width and are rounded outward; the value has one more. With `whole`, no decimals.

    >>> to_width(16.16761, 15.9, 16.43522), to_width(2071234.1, 1963390.1, 2187234.5)
    (('16.168', '15.90', '16.44'), ('2,071,000', '1,960,000', '2,190,000'))
    >>> to_width(4012, 4003.2, 4020.8, whole=True)
    ('4,012', '4,003', '4,021')
    """
    width, largest = high - low, max(abs(value), abs(low), abs(high))
    if not (0.0 < width < math.inf and largest < _LARGEST_PLAIN):
        return _plain(value, whole), _plain(low, whole), _plain(high, whole)
    exponent = math.floor(math.log10(width)) - _END_DIGITS + 1
    if exponent <= -_MOST_DECIMALS:
        return _plain(value, whole), _plain(low, whole), _plain(high, whole)
    least = 0 if whole else exponent - 1
    rounded = (
        Decimal(repr(float(one))).quantize(Decimal(1).scaleb(max(step, least)), rounding)
        for one, step, rounding in (
            (value, exponent - 1, ROUND_HALF_EVEN),
            (low, exponent, ROUND_FLOOR),
            (high, exponent, ROUND_CEILING),
        )
    )
    first, second, third = (f"{one + 0:,f}" for one in rounded)  # adding 0 makes -0 a plain 0
    return first, second, third


def _plain(value: float, whole: bool) -> str:
    return f"{value:,.0f}" if whole and abs(value) < _LARGEST_PLAIN else number(value)


def about(value: float, width: float = 0.0) -> str:
    """Return a measured number of users or records: three digits, or what the width of its interval warrants.

    >>> about(28532, 2917), about(34870, 15975), about(5268), about(7)
    ('28,500', '35,000', '5,270', '7')
    """
    digits = math.floor(math.log10(max(abs(value), 1.0))) - _COUNT_DIGITS + 1
    if 1.0 <= width < math.inf:
        digits = max(digits, math.floor(math.log10(width)) - _END_DIGITS + 1)
    step = 10 ** max(digits, 0)
    return f"{round(value / step) * step:,}"


def rounded_up(amount: float, digits: int = 3) -> str:
    """Return a positive amount with so many digits, rounded up.

    >>> rounded_up(2.7182818), rounded_up(2.0137527), rounded_up(20.0), rounded_up(162754.8)
    ('2.72', '2.02', '20', '163,000')
    """
    exact = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(amount))
    return f"{exact:,f}" if exact >= 10**digits else f"{float(exact):.{digits}g}"


def one_sided(amount: Decimal, *, up: bool) -> str:
    """Return six digits of an exact amount, rounded up (for what was spent) or down (for what is left).

    >>> one_sided(Decimal("0.12345678"), up=True), one_sided(Decimal("0.12345678"), up=False)
    ('0.123457', '0.123456')
    >>> one_sided(Decimal(2), up=True), one_sided(Decimal("2.5e-7"), up=True)
    ('2', '2.5e-07')
    """
    if not amount.is_finite():
        return "infinite"
    rounded = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR).plus(amount)
    if rounded == 0 or Decimal("1e-4") <= rounded < Decimal("1e12"):
        text = f"{rounded:,f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits = "".join(map(str, rounded.as_tuple().digits)).rstrip("0")
    return f"{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e{rounded.adjusted():+03d}"


def readable(given: Any) -> str:
    """Return a parameter of a release as text."""
    if isinstance(given, float):
        return number(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return f"{given:,}"
    if isinstance(given, list | tuple):
        more = [f"... ({len(given):,} in all)"] if len(given) > SHOWN else []
        return ", ".join([*map(readable, given[:SHOWN]), *more])
    return str(given)
