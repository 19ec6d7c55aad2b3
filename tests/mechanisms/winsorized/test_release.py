"""`winsorized` as its users see it: accuracy, the whole way from rows to a release, refusals."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import hubermean as hm
from helpers.winsorized_runs import (
    NAN,
    REPLACE,
    prepared,
    request,
)
from hubermean.cli.app import app
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import Neighbors

REPLACED: dict[str, Any] = {"mechanism": "winsorized", "neighbors": "replace-user"}

# --- accuracy -------------------------------------------------------------------------------------------------


def error_ratio(*, n: int, runs: int, columns: int, epsilon: float, tau: float, share: float | None) -> float:
    """MSE over that of the plain mean, Gaussian users, the true mean drawn at random."""
    rng, noise = np.random.default_rng(11), InsecureSeededNoise(12)
    asked = request(
        Neighbors.REPLACE_USER, epsilon=epsilon, delta=1e-5 if columns > 1 else 0.0, columns=columns
    )
    mine = plain = 0.0
    for _ in range(runs):
        truth = rng.uniform(-10, 10, columns)
        means = rng.normal(truth, 1.0, (n, columns))
        table = UserTable.from_means(means)
        run = prepared(table, asked, tau=tau, radius=100.0, selection_share=share)
        mine += float(((np.array(run.run(table, noise).values) - truth) ** 2).sum())
        plain += float(((means.mean(axis=0) - truth) ** 2).sum())
    return mine / plain


def test_gaussian_users_are_averaged_nearly_as_well_as_without_privacy() -> None:
    """n = 1,000, tau = 2: 1 + noise variance 2 (4 tau / (n eps_2))^2 over 1/n, about 1.17; 300 runs give +-0.1."""
    halved = error_ratio(n=1000, runs=300, columns=1, epsilon=1.0, tau=2.0, share=0.5)
    ours = error_ratio(n=1000, runs=300, columns=1, epsilon=1.0, tau=2.0, share=None)
    assert 0.9 < ours < 1.4
    assert 1.2 < halved < 1.9
    assert ours < halved


@pytest.mark.slow
def test_three_columns_of_gaussian_users() -> None:
    assert error_ratio(n=10_000, runs=40, columns=3, epsilon=1.0, tau=2.5, share=None) < 1.8


def test_limit_cases() -> None:
    """A huge epsilon gives the plain mean of the clipped means; users beyond the interval are clipped to it."""
    rng = np.random.default_rng(3)
    for columns in (1, 3):
        means = rng.normal(5.0, 0.3, (400, columns))
        release = hm.mean_of_user_means(
            means, epsilon=1e6, delta=1e-5, threshold=3.0, radius=50.0, **REPLACED
        )
        assert np.allclose(release.value, means.mean(axis=0), atol=1e-4)
    outlier = np.append(np.full(99, 5.0), 1e9)
    release = hm.mean_of_user_means(outlier, epsilon=1e6, threshold=1.0, radius=50.0, **REPLACED)
    midpoint = 2 * math.floor(5.0 / 2) + 1  # an even number of bins has edges at the even numbers
    assert release.value == pytest.approx((99 * 5.0 + midpoint + 2.0) / 100, abs=1e-4)


def test_half_the_budget_gives_the_noise_of_levy_et_al() -> None:
    table = UserTable.from_means(np.zeros(1000))
    run = prepared(
        table, request(Neighbors.REPLACE_USER, epsilon=0.8), tau=1.5, radius=90.0, selection_share=0.5
    )
    scale = run.noise.scale * 2.0**run.exponent / run.total_weight
    assert scale == pytest.approx(8 * 1.5 / (1000 * 0.8), rel=1e-6)
    assert run.bins.count == 60
    assert run.split.rate == Fraction(0.8) / 4


def test_unequal_users_weigh_their_public_records() -> None:
    means, counts = np.array([1.0, 2.0, 4.0]), np.array([1, 10, 3])
    options: dict[str, Any] = {
        "epsilon": 1e6,
        "mechanism": "winsorized",
        "threshold": 20.0,
        "radius": 20.0,
        "neighbors": "replace-values",
    }
    whole = hm.mean_of_user_means(means, counts, **options)
    capped = hm.mean_of_user_means(means, counts, max_records=4, **options)
    assert whole.value == pytest.approx((1 + 20 + 12) / 14, abs=1e-3)
    assert capped.value == pytest.approx((1 + 8 + 12) / 8, abs=1e-3)
    # Sensitivity is m_max (b - a) / N, with b - a = 4 tau; m_max is public, so a higher cap costs nothing.
    run = prepared(
        UserTable.from_means(means, counts),
        request(Neighbors.REPLACE_VALUES, "record", epsilon=1.0),
        tau=1.0,
        max_records=50,
        selection_share=0.5,
    )
    assert run.cap == 10
    assert run.noise.scale * 2.0**run.exponent == pytest.approx(2 * 10 * 4 * 1.0, rel=1e-6)


@pytest.mark.parametrize("relation", [one.value for one in REPLACE])
def test_a_user_without_usable_records_stands_at_the_midpoint(relation: str) -> None:
    """One bin, midpoint 0: the two users without a value count as 0 in a mean of five."""
    release = hm.mean(
        rows([[3.0], [NAN], [6.0], [None], [9.0]]),
        user="u",
        value="v0",
        epsilon=1e6,
        per="user",
        neighbors=relation,
        mechanism=Winsorized(threshold=10.0, radius=10.0),
    )
    assert release.parameters["bins"] == 1
    assert release.value == pytest.approx(18 / 5, abs=1e-3)


def test_the_interval_covers_the_clipped_mean_at_its_level() -> None:
    means = np.random.default_rng(8).normal(4.0, 1.0, 200)
    table = UserTable.from_means(means)
    run = prepared(table, request(Neighbors.REPLACE_USER, epsilon=2.0), tau=4.0, radius=4.0)
    noise = InsecureSeededNoise(9)
    assert run.bins.count == 1
    truth = float(np.clip(means, -8, 8).mean())
    covered = 0
    for _ in range(1000):
        rule = run.run(table, noise).interval_rule
        assert rule is not None
        interval = rule.at(0.9)
        covered += interval.low[0] <= truth <= interval.high[0]
    assert stats.binomtest(covered, 1000, 0.9).pvalue > 1e-6


# --- end to end -----------------------------------------------------------------------------------------------


def rows(users: list[list[Any]], columns: int = 1) -> pa.Table:
    user = [number for number, of_user in enumerate(users) for _ in of_user]
    flat = [value for of_user in users for value in of_user]
    return pa.table(
        {"u": pa.array(user, pa.int64())}
        | {f"v{column}": pa.array(flat, pa.float64()) for column in range(columns)}
    )


@pytest.mark.parametrize("columns", [1, 3])
def test_end_to_end_on_a_frame(columns: int) -> None:
    rng = np.random.default_rng(2)
    users = [list(rng.normal(7.0, 1.0, int(rng.integers(1, 6)))) for _ in range(3000)]
    release = hm.mean(
        rows(users, columns),
        user="u",
        value="v0" if columns == 1 else [f"v{column}" for column in range(columns)],
        epsilon=1.0,
        delta=0.0 if columns == 1 else 1e-6,
        per="user",
        threshold=3.0 if columns == 1 else 4.0,
        radius=100.0,
        **REPLACED,
    )
    truth = float(np.mean([np.mean(one) for one in users]))
    assert np.allclose(release.value, truth, atol=10 * release.parameters["noise_stddev"])
    assert json.loads(release.to_json())["mechanism"] == "winsorized"
    assert (release.interval() is None) == (columns == 3)
    assert release.parameters["bins"] > 30


def test_the_command_line_takes_threshold_and_radius(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"u": list(range(200)), "v": [5.0] * 200}), path)
    options = ["--user", "u", "--value", "v", "--epsilon", "50", "--per", "user"]
    options += ["--mechanism", "winsorized", "--neighbors", "replace-user"]
    arguments = ["release", str(path), *options, "--threshold", "1", "--radius", "40", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["value"] == pytest.approx(5.0, abs=0.1)
    assert printed["parameters"]["bins"] == 40
    refused = CliRunner().invoke(app, [*arguments[:-2], "1e12", "--json"])
    assert isinstance(refused.exception, hm.HubermeanError)


def test_several_columns_need_no_delta() -> None:
    release = hm.mean_of_user_means(
        np.full((500, 2), 3.0), epsilon=5.0, threshold=1.0, radius=10.0, **REPLACED
    )
    assert release.parameters["accounting"] == "pure"


def test_a_billion_bins_are_no_burden() -> None:
    means = np.random.default_rng(1).normal(123.456, 0.3, 2000)
    release = hm.mean_of_user_means(means, epsilon=2.0, threshold=1.0, radius=1e9, **REPLACED)
    assert release.parameters["bins"] == 10**9
    assert abs(release.value - 123.456) < 1.0  # type: ignore[operator]


values = st.one_of(
    st.none(), st.floats(width=64), st.sampled_from([NAN, math.inf, -math.inf, 1e300, -1e-100, 8e12])
)
records = st.lists(values, min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("relation", "per"), [(one.value, "user") for one in REPLACE] + [("replace-values", "record")]
)
@pytest.mark.parametrize("columns", [1, 2])
@given(users=st.lists(records, min_size=1, max_size=4), other=records)
@settings(max_examples=8, deadline=None)
def test_all_but_the_value_is_the_same_for_neighbors(
    relation: str, per: str, columns: int, users: list[list[Any]], other: list[Any]
) -> None:
    def shown(users: list[list[Any]]) -> tuple[dict[str, Any], list[str]]:
        release = hm.mean(
            rows(users, columns),
            user="u",
            value=[f"v{column}" for column in range(columns)],
            epsilon=0.5,
            delta=1e-4,
            per=per,  # type: ignore[arg-type]
            neighbors=relation,
            mechanism="winsorized",
            threshold=1.0,
            radius=10.0,
        )
        fields = release.to_dict()
        assert all(math.isfinite(one) for one in release.values)
        del fields["value"]
        fields["interval"] = fields["interval"] and fields["interval"]["covers"]
        return fields, [label for label, _ in release.details]

    if relation == "replace-values":
        other = (other * len(users[-1]))[: len(users[-1])]
    assert shown(users) == shown([*users[:-1], other])


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give threshold"),
        ({"threshold": 1.0}, "give radius"),
        ({"threshold": 0.0, "radius": 1.0}, "threshold must be"),
        ({"threshold": 1.0, "radius": math.inf}, "radius must be"),
        ({"threshold": True, "radius": 1.0}, "threshold must be a number"),
        ({"threshold": 1e-3, "radius": 1e9}, "at most 1e9 times"),
        ({"threshold": 1.0, "radius": 1.0, "bounds": (0, 1)}, "bounds is not used"),
        ({"threshold": 1.0, "radius": 1.0, "neighbors": "add-remove"}, "'add-remove' keeps private"),
        ({"threshold": 1.0, "radius": 1.0, "per": "record"}, "per='user' or neighbors='replace-values'"),
        ({"threshold": 1.0, "radius": 1.0, "max_records": 3}, "max_records is for per='record'"),
        ({"threshold": 1e10, "radius": 1e13}, "radius reaches beyond"),
        ({"threshold": 1e-17, "radius": 1e-17}, "threshold is too small"),
        ({"threshold": 1.0, "radius": 1.0, "mechanism": "clipped"}, "threshold is not used"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(options: dict[str, Any], message: str) -> None:
    given = REPLACED | {"epsilon": 1.0} | options
    with pytest.raises(hm.HubermeanError, match=message):
        hm.mean_of_user_means([1.0, 2.0], **given)


def test_shares_outside_zero_and_one_are_refused() -> None:
    for share in (0.0, 1.0, -0.5, NAN):
        with pytest.raises(hm.HubermeanError, match="selection_share"):
            Winsorized(threshold=1.0, radius=1.0, selection_share=share)


def test_public_counts_of_zero_leave_nothing_to_average() -> None:
    with pytest.raises(hm.HubermeanError, match="no user has a record"):
        hm.mean_of_user_means(
            [1.0],
            [0],
            epsilon=1.0,
            neighbors="replace-values",
            mechanism=Winsorized(threshold=1.0, radius=1.0),
        )


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 1.0, 1e9])
@pytest.mark.parametrize("delta", [0.0, 1e-100, 0.999])
@pytest.mark.parametrize("columns", [1, 2, 20])
def test_extreme_budgets_release_or_say_why(epsilon: float, delta: float, columns: int) -> None:
    try:
        release = hm.mean_of_user_means(
            np.ones((5, columns)),
            epsilon=epsilon,
            delta=delta,
            threshold=1.0,
            radius=1e6,
            **REPLACED,
        )
    except hm.HubermeanError as error:
        assert "epsilon is too small" in str(error)  # noqa: PT017 - either outcome is right
        assert epsilon < 1e-3
    else:
        assert all(math.isfinite(one) and abs(one) < 1e8 for one in release.values)


def test_clipped_still_takes_no_threshold() -> None:
    assert "threshold" not in {one.name for one in dataclasses.fields(Clipped)}


def test_sums_of_the_heaviest_users_do_not_overflow() -> None:
    """At the coarsest grid terms reach 2^47, of which blocks of 2^15 are summed in 64 bits."""
    n_users, weight = 2**15, 2**32
    table = UserTable.from_means(np.full(n_users, 1e6), np.full(n_users, weight))
    asked = dataclasses.replace(
        request(Neighbors.REPLACE_VALUES, "record", epsilon=1e6), columns=table.columns
    )
    made = prepared(table, asked, tau=1.999, radius=1000.0)
    top = np.full(n_users, made.clamp)
    assert made.clipped_sum(table, top, 0) == n_users * weight * 4 * made.bins.half_width
