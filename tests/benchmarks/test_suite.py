"""The benchmark suite measures what it says: fits, ratios, tables, and the memory of what it starts."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from common import rows_file
from common.interleaved import Ratio, in_turns
from common.measured import Limits, parsed
from common.sections import Section, Table, seconds
from common.watched import watch
from speed import suite, suite_machine, suite_vectors
from speed.engines import PLAIN
from speed.growth import fitted_exponent, last_exponent
from speed.suite import QUICK, TITLES, page, parser, without_places
from speed.suite_machine import Case, alone
from speed.suite_peers import beside_peers, error_of_releases

MEGABYTE = 1_000_000


def python(program: str, *, most_seconds: float = 60.0, most_bytes: float = 1e12):
    return watch([sys.executable, "-c", program], most_seconds=most_seconds, most_bytes=most_bytes)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(power: float) -> None:
    sizes = [10**3, 10**4, 10**6]
    assert fitted_exponent(sizes, [7.0 * size**power for size in sizes]) == pytest.approx(power)


def test_a_fixed_cost_weighs_less_between_the_largest_sizes() -> None:
    sizes = [1e6, 1e8, 1e7]
    values = [5.0 + size / 1e6 for size in sizes]
    assert fitted_exponent(sizes, values) < last_exponent(sizes, values) < 1.0
    assert last_exponent(sizes, values) == pytest.approx(math.log10(105 / 15))


def test_nothing_is_fitted_to_one_size_or_to_zeros() -> None:
    assert math.isnan(fitted_exponent([10], [1.0]))
    assert math.isnan(fitted_exponent([10, 100], [0.0, 1.0]))


def test_a_ratio_has_the_quartiles_of_the_turns_and_that_of_the_best() -> None:
    ratio = Ratio.of([2.0, 3.0, 4.0, 9.0], [1.0, 1.0, 2.0, 3.0])
    assert ratio.best == 2.0
    assert (ratio.low, ratio.middle, ratio.high) == (2.0, 2.5, 3.0)
    assert str(Ratio.of([3.0], [2.0])) == "1.50 (1.50 to 1.50)"


def test_jobs_take_turns_after_a_round_that_is_not_counted() -> None:
    done: list[str] = []
    times = in_turns({name: lambda name=name: done.append(name) for name in "ab"}, 2)
    assert done == ["a", "b"] * 3
    assert {name: len(found) for name, found in times.items()} == {"a": 2, "b": 2}


def test_a_table_is_aligned_words_to_the_left_and_numbers_to_the_right() -> None:
    table = Table(
        title="Title", headings=["name", "s"], rows=[["a", "10.00"], ["longer", "1.0"]], left=["name"]
    )
    assert table.text().splitlines() == [
        "Title",
        "",
        "name        s",
        "------  -----",
        "a       10.00",
        "longer    1.0",
    ]
    assert table.markdown().splitlines()[2:] == [
        "| name | s |",
        "|---|--:|",
        "| a | 10.00 |",
        "| longer | 1.0 |",
    ]


@pytest.mark.parametrize(
    ("value", "written"), [(None, "-"), (0.004, "0.00"), (9.96, "10.0"), (99.4, "99.4"), (1234.5, "1,234")]
)
def test_seconds_are_written_with_three_digits(value: float | None, written: str) -> None:
    assert seconds(value) == written


def test_what_a_runner_did_before_it_was_stopped_is_known() -> None:
    steps = [
        {"step": "started", "seconds": 1.5, "peak_bytes": 70, "versions": {"peer": "1.0"}},
        {"step": "loaded", "seconds": 2.5, "peak_bytes": 90},
        {"step": "released", "seconds": 4.0, "peak_bytes": 100, "value": 16.0},
        {"step": "released", "seconds": 3.0, "peak_bytes": 120, "value": 17.0},
    ]
    lines = [json.dumps(step) for step in steps]
    found = parsed(
        "\n".join([lines[0], "a warning of the library", *lines[1:]]), peak_bytes=110, ended="> 9 s"
    )
    assert (found.start_seconds, found.load_seconds, found.best_seconds) == (1.5, 2.5, 3.0)
    assert (found.values, found.versions, found.ended) == ([16.0, 17.0], {"peer": "1.0"}, "> 9 s")
    assert (found.held_bytes, found.peak_bytes, found.extra_bytes) == (70, 120, 50)
    only_started = parsed(lines[0], peak_bytes=80, ended="failed")
    assert (only_started.load_seconds, only_started.best_seconds) == (None, None)


def test_the_error_of_releases_is_that_of_their_squares() -> None:
    assert error_of_releases([], 1.0) == "-"
    assert error_of_releases([4.0], 1.0) == "3.00"
    # Squares 9 and 1: mean 5 with standard error 4, so the root's is 4 / (2 sqrt(5)).
    assert error_of_releases([4.0, 2.0], 1.0) == "2.24 (0.894)"


def test_memory_is_that_of_the_command_and_of_what_it_starts_and_not_of_its_caller() -> None:
    mine = b"x" * (300 * MEGABYTE)
    alone = python("import time; time.sleep(0.3)")
    assert alone.done
    assert 0 < alone.peak_bytes < len(mine)
    hold = f"import time; held = b'x' * {150 * MEGABYTE}; time.sleep(2)"
    both = python(
        f"import subprocess, sys, time; held = b'x' * {100 * MEGABYTE}; "
        f"subprocess.run([sys.executable, '-c', {hold!r}])"
    )
    assert both.done
    assert both.peak_bytes > 250 * MEGABYTE


def test_a_command_is_stopped_at_the_end_of_its_time_with_all_it_started(tmp_path: Path) -> None:
    given = str(tmp_path / "pid")
    child = f"import os, time; print(os.getpid(), file=open({given!r}, 'w'), flush=True); time.sleep(600)"
    found = python(
        f"import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', {child!r}])",
        most_seconds=5.0,
    )
    assert (found.stopped, found.done, found.output) == ("time", False, "begun\n")
    status = Path("/proc") / Path(given).read_text().strip() / "status"
    for _ in range(100):  # one that was killed may take a moment to be gone
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.1)
    raise AssertionError("what it started goes on")


def test_a_command_that_holds_too_much_is_stopped() -> None:
    found = python(f"import time; held = b'x' * {200 * MEGABYTE}; time.sleep(600)", most_bytes=150 * MEGABYTE)
    assert (found.stopped, found.done) == ("memory", False)


def test_what_a_command_complains_of_is_kept() -> None:
    found = python("import sys; sys.exit('no such thing')")
    assert (found.stopped, found.exit_code, found.complaints) == (None, 1, "no such thing\n")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rows_file, "DATA", tmp_path / "data")
    return tmp_path / "data"


def test_many_parts_hold_the_rows_of_one_file(data: Path) -> None:
    one, many = rows_file.make_file(10_000, 500), rows_file.make_file(10_000, 500, parts=3)
    assert len(list(Path(many.path).parent.glob("*.parquet"))) == 3
    of_one, of_many = (rows_file.truth_of(file, rows_file.AMOUNT) for file in (one, many))
    assert of_one.users == 500
    assert asdict(of_one) == pytest.approx(asdict(of_many))
    assert of_one == rows_file.truth_of(one, rows_file.AMOUNT)


@pytest.mark.parametrize("user", [rows_file.USER, rows_file.SCATTERED, rows_file.TEXT])
@pytest.mark.parametrize("engine", list(PLAIN))
def test_a_plain_engine_in_a_process_of_its_own_gives_the_true_mean(
    data: Path, engine: str, user: str
) -> None:
    file = rows_file.make_file(10_000, 500)
    case = Case(title="", column=rows_file.AMOUNT, user=user)
    limits = Limits(seconds=120.0, bytes=1e12)
    found = alone(engine, file, file, case, threads=1, limits=limits, releases=2)
    truth = rows_file.truth_of(file, rows_file.AMOUNT)
    assert found.ended == ""
    assert found.values == pytest.approx([truth.mean_of_means] * 2)
    assert found.held_bytes > MEGABYTE


@pytest.mark.slow
def test_the_parts_on_this_machine_run_from_small_files_to_a_page(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cases in ("CASES", "LARGE"):
        monkeypatch.setattr(suite_machine, cases, suite_machine.CASES[:1])
    monkeypatch.setenv("POLARS_MAX_THREADS", "2")  # which the suite sets, and nobody else should see
    sizes = {"rows": "40000", "users": "2000", "many-rows": "40000", "many-users": "2000", "repeats": "2"}
    grown = [
        "--growth-rows",
        "40000",
        "80000",
        "--growth-users",
        "2000",
        "4000",
        "--growth-columns",
        "1",
        "2",
    ]
    monkeypatch.setattr(suite_vectors, "DATA", data)
    vectors = ["--vector-columns", "20", "--vector-repeats", "2"]
    written = tmp_path / "page.md"
    parts = ["machine", "growth", "vectors"]
    arguments = ["--quick", "--parts", *parts, "--write", str(written), *grown, *vectors]
    arguments += [word for name, size in sizes.items() for word in (f"--{name}", size)]
    monkeypatch.setattr(sys, "argv", ["suite.py", *arguments])
    suite.main()
    text = written.read_text()
    for heading in (
        "| column | DuckDB s |",
        "| column | DuckDB MB |",
        "within the limit",
        "| after that s |",
        "| exponent |",
        "| looks from a center |",
    ):
        assert heading in text
    assert "failed" not in text
    assert str(tmp_path) not in text


def test_some_libraries_are_measured_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_file, "DATA", tmp_path)
    common = {"threads": 1, "releases": 1, "limits": Limits(seconds=60.0, bytes=1e12), "spark_memory": "1g"}
    found = beside_peers([20_000], libraries=["hubermean, given"], **common)
    assert [row[0] for row in found.tables[0].rows] == ["hubermean, given bounds"]
    assert found.tables[0].rows[0][-1] == "1 releases"
    with pytest.raises(SystemExit, match="there are: hubermean;"):
        beside_peers([20_000], libraries=["nobody"], **common)


@pytest.mark.parametrize("write", [["--write", "/some/where.md"], ["--write=/some/where.md"]])
def test_the_command_on_the_page_does_not_say_where_the_page_went(write: list[str]) -> None:
    asked = ["--quick", *write, "--parts", "growth"]
    assert without_places(asked) == ["--quick", "--parts", "growth"]


def test_a_part_that_is_measured_again_takes_its_own_place_on_the_page() -> None:
    def section(part: str, command: str) -> Section:
        return Section(title=TITLES[part], command=command, setting="s", says=["So it is."])

    first = page("", [section("spark", "old"), section("machine", "old")])
    assert 0 < first.index("## One machine") < first.index("## Spark")
    second = page(first, [section("machine", "new"), section("growth", "new")])
    assert second == page("", [section("machine", "new"), section("growth", "new"), section("spark", "old")])


def test_the_page_in_the_repository_is_one_of_the_suite() -> None:
    written = (Path(suite.__file__).parent.parent / "RESULTS.md").read_text()
    assert page(written, []) == written


def test_the_short_version_sets_options_that_exist() -> None:
    assert set(QUICK) <= set(vars(parser().parse_args([])))
