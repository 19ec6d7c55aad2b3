"""`smooth-sensitivity` keeps its guarantee on neighbor pairs, random and adversarial, as computed in floats.

For every pair: B_k(D) <= B_{k+1}(D'), the center moves by at most B_0, S is beta-smooth, and the exact
divergence of the two output laws stays below delta. Each of these checks is also shown to fail for a wrong mechanism.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from helpers.divergence_oracle import divergence
from helpers.smooth_sensitivity_pairs import (
    FAMILIES,
    BrokenGuaranteeError,
    Dataset,
    T,
    as_wide_as_thresholds,
    check_pair,
    gradient,
    hockey_stick,
    iterate_neighbors,
    make_dataset,
    prepare,
    prepare_at,
    some_thresholds,
)
from hubermean.accounting.gaussian import gaussian_delta
from hubermean.accounting.smooth_sensitivity import calibrate_smooth_noise
from hubermean.huber.geometry import Geometry
from hubermean.huber.local_sensitivity import InfluenceLimits, bound_local_sensitivity
from hubermean.huber.numerics import MAX_BLOCK_ROWS, block_rows
from hubermean.huber.problem import bound_attainable_gradient
from hubermean.huber.solver import huber_location
from hubermean.mechanisms.smooth_sensitivity import mechanism as smooth
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.types.request import Neighbors

# (beta, epsilon, delta): every beta is valid, and small datasets need a large one to have a say.
SETTINGS = ((0.02, 1.0, 1e-2), (0.1, 2.0, 1e-2), (0.3, 4.0, 0.05))


def worst_of(relation: Neighbors, family: str, seed: int, datasets: int, largest: int = 60) -> float:
    """Check `datasets` data sets with all their chosen neighbors; the worst divergence over delta."""
    rng = np.random.default_rng([seed, FAMILIES.index(family), list(Neighbors).index(relation)])
    worst = 0.0
    for number in range(datasets):
        cap, power = some_thresholds(rng, 1 if number % 3 == 1 else 4)
        d, n = int(rng.integers(1, 5)), int(rng.integers(1, largest))
        beta, epsilon, delta = SETTINGS[rng.integers(3)]
        dataset = as_wide_as_thresholds(make_dataset(rng, family, n, d, cap=cap), rng, cap, power)
        mine = prepare_at(
            relation, beta=beta, epsilon=epsilon, delta=delta, dimension=d, cap=cap, power=power
        )
        for other in iterate_neighbors(dataset, relation, rng, cap):
            worst = max(worst, check_pair(mine, dataset, other))
    return worst


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("relation", list(Neighbors))
def test_guarantees_hold_on_neighbor_pairs(relation: Neighbors, family: str) -> None:
    assert worst_of(relation, family, seed=1, datasets=6) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("relation", list(Neighbors))
def test_guarantees_hold_on_many_neighbor_pairs(relation: Neighbors, family: str, seed: int) -> None:
    assert worst_of(relation, family, seed=seed, datasets=20, largest=400) <= 1.0


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("n", [2_001, 100_001])
def test_few_users_hold_many_in_balance(n: int, d: int) -> None:
    """A solver that stops on a small update breaks here: nearly flat loss, 200 users hold thousands."""
    means = np.zeros((n, d))
    half = (n - 201) // 2
    means[:half, 0], means[half : 2 * half, 0] = 1.5, -1.5
    means[2 * half :] = np.random.default_rng(0).normal(size=(n - 2 * half, d)) * 0.1
    means[-1], means[-1, 0] = 0.0, 1e5
    ones = np.ones(n, dtype=np.int64)
    other = means.copy()
    other[-1, 0] = -1e5
    for relation in Neighbors:
        mine = prepare_at(relation, beta=0.3, epsilon=4.0, delta=0.05, dimension=d)
        pair = Dataset(means=means, counts=ones), Dataset(means=other, counts=ones)
        if relation is Neighbors.ADD_REMOVE:
            pair = pair[0], pair[0].without(n - 1)
        assert check_pair(mine, *pair) <= 1.0


@pytest.mark.parametrize("cap", [1, 4])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_public_decisions_are_the_same_for_neighbors(relation: Neighbors, cap: int) -> None:
    rng = np.random.default_rng(3)
    dataset = make_dataset(rng, "tails", 12, 2, cap=cap)
    mine = prepare(dataset, relation, cap=cap)
    for other in iterate_neighbors(dataset, relation, rng, cap):
        assert prepare(other, relation, cap=cap) == mine


# -- the checks can fail ------------------------------------------------------------------------------------


def extreme_pair(n: int, d: int = 1) -> tuple[Dataset, Dataset]:
    """n - 1 users at 0, one far to the right against one far to the left: the largest shift there is."""
    means = np.zeros((n, d))
    means[-1, 0] = 10.0
    mirrored = means.copy()
    mirrored[-1, 0] = -10.0
    ones = np.ones(n, dtype=np.int64)
    return Dataset(means=means, counts=ones), Dataset(means=mirrored, counts=ones)


def test_the_printed_gaussian_constants_are_caught() -> None:
    """Zhao et al. (2024), eq. param, d = 1: delta is 4.28e-5 where 1e-5 is claimed."""
    epsilon, delta = 1.0, 1e-5
    pair = extreme_pair(1000)
    mine = prepare(pair[0], Neighbors.REPLACE_USER, epsilon=epsilon, delta=delta, radius=10.0)
    assert check_pair(mine, *pair) <= 1.0
    log_term = math.log(1.0 / delta)
    printed = replace(
        mine, alpha=epsilon / math.sqrt(log_term), beta=epsilon / (2.0 * log_term), max_changes=999
    )
    with pytest.raises(BrokenGuaranteeError, match="divergence"):
        check_pair(printed, *pair)


def test_the_printed_lemma_for_unequal_users_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lemma unbcommon as printed: h(D, 1) = 0.100 looks at the user at the center, the true shift is 0.150."""
    means = np.array([[0.5], [-0.5]] * 5 + [[0.0]])
    ones = np.ones(11, dtype=np.int64)
    dataset = Dataset(means=means, counts=ones)
    other = Dataset(means=np.vstack([[[-1e6]], means[1:]]), counts=ones)
    mine = prepare_at(Neighbors.REPLACE_VALUES, beta=0.3, epsilon=4.0, delta=0.05)
    check_pair(mine, dataset, other)

    def printed(depths: Any, weights: Any, *, caps: InfluenceLimits, reach: int) -> Any:
        n = len(depths)
        share = 1.0 / n
        nearest = T - float(
            np.max(depths)
        )  # Z of the user with the most records: all have one, the last is named
        return np.full(reach, share * (T + nearest) / (1.0 - share))

    monkeypatch.setattr(smooth, "bound_local_sensitivity", printed)
    depths = T - np.abs(means[:, 0])
    assert printed(depths, None, caps=mine.caps, reach=1)[0] == pytest.approx(0.1)
    with pytest.raises(BrokenGuaranteeError, match="more than B_0"):
        check_pair(mine, dataset, other)


def test_one_influence_instead_of_two_is_caught() -> None:
    pair = extreme_pair(30)
    mine = prepare_at(Neighbors.REPLACE_USER, beta=0.3, epsilon=4.0, delta=0.05)
    check_pair(mine, *pair)
    halved = replace(mine, caps=replace(mine.caps, influence=mine.caps.influence / 2.0))
    with pytest.raises(BrokenGuaranteeError, match="more than B_0"):
        check_pair(halved, *pair)


@pytest.mark.parametrize("relation", list(Neighbors))
def test_the_influence_of_one_record_for_all_is_caught(
    relation: Neighbors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise for users of one record, where the heaviest ones do twenty times as much."""
    monkeypatch.setattr(Geometry, "influence", lambda self, weight: self.threshold)
    made = prepare_at.__wrapped__(relation, beta=0.1, epsilon=2.0, delta=1e-2, cap=400, power=0.5)
    first, second = (replace(dataset, counts=np.full(41, 400)) for dataset in extreme_pair(41))
    with pytest.raises(BrokenGuaranteeError, match="B_0"):
        check_pair(made, first, first.without(40) if relation is Neighbors.ADD_REMOVE else second)


def test_a_weight_cap_read_off_the_data_is_caught() -> None:
    """Everyone has one record, a neighbor brings a user of 4: caps of 1 would guarantee a fourth of the shift."""
    dataset = Dataset(means=np.zeros((40, 1)), counts=np.ones(40, dtype=np.int64))
    other = dataset.without(0).with_user(np.array([50.0]), 4)
    mine = prepare_at(Neighbors.REPLACE_USER, cap=4, beta=0.3, epsilon=4.0, delta=0.05)
    check_pair(mine, dataset, other)
    peeked = replace(mine, caps=replace(mine.caps, weight=1, influence=mine.caps.influence / 4.0))
    with pytest.raises(BrokenGuaranteeError):
        check_pair(peeked, dataset, other)


def test_bounds_one_step_too_early_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """B_k read at k changes instead of k + 1 trusts users at the edge, whom one change pushes out."""

    def early(depths: Any, weights: Any, *, caps: InfluenceLimits, reach: int) -> Any:
        right = bound_local_sensitivity(depths, weights, caps=caps, reach=reach)
        counted = np.sum((depths > 0) * (1 if weights is None else weights))
        return np.append(caps.influence / counted if counted else np.inf, right)[:-1]

    monkeypatch.setattr(smooth, "bound_local_sensitivity", early)
    # Two groups just inside the threshold of a center between them: whoever changes side pushes the others out.
    means = np.array([[0.99]] * 20 + [[-0.99]] * 20)
    dataset = Dataset(means=means, counts=np.ones(40, dtype=np.int64))
    other = Dataset(means=np.vstack([[[-50.0]], means[1:]]), counts=dataset.counts)
    mine = prepare_at(Neighbors.REPLACE_USER, beta=0.3, epsilon=4.0, delta=0.05)
    with pytest.raises(BrokenGuaranteeError, match="B_0"):
        check_pair(mine, dataset, other)


# -- the public limits on errors ----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_public_limits_cover_the_errors_that_occur(family: str, d: int) -> None:
    """Depths and gradient in extended precision: within the limits, and the solver never needs its fallback."""
    rng = np.random.default_rng(11)
    measured = 0.0
    for n in (7, 300, 5000):
        mine = prepare_at(Neighbors.REPLACE_USER, beta=0.1, epsilon=2.0, delta=0.01, dimension=d, cap=4)
        dataset = make_dataset(rng, family, n, d, cap=4)
        points, weights = mine.users(dataset.table())
        assert weights is not None
        limit = mine.caps.gradient_rate * int(weights.sum())
        found = huber_location(points, weights=weights, thresholds=T, tolerance=limit)
        assert found.gradient_norm_bound <= limit
        center = np.asarray(found.point)
        exact = np.asarray(points, dtype=np.longdouble), weights, center.astype(np.longdouble)
        assert np.linalg.norm(gradient(*exact).astype(float)) <= limit
        distance = np.sqrt(((exact[0] - exact[2]) ** 2).sum(axis=1))
        error = np.abs(mine.geometry.depths(points, center) - (T - distance))[distance <= T]
        measured = max(measured, float(np.max(error, initial=0.0)))
    assert 2.0 * measured + 16.0 * 2.0**-53 * T <= mine.caps.depth_step
    assert mine.caps.depth_step < 1e-13
    assert mine.caps.gradient_rate < 1e-10


def test_a_users_point_does_not_depend_on_the_others() -> None:
    """Bit for bit, wherever the user stands in the table: else its own rounding would have to be counted."""
    rng = np.random.default_rng(12)
    for d in (1, 2, 3, 8, 33):
        mine = prepare_at(Neighbors.REPLACE_USER, beta=0.01, epsilon=2.0, delta=0.01, dimension=d)
        means = rng.standard_cauchy((200, d)) * 10.0 ** rng.integers(-3, 9, (200, 1))
        counts = rng.integers(1, 50, 200)
        everyone, _ = mine.users(Dataset(means=means, counts=counts).table())
        assert float(np.max(np.linalg.norm(everyone, axis=1))) <= mine.geometry.clamp * (1 + 1e-12)
        for start in range(7):
            some, _ = mine.users(Dataset(means=means[start::3], counts=counts[start::3]).table())
            assert np.array_equal(some, everyone[start::3])


# -- the noise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "shift", "log_ratio", "dimension"),
    [
        (1, 0.25, -0.02, 1),
        (1, 0.25, -0.02, 3),
        (1, 0.2, 1e-9, 2),
        (0.5, 0.1, -0.05, 4),
        (1, 0.3, 0.0, 2),
        (2, 1.0, 0.1, 4),
    ],
)
def test_the_tests_own_divergence(epsilon: float, shift: float, log_ratio: float, dimension: int) -> None:
    exact = float(divergence(epsilon, mp.mpf(shift), mp.mpf(log_ratio), dimension))
    assert hockey_stick(epsilon, shift, log_ratio, dimension) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize(
    ("epsilon", "delta", "beta"), [(1.0, 1e-5, 0.02), (0.01, 1e-3, 1e-4), (3.0, 1e-2, 0.2)]
)
def test_two_discrete_gaussians_stay_below_delta(epsilon: float, delta: float, beta: float) -> None:
    """The exact divergence on the integers, summed up, at the smallest sigma and both signs of the ratio."""
    noise = calibrate_smooth_noise(epsilon, delta, beta=beta, dimension=1)
    attained = []
    for ratio in (-beta, 0.0, beta):
        # The smallest sigma at which the largest allowed shift is a whole number.
        shift = math.ceil(noise.alpha * noise.smallest_sigma)
        narrow = shift / noise.alpha * max(1.0, math.exp(-ratio))
        wide = narrow * math.exp(ratio)
        x = np.arange(-int(12 * narrow), int(12 * narrow))
        log_p = -(x**2) / (2 * narrow**2) - math.log(narrow * math.sqrt(2 * math.pi))
        log_q = -((x - shift) ** 2) / (2 * wide**2) - math.log(wide * math.sqrt(2 * math.pi))
        attained.append(float(np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0.0).sum()))
    assert 0.95 * delta < max(attained) <= delta


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("n", [5, 800, 20_000])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_what_is_prepared_reaches_delta(relation: Neighbors, n: int, d: int) -> None:
    """The alpha in use belongs to the beta in use; rounding, grid and the largest scale fit together."""
    epsilon, delta = 0.8, 1e-6
    dataset = Dataset(means=np.zeros((n, d)), counts=np.ones(n, dtype=np.int64))
    mine = prepare(dataset, relation, epsilon=epsilon, delta=delta)
    reached = gaussian_delta(epsilon, alpha=mine.alpha, beta=mine.beta + 2.0**-40, dimension=d)
    assert 0.9 * delta < reached < delta
    spacing = 2.0**mine.exponent
    assert mine.rounding >= math.sqrt(d) * spacing
    largest = (2.0 * mine.radius + 2.0 * mine.rounding) / (mine.alpha * spacing)
    assert 2.0**47 < largest < LARGEST_SCALE
    factor = 1 if relation is Neighbors.ADD_REMOVE else 2
    assert mine.caps.influence > factor * T
    assert mine.caps.weight == 1
    # Beyond the reach the diameter decays below the smallest noise, or no data set could withstand more.
    beyond = math.exp(-mine.beta * mine.max_changes) * 2.0 * mine.radius / (mine.alpha * spacing)
    assert beyond <= mine.smallest_sigma * 1.001 or mine.max_changes in (0, n)


@pytest.mark.parametrize("dimension", [1, 3, 50])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 20.0])
def test_discreteness_costs_next_to_nothing(epsilon: float, dimension: int) -> None:
    noise = calibrate_smooth_noise(epsilon, 1e-6, beta=1e-7, dimension=dimension)
    reached = gaussian_delta(epsilon, alpha=noise.alpha, beta=1e-7, dimension=dimension)
    assert 0.9e-6 < reached < 1e-6
    assert noise.smallest_sigma >= 1024


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 7, 64, 511, 513, 2_000, 30_000, 10**6])
def test_no_number_of_users_has_a_larger_gradient_for_its_weight_than_a_full_block(d: int) -> None:
    """What is public where the number of users is not: smooth's bound per unit of weight."""
    given = {"dimension": d, "radius": 1e6}
    full = bound_attainable_gradient(n_users=MAX_BLOCK_ROWS, total_weight=1.0, total_influence=3.0, **given)
    for n in (1, 100, MAX_BLOCK_ROWS - 1, MAX_BLOCK_ROWS, MAX_BLOCK_ROWS + 1, 2**18, 2**20 + 5, 2**30):
        assert block_rows(d) <= MAX_BLOCK_ROWS
        found = bound_attainable_gradient(n_users=n, total_weight=float(n), total_influence=3.0 * n, **given)
        assert found <= n * full * (1 + 1e-12)
