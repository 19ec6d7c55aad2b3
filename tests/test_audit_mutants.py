"""The audit finds every slip that is planted in the adaptive mechanism, in groups and in counts."""

from __future__ import annotations

import pytest

import hubermean as hm
from audit_mutants import MUTANTS, Mutant


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=[pytest.mark.slow] if mutant.slow else [])
        for mutant in MUTANTS
    ],
)
def test_a_slip_in_one_step_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.broken(monkeypatch)
    found = hm.audit(pairs=mutant.pairs, **{"epsilon": 1, "neighbors": "replace-user", **mutant.audit})
    assert not found.kept, found
