"""HTML pages: one self-contained file, without scripts and without requests, from text that cannot be trusted."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from hubermean._version import __version__
from hubermean.errors import printable
from hubermean.report.style import STYLE

# Browsers fetch nothing, even if a name should ever be taken for markup.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(heading: str, parts: Sequence[str]) -> str:
    """Return a whole page from safe parts."""
    head = "\n".join(
        [
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f'<meta name="generator" content="hubermean {__version__}">',
            '<link rel="icon" href="data:,">',
            tag("title", safe(heading)),
            f"<style>{STYLE}</style>",
        ]
    )
    body = tag("main", "\n", "\n".join(parts), "\n")
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def section(heading: str | None, *content: str, kind: str | None = None) -> str:
    """Return a section of a page."""
    title = [tag("h2", safe(heading))] if heading is not None else []
    return tag("section", *title, *content, class_=kind)


def note(text: str) -> str:
    """Return a paragraph in small type."""
    return tag("p", safe(text), class_="note")


def facts_table(facts: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and texts."""
    rows = [tag("tr", tag("th", safe(name), scope="row"), tag("td", safe(text))) for name, text in facts]
    return tag("table", tag("tbody", *rows), class_="facts")


def number_cell(text: str) -> str:
    """Return a table cell with a number."""
    return tag("td", safe(text), class_="number")


def table(headings: Sequence[str], rows: Iterable[str], *, words: int, caption: str | None = None) -> str:
    """Return a table whose first `words` columns are text and whose other columns are numbers."""
    cells = [
        tag("th", safe(heading), scope="col", class_="number" if position >= words else None)
        for position, heading in enumerate(headings)
    ]
    title = [tag("caption", safe(caption))] if caption is not None else []
    inner = tag("table", *title, tag("thead", tag("tr", *cells)), tag("tbody", *rows))
    # Reachable with the keyboard, since on a phone it is wider than the screen.
    return tag(
        "div", inner, class_="scroll", role="region", tabindex=0, aria_label=caption or ", ".join(headings)
    )


def safe(text: str) -> str:
    """Return text as content or attribute value, without markup, control codes or changes of direction.

    >>> safe('<b>"a"' + chr(0x202E))
    '&lt;b&gt;&quot;a&quot;�'
    """
    return html.escape(printable(text), quote=True)


def tag(name: str, *content: str, **attributes: str | float | None) -> str:
    """Return an element with safe content; attributes are escaped here. `class_` is class, `text_anchor` text-anchor.

    >>> tag("p", safe("a < b"), class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(_format_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"


def _format_attribute(value: str | float) -> str:
    """Return a number with at most three decimals."""
    return value if isinstance(value, str) else f"{value:.3f}".rstrip("0").rstrip(".")
