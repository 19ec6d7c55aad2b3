"""Kill a federated run at every statement of its rounds, and resume it: a program of its own, run by the tests.

Statements are found by tracing one run, so a new one is covered as soon as it is written. Each is then the end of a
process of its own: it is forked, makes rounds and writes every answer it gets into a file, and gets SIGKILL when it
first reaches the statement. A second process resumes the run.

    python tests/helpers/kill_rounds.py FOLDER [--every N] [--offset N] [--only TEXT] [--save-late] [--charge-each-time]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hubermean
from hubermean.federated import PrivateAverage
from hubermean.federated.charging import RunCharge
from hubermean.federated.saved_run import FileStore
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.ledger import Ledger

PACKAGE = str(Path(hubermean.__file__).parent)
ROUNDS, CLIENTS, SIZE = 3, 8, 3
Point = tuple[str, int]


def trace(met: Callable[[Point], None]) -> None:
    """Report every line of the package that is about to run, in this thread."""

    def on_line(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            met((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    sys.settrace(lambda frame, event, _: on_line if frame.f_code.co_filename.startswith(PACKAGE) else None)


def make_rounds(folder: Path, seed: Callable[[int], int]) -> None:
    """Make all rounds that are left, and write each answer down as soon as there is one."""
    average = PrivateAverage(
        epsilon=10.0,
        delta=1e-5,
        rounds=ROUNDS,
        population=CLIENTS,
        sampling="poisson",
        sampling_rate=0.5,
        center="last",
        like=np.zeros(SIZE),
        state_file=folder / "run",
        ledger=folder / "budget.sqlite",
        dataset="phones",
        noise=lambda number: InsecureSeededNoise(seed(number)),
    )
    updates = np.arange(CLIENTS * SIZE, dtype=float).reshape(CLIENTS, SIZE)
    for number in range(max(average.rounds_done, 1), ROUNDS + 1):
        drawn = average.draw_cohort(range(CLIENTS)) if number > average.rounds_done else []
        answer = average.aggregate({client: updates[client] for client in drawn}, round=number)
        with open(folder / "answers", "a") as file:
            file.write(json.dumps([number, [float(one).hex() for one in answer]]) + "\n")


def in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.settrace(None)
        os._exit(code)


def begin(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Ledger(folder / "budget.sqlite") as ledger:
        ledger.init("phones", epsilon=100.0, delta=0.1, neighbors="zero-out")


def answers(folder: Path) -> dict[int, set[tuple[str, ...]]]:
    """All different answers of each round that left a process."""
    found: dict[int, set[tuple[str, ...]]] = {}
    path = folder / "answers"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            number, numbers = json.loads(line)
        except ValueError:  # killed in the middle of the line
            continue
        found.setdefault(number, set()).add(tuple(numbers))
    return found


def points(folder: Path) -> list[Point]:
    """Every statement of a run, from the opening of its file on, in order of its first run."""
    begin(folder)
    met: dict[Point, None] = {}
    listed = folder / "points"

    def work() -> None:
        trace(lambda point: met.setdefault(point))
        make_rounds(folder, lambda number: number)
        sys.settrace(None)
        listed.write_text(json.dumps(list(met)))

    assert in_child(work) == 0
    return [(name, line) for name, line in json.loads(listed.read_text())]


def kill_at(folder: Path, target: Point, *, fresh: bool) -> dict[int, set[tuple[str, ...]]]:
    """Kill a run at a statement and resume it; with `fresh` the resumed process has other noise."""
    begin(folder)

    def die(point: Point) -> None:
        if point == target:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        trace(die)
        make_rounds(folder, lambda number: number)

    assert in_child(work) == -signal.SIGKILL, target
    assert in_child(lambda: make_rounds(folder, lambda number: number + 1000 * fresh)) == 0, target
    with Ledger(folder / "budget.sqlite") as ledger:
        charges = [entry for entry in ledger.entries("phones") if entry.kind in ("charged", "spent")]
        assert len(charges) == 1, f"charged {len(charges)} times: {target}"
        assert float(ledger.dataset("phones").spent.loss) == 10.0
    found = answers(folder)
    assert all(len(different) == 1 for different in found.values()), f"two answers for a round: {target}"
    assert set(found) == set(range(1, ROUNDS + 1)), target  # resuming returns a lost answer again
    return found


def save_late() -> None:
    """Break the guarantee on purpose: the answer leaves first, then it is saved."""
    finish = FileStore.finish_round

    def late(self: FileStore, number: int, **given: Any) -> None:
        with open(self.path.parent / "answers", "a") as file:
            file.write(json.dumps([number, [float(one).hex() for one in given["answer"]]]) + "\n")
        finish(self, number, **given)

    FileStore.finish_round = late  # type: ignore[method-assign]


def charge_each_time() -> None:
    """Break the guarantee on purpose: whether a run was charged before is not looked up."""
    usual = RunCharge.charge

    def blindly(self: RunCharge, plan: Any, run_id: str) -> None:
        usual(self, plan, os.urandom(8).hex())

    RunCharge.charge = blindly  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--only", default="", help="statements of modules whose path has this in it")
    parser.add_argument("--save-late", action="store_true")
    parser.add_argument("--charge-each-time", action="store_true")
    options = parser.parse_args()
    folder: Path = options.folder / "rounds"
    begin(folder)
    make_rounds(folder, lambda number: number)  # imports and calibrates once, for all processes
    whole = answers(folder)
    if options.save_late:
        save_late()
    if options.charge_each_time:
        charge_each_time()
    found = points(folder)
    chosen = [point for point in found if options.only in point[0]][options.offset :: options.every]
    for number, target in enumerate(chosen):
        fresh = number % 2 == 1
        resumed = kill_at(folder, target, fresh=fresh)
        assert fresh or resumed == whole, f"the resumed run differs: {target}"
    modules = sorted({Path(name).relative_to(PACKAGE).with_suffix("").as_posix() for name, _ in found})
    print(json.dumps({"statements": len(found), "killed": len(chosen), "modules": modules}))


if __name__ == "__main__":
    main()
