"""Pass probabilities of propose-test-release, against divergences from another formula in 200 digits."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from hubermean.accounting.concentrated import largest_rho
from hubermean.accounting.gaussian import gaussian_alpha
from hubermean.accounting.propose_test_release import (
    ProposeTestReleaseNoise,
    calibrate_propose_test_release,
    concentrated_cost,
)
from hubermean.auditing.loss import GaussianShift
from hubermean.errors import InputError


def hockey(epsilon: mp.mpf, alpha: float) -> mp.mpf:
    """Of two normal laws alpha apart (Balle & Wang 2018, Thm 8), any real epsilon."""
    shift = mp.mpf(alpha)
    upper, lower = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
    return mp.ncdf(upper) - mp.exp(epsilon) * mp.ncdf(lower)


def worst_share(test: ProposeTestReleaseNoise, epsilon: float, delta: float, *, most: int = 80) -> mp.mpf:
    """The largest divergence over delta among neighbors of margins k and k - 1 either way, and of margin 0."""
    whole, level, steps = 1 << test.bits, mp.mpf(epsilon), len(test.passes)
    assert test.passes[-1] == whole
    chosen = np.unique(np.r_[1 : min(steps, 20), max(steps - 20, 1) : steps, np.linspace(1, steps - 1, most)])
    worst = mp.mpf(test.passes[0]) / whole
    at_epsilon = hockey(level, test.alpha)
    for k in chosen.astype(int).tolist() if steps > most else range(1, steps):
        before, after = (mp.mpf(test.passes[i]) / whole for i in (k - 1, k))
        assert before <= after
        more = after * hockey(level - mp.log(after / before), test.alpha)
        less = max(0, (1 - before) - mp.exp(level) * (1 - after)) + before * at_epsilon
        worst = max(worst, more, less)
    return worst / mp.mpf(delta)


@pytest.mark.parametrize("delta", [1e-100, 1e-12, 1e-5, 0.01, 0.3, 0.999])
@pytest.mark.parametrize("epsilon", [0.03, 1.0, 8.0, 100.0, 744.0, 746.0, 1e4, 1e9])
def test_every_step_keeps_the_guarantee(epsilon: float, delta: float) -> None:
    with mp.workprec(700):
        for part, dimension in ((0.003, 1), (0.04, 200), (0.35, 3)):
            test = calibrate_propose_test_release(epsilon, delta, reserve=part * epsilon, dimension=dimension)
            share = worst_share(test, epsilon, delta, most=24)
            assert share <= 1
            assert share >= 1 - mp.mpf("1e-6")


def test_a_step_too_far_is_seen() -> None:
    """What the check above sees where one chance is 1 % too large; a few have that much room, by rounding."""
    epsilon, delta = 1.0, 1e-5
    test = calibrate_propose_test_release(epsilon, delta, reserve=0.03, dimension=1)
    whole = 2**test.bits
    seen = 0
    with mp.workprec(300):
        for k in range(test.margin):
            passes = list(test.passes)
            if passes[k] < whole // 2:
                passes[k] = passes[k] * 101 // 100
            else:  # near 1 it is the refusals that count
                passes[k] = whole - (whole - passes[k]) * 99 // 100
            seen += worst_share(replace(test, passes=tuple(passes)), epsilon, delta) > 1.0 + 1e-4
    assert seen >= 0.85 * test.margin


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (3.0, 1e-2)])
def test_discrete_noise_at_the_smallest_scale(epsilon: float, delta: float) -> None:
    """The laws that are drawn from, summed up over the integers: the grid is coarsest here."""
    test = calibrate_propose_test_release(epsilon, delta, reserve=0.05 * epsilon, dimension=1)
    shift = math.ceil(test.alpha * test.smallest_sigma)
    sigma = shift / test.alpha
    x = np.arange(-int(12 * sigma), int(13 * sigma), dtype=float)
    p = np.exp(-(x**2) / (2.0 * sigma**2))
    q = np.exp(-((x - shift) ** 2) / (2.0 * sigma**2))
    p, q = p / p.sum(), q / q.sum()
    worst = 0.0
    for before, after in zip(test.passes[:-1], test.passes[1:], strict=True):
        low, high = before / 2**test.bits, after / 2**test.bits
        more = np.maximum(high * p - math.exp(epsilon) * low * q, 0.0).sum()
        less = np.maximum(low * p - math.exp(epsilon) * high * q, 0.0).sum()
        less += max((1.0 - low) - math.exp(epsilon) * (1.0 - high), 0.0)
        worst = max(worst, more, less)
    assert 0.98 * delta < worst <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-9, 1e-100), (1e-9, 0.999), (1e-5, 0.5), (1e-3, 1e-100)])
def test_a_tiny_epsilon_is_refused_in_seconds(epsilon: float, delta: float) -> None:
    start = time.process_time()
    with pytest.raises(InputError, match=r"(larger|raise) epsilon or delta"):
        calibrate_propose_test_release(epsilon, delta, reserve=0.35 * epsilon, dimension=2)
    assert time.process_time() - start < 10.0


def test_a_long_test_is_answered_in_seconds() -> None:
    start = time.process_time()
    assert 50_000 < calibrate_propose_test_release(0.001, 1e-12, reserve=0.00035, dimension=1).margin < 70_000
    assert time.process_time() - start < 10.0


@pytest.mark.parametrize("reserve", [0.0, -1.0, math.nan, math.inf, 0.95, 1.0, 2.0])
def test_a_reserve_out_of_range_is_refused(reserve: float) -> None:
    with pytest.raises(InputError, match="reserve must be"):
        calibrate_propose_test_release(1.0, 1e-5, reserve=reserve, dimension=1)


def laplace_margin(part: float, delta: float) -> float:
    """The margin at which a test with Laplace noise of scale 1/part passes with probability 0.999.

    It says no to margin 0 up to a chance of delta, so it asks for ln(1/(2 delta))/part.
    """
    return (math.log(1.0 / (2.0 * delta)) + math.log(1.0 / (2.0 * 0.001))) / part


def margin_at(test: ProposeTestReleaseNoise, chance: float) -> int:
    return next(k for k, passes in enumerate(test.passes) if passes >= chance * 2**test.bits)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-6), (3.0, 1e-9), (0.5, 1e-3), (8.0, 1e-12)]
)
def test_it_beats_a_split_between_laplace_test_and_noise(epsilon: float, delta: float) -> None:
    """The split is flattered: its delta is spent twice. Same noise, smaller margin; same margin, less noise."""
    for part in (0.02, 0.05, 0.1):
        split = laplace_margin(part * epsilon, delta)
        alpha = gaussian_alpha((1.0 - part) * epsilon, delta)
        same = calibrate_propose_test_release(epsilon, delta, reserve=part * epsilon, dimension=1)
        assert same.alpha >= alpha * (1.0 - 2.0**-9)
        assert margin_at(same, 0.999) < 0.4 * split
        better = calibrate_propose_test_release(epsilon, delta, reserve=part / 6.0 * epsilon, dimension=1)
        assert margin_at(better, 0.999) <= split
        assert better.alpha > alpha


def test_the_numbers_in_the_proof() -> None:
    test = calibrate_propose_test_release(1.0, 1e-5, reserve=0.03, dimension=1)
    assert laplace_margin(0.03, 1e-5) == pytest.approx(567, abs=1)
    assert test.margin == 57


# --- what it costs where losses are added up --------------------------------------------------------------------------


def adjacent_pairs(test: ProposeTestReleaseNoise) -> list[tuple[float, float]]:
    """(probability to pass, that of the neighbor), both ways."""
    passing = [one / 2**test.bits for one in test.passes]
    upward = list(pairwise(passing))
    return [*upward, *((q, p) for p, q in upward)]


def composed_delta(pair: tuple[float, float], shift: float, releases: int, epsilon: float) -> float:
    """The exact delta of so many releases on one pair: some refuse, the shifts of the others add up in squares."""
    (p, q), total = pair, 0.0
    for refused in range(releases + 1):
        answered = releases - refused
        mass = math.comb(releases, refused) * (1.0 - p) ** refused * p**answered
        if mass == 0.0:
            continue
        if (refused and q == 1.0) or (answered and q == 0.0):
            total += mass
            continue
        loss = answered * math.log(p / q) + (refused * math.log((1.0 - p) / (1.0 - q)) if refused else 0.0)
        total += mass * GaussianShift(shift=shift * math.sqrt(answered)).delta(epsilon - loss)
    return total


@pytest.mark.parametrize(("epsilon", "reserve"), [(0.3, 0.01), (1.0, 0.04), (1.0, 0.35), (6.0, 0.5)])
def test_its_rho_pays_for_releases_that_are_added_up(epsilon: float, reserve: float) -> None:
    """Of one release and of many, on every pair of margins: the epsilon that a ledger states is not exceeded."""
    delta, spare = 1e-6, 1e-6
    test = calibrate_propose_test_release(epsilon, delta, reserve=reserve * epsilon, dimension=3)
    rho = float(concentrated_cost(test, delta))
    pairs = adjacent_pairs(test)
    for releases in (1, 4, 30):
        total = 2.0 * math.sqrt(releases * rho * math.log(1.0 / spare)) + releases * rho  # Bun & Steinke 2016
        assert largest_rho(total, spare) >= releases * rho
        for pair in pairs[:: max(len(pairs) // 60, 1)]:
            assert composed_delta(pair, test.alpha, releases, total) <= releases * delta + spare
    assert rho < epsilon**2 / 4


@pytest.mark.parametrize(("epsilon", "reserve"), [(0.3, 0.01), (1.0, 0.04), (6.0, 0.5)])
def test_its_rho_bounds_moments_of_all_orders(epsilon: float, reserve: float) -> None:
    """Independently, at other orders: on every pair, something of probability delta can be left aside; with four fifths
    of rho that is false."""
    delta = 1e-6
    test = calibrate_propose_test_release(epsilon, delta, reserve=reserve * epsilon, dimension=3)
    rho = float(concentrated_cost(test, delta))
    orders = 1.0 + np.exp(np.random.default_rng(3).uniform(-6.0, 9.0, 400))

    def needed(refuse: float, answer: float, other: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            refused = orders * np.log(refuse) + (1.0 - orders) * np.log(1.0 - other)
            answered = orders * np.log(answer) + (1.0 - orders) * np.log(other)
            answered = answered + orders * (orders - 1.0) * test.alpha**2 / 2.0
            refused = np.where(refuse == 0.0, -np.inf, refused)
            logs = np.logaddexp(refused, np.where(answer == 0.0, -np.inf, answered))
        return float(np.nanmax(logs / (orders * (orders - 1.0))))

    most = max(
        min(needed(max(1.0 - p - delta, 0.0), p, q), needed(1.0 - p, max(p - delta, 0.0), q))
        for p, q in adjacent_pairs(test)
    )
    assert 0.8 * rho < most <= rho
