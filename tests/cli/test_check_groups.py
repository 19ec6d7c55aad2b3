"""`hubermean check --by`, which is not private: how users spread over groups, and what a release would clip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hubermean as hm
from hubermean.cli.app import app

USUAL = ["check", "t.parquet", "--user", "rider", "--value", "fare", "--by"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """3,000 riders in one city each, and 1,000 in two; fares in Zug are larger, with a long tail."""
    rng = np.random.default_rng(1)
    riders = np.concatenate([np.arange(3_000), np.arange(1_000)])
    cities = np.concatenate([rng.choice(["Bern", "Genf", "Zug"], 3_000), np.repeat("Rom", 1_000)])
    fares = np.where(cities == "Zug", 10 * rng.lognormal(3, 2, 4_000), rng.uniform(5, 25, 4_000))
    table = {"rider": riders, "city": cities, "fare": fares, "day": np.datetime64("2024-01-15") + riders % 60}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"})

    return invoke


def test_the_owner_sees_how_users_spread_over_groups(run: Any, tmp_path: Path) -> None:
    made = json.loads(run(*USUAL, "city", "--json").stdout)
    assert made["private"] is False
    (trial,) = made["groups"]
    frame = pq.read_table(tmp_path / "t.parquet").to_pandas()
    users = frame.groupby("city").rider.nunique()
    groups = {group["keys"][0]: group for group in trial["groups"]}
    assert {name: group["users"] for name, group in groups.items()} == users.to_dict()
    means = frame.groupby("city").fare.mean()
    for name, group in groups.items():
        assert group["mean"] == pytest.approx(means[name], rel=1e-6)
        assert 0 <= group["clipped_users"] <= group["users"]
    assert trial["groups_per_user"] == [1, 1, 2, 2, 2]
    assert [name for name, group in groups.items() if group["differs"]] == ["Zug"]
    assert groups["Zug"]["clipped_mean"] < groups["Zug"]["mean"]
    order = [group["mean"] for group in trial["groups"]]
    assert order == sorted(order, reverse=True)


def test_it_fits_a_terminal_and_says_that_it_is_not_private(run: Any) -> None:
    shown = run(*USUAL, "city")
    assert shown.exit_code == 0, shown.output
    assert "NOT PRIVATE" in shown.output
    words = " ".join(shown.output.split())
    assert "What a release of fare by group would clip" in words
    assert "differs" in words
    tables = [line for line in shown.output.splitlines() if line.startswith(("│", "╭"))]
    assert max(map(len, tables)) <= 80


def test_periods_are_in_time_order(run: Any) -> None:
    (trial,) = json.loads(run(*USUAL, "month(day)", "--json").stdout)["groups"]
    assert [group["keys"][0] for group in trial["groups"]] == ["2024-01", "2024-02", "2024-03"]


def test_groups_need_users_and_values(run: Any) -> None:
    refused = run("check", "t.parquet", "--by", "city")
    assert isinstance(refused.exception, hm.InputError)


def test_a_dry_run_names_the_groups(run: Any) -> None:
    release = ["release", "t.parquet", "--user", "rider", "--value", "fare", "--epsilon", "1", "--dry-run"]
    public = " ".join(run(*release, "--by", "city", "--key", "Bern", "--key", "Zug").output.split())
    assert "by city; 2 public groups" in public
    private = json.loads(run(*release, "--by", "city", "--delta", "1e-6", "--json").stdout)
    assert (private["by"], private["groups"]) == (["city"], None)
    assert any("users for a group to appear" in need for need in private["needs"])
    without = json.loads(run(*release, "--json").stdout)
    assert without["by"] == []
