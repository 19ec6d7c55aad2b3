"""Lemma 5 of proofs/propose-test-release.md: where most users hold the center, a search over parts finds it in ten
passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.partition_points import exact_gradient, reading
from helpers.partitioned import PartedTable
from helpers.propose_test_release_pairs import Setup, check_pair, outlier_neighbors, side
from helpers.smooth_sensitivity_pairs import BrokenGuaranteeError, Dataset, T
from hubermean import mechanisms
from hubermean.data.user_table import UserTable
from hubermean.distributed.huber_center import PartitionedUsers, locate
from hubermean.huber import distributed_solver
from hubermean.huber.distributed_solver import MAX_PASSES, STABLE_SHARE, STABLE_WITHIN, DistributedSearch
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease
from hubermean.mechanisms.propose_test_release.stability import StabilityTest
from hubermean.types.request import Neighbors, PublicFacts

Array = NDArray[np.float64]

# Where those sit who do not hold the center, for a threshold of 1: at its edge, at all scales near it, far away.
OUTLIERS = ("edge", "all scales", "one side of the edge", "far on one side", "two far clusters", "everywhere")
HOLDERS = ("ball", "sphere", "two points", "one point", "line")
PARTINGS = ("at random", "sorted", "outliers apart", "outliers in a third of the parts", "few users each")


def directions(rng: np.random.Generator, n: int, d: int) -> Array:
    made = rng.normal(size=(n, d))
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


def outliers(kind: str, rng: np.random.Generator, n: int, d: int) -> Array:
    around, first = directions(rng, n, d), np.eye(d)[0]
    match kind:
        case "edge":
            return around
        case "all scales":  # so that a step of any length takes users across the edge
            return np.asarray(
                around * (1.0 + rng.choice([-1.0, 1.0], n) * 2.0 ** -rng.uniform(1, 40, n))[:, None]
            )
        case "one side of the edge":
            return np.asarray(first * (1.0 + 1e-9 * rng.normal(size=n))[:, None])
        case "far on one side":
            return np.asarray(first * 1e3 + around)
        case "two far clusters":
            return np.asarray(1e3 * np.where(rng.random(n) < 0.7, 1.0, -1.0)[:, None] * first + around)
        case "everywhere":
            return np.asarray(around * 10.0 ** rng.uniform(-1, 4, n)[:, None])
        case _:
            raise ValueError(kind)


def holders(kind: str, rng: np.random.Generator, n: int, d: int) -> Array:
    """Users around 0, none beyond 0.6."""
    around = directions(rng, n, d)
    match kind:
        case "ball":
            made = 0.55 * around * rng.random(n)[:, None] ** (1.0 / d)
        case "sphere":
            made = 0.55 * around
        case "two points":
            made = 0.55 * np.where(np.arange(n) % 2, 1.0, -1.0)[:, None] * np.eye(d)[0]
        case "one point":
            made = np.zeros((n, d))
        case "line":
            made = np.linspace(-0.55, 0.55, n)[:, None] * np.eye(d)[0]
        case _:
            raise ValueError(kind)
    made = made - made.mean(axis=0)
    return np.asarray(made * np.minimum(1.0, 0.6 / np.maximum(np.linalg.norm(made, axis=1), 1e-9))[:, None])


def held_dataset(inside: str, outside: str, rng: np.random.Generator, n: int, d: int) -> Array:
    """Users, the last of them outliers, whose influence those who hold the center at 0 just balance."""
    n_out = n - int(np.ceil(STABLE_SHARE * n))
    far, near = outliers(outside, rng, n_out, d), holders(inside, rng, n - n_out, d)
    force = (far / np.maximum(np.linalg.norm(far, axis=1), 1.0)[:, None]).sum(axis=0)
    near = near - near.mean(axis=0) - force / len(near)
    assert np.linalg.norm(near, axis=1).max() <= STABLE_WITHIN
    place = rng.normal(size=d) * 10.0
    return np.asarray(np.concatenate((near, far)) + place)


def in_parts(means: Array, parting: str, rng: np.random.Generator) -> PartedTable:
    n = len(means)
    n_out = n - int(np.ceil(STABLE_SHARE * n))
    order, out = rng.permutation(n - n_out), np.arange(n - n_out, n)
    pieces: Sequence[NDArray[np.int64]]
    match parting:
        case "at random":
            pieces = np.array_split(rng.permutation(n), 9)
        case "sorted":
            pieces = np.array_split(np.argsort(means[:, 0], kind="stable"), 20)
        case "outliers apart":
            pieces = [order, out]
        case "outliers in a third of the parts":  # a third of each: just what a part can bear
            pieces = [
                np.concatenate(pair)
                for pair in zip(np.array_split(order[: 2 * n_out], 5), np.array_split(out, 5), strict=True)
            ]
            pieces = [*pieces, *np.array_split(order[2 * n_out :], 10)]
        case "few users each":
            pieces = np.array_split(rng.permutation(n), n // 4)
        case _:
            raise ValueError(parting)
    return PartedTable([UserTable.from_means(means[piece]) for piece in pieces])


def hard_cases(
    seed: int, dimensions: Sequence[int], *, every: bool = False
) -> Iterator[tuple[Array, PartedTable]]:
    """Every two of holders, outliers and partings together once; or `every` three of them."""
    rng = np.random.default_rng(seed)
    for inside, outside, parting in product(HOLDERS, OUTLIERS, PARTINGS):
        numbers = HOLDERS.index(inside) + OUTLIERS.index(outside) + PARTINGS.index(parting)
        if not every and numbers % len(PARTINGS):
            continue
        means = held_dataset(inside, outside, rng, 200, int(rng.choice(dimensions)))
        yield means, in_parts(means, parting, rng)


def passes_to_the_end(seed: int, dimensions: Sequence[int], *, every: bool = False) -> Iterator[int]:
    """Of every case, with the one for the start."""
    for means, users in hard_cases(seed, dimensions, every=every):
        how = reading(means.shape[1])
        found = locate(users, how)
        assert found.certified or users.passes == 1 + MAX_PASSES
        found = found.search_until_certified()
        assert found.certified
        assert exact_gradient(UserTable.from_means(means), how, found.center) <= (
            how.geometry.gradient_rate * len(means) * (1 + 1e-12)
        )
        yield users.passes


def passes_from_afar(seed: int, dimensions: Sequence[int], *, every: bool = False) -> Iterator[int]:
    """Of searches that start as far from the center as the proof lets the center of parts be."""
    rng = np.random.default_rng(seed)
    for means, _ in hard_cases(seed, dimensions, every=every):
        how, users = reading(means.shape[1]), UserTable.from_means(means)
        counted = PartitionedUsers.summarize(PartedTable([users]), how)
        start = how.geometry.locate(*how.read(users)).center + 1.437 * directions(rng, 1, means.shape[1])[0]
        search = DistributedSearch(counted, start, tolerance=counted.tolerance)
        search.run()
        yield search.passes


def without_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a round nothing but the two steps that proofs are about."""
    monkeypatch.setattr(DistributedSearch, "_choose_lines", lambda self: [])


@pytest.mark.parametrize(
    ("dimensions", "every"),
    [
        ((2, 3), False),
        pytest.param((2, 3), True, marks=pytest.mark.slow),
        pytest.param((8, 193), True, marks=pytest.mark.slow),
    ],
)
def test_a_center_that_is_held_is_found_in_ten_passes(dimensions: tuple[int, int], every: bool) -> None:
    assert max(passes_to_the_end(1, dimensions, every=every)) <= 1 + MAX_PASSES
    assert max(passes_from_afar(1, dimensions, every=every)) <= MAX_PASSES


@pytest.mark.parametrize(
    ("dimensions", "every"),
    [
        ((2, 3), False),
        pytest.param((2, 3), True, marks=pytest.mark.slow),
        pytest.param((8, 193), True, marks=pytest.mark.slow),
    ],
)
def test_so_it_is_by_the_steps_of_the_proof_alone(
    dimensions: tuple[int, int], every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_proposals(monkeypatch)
    assert max(passes_to_the_end(3, dimensions, every=every)) <= 1 + MAX_PASSES
    assert MAX_PASSES - 1 <= max(passes_from_afar(3, dimensions, every=every)) <= MAX_PASSES


def test_without_the_step_of_the_rounds_it_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proposals(monkeypatch)
    monkeypatch.setattr(distributed_solver, "_STABLE_CURVATURE", 3.0)
    assert any(passes > MAX_PASSES for passes in passes_from_afar(3, (2, 3)))


def test_the_start_is_where_the_proof_has_it() -> None:
    for means, users in hard_cases(4, (2, 8)):
        how = reading(means.shape[1])
        center = how.geometry.locate(*how.read(UserTable.from_means(means))).center
        counted = PartitionedUsers.summarize(users, how)
        assert np.linalg.norm(counted.start - center) < 1.437
        found = DistributedSearch(counted, counted.start, tolerance=counted.tolerance).result
        assert found.norm_bound <= 0.2001 * len(means)


def test_a_plan_has_a_reserve_where_the_proof_allows_it() -> None:
    plans = {
        name: prepared_for(n, **kind).plan_at(n)
        for name, n, kind in (
            ("many", 2**17, {}),
            ("more", 2**30, {"share": 0.95}),
            ("few", 2**17 - 1, {}),
            ("one column", 2**17, {"d": 1}),
            ("a smaller share", 2**17, {"share": 0.89}),
            ("far too wide", 2**17, {"radius": 1e11}),
            ("on one machine", 2**17, {"max_local_users": None}),
            ("just on one machine", 2**17, {"max_local_users": 2**17}),
        )
    }
    assert all(plans.values())
    assert {name for name, plan in plans.items() if plan and plan.reserve} == {"many", "more"}
    for plan in (plans["many"], plans["more"]):
        assert plan is not None
        assert plan.reserve == (1.0 - STABLE_WITHIN) * T
        assert plan.depth == plan.reserve + plan.test.margin * plan.step < T / 3


def test_a_public_number_of_users_decides_and_not_their_weight() -> None:
    """Users who come to one machine for sure are tested without a reserve, however many records they have."""
    some = Dataset(means=np.zeros((1, 2)), counts=np.ones(1, dtype=np.int64))
    for relation, reserved in ((Neighbors.REPLACE_USER, False), (Neighbors.ADD_REMOVE, True)):
        request = some.request(relation, cap=100, epsilon=1.0, delta=1e-6)
        facts = PublicFacts.of(some.table(), relation)
        n_users = None if relation is Neighbors.ADD_REMOVE else 200_000
        facts = replace(facts, n_users=n_users, max_local_users=5_000_000)
        mechanism = mechanisms.ProposeTestRelease(threshold=T, radius=5.0, max_records=100)
        plan = mechanism.prepare(request, facts).plan_at(20_000_000)
        assert plan is not None
        assert bool(plan.reserve) is reserved


def prepared_for(
    n: int, *, d: int = 2, share: float = 0.9, radius: float = 5.0, max_local_users: int | None = 1000
) -> PreparedProposeTestRelease:
    some = Dataset(means=np.zeros((1, d)), counts=np.ones(1, dtype=np.int64))
    request = some.request(Neighbors.REPLACE_USER, cap=1, epsilon=1.0, delta=1e-6)
    facts = PublicFacts.of(some.table(), Neighbors.REPLACE_USER)
    mechanism = mechanisms.ProposeTestRelease(threshold=T, radius=radius, share=share)
    return mechanism.prepare(request, replace(facts, n_users=n, max_local_users=max_local_users))


def border_dataset(plan: StabilityTest, rng: np.random.Generator, n: int, j: int) -> Dataset:
    """Just as many users as a margin of j asks for, half a step deeper than it asks; the others at the edge."""
    n_out = n - plan.curvature - j
    far = outliers("all scales", rng, n_out, 2)
    far[1::2] = -far[: n_out // 2 * 2 : 2]
    depth = plan.reserve + (j + 0.5) * plan.step
    near = directions(rng, n - n_out, 2) * (T - depth)
    near[1::2] = -near[: (n - n_out) // 2 * 2 : 2]
    return Dataset(means=np.concatenate((near, far)), counts=np.ones(n, dtype=np.int64))


def check_neighbors(n: int, j: int) -> None:
    """Margins and centers of a dataset on the border and of its neighbors, found in parts and on one machine."""
    mine = prepared_for(n)
    plan = mine.plan_at(n)
    assert plan is not None
    assert plan.reserve
    setup = Setup(prepared=mine, plan=plan)
    dataset = border_dataset(plan, np.random.default_rng(j), n, j)
    first = side(setup, dataset)
    assert first.margin in (j - 1, j)
    others = list(outlier_neighbors(dataset, Neighbors.REPLACE_USER, 1))
    for other in (dataset, others[0], others[-1]):
        check_pair(setup, first, side(setup, other, n_parts=7))
    check_pair(setup, side(setup, others[1]), side(setup, others[-1], n_parts=2))


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("j", [1, 2, 20])
def test_guarantees_hold_with_a_reserve(j: int) -> None:
    check_neighbors(2**17, j)


def test_to_end_a_search_sooner_would_break_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubermean.distributed.huber_center.MAX_PASSES", 1)
    with pytest.raises(BrokenGuaranteeError):
        check_neighbors(2**17, 20)


def test_users_not_found_in_time_have_no_margin_with_a_reserve_and_are_found_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_proposals(monkeypatch)
    monkeypatch.setattr(distributed_solver, "_STABLE_CURVATURE", 30.0)
    mine = prepared_for(2**17)
    plan = mine.plan_at(2**17)
    assert plan is not None
    rng = np.random.default_rng(5)
    means = np.concatenate((rng.normal(size=(700, 2)) * 0.1, rng.normal(size=(300, 2)) + 1.0))
    users = PartedTable([UserTable.from_means(means[:700]), UserTable.from_means(means[700:])])
    easy = replace(plan, curvature=10)
    located = mine.locate(users)
    assert not located.certified
    assert (easy.distance_to_instability(located, mine.geometry), users.passes) == (0, 1 + MAX_PASSES)
    assert replace(easy, reserve=0.0).distance_to_instability(located, mine.geometry) == plan.test.margin
    assert users.passes > 2 + MAX_PASSES
    # Found to the end, users are where they are, whichever plan asks.
    assert replace(easy, reserve=0.0).position(located) != easy.position(located)
