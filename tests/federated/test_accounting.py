"""Noise of a run of rounds: against the closed form, a composition of our own, and the Renyi accountant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.signal import fftconvolve
from scipy.stats import norm

import hubermean as hm
from hubermean.accounting.gaussian import gaussian_delta
from hubermean.accounting.rounds import largest_shift, run_delta
from hubermean.federated import AdaptiveThreshold, PrivateAverage

DELTA = 1e-5


def composed_epsilon(pair: tuple[list[tuple[float, float]], list[tuple[float, float]]], rounds: int) -> float:
    """Epsilon of composed mixtures of unit Gaussians, by direct convolution of a finely binned privacy loss.

    Independent of dp-accounting: losses in the middles of 200,000 bins of outcomes, rounded to the nearest grid point.
    """
    first, second = pair
    edges = np.linspace(-25, 25, 200_001)
    middles = (edges[1:] + edges[:-1]) / 2

    def density(mixture: list[tuple[float, float]]) -> np.ndarray:
        return sum(weight * norm.pdf(middles, mean) for weight, mean in mixture)

    mass = sum(weight * np.diff(norm.cdf(edges, mean)) for weight, mean in first)
    loss = np.log(density(first)) - np.log(density(second))
    step, half = 2e-3, 2**14
    losses = np.clip(np.rint(loss / step).astype(int), -half, half)
    pmf = np.bincount(losses + half, weights=mass, minlength=2 * half + 1)
    # Rounding to the nearest point moves the mean of a bin; shift it back at the end.
    drift = float(mass @ (loss - losses * step))
    whole, power = np.zeros_like(pmf), pmf
    whole[half] = 1.0
    remaining = rounds
    while remaining:  # losses beyond the grid, 30 either way, have no mass to speak of
        if remaining & 1:
            whole = np.maximum(fftconvolve(whole, power, mode="same"), 0)
        remaining >>= 1
        if remaining:
            power = np.maximum(fftconvolve(power, power, mode="same"), 0)
    values = (np.arange(whole.size) - half) * step + drift * rounds

    def delta(epsilon: float) -> float:
        above = values > epsilon
        return float(whole[above] @ -np.expm1(epsilon - values[above]))

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return high


@pytest.mark.parametrize(
    ("epsilon", "rounds", "rate", "replace"),
    [
        (4.0, 30, 1.0, False),
        (2.0, 30, 0.1, False),
        pytest.param(4.0, 30, 0.1, True, marks=pytest.mark.slow),
        pytest.param(1.0, 100, 0.02, False, marks=pytest.mark.slow),
    ],
)
def test_an_independent_composition_agrees_to_one_percent(
    epsilon: float, rounds: int, rate: float, replace: bool
) -> None:
    shift = largest_shift(epsilon, DELTA, rounds=rounds, sampling_rate=rate, replace=replace)
    absent = [] if rate == 1.0 else [(1 - rate, 0.0)]
    client = [*absent, (rate, shift)]
    other = [*absent, (rate, -shift)] if replace else [(1.0, 0.0)]
    found = max(composed_epsilon((client, other), rounds), composed_epsilon((other, client), rounds))
    assert found == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize(("epsilon", "rounds", "rate"), [(4.0, 30, 1.0), (4.0, 30, 0.1), (1.0, 100, 0.02)])
def test_epsilon_is_at_most_that_of_the_renyi_accountant(epsilon: float, rounds: int, rate: float) -> None:
    shift = largest_shift(epsilon, DELTA, rounds=rounds, sampling_rate=rate)
    gaussian = dp_event.GaussianDpEvent(1 / shift)
    event = gaussian if rate == 1.0 else dp_event.PoissonSampledDpEvent(rate, gaussian)
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(event, rounds)
    assert epsilon <= accountant.get_epsilon(DELTA)


@pytest.mark.parametrize("replace", [False, True])
def test_limits(replace: bool) -> None:
    shift = 0.3
    everybody = run_delta(1.0, shift=shift, rounds=7, replace=replace)
    assert everybody == pytest.approx(gaussian_delta(1.0, alpha=shift * math.sqrt(7) * (1 + replace)))
    nearly = run_delta(1.0, shift=shift, rounds=7, sampling_rate=1 - 1e-6, replace=replace)
    assert nearly == pytest.approx(everybody, rel=1e-3)
    assert run_delta(1.0, shift=shift, rounds=7, sampling_rate=0.1, replace=replace) < everybody / 10


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_the_search_lands_on_the_safe_side_and_close(rate: float) -> None:
    shift = largest_shift(2.0, 1e-6, rounds=20, sampling_rate=rate)
    assert run_delta(2.0, shift=shift, rounds=20, sampling_rate=rate) <= 1e-6
    assert run_delta(2.0, shift=shift * 1.001, rounds=20, sampling_rate=rate) > 1e-6


def plan_of(**given: object) -> object:
    wanted = {"epsilon": 4.0, "delta": DELTA, "rounds": 30, "population": 1000} | given
    return PrivateAverage(**wanted).plan  # type: ignore[arg-type]


@pytest.mark.parametrize("neighbors", ["zero-out", "add-remove", "replace-user"])
@pytest.mark.parametrize("steps", [1, 3])
def test_sums_and_count_share_the_shift_of_a_round(neighbors: str, steps: int) -> None:
    plan = plan_of(neighbors=neighbors, steps=steps, threshold=AdaptiveThreshold(target=0.3))
    sums = steps * (plan.threshold_units / plan.sum_stddev) ** 2  # type: ignore[attr-defined]
    count = (max(plan.count_units) / plan.count_stddev) ** 2  # type: ignore[attr-defined]
    assert sums + count <= plan.shift**2 * (1 + 1e-12)  # type: ignore[attr-defined]
    assert sums + count == pytest.approx(plan.shift**2)  # type: ignore[attr-defined]


def test_replacing_a_client_takes_twice_the_noise() -> None:
    once, twice = (plan_of(neighbors=one, threshold=1.0) for one in ("zero-out", "replace-user"))
    assert twice.noise_multiplier == pytest.approx(2 * once.noise_multiplier)  # type: ignore[attr-defined]


def test_the_figure_of_the_literature() -> None:
    assert 1 / largest_shift(4.0, 1e-5, rounds=30) == pytest.approx(5.92, abs=0.01)


@pytest.mark.parametrize(
    "given",
    [
        {"delta": 0.0},
        {"epsilon": float("nan")},
        {"epsilon": True},
        {"rounds": 0},
        {"population": 2.5},
        {"sampling": "poisson"},
        {"sampling_rate": 0.1},
        {"sampling": "poisson", "sampling_rate": 1.5},
        {"sampling": "poisson", "sampling_rate": 0.1, "delta": 1e-20},
        {"neighbors": "nobody"},
        {"threshold": "large"},
        {"threshold": -1.0},
        {"threshold": float("inf")},
        {"center": "mean"},
        {"steps": 0},
        {"step_size": 0.0},
        {"like": np.zeros(3, np.int64)},
        {"like": np.zeros(0)},
        {"like": "text"},
        {"dataset": "trips"},
        {"epsilon": 1e-6, "rounds": 10**6, "population": 2**40},
    ],
)
def test_bad_parameters_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(hm.InputError):
        plan_of(**given).noise_multiplier  # type: ignore[attr-defined]  # noqa: B018
