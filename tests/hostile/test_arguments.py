"""What fuzzing found in arguments and in what is shown, each as it was found."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hubermean as hm
from hubermean import _api as api
from hubermean.cli.app import app
from hubermean.cli.output import deliver
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.report.page import page


class NoNoise(InsecureSeededNoise):
    """The weight that is measured is then the true one: none."""

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        return [0] * size


@pytest.mark.parametrize("relation", ["replace-user", "replace-values", "add-remove"])
def test_a_search_that_measures_no_weight_is_a_refusal_that_states_its_cost(
    relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "SystemNoise", lambda: NoNoise(0))
    unusable = np.full(800, np.nan)
    known = {"threshold": 2, "radius": 100, "mechanism": "adaptive"}
    with pytest.raises(hm.NotReleased) as caught:
        hm.mean_of_user_means(unusable, epsilon=100, neighbors=relation, **known)
    assert caught.value.epsilon <= 100


@pytest.mark.parametrize("odd", [np.array([[0.0, 1.0]]), np.array(["a", "b"]), [], {}])
def test_words_that_are_no_words_are_refused(odd: Any) -> None:
    trips = pa.table({"u": [1, 2], "v": [1.0, 2.0]})
    for name in ("per", "non_finite", "neighbors", "mechanism"):
        with pytest.raises(hm.HubermeanError, match="must be"):
            hm.mean(trips, user="u", value="v", epsilon=1, **{name: odd})
    with pytest.raises(hm.HubermeanError, match="of must be"):
        hm.count(trips, user="u", epsilon=1, of=odd)


def test_bare_keys_hold_no_control_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data.csv"
    path.write_text("u,v\n" + "".join(f"{user},a\x1b[31mb\n" for user in range(500)))
    options = {"user": "u", "by": "v", "keys": ["a\x1b[31mb"], "epsilon": 1}
    made = hm.count(path, **options)  # type: ignore[call-overload]
    deliver(made, destination=None, source="", lost=[], as_json=False, quiet=True, verbose=False)
    printed = capsys.readouterr().out
    assert printed.startswith("a\ufffd[31mb\t")


@pytest.mark.parametrize("huge", [10**400, Fraction(10**400, 3)])
@pytest.mark.parametrize(
    "name", ["threshold", "radius", "scale", "bounds", "epsilon", "hostile", "resolution"]
)
def test_numbers_beyond_all_floats_are_refused(name: str, huge: Any) -> None:
    given = {"epsilon": 1, "max_records": 2, name: (0, huge) if name == "bounds" else huge}
    for mechanism in ("auto", "inverse-sensitivity", "adaptive"):
        with pytest.raises(hm.HubermeanError):
            hm.mean(pa.table({"u": [1], "v": [1.0]}), user="u", value="v", mechanism=mechanism, **given)


def test_a_group_without_an_interval_among_others_can_be_written() -> None:
    """As where some groups were released by a mechanism that offers none."""

    class Ends:
        covers = "noise"

        def ends(self, level: float) -> tuple[Any, Any]:
            return np.array([[math.nan], [1.0]]), np.array([[math.nan], [3.0]])

    trips = pa.table({"u": [1, 2], "v": [1.0, 2.0], "g": ["a", "b"]})
    table = hm.mean(
        trips,
        user="u",
        value="v",
        epsilon=1,
        by="g",
        keys=["a", "b"],
        bounds=(0, 4),
        per="user",
        max_groups=1,
    )
    mixed = replace(table, intervals=Ends())
    rows = json.loads(mixed.to_json())["rows"]
    assert [row["interval"] and row["interval"]["low"] for row in rows] == [None, 1.0]
    assert "nan" not in repr(mixed).lower()
    assert "nan" not in page(mixed).lower()


def test_names_of_files_and_columns_reach_a_terminal_without_control_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a\x1b[31mb\u202e"
    pq.write_table(pa.table({"u": [1, 2], name: [1.0, 2.0]}), "data.parquet")
    columns = ["data.parquet", "--user", "u", "--value", name]
    release = ["release", *columns, "--epsilon", "1", "--bounds", "0", "5", "--max-records", "1"]
    for words in (["check", *columns], [*release, "--report", f"{name}.html"]):
        result = CliRunner().invoke(app, words, color=True)
        assert result.exit_code == 0
        assert "\x1b[31mb" not in result.output
        assert "\u202e" not in result.output
