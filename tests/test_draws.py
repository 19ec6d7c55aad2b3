"""The simulated users of the benchmarks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from draws import LAWS


@pytest.mark.parametrize("name", ["uniform", "Gaussian", "Lomax(4)", "log-normal(1)"])
def test_laws_are_centred_and_have_the_deviation_they_state(name: str) -> None:
    law = LAWS[name]
    records = law.user_means(np.random.default_rng(1), np.ones(400_000, dtype=np.int64))
    assert abs(records.mean()) < 5.0 * law.deviation / math.sqrt(len(records))
    assert records.std() == pytest.approx(law.deviation, rel=0.05)
