"""How names and numbers are written for people."""

from __future__ import annotations

import math
from typing import Any

SHOWN = 10
"""Columns, and numbers of a list, that are shown to people; `to_dict` has them all."""


def printable(name: str) -> str:
    """A name without line breaks and control codes, which a terminal or a page would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def number(value: float) -> str:
    """Six significant digits, without an exponent where people write none."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-4 <= magnitude < 1e6:
        return f"{value:.6g}"
    return f"{value:,.0f}" if 1e6 <= magnitude < 1e15 else f"{value:.6g}"


def alike(value: float, *ends: float) -> list[str]:
    """A value and the ends of its interval, with digits enough to tell these apart."""
    plain = [number(value), *map(number, ends)]
    if not ends or not 0.0 < (width := ends[1] - ends[0]) < 1e-3 * abs(value) or abs(value) >= 1e15:
        return plain
    decimals = max(2 - math.floor(math.log10(width)), 0)
    return [f"{one:,.{decimals}f}" for one in (value, *ends)] if decimals <= 12 else plain


def readable(given: Any) -> str:
    """A parameter of a release."""
    if isinstance(given, float):
        return number(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return f"{given:,}"
    if isinstance(given, list | tuple):
        more = [f"... ({len(given):,} in all)"] if len(given) > SHOWN else []
        return ", ".join([*map(readable, given[:SHOWN]), *more])
    return str(given)
