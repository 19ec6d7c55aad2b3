"""Plans for groups: predicted errors by the size of a group, from public numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import hubermean as hm
from hubermean.accounting.gaussian import gaussian_delta
from hubermean.cli.app import app
from hubermean.planning.group_noise import predict_group_noise, users_to_appear
from hubermean.types.request import Neighbors


def noise(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "n_users": 10_000,
        "groups": 12,
        "groups_per_user": 1,
        "epsilon": 1.0,
        "delta": 0.0,
        "neighbors": Neighbors.ADD_REMOVE,
        "public_keys": True,
    }
    return predict_group_noise(**given | changes)


def test_the_error_is_noise_and_sampling() -> None:
    plan = hm.plan(n_users=10_000, epsilon=1, groups=12, groups_per_user=3, scale=7.0)
    assert plan.average.users == 2_500
    for row in plan.rows:
        assert row.error == pytest.approx(math.hypot(row.noise, 7.0 / math.sqrt(row.users)))
        assert row.over_non_private == pytest.approx(row.error * math.sqrt(row.users) / 7.0)
        assert row.appears is None
    errors = [row.error for row in plan.rows]
    assert errors == sorted(errors, reverse=True), "larger groups have smaller errors"
    assert plan.users_for_a_group is None


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_more_groups_per_user_need_more_noise_and_less_than_by_composition(delta: float) -> None:
    each = [noise(groups=100, groups_per_user=number, delta=delta).sums for number in (1, 4, 16, 64)]
    assert each == sorted(each)
    assert each[-1] < 64 * each[0]
    if delta:
        assert each[-1] < 16 * each[0], "the norm of a row grows with the square root of its length"


def test_gaussian_noise_is_calibrated_to_the_bound_on_rows() -> None:
    found = noise(groups=100, groups_per_user=50, delta=1e-6)
    assert found.kind == "Gaussian"
    squared = ((math.sqrt(50) + 2.0) / found.sums) ** 2 + (math.sqrt(50) / found.users) ** 2
    assert gaussian_delta(0.55, alpha=math.sqrt(squared) * (1 - 1e-9)) <= 1e-6
    assert gaussian_delta(0.55, alpha=math.sqrt(squared) * 1.01) > 1e-6


def test_replacing_a_user_doubles_the_noise() -> None:
    for delta in (0.0, 1e-6):
        one, two = (
            noise(groups=100, groups_per_user=50, neighbors=one, delta=delta)
            for one in (Neighbors.ADD_REMOVE, Neighbors.REPLACE_USER)
        )
        assert two.sums == pytest.approx(2 * one.sums)


def test_private_keys_cost_budget_and_small_groups_do_not_appear() -> None:
    public = hm.plan(n_users=5_000, epsilon=1, delta=1e-6, groups=50)
    private = hm.plan(n_users=5_000, epsilon=1, delta=1e-6, groups=50, private_keys=True)
    assert private.average.error > public.average.error
    chances = [row.appears for row in private.rows]
    assert chances == sorted(chances)  # type: ignore[type-var]
    least = private.users_for_a_group
    assert least is not None
    appears = noise(n_users=5_000, groups=50, delta=1e-6, public_keys=False).appears
    assert appears(least) >= 0.5 > appears(least - 1)
    assert users_to_appear(appears) == least
    spread = noise(groups=1_000, groups_per_user=100, delta=1e-6, public_keys=False).appears
    assert spread(1) <= 1e-6 / 100
    assert users_to_appear(spread) < 100 * least


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-user"])
def test_predictions_are_near_what_releases_show(neighbors: str) -> None:
    """Of users in one group each, whose values are normal: within half, of twelve releases."""
    rng = np.random.default_rng(3)
    group, values = rng.integers(0, 12, 10_000), rng.normal(0, 1, 10_000)
    data = pa.table({"u": np.arange(10_000), "g": group, "v": values})
    true = np.array([values[group == number].mean() for number in range(12)])
    given: dict[str, Any] = {"epsilon": 1, "neighbors": neighbors}
    errors = [
        hm.mean(data, user="u", value="v", by="g", keys=range(12), per="user", max_groups=1, **given).values[
            :, 0
        ]
        - true
        for _ in range(12)
    ]
    measured = float(np.sqrt(np.mean(np.square(errors))))
    predicted = hm.plan(n_users=10_000, groups=12, **given).average.noise
    assert 0.5 < measured / predicted < 1.5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"groups": 0}, "groups"),
        ({"groups": 5, "groups_per_user": 6}, "no more than there are groups"),
        ({"groups": 5, "private_keys": True}, "needs delta > 0"),
        ({"groups": 5, "bounds": (0, 1)}, "leave out bounds"),
        ({"groups": 5, "columns": 2}, "leave out columns"),
        ({"groups_per_user": 2}, "need groups"),
        ({"private_keys": True}, "need groups"),
        ({"groups": 5, "epsilon": -1}, "epsilon"),
    ],
)
def test_bad_numbers_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(hm.InputError, match=words):
        hm.plan(**{"n_users": 100, "epsilon": 1, **given})


def test_a_plan_for_groups_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["plan", "--n-users", "5000", "--epsilon", "1", "--delta", "1e-6", "--groups", "50"]
    environment = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    shown = CliRunner().invoke(app, [*given, "--private-keys", "--plot", "plan.png"], env=environment)
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "appears" in shown.stdout
    assert (tmp_path / "plan.png").stat().st_size > 1_000
    made = json.loads(CliRunner().invoke(app, [*given, "--json"], env=environment).stdout)
    assert (made["groups"], made["users_per_group"], made["public_keys"]) == (50, 100, True)
    plan = hm.plan(n_users=5_000, epsilon=1, delta=1e-6, groups=50)
    assert made == plan.to_dict()
    quiet = CliRunner().invoke(app, [*given, "--quiet"], env=environment).stdout
    assert float(quiet) == pytest.approx(plan.average.error, rel=1e-5)
    assert max(map(len, repr(plan).splitlines())) <= 80
    assert "<table>" in plan._repr_html_()
