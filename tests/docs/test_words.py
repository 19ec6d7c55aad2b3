"""The words of the field, and none of our own: style table of CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# What stood where the field has a word, and that word.
WORDS = {
    r"purses?": "privacy budget",
    r"likeness": "intra-user correlation",
    r"(?:un)?told": "given, stated, distinguished",
    r"parted": "partitioned",
    r"crowds?": "partitioned users",
    r"weighed": "total-weight estimate",
    r"asked[ _]once": "memoised",
    r"side_by_side": "batched",
    r"rehearse[sd]?|rehearsal": "dry run",
    r"settled": "resolved",
    r"promise[sd]?": "guarantee",
    r"record[ _]caps?": "contribution bound, max_records",
    r"scenes?|worlds?": "neighboring data sets",
}
OLD = re.compile(r"(?<![A-Za-z])(" + "|".join(WORDS) + r")(?![A-Za-z])", re.IGNORECASE)

PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "proofs", "src", "experiments/src"]


def texts() -> list[Path]:
    found = []
    for name in PAGES:
        path = ROOT / name
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.suffix in (".py", ".md")]
    return sorted(found)


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_word_of_our_own_where_the_field_has_one(path: Path) -> None:
    found = {match[1].lower() for line in path.read_text().splitlines() for match in OLD.finditer(line)}
    assert not found, f"{path.name} says {', '.join(sorted(found))}; the field's words are in this test"


def test_the_pattern_finds_what_it_should() -> None:
    for old in ("the purse", "record_cap=3", "asked once", "a Promise", "two worlds", "_told_apart"):
        assert OLD.search(old), old
    for fine in ("toldo", "weigh", "compromise", "a scenery"):
        assert not OLD.search(fine), fine
