"""`plan`: a comparison from public numbers, in Python and on the command line, with no data anywhere."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hubermean as hm
from helpers.public_numbers import facts, request
from hubermean.cli.app import app
from hubermean.mechanisms.registry import Auto
from hubermean.types.options import PublicParameters
from hubermean.types.request import PLANNED_USERS, Neighbors

NAMES = {
    "clipped",
    "inverse-sensitivity",
    "propose-test-release",
    "smooth-sensitivity",
    "adaptive",
    "winsorized",
}


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-user"])
def test_every_mechanism_has_a_row(neighbors: str) -> None:
    plan = hm.plan(n_users=10_000, epsilon=1, delta=1e-5, columns=3, bounds=(-5, 5), neighbors=neighbors)
    assert {row.mechanism for row in plan.rows} == NAMES
    assert plan.rows[0] is plan.best
    for row in plan.rows:
        if row.mechanism == "winsorized" and neighbors == "add-remove":
            assert "which 'add-remove' keeps private" in str(row.reason)
            continue
        assert row.reason is None
        assert len(row.noise) == 3
        assert row.error**2 == pytest.approx(1e-4 + sum(noise**2 for noise in row.noise) / 3)
        assert row.over_non_private == pytest.approx(row.error / 0.01)
    layouts = {row.mechanism: row.layout for row in plan.rows}
    assert (layouts["inverse-sensitivity"], layouts["propose-test-release"]) == ("column by column", "joint")


def test_what_cannot_serve_says_why() -> None:
    plan = hm.plan(n_users=100, epsilon=1)
    reasons = {row.mechanism: row.reason for row in plan.rows}
    assert "bounds" in str(reasons["clipped"])
    assert "delta" in str(reasons["propose-test-release"])
    assert reasons["inverse-sensitivity"] is None
    assert [row.reason is not None for row in plan.rows] == sorted(
        row.reason is not None for row in plan.rows
    )
    few = hm.plan(n_users=20, epsilon=1e-6, neighbors="add-remove")
    assert few.best is None
    assert "'auto' would refuse" in repr(few)


def test_default_thresholds_follow_the_scale() -> None:
    thresholds = {
        row.mechanism: row.threshold for row in hm.plan(n_users=9, epsilon=1, columns=4, scale=10).rows
    }
    assert (thresholds["inverse-sensitivity"], thresholds["propose-test-release"], thresholds["clipped"]) == (
        30.0,
        60.0,
        None,
    )
    given = hm.plan(n_users=9, epsilon=1, columns=4, scale=10, threshold=7)
    assert {row.threshold for row in given.rows} == {7.0, None}


@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE_USER])
@pytest.mark.parametrize("n_users", [100, 1000, 100_000])
@pytest.mark.parametrize("columns", [1, 3, 20])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_best_row_is_what_auto_would_choose(
    n_users: int, columns: int, delta: float, relation: Neighbors
) -> None:
    """Where the number of users is private, `auto` goes by the estimate that it is given."""
    plan = hm.plan(
        n_users=n_users,
        epsilon=1,
        delta=delta,
        columns=columns,
        threshold=3,
        radius=100,
        neighbors=relation,
    )
    wanted = request(columns, delta=delta, relation=relation)
    estimate = None if relation.users_are_public else n_users
    parameters = PublicParameters(threshold=3.0, radius=100.0, n_users=estimate)
    public = replace(facts(wanted, n_users), planned_users=PLANNED_USERS)
    auto = Auto.from_parameters(parameters).prepare(wanted, public)
    assert plan.best is not None
    assert plan.best.mechanism == auto.mechanism
    assert plan.best.noise == pytest.approx(auto.predicted_noise())


@pytest.mark.parametrize(
    ("given", "best"),
    [
        ({}, "adaptive"),
        ({"threshold": 3.0}, "adaptive"),
        ({"radius": 100.0}, "adaptive"),
        ({"bounds": (-5.0, 5.0)}, "clipped"),
        ({"threshold": 3.0, "radius": 100.0}, "inverse-sensitivity"),
    ],
)
@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE_USER])
def test_what_is_assumed_for_a_row_is_not_given_to_auto(
    given: dict[str, Any], best: str, relation: Neighbors
) -> None:
    plan = hm.plan(n_users=5000, epsilon=1, neighbors=relation, **given)
    wanted = request(1, delta=0.0, relation=relation)
    public = replace(facts(wanted, 5000), planned_users=5000)
    auto = Auto.from_parameters(PublicParameters(**given)).prepare(wanted, public)
    assert plan.best is not None
    assert (auto.mechanism, plan.best.mechanism) == (best, best)
    assumed = sum(name not in given for name in ("threshold", "radius"))
    assert ("as if you knew them" in repr(plan)) == (assumed > 0)


def test_scale_is_a_unit() -> None:
    """Everything in units of the scale gives the same comparison."""
    one = hm.plan(n_users=2000, epsilon=1, delta=1e-6, columns=2)
    thousand = hm.plan(n_users=2000, epsilon=1, delta=1e-6, columns=2, scale=1000)
    for row, other in zip(one.rows, thousand.rows, strict=True):
        assert (row.mechanism, row.reason) == (other.mechanism, other.reason)
        if row.reason is None:
            assert row.over_non_private == pytest.approx(other.over_non_private, rel=1e-3)


@pytest.mark.parametrize("neighbors", ["replace-user", "replace-values", "add-remove"])
def test_records_and_relations(neighbors: str) -> None:
    plan = hm.plan(
        n_users=5000, epsilon=1, delta=1e-6, per="record", max_records=10, neighbors=neighbors, bounds=(0, 6)
    )
    assert plan.best is not None
    by_user = hm.plan(n_users=5000, epsilon=1, delta=1e-6, neighbors=neighbors, bounds=(0, 6))
    assert by_user.best is not None
    ratio = plan.best.noise[0] / by_user.best.noise[0]
    assert ratio == pytest.approx(1.0 if neighbors == "replace-values" else 2.0, rel=0.05)


def test_a_plan_takes_no_data() -> None:
    assert not {"data", "means", "user", "value"} & set(inspect.signature(hm.plan).parameters)
    # Nothing that could read data is imported by it.
    code = (
        "import sys, hubermean as hm; hm.plan(n_users=500, epsilon=1, delta=1e-6); "
        "print([name for name in ('duckdb', 'pyarrow', 'narwhals', 'opendp', 'matplotlib') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def test_wide_data_have_one_row_more() -> None:
    """With more error predicted where the noise is larger, and least users named where they are too few."""
    rows = {row.mechanism: row for row in hm.plan(n_users=10_000, epsilon=1, delta=1e-6, columns=1000).rows}
    assert set(rows) == {*NAMES, "norm-clipping"}
    assert rows["norm-clipping"].over_non_private == pytest.approx(1.8, rel=0.1)
    assert rows["norm-clipping"].noise[0] < 0.7 * rows["propose-test-release"].noise[0]
    few = hm.plan(n_users=100, epsilon=1, delta=1e-6, columns=1000).rows
    assert "needs about 816 users" in str(next(row.reason for row in few if row.mechanism == "norm-clipping"))


def test_renderings_agree() -> None:
    plan = hm.plan(n_users=10_000, epsilon=1, delta=1e-5, columns=20, threshold=13.4, radius=1e6)
    plain = json.loads(plan.to_json())
    assert plain["best"] == "propose-test-release"
    assert {row["mechanism"] for row in plain["rows"]} == NAMES
    refused = next(row for row in plain["rows"] if row["mechanism"] == "clipped")
    assert refused["predicted_error"] is None
    assert refused["reason"]
    for text in (repr(plan), plan._repr_html_()):
        assert "→ propose-test-release" in text
        assert "10,000 users, 20 columns" in text
        assert all(name in text for name in NAMES)
    assert "<table>" in plan._repr_html_()
    assert max(len(line) for line in repr(plan).splitlines() if not line.startswith("hm.mean")) <= 110


def test_the_code_that_a_plan_suggests_works() -> None:
    import numpy as np
    import pyarrow as pa

    plan = hm.plan(n_users=1000, epsilon=1, delta=1e-5, columns=3, neighbors="add-remove")
    code = (
        repr(plan)
        .splitlines()[-1]
        .replace("user=...", "user='u'")
        .replace("value=...", "value=['a', 'b', 'c']")
    )
    values = np.random.default_rng(1).normal(size=(1000, 3))
    data = pa.table({"u": range(1000), "a": values[:, 0], "b": values[:, 1], "c": values[:, 2]})
    release = eval(code, {"hm": hm, "data": data})
    assert release.mechanism == plan.best.mechanism


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_figure_is_written(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"plan.{kind}"
    drawn = hm.plan(n_users=3000, epsilon=1, bounds=(-5, 5), neighbors="replace-user").plot(path)
    assert path.stat().st_size > 5000
    (axes,) = drawn.axes
    assert axes.get_xlabel() == "number of users"
    labels = {text.get_text().split(" ")[0] for text in axes.get_legend().get_texts()}
    assert labels == {"clipped", "inverse-sensitivity", "adaptive", "winsorized"}


def test_a_figure_without_matplotlib_or_a_folder_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = hm.plan(n_users=3000, epsilon=1)
    for path in (tmp_path / "no" / "plan.png", tmp_path / "plan.nonsense"):
        with pytest.raises(hm.InputError, match="cannot be written"):
            plan.plot(path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(hm.InputError, match=r"hubermean\[plot\]"):
        plan.plot()


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("width", [80, 120])
def test_the_command_for_people(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    known = ("--threshold", "13.4", "--radius", "1e6")
    shown = invoke("--n-users", "10000", "--epsilon", "1", "--delta", "1e-5", "--columns", "20", *known)
    assert "→ propose-test-release" in shown
    assert "█" in shown
    assert "…" not in shown, "a cell was cut off"
    lines = shown.splitlines()
    assert max(len(line) for line in lines[:-1]) <= width
    assert lines[-1].startswith("hubermean release FILE --user USER --value VALUE --epsilon 1 --delta 1e-05")


def test_the_command_for_machines_and_its_figure(tmp_path: Path) -> None:
    figure = tmp_path / "plan.png"
    shown = json.loads(
        invoke("--n-users", "500", "--epsilon", "1", "--bounds", "0", "5", "--json", "--plot", str(figure))
    )
    assert shown["best"] == "clipped"
    assert shown["n_users"] == 500
    assert figure.read_bytes().startswith(b"\x89PNG")


BAD_INPUT = {
    "no users": (["--n-users", "0"], "n_users must be"),
    "too many users": (["--n-users", "9" * 15], "n_users may be"),
    "epsilon": (["--epsilon", "-1"], "epsilon must be"),
    "delta": (["--delta", "1"], "delta must be"),
    "columns": (["--columns", "0"], "columns must be"),
    "scale": (["--scale", "nan"], "scale must be"),
    "threshold": (["--threshold", "-3"], "threshold must be"),
    "radius": (["--radius", "inf"], "radius must be"),
    "bounds": (["--bounds", "5", "1"], "low < high"),
    "neighbors": (["--neighbors", "none"], "neighbors must be"),
    "per": (["--per", "row"], "per must be"),
    "no cap": (["--per", "record"], "give max_records"),
    "a cap too many": (["--max-records", "3"], "leave it out"),
    "figure": (["--plot", "plan.nonsense"], "cannot be written"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_sentence(case: str) -> None:
    options, sentence = BAD_INPUT[case]
    result = CliRunner().invoke(app, ["plan", "--n-users", "100", "--epsilon", "1", *options])
    assert isinstance(result.exception, hm.InputError), result.output
    assert sentence in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.exception.exit_code == 2


def test_few_users_are_warned_by_the_number() -> None:
    """A radius of a million beside a few dozen users: the rare draw that goes astray counts."""
    wide, narrow = (hm.plan(n_users=50, epsilon=1, threshold=3, radius=radius).best for radius in (1e6, 10.0))
    assert wide is not None
    assert narrow is not None
    assert wide.error > 100 > 1 > narrow.error
    assert math.isfinite(wide.error)


def test_numbers_of_numpy_and_extremes_stay_valid_json() -> None:
    import numpy as np

    wide = hm.plan(
        n_users=np.int64(500), epsilon=1, bounds=np.array([0, 6]), per="record", max_records=np.int64(3)
    )
    assert json.loads(wide.to_json())["bounds"] == [0, 6]
    assert "max_records=3" in repr(wide)
    with pytest.raises(hm.InputError, match="scale must be a number"):
        hm.plan(n_users=500, epsilon=1, scale=1e308)
