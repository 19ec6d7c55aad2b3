"""Groups and counts on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hubermean.cli.app import app

GIVEN = ["t.parquet", "--user", "rider", "--epsilon", "2"]
MEAN = ["release", *GIVEN, "--value", "fare", "--bounds", "0", "30", "--per", "user"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "rider": np.arange(4_000),
            "city": rng.choice(["Bern", "Zug"], 4_000),
            "year": rng.integers(2000, 2003, 4_000),
            "fare": rng.uniform(5, 25, 4_000),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "keys.csv").write_text("year,city\n2000,Bern\n2001,Zug\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "100", "TERM": "dumb"})

    return invoke


def test_a_table_of_groups(run: Any) -> None:
    shown = run(*MEAN, "--by", "city", "--key", "Zug", "--key", "Bern")
    assert shown.exit_code == 0, shown.output
    assert "Zug" in shown.output
    assert shown.output.count("●") == 2
    assert "Mean fare by city   (mean of user means; 2 groups, public)" in shown.output
    assert "in all groups" in " ".join(shown.output.split())
    assert "users" in shown.output.split("Zug")[0]


def test_machines_and_pipes(run: Any) -> None:
    made = json.loads(run(*MEAN, "--by", "city", "--delta", "1e-6", "--json").stdout)
    assert [row["city"] for row in made["rows"]] == ["Bern", "Zug"]
    assert made["public_keys"] is False
    lines = run(*MEAN, "--by", "city", "--key", "Zug", "--quiet").stdout.splitlines()
    assert len(lines) == 1
    key, value = lines[0].split("\t")
    assert key == "Zug"
    assert 5 < float(value) < 25


def test_public_groups_from_a_file(run: Any) -> None:
    made = json.loads(run(*MEAN, "--by", "year", "--by", "city", "--keys", "keys.csv", "--json").stdout)
    assert {(row["year"], row["city"]) for row in made["rows"]} == {("2000", "Bern"), ("2001", "Zug")}


def test_a_report_of_groups(run: Any, tmp_path: Path) -> None:
    shown = run(*MEAN, "--by", "city", "--key", "Zug", "--key", "Bern", "--report", "out.html")
    assert shown.exit_code == 0, shown.output
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "Private mean of fare by city" in page
    assert "Zug" in page
    assert "<svg" in page


def test_counts(run: Any, tmp_path: Path) -> None:
    assert abs(float(run("count", *GIVEN, "--quiet").stdout) - 4_000) < 30
    shown = run("count", *GIVEN, "--by", "city", "--delta", "1e-6", "--report", "out.html")
    assert shown.exit_code == 0, shown.output
    assert "Number of users by city" in shown.output
    assert "Private count of users by city" in (tmp_path / "out.html").read_text(encoding="utf-8")
    made = json.loads(run("count", *GIVEN, "--of", "records", "--max-records", "2", "--json").stdout)
    assert made["statistic"] == "count"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "city"], "give --delta, or --keys"),
        (["--key", "Zug"], "give --by as well"),
        (["--by", "city", "--key", "Zug", "--keys", "keys.csv"], "not both"),
        (["--by", "city", "--by", "year", "--key", "Zug"], "with --keys"),
        (["--by", "city", "--keys", "nowhere.csv"], "no file nowhere.csv"),
        (["--by", "city", "--by", "town", "--keys", "keys.csv"], "the columns city, town and no other"),
        (["--by", "fare", "--key", "1"], "both value and by"),
        (["--by", "year", "--key", "x"], "cannot be a value of column"),
        (["--by", "city", "--key", "Zug", "--max-groups", "0"], "--max-groups must be"),
        (["--max-groups", "2"], "--by"),
        (["--by", "year", "--keys", "t.parquet"], "cannot define which groups are public"),
    ],
)
def test_bad_groups_get_one_sentence(
    run: Any,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hubermean.cli import app as module

    monkeypatch.setattr("sys.argv", ["hubermean", *MEAN, *arguments])
    with pytest.raises(SystemExit) as stop:
        module.main()
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1


def test_groups_that_are_all_refused_exit_as_one_would(run: Any) -> None:
    hard = [
        "--mechanism",
        "propose-test-release",
        "--delta",
        "1e-6",
        "--threshold",
        "0.001",
        "--radius",
        "1000",
        "--per",
        "user",
        "--max-groups",
        "1",
    ]
    given = ["release", *GIVEN, "--value", "fare", "--by", "city", "--key", "Zug", "--key", "Rom", *hard]
    shown = run(*given, "--json")
    assert shown.exit_code == 1, shown.output
    assert json.loads(shown.stdout)["released"] is False


def test_no_group_with_enough_users_is_told(run: Any, tmp_path: Path) -> None:
    shown = run(*MEAN, "--by", "city", "--delta", "1e-6", "--max-groups", "1000", "--report", "out.html")
    assert shown.exit_code == 0
    assert "none has enough users" in " ".join(shown.output.split())
    assert "No group has enough users" in (tmp_path / "out.html").read_text(encoding="utf-8")
