"""What the benchmark of groups computes by itself, against known answers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from groups.aims import verdicts
from groups.before import BEFORE, BEFORE_BEST, KEPT, kept_results
from groups.hindsight import HINDSIGHT, errors_with_bound, measure_hindsight
from groups.measures import Measured, Released, delta_text, summarize
from groups.other_libraries import (
    OPENDP,
    PIPELINEDP,
    RIGHT,
    WIDE,
    Bounds,
    Ranked,
    center_of,
    concentrated,
    measure_libraries,
    opendp_noise,
    pipelinedp_noise,
    release_often,
)
from groups.page_text import percent, write_page
from groups.releases import release_often as release_ours
from groups.results import OURS, Results, TableFacts
from groups.tables import JUDGE, TUNE, GroupTable, from_records

CASE = {"per": "user", "epsilon": 1.0, "delta": 0.0}


def table(users: list[int], groups: list[int], values: list[float]) -> GroupTable:
    labels = tuple(map(str, range(max(groups) + 1)))
    return from_records(JUDGE[0], labels, np.array(users), np.array(groups), np.array(values))


SMALL = table([0, 0, 0, 1, 1, 2], [0, 0, 1, 0, 1, 1], [1.0, 3.0, 8.0, 4.0, 2.0, 5.0])


def large_table(seed: int = 1, *, users: int = 900, groups: int = 3, mean: float = 10.0) -> GroupTable:
    """Every user in every group, one record in each."""
    values = np.random.default_rng(seed).normal(mean, 1.0, users * groups)
    return from_records(
        JUDGE[0],
        tuple(map(str, range(groups))),
        np.repeat(np.arange(users), groups),
        np.tile(np.arange(groups), users),
        values,
    )


def test_cells_add_up_the_records_of_a_user_in_a_group() -> None:
    assert SMALL.users.tolist() == [0, 0, 1, 1, 2]
    assert SMALL.groups.tolist() == [0, 1, 0, 1, 1]
    assert SMALL.counts.tolist() == [2, 1, 1, 1, 1]
    assert SMALL.sums.tolist() == [4, 8, 4, 2, 5]
    assert SMALL.groups_per_user.tolist() == [2, 2, 1]
    assert SMALL.users_per_group.tolist() == [2, 3]


def test_plain_means_weigh_users_or_records() -> None:
    assert SMALL.plain_means("user") == pytest.approx([3.0, 5.0])
    assert SMALL.plain_means("record") == pytest.approx([8.0 / 3.0, 5.0])


def test_the_sampling_error_of_a_group_is_that_of_a_mean() -> None:
    spread = math.sqrt((8 - 5) ** 2 + (2 - 5) ** 2) / 3
    assert SMALL.sampling_errors("user")[1] == pytest.approx(spread)


def test_tables_to_tune_on_and_to_judge_by_are_disjoint() -> None:
    names = [source.name for source in (*TUNE, *JUDGE)]
    assert len(set(names)) == len(names)
    assert len(JUDGE) >= 10
    assert len({(source.package, source.record, source.group) for source in (*TUNE, *JUDGE)}) == len(names)


def test_errors_are_relative_and_of_large_groups_alone() -> None:
    made = table([*range(300), *range(10)], [0] * 300 + [1] * 10, [2.0] * 300 + [4.0] * 10)
    values = np.array([[2.2, 4.0], [1.8, 8.0]])
    found = summarize(
        made,
        Released(values=values, low=values - 0.1, high=values + 0.3),
        contestant="made",
        setting="",
        **CASE,
    )
    assert found.rmse == pytest.approx(0.1)
    assert found.typical == pytest.approx(0.1)
    assert found.rmse_all == pytest.approx((0.1 + math.sqrt(0.5)) / 2)
    assert found.coverage == pytest.approx(0.5)  # 2.1 to 2.5 misses, 1.7 to 2.1 holds
    assert found.by_size[0] == pytest.approx(math.sqrt(0.5))
    assert math.isnan(found.by_size[1])
    assert found.by_size[3] == pytest.approx(0.1)


def test_refused_groups_count_as_wholly_wrong() -> None:
    made = table(list(range(300)), [0] * 300, [2.0] * 300)
    values = np.array([[math.nan], [3.0]])
    found = summarize(made, Released.without_intervals(values), contestant="made", setting="", **CASE)
    assert found.refused == found.refused_large == 0.5
    assert found.rmse == pytest.approx(math.sqrt((1.0 + 0.5**2) / 2))
    assert found.rmse_released == pytest.approx(0.5)
    assert found.refused_by_size[3] == 0.5
    assert math.isnan(found.coverage)


def test_groups_with_a_mean_of_zero_have_no_relative_error() -> None:
    made = table([*range(300)] * 2, [0] * 300 + [1] * 300, [0.0] * 300 + [1.0] * 300)
    released = Released.without_intervals(np.array([[5.0, 1.5]]))
    assert summarize(made, released, contestant="", setting="", **CASE).rmse == pytest.approx(0.5)


def test_width_is_relative_to_the_interval_of_the_plain_mean() -> None:
    made = large_table()
    half = 3.0 * 1.959964 * made.sampling_errors("user")
    values = made.plain_means("user")[None]
    released = Released(values=values, low=values - half, high=values + half)
    found = summarize(made, released, contestant="", setting="", **CASE)
    assert found.width == pytest.approx(3.0)
    assert found.coverage == 1.0


@pytest.mark.parametrize("norm", [1, 2])
def test_hindsight_cuts_a_row_by_its_norm(norm: int) -> None:
    """User 0 pulls 4 in both groups: half of the row is cut at half its norm."""
    made = table([0, 0, 1, 1], [0, 1, 0, 1], [9.0, 9.0, 1.0, 1.0])
    whole = 8.0 if norm == 1 else math.sqrt(32.0)
    errors = errors_with_bound(made, "user", whole / 2, norm, epsilon=1e12, delta=1e-6)
    # Both users are cut by 2, in opposite directions, and cuts do not cancel.
    assert errors == pytest.approx([2.0, 2.0], rel=1e-3)


def test_hindsight_adds_noise_for_the_whole_norm() -> None:
    made = table([0, 0, 1, 1], [0, 1, 0, 1], [9.0, 9.0, 1.0, 1.0])
    errors = errors_with_bound(made, "user", 100.0, 1, epsilon=2.0, delta=0.0)
    assert errors == pytest.approx(math.sqrt(2.0) * 100.0 / 2.0 / 2.0)


def test_hindsight_takes_the_better_norm() -> None:
    """One group each: Laplace noise is smaller. Many groups each: Gaussian noise is."""
    one = large_table(groups=1)
    with_delta = measure_hindsight(one, per="user", epsilon=1.0, delta=1e-6)
    assert with_delta.rmse == measure_hindsight(one, per="user", epsilon=1.0, delta=0.0).rmse
    many = large_table(groups=60)
    with_delta = measure_hindsight(many, per="user", epsilon=1.0, delta=1e-6)
    assert with_delta.rmse < 0.9 * measure_hindsight(many, per="user", epsilon=1.0, delta=0.0).rmse


def test_contribution_bounds_keep_so_many_groups_and_records() -> None:
    made = table([0] * 12 + [1], [0] * 6 + [1] * 4 + [2] * 2 + [2], [1.0] * 13)
    for seed in range(20):
        ranked = Ranked.of(made, "record", np.random.default_rng(seed))
        bounds = Bounds(low=0.0, high=2.0, max_groups=2, max_records=3, gaussian=False)
        counts, _ = ranked.sums(bounds, 3, around=0.0)
        assert np.count_nonzero(counts - [0, 0, 1]) == 2
        assert (counts <= [3, 3, 3]).all()
        assert counts.sum() - 1 in (6, 5)


def test_sums_for_all_contribution_bounds_at_once_are_those_of_each() -> None:
    generator = np.random.default_rng(5)
    made = table(
        generator.integers(0, 30, 900).tolist(),
        generator.integers(0, 6, 900).tolist(),
        generator.normal(size=900).tolist(),
    )
    ranked = Ranked.of(made, "record", generator)
    counts, sums = ranked.sums_by_limits([1, 3], [1, 2, 4], 6)
    for place, max_groups in enumerate([1, 3]):
        for other, max_records in enumerate([1, 2, 4]):
            bounds = Bounds(
                low=-9.0, high=9.0, max_groups=max_groups, max_records=max_records, gaussian=False
            )
            count, total = ranked.sums(bounds, 6, around=0.0)
            assert counts[place, other] == pytest.approx(count)
            assert sums[place, other] == pytest.approx(total)


def test_every_group_of_a_user_is_as_likely_to_count() -> None:
    made = table([0] * 4, [0, 1, 2, 3], [1.0] * 4)
    generator = np.random.default_rng(3)
    bounds = Bounds(low=0.0, high=2.0, max_groups=1, max_records=1, gaussian=False)
    counts = sum(Ranked.of(made, "record", generator).sums(bounds, 4, around=0.0)[0] for _ in range(2_000))
    # Binomial(2,000, 1/4) has a standard deviation of 19.4; five of them.
    assert np.abs(counts - 500).max() < 97


@pytest.mark.parametrize("library", [PIPELINEDP, OPENDP])
def test_without_noise_a_library_releases_clamped_means(library: str) -> None:
    made = large_table()
    sample = Ranked.of(made, "record", np.random.default_rng(1))
    bounds = Bounds(low=9.5, high=11.0, max_groups=3, max_records=1, gaussian=False)
    found = release_often(library, [sample], bounds, 3, np.random.default_rng(2), epsilon=1e9, delta=0.0)
    clamped = [
        np.clip(made.record_values[made.record_groups == group], 9.5, 11.0).mean() for group in range(3)
    ]
    assert found.values == pytest.approx(np.tile(clamped, (10, 1)), abs=1e-4)


@pytest.mark.parametrize("noise", [pipelinedp_noise, opendp_noise])
@pytest.mark.parametrize("gaussian", [False, True])
def test_noise_grows_with_what_a_user_may_contribute(noise: object, gaussian: bool) -> None:
    def scale(groups: int, records: int) -> float:
        bounds = Bounds(low=-1.0, high=1.0, max_groups=groups, max_records=records, gaussian=gaussian)
        return noise(bounds, 1.0, 1e-6).sum  # type: ignore[operator]

    assert scale(1, 6) / scale(1, 1) == pytest.approx(6.0)
    assert scale(9, 1) / scale(1, 1) == pytest.approx(3.0 if gaussian else 9.0)


def test_laplace_noise_is_that_of_half_of_epsilon() -> None:
    bounds = Bounds(low=2.0, high=6.0, max_groups=3, max_records=5, gaussian=False)
    for noise, largest in ((pipelinedp_noise, 2.0), (opendp_noise, 6.0)):
        found = noise(bounds, 0.5, 0.0)
        assert found.count == pytest.approx(math.sqrt(2.0) * 15 / 0.25)
        assert found.sum == pytest.approx(largest * found.count)
    assert center_of(PIPELINEDP, bounds) == 4.0
    assert center_of(OPENDP, bounds) == 0.0


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_concentrated_privacy_is_converted_as_opendp_does(epsilon: float) -> None:
    """OpenDP's own map of Gaussian noise with this rho gives delta, and a hundredth more noise would be too much."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    rho = concentrated(epsilon, 1e-6)
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)

    def delta(rho: float) -> float:
        scale = 1.0 / math.sqrt(2.0 * rho)
        return float(dp.c.make_zCDP_to_approxDP(space >> dp.m.then_gaussian(scale)).map(1.0).delta(epsilon))

    assert delta(rho) == pytest.approx(1e-6, rel=1e-3)
    assert delta(1.02 * rho) > 1.05e-6


def test_tenfold_contributions_stop_at_the_number_of_groups() -> None:
    bounds = Bounds(low=0.0, high=2.0, max_groups=2, max_records=3, gaussian=False)
    wide = bounds.wider(large_table(groups=7), values=True, contributions=True)
    assert (wide.low, wide.high, wide.max_groups, wide.max_records) == (-9.0, 11.0, 7, 30)


def test_releases_of_ours_have_seeds_of_their_own_and_repeat() -> None:
    made = large_table()
    twice = [release_ours(made, per="user", epsilon=1.0, delta=0.0, runs=2) for _ in range(2)]
    assert np.array_equal(twice[0].values, twice[1].values)
    assert not np.array_equal(twice[0].values[0], twice[0].values[1])
    assert twice[0].values == pytest.approx(10.0, abs=3.0)
    assert (twice[0].low < twice[0].values).all()


def test_the_noise_of_the_process_is_real_again_afterwards() -> None:
    from hubermean.noise.system import SystemNoise

    kept = SystemNoise.discrete_laplace
    release_ours(large_table(users=300), per="user", epsilon=1.0, delta=0.0, runs=1)
    assert SystemNoise.discrete_laplace is kept


def test_what_was_measured_before_says_where_it_comes_from() -> None:
    assert "429ab22" in KEPT.read_text()[:400]
    names = {source.name for source in (*TUNE, *JUDGE)}
    assert {row.table for row in kept_results()} == names
    assert {row.contestant for row in kept_results()} == {BEFORE, BEFORE_BEST}


def made_results(**changed: float) -> Results:
    """One judged table on which hubermean has error 0.1 and everybody else 0.3."""
    made = large_table()
    facts = [TableFacts.of(made)]
    base = Measured(
        table=made.name,
        contestant=OURS,
        setting="",
        per="user",
        epsilon=1.0,
        delta=0.0,
        runs=20,
        rmse=0.1,
        rmse_all=0.2,
        typical=0.1,
        typical_all=0.2,
        coverage=0.96,
        worst_coverage=0.9,
        width=2.0,
        by_size=[math.nan, math.nan, 0.3, 0.2, 0.1],
        rmse_released=0.1,
        refused_by_size=[math.nan, math.nan, 0.3, 0.0, 0.0],
    )
    others = [
        BEFORE,
        BEFORE_BEST,
        HINDSIGHT,
        *(f"{library}, {given}" for library in (PIPELINEDP, OPENDP) for given in (RIGHT, WIDE)),
    ]
    rows = []
    for per in ("user", "record"):
        for delta in (1e-6, 0.0):
            rows.append(replace(base, per=per, delta=delta, **changed))
            rows += [replace(base, per=per, delta=delta, contestant=name, rmse=0.3) for name in others]
    return Results(facts=facts, measured=rows)


def test_aims_are_met_where_errors_are_small() -> None:
    assert all(verdict.met and not verdict.misses for verdict in verdicts(made_results()))


def test_every_aim_can_be_missed() -> None:
    missed = verdicts(made_results(rmse=0.7, coverage=0.9, refused_large=0.1))
    assert not any(verdict.met for verdict in missed)
    assert all(len(verdict.misses) == 4 for verdict in missed)


def test_coverage_that_is_unknown_misses() -> None:
    words = [v for v in verdicts(made_results(coverage=math.nan)) if "intervals" in v.aim]
    assert [v.met for v in words] == [False]


def test_aims_are_judged_on_judged_tables_alone() -> None:
    results = made_results(coverage=0.5)
    facts = [replace(results.facts[0], name="tuned", judged=False), *results.facts]
    tuned = [replace(row, table="tuned", coverage=0.1) for row in results.measured if row.contestant == OURS]
    words = [
        v
        for v in verdicts(Results(facts=facts, measured=[*results.measured, *tuned]))
        if "intervals" in v.aim
    ]
    assert words[0].found == "50.0% to 50.0%"


def test_the_page_says_what_was_missed(tmp_path: Path) -> None:
    page = tmp_path / "groups.md"
    write_page(page, made_results(coverage=0.9), revision="abc")
    text = page.read_text()
    assert "9 of 10 aims are met" in text
    assert f"{JUDGE[0].name}, per user, delta = 1e-6: 90.0%" in text
    assert "**90.0%**" in text
    assert "fewer than 50 users" in text
    assert "nan" not in text


def test_libraries_are_measured_with_right_and_wide_bounds() -> None:
    rows = {
        row.contestant: row
        for row in measure_libraries(large_table(), per="user", epsilon=1.0, delta=1e-6, runs=20, seed=1)
    }
    assert len(rows) == 8
    for library in (PIPELINEDP, OPENDP):
        assert rows[f"{library}, {WIDE}"].rmse > 2 * rows[f"{library}, {RIGHT}"].rmse
        assert rows[f"{library}, {RIGHT}"].runs == 20


@pytest.mark.parametrize(
    ("value", "words"), [(0.1234, "12%"), (0.0456, "4.6%"), (0.00456, "0.46%"), (math.nan, "-")]
)
def test_percentages_have_two_digits(value: float, words: str) -> None:
    assert percent(value) == words


def test_delta_reads_as_people_write_it() -> None:
    assert [delta_text(delta) for delta in (1e-6, 0.0)] == ["1e-6", "0"]
