"""Means by group from users' rows: what they estimate, what they refuse, and that they cost what they say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hubermean as hm
from helpers.rows import Row, make_table
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.group_weights import GroupWeights
from hubermean.mechanisms.groups.resolution import prepare_groups, resolve_group_mechanism
from hubermean.mechanisms.groups.row_estimates import ColumnEstimates, Pass, shrink_scales
from hubermean.mechanisms.groups.row_means import select_rows
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

pytestmark = pytest.mark.usefixtures("seeded_releases")
KEYS = list(range(6))


def visits(n_users: int = 4000, *, differ: float = 1.0, seed: int = 0) -> pd.DataFrame:
    """Users in one to six groups, with one to three records in each; group g has its values near 10 differ^g."""
    rng = np.random.default_rng(seed)
    spread = rng.integers(1, len(KEYS) + 1, n_users)
    users = np.repeat(np.arange(n_users), spread)
    groups = np.concatenate([rng.choice(KEYS, number, replace=False) for number in spread])
    records = rng.integers(1, 4, len(users))
    frame = pd.DataFrame({"user": users, "group": groups}).loc[np.repeat(np.arange(len(users)), records)]
    level = 10.0 * differ ** frame["group"]
    frame["value"] = level * (
        1.0 + 0.2 * rng.standard_normal(n_users)[frame["user"]]
    ) + level * 0.2 * rng.standard_normal(len(frame))
    return frame.reset_index(drop=True)


def release(frame: Any, **given: Any) -> hm.ReleaseTable:
    asked = {"user": "user", "value": "value", "by": "group", "keys": KEYS, "epsilon": 2.0, "delta": 1e-6}
    return hm.mean(frame, **{**asked, **given})


def plain_means(frame: pd.DataFrame, *, per: str = "record") -> np.ndarray:
    if per == "user":
        frame = frame.groupby(["group", "user"], as_index=False)["value"].mean()
    return frame.groupby("group")["value"].mean().reindex(KEYS).to_numpy()


@pytest.mark.fair_sample(0.5)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("neighbors", [one.value for one in Neighbors])
def test_all_groups_of_a_user_count(delta: float, per: str, neighbors: str) -> None:
    frame = visits()
    released = release(frame, delta=delta, per=per, neighbors=neighbors, epsilon=4.0)
    plain = plain_means(frame, per=per)
    assert np.abs(released.values[:, 0] / plain - 1.0).max() < 0.1
    low, high = released.interval_at(0.95) or (np.zeros(1), np.zeros(1))
    assert ((low[:, 0] <= plain) & (plain <= high[:, 0])).all()
    users = frame.groupby("group")["user"].nunique() if per == "user" else frame.groupby("group").size()
    assert [one.value for one in released.denominators] == pytest.approx(users.tolist(), rel=0.15)
    assert released.max_groups is None
    assert not released.warnings


def test_groups_that_differ_tenfold_have_their_own_centers() -> None:
    """With common bounds the groups with large values came out low; here each is near its plain mean."""
    frame = visits(8000, differ=2.0)
    errors = [np.abs(release(frame, epsilon=4.0).values[:, 0] / plain_means(frame) - 1.0) for _ in range(3)]
    assert np.median(errors) < 0.1


def test_the_cost_is_the_budget() -> None:
    """Over all steps, in either accounting, with and without selection of groups."""
    frame = visits()
    pure = release(frame, delta=0.0)
    assert sum(Fraction(one.amount) for one in pure.budget_breakdown) <= 2
    assert sum(one.amount for one in pure.budget_breakdown) == pytest.approx(2.0, rel=1e-9)
    from hubermean.accounting.concentrated import largest_rho

    for keys, delta in ((KEYS, 1e-6), (None, 0.5e-6)):
        found = release(frame, keys=keys).budget_breakdown
        rho = [one.amount for one in found if one.unit == "rho"]
        assert sum(rho) == pytest.approx(largest_rho(2.0, delta), rel=1e-9)
        assert sum(map(Fraction, rho)) <= Fraction(largest_rho(2.0, delta))
        assert sum(one.amount for one in found if one.unit == "delta") == pytest.approx(1e-6 - delta)


def test_a_sample_is_read_with_public_numbers_alone() -> None:
    """What a release makes of a sample does not need the data, and is the same from an equal sample."""
    frame = visits()
    table = make_table(
        [
            [(int(group), float(own["value"].mean()), len(own)) for group, own in part.groupby("group")]
            for _, part in frame.groupby("user")
        ],
        len(KEYS),
    )
    request = Request.checked(("value",), epsilon=2, delta=1e-6, per="record", neighbors="add-remove")
    split = GroupBudgetSplit.of(request, max_groups=None, groups=len(KEYS))
    facts = PublicFacts.of(table.members, Neighbors.ADD_REMOVE)
    prepared = prepare_groups(Adaptive(), split, facts, None)
    sample = prepared.distribution(table).sample(InsecureSeededNoise(1))
    empty = make_table([], len(KEYS))
    first, second = prepared.outcome(sample, table), prepared.outcome(sample, empty)
    assert (first.values == second.values).all()
    assert first.budget_breakdown == second.budget_breakdown


def test_only_selected_groups_are_in_a_row() -> None:
    users: list[Row] = [[(0, 1.0, 1), (2, 5.0, 2)], [(1, 2.0, 1)], []]
    table = make_table(users, 3)
    rows = select_rows(table, (("g2",), ("g0",)))
    assert (rows.n_groups, rows.n_owners) == (2, 3)
    assert sorted(zip(rows.groups.tolist(), rows.owners.tolist(), strict=True)) == [(0, 0), (1, 0)]
    assert select_rows(table, table.keys).groups is table.membership.groups


def test_a_group_too_small_to_see_has_a_value_near_the_others() -> None:
    """With a warning, and an interval as wide as groups differ; its measured size may be none."""
    frame = visits(differ=1.3)
    released = release(frame, keys=[*KEYS, "nobody"], per="user")
    plain = plain_means(frame, per="user")
    (warning,) = released.warnings
    assert warning.startswith("Of 7 groups, 1 is too small to see")
    low, high = released.interval_at(0.95) or (np.zeros(1), np.zeros(1))
    assert plain.min() < released.values[-1, 0] < plain.max()
    assert (high - low)[-1, 0] > 2.0 * (high - low)[:-1, 0].max()
    assert released.denominators[-1].low == 0.0


def test_groups_without_others_to_go_by_have_no_value() -> None:
    """Two groups that are seen do not show what a third may be like."""
    released = release(visits(), keys=[0, 1, "nobody"], per="user")
    assert isinstance(released[-1], hm.Release) is False
    assert "too few users" in released.refusals[2]
    assert np.isnan(released.values[-1]).all()
    assert not np.isnan(released.values[:-1]).any()


def test_too_few_users_cost_what_was_spent() -> None:
    with pytest.raises(hm.NotReleased, match="too few users") as refused:
        release(visits(30), delta=0.0, epsilon=1.0)
    assert 0.0 < refused.value.epsilon < 0.2


def test_public_bounds_save_the_search_and_confine_values() -> None:
    frame = visits()
    found = release(frame, bounds=(0.0, 12.0))
    assert found.mechanism == "adaptive"
    assert "scale and center" not in {one.what for one in found.budget_breakdown}
    low, high = found.interval_at(0.95) or (np.zeros(1), np.zeros(1))
    assert (low >= 0.0).all()
    assert (high <= 12.0).all()
    one_sided = release(frame, bounds=(0.0, None), epsilon=0.5)
    assert ((one_sided.interval_at(0.95) or (np.zeros(1),))[0] >= 0.0).all()


@pytest.mark.parametrize("bounds", [(-1e308, 1e308), (0.0, 1e100), (0.0, 1e-300), (1.0, 1.0 + 2.0**-52)])
def test_bounds_that_no_number_is_read_with_are_refused(bounds: tuple[float, float]) -> None:
    """They ended in a division by zero after the charge, or in means that are NaN without a reason."""
    with pytest.raises(hm.InputError, match=r"narrower bounds|widen them") as refused:
        release(visits(200), bounds=bounds)
    assert not isinstance(refused.value, hm.NotReleased)


def test_several_columns_share_the_weights() -> None:
    frame = visits().assign(other=lambda one: -3.0 * one["value"])
    found = release(frame, value=["value", "other"], epsilon=6.0)
    plain = plain_means(frame)
    assert found.values[:, 0] == pytest.approx(plain, rel=0.15)
    assert found.values[:, 1] == pytest.approx(-3.0 * plain, rel=0.15)


def test_no_group_appears_without_enough_users() -> None:
    frame = visits(400).assign(group=lambda one: one["user"])
    found = release(frame, keys=None)
    assert len(found) == 0
    assert found.values.shape == (0, 1)


def test_other_mechanisms_need_a_bound_on_groups() -> None:
    frame = visits(50)
    for name, more in (
        ("clipped", {"bounds": (0, 20), "per": "user"}),
        ("inverse-sensitivity", {"threshold": 5, "radius": 50, "per": "user"}),
    ):
        with pytest.raises(hm.InputError, match="max_groups"):
            release(frame, mechanism=name, delta=0.0, **more)
        assert release(frame, mechanism=name, delta=0.0, max_groups=6, **more).mechanism == name


def test_auto_is_adaptive_unless_bounds_and_groups_are_bounded() -> None:
    request = Request.checked(("value",), epsilon=1, delta=0, per="user", neighbors="add-remove")
    mechanism = resolve_mechanism("auto", PublicParameters(bounds=(0, 10)))
    for max_groups, expected in ((None, Adaptive), (2, Clipped)):
        split = GroupBudgetSplit.of(request, max_groups=max_groups, groups=5)
        assert isinstance(resolve_group_mechanism(mechanism, split), expected)


@pytest.mark.parametrize(("max_groups", "groups", "kind"), [(1, 40, "pure"), (None, 40, "concentrated")])
def test_users_in_one_group_have_laplace_noise(max_groups: int | None, groups: int, kind: str) -> None:
    request = Request.checked(("value",), epsilon=1, delta=1e-6, per="user", neighbors="add-remove")
    split = GroupBudgetSplit.of(request, max_groups=max_groups, groups=groups)
    assert split.row_budget[0].accounting == kind


def test_counts_by_group_need_no_bound_either() -> None:
    frame = visits()
    users = hm.count(frame, user="user", by="group", keys=KEYS, epsilon=2)
    assert users.values[:, 0] == pytest.approx(frame.groupby("group")["user"].nunique().to_numpy(), rel=0.05)
    records = hm.count(frame, user="user", by="group", keys=KEYS, epsilon=2, of="records")
    assert records.values[:, 0] == pytest.approx(frame.groupby("group").size().to_numpy(), rel=0.1)
    private = hm.count(frame, user="user", by="group", epsilon=2, delta=1e-6)
    assert len(private) == len(KEYS)


def test_scales_of_groups_are_shrunk_to_the_common_one() -> None:
    weights = GroupWeights.of_groups(np.full(40, 1000.0), stddev=10.0, missed=0.0)
    rng = np.random.default_rng(0)
    same = 1000.0 * 3.0 + 200.0 * rng.standard_normal(40)
    assert shrink_scales(same, np.full(40, 200.0), weights) is None, "what they differ by may be noise"
    apart = 1000.0 * np.geomspace(1.0, 9.0, 40) + 20.0 * rng.standard_normal(40)
    found = shrink_scales(apart, np.full(40, 20.0), weights)
    assert found is not None
    assert (np.diff(found)[::5] > 0).all()
    assert found[-1] / found[0] > 4.0
    assert shrink_scales(np.full(40, -1.0), np.full(40, 200.0), weights) is None


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_intervals_hold_the_plain_means(delta: float) -> None:
    """At least 93% over 60 releases of six groups, for users whose values differ by groups."""
    held = []
    for seed in range(60):
        frame = visits(3000, differ=1.3, seed=seed)
        low, high = release(frame, delta=delta).interval_at(0.95) or (np.zeros(1), np.zeros(1))
        plain = plain_means(frame)
        held += ((low[:, 0] <= plain) & (plain <= high[:, 0])).tolist()
    assert np.mean(held) >= 0.93


def far_group(n_users: int, share: float, *, level: float = 500.0, seed: int = 0) -> pd.DataFrame:
    """A share of the users is in group 5, at this level; all others are in one of five groups near 10."""
    rng = np.random.default_rng(seed)
    group = np.where(np.arange(n_users) < share * n_users, 5, rng.integers(0, 5, n_users))
    value = np.where(group == 5, level, 10.0) + rng.normal(0.0, 2.0, n_users)
    return pd.DataFrame({"user": np.arange(n_users), "group": group, "value": value})


@pytest.mark.parametrize("level", [50.0, 500.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_group_beyond_the_bounds_of_all_passes_has_no_value(delta: float, level: float) -> None:
    """3% of the users, tens or hundreds of standard deviations away: the mean of 500 came out as 22, with an interval
    of 19 to 25. It is in no total either, and no other group is refused."""
    frame = far_group(3000, 0.03, level=level)
    released = release(frame, delta=delta, rollup=True)
    low, high = released.interval_at(0.95) or (np.zeros(1), np.zeros(1))
    plain = plain_means(frame)
    for group in KEYS:
        if group in released.refusals:
            assert group == 5
            assert "too far" in released.refusals[group]
            assert np.isnan(released.values[[5, 6]]).all()
            assert np.isnan(low[[5, 6]]).all()
        else:
            assert low[group, 0] <= plain[group] <= high[group, 0]


def test_a_group_that_the_passes_reach_has_its_value() -> None:
    """However far away: a tenth of the users is enough for bounds as wide as that."""
    frame = far_group(3000, 0.1)
    released = release(frame, rollup=True)
    assert not released.refusals
    low, high = released.interval_at(0.95) or (np.zeros(1), np.zeros(1))
    assert (low[:-1, 0] <= plain_means(frame)).all()
    assert (plain_means(frame) <= high[:-1, 0]).all()
    assert low[-1, 0] <= frame["value"].mean() <= high[-1, 0]


def one_pass(mean: float, stddev: float) -> Pass:
    """A pass around 5 that finds this mean, with this noise in it, in three groups of weight 1,000."""
    return Pass(
        centers=np.full(3, 5.0),
        scales=np.ones(3),
        bound=100.0,
        sums=1000.0 * np.full(3, mean - 5.0),
        stddev=1000.0 * stddev,
        beyond=10.0,
        missed=0.0,
    )


@pytest.mark.parametrize(("wide", "apart"), [(14.0, True), (6.0, False)])
def test_passes_that_disagree_beyond_noise_widen_the_interval(wide: float, apart: bool) -> None:
    """A narrow bound cut most of the values that a wide one shows, and its sums have the least noise: 5.1, with an
    interval of 3.0, for a mean of 14."""
    weights = GroupWeights.of_groups(np.full(3, 1000.0), stddev=10.0, missed=0.0)
    passes = [one_pass(5.1, 0.01), one_pass(wide, 0.5)]
    made = ColumnEstimates.of(passes, np.full(3, 1e4), 10.0, weights, usual=1.0, unit=1.0)
    assert made.means == pytest.approx(5.1, abs=0.05)
    reach = made.means + made.clipping
    assert (reach >= wide).all() if apart else (made.clipping == 0.0).all()


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noise_alone_is_no_sighting_however_many_groups_there_are(kind: Any) -> None:
    """Of 5,000 empty groups a hundred exceed two standard deviations of noise; a group of 30 deviations is seen."""
    rng = np.random.default_rng(1)
    draw = rng.laplace if kind == "laplace" else rng.normal
    noise = draw(0.0, 10.0 / (np.sqrt(2.0) if kind == "laplace" else 1.0), 5000)
    empty = GroupWeights.of_groups(noise, stddev=10.0, missed=0.0, kind=kind)
    assert empty.seen().sum() > 50
    assert empty.surely_seen().sum() == 0
    assert not empty.shown().any()
    one = GroupWeights.of_groups(np.append(noise, 300.0), stddev=10.0, missed=0.0, kind=kind)
    assert np.flatnonzero(one.surely_seen()).tolist() == np.flatnonzero(one.shown()).tolist() == [5000]
    assert GroupWeights.of_groups(noise, stddev=10.0, missed=0.0, kind=kind, inhabited=True).shown().all()


@pytest.mark.parametrize("stddev", [0.1, 1.0 / 3.0, 7.0, 37.08064889223745])
def test_the_smallest_of_large_groups_is_seen_too(stddev: float) -> None:
    """It was left out where a product was rounded up."""
    values = 4696.0 + np.random.default_rng(0).uniform(0.0, 100.0, (200, 6))
    for own in values:
        weights = GroupWeights.of_groups(own, stddev=stddev, missed=0.0, kind="laplace")
        assert weights.surely_seen().all()


def crowded(seed: int, n_users: int = 700, groups: int = 150, per_user: int = 30) -> pd.DataFrame:
    """Few users, each in many groups, which differ little: what delta = 0 can hardly see."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, groups + 1)
    level = 3.5 + 0.4 * rng.standard_normal(groups)
    rows = [rng.choice(groups, per_user, replace=False, p=chance / chance.sum()) for _ in range(n_users)]
    frame = pd.DataFrame({"user": np.repeat(np.arange(n_users), per_user), "group": np.concatenate(rows)})
    own = 0.4 * rng.standard_normal(n_users)
    frame["value"] = level[frame["group"]] + own[frame["user"]] + 0.8 * rng.standard_normal(len(frame))
    return frame


@pytest.mark.parametrize("per", ["user", "record"])
def test_few_users_in_many_groups_have_usable_means_and_honest_intervals(per: str) -> None:
    """Without delta: values came out 11 times as far off as with one group per user, intervals held 63%."""
    errors, held = [], []
    for seed in range(3):
        frame = crowded(seed)
        large = frame["group"].value_counts().loc[lambda counts: counts >= 200].index.sort_values()
        plain = frame.groupby("group")["value"].mean().loc[large].to_numpy()
        found = release(frame, keys=range(150), per=per, delta=0.0, epsilon=1.0)
        assert not found.refusals
        assert any("too small to see" in one for one in found.warnings)
        low, high = (ends[large, 0] for ends in found.interval_at(0.95) or ())
        errors += (found.values[large, 0] / plain - 1.0).tolist()
        held += ((low <= plain) & (plain <= high)).tolist()
    assert np.sqrt(np.mean(np.square(errors))) < 0.25
    assert np.mean(held) >= 0.93


def test_groups_that_may_be_empty_are_marked() -> None:
    """In frames, JSON, on the screen and in a report, from the measured size alone."""
    frame = visits(differ=1.1)
    released = release(frame, keys=[*KEYS, "nobody"], per="user")
    assert released.may_be_empty is not None
    assert released.may_be_empty.tolist() == [False] * 6 + [True]
    assert released.to_pandas()["may_be_empty"].tolist() == [False] * 6 + [True]
    assert [row["may_be_empty"] for row in released.to_dict()["rows"]] == [False] * 6 + [True]
    assert repr(released).count("(maybe none)") == released._repr_html_().count("(maybe none)") == 1
    counts = hm.count(frame, user="user", by="group", keys=[*KEYS, "nobody"], epsilon=1)
    assert counts.to_arrow()["may_be_empty"].to_pylist()[:6] == [False] * 6


def test_keys_that_are_equal_but_of_other_types_have_their_own_rows() -> None:
    frame = visits(differ=1.1).assign(group=lambda one: one["group"] % 2)
    released = release(frame, keys=[True, 1, 0], per="user")
    assert [one.group["group"] for one in (released.group(1), released.group(True))] == [1, True]
    assert released.group(1).group["group"] is not True
    assert released.group(1.0).group["group"] in (1, True)
