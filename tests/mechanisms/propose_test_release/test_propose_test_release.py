"""`propose-test-release` keeps its guarantee on neighbor pairs, random and adversarial, as computed in floats.

For every pair: the margin is 1-Lipschitz, the center moves by at most the step where either has a margin, and the exact
divergence of the two laws stays below delta. Each of these checks is also shown to fail for a wrong mechanism.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers import propose_test_release_pairs as tested_pairs
from helpers.propose_test_release_pairs import (
    AIMED,
    SETTINGS,
    Setup,
    check_pair,
    divergence,
    estimated_weight_divergence,
    least_setup,
    make_aimed_dataset,
    outlier_neighbors,
    prepare,
    setup_at,
    side,
)
from helpers.smooth_sensitivity_pairs import (
    FAMILIES,
    BrokenGuaranteeError,
    Dataset,
    T,
    as_wide_as_thresholds,
    iterate_neighbors,
    make_dataset,
    some_thresholds,
)
from hubermean.huber.geometry import Geometry, HuberCenter
from hubermean.huber.passes import sample_medians
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease
from hubermean.mechanisms.propose_test_release.stability import StabilityTest
from hubermean.types.request import Neighbors


def worst_of(relation: Neighbors, family: str, seed: int, datasets: int) -> tuple[float, float, int]:
    """Check data sets with all their chosen neighbors: worst shift, worst divergence, number of pairs."""
    families = FAMILIES + AIMED
    rng = np.random.default_rng([seed, families.index(family), list(Neighbors).index(relation)])
    moved = spent = 0.0
    pairs = 0
    for number in range(datasets):
        (cap, power), d = some_thresholds(rng, (1, 4, 4)[number % 3]), (1, 2, 5)[int(rng.integers(3))]
        kind = {"dimension": d, "cap": cap, "power": power, "high": 1e4 * cap}
        mine = least_setup(relation, extra=int(rng.integers(12)), setting=SETTINGS[rng.integers(4)], **kind)
        if family in AIMED:
            dataset = make_aimed_dataset(rng, family, mine, d=d, cap=cap)
        else:
            users = int(rng.integers(1, 2 * mine.plan.curvature // cap + 20))
            dataset = as_wide_as_thresholds(make_dataset(rng, family, users, d, cap=cap), rng, cap, power)
        first = side(mine, dataset)
        for other in (
            *iterate_neighbors(dataset, relation, rng, cap),
            *outlier_neighbors(dataset, relation, cap),
        ):
            of_pair = check_pair(mine, first, side(mine, other))
            moved, spent, pairs = max(moved, of_pair[0]), max(spent, of_pair[1]), pairs + 1
    return moved, spent, pairs


@pytest.mark.parametrize("family", FAMILIES + AIMED)
@pytest.mark.parametrize("relation", list(Neighbors))
def test_guarantees_hold_on_neighbor_pairs(relation: Neighbors, family: str) -> None:
    moved, spent, pairs = worst_of(relation, family, seed=1, datasets=6)
    assert moved <= 1.0
    assert spent <= 1.0
    assert pairs >= 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("family", FAMILIES + AIMED)
@pytest.mark.parametrize("relation", list(Neighbors))
def test_guarantees_hold_on_many_neighbor_pairs(relation: Neighbors, family: str, seed: int) -> None:
    moved, spent, _ = worst_of(relation, family, seed=seed, datasets=30)
    assert moved <= 1.0
    assert spent <= 1.0


def climbed(mine: Setup, relation: Neighbors, seed: int, steps: int) -> tuple[float, float]:
    """Hill-climb over points and the changed user towards a violation; the worst shift and divergence."""
    rng = np.random.default_rng(seed)
    cap, plan = mine.prepared.cap, mine.plan
    n = -(-plan.curvature // cap) + plan.test.margin + 2
    own = mine.geometry.threshold_of(cap)
    best = rng.uniform(-1.0, 1.0, n) * rng.choice([0.1, 0.5, 1.0]) * own
    counts = np.full(n, cap)

    def score(points: Any) -> tuple[float, float]:
        dataset = Dataset(means=points[:, None], counts=counts)
        if relation is Neighbors.ADD_REMOVE:
            other = dataset.without(n - 1)
        else:
            thrown_across = points.copy()
            thrown_across[-1] = -np.sign(points[-1] or 1.0) * 50.0
            other = Dataset(means=thrown_across[:, None], counts=counts)
        return check_pair(mine, side(mine, dataset), side(mine, other))

    moved, spent = height = score(best)
    for _ in range(steps):
        tried = best.copy()
        some = rng.random(n) < rng.choice([0.1, 0.5])
        tried[some] += rng.normal(size=int(some.sum())) * 10.0 ** rng.uniform(-3, 0) * own
        if rng.random() < 0.3:  # onto a rung
            tried[rng.integers(n)] = rng.choice([-1, 1]) * (
                own - rng.integers(1, plan.test.margin + 1) * plan.step
            )
        reached = score(tried)
        moved, spent = max(moved, reached[0]), max(spent, reached[1])
        if reached >= height:
            best, height = tried, reached
    return moved, spent


@pytest.mark.parametrize(("cap", "power"), [(1, None), (4, None), (4, 0.5), (10_000, 1.0)])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_climbing_towards_a_violation_finds_none(relation: Neighbors, cap: int, power: float | None) -> None:
    for seed, setting in enumerate(SETTINGS[:2]):
        mine = least_setup(relation, extra=3 * seed, setting=setting, cap=cap, power=power, high=1e4 * cap)
        moved, spent = climbed(mine, relation, seed=seed, steps=60)
        assert 0.4 < moved <= 1.0  # near enough to have a say
        assert spent <= 1.0


@pytest.mark.parametrize("relation", list(Neighbors))
def test_the_influence_of_one_record_for_all_is_caught(
    relation: Neighbors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step for users of one record, where the heaviest ones do twenty times as much."""
    monkeypatch.setattr(Geometry, "influence", lambda self, weight: self.threshold)
    monkeypatch.setattr(tested_pairs, "setup_at", setup_at.__wrapped__)
    mine = least_setup(relation, extra=0, setting=SETTINGS[0], cap=400, power=0.5, high=4e6)
    with pytest.raises(BrokenGuaranteeError, match="more than the step"):
        climbed(mine, relation, seed=0, steps=30)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("curvature", [140, 190])
def test_few_users_hold_many_in_balance(d: int, curvature: int) -> None:
    """200 springs among 100,000 users who push against each other: the certificate must look at springs only."""
    means = np.zeros((100_001, d))
    means[:49_900, 0], means[49_900:99_800, 0] = 1.5, -1.5
    means[99_800:] = np.random.default_rng(0).normal(size=(201, d)) * 0.1
    means[-1], means[-1, 0] = 0.0, 1e5
    ones = np.ones(len(means), dtype=np.int64)
    dataset = Dataset(means=means, counts=ones)
    other = dataset.without(100_000).with_user(np.eye(d)[0] * -1e5, 1)
    for relation in Neighbors:
        mine = setup_at(relation, curvature=curvature, dimension=d, high=110_000.0)
        assert mine is not None
        near = dataset.without(100_000) if relation is Neighbors.ADD_REMOVE else other
        first, second = side(mine, dataset), side(mine, near)
        assert first.margin >= 1
        moved, _ = check_pair(mine, first, second)
        assert moved > 0.6
        # Beyond the weight that the plan allows for, data is without a margin.
        small = setup_at(relation, curvature=curvature, dimension=d, high=1_000.0)
        assert small is not None
        assert side(small, dataset).margin == 0


@pytest.mark.parametrize("cap", [1, 4])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_public_decisions_are_the_same_for_neighbors(relation: Neighbors, cap: int) -> None:
    rng = np.random.default_rng(3)
    dataset = make_dataset(rng, "tails", 400, 2, cap=cap)
    mine = prepare(dataset, relation, cap=cap)
    assert "e-05" in repr(mine)
    for other in iterate_neighbors(dataset, relation, rng, cap):
        assert prepare(other, relation, cap=cap) == mine
        assert repr(prepare(other, relation, cap=cap)) == repr(mine)


# -- the total weight is measured first ---------------------------------------------------------------------


def weight_estimated_pair(relation: Neighbors, cap: int, n: int, kind: str) -> tuple[Dataset, Dataset]:
    """ "missing": one of n users at 0 is not there. "flipped": one user decides between two far groups."""
    means = np.zeros((n, 1))
    if kind == "flipped":
        means[:, 0] = np.where(np.arange(n) % 2, -4.0, 4.0)
    dataset = Dataset(means=means, counts=np.full(n, cap))
    other = dataset.without(n - 1)
    if relation is Neighbors.REPLACE_USER:
        other = other.with_user(np.full(1, np.nan if kind == "missing" else 4.0), 1)
    return dataset, other


def weight_estimated(relation: Neighbors, cap: int) -> PreparedProposeTestRelease:
    public = Dataset(
        means=np.zeros((400, 1)), counts=np.ones(400, dtype=np.int64)
    )  # enough, where n is public
    return prepare(public, relation, cap=cap, epsilon=6.0, delta=0.01)


WEIGHT_ESTIMATED = [(Neighbors.ADD_REMOVE, 1), (Neighbors.ADD_REMOVE, 3), (Neighbors.REPLACE_USER, 3)]


@pytest.mark.parametrize("kind", ["missing", "flipped"])
@pytest.mark.parametrize(("relation", "cap"), WEIGHT_ESTIMATED)
def test_measuring_the_weight_is_part_of_the_guarantee(relation: Neighbors, cap: int, kind: str) -> None:
    """Summed over every measured value, at sizes for which some values have a plan and some have none."""
    mine = weight_estimated(relation, cap)
    assert mine.epsilon < mine.request.epsilon
    shares = [
        estimated_weight_divergence(mine, *weight_estimated_pair(relation, cap, n, kind)) / 0.01
        for n in (14, 26, 80)
    ]
    assert max(shares) <= 1.0 + 1e-6  # the tail of the measuring is rounded up
    if kind == "flipped":  # p_0 = delta is nearly all used
        assert shares[-1] > 0.9


@pytest.mark.parametrize(("relation", "cap"), WEIGHT_ESTIMATED)
def test_a_weight_measured_too_finely_is_caught(relation: Neighbors, cap: int) -> None:
    mine = weight_estimated(relation, cap)
    assert mine.weight_noise is not None
    finer = replace(mine, weight_noise=replace(mine.weight_noise, scale=mine.weight_noise.scale / 50.0))
    assert estimated_weight_divergence(finer, *weight_estimated_pair(relation, cap, 30, "missing")) > 0.01


def test_a_weight_measured_too_low_costs_no_release() -> None:
    """Six noise scales too low, one chance in 800: the plan still covers the users that are there."""
    dataset = Dataset(means=np.zeros((1000, 1)), counts=np.ones(1000, dtype=np.int64))
    mine = prepare(dataset, Neighbors.ADD_REMOVE)
    assert mine.weight_noise is not None
    for off in (-6.0, -3.5, 0.0, 3.0):
        plan = mine.plan_for_estimate(1000 + round(off * mine.weight_noise.scale))
        noisy_test = mine.noisy_test(mine.locate(dataset.table()), plan)
        assert noisy_test.passes == 2**noisy_test.bits


def test_the_number_of_users_read_off_the_data_is_caught() -> None:
    """With the true n as if it were public, the last user too few shows: a plan or none."""
    relation, delta = Neighbors.ADD_REMOVE, 1e-5
    everyone = Dataset(means=np.zeros((400, 1)), counts=np.ones(400, dtype=np.int64))
    mine = prepare(everyone, relation, delta=delta)
    peeking = [replace(mine, weight_noise=None, total_weight=n) for n in range(1, 400)]
    least = next(n for n, one in enumerate(peeking, start=1) if one.plan_at(n) is not None)
    noisy_test = peeking[least - 1].distribution(
        Dataset(means=np.zeros((least, 1)), counts=np.ones(least, dtype=np.int64)).table()
    )
    assert noisy_test.passes / 2**noisy_test.bits > delta  # type: ignore[attr-defined]
    assert peeking[least - 2].plan_at(least - 1) is None  # passes never: the divergence is the chance above


# -- the checks can fail ------------------------------------------------------------------------------------


def across(mine: Setup, *, margin: int) -> tuple[Dataset, Dataset]:
    """rho + k users near the center, one of them thrown across it: margins k and k - 1, nearly the full shift."""
    cap, plan = mine.prepared.cap, mine.plan
    n = -(-plan.curvature // cap) + margin
    means = np.zeros((n, len(mine.prepared.request.columns)))
    means[-1, 0] = -(T - (margin + 1.5) * plan.step)
    dataset = Dataset(means=means, counts=np.full(n, cap))
    return dataset, dataset.without(n - 1).with_user(50.0 * np.eye(means.shape[1])[0], cap)


def flipped() -> tuple[Dataset, Dataset]:
    """Nobody near the center, and one user decides on which side it lies: no margin, any distance."""
    means = np.repeat([[-4.0], [4.0]], 30, axis=0)
    ones = np.ones(61, dtype=np.int64)
    return (
        Dataset(means=np.vstack([means, [[-4.0]]]), counts=ones),
        Dataset(means=np.vstack([means, [[4.0]]]), counts=ones),
    )


def check(mine: Setup, pair: tuple[Dataset, Dataset]) -> tuple[float, float]:
    return check_pair(mine, side(mine, pair[0]), side(mine, pair[1]))


def changed(mine: Setup, **fields: Any) -> Setup:
    return replace(mine, plan=replace(mine.plan, **fields))


def test_noise_a_tenth_too_small_is_caught() -> None:
    mine = setup_at(Neighbors.REPLACE_USER, curvature=2000, setting=(1.0, 1e-5, 0.04))
    assert mine is not None
    shares = []
    for margin in range(1, mine.plan.test.margin + 1):
        moved, share = check(mine, across(mine, margin=margin))
        assert moved > 0.85
        shares.append(share)
    assert 0.5 < max(shares) <= 1.0
    pair = across(mine, margin=1 + int(np.argmax(shares)))
    less = changed(mine, sigma=0.9 * mine.plan.sigma, test=replace(mine.plan.test, alpha=1.0))
    with pytest.raises(BrokenGuaranteeError, match="divergence"):
        check(less, pair)


@pytest.mark.parametrize("setting", SETTINGS)
def test_chances_that_are_too_large_are_caught(setting: tuple[float, float, float]) -> None:
    mine = least_setup(Neighbors.REPLACE_USER, extra=5, setting=setting)
    test = mine.plan.test
    assert check(mine, flipped())[1] > 1.0 - 1e-9  # p_0 = delta is all used
    tripled = (min(3 * test.passes[0], 2**test.bits), *test.passes[1:])
    for passes in (tripled, (*test.passes[1:], test.passes[-1])):
        with pytest.raises(BrokenGuaranteeError, match="divergence"):
            check(changed(mine, test=replace(test, passes=passes)), flipped())


def test_the_own_weight_in_place_of_the_cap_is_caught() -> None:
    """All have one record, a neighbor brings a user of four."""
    mine = setup_at(Neighbors.REPLACE_USER, curvature=60, cap=4)
    light = setup_at(Neighbors.REPLACE_USER, curvature=60, cap=1)
    assert mine is not None
    assert light is not None
    dataset = Dataset(means=np.zeros((90, 1)), counts=np.ones(90, dtype=np.int64))
    pair = dataset, dataset.without(0).with_user(np.array([50.0]), 4)
    check(mine, pair)
    with pytest.raises(BrokenGuaranteeError, match="more than the step"):
        check(replace(mine, plan=replace(light.plan, weight_cap=4)), pair)


def test_one_influence_in_place_of_two_is_caught() -> None:
    added = setup_at(Neighbors.ADD_REMOVE, curvature=200)
    assert added is not None
    with pytest.raises(BrokenGuaranteeError, match="more than the step"):
        check(added, across(added, margin=1))


def test_a_step_that_forgets_the_solver_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousandfold solver error: a search that starts at the median of 401 users, on either side, ends there, too."""
    monkeypatch.setattr(
        "hubermean.huber.solver.search_around_core", lambda problem, _: (sample_medians(problem), None)
    )
    mine = setup_at(Neighbors.REPLACE_USER, curvature=300, high=401.0, gradient_rate=0.02)
    exact = setup_at(Neighbors.REPLACE_USER, curvature=300, high=401.0)
    assert mine is not None
    assert exact is not None
    means = np.repeat([[-0.015], [0.015]], 200, axis=0)
    ones = np.ones(401, dtype=np.int64)
    pair = tuple(Dataset(means=np.vstack([means, [[x]]]), counts=ones) for x in (-0.015, 0.015))
    moved, _ = check(mine, pair)  # type: ignore[arg-type]
    assert 0.4 < moved <= 1.0
    with pytest.raises(BrokenGuaranteeError, match="more than the step"):
        check(changed(mine, step=exact.plan.step), pair)  # type: ignore[arg-type]


def counted(plan: StabilityTest, located: HuberCenter, *, depth: float, needed: int) -> bool:
    weights = np.ones(len(located.depths)) if located.weights is None else located.weights
    return int(weights[located.depths >= depth].sum()) >= needed


def test_a_margin_that_needs_no_spare_users_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """rho in place of rho + j w: one user less, and the whole margin is gone."""

    def holds(self: StabilityTest, changes: int, located: HuberCenter, geometry: Geometry) -> bool:
        return counted(self, located, depth=changes * self.step, needed=self.curvature)

    mine = least_setup(Neighbors.REPLACE_USER, extra=20, setting=SETTINGS[1])
    dataset = Dataset(
        means=np.zeros((mine.plan.curvature, 1)), counts=np.ones(mine.plan.curvature, dtype=np.int64)
    )
    pair = dataset, dataset.without(0).with_user(np.array([50.0]), 1)
    check(mine, pair)
    monkeypatch.setattr(StabilityTest, "_is_stable", holds)
    with pytest.raises(BrokenGuaranteeError, match="Lipschitz"):
        check(mine, pair)


def test_a_margin_read_one_step_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """(j - 1) steps deep in place of j: users at the edge of their threshold would count as springs."""

    def holds(self: StabilityTest, changes: int, located: HuberCenter, geometry: Geometry) -> bool:
        depth = (changes - 1) * self.step
        return counted(self, located, depth=depth, needed=self.curvature + changes * self.weight_cap)

    mine = setup_at(Neighbors.REPLACE_USER, curvature=37)
    assert mine is not None
    means = np.array([[0.99]] * 20 + [[-0.99]] * 20)
    dataset = Dataset(means=means, counts=np.ones(40, dtype=np.int64))
    pair = dataset, dataset.without(39).with_user(np.array([50.0]), 1)
    check(mine, pair)
    monkeypatch.setattr(StabilityTest, "_is_stable", holds)
    with pytest.raises(BrokenGuaranteeError, match="more than the step"):
        check(mine, pair)


def test_the_tests_own_divergence_of_a_coin() -> None:
    """Two coins without an answer behind them, by hand."""
    mine = least_setup(Neighbors.REPLACE_USER, extra=0, setting=SETTINGS[0])
    first, second = (side(mine, dataset) for dataset in flipped())
    one, two = replace(first, passes=0.2), replace(second, passes=0.9, place=first.place)
    assert divergence(1.0, 1.0, one, 1.0, two) == pytest.approx(0.8 - np.e * 0.1)
    assert divergence(1.0, 1.0, two, 1.0, one) == pytest.approx(0.9 - np.e * 0.2)
    assert divergence(1.0, 0.5, two, 0.0, one) == pytest.approx(0.5)
