"""The audit finds every slip that is planted in `norm-clipping`, and none where there is none."""

from __future__ import annotations

import pytest

import hubermean as hm
from helpers.audit_mutants import Mutant
from helpers.vector_mutants import KNOWN, RECORDS, VECTOR_MUTANTS, VECTORS


@pytest.mark.parametrize("mutant", VECTOR_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_slip_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.broken(monkeypatch)
    found = hm.audit(pairs=mutant.pairs, **mutant.audit)
    assert not found.kept, found


@pytest.mark.parametrize("audit", [VECTORS, KNOWN, RECORDS], ids=["defaults", "known", "records"])
def test_the_same_audit_finds_nothing_without_a_slip(audit: dict[str, object]) -> None:
    found = hm.audit(pairs=12, **audit)
    assert found.kept, found
