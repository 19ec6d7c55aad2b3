"""`norm-clipping`: what one user adds, what a release costs, and how close it comes with nothing but a budget."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hubermean as hm
from helpers.partitioned import partitioned
from hubermean.accounting.gaussian import gaussian_delta
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import NoisySum, Staged
from hubermean.mechanisms.norm_clipping.mechanism import NormClipping, PreparedNormClipping
from hubermean.mechanisms.norm_clipping.plan import MOST_ROUNDS, UNIT, VectorPlan
from hubermean.mechanisms.norm_clipping.users import RADII, SumAlong, SumClipped, VectorUsers, View
from hubermean.mechanisms.registry import WIDE
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import PublicFacts, Request
from vectors.hindsight import find_best
from vectors.laws import draw

BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6}


def request_for(table: UserTable, **given: Any) -> Request:
    asked = {**BUDGET, "per": "user", "neighbors": "add-remove", **given}
    return Request.checked(table.columns, **asked)


def prepared_for(table: UserTable, known: NormClipping | None = None, **given: Any) -> PreparedNormClipping:
    request = request_for(table, **given)
    return (known or NormClipping()).prepare(request, PublicFacts.of(table, request.neighbors))


# --- what one user adds -----------------------------------------------------------------------------------------------


def hostile_table(rng: np.random.Generator, columns: int, dtype: type) -> tuple[np.ndarray[Any, Any], Any]:
    """Users of all sizes that numbers have, at the edges of thresholds, without numbers, and with many records."""
    lengths = rng.choice([0.0, 1e-40, 1e-25, 1e-9, 0.5, 1.0, 1.0 + 1e-7, 7.0, 1e9, 1e25, 3e38], size=30)
    directions = rng.standard_normal((30, columns))
    directions[::4] = np.eye(1, columns)[0]
    directions /= np.linalg.norm(directions, axis=1)[:, np.newaxis]
    users = lengths[:, np.newaxis] * directions
    users[rng.random((30, columns)) < 0.01] = np.nan
    users[0] = 1.0
    with np.errstate(over="ignore"):
        return users.astype(dtype), rng.choice([0, 1, 2, 1000, 2**40], size=30)


@pytest.mark.parametrize("per", ["user", "record"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 3, 50, 9000])
def test_a_user_moves_a_sum_by_its_sensitivity_at_most(columns: int, dtype: type, per: str) -> None:
    """Of neighbors, sums differ by what the user adds alone, to the last digit; its length is bounded."""
    rng = np.random.default_rng([columns, dtype is np.float32, per == "user"])
    array, counts = hostile_table(rng, columns, dtype)
    table = UserTable.from_means(array, counts if per == "record" else None)
    plan = prepared_for(table, per=per).plan.with_users(1000.0)
    request, cap = request_for(table, per=per), 1000 if per == "record" else 1
    center = rng.normal(size=columns).astype(np.float32)
    direction = (center / np.linalg.norm(center)).astype(np.float32)
    for threshold in (float(RADII[0]), 1e-3, 1.0, 7.0, 1e6):
        for view in (
            View(request=request, cap=cap),
            View(request=request, cap=cap, center=center, scales=np.abs(center) + np.float32(0.1)),
        ):
            share, along = plan.weight_share, plan.weight_share_along
            lengths = View(request=request, cap=cap, center=view.center, direction=direction, origin=0.25)
            for query, limit in (
                (SumClipped(view, threshold, share), plan.sensitivity(share)),
                (SumAlong(lengths, threshold, along), plan.sensitivity(along)),
            ):
                whole = np.array(query(table), dtype=object)
                for number in rng.permutation(30)[:8].tolist():
                    rest = np.delete(np.arange(30), number)
                    kept = UserTable.from_means(array[rest], table.records[rest])
                    alone = UserTable.from_means(array[[number]], table.records[[number]])
                    added = np.array(query(alone), dtype=object)
                    assert (whole - np.array(query(kept), dtype=object) == added).all()
                    assert sum(one * one for one in added.tolist()) <= limit**2


def test_partitions_give_the_same_sums() -> None:
    rng = np.random.default_rng(4)
    table = UserTable.from_means(rng.normal(0.3, 1.0, (400, 40)), None)
    prepared = prepared_for(table)
    parts = partitioned(table, 5)
    parts.whole = None  # users stay where they are

    def sample(held: Any) -> Any:
        with pytest.MonkeyPatch.context():
            return prepared.distribution(held).sample(InsecureSeededNoise(7))

    assert repr(sample(table)) == repr(sample(parts))


# --- what it costs ----------------------------------------------------------------------------------------------------


def sums_on_a_path(distribution: Any, noise: InsecureSeededNoise) -> list[NoisySum]:
    found = []
    while True:
        first = distribution.first if isinstance(distribution, Staged) else distribution
        if isinstance(first, NoisySum) and first.claim is not None and first.claim.delta > 0:
            found.append(first)
        if not isinstance(distribution, Staged):
            return found
        distribution = distribution.then(first.sample(noise))


@pytest.mark.parametrize("mean", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-user"])
def test_noisy_sums_add_up_to_the_noise_budget(mean: float, neighbors: str) -> None:
    """Whatever rounds are made, what one user can shift them by amounts to one Gaussian of the budget that is left."""
    rng = np.random.default_rng(2)
    table = UserTable.from_means(rng.normal(mean, 1.0, (600, 40)).astype(np.float32), None)
    known = NormClipping(n_users=600) if neighbors == "add-remove" else NormClipping()
    prepared = prepared_for(table, known, neighbors=neighbors)
    plan, paths = prepared.plan, set()
    for seed in range(4):
        noise = InsecureSeededNoise(seed)
        sums = sums_on_a_path(prepared.distribution(table), noise)
        paths.add(len(sums))
        changes = 1 if neighbors == "add-remove" else 2
        squares = Fraction(0)
        for one in sums:
            (scale,) = {distribution.scale for distribution in one.distributions()}
            share = plan.weight_share if len(one.position) > 2 else plan.weight_share_along
            assert all(distribution.kind == "gaussian" for distribution in one.distributions())
            squares += (changes * Fraction(UNIT) * Fraction(math.hypot(1.0, share)) / Fraction(scale)) ** 2
        assert gaussian_delta(plan.noise_epsilon, alpha=math.sqrt(squares)) <= BUDGET["delta"] * 1.02
        assert squares / 2 <= prepared.concentrated()
    assert max(paths) <= MOST_ROUNDS + 1


@pytest.mark.parametrize("users", [None, 40.0, 400.0, 1e4, 1e7])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
def test_the_costs_of_all_steps_add_up(epsilon: float, users: float | None) -> None:
    def plan(known: float | None) -> VectorPlan:
        return VectorPlan(
            epsilon=epsilon,
            delta=1e-6,
            dimension=100,
            add_remove=True,
            hostile=0.05,
            threshold=None,
            measures_users=users is None,
            measures_cap=True,
            users=known,
        )

    public = plan(users)
    for measured in (1.0, 100.0, 1e5, 1e9) if users is None else (users,):
        found = public.with_users(measured)
        steps = found.count_epsilon + found.cap_epsilon + 3 * found.radius.epsilon + found.reach.epsilon
        assert 0 < Fraction(found.noise_epsilon) <= Fraction(epsilon) - steps
        selections = found.cap_epsilon**2 + 3 * found.radius.epsilon**2 + found.reach.epsilon**2
        spent = found.count_epsilon**2 / 2 + selections / 8 + 1 / (2 * Fraction(found.noise_multiplier) ** 2)
        assert spent <= public.concentrated


def test_a_refusal_gives_back_what_did_not_run(tmp_path: Any) -> None:
    zeros, few = np.zeros((500, 40)), np.ones((10, 40))
    with pytest.raises(hm.NotReleased, match="most users have the same vector") as caught:
        hm.mean_of_user_means(zeros, **BUDGET, mechanism="norm-clipping")
    assert caught.value.delta == 0.0
    assert 0.1 < caught.value.epsilon < 1.0
    with pytest.raises(hm.NotReleased, match="too few users") as caught:
        hm.mean_of_user_means(few, **BUDGET, mechanism="norm-clipping")
    assert caught.value.epsilon == pytest.approx(0.32, rel=1e-4)
    with pytest.raises(hm.InputError, match=r"needs about [0-9]+ users here, but there are 10"):
        hm.mean_of_user_means(few, neighbors="replace-user", mechanism="norm-clipping", **BUDGET)
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("d", epsilon=10, delta=1e-5, composition="concentrated")
        with pytest.raises(hm.NotReleased):
            hm.mean_of_user_means(
                few, **BUDGET, mechanism="norm-clipping", ledger=ledger, dataset="d", question="q"
            )
        assert 0.0 < float(ledger.dataset("d").spent.loss) <= 0.32**2 / 2 * 1.001


# --- who takes it, and what comes out ---------------------------------------------------------------------------------


def test_wide_data_need_nothing_but_a_budget() -> None:
    rng = np.random.default_rng(5)
    users = rng.normal(1.0, 1.0, (400, WIDE + 1))
    budget = {**BUDGET, "epsilon": 4.0}
    wide = np.tile(users, 8)
    release = hm.mean_of_user_means(wide, **budget)
    assert isinstance(release, hm.Release)
    assert release.mechanism == "norm-clipping"
    assert hm.mean_of_user_means(users[:, :4], **budget).mechanism == "adaptive"
    dry = hm.mean_of_user_means(wide, **budget, dry_run=True)
    assert dry.mechanism == "norm-clipping"
    assert dry.steps == ("number of users", "threshold", "the mean", "length of the mean")
    with pytest.raises(
        hm.InputError, match=r"delta > 0, for example 1e-6, 33 columns are released as one vector"
    ):
        hm.mean_of_user_means(users, epsilon=0.1, neighbors="replace-user")
    with pytest.raises(hm.InputError, match=r"with scale, 1 if all .* 33 columns are released as one vector"):
        hm.mean_of_user_means(users[:270], epsilon=8, delta=1e-6, neighbors="replace-user")


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-user"])
def test_columns_of_different_scale_are_released_one_by_one_where_users_suffice(neighbors: str) -> None:
    """One noise for all columns would drown the smallest; units that are stated are noise enough for each."""
    rng = np.random.default_rng(13)
    units = np.exp(2.0 * rng.normal(size=WIDE + 1))
    users = (1.0 + rng.normal(size=(20_000, WIDE + 1))) * units
    given = {"epsilon": 1.0, "delta": 1e-6, "neighbors": neighbors}
    release = hm.mean_of_user_means(users, **given)
    assert release.mechanism == "adaptive"
    assert (np.abs(np.array(release.values) - users.mean(axis=0)) / units).max() < 0.1
    stated = hm.mean_of_user_means(users, scale=units.tolist(), **given)
    assert stated.mechanism == "norm-clipping"
    assert (np.abs(np.array(stated.values) - users.mean(axis=0)) / units).max() < 0.1
    few = {"n_users": 500} if neighbors == "add-remove" else {}
    assert hm.mean_of_user_means(users[:500], **{**given, "epsilon": 4.0}, **few).mechanism == "norm-clipping"


def test_plans_choose_as_releases_do() -> None:
    for users, epsilon, columns in (
        (20_000, 1.0, 33),
        (20_000, 1.0, 1000),
        (500, 8.0, 10_000),
        (5000, 1.0, 8),
    ):
        best = hm.plan(
            n_users=users, epsilon=epsilon, delta=1e-6, columns=columns, neighbors="replace-user"
        ).best
        assert best is not None
        dry = hm.mean_of_user_means(
            np.zeros((users, columns), dtype=np.float32),
            epsilon=epsilon,
            delta=1e-6,
            neighbors="replace-user",
            dry_run=True,
        )
        assert best.mechanism == dry.mechanism


def test_a_wide_table_of_records_is_released_per_record() -> None:
    """Users with many records count for more, up to a bound; units of columns are public."""
    rng = np.random.default_rng(6)
    columns = [f"c{number}" for number in range(40)]
    user = rng.integers(0, 1500, 6000)
    units = np.where(np.arange(40) % 2 == 0, 1.0, 1000.0)
    frame = pd.DataFrame(rng.normal(2.0, 1.0, (6000, 40)) * units, columns=columns).assign(u=user)
    release = hm.mean(frame, user="u", value=columns, epsilon=4, delta=1e-6, scale=units.tolist())
    assert release.mechanism == "norm-clipping"
    assert release.per == "record"
    assert np.abs(np.array(release.values) / units - 2.0).max() < 0.2
    widths = np.array([high - low for low, high in release.interval()])
    assert widths / units == pytest.approx(np.full(40, widths[0]), rel=1e-5)


@pytest.mark.parametrize(
    ("users", "columns", "epsilon", "law", "attack"),
    [
        (500, 10_000, 8.0, "normal", "5% times -100"),
        (500, 10_000, 8.0, "log-normal(1) spread", "5% times 100"),
        (10_000, 300, 1.0, "Student(3) spread", "5% times -100"),
        (10_000, 300, 1.0, "log-normal(0.5) spread", "nobody hostile"),
    ],
)
def test_defaults_come_close_to_the_best_threshold_in_hindsight(
    users: int, columns: int, epsilon: float, law: str, attack: str
) -> None:
    """The error of hundreds of columns together hardly varies, so one release tells."""
    rng = np.random.default_rng([users, columns])
    drawn = draw(rng, law, attack, users=users, columns=columns, mean=0.3)
    release = hm.mean_of_user_means(drawn.users, epsilon=epsilon, delta=1e-6)
    error = float(np.linalg.norm(np.array(release.values) - drawn.target))
    assert error <= 1.3 * find_best(drawn, epsilon=epsilon, delta=1e-6).error


def test_the_center_moves_where_the_mean_is_far() -> None:
    rng = np.random.default_rng(8)
    users = rng.normal(50.0, 1.0, (2000, 100)).astype(np.float32)
    release = hm.mean_of_user_means(users, epsilon=4, delta=1e-6, mechanism="norm-clipping")
    assert release.parameters["distance_of_center"] == pytest.approx(500.0, rel=0.1)
    assert float(np.linalg.norm(np.array(release.values) - users.mean(axis=0))) < 1.0
    near = hm.mean_of_user_means(users - 50.0, epsilon=4, delta=1e-6, mechanism="norm-clipping")
    assert near.parameters["distance_of_center"] == 0.0


@pytest.mark.parametrize("per", ["user", "record"])
def test_units_of_columns_make_no_difference_to_what_is_found(per: str) -> None:
    """Also where the center moves, which is in the units of the columns as well."""
    rng = np.random.default_rng(14)
    users, units = rng.normal(3.0, 1.0, (2000, 50)), np.exp2(rng.integers(-8, 8, 50))
    counts = np.full(2000, 3) if per == "record" else None
    given = {"epsilon": 4, "delta": 1e-6, "mechanism": "norm-clipping"}
    release = hm.mean_of_user_means(users * units, counts, scale=units.tolist(), **given)
    assert release.parameters["distance_of_center"] == pytest.approx(3.0 * math.sqrt(50), rel=0.1)
    assert np.abs(np.array(release.values) / units - users.mean(axis=0)).max() < 0.1


def test_values_of_no_size_do_no_harm() -> None:
    """Hostile users with numbers whose squares overflow, and lists that are no numbers, are as if absent."""
    rng = np.random.default_rng(9)
    users = rng.normal(1.0, 1.0, (1000, 50)).astype(np.float32)
    users[:40], users[40:60], users[60] = 3e38, np.nan, -np.inf
    release = hm.mean_of_user_means(users, epsilon=4, delta=1e-6)
    assert np.abs(np.array(release.values) - 1.0).max() < 0.4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delta": 0.0}, "needs delta > 0"),
        ({"threshold": 1e-30}, "from 2\\^-30 to 2\\^60"),
        ({"scale": [1.0, 2.0]}, "2 scales for 40 columns"),
        ({"hostile": 0.3}, "from 0 to 0.2"),
        ({"radius": 5.0}, "radius=5.0 is not used|radius.* is not used"),
        ({"epsilon": 1e-4, "neighbors": "replace-user"}, "raise epsilon"),
    ],
)
def test_bad_input_is_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(hm.InputError, match=words):
        hm.mean_of_user_means(np.ones((100, 40)), mechanism="norm-clipping", **{**BUDGET, **given})


def test_queries_keep_only_lengths_of_the_last_center() -> None:
    table = UserTable.from_means(np.ones((50, 40)), None)
    users, request = VectorUsers(table), request_for(table)
    for shift in range(3):
        center = np.full(40, np.float32(shift))
        users.count_within(View(request=request, cap=1, center=center))
        users.sum_clipped(View(request=request, cap=1, center=center), 1.0, 0.1)
    assert len(users._lengths) == len(users._sums) == 1


def test_answers_that_are_kept_are_those_of_the_same_query() -> None:
    """An audit follows several paths with one table: every public or released number is part of the key."""
    rng = np.random.default_rng(10)
    table = UserTable.from_means(rng.normal(size=(50, 3)), rng.integers(1, 9, 50))
    request, other = request_for(table, per="record"), request_for(table)
    vectors = [rng.normal(size=3).astype(np.float32) for _ in range(4)]
    views = [
        View(request=asked, cap=cap, center=center, scales=scales, direction=direction, origin=origin)
        for asked, cap in ((request, 3), (request, 5), (other, 1))
        for center in (None, *vectors[:2])
        for scales in (None, np.abs(vectors[2]))
        for direction, origin in ((None, 0.0), (vectors[3], 0.0), (vectors[3], 0.5))
    ]
    kept = VectorUsers(table)
    for view in views:
        assert (kept.count_within(view)[0] == VectorUsers(table).count_within(view)[0]).all()
        if view.direction is None:
            for threshold, share in ((1.0, 0.1), (2.0, 0.1), (2.0, 0.3)):
                assert kept.sum_clipped(view, threshold, share) == SumClipped(view, threshold, share)(table)
        else:
            assert kept.sum_along(view, 1.0, 0.5) == SumAlong(view, 1.0, 0.5)(table)


def most_likely(prepared: PreparedNormClipping, table: UserTable) -> Any:
    """The outcome without noise, and with what each search prefers."""

    def follow(distribution: Any) -> Any:
        first = distribution.first if isinstance(distribution, Staged) else distribution
        sample = list(first.position) if isinstance(first, NoisySum) else int(np.argmin(first.costs))
        return (sample, follow(distribution.then(sample))) if isinstance(distribution, Staged) else sample

    return prepared.outcome(follow(prepared.distribution(table)))


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-user"])
@pytest.mark.parametrize(
    ("law", "threshold"),
    [("far in one direction", 5.0), ("of all lengths", 5.0), ("around zero", None), ("around one", None)],
)
def test_a_user_moves_the_value_by_no_more_than_is_stated(
    law: str, threshold: float | None, neighbors: str
) -> None:
    """Also where all users lie beyond the threshold: then one of them changes the weight as much as the sum."""
    rng = np.random.default_rng(11)
    users = rng.normal(1.0 if law == "around one" else 0.0, 1.0, (600, 100))
    if threshold is not None:
        lengths = 10.0 * (rng.exponential(1.0, 600) if law == "of all lengths" else np.ones(600))
        users = 0.02 * users + np.eye(1, 100)[0] * lengths[:, np.newaxis]
    table = UserTable.from_means(users)
    known = NormClipping(threshold=threshold, n_users=600 if neighbors == "add-remove" else None)
    prepared = prepared_for(table, known, neighbors=neighbors)
    before = most_likely(prepared, table)
    value, bound = np.array(before.values), before.parameters["threshold"]
    direction, largest = value / np.linalg.norm(value), 0.0
    for length in (-1e4, -3 * bound, -bound, -0.5 * bound, 0.0, 0.5 * bound, bound, 1e4):
        one = length * direction
        other = np.vstack([users, one]) if neighbors == "add-remove" else np.vstack([users[1:], one])
        after = most_likely(prepared, UserTable.from_means(other))
        if after.parameters["threshold"] == bound:
            largest = max(largest, float(np.linalg.norm(np.array(after.values) - value)))
    stated = before.parameters["largest_shift_by_a_user"]
    assert 0.0 < largest <= stated
    if law.startswith("around"):
        assert stated <= 10 * largest
