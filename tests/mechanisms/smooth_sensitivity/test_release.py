"""`smooth-sensitivity` from the front door: what it accepts, what it shows, how close it comes."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hubermean as hm
from hubermean.cli.app import app
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import Neighbors, PublicFacts, Request

RELATIONS = ("replace-user", "replace-values", "add-remove")
values = st.one_of(
    st.none(), st.floats(width=64), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e300, 8e12])
)
records = st.lists(values, min_size=1, max_size=5)


def rows(users: list[list[float | None]]) -> pa.Table:
    return pa.table(
        {
            "u": pa.array([number for number, of_user in enumerate(users) for _ in of_user], pa.int64()),
            "v": pa.array([value for of_user in users for value in of_user], pa.float64()),
        }
    )


def shown(users: list[list[float | None]], relation: str, per: str) -> tuple[dict[str, Any], list[str]]:
    release = hm.mean(
        rows(users),
        user="u",
        value="v",
        epsilon=2.0,
        delta=0.01,
        per=per,  # type: ignore[arg-type]
        neighbors=relation,
        mechanism="smooth-sensitivity",
        threshold=1.0,
        radius=5.0,
        max_records=3 if per == "record" else None,
    )
    assert release.interval() is None
    beside = release.to_dict()
    assert math.isfinite(beside.pop("value"))
    return beside, [f"{label}: {text}" for label, text in release.details]


@pytest.mark.fair_sample(0.5)
@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("relation", RELATIONS)
@given(users=st.lists(records, min_size=1, max_size=5), other=records)
@settings(max_examples=15, deadline=None)
def test_all_but_the_value_is_the_same_for_neighbors(
    relation: str, per: str, users: list[list[float | None]], other: list[float | None]
) -> None:
    if relation == "add-remove":
        neighbor = [*users, other]
    elif relation == "replace-values":
        neighbor = [*users[:-1], (other * len(users[-1]))[: len(users[-1])]]
    else:
        neighbor = [*users[:-1], other]
    assert shown(users, relation, per) == shown(neighbor, relation, per)


def test_a_file_from_end_to_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(4000), 3)
    table = pa.table({"u": users, "a": rng.normal(2.0, 1.0, 12_000), "b": rng.normal(-1.0, 1.0, 12_000)})
    path = tmp_path / "data.parquet"
    pq.write_table(table, path)
    known: dict[str, Any] = {
        "mechanism": "smooth-sensitivity",
        "threshold": 4.0,
        "radius": 20.0,
        "max_records": 3,
    }
    release = hm.mean(path, user="u", value=["a", "b"], epsilon=1.0, delta=1e-5, **known)
    assert release.mechanism == "smooth-sensitivity"
    assert release.value == pytest.approx([2.0, -1.0], abs=0.2)
    assert set(release.parameters) == {"threshold", "radius", "max_records", "beta", "noise"}

    options = {"user": "u", "value": "a", "epsilon": 1, "delta": 1e-5, "mechanism": "smooth-sensitivity"}
    options |= {"threshold": 4, "radius": 20, "max-records": 3}
    arguments = [part for name, chosen in options.items() for part in (f"--{name}", str(chosen))]
    result = CliRunner().invoke(app, ["release", str(path), *arguments, "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["value"] == pytest.approx(2.0, abs=0.2)
    assert printed["interval"] is None


@pytest.mark.parametrize("name", ["threshold", "radius"])
@pytest.mark.parametrize("given_", [0.0, -1.0, math.inf, math.nan, 1e80, True, "1"])
def test_bad_numbers_are_refused(name: str, given_: Any) -> None:
    arguments = {"threshold": 1.0, "radius": 1.0} | {name: given_}
    with pytest.raises(hm.InputError, match=f"^{name} must be a finite number above 0"):
        hm.mean_of_user_means([1.0], epsilon=1.0, delta=1e-5, mechanism="smooth-sensitivity", **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 0.0}, "needs delta > 0"),
        ({"threshold_power": 0.5}, "threshold_power is for per='record'"),
        ({"bounds": (0, 1)}, "bounds is not used"),
        ({"max_records": 2**23, "counts": [1]}, r"at most 2\^22 records"),
        ({"max_records": 2}, "leave it out"),
    ],
)
def test_bad_requests_are_refused(arguments: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "mechanism": "smooth-sensitivity",
        "threshold": 1.0,
        "radius": 1.0,
    }
    with pytest.raises(hm.InputError, match=message):
        hm.mean_of_user_means([1.0], **(usual | arguments))


def test_users_is_for_add_remove_only() -> None:
    mechanism = SmoothSensitivity(threshold=1.0, radius=1.0, users=500)
    with pytest.raises(hm.InputError, match="users is for 'add-remove'"):
        hm.mean_of_user_means([1.0], epsilon=1.0, delta=1e-5, mechanism=mechanism, neighbors="replace-user")
    release = hm.mean_of_user_means([1.0], epsilon=1.0, delta=1e-5, mechanism=mechanism)
    assert release.n_users is None
    for bad in (0, 1.5, True):
        with pytest.raises(hm.InputError, match="users must be a whole number"):
            SmoothSensitivity(threshold=1.0, radius=1.0, users=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize("means", [np.full((3, 2), np.nan), np.full((3, 2), 1e308), np.zeros((1, 2))])
def test_any_data_is_answered(relation: Neighbors, means: Any) -> None:
    release = hm.mean_of_user_means(
        means,
        epsilon=1e-3,
        delta=1e-9,
        mechanism="smooth-sensitivity",
        threshold=1e-3,
        radius=1e6,
        neighbors=relation,
    )
    assert all(math.isfinite(value) for value in release.values)


@pytest.mark.parametrize("mechanism", ["smooth-sensitivity", "inverse-sensitivity"])
@pytest.mark.parametrize("shape", [(0,), (0, 1), (0, 2)])
def test_nobody_at_all_is_answered_where_n_is_private(shape: tuple[int, ...], mechanism: str) -> None:
    """A refusal would tell that the only user is not there."""
    release = hm.mean_of_user_means(
        np.zeros(shape),
        epsilon=1.0,
        delta=1e-6,
        neighbors="add-remove",
        mechanism=mechanism,
        threshold=np.float32(1),
        radius=np.int64(10),
    )
    assert all(abs(value) <= 10.0 * (1 + 1e-12) for value in release.values)


@pytest.mark.parametrize("epsilon", [1e-9, 1e9])
def test_extreme_budgets_either_work_or_are_refused_from_public_numbers(epsilon: float) -> None:
    for means in (np.zeros(40), np.linspace(-9, 9, 40)):
        release = hm.mean_of_user_means(
            means, epsilon=epsilon, delta=1e-6, mechanism="smooth-sensitivity", threshold=1.0, radius=5.0
        )
        assert math.isfinite(release.values[0])


def errors(means: Any, *, threshold: float, radius: float, runs: int, **request: Any) -> Any:
    """|release - plain mean| per run, with seeded noise."""
    table = UserTable.from_means(means)
    asked = Request(
        columns=table.columns,
        epsilon=request.pop("epsilon", 1.0),
        delta=1e-5,
        neighbors=Neighbors.parse(request.pop("neighbors", "replace-user")),
        per="user",
    )
    mechanism = SmoothSensitivity(threshold=threshold, radius=radius, **request)
    plain = np.asarray(means).reshape(len(means), -1).mean(axis=0)
    out = []
    for seed in range(runs):
        release = release_user_table(table, asked, mechanism, InsecureSeededNoise(seed))
        out.append(np.linalg.norm(np.subtract(release.values, plain)))
    return np.array(out)


def test_a_huge_threshold_and_many_users_give_the_plain_mean() -> None:
    means = np.random.default_rng(1).uniform(0.0, 1.0, 200_000)
    assert errors(means, threshold=100.0, radius=100.0, runs=3, epsilon=10.0).max() < 1e-3


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("d", [1, 3])
def test_noise_is_small_beside_sampling_at_ten_thousand_users(neighbors: str, d: int) -> None:
    """Light tails: the mean squared error of the privacy is below that of the sample itself, d/n."""
    n = 10_000
    means = np.random.default_rng(2).normal(3.0, 1.0, (n, d))
    found = errors(means, threshold=3.0 + math.sqrt(d), radius=20.0, runs=20, neighbors=neighbors)
    assert float(np.mean(found**2)) < 1.0 * d / n


def test_hostile_users_move_the_answer_by_a_bounded_amount() -> None:
    """100 of 10,000 users at 1e12 move it by the threshold each: 0.01 T in all, not 1e10."""
    means = np.random.default_rng(3).normal(0.0, 1.0, 10_000)
    means[:100] = 1e12
    request = Request(
        columns=("mean",), epsilon=1.0, delta=1e-5, neighbors=Neighbors.REPLACE_USER, per="user"
    )
    table = UserTable.from_means(means)
    release = release_user_table(
        table, request, SmoothSensitivity(threshold=4.0, radius=50.0), InsecureSeededNoise(0)
    )
    assert abs(release.values[0]) < 0.1


def test_add_remove_never_uses_the_true_number_of_users() -> None:
    request = Request(columns=("mean",), epsilon=1.0, delta=1e-5, neighbors=Neighbors.ADD_REMOVE, per="user")
    few, many = (
        SmoothSensitivity(threshold=1.0, radius=5.0).prepare(
            request, PublicFacts.of(UserTable.from_means(np.zeros(n)), request.neighbors)
        )
        for n in (3, 5000)
    )
    assert few == many


def test_what_is_prepared_holds_no_noise_scale() -> None:
    """The scale is private; what prints of a prepared mechanism is the same for all data sets of a size."""
    request = Request(
        columns=("mean",), epsilon=1.0, delta=1e-5, neighbors=Neighbors.REPLACE_USER, per="user"
    )
    texts = set()
    for means in (np.zeros(50), np.linspace(-100, 100, 50)):
        table = UserTable.from_means(means)
        prepared = SmoothSensitivity(threshold=1.0, radius=5.0).prepare(
            request, PublicFacts.of(table, request.neighbors)
        )
        outcome = prepared.run(table, InsecureSeededNoise(0))
        texts.add((repr(prepared), str(outcome.parameters), str([f.name for f in fields(outcome)])))
    assert len(texts) == 1
