"""How benchmarks write numbers and sentences, on a terminal and on a page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Container, Iterable, Sequence


def number(value: float) -> str:
    """Three digits that matter, without an exponent where people write none."""
    if not math.isfinite(value):
        return "-"
    if value >= 1e6:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if value >= 100:
        return f"{value:,.0f}"
    if 0.0 < value < 0.0995:
        return f"{value:.2g}"
    return f"{value:.2f}" if value >= 1.095 else f"{value:.3f}"


def error_of(value: float) -> str:
    """A standard error: one or two digits that matter."""
    return number(value) if not value < 1.0 else f"{value:.2f}" if value >= 0.0095 else f"{value:.1g}"


def with_error(value: float, error: float) -> str:
    return f"{number(value)} ({error_of(error)})" if math.isfinite(value) else "-"


def percent(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "-"


def percent_with_error(value: float, error: float) -> str:
    return f"{percent(value)} ({percent(error)})" if math.isfinite(value) else "-"


def verdict(met: bool | None, *, close: bool) -> str:
    """Of a target, if there is one; `close` where it lies within two standard errors."""
    if met is None:
        return ""
    return ("PASS" if met else "FAIL") + (", close" if close else "")


def table_line(cells: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def table_heading(headings: Sequence[str], *, left: Container[str]) -> list[str]:
    """The first two lines of a table in Markdown; numbers stand on the right."""
    rules = ["---" if heading in left else "--:" for heading in headings]
    return [table_line(headings), "|" + "|".join(rules) + "|"]


def numbered(sentences: Iterable[str]) -> str:
    """A numbered list for a page."""
    return "\n".join(
        textwrap.fill(f"{place}. {sentence}", 110, subsequent_indent="   ", break_on_hyphens=False)
        for place, sentence in enumerate(sentences, start=1)
    )
