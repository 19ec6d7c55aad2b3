"""How likely a search of `norm-clipping` misses by far: exactly, from the probabilities of its choices."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from hubermean.data.arrays import FloatArray
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.norm_clipping.estimate import VectorEstimate
from hubermean.mechanisms.norm_clipping.mechanism import NormClipping
from hubermean.mechanisms.norm_clipping.plan import MOST_ROUNDS, UNIT, Quantile, VectorPlan
from hubermean.mechanisms.norm_clipping.steps import next_step, search_distance
from hubermean.mechanisms.norm_clipping.users import RADII, VectorUsers
from hubermean.searches.bounds import MAX_RECORDS_GRID, RankSearch
from hubermean.types.request import PublicFacts, Request

WILD = 8.0
RARE = 1e-6


def plan_for(epsilon: float, *, add_remove: bool, hostile: float, columns: int = 40) -> VectorPlan:
    return VectorPlan(
        epsilon=epsilon,
        delta=1e-6,
        dimension=columns,
        add_remove=add_remove,
        hostile=hostile,
        threshold=None,
        measures_users=add_remove,
        measures_cap=False,
    )


def distances(users: int, hostile: float, far: float, scale: float) -> tuple[FloatArray, FloatArray]:
    """Of honest users, and of all: as many as may be are hostile, with distances of no size."""
    some = np.random.default_rng(users).chisquare(40, size=users) ** 0.5 * scale
    bad = math.floor(hostile * users)
    return some[bad:], np.append(some[bad:], np.full(bad, far * scale))


def chance_of_a_wild_radius(
    plan: VectorPlan, quantile: Quantile, lengths: tuple[FloatArray, FloatArray]
) -> float:
    honest, everybody = lengths
    within = np.searchsorted(np.sort(everybody), RADII, side="right").astype(np.int64)
    search = search_distance(within, len(everybody), quantile, plan, "radius")
    weights = -float(search.rate) * np.array(search.costs, dtype=float)
    weights = np.exp(weights - weights.max())
    longest, shortest = WILD * honest.max(), honest.min() / WILD
    wild = (longest <= RADII) | (shortest >= RADII)
    return float(weights[wild].sum() / weights.sum())


@pytest.mark.parametrize("hostile", [0.0, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("add_remove", [True, False])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
def test_a_radius_is_wild_once_in_a_million_releases_at_most(
    epsilon: float, add_remove: bool, hostile: float
) -> None:
    """Also where there are no more users than a release needs, and as many hostile ones as it guards against."""
    plan = plan_for(epsilon, add_remove=add_remove, hostile=hostile)
    for times in (1.0, 1.5, 3.0, 6.0, 10.0, 30.0):
        users = math.ceil(times * plan.least_users)
        known = plan.with_users(users)
        for far in (1e-9, 1e3, 1e9):
            for scale in (1e-6, 1.0, 1e6, 1e14):
                lengths = distances(users, hostile, far, scale)
                chance = chance_of_a_wild_radius(known, known.radius, lengths)
                assert MOST_ROUNDS * chance <= RARE, (users, far, scale)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("hostile", [0.0, 0.05, 0.2])
def test_too_few_users_are_refused_before_a_radius_is_wild(epsilon: float, hostile: float) -> None:
    """Where their number is measured: over everything that may be measured, for tables of all sizes."""
    plan = plan_for(epsilon, add_remove=True, hostile=hostile)
    least, rate = plan.least_users, float(plan.count_epsilon)

    def chance_of_measuring(users: int, measured: int) -> float:
        """So many or more, with Laplace noise."""
        tail = math.exp(-rate * abs(measured - users)) / 2
        return tail if measured > users else 1.0 - tail

    for share in (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.2):
        users = max(round(share * least), 2)
        lengths, total = distances(users, hostile, 1e9, 1e-8), 0.0
        steps = np.unique(np.linspace(least, 3 * least, 150).astype(int)).tolist()
        for low, high in itertools.pairwise(steps):
            known = plan.with_users(float(high))
            chance = chance_of_measuring(users, low) - chance_of_measuring(users, high)
            total += chance * chance_of_a_wild_radius(known, known.radius, lengths)
        assert MOST_ROUNDS * total <= RARE, (users, least, total)


def test_a_refusal_of_few_users_is_not_too_strict() -> None:
    """Half as many users as are refused would give a wild radius more often than once in ten thousand releases."""
    for add_remove in (True, False):
        plan = plan_for(1.0, add_remove=add_remove, hostile=0.05)
        users = plan.least_users // 2
        known = replace(plan.with_users(users), hostile=0.05)
        assert chance_of_a_wild_radius(known, known.radius, distances(users, 0.05, 1e9, 1.0)) > 1e-5


@pytest.mark.parametrize("threshold", [None, 3.0])
def test_a_reach_is_limited_by_what_was_found(threshold: float | None) -> None:
    table = UserTable.from_means(np.random.default_rng(1).normal(5.0, 1.0, (400, 40)))
    request = Request.checked(table.columns, epsilon=8.0, delta=1e-6, per="user", neighbors="replace-user")
    prepared = NormClipping(threshold=threshold, hostile=0.0).prepare(
        request, PublicFacts.of(table, request.neighbors)
    )
    found = replace(
        prepared.start, mean=np.ones(40), variance=1.0, finished=True, left=Fraction(0), weight=300.0
    )
    found = replace(found, radius=6.0 if threshold is None else None)
    search = next_step(prepared.setting, found).distribution(VectorUsers(table), found)
    longest = float(RADII[len(search.costs) - 1])
    assert 3.0 < longest / (6.0 if threshold is None else threshold) <= 4.0


def test_noise_along_the_direction_is_stated() -> None:
    plan = plan_for(8.0, add_remove=False, hostile=0.05).with_users(400)
    start = VectorEstimate(
        plan=plan, cap=1, spent=Fraction(0), rho=Fraction(0), left=Fraction(0), center=np.zeros(40)
    )
    found = replace(start, mean=np.ones(40), variance=1e-9, reach=24.0)
    along = found.after_step(np.array([0, round(400 * plan.weight_share_along * UNIT)]))
    expected = plan.noise_along().scale / UNIT * 24.0 / 400 / math.sqrt(40)
    assert along.noise_stddev == pytest.approx(expected, rel=1e-3)


def test_a_contribution_bound_is_hardly_ever_far_too_large() -> None:
    """Weights lost in noise would be refused; longer tails than the search can pay for are cut."""
    plan = replace(plan_for(1.0, add_remove=True, hostile=0.05), measures_cap=True)
    users = plan.least_users
    search = RankSearch.plan(users, epsilon=float(plan.with_users(users).cap_epsilon))
    above = np.where(MAX_RECORDS_GRID < 10, users, 0)
    grid = MAX_RECORDS_GRID.astype(np.float64)
    chosen = search.distribution(above, grid, concentrated=True)
    weights = -float(chosen.rate) * np.array(chosen.costs, dtype=float)
    weights = np.exp(weights - weights.max())
    assert weights[grid >= 320].sum() / weights.sum() <= RARE
