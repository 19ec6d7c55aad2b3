"""Intervals of groups that differ: common bounds cut more from some groups than from others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import hubermean as hm


@pytest.mark.parametrize("per", ["user", "record"])
def test_intervals_hold_the_means_of_groups_whose_values_grow(per: str) -> None:
    """Like pay by year: skewed, a user in several years, the last years eight times the first."""
    rng = np.random.default_rng(70)
    users = np.repeat(np.arange(4000), 6)
    first = rng.integers(0, 15, 4000)
    years = (first[:, np.newaxis] + np.arange(6)).ravel()
    pay = rng.lognormal(0.0, 1.0, 4000)[users] * 1.1**years
    frame = pd.DataFrame({"user": users, "year": years, "pay": pay})
    truth = frame.groupby("year").pay.mean()
    table = hm.mean(
        frame,
        user="user",
        value="pay",
        by="year",
        keys=list(range(20)),
        epsilon=2.0,
        delta=1e-6,
        max_groups=6,
        per=per,  # type: ignore[arg-type]
    )
    released = table.to_pandas().set_index("year")
    held = (released.pay_interval_low <= truth) & (truth <= released.pay_interval_high)
    assert held.sum() >= 15  # of 20, in one release with fresh noise
    assert (released.pay / truth - 1).abs().median() < 0.3
