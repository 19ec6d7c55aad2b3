"""A hostile tenth of users moves a release by no more than proofs/robustness.md states, and other means far more."""

from __future__ import annotations

import numpy as np
import pytest

from accuracy.hostile_bounds import (
    Honest,
    gaussian_length,
    gradient_of_exact,
    gradient_of_tested,
    noise_as_users,
)
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import ExponentialMechanism, NoisyTest
from hubermean.huber.solver import huber_location
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, PreparedInverseSensitivity
from hubermean.mechanisms.propose_test_release import mechanism as tested
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import Neighbors, Per, PublicFacts, Request

USERS, HOSTILE, CAP = 2_000, 200, 5
THRESHOLD, RADIUS, CENTER = 8.0, 20_000.0, -3.7
FAILURE = 1e-6
RELATIONS = list(Neighbors)
FAR = (1e9, -1e9)
# Far away on either side, and where the influence just reaches its bound: as harmful, and harder to distinguish.
PLACES = (*FAR, CENTER + 1.3 * THRESHOLD, CENTER - 1.3 * THRESHOLD)


def honest_users(seed: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """(means, counts)"""
    generator = np.random.default_rng(seed)
    means = CENTER + generator.standard_normal((USERS, columns))
    return means, generator.integers(1, CAP + 1, USERS)


def attacked(
    means: np.ndarray, counts: np.ndarray, place: float, *, public_counts: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The first tenth at one place, as heavy as they may be."""
    means, counts = means.copy(), counts.copy()
    means[:HOSTILE] = place
    if not public_counts:
        counts[:HOSTILE] = CAP
    return means, counts


def request_for(table: UserTable, relation: Neighbors, per: Per, delta: float) -> Request:
    return Request(columns=table.columns, epsilon=1.0, delta=delta, neighbors=relation, per=per)


def chance_beyond(
    prepared: PreparedInverseSensitivity, distribution: ExponentialMechanism, center: float, bound: float
) -> float:
    """How likely `inverse-sensitivity` answers further from the center than the bound, from its law; whole
    runs, rounded up."""
    spacing = 2.0**prepared.grid.exponent
    ends = np.cumsum(distribution.sizes)
    mass = distribution.sizes * np.exp(
        -float(distribution.rate) * (distribution.costs - distribution.costs.min())
    )
    last = (ends - 1 - prepared.grid.radius) * spacing
    first = (ends - distribution.sizes - prepared.grid.radius) * spacing
    beyond = (first < center - bound) | (last > center + bound)
    return float(mass[beyond].sum() / mass.sum())


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("per", ["user", "record"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_exact_stays_within_the_stated_bound(relation: Neighbors, per: Per, seed: int) -> None:
    means, counts = honest_users(seed, 1)
    cap = CAP if per == "record" else None
    mechanism = InverseSensitivity(threshold=THRESHOLD, radius=RADIUS, max_records=cap)
    for place in PLACES:
        bad_means, bad_counts = attacked(means, counts, place, public_counts=relation.counts_are_public)
        table = UserTable.from_means(bad_means, bad_counts)
        request = request_for(table, relation, per, 0.0)
        prepared = mechanism.prepare(request, PublicFacts.of(table, relation))
        threshold = prepared.grid.threshold * 2.0**prepared.grid.exponent
        honest = Honest.of(means, threshold=threshold, weights=counts if per == "record" else None)
        bound = honest.shift(gradient_of_exact(prepared, users=USERS, hostile=HOSTILE, failure=FAILURE))
        assert bound < THRESHOLD
        (distribution,) = prepared.distribution(table).parts
        assert isinstance(distribution, ExponentialMechanism)
        assert chance_beyond(prepared, distribution, float(honest.location[0]), bound) <= FAILURE
        release = release_user_table(table, request, mechanism, InsecureSeededNoise(seed))
        assert honest.distance(release.values) <= bound
        if place in FAR:
            clipped = Clipped(bounds=(-RADIUS, RADIUS), max_records=cap)
            other = release_user_table(table, request, clipped, InsecureSeededNoise(seed))
            assert honest.distance(other.values) > 100 * bound
            assert abs(np.average(bad_means) - CENTER) > 100 * bound


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("relation", RELATIONS)
def test_tested_stays_within_the_stated_bound(relation: Neighbors, columns: int, seed: int) -> None:
    means, counts = honest_users(seed, columns)
    honest = Honest.of(means, threshold=THRESHOLD)
    mechanism = tested.ProposeTestRelease(threshold=THRESHOLD, radius=RADIUS, share=0.75)
    for place in PLACES:
        bad_means, _ = attacked(means, counts, place, public_counts=True)
        table = UserTable.from_means(bad_means)
        request = request_for(table, relation, "user", 1e-5)
        prepared = mechanism.prepare(request, PublicFacts.of(table, relation))
        release = release_user_table(table, request, mechanism, InsecureSeededNoise(seed))
        center = honest.shift(gradient_of_tested(prepared, total_weight=USERS, hostile=HOSTILE))
        bound = center + gaussian_length(release.parameters["noise_stddev"], columns, FAILURE)
        assert honest.distance(release.values) <= bound < THRESHOLD
        if place in FAR:
            clipped = Clipped(bounds=(-RADIUS, RADIUS))
            other = release_user_table(table, request, clipped, InsecureSeededNoise(seed))
            assert honest.distance(other.values) > 100 * bound
            assert np.linalg.norm(bad_means.mean(axis=0) - CENTER) > 100 * bound


@pytest.mark.parametrize("columns", [1, 3])
def test_tested_refuses_rather_than_moves_when_too_many_are_hostile(columns: int) -> None:
    """More hostile users than the share leaves room for: the chance of a release is at most delta-sized."""
    means, counts = honest_users(1, columns)
    bad_means, _ = attacked(means, counts, 1e9, public_counts=True)
    table = UserTable.from_means(bad_means)
    request = request_for(table, Neighbors.REPLACE_USER, "user", 1e-5)
    prepared = tested.ProposeTestRelease(threshold=THRESHOLD, radius=RADIUS, share=0.95).prepare(
        request, PublicFacts.of(table, request.neighbors)
    )
    assert isinstance(prepared, tested.PreparedProposeTestRelease)
    distribution = prepared.distribution(table)
    assert isinstance(distribution, NoisyTest)
    assert distribution.passes / 2**distribution.bits <= 1e-5


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("hostile", [20, 100, 200, 400])
def test_the_center_moves_by_no_more_than_lemma_2_and_by_half_of_it(columns: int, hostile: int) -> None:
    """Not vacuous: an attack reaches about half of the bound, since those replaced were near the center."""
    means, _ = honest_users(4, columns)
    honest = Honest.of(means, threshold=THRESHOLD)
    bound = honest.shift(2 * hostile * THRESHOLD)
    bad_means = means.copy()
    bad_means[:hostile] = 1e9
    moved = honest.distance(np.asarray(huber_location(bad_means, thresholds=THRESHOLD).point))
    assert 0.45 * bound < moved <= bound


def test_replacing_the_users_of_one_side_comes_closer_to_the_bound() -> None:
    """Users far below replaced by users far above: each user's influence turns from one extreme to the other."""
    means = np.concatenate([np.zeros(1_800), np.full(100, -1e9), np.full(100, 1e9)])[:, np.newaxis]
    honest = Honest.of(means, threshold=1.0)
    bad_means = np.where(means < 0, 1e9, means)
    moved = honest.distance(np.asarray(huber_location(bad_means, thresholds=1.0).point))
    assert moved == pytest.approx(honest.shift(2 * 100 * 1.0), rel=1e-9)


def test_bounds_end_where_the_lemma_does() -> None:
    honest = Honest.of(np.zeros((10, 1)), threshold=1.0)
    assert honest.shift(2 * 4 * 1.0) == pytest.approx(0.8)
    assert honest.shift(2 * 5 * 1.0) == np.inf


def test_noise_counts_for_more_users_with_a_wider_radius_but_only_by_its_logarithm() -> None:
    table = UserTable.from_means(np.zeros(USERS))
    request = request_for(table, Neighbors.REPLACE_USER, "user", 0.0)
    facts = PublicFacts.of(table, request.neighbors)
    counted = [
        noise_as_users(
            InverseSensitivity(threshold=1.0, radius=radius).prepare(request, facts),
            users=USERS,
            failure=1e-3,
        )
        for radius in (10.0, 1e3, 1e5)
    ]
    steps = np.diff(counted)
    assert np.all(np.abs(steps - 2.0 * np.log(100.0)) <= 1.0)
