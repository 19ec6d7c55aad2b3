"""A run that is killed anywhere: nothing is charged twice, no round has two answers, and it goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean.federated import PrivateAverage
from hubermean.noise.seeded import InsecureSeededNoise

PROGRAM = Path(__file__).parents[1] / "helpers" / "kill_rounds.py"


def kill(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_kill_at_every_statement(tmp_path: Path, every: int) -> None:
    done = kill(tmp_path, "--every", str(every))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["statements"] > 300
    assert {"federated/average", "federated/saved_run", "federated/clipping", "ledger/ledger"} <= set(
        found["modules"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "said"), [("--save-late", "two answers"), ("--charge-each-time", "charged 2 times")]
)
def test_planted_faults_are_found(tmp_path: Path, fault: str, said: str) -> None:
    done = kill(tmp_path, fault, "--only", "saved_run")
    assert done.returncode != 0
    assert said in done.stderr


def average(path: Path, **given: Any) -> PrivateAverage:
    wanted: dict[str, Any] = {"epsilon": 10.0, "delta": 1e-5, "rounds": 5, "population": 4, "threshold": 1.0}
    noise = given.pop("noise", InsecureSeededNoise)
    return PrivateAverage(like=np.zeros(2), state_file=path, noise=noise, **(wanted | given))


def test_of_two_processes_only_one_answers(tmp_path: Path) -> None:
    one = average(tmp_path / "run", noise=lambda number: InsecureSeededNoise(number))
    two = average(tmp_path / "run", noise=lambda number: InsecureSeededNoise(100 + number))
    answer = one.aggregate(np.ones((4, 2)))
    with pytest.raises(hm.InputError, match="answered by another process"):
        two.aggregate(np.ones((4, 2)))
    assert two.last is None
    assert np.array_equal(average(tmp_path / "run").aggregate([], round=1), answer)


def test_a_saved_run_is_recognised_by_its_parameters(tmp_path: Path) -> None:
    average(tmp_path / "run").aggregate(np.ones((4, 2)))
    with pytest.raises(hm.InputError, match="other parameters"):
        average(tmp_path / "run", epsilon=11.0)
    with pytest.raises(hm.InputError, match="another shape"):
        PrivateAverage(
            epsilon=10.0,
            delta=1e-5,
            rounds=5,
            population=4,
            threshold=1.0,
            like=np.zeros(3),
            state_file=tmp_path / "run",
        )


@pytest.mark.parametrize(
    "content", [b"not a run at all, but long enough" * 40, b"SQLite format 3\x00" + bytes(4000)]
)
def test_a_file_that_is_no_run_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run").write_bytes(content)
    with pytest.raises(hm.InputError, match="run"):
        average(tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == content


def test_an_answer_that_cannot_be_saved_is_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = average(tmp_path / "run")
    (tmp_path / "run").unlink()
    (tmp_path / "run").mkdir()
    with pytest.raises(hm.InputError, match="cannot be read or written"):
        one.aggregate(np.ones((4, 2)))
    assert one.rounds_done == 0
    assert one.last is None
    with pytest.raises(hm.InputError, match="does not exist"):
        average(tmp_path / "nowhere" / "run")


def test_a_long_answer_is_restored_to_the_bit(tmp_path: Path) -> None:
    updates = np.random.default_rng(0).normal(size=(2, 2_300_000))
    given: dict[str, Any] = {"epsilon": 9.0, "delta": 1e-5, "rounds": 2, "population": 2, "threshold": 9.0}
    noise = InsecureSeededNoise
    answer = PrivateAverage(state_file=tmp_path / "run", noise=noise, **given).aggregate(updates)
    again = PrivateAverage(state_file=tmp_path / "run", noise=noise, like=updates[0], **given)
    assert np.array_equal(again.last, answer)
