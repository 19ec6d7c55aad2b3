"""Times of a release exist only where they are asked for by name."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hubermean as hm
from hubermean.cli.app import app
from hubermean.types import timings as unsafe_timings

SOURCE = Path(hm.__file__).parent
TRIPS = pa.table({"u": [1, 1, 2, 3], "v": [1.0, 2.0, 3.0, 4.0], "g": ["a", "b", "a", "a"]})
RUN = ["mechanism", "mechanism: distribution", "mechanism: sample", "mechanism: outcome"]


def release() -> hm.Release:
    return hm.mean(TRIPS, user="u", value="v", epsilon=1, bounds=(0, 5), max_records=2)


def test_every_stage_is_timed_for_who_asks() -> None:
    with hm.UnsafeTimings() as timings:
        release()
    assert list(timings.stages) == ["preparing", "reading and grouping", *RUN]
    assert all(seconds > 0 for seconds in timings.stages.values())
    parts = [seconds for name, seconds in timings.stages.items() if name.startswith("mechanism: ")]
    assert sum(parts) <= timings.stages["mechanism"]
    assert not any(character.isdigit() for character in repr(timings))


def test_groups_and_counts_have_the_same_stages() -> None:
    for statistic in ("mean", "count"):
        with hm.UnsafeTimings() as timings:
            if statistic == "mean":
                hm.mean(
                    TRIPS,
                    user="u",
                    value="v",
                    epsilon=1,
                    bounds=(0, 5),
                    max_records=2,
                    by="g",
                    keys=["a", "b"],
                    max_groups=1,
                )
            else:
                hm.count(TRIPS, user="u", epsilon=1)
        assert list(timings.stages) == ["preparing", "reading and grouping", *RUN]


def test_what_is_done_again_adds_up_and_what_comes_after_is_not_measured() -> None:
    with hm.UnsafeTimings() as timings:
        release()
        once = dict(timings.stages)
        release()
    assert all(timings.stages[name] > seconds for name, seconds in once.items())
    twice = dict(timings.stages)
    release()
    assert timings.stages == twice


def test_a_refused_release_leaves_the_stages_in_order() -> None:
    with hm.UnsafeTimings() as timings:
        with pytest.raises(hm.InputError):
            hm.mean(TRIPS, user="u", value="nothing", epsilon=1, bounds=(0, 5), max_records=2)
        release()
    assert list(timings.stages) == ["preparing", "reading and grouping", *RUN]


def test_no_clock_is_read_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> float:
        raise AssertionError("a clock was read")

    monkeypatch.setattr(unsafe_timings.time, "perf_counter", read)
    release()
    with pytest.raises(AssertionError, match="a clock was read"), hm.UnsafeTimings():
        release()


@pytest.mark.parametrize("command", ["release", "count"])
def test_the_command_prints_times_beside_the_answer_and_says_that_they_are_unsafe(
    tmp_path: Path, command: str
) -> None:
    path = str(tmp_path / "trips.parquet")
    pq.write_table(TRIPS, path)
    own = ["--value", "v", "--bounds", "0", "5", "--max-records", "2"] if command == "release" else []
    arguments = [command, path, "--user", "u", "--epsilon", "1", *own, "--json"]
    plain = CliRunner().invoke(app, arguments)
    timed = CliRunner().invoke(app, [*arguments, "--unsafe-timings"])
    assert plain.stderr == ""
    assert json.loads(plain.stdout).keys() == json.loads(timed.stdout).keys()
    first, *lines = timed.stderr.splitlines()
    assert first == "unsafe: timings depend on the data"
    assert [line.split(" s  ")[1] for line in lines] == ["preparing", "reading and grouping", *RUN]


CLOCKS = {
    "time": None,  # all of it but what waits
    "timeit": None,
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "os": {"times", "stat_float_times"},
    "resource": {"getrusage"},
}
WAITING = {"sleep"}
# Timings are requested explicitly; a ledger and its export state the date.
MAY_READ_A_CLOCK = (
    "types/timings.py",
    "ledger/ledger.py",
    "report/ledger_export.py",
    "auditing/effort.py",  # no data are read there
    "cli/progress.py",
    # Sessions and forms that expire, when a release was asked for, and the fixed moments at which one is shown.
    "app/access.py",
    "app/tokens.py",
    "app/state.py",
    "app/runner.py",
)


def clocks_read(code: str) -> list[str]:
    """Names of clocks that a module reads or imports."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "timeit"):
            found += [one.name for one in node.names if one.name not in WAITING]
        elif isinstance(node, ast.Import):  # under another name it would not be known again
            found += [one.name for one in node.names if one.name in CLOCKS and one.asname]
        elif isinstance(node, ast.Attribute):
            owner = (
                node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            )
            names = CLOCKS.get(owner, set())
            if (names is None and node.attr not in WAITING) or (names is not None and node.attr in names):
                found.append(f"{owner}.{node.attr}")
        elif isinstance(node, ast.Name) and node.id in ("TimeElapsedColumn", "TimeRemainingColumn"):
            found.append(node.id)
    return found


def test_no_other_module_of_a_release_reads_a_clock() -> None:
    modules = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    told = {name for name, path in modules.items() if clocks_read(path.read_text())}
    assert "types/timings.py" in told
    assert {name for name in told if not name.startswith(MAY_READ_A_CLOCK)} == set()


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.time()",
        "from time import perf_counter",
        "import time as t\nt.time()",
        "import datetime\ndatetime.datetime.now()",
        "import datetime\nx = datetime.date.today",
        "import os\nos.times()",
        "from rich.progress import TimeElapsedColumn\nTimeElapsedColumn()",
    ],
)
def test_a_clock_would_be_seen(code: str) -> None:
    assert clocks_read(code)
