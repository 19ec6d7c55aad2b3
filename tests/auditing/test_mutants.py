"""The audit finds every slip that is planted in the adaptive mechanism, in groups and in counts."""

from __future__ import annotations

import pytest

import hubermean as hm
from helpers.audit_mutants import MUTANTS, Mutant
from helpers.caught import is_caught


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=[pytest.mark.slow] if mutant.slow else [])
        for mutant in MUTANTS
    ],
)
def test_a_slip_in_one_step_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.broken(monkeypatch)
    assert is_caught(pairs=mutant.pairs, **{"epsilon": 1, "neighbors": "replace-user", **mutant.audit})


def _audits() -> list[Mutant]:
    """Each audit of a mutant once, with as many pairs as any of its mutants takes."""
    found: dict[str, Mutant] = {}
    for mutant in sorted(MUTANTS, key=lambda mutant: (mutant.slow, -(mutant.pairs or 0))):
        found.setdefault(repr(sorted(mutant.audit.items(), key=lambda item: item[0])), mutant)
    return list(found.values())


@pytest.mark.fair_sample(0.35)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=f"as for {mutant.name}", marks=[pytest.mark.slow] if mutant.slow else [])
        for mutant in _audits()
    ],
)
def test_the_same_audit_finds_nothing_without_a_slip(mutant: Mutant) -> None:
    found = hm.audit(pairs=mutant.pairs, **{"epsilon": 1, "neighbors": "replace-user", **mutant.audit})
    assert found.kept, found
