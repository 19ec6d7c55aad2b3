"""The simulated users of the benchmarks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accuracy.draws import LAWS


@pytest.mark.parametrize("name", ["uniform", "Gaussian", "Lomax(4)", "log-normal(1)"])
def test_laws_are_centered_and_have_the_deviation_they_state(name: str) -> None:
    distribution = LAWS[name]
    records = distribution.draw_user_means(np.random.default_rng(1), np.ones(400_000, dtype=np.int64))
    assert abs(records.mean()) < 5.0 * distribution.deviation / math.sqrt(len(records))
    assert records.std() == pytest.approx(distribution.deviation, rel=0.05)
