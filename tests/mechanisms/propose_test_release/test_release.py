"""`propose-test-release` from the front door: what it accepts, what it shows, how close it comes, how it refuses."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hubermean as hm
from hubermean import mechanisms
from hubermean.cli.app import app
from hubermean.data.user_table import UserTable
from hubermean.huber.solver import huber_location
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import Neighbors, PublicFacts, Request

RELATIONS = ("replace-user", "replace-values", "add-remove")
USUAL: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "mechanism": "propose-test-release",
    "threshold": 1.0,
    "radius": 10.0,
}


def prepared(
    table: UserTable, *, threshold: float, radius: float = 20.0, **request: Any
) -> PreparedProposeTestRelease:
    asked = Request(
        columns=table.columns,
        epsilon=request.get("epsilon", 1.0),
        delta=1e-5,
        neighbors=Neighbors.parse(request.get("neighbors", "replace-user")),
        per="user",
    )
    return mechanisms.ProposeTestRelease(threshold=threshold, radius=radius).prepare(
        asked, PublicFacts.of(table, asked.neighbors)
    )


def needed_by(refusal: BaseException) -> int:
    found = re.search(r"(?:about|than the) ([\d,]+) (?:users|records)", str(refusal))
    assert found is not None
    return int(found[1].replace(",", ""))


# -- refusals -----------------------------------------------------------------------------------------------


def test_no_delta_is_refused() -> None:
    with pytest.raises(hm.InputError, match="needs delta > 0; give delta"):
        hm.mean_of_user_means(np.zeros(1000), **(USUAL | {"delta": 0.0}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold_power": 0.5}, "threshold_power is for per='record'"),
        ({"bounds": (0, 1)}, "bounds is not used"),
        ({"max_records": 2**23, "counts": np.ones(1000, dtype=int)}, r"at most 2\^22 records"),
        ({"max_records": 2}, "leave it out"),
        ({"epsilon": 1e-9}, "epsilon is too small"),
        ({"epsilon": 1e-9, "delta": 1e-100}, "epsilon is too small"),
        ({"threshold": math.nan}, "threshold must be a finite number"),
    ],
)
def test_bad_requests_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(hm.InputError, match=message):
        hm.mean_of_user_means(np.zeros(1000), **(USUAL | arguments))


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan, True, "0.9"])
def test_a_share_out_of_range_is_refused(share: Any) -> None:
    with pytest.raises(hm.InputError, match="share must be"):
        mechanisms.ProposeTestRelease(threshold=1.0, radius=1.0, share=share)


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("n", [1, 60, 100_000])
def test_a_radius_too_large_is_called_that(n: int, d: int, neighbors: str) -> None:
    """Not 'too few users', and before anything is spent, whatever the relation."""
    with pytest.raises(hm.InputError, match="radius is too large for this threshold"):
        hm.mean_of_user_means(np.zeros((n, d)), **(USUAL | {"radius": 1e14, "neighbors": neighbors}))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_too_few_public_users_are_told_how_many_are_needed(epsilon: float) -> None:
    arguments = USUAL | {"epsilon": epsilon, "neighbors": "replace-user"}
    with pytest.raises(
        hm.InputError, match=r"needs about [\d,]+ users here and there are at most 3"
    ) as refusal:
        hm.mean_of_user_means(np.zeros(3), **arguments)
    needed = needed_by(refusal.value)
    hm.mean_of_user_means(np.zeros(needed), **arguments)
    with pytest.raises(hm.InputError, match=f"there are at most {needed - 1:,}"):
        hm.mean_of_user_means(np.zeros(needed - 1), **arguments)


@pytest.mark.parametrize("neighbors", ["replace-user", "replace-values"])
def test_too_few_public_records_are_counted_as_records(neighbors: str) -> None:
    """One heavy user among many: called 4 million records needed, not 'needs 105 users and there are 1'."""
    counts = np.ones(50, dtype=np.int64)
    arguments = USUAL | {"per": "record", "neighbors": neighbors, "max_records": 1000}
    with pytest.raises(hm.InputError, match=r"records \(at most 1,000 per user count\)") as refusal:
        hm.mean_of_user_means(np.zeros(50), counts, **arguments)
    users = needed_by(refusal.value) // 1000
    hm.mean_of_user_means(np.zeros(12 * users), np.full(12 * users, 1000), **arguments)


def test_a_large_cap_with_a_tiny_epsilon_is_refused_not_crashed() -> None:
    arguments = USUAL | {"epsilon": 1e-9, "delta": 0.999, "max_records": 2**22, "neighbors": "add-remove"}
    with pytest.raises(hm.InputError, match="epsilon is too small"):
        hm.mean_of_user_means(np.zeros(9), np.ones(9, dtype=int), **arguments)


def test_a_failed_test_spends_the_budget_and_says_what_to_change() -> None:
    two_groups = np.repeat([-5.0, 5.0], 500)
    with pytest.raises(hm.NotReleased) as refusal:
        hm.mean_of_user_means(two_groups, **USUAL)
    assert refusal.value.exit_code == 1
    assert (refusal.value.epsilon, refusal.value.delta) == (1.0, 1e-5)
    for part in ("epsilon = 1 and delta = 1e-05 were spent", "a larger threshold or more users would help"):
        assert part in str(refusal.value)


def test_exit_code_one_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    rng = np.random.default_rng(0)
    groups = np.repeat([-5.0, 5.0], 500)
    pq.write_table(pa.table({"u": np.arange(1000), "two": groups, "one": rng.normal(3.0, 0.2, 1000)}), path)
    options = {
        "user": "u",
        "epsilon": 1,
        "delta": 1e-5,
        "mechanism": "propose-test-release",
        "threshold": 1,
        "radius": 20,
    }
    arguments = [part for name, chosen in options.items() for part in (f"--{name}", str(chosen))]
    arguments += ["--per", "user", "--json"]
    refused = CliRunner().invoke(app, ["release", str(path), "--value", "two", *arguments])
    assert isinstance(refused.exception, hm.NotReleased)
    assert refused.exception.exit_code == 1
    done = CliRunner().invoke(app, ["release", str(path), "--value", "one", *arguments])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["value"] == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("means", [np.zeros(0), np.zeros((0, 2)), np.zeros(1), np.full((5, 3), np.nan)])
def test_hardly_anyone_is_refused_where_n_is_private(means: Any) -> None:
    """By the test, after a draw: whether the one user is there must not show otherwise."""
    table = UserTable.from_means(means)
    mine = prepared(table, threshold=1.0, neighbors="add-remove")
    for seed in range(5):
        with pytest.raises(
            hm.NotReleased, match=r"fewer than the [\d,]+ users .* spent; raise epsilon"
        ) as refusal:
            mine.run(table, InsecureSeededNoise(seed))
        assert needed_by(refusal.value) > 100


def test_refusals_do_not_tell_the_data() -> None:
    texts = set()
    for means in (np.repeat([-5.0, 5.0], 500), np.full(1000, np.nan), np.linspace(-900, 900, 1000)):
        for _ in range(3):
            with pytest.raises(hm.NotReleased) as refusal:
                hm.mean_of_user_means(means, **USUAL, neighbors="replace-user")
            texts.add(str(refusal.value))
    assert len(texts) == 1


# -- what is shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("per", ["user", "record"])
def test_the_parameters_say_what_was_measured(per: str, neighbors: str) -> None:
    means, counts = np.random.default_rng(1).normal(size=(3000, 2)) * 0.1, np.full(3000, 2)
    arguments = USUAL | {"per": per, "neighbors": neighbors, "max_records": 3 if per == "record" else None}
    release = hm.mean_of_user_means(means, counts, **arguments)
    shown = set(release.parameters) - {
        "threshold",
        "radius",
        "share_within_threshold",
        "changes_to_pass",
        "distance_tested",
    }
    expected = {"noise", "noise_stddev"}
    if per == "record":
        expected |= {"max_records"}
    if neighbors == "add-remove" or (per == "record" and neighbors == "replace-user"):
        name = "users_measured" if per == "user" else "records_measured"
        expected |= {name}
        truth = 3000 if per == "user" else 6000
        assert release.parameters[name] == pytest.approx(truth, abs=75 * 25)
        assert "measured" in str(release.details)
    assert shown == expected
    assert release.value == pytest.approx([0.0, 0.0], abs=0.1)


def test_the_same_is_shown_for_all_data_of_a_size() -> None:
    shown = []
    for means in (np.zeros(500), np.random.default_rng(2).normal(7.0, 0.1, 500), np.full(500, 1e300)):
        release = hm.mean_of_user_means(means, **USUAL, neighbors="replace-user")
        shown.append((dict(release.parameters), repr(prepared(UserTable.from_means(means), threshold=1.0))))
    assert shown[0] == shown[1] == shown[2]


@pytest.mark.parametrize("level", [0.8, 0.99])
def test_the_interval_covers_the_location_at_its_level(level: float) -> None:
    means = np.random.default_rng(3).standard_t(3, (800, 2)) * 0.3
    table = UserTable.from_means(means)
    mine = prepared(table, threshold=3.0)
    target = np.asarray(huber_location(means, thresholds=3.0).point)
    distribution = mine.distribution(table)
    covered = []
    for seed in range(400):
        outcome = mine.outcome(distribution.sample(InsecureSeededNoise(seed)))
        assert outcome.interval_rule is not None
        interval = outcome.interval_rule.at(level)
        covered += [
            low <= x <= high for low, x, high in zip(interval.low, target, interval.high, strict=True)
        ]
    share = float(np.mean(covered))
    assert abs(share - level) <= 4.5 * math.sqrt(level * (1.0 - level) / len(covered))


# -- accuracy -----------------------------------------------------------------------------------------------


def test_three_columns_of_a_thousand_normal_users() -> None:
    """Within 2.8 times the error of the sample mean itself, and never refused."""
    n, d, runs = 1000, 3, 60
    rng = np.random.default_rng(4)
    errors = []
    for seed in range(runs):
        table = UserTable.from_means(rng.normal(2.0, 1.0, (n, d)))
        mine = prepared(table, threshold=4.0)
        noisy_test = mine.distribution(table)
        assert noisy_test.passes == 2**noisy_test.bits  # type: ignore[attr-defined]
        outcome = mine.outcome(noisy_test.sample(InsecureSeededNoise(seed)))
        errors.append(np.sum((np.array(outcome.values) - 2.0) ** 2))
    assert float(np.mean(errors)) < 2.8 * d / n


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("d", [1, 3])
def test_a_hostile_tenth_moves_the_center_by_a_bounded_amount(d: int, side: float) -> None:
    """At most 2 h T/(p - h) with p = 1: everyone is inside to begin with (proofs/propose-test-release.md, Accuracy)."""
    n, share = 3000, 0.1
    means = np.random.default_rng(5).normal(0.0, 0.05, (n, d))
    before = np.asarray(huber_location(means, thresholds=1.0).point)
    means[: int(share * n)] = 0.0
    means[: int(share * n), 0] = side * 1e9
    table = UserTable.from_means(means)
    mine = prepared(table, threshold=1.0, epsilon=2.0)
    noisy_test = mine.distribution(table)
    plan = mine.plan_at(n)
    assert plan is not None
    assert noisy_test.passes == 2**noisy_test.bits  # type: ignore[attr-defined]
    center = np.array(noisy_test.inner.position, dtype=float) * 2.0**plan.exponent  # type: ignore[attr-defined]
    assert 0.05 < float(np.linalg.norm(center - before)) <= 2.0 * share / (1.0 - share)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_a_huge_epsilon_gives_the_huber_location(neighbors: str) -> None:
    means = np.random.default_rng(6).standard_t(2, (500, 2))
    release = hm.mean_of_user_means(
        means, **(USUAL | {"epsilon": 1e9, "threshold": 12.0, "radius": 100.0, "neighbors": neighbors})
    )
    target = np.asarray(huber_location(means, thresholds=12.0).point)
    assert release.value == pytest.approx(target, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e9])
def test_units_do_not_matter(scale: float) -> None:
    """Up to where ingest reads values at all; the plan is the same in units of the threshold."""
    table = UserTable.from_means(np.full(500, 0.0))
    mine = prepared(table, threshold=scale, radius=20.0 * scale)
    plan, usual = mine.plan_at(500), prepared(table, threshold=1.0).plan_at(500)
    assert plan is not None
    assert usual is not None
    assert plan.noise_stddev / scale == pytest.approx(usual.noise_stddev, rel=1e-9)
    assert plan.curvature == usual.curvature


def test_a_mean_outside_the_radius_is_brought_back() -> None:
    release = hm.mean_of_user_means(np.full((500, 2), 1e300), **(USUAL | {"radius": 5.0}))
    assert math.hypot(*release.values) == pytest.approx(5.0)


def test_wide_data() -> None:
    means = np.random.default_rng(7).normal(0.0, 0.02, (1500, 200))
    table = UserTable.from_means(means)
    request = Request(
        columns=table.columns, epsilon=1.0, delta=1e-5, neighbors=Neighbors.ADD_REMOVE, per="user"
    )
    release = release_user_table(
        table, request, mechanisms.ProposeTestRelease(threshold=1.0, radius=10.0), InsecureSeededNoise(0)
    )
    assert float(np.linalg.norm(np.array(release.values))) < 0.2
