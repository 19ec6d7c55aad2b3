"""How benchmarks write numbers and sentences, on a terminal and on a page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable


def number(value: float) -> str:
    """Three digits that matter, without an exponent where people write none."""
    if not math.isfinite(value):
        return "-"
    if value >= 1e6:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1.095 else f"{value:.3f}"


def error_of(value: float) -> str:
    """A standard error: one or two digits that matter."""
    return number(value) if not value < 1.0 else f"{value:.2f}" if value >= 0.0095 else f"{value:.1g}"


def with_error(value: float, error: float) -> str:
    return f"{number(value)} ({error_of(error)})"


def numbered(sentences: Iterable[str]) -> str:
    """A numbered list for a page."""
    return "\n".join(
        textwrap.fill(f"{place}. {sentence}", 110, subsequent_indent="   ", break_on_hyphens=False)
        for place, sentence in enumerate(sentences, start=1)
    )
