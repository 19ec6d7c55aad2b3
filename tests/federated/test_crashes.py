"""A run that is killed anywhere: nothing is charged twice, no round has two answers, and it goes on."""

from __future__ import annotations

import contextlib
import inspect
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
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


def interrupt(one: PrivateAverage, work: Any, *, before: str) -> None:
    """Run `work`, and press Ctrl-C before the line of `PrivateAverage` that begins so."""
    source = inspect.getsourcefile(PrivateAverage)
    assert source is not None
    lines = Path(source).read_text().splitlines()
    targets = {number for number, line in enumerate(lines, 1) if line.strip().startswith(before)}
    assert targets

    def on_line(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != source:
            return None
        if event == "line" and frame.f_lineno in targets:
            sys.settrace(None)
            raise KeyboardInterrupt
        return on_line

    previous = sys.gettrace()
    sys.settrace(on_line)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(previous)


def test_ctrl_c_after_the_commit_is_no_other_process(tmp_path: Path) -> None:
    one = average(tmp_path / "run", noise=lambda number: InsecureSeededNoise(number))
    interrupt(one, lambda: one.aggregate(np.ones((4, 2))), before="self._adopt(finished)")
    assert one.rounds_done == 0
    saved = average(tmp_path / "run").last
    assert np.array_equal(one.aggregate(np.ones((4, 2)), round=1), saved)
    assert one.rounds_done == 1
    one.aggregate(np.ones((4, 2)))
    assert average(tmp_path / "run").rounds_done == 2
    # Another process's answer is not taken for this one's.
    two = average(tmp_path / "run")
    interrupt(two, lambda: two.aggregate(np.ones((4, 2))), before="self._store.finish_round(")
    one.aggregate(np.ones((4, 2)))
    with pytest.raises(hm.InputError, match="answered by another process"):
        two.aggregate(np.ones((4, 2)))


def test_a_file_that_vanished_or_holds_another_run_takes_no_answer(tmp_path: Path) -> None:
    one = average(tmp_path / "run")
    (tmp_path / "run").unlink()
    two = average(tmp_path / "run")
    with pytest.raises(hm.InputError, match="another run by now"):
        one.aggregate(np.ones((4, 2)))
    two.aggregate(np.ones((4, 2)))


def charged(path: Path, ledger: hm.Ledger, dataset: str = "phones") -> PrivateAverage:
    return average(path, ledger=ledger, dataset=dataset)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[hm.Ledger]:
    with hm.Ledger(tmp_path / "budget.sqlite") as opened:
        opened.init("phones", epsilon=30.0, delta=1e-3, neighbors="zero-out")
        opened.init("tablets", epsilon=30.0, delta=1e-3, neighbors="zero-out")
        yield opened


def test_a_run_that_goes_on_with_another_data_set_or_ledger_is_charged_there(
    tmp_path: Path, ledger: hm.Ledger
) -> None:
    charged(tmp_path / "run", ledger).aggregate(np.ones((4, 2)))
    average(tmp_path / "run").aggregate(np.ones((4, 2)))  # without a ledger
    charged(tmp_path / "run", ledger, "tablets").aggregate(np.ones((4, 2)))
    with hm.Ledger(tmp_path / "another.sqlite") as other:
        other.init("phones", epsilon=30.0, delta=1e-3, neighbors="zero-out")
        charged(tmp_path / "run", other).aggregate(np.ones((4, 2)))
        found = [ledger.dataset("phones"), ledger.dataset("tablets"), other.dataset("phones")]
        assert other.verify().sound
    again = charged(tmp_path / "run", ledger)
    assert again.privacy_spent().epsilon == 10.0
    again.aggregate(np.ones((4, 2)))
    assert [float(one.spent.loss) for one in found] == [10.0, 10.0, 10.0]
    assert float(ledger.dataset("phones").spent.loss) == 10.0
    assert ledger.verify().sound


@pytest.mark.parametrize("composition", ["basic", "concentrated"])
def test_an_older_copy_of_the_file_is_refused_where_there_is_a_ledger(
    tmp_path: Path, ledger: hm.Ledger, composition: str
) -> None:
    ledger.init(composition, epsilon=50.0, delta=1e-3, neighbors="zero-out", composition=composition)
    one = charged(tmp_path / "run", ledger, composition)
    copies = []
    for _ in range(3):
        copies.append((tmp_path / "run").read_bytes())
        one.aggregate(np.ones((4, 2)))
    spent = ledger.dataset(composition).spent
    for copy in copies:
        (tmp_path / "copy").write_bytes(copy)
        with pytest.raises(hm.InputError, match="older copy"):
            charged(tmp_path / "copy", ledger, composition)
    assert charged(tmp_path / "run", ledger, composition).rounds_done == 3
    assert ledger.dataset(composition).spent == spent
    assert ledger.verify().sound


def test_an_answer_that_the_ledger_does_not_know_of_is_noted_before_it_is_returned(
    tmp_path: Path, ledger: hm.Ledger
) -> None:
    one = charged(tmp_path / "run", ledger)
    one.aggregate(np.ones((4, 2)))
    copy = (tmp_path / "run").read_bytes()
    interrupt(one, lambda: one.aggregate(np.ones((4, 2))), before="self._adopt(finished)")
    assert charged(tmp_path / "run", ledger).last is not None
    (tmp_path / "run").write_bytes(copy)
    with pytest.raises(hm.InputError, match="older copy"):
        charged(tmp_path / "run", ledger)


def test_each_round_has_a_cohort_of_its_own_whenever_the_last_one_was_interrupted() -> None:
    one = PrivateAverage(
        epsilon=10.0,
        delta=1e-5,
        rounds=5,
        population=100,
        threshold=1.0,
        sampling="poisson",
        sampling_rate=0.5,
        like=np.zeros(2),
        noise=lambda number: InsecureSeededNoise(number),
    )
    updates = {client: np.ones(2) for client in range(100)}
    first = one.draw_cohort(updates)
    interrupt(one, lambda: one.aggregate(updates), before="return self.last")
    assert one.rounds_done == 1
    with pytest.raises(hm.InputError, match="draw_cohort"):
        one.aggregate(updates)
    assert one.draw_cohort(updates) != first


def test_seeded_noise_of_an_earlier_process_is_remembered(tmp_path: Path) -> None:
    average(tmp_path / "run").aggregate(np.ones((4, 2)))
    again = average(tmp_path / "run", noise=None)
    assert "No privacy" in str(again.privacy_spent())
    again.aggregate(np.ones((4, 2)))
    assert "No privacy" in str(average(tmp_path / "run", noise=None).privacy_spent())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rounds SET threshold = 'nan'",
        "UPDATE rounds SET threshold = 'zz'",
        "UPDATE answer SET numbers = x'313233'",
        "UPDATE answer SET numbers = x'3132333435363738'",
        "UPDATE answer SET numbers = 'text'",
        "UPDATE rounds SET number = 99 WHERE number = 2",
        "DELETE FROM rounds WHERE number = 1",
        "DELETE FROM run",
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, change: str) -> None:
    one = average(tmp_path / "run")
    one.aggregate(np.ones((4, 2)))
    one.aggregate(np.ones((4, 2)))
    with contextlib.closing(sqlite3.connect(tmp_path / "run")) as file, file:
        file.execute(change)
    with pytest.raises(hm.InputError, match=r"run|damaged"):
        average(tmp_path / "run")


def test_a_file_that_was_emptied_is_no_new_run(tmp_path: Path) -> None:
    average(tmp_path / "run").aggregate(np.ones((4, 2)))
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(hm.InputError, match="is empty"):
        average(tmp_path / "run")


def test_a_discarded_answer_is_not_in_the_frames_of_the_error(tmp_path: Path) -> None:
    one, two = average(tmp_path / "run"), average(tmp_path / "run")
    one.aggregate(np.ones((4, 2)))
    with pytest.raises(hm.InputError, match="another process") as caught:
        two.aggregate(np.ones((4, 2)))
    assert caught.value.__context__ is None
    for entry in caught.traceback[1:]:
        assert not {"answer", "finished", "written", "selected"} & set(entry.frame.f_locals)
