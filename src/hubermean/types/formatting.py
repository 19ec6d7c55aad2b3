"""Numbers, parameters and labelled lines as text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

SHOWN = 10
"""Columns, and numbers of a list, that are shown; `to_dict` has all."""

_WIDTH = 110
_LARGEST_PLAIN, _MOST_DECIMALS = 1e15, 12  # larger or finer numbers have an exponent


def number(value: float) -> str:
    """Return six significant digits, without an exponent for numbers of ordinary size."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-4 <= magnitude < 1e6:
        return f"{value:,.6g}"
    return f"{value:,.0f}" if 1e6 <= magnitude < 1e15 else f"{value:.6g}"


def to_width(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Return a value and its interval with as many decimals as the width warrants; the ends are rounded outward.

    >>> to_width(16.16761, 15.9, 16.43522), to_width(1947312.3, 1839390.1, 2055234.5)
    (('16.17', '15.90', '16.44'), ('1,947,312', '1,839,390', '2,055,235'))
    """
    width, largest = high - low, max(abs(value), abs(low), abs(high))
    if not (0.0 < width < math.inf and largest < _LARGEST_PLAIN):
        return number(value), number(low), number(high)
    decimals = max(1 - math.floor(math.log10(width)), 0)
    if decimals > _MOST_DECIMALS:
        return number(value), number(low), number(high)
    step = Decimal(1).scaleb(-decimals)
    rounded = (
        Decimal(one).quantize(step, rounding)
        for one, rounding in ((value, ROUND_HALF_EVEN), (low, ROUND_FLOOR), (high, ROUND_CEILING))
    )
    first, second, third = (f"{one + 0:,f}" for one in rounded)  # adding 0 makes -0 a plain 0
    return first, second, third


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


def labelled(lines: Sequence[tuple[str, str]]) -> str:
    """Return labelled lines as a block of text; long lines are wrapped."""
    width = max(len(label) for label, _ in lines)
    return "\n".join(
        textwrap.fill(text, _WIDTH, initial_indent=f"{label:<{width}}  ", subsequent_indent=" " * (width + 2))
        for label, text in lines
    )
