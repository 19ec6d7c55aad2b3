"""The short run of fuzzing: the committed corpus, and as many inputs of Hypothesis's as fit a minute."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import places, targets
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

NAMES = targets.names()
EXAMPLES = 40
_SEEDS = {name: sorted(set(targets.load(name).seeds())) for name in NAMES}


def corpus(name: str) -> list[Path]:
    folder = places.committed(name)
    return sorted(folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_is_small_and_breaks_no_guarantee(name: str) -> None:
    inputs = corpus(name)
    assert len(inputs) >= 10
    assert sum(path.stat().st_size for path in inputs) < 200_000
    check = targets.load(name).check
    for path in inputs:
        try:
            check(path.read_bytes())
        except Exception as error:  # named, so that it can be replayed
            raise AssertionError(f"python -m fuzz {name} --replay {path.name}") from error


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_bytes_are_refused_or_understood(name: str, data: st.DataObject) -> None:
    inputs = data.draw(st.binary(max_size=300) | edited(_SEEDS[name]))
    targets.load(name).check(inputs)


def edited(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """Seeds with a few bytes put in or changed."""

    def edit(seed: bytes, place: int, left_out: int, put_in: bytes) -> bytes:
        place %= len(seed) + 1
        return seed[:place] + put_in + seed[place + left_out :]

    return st.builds(
        edit, st.sampled_from(seeds), st.integers(0, 300), st.integers(0, 8), st.binary(max_size=12)
    )


@pytest.mark.parametrize("name", NAMES)
@example(data=b"")
@given(data=st.binary(max_size=2))
@settings(max_examples=3, deadline=None)
def test_a_target_takes_any_bytes_there_are(name: str, data: bytes) -> None:
    targets.load(name).check(data)
