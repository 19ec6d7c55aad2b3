"""The first screen: what a release, a count, a plan and an audit show first, and what becomes of a closed pipe."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hubermean as hm
from helpers.command_line import typed
from hubermean.cli import progress
from hubermean.cli.app import CLOSED_PIPE, app
from hubermean.cli.progress import show_progress
from hubermean.types.formatting import to_width
from hubermean.types.release import Release
from hubermean.types.request import Neighbors

PROGRAM = str(Path(sys.executable).with_name("hubermean"))
PLAIN = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
USUAL = ["trips.parquet", "--user", "rider", "--epsilon", "1"]
BOUNDS = ["--bounds", "0", "30", "--per", "user"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "rider": np.arange(2_000),
            "city": rng.choice([f"city {number:02d}" for number in range(30)], 2_000),
            "fare": rng.uniform(5, 25, 2_000),
            "tip": rng.uniform(0, 3, 2_000),
        }
    )
    pq.write_table(table, folder / "trips.parquet")
    return folder


COMMANDS = {
    "release": ["release", *USUAL, "--value", "fare", *BOUNDS],
    "several columns": ["release", *USUAL, "--value", "fare", "--value", "tip", *BOUNDS],
    "groups": ["release", *USUAL, "--value", "fare", *BOUNDS, "--by", "city", "--delta", "1e-3"],
    "count": ["count", *USUAL],
    "plan": ["plan", "--n-users", "5000", "--epsilon", "1"],
    "audit": ["audit", "--mechanism", "clipped", "--bounds", "0", "10", "--pairs", "20"],
    "demo": ["demo"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_shown_first_fits_on_a_screen(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 lines of 80 characters, but for commands to copy, which stay on one line."""
    monkeypatch.chdir(folder)
    shown = CliRunner().invoke(app, COMMANDS[name], env=PLAIN)
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.rstrip().splitlines()
    assert len(lines) <= 25, shown.stdout
    assert all(len(line) <= 80 for line in lines if "hubermean release" not in line), shown.stdout


def test_the_screen_of_a_release_is_what_was_designed() -> None:
    """Estimate, warning, interval, what it is based on, and the guarantee in plain English; nothing else."""
    from hubermean.types.release import Denominator, Interval

    class Rule:
        def at(self, level: float) -> Interval:
            covers = "noise, sampling and clipping"
            return Interval(level=level, low=(1_963_390.1,), high=(2_187_234.5,), covers=covers)

    release = Release(
        values=(2_071_234.123,),
        columns=("salary",),
        epsilon=1.0,
        delta=0.0,
        neighbors=Neighbors.ADD_REMOVE,
        mechanism="adaptive",
        per="record",
        n_users=None,
        parameters={"users_measured": 5_151, "scale": 1.0},
        budget_breakdown=(),
        interval_rule=Rule(),
        denominator=Denominator(value=26_431.0, low=25_400.0, high=27_400.0),
        warnings=("A few users carry a large part of the total. Consider reporting a median instead.",),
    )
    assert repr(release).splitlines() == [
        "Mean salary      2,071,000",
        "Warning          A few users carry a large part of the total. Consider",
        "                 reporting a median instead.",
        "95% interval     1,960,000 to 2,190,000   (noise, sampling and clipping)",
        "Based on         about 26,400 records from about 5,150 users",
        "Privacy          epsilon = 1 for each user. Adding or removing all of one",
        "                 user's records changes the probability of any result by at",
        "                 most a factor of 2.72.",
    ]
    assert dict(release.details)["scale"] == "1"
    assert release.to_dict()["value"] == 2_071_234.123


def test_details_are_shown_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    brief = CliRunner().invoke(app, COMMANDS["release"], env=PLAIN).stdout
    verbose = CliRunner().invoke(app, [*COMMANDS["release"], "--verbose"], env=PLAIN).stdout
    assert "noise scale of sum" not in brief
    assert "noise scale of sum" in verbose
    assert brief.rstrip().endswith("Details: --verbose   Report: --report page.html")
    refused = CliRunner().invoke(app, [*COMMANDS["release"], "--verbose", "--quiet"], env=PLAIN)
    assert isinstance(refused.exception, hm.InputError)


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (14.7249, 14.55, 15.02, ("14.725", "14.55", "15.02")),
        (14.7249, 14.5568, 15.0132, ("14.725", "14.55", "15.02")),
        (2_071_234.1, 1_963_390.1, 2_187_234.5, ("2,071,000", "1,960,000", "2,190,000")),
        (-0.00123, -0.0041, 0.0017, ("-0.00123", "-0.0041", "0.0017")),
        (5.0, -math.inf, 9.0, ("5", "-inf", "9")),
    ],
)
def test_digits_follow_the_interval_and_its_ends_are_rounded_outward(
    value: float, low: float, high: float, shown: tuple[str, str, str]
) -> None:
    assert to_width(value, low, high) == shown


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.7, 1.0, 2.0, 3.0, 7.7, 12.0, 19.9])
def test_the_factor_of_the_guarantee_is_never_too_small(epsilon: float) -> None:
    release = hm.mean_of_user_means([1.0], epsilon=epsilon, bounds=(0, 3))
    (factor,) = re.findall(r"factor of ([\d,.]+)\.", release.guarantee)
    assert np.exp(epsilon) <= float(factor.replace(",", "")) <= 1.01 * np.exp(epsilon)


# --- frames and figures -------------------------------------------------------------------------------------------


def test_a_release_is_a_frame_a_figure_and_a_page(tmp_path: Path) -> None:
    means = np.random.default_rng(1).uniform(1, 3, (500, 2))
    release = hm.mean_of_user_means(means, epsilon=1, bounds=[(0, 4), (0, 4)])
    frame = release.to_pandas()
    assert list(frame.columns) == ["column", "value", "interval_low", "interval_high", "users"]
    assert frame.value.tolist() == list(release.values)
    assert frame.interval_low[1] == release.interval()[1][0]  # type: ignore[index]
    assert release.to_polars().shape == (2, 5)
    assert release.to_arrow(0.5)["interval_low"][0].as_py() > frame.interval_low[0]
    figure = release.plot(tmp_path / "release.png")
    assert len(figure.axes) == 2
    assert (tmp_path / "release.png").stat().st_size > 1_000
    assert release.to_html(source="/home/ann/trips.csv").startswith("<!doctype html>")
    assert "ann" not in release.to_html(source="/home/ann/trips.csv")


def test_a_release_without_an_interval_has_all_forms(tmp_path: Path) -> None:
    release = hm.mean_of_user_means(
        np.zeros(400), epsilon=1, threshold=1, radius=9, mechanism="inverse-sensitivity"
    )
    assert release.interval() is None
    assert "none is available" in repr(release)
    assert release.to_pandas().interval_low.isna().all()
    release.plot(tmp_path / "release.svg")


def test_a_table_is_drawn_with_its_groups(tmp_path: Path) -> None:
    table = pa.table({"u": np.arange(90), "g": ["$a_b$", "<b>", "z"] * 30, "v": np.ones(90)})
    release = hm.mean(
        table, user="u", value="v", by="g", keys=["$a_b$", "<b>", "z"], epsilon=1, bounds=(0, 2), per="user"
    )
    figure = release.plot(tmp_path / "groups.png")
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert sorted(names) == sorted([r"\$a_b\$", "<b>", "z"])
    with pytest.raises(hm.InputError, match="cannot be written"):
        release.plot(tmp_path / "no" / "groups.png")
    assert release.to_html().startswith("<!doctype html>")


def test_groups_in_time_are_drawn_as_lines(tmp_path: Path) -> None:
    months = [f"2024-{month:02}" for month in range(1, 13)]
    data = pa.table({"u": np.arange(1_200), "g": months * 100, "v": np.tile(np.arange(12.0), 100)})
    known = {"user": "u", "value": "v", "by": "g", "epsilon": 50, "bounds": (0, 20), "per": "user"}
    release = hm.mean(data, keys=months[::-1], **known)
    figure = release.plot(tmp_path / "months.png")
    (line,) = figure.axes[0].lines
    assert list(line.get_xdata()) == sorted(line.get_xdata())
    assert list(line.get_ydata()) == pytest.approx(np.arange(12.0), abs=1.0)
    text = repr(release)
    shown = [row.split()[0] for row in text.splitlines() if row.startswith("2024-")]
    assert shown == months
    assert max(map(len, text.splitlines())) <= 80
    few = hm.mean(data, keys=months[:2], **known).plot()
    assert few.axes[0].get_yticklabels()


def test_nothing_that_is_paid_for_is_lost_on_a_terminal_without_unicode(tmp_path: Path) -> None:
    names = ["Zürich", "Bern"] * 500
    pq.write_table(
        pa.table({"u": np.arange(1_000), "g": names, "größe": np.ones(1_000)}), tmp_path / "t.parquet"
    )
    given = (
        "release t.parquet --user u --value größe --by g --epsilon 20 --delta 1e-3 --bounds 0 2 --per user"
    )
    shown = subprocess.run(
        [PROGRAM, *given.split()],
        capture_output=True,
        cwd=tmp_path,
        check=True,
        env={**os.environ, **PLAIN, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    text = shown.stdout.decode("ascii")
    assert "Z\\xfcrich" in text
    assert "Mean gr\\xf6\\xdfe by g" in text
    assert "|--" in text
    assert shown.stderr == b""


# --- closed pipes -------------------------------------------------------------------------------------------------


@pytest.mark.fair_sample(0.4)
@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS.values(),
        ["release", *USUAL, "--value", "fare", *BOUNDS, "--json"],
        ["release", *USUAL, "--value", "fare", *BOUNDS, "--quiet"],
        ["check", "trips.parquet"],
        ["release", "--help"],
        ["ledger", "init", "new.sqlite", "--dataset", "trips", "--epsilon", "1"],
        ["release", "nowhere.parquet", *USUAL[1:], "--value", "fare", "--json"],
    ],
    ids=lambda command: " ".join(command)[:60],
)
def test_a_closed_pipe_ends_a_command_quietly(command: list[str], folder: Path) -> None:
    (folder / "new.sqlite").unlink(missing_ok=True)
    read, write = os.pipe()
    os.close(read)  # nobody reads
    try:
        ended = subprocess.run(
            [PROGRAM, *command],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            check=False,
            env={**os.environ, **PLAIN},
        )
    finally:
        os.close(write)
    assert ended.returncode == CLOSED_PIPE, ended.stderr
    assert ended.stderr == ""


def test_a_report_is_written_even_if_nobody_reads_the_answer(folder: Path) -> None:
    """Its budget is spent: the page is what remains."""
    read, write = os.pipe()
    os.close(read)
    command = [PROGRAM, *COMMANDS["release"], "--report", "kept.html"]
    try:
        ended = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, cwd=folder, check=False)
    finally:
        os.close(write)
    assert ended.returncode == CLOSED_PIPE
    assert ended.stderr == b""
    assert (folder / "kept.html").read_text(encoding="utf-8").startswith("<!doctype html>")


# --- progress of audits -------------------------------------------------------------------------------------------


def test_an_audit_that_is_piped_reports_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with show_progress(hidden=False) as report:
        for pair in range(1, 101):
            now[0] = 0.5 * pair
            report(pair, pair / 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "compared 20 pairs, about 41 seconds left",
        "compared 40 pairs, about 31 seconds left",
        "compared 60 pairs, about 21 seconds left",
        "compared 80 pairs, about 11 seconds left",
    ]
    with show_progress(hidden=True) as report:
        now[0] = 900.0
        report(1, 0.5)
    assert capsys.readouterr().err == ""


# --- JSON -----------------------------------------------------------------------------------------------------------

NAMES = {
    *("released", "value", "columns", "epsilon", "delta", "neighbors", "mechanism", "per", "interval"),
    *("warnings", "parameters"),
}
"""Names of a release in JSON that other programs rely on."""


def printed(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the JSON that a command prints."""
    ended = typed(*words, "--json", cwd=folder)
    return ended.returncode, json.loads(ended.stdout)


def test_json_has_the_names_that_others_rely_on(folder: Path) -> None:
    code, one = printed(folder, *COMMANDS["release"])
    assert code == 0
    assert set(one) >= NAMES
    assert one["released"] is True
    assert isinstance(one["value"], float)
    assert set(one["interval"]) >= {"level", "low", "high", "covers"}
    assert isinstance(one["interval"]["low"], float)
    assert one["warnings"] == []
    _, two = printed(folder, *COMMANDS["several columns"])
    assert two["columns"] == ["fare", "tip"]
    assert len(two["value"]) == len(two["interval"]["low"]) == len(two["interval"]["high"]) == 2
    _, table = printed(folder, *COMMANDS["groups"])
    assert table["released"] is True
    assert isinstance(table["warnings"], list)  # noise may make a group too small to see
    for row in table["rows"]:
        assert set(row) >= (NAMES if row["released"] else {"released", "reason"}) | {"city"}
        assert row.get("warnings", []) == table["warnings"]


def test_json_keeps_all_digits(folder: Path) -> None:
    release = hm.mean(
        str(folder / "trips.parquet"), user="rider", value="fare", epsilon=1, bounds=(0, 30), per="user"
    )
    assert json.loads(release.to_json())["value"] == release.value
    assert f"{release.value!r}" not in repr(release)


def test_json_of_what_is_not_released_has_the_reason(folder: Path) -> None:
    code, refused = printed(folder, "release", "nowhere.parquet", *USUAL[1:], "--value", "fare")
    assert (code, refused["released"]) == (2, False)
    assert "no file" in refused["reason"]
    code, usage = printed(folder, "release", *USUAL)
    assert (code, usage["released"]) == (2, False)
    assert (
        usage["reason"]
        == "give --value (Column to average; repeat for several); see hubermean release --help"
    )
    few = ["release", "few.parquet", *USUAL[1:], "--value", "fare"]
    pq.write_table(pq.read_table(folder / "trips.parquet").slice(0, 20), folder / "few.parquet")
    code, failed = printed(folder, *few)
    assert (code, failed["released"]) == (1, False)
    assert failed["reason"]
