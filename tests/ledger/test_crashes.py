"""Killed at any statement, asked by a population: no value leaves without its charge, and no charge is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm
from helpers.ledger_asks import opened, small_file

TESTS = Path(__file__).parent.parent
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_file(tmp_path)


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def killed(place: str, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    opened(place, epsilon=1000.0)
    command = [sys.executable, str(TESTS / "helpers" / "kill_points.py"), place, str(data), *options]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **ONE_THREAD}
    )


def check_killed(place: str, data: Path, *options: str) -> dict[str, Any]:
    ended = killed(place, data, *options)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["sound"]
    assert found["costs_add_up"]
    assert found["statements"] > 800
    assert found["became"].get("missed", 0) <= max(1, 0.03 * found["killed"])
    crossed = {"_api", "cli/output", "ledger/ledger", "ledger/store", "mechanisms/clipped/mechanism"}
    assert crossed | {"release/charging", "release/path"} <= set(found["modules"])
    # Before the charge, after it, after the record: all were met.
    assert {"nothing", "charged", "recorded"} <= set(found["became"])
    return found


def test_a_release_that_is_killed_at_any_statement_leaves_no_value_without_a_charge(
    tmp_path: Path, data: Path
) -> None:
    """A sample of the statements after all imports, on SQLite; all of them, and PostgreSQL, below."""
    check_killed(str(tmp_path / "budget.sqlite"), data, "--loaded", "--every", "61")


def check_killed_refusal(place: str, data: Path, *options: str) -> dict[str, Any]:
    """Charged in full until the refusal is recorded, which gives back what was not used in the same moment."""
    ended = killed(place, data, "--refused", *options)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["sound"]
    assert found["costs_add_up"]
    # The number of users, 6% of 2^-10, rounded up; where noise makes it look like enough, the search for a scale too.
    assert set(found["each_keeps"]) in ({"0.0000585938"}, {"0.0000585938", "0.0004087990"})
    assert found["became"].get("missed", 0) <= max(1, 0.03 * found["killed"])
    crossed = {"release/charging", "ledger/ledger", "ledger/composition", "mechanisms/adaptive/mechanism"}
    assert crossed <= set(found["modules"])
    assert {"nothing", "charged", "refunded"} <= set(found["became"])
    return found


def test_a_refusal_that_is_killed_at_any_statement_is_given_back_as_a_whole_or_not_at_all(
    tmp_path: Path, data: Path
) -> None:
    """A sample of the statements from the charge on, on SQLite; all of them, and PostgreSQL, below."""
    check_killed_refusal(str(tmp_path / "budget.sqlite"), data, "--from-charge", "--every", "29")


@pytest.mark.slow
@pytest.mark.parametrize("run", ["first", "last"])
def test_a_refusal_is_killed_at_every_statement(place: str, data: Path, run: str) -> None:
    found = check_killed_refusal(place, data, *(["--last"] if run == "last" else []))
    assert found["killed"] == found["statements"]
    assert found["became"]["printed"] > 0


def test_the_kill_test_would_see_a_refund_before_the_refusal(tmp_path: Path, data: Path) -> None:
    ended = killed(
        str(tmp_path / "l.sqlite"), data, "--refused", "--from-charge", "--every", "200", "--refund-early"
    )
    assert ended.returncode != 0 or not json.loads(ended.stdout)["sound"]


@pytest.mark.slow
@pytest.mark.parametrize("run", ["first", "last"])
def test_a_release_is_killed_at_every_statement(place: str, data: Path, run: str) -> None:
    found = check_killed(place, data, *(["--last"] if run == "last" else []))
    assert found["killed"] == found["statements"]
    assert found["became"]["printed"] > 0


@pytest.mark.slow
def test_the_kill_test_would_see_a_late_charge(tmp_path: Path, data: Path) -> None:
    ended = killed(str(tmp_path / "l.sqlite"), data, "--every", "9", "--charge-late")
    assert ended.returncode != 0
    assert "a value left without a charge" in ended.stderr


# --- many at once -----------------------------------------------------------------------------------------------------


def population(
    place: str, folder: Path, processes: int, requests: int, *, total: int, kill: int = 0
) -> list[list[str]]:
    """What processes printed that asked a budget of `total` answers at once; the first `kill` of them get SIGKILL."""
    opened(place, epsilon=total * 0.125)
    printed = folder / "printed"
    printed.mkdir()
    command = [sys.executable, str(TESTS / "helpers" / "ledger_worker.py"), place, str(printed)]
    command += [str(processes), str(requests), "0.125", str(kill)]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=1200, env={**os.environ, **ONE_THREAD}
    )
    assert ended.returncode == 0, ended.stderr
    files = [printed / str(number) for number in range(processes)]
    return [path.read_text().splitlines() if path.exists() else [] for path in files]


def check_population(place: str, said: list[list[str]], *, total: int) -> int:
    """Charges never above the total, every value that left with its charge and its record, and the chain sound."""
    with hm.Ledger(place) as ledger:
        verification = ledger.verify()
        assert verification.sound, verification.faults
        entries = {entry.number: entry for entry in ledger.entries()}
        spent = ledger.dataset("d").spent.loss
    charges = [entry for entry in entries.values() if entry.kind == "charged"]
    assert spent == len(charges) * Decimal("0.125") <= total * Decimal("0.125")
    answers = [
        line.split() for lines in said for line in lines if line[:1].isdigit() and line.count(" ") == 1
    ]
    for number, value in answers:
        entry = entries[int(number)]
        assert entry.kind == "released"
        assert repr(entry.content["release"]["values"][0]) == value
        assert entries[entry.content["charge"]].kind == "charged"
    assert len({number for number, _ in answers}) == len(answers)
    return len(answers)


@pytest.mark.parametrize(("processes", "requests"), [(2, 40), (8, 10)])
def test_processes_at_once_never_pass_the_total(
    place: str, tmp_path: Path, processes: int, requests: int
) -> None:
    total = processes * requests // 2
    said = population(place, tmp_path, processes, requests, total=total)
    assert check_population(place, said, total=total) == total
    assert sum(line == "exhausted" for lines in said for line in lines) == processes * requests - total


@pytest.mark.slow
def test_twenty_processes_ask_two_hundred_times_each(place: str, tmp_path: Path) -> None:
    said = population(place, tmp_path, 20, 200, total=3000)
    assert check_population(place, said, total=3000) == 3000


def test_processes_that_are_killed_at_any_moment_take_nothing_with_them(place: str, tmp_path: Path) -> None:
    said = population(place, tmp_path, 5, 40, total=120, kill=3)
    check_population(place, said, total=120)
