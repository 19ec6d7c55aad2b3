"""`smooth` keeps its promise on neighbour pairs, random and adversarial, as computed in floats.

For every pair: B_k(D) <= B_{k+1}(D'), the centre moves by at most B_0, S is beta-smooth, and the exact
divergence of the two output laws stays below delta. Each of these checks is also shown to fail for a wrong mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from divergence_oracle import divergence
from hubermean.location import huber_location
from hubermean.mechanisms import smooth
from hubermean.mechanisms.certified_bounds import Caps, certified_bounds, smooth_maximum
from hubermean.privacy import gaussian_delta, smooth_noise
from hubermean.relations import Neighbors
from smooth_pairs import (
    FAMILIES,
    BrokenPromiseError,
    T,
    World,
    check_pair,
    hockey_stick,
    neighbours,
    prepare,
    prepare_at,
    random_world,
)

# (beta, epsilon, delta): every beta is valid, and small worlds need a large one to have a say.
SETTINGS = ((0.02, 1.0, 1e-2), (0.1, 2.0, 1e-2), (0.3, 4.0, 0.05))


def worst_of(relation: Neighbors, family: str, seed: int, worlds: int, largest: int = 60) -> float:
    """Check `worlds` data sets with all their chosen neighbours; the worst divergence over delta."""
    rng = np.random.default_rng([seed, FAMILIES.index(family), list(Neighbors).index(relation)])
    worst = 0.0
    for number in range(worlds):
        cap = 1 if number % 2 else 4
        d, n = int(rng.integers(1, 5)), int(rng.integers(1, largest))
        beta, epsilon, delta = SETTINGS[rng.integers(3)]
        world = random_world(rng, family, n, d, cap=cap)
        mine = prepare_at(relation, beta=beta, epsilon=epsilon, delta=delta, dimension=d, cap=cap)
        for other in neighbours(world, relation, rng, cap):
            worst = max(worst, check_pair(mine, world, other))
    return worst


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("relation", list(Neighbors))
def test_promises_hold_on_neighbour_pairs(relation: Neighbors, family: str) -> None:
    assert worst_of(relation, family, seed=1, worlds=4) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("relation", list(Neighbors))
def test_promises_hold_on_many_neighbour_pairs(relation: Neighbors, family: str, seed: int) -> None:
    assert worst_of(relation, family, seed=seed, worlds=40, largest=400) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("relation", list(Neighbors))
def test_the_lemmas_hold_for_many_sloppy_pairs(relation: Neighbors, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert all(kernel_pair_holds(rng, relation) for _ in range(200))


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("n", [2_001, 100_001])
def test_few_users_hold_many_in_balance(n: int, d: int) -> None:
    """A solver that stops on a small update breaks here: nearly flat loss, 200 users hold thousands (theory 4)."""
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
        pair = World(means=means, counts=ones), World(means=other, counts=ones)
        if relation is Neighbors.ADD_REMOVE:
            pair = pair[0], pair[0].without(n - 1)
        assert check_pair(mine, *pair) <= 1.0


@pytest.mark.parametrize("cap", [1, 4])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_public_decisions_are_the_same_for_neighbours(relation: Neighbors, cap: int) -> None:
    rng = np.random.default_rng(3)
    world = random_world(rng, "tails", 12, 2, cap=cap)
    mine = prepare(world, relation, cap=cap)
    for other in neighbours(world, relation, rng, cap):
        assert prepare(other, relation, cap=cap) == mine


# -- the checks can fail ------------------------------------------------------------------------------------


def extreme_pair(n: int, d: int = 1) -> tuple[World, World]:
    """n - 1 users at 0, one far to the right against one far to the left: the largest shift there is."""
    means = np.zeros((n, d))
    means[-1, 0] = 10.0
    mirrored = means.copy()
    mirrored[-1, 0] = -10.0
    ones = np.ones(n, dtype=np.int64)
    return World(means=means, counts=ones), World(means=mirrored, counts=ones)


def test_the_printed_gaussian_constants_are_caught() -> None:
    """Zhao et al. (2024), eq. param, d = 1: delta is 4.28e-5 where 1e-5 is claimed (theory 1, item 1)."""
    epsilon, delta = 1.0, 1e-5
    pair = extreme_pair(1000)
    mine = prepare(pair[0], Neighbors.REPLACE_USER, epsilon=epsilon, delta=delta, radius=10.0)
    assert check_pair(mine, *pair) <= 1.0
    log_term = math.log(1.0 / delta)
    printed = replace(mine, alpha=epsilon / math.sqrt(log_term), beta=epsilon / (2.0 * log_term), reach=999)
    with pytest.raises(BrokenPromiseError, match="divergence"):
        check_pair(printed, *pair)


def test_the_printed_lemma_for_unequal_users_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lemma unbcommon as printed: h(D, 1) = 0.100 looks at the user at the centre, the true shift is 0.150."""
    means = np.array([[0.5], [-0.5]] * 5 + [[0.0]])
    ones = np.ones(11, dtype=np.int64)
    world = World(means=means, counts=ones)
    other = World(means=np.vstack([[[-1e6]], means[1:]]), counts=ones)
    mine = prepare_at(Neighbors.REPLACE_VALUES, beta=0.3, epsilon=4.0, delta=0.05)
    check_pair(mine, world, other)

    def printed(depths: Any, weights: Any, *, caps: Caps, reach: int) -> Any:
        n = len(depths)
        share = 1.0 / n
        nearest = T - float(
            np.max(depths)
        )  # Z of the user with the most records: all have one, the last is named
        return np.full(reach, share * (T + nearest) / (1.0 - share))

    monkeypatch.setattr(smooth, "certified_bounds", printed)
    depths = T - np.abs(means[:, 0])
    assert printed(depths, None, caps=mine.caps, reach=1)[0] == pytest.approx(0.1)
    with pytest.raises(BrokenPromiseError, match="more than B_0"):
        check_pair(mine, world, other)


def test_one_pull_instead_of_two_is_caught() -> None:
    pair = extreme_pair(30)
    mine = prepare_at(Neighbors.REPLACE_USER, beta=0.3, epsilon=4.0, delta=0.05)
    check_pair(mine, *pair)
    halved = replace(mine, caps=replace(mine.caps, pull=mine.caps.pull / 2.0))
    with pytest.raises(BrokenPromiseError, match="more than B_0"):
        check_pair(halved, *pair)


def test_a_weight_cap_read_off_the_data_is_caught() -> None:
    """Everyone has one record, a neighbour brings a user of 4: caps of 1 would promise a fourth of the shift."""
    world = World(means=np.zeros((40, 1)), counts=np.ones(40, dtype=np.int64))
    other = world.without(0).with_user(np.array([50.0]), 4)
    mine = prepare_at(Neighbors.REPLACE_USER, cap=4, beta=0.3, epsilon=4.0, delta=0.05)
    check_pair(mine, world, other)
    peeked = replace(mine, caps=replace(mine.caps, weight=1, pull=mine.caps.pull / 4.0))
    with pytest.raises(BrokenPromiseError):
        check_pair(peeked, world, other)


def test_bounds_one_step_too_early_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """B_k read at k changes instead of k + 1 trusts users at the edge, whom one change pushes out."""

    def early(depths: Any, weights: Any, *, caps: Caps, reach: int) -> Any:
        right = certified_bounds(depths, weights, caps=caps, reach=reach)
        counted = np.sum((depths > 0) * (1 if weights is None else weights))
        return np.append(caps.pull / counted if counted else np.inf, right)[:-1]

    monkeypatch.setattr(smooth, "certified_bounds", early)
    # Two groups just inside the threshold of a centre between them: whoever changes side pushes the others out.
    means = np.array([[0.99]] * 20 + [[-0.99]] * 20)
    world = World(means=means, counts=np.ones(40, dtype=np.int64))
    other = World(means=np.vstack([[[-50.0]], means[1:]]), counts=world.counts)
    mine = prepare_at(Neighbors.REPLACE_USER, beta=0.3, epsilon=4.0, delta=0.05)
    with pytest.raises(BrokenPromiseError, match="B_0"):
        check_pair(mine, world, other)


# -- the kernel, with errors large enough to see ------------------------------------------------------------


def gradient(points: Any, weights: Any, at: Any) -> Any:
    offsets = at - points
    distance = np.linalg.norm(offsets, axis=1)
    pulls = weights * T / np.maximum(distance, T)
    return pulls @ offsets


def pushed(points: Any, weights: Any, centre: Any, direction: Any, limit: float) -> Any:
    """The farthest point along `direction` at which the gradient's norm is still within `limit`."""
    low, high = 0.0, 4.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        norm = float(np.linalg.norm(gradient(points, weights, centre + middle * direction)))
        low, high = (middle, high) if norm <= limit else (low, middle)
    return centre + low * direction


def kernel_pair_holds(
    rng: np.random.Generator, relation: Neighbors, tamper: Callable[[Caps], Caps] = lambda caps: caps
) -> bool:
    """Lemmas 2 and 3 with a sloppy solver and sloppy distances, both as bad as the caps allow."""
    d, n, cap = int(rng.integers(1, 4)), int(rng.integers(2, 50)), int(rng.choice([1, 5]))
    family = FAMILIES[rng.integers(len(FAMILIES))]
    world = random_world(rng, family, n, d, cap=cap)
    rate, h = float(rng.choice([0.0, 0.001, 0.02])), float(rng.choice([0.0, 0.01, 0.1]))
    factor = 1.0 if relation is Neighbors.ADD_REMOVE else 2.0
    exact = Caps(weight=cap, pull=factor * cap * T * (1 + 1e-9), gradient_rate=rate, depth_step=2 * h + 1e-9)
    caps = tamper(exact)
    for other in neighbours(world, relation, rng, cap):
        sides = []
        for one in (world, other):
            usable = np.isfinite(one.means).all(axis=1)
            if not usable.any():
                break
            points = np.clip(one.means[usable], -100.0, 100.0)
            weights = np.minimum(one.counts[usable], cap)
            sides.append(
                (points, weights, np.asarray(huber_location(points, weights=weights, thresholds=T).point))
            )
        if len(sides) < 2:
            continue
        apart = sides[0][2] - sides[1][2]
        length = float(np.linalg.norm(apart))
        direction = apart / length if length > 0 else np.eye(d)[0]
        centres, bounds = [], []
        for sign, (points, weights, centre) in zip((1.0, -1.0), sides, strict=True):
            moved = pushed(points, weights, centre, sign * direction, rate * float(weights.sum()))
            depths = T - np.linalg.norm(points - moved, axis=1) - sign * h
            centres.append(moved)
            bounds.append(certified_bounds(depths, weights, caps=caps, reach=n + 1))
        shift = float(np.linalg.norm(centres[0] - centres[1])) * (1 - 1e-9)
        for mine, theirs in (bounds, bounds[::-1]):
            if shift > mine[0] or not (mine[:-1] <= theirs[1:]).all():
                return False
    return True


@pytest.mark.parametrize("relation", list(Neighbors))
def test_the_lemmas_hold_for_a_sloppy_solver_and_sloppy_distances(relation: Neighbors) -> None:
    rng = np.random.default_rng(5)
    assert all(kernel_pair_holds(rng, relation) for _ in range(25))


@pytest.mark.parametrize("dropped", ["gradient_rate", "depth_step"])
def test_dropping_an_error_term_is_caught(dropped: str) -> None:
    rng = np.random.default_rng(6)

    def without(caps: Caps) -> Caps:
        return replace(caps, **{dropped: 0.0})

    assert not all(kernel_pair_holds(rng, relation, without) for _ in range(150) for relation in Neighbors)


def bounds_by_definition(depths: Any, weights: Any, caps: Caps, reach: int) -> list[float]:
    """r_k as the least r with (M(r) - k w)(r - k e) >= k Q_k, in fractions, over the pieces of M."""
    total = int(sum(weights))
    found = []
    for k in range(1, reach + 1):
        pull = Fraction(caps.pull) + 2 * Fraction(caps.gradient_rate) * (total + k * caps.weight)
        best = None
        for edge in sorted(set(depths[depths > 0])):
            mass = int(sum(weights[depths >= edge])) - k * caps.weight
            if mass <= 0:
                continue
            least = k * pull / mass + k * Fraction(caps.depth_step)
            if least <= Fraction(float(edge)):
                best = mass
                break
        found.append(math.inf if best is None else float(pull / best))
    return found


def test_the_kernel_agrees_with_the_definition() -> None:
    rng = np.random.default_rng(8)
    for _ in range(40):
        n, cap = int(rng.integers(0, 40)), int(rng.choice([1, 7]))
        depths = 1.0 - np.abs(rng.choice([rng.normal(size=n) * 0.5, rng.integers(0, 5, n) / 4.0]))
        weights = rng.integers(1, cap + 1, n)
        caps = Caps(weight=cap, pull=2.0 * cap, gradient_rate=1e-3, depth_step=1e-3)
        given = None if cap == 1 else weights
        mine = certified_bounds(depths, given, caps=caps, reach=n + 2)
        assert mine == pytest.approx(bounds_by_definition(depths, weights, caps, n + 2), rel=1e-12)


def test_smooth_maximum() -> None:
    bounds = np.array([0.1, 0.5, math.inf])
    assert smooth_maximum(bounds, diameter=10.0, decay=1.0) == 10.0
    assert smooth_maximum(bounds, diameter=10.0, decay=0.5) == 2.5
    assert smooth_maximum(bounds, diameter=10.0, decay=1e-9) == 0.1
    assert smooth_maximum(np.empty(0), diameter=10.0, decay=0.5) == 10.0


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
    noise = smooth_noise(epsilon, delta, beta=beta, dimension=1)
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


@pytest.mark.parametrize("dimension", [1, 3, 50])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 20.0])
def test_discreteness_costs_next_to_nothing(epsilon: float, dimension: int) -> None:
    noise = smooth_noise(epsilon, 1e-6, beta=1e-7, dimension=dimension)
    reached = gaussian_delta(epsilon, alpha=noise.alpha, beta=1e-7, dimension=dimension)
    assert 0.9e-6 < reached < 1e-6
    assert noise.smallest_sigma >= 1024
