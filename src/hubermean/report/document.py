"""The frame of every page: one HTML file with nothing beside it, no scripts, and no request to anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hubermean._version import __version__
from hubermean.report.markup import safe, tag
from hubermean.report.style import STYLE

# The browser is told not to fetch anything, should a name ever slip through as markup.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(heading: str, parts: Sequence[str]) -> str:
    """A whole page of safe parts."""
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
    title = [tag("h2", safe(heading))] if heading is not None else []
    return tag("section", *title, *content, class_=kind)


def note(text: str) -> str:
    return tag("p", safe(text), class_="note")


def facts_table(facts: Iterable[tuple[str, str]]) -> str:
    rows = [tag("tr", tag("th", safe(name), scope="row"), tag("td", safe(told))) for name, told in facts]
    return tag("table", tag("tbody", *rows), class_="facts")


def number_cell(text: str) -> str:
    return tag("td", safe(text), class_="number")


def table(headings: Sequence[str], rows: Iterable[str], *, words: int, caption: str | None = None) -> str:
    """The first columns hold words, the others numbers."""
    cells = [
        tag("th", safe(heading), scope="col", class_="number" if position >= words else None)
        for position, heading in enumerate(headings)
    ]
    title = [tag("caption", safe(caption))] if caption is not None else []
    inner = tag("table", *title, tag("thead", tag("tr", *cells)), tag("tbody", *rows))
    return tag("div", inner, class_="scroll")
