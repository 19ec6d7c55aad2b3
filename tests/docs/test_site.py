"""The documentation site says what the documents say, and needs no network.

That links and anchors lead somewhere is checked by `make docs`, which is strict.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [
    *(ROOT / "docs").glob("*.md"),
    *(
        page
        for folder in ("guides", "concepts", "evidence")
        for page in (ROOT / "docs" / folder).glob("*.md")
    ),
    *(ROOT / "proofs").glob("*.md"),
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
]
ELEMENTS = {"a", "code", "em", "h1", "h2", "h3", "li", "ol", "p", "pre", "strong", "table", "td", "ul"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def elements(html: str) -> Counter[str]:
    """How many there are of each kind, code blocks counted as one."""
    html = re.sub(r'<a class="headerlink".*?</a>|<nav.*?</nav>', "", html, flags=re.DOTALL)
    html = re.sub(r"<pre.*?</pre>", "<pre>", html, flags=re.DOTALL)
    return Counter(tag for tag in re.findall(r"<(\w+)[ >]", html) if tag in ELEMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_page_reads_as_it_does_beside_the_code(site: Path, document: Path) -> None:
    text = re.sub(r"\A---\n.*?\n---\n", "", document.read_text(), flags=re.DOTALL)
    as_written = MarkdownIt("commonmark").enable("table").render(text)
    name = document.relative_to(ROOT).with_suffix(".html").as_posix().removeprefix("docs/")
    page = re.search(r"<article.*?</article>", (site / name).read_text(), re.DOTALL)
    assert page is not None
    assert elements(page[0]) == elements(as_written)


def test_nothing_is_loaded_from_a_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(DOCUMENTS)
    for page in pages:
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"([^\"]*)\"", page.read_text())
        assert loaded
        assert not [target for target in loaded if "//" in target], page.name
    assert "var __index" in (site / "search" / "search_index.js").read_text()


def test_docstrings_show_lists_and_examples(site: Path) -> None:
    page = (site / "reference" / "building-blocks.html").read_text()
    guarantees = page.split("<strong>Formal guarantees:</strong>", 1)[1]
    assert re.match(r"</p>\s*<ul>\s*<li>sums and counts are exact integers", guarantees)
    assert "<blockquote>" not in page  # what a doctest becomes if nobody says that it is code
