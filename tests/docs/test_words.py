"""The words of the field, and none of our own: style table of CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# Words of our own, and the field's.
EVERYWHERE = {
    r"purses?|currenc(?:y|ies)|money": "privacy budget, accounting unit",
    r"likeness": "intra-user correlation",
    r"parted": "partitioned",
    r"crowds?": "partitioned users, population",
    r"weighed": "total-weight estimate",
    r"asked[ _]once": "memoised",
    r"side_by_side": "batched",
    r"rehearse[sd]?|rehearsal": "dry run",
    r"settled": "resolved",
    r"promise[sd]?": "guarantee",
    r"record[ _]caps?": "contribution bound, max_records",
    r"scenes?|worlds?": "neighboring data sets",
    r"gates?|gated": "private test",
    r"told[ _]apart": "distinguished",
    r"mechanism ?[=:] ?[\"'](?:exact|tested|smooth|tuned)[\"']": "the name in mechanisms/registry.py",
}
# In tests these are words of plain English: an oracle is told what to expect, a sample follows a law.
IN_SOURCE_AND_PROSE = {
    r"(?:un)?told": "given, stated, distinguished",
    r"laws?": "output distribution",
    r"pulls?|pulled": "influence, gradient contribution",
}


def pattern_of(words: dict[str, str]) -> re.Pattern[str]:
    return re.compile(r"(?<![A-Za-z])(" + "|".join(words) + r")(?![A-Za-z])", re.IGNORECASE)


OLD = pattern_of(EVERYWHERE)
OLD_IN_SOURCE_AND_PROSE = pattern_of(EVERYWHERE | IN_SOURCE_AND_PROSE)

SOURCE_AND_PROSE = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "proofs", "src", "experiments/src"]
OTHERS = ["tests", "benchmarks", "fuzz", "scripts", "examples"]
# These name the old words on purpose.
# Here a currency is one: the sign beside a number in text, or a type of PostgreSQL.
OF_AMOUNTS = {
    "docs/evidence/first-attempts.md",
    "tests/helpers/attempts.py",
    "docs/reference/command-line.md",
    "docs/reference/input-data.md",
    "src/hubermean/app/draft.py",
    "src/hubermean/cli/check.py",
    "src/hubermean/cli/options.py",
    "src/hubermean/ingest/postgres.py",
    "src/hubermean/ingest/reading.py",
    "src/hubermean/ingest/text_format.py",
    "src/hubermean/types/options.py",
    "tests/helpers/more_containers.py",
    "tests/ingest/test_catalog.py",
    "tests/ingest/test_postgres.py",
    "tests/ingest/test_text_format.py",
}
EXEMPT = {"tests/docs/test_words.py", "tests/helpers/released_bits_of_60b819f.py"}


def texts(names: list[str]) -> list[Path]:
    found = []
    for name in names:
        path = ROOT / name
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.suffix in (".py", ".md")]
    return sorted(
        path
        for path in found
        if str(path.relative_to(ROOT)) not in EXEMPT
        and not any(part.startswith(".venv") for part in path.parts)
    )


def check_words(path: Path, old: re.Pattern[str]) -> None:
    found = {match[1].lower() for line in path.read_text().splitlines() for match in old.finditer(line)}
    if str(path.relative_to(ROOT)) in OF_AMOUNTS:
        found -= {"currency", "money"}
    assert not found, f"{path.name} says {', '.join(sorted(found))}; the field's words are in this test"


@pytest.mark.parametrize("path", texts(SOURCE_AND_PROSE), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_word_of_our_own_where_the_field_has_one(path: Path) -> None:
    check_words(path, OLD_IN_SOURCE_AND_PROSE)


@pytest.mark.parametrize("path", texts(OTHERS), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_word_of_our_own_in_tests_and_benchmarks(path: Path) -> None:
    check_words(path, OLD)


def test_the_pattern_finds_what_it_should() -> None:
    for old in ("the purse", "record_cap=3", "asked once", "a Promise", "two worlds", 'mechanism="exact"'):
        assert OLD.search(old), old
    for old in ("_told_apart", "the law of the noise", "a pull"):
        assert OLD_IN_SOURCE_AND_PROSE.search(old), old
    for fine in ("toldo", "weigh", "compromise", "a scenery", "delegate", "lawn", '"exact"'):
        assert not OLD_IN_SOURCE_AND_PROSE.search(fine), fine
