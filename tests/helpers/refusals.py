"""Releases that are refused by their own private steps, for tests of the ledger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hubermean as hm


def refuse(ledger: Any, question: str, *, dataset: str = "d", epsilon: float = 1.0) -> hm.NotReleased:
    """Ask for the mean of four users, who are too few; their number is private, and costs 6% of epsilon."""
    with pytest.raises(hm.NotReleased) as caught:
        hm.mean_of_user_means(
            np.arange(4.0), epsilon=epsilon, ledger=ledger, dataset=dataset, question=question
        )
    return caught.value
