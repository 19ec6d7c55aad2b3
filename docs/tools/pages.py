"""Hooks of the documentation site: pages that live outside docs/, and Markdown as code-hosting pages read it.

- Proofs, results and the changelog lie where readers of the repository look for them, and are pages of the site all
  the same. Links between documents are written for the repository; here they are turned towards the site. A link to
  anything else in the repository, such as a source file, would lead nowhere and fails the build.
- A list may follow a paragraph without a blank line, a list within a list is indented by the marker before it, and a
  doctest in a docstring is code, not a quotation.
- A page that would load anything from a host fails the build: the site is to be read offline, too.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = [
    *sorted(ROOT.glob("proofs/*.md")),
    *sorted(ROOT.glob("experiments/results/*.md")),
    *sorted(ROOT.glob("experiments/results/*.svg")),
    ROOT / "benchmarks" / "RESULTS.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
]
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
ITEM = re.compile(r"(?:[-*+]|\d+\.) ")
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
GUARANTEES = "Formal guarantees:"  # a heading of docstrings, beside those that every Google style has
FENCE = re.compile(r" *(?:```|~~~)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.markdown_extensions.append(AsWritten())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in OUTSIDE:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    outside = {path.relative_to(ROOT).as_posix() for path in OUTSIDE}
    folder = posixpath.dirname(here if here in outside else f"docs/{here}")

    def towards_the_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if target not in outside and not target.startswith("docs/"):
            return link[0]
        return link[1] + posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(here) or ".")

    # Within folded parts Markdown is read only where it is asked for.
    return LINK.sub(towards_the_site, markdown).replace("<details>", "<details markdown>")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    if loaded := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load {loaded[1]}; keep the file in docs/assets")
    return output


class AsWritten(Extension):
    """Markdown that reads lists and doctests as their writers meant them."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(
            _ListsAndDoctests(md), "lists-and-doctests", 100
        )  # before fences are taken out


class _ListsAndDoctests(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        read: list[str] = []
        fenced = in_doctest = False
        lists = _OpenLists()
        for line in lines:
            if FENCE.match(line):
                fenced = not fenced
            if in_doctest and not line.strip():
                read.append("```")
                in_doctest = False
            elif not fenced and not in_doctest and line.startswith(">>> "):
                read += ["", "```pycon"]
                in_doctest = True
            elif not fenced and ITEM.match(line) and read and _is_paragraph(read[-1]):
                read.append("")
            read.append(f"**{line}**" if line == GUARANTEES else lists.indented(line, may_open=not fenced))
        return [*read, "```"] if in_doctest else read


class _OpenLists:
    """The lists that are open at a line: what belongs to an item is indented by its marker, here by four spaces."""

    def __init__(self) -> None:
        self._columns: list[int] = []  # where the text of each open item begins, outermost first

    def indented(self, line: str, *, may_open: bool) -> str:
        text = line.lstrip(" ")
        if not text:
            return line
        indent = len(line) - len(text)
        while self._columns and indent < self._columns[-1]:
            self._columns.pop()
        beyond = indent - (self._columns[-1] if self._columns else 0)
        shown = " " * (4 * len(self._columns) + beyond) + text
        if may_open and beyond < 4 and (marker := ITEM.match(text)):
            self._columns.append(indent + marker.end())
        return shown


def _is_paragraph(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(" ") and not ITEM.match(line)
