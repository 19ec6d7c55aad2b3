"""Whether an audit catches what is broken on purpose, without the search for the worst pair that would follow."""

from __future__ import annotations

from typing import Any

import pytest

import hubermean as hm
from hubermean.auditing.search import Finding, PairEvaluator


class _BrokenError(Exception):
    """A pair violates the guarantee or a claim."""


def is_caught(*mechanism: Any, **options: Any) -> bool:
    """Audit until the first broken pair. One such pair decides the verdict, which test_search.py holds to be so."""
    made = PairEvaluator.__call__

    def evaluate(self: PairEvaluator[Any], pair: Any, *, loss: bool = False) -> Finding[Any]:
        finding = made(self, pair, loss=loss)
        if finding.broken:
            raise _BrokenError
        return finding

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PairEvaluator, "__call__", evaluate)
        try:
            return not hm.audit(*mechanism, **options).kept
        except _BrokenError:
            return True
