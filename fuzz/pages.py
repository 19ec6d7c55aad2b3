"""Pages: nothing that a name says may become markup."""

from __future__ import annotations

import html.parser
from dataclasses import replace
from typing import Any

from fuzz.violation import require
from hubermean.report.page import page
from hubermean.types.release import Release

_VOID = frozenset({"meta", "link"})
_LINKS = {"href", "src", "action", "formaction", "xlink:href", "data", "srcset"}
Element = tuple[str, tuple[str, ...]]


class Skeleton(html.parser.HTMLParser):
    """The elements of a page in their order, with the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        require(not self._open, "every element of a page is closed")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        require(len(set(names)) == len(names), "no attribute is given twice")
        for name, value in attrs:
            require(not name.startswith("on"), "a page holds no script")
            require(name not in _LINKS or value == "data:,", "a page asks for nothing")
        require(
            tag not in ("script", "iframe", "object", "embed", "img", "a", "form"), "a page is text alone"
        )
        self.elements.append((tag, tuple(names)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        require(bool(self._open) and self._open.pop() == tag, "elements nest")

    def handle_comment(self, data: str) -> None:
        require(False, "a page holds no comment")

    def handle_pi(self, data: str) -> None:
        require(False, "a page holds no instruction")

    def unknown_decl(self, data: str) -> None:
        require(False, "a page holds no declaration")


def check_page(release: Any, *, source: str | None = None, title: str | None = None) -> None:
    """The page of a release has the elements of the same release with harmless names, and so have notebooks."""
    harmless = harmlessly_named(release)
    shown = page(release, source=source, title=title)
    plain = page(
        harmless, source=None if not source else "data.csv", title=None if title is None else "title"
    )
    # Only whether there is a name of a file at all may change what there is on a page.
    if source is None or "From " in shown:
        require(
            Skeleton(shown).elements == Skeleton(plain).elements, "names do not change the elements of a page"
        )
    require(_is_plain(shown), "a page holds no control code")
    notebook, quiet = release._repr_html_(), harmless._repr_html_()
    require(Skeleton(notebook).elements == Skeleton(quiet).elements, "names do not change a notebook's table")


def harmlessly_named(release: Any) -> Any:
    """The same numbers under other names."""
    columns = tuple(f"column{number}" for number in range(len(release.columns)))
    if isinstance(release, Release):
        group = release.group and {f"by{place}": f"key{place}" for place in range(len(release.group))}
        return replace(release, columns=columns, group=group)
    by = tuple(f"by{place}" for place in range(len(release.by)))
    keys = tuple(tuple(f"key{number}" for _ in by) for number in range(len(release.keys)))
    return replace(release, columns=columns, by=by, keys=keys)


def _is_plain(text: str) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in text)
