"""The excess that docs/evidence/peers.md reports, on laws whose excess is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from peers.excess import Comparison, Estimate, excess_scores

USERS, SETS, RELEASES = 20, 20_000, 2
LOW, HIGH, SCALE = -1.0, 0.0, 0.05
# Uniform on (-1, 1): variance 1/3; clipped to (-1, 0): mean -1/4, mean square 1/6.
BIAS, CLIPPED_VARIANCE, VARIANCE = -1 / 4, 1 / 6 - 1 / 16, 1 / 3
EXCESS = 2 * SCALE**2 + (CLIPPED_VARIANCE - VARIANCE) / USERS + BIAS**2


@pytest.fixture(scope="module")
def dataset() -> dict[str, np.ndarray]:
    """Clipped means plus Laplace noise, so that both forms of the estimator apply."""
    generator = np.random.default_rng(3)
    truth = generator.uniform(-5.0, 5.0, SETS)
    users = generator.uniform(-1.0, 1.0, (SETS, USERS))
    clipped = np.clip(users, LOW, HIGH).mean(axis=1) + truth
    noise = generator.laplace(scale=SCALE, size=(SETS, RELEASES))
    return {
        "truth": truth,
        "plain": users.mean(axis=1) + truth,
        "clipped": clipped,
        "released": clipped[:, None] + noise,
    }


def test_both_forms_find_the_known_excess(dataset: dict[str, np.ndarray]) -> None:
    known = Estimate.of(excess_scores(**dataset))
    blind = Estimate.of(excess_scores(**dataset | {"clipped": None}))
    for found in (known, blind):
        assert abs(found.value - EXCESS) < 4 * found.error
        # Sharp enough to miss any part of it: the noise, the bias, the variance that clipping takes away.
        assert found.error < min(2 * SCALE**2, BIAS**2, (VARIANCE - CLIPPED_VARIANCE) / USERS) / 8
    assert known.error < blind.error


def test_distance_from_the_plain_mean_alone_is_not_the_excess(dataset: dict[str, np.ndarray]) -> None:
    distance = Estimate.of(((dataset["released"] - dataset["plain"][:, None]) ** 2).mean(axis=1))
    assert abs(distance.value - EXCESS) > 10 * distance.error


def test_refusals_are_left_out(dataset: dict[str, np.ndarray]) -> None:
    released = dataset["released"].copy()
    released[::2, 0] = math.nan
    released[::4] = math.nan
    scores = excess_scores(**dataset | {"released": released})
    assert np.isnan(scores).sum() == SETS / 4
    found = Estimate.of(scores)
    assert abs(found.value - EXCESS) < 4 * found.error


def test_ratio_and_its_interval() -> None:
    generator = np.random.default_rng(4)
    theirs, ours = generator.exponential(6.0, 400), generator.exponential(2.0, 400)
    beside = Comparison.of(theirs, ours)
    assert beside.low < 3.0 < beside.high
    assert beside.low < beside.ratio < beside.high < 4.5
    assert beside.lead > 3.0
    assert Comparison.of(ours, ours) == Comparison(ratio=1.0, low=1.0, high=1.0, lead=0.0)


def test_ratio_to_what_may_be_zero_has_no_upper_end() -> None:
    generator = np.random.default_rng(5)
    theirs, ours = generator.normal(5.0, 1.0, 400), generator.normal(0.0, 1.0, 400)
    ours += 0.05 - ours.mean()  # one standard error
    beside = Comparison.of(theirs, ours)
    assert math.isinf(beside.high)
    assert 5.0 / 0.2 < beside.low < 5.0 / 0.1  # ours is at most three standard errors above zero
    assert math.isnan(Comparison.of(theirs, ours - 1.0).ratio)
    assert Comparison.of(theirs, ours - 1.0).lead > 3.0
