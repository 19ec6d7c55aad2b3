"""A run from one end to the other: resumed after a kill, the same for one seed, refused where it would mix results."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.tiny_figures import TINY
from hubermean import InputError
from hubermean_experiments.figures.panels import PANELS, SYNTHETIC, PanelPoint, select_panels
from hubermean_experiments.figures.reproduction import Reproduction
from hubermean_experiments.figures.rows import rows_to_csv
from hubermean_experiments.figures.run import ResultStore, RunSettings, run_points, write_atomically


def store_in(folder, seed=1):
    return ResultStore(folder, RunSettings(seed=seed, effort=TINY, incomes={}))


def run_all(store, *, panels=("1b",), jobs=1):
    heard = []
    run_points(
        TINY.points(select_panels(panels)),
        SYNTHETIC,
        TINY,
        store,
        jobs=jobs,
        done=lambda one: heard.append(one.key),
    )
    return heard


def csv(store, panel="1b"):
    found = [store.rows(point) for point in TINY.points([PANELS[panel]])]
    return rows_to_csv([row for rows in found for row in rows or ()])


def test_two_runs_with_one_seed_give_identical_files(tmp_path):
    first, second, other = (store_in(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    run_all(first, jobs=1)
    run_all(second, jobs=2)
    run_all(other, jobs=2)
    assert csv(first) == csv(second)
    assert csv(first) != csv(other)
    assert len(csv(first).splitlines()) == 1 + 3 * 2 * 9


def test_stored_points_are_not_run_again(tmp_path):
    store = store_in(tmp_path)
    assert sorted(run_all(store)) == ["1b-60-1", "1b-60-20", "1b-60-5"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    assert sorted(run_all(store)) == ["1b-60-1", "1b-60-20", "1b-60-5"]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}


def test_a_point_that_cannot_be_read_is_run_again(tmp_path):
    store = store_in(tmp_path)
    run_all(store)
    whole = csv(store)
    (tmp_path / "points" / "1b-60-5.json").write_text("[{")
    (tmp_path / "points" / "1b-60-1.json").write_text('[{"panel": "1b"}]')
    assert csv(store) != whole
    run_all(store)
    assert csv(store) == whole


_KILLED = """
    from pathlib import Path
    import test_run as here
    if __name__ == "__main__":
        here.run_all(here.store_in(Path({folder!r})), panels=("1", "2a", "2b"), jobs=2)
"""


def _alive(group):
    """Processes of a group that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left processes in /proc")
def test_a_killed_run_continues_and_leaves_no_process_behind(tmp_path):
    panels = ("1a", "1b", "1c")
    script = tmp_path / "run.py"
    text = textwrap.dedent(_KILLED).replace('("1", "2a", "2b")', repr(panels))
    script.write_text(text.format(folder=str(tmp_path / "killed")))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(["tests", "tests/experiments", "src", "experiments/src"])
    }
    process = subprocess.Popen([sys.executable, str(script)], env=environment, start_new_session=True)
    points = tmp_path / "killed" / "points"
    try:
        give_up = time.monotonic() + 120.0
        while not (points.is_dir() and any(points.glob("*.json"))) and time.monotonic() < give_up:
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        give_up = time.monotonic() + 60.0
        while _alive(process.pid) and time.monotonic() < give_up:
            time.sleep(0.2)
        assert _alive(process.pid) == []
    finally:
        for left in _alive(process.pid):
            os.kill(left, signal.SIGKILL)
    kept = {path.name: path.read_bytes() for path in points.glob("*.json")}
    total = len(list(TINY.points(select_panels(panels))))
    assert 0 < len(kept) < total
    resumed, whole = store_in(tmp_path / "killed"), store_in(tmp_path / "whole")
    run_all(resumed, panels=panels, jobs=2)
    assert {name: (points / name).read_bytes() for name in kept} == kept
    run_all(whole, panels=("1b",), jobs=2)
    assert csv(resumed) == csv(whole)
    assert len(list(points.glob("*.json"))) == total


def test_a_folder_holds_one_run(tmp_path):
    store_in(tmp_path)
    store_in(tmp_path)
    with pytest.raises(InputError, match="holds another run"):
        store_in(tmp_path, seed=2)
    salaries, others = ({"salary": f"INCWAGE by person, {mark}"} for mark in ("12", "34"))
    ResultStore(tmp_path, RunSettings(seed=1, effort=TINY, incomes=salaries))
    store_in(tmp_path)  # panels that need none
    with pytest.raises(InputError, match="holds another run"):
        ResultStore(tmp_path, RunSettings(seed=1, effort=TINY, incomes=others))
    with pytest.raises(InputError, match="holds another run"):
        ResultStore(tmp_path, RunSettings(seed=1, effort=replace(TINY, batch=5), incomes={}))
    with pytest.raises(InputError, match="holds another run"):
        ResultStore(tmp_path, RunSettings(seed=1, effort=TINY, incomes={}, versions={"hubermean": "0"}))
    # Points whose run is not known could be anybody's.
    run = tmp_path / "run.json"
    for damage in (run.unlink, lambda: run.write_text(""), lambda: run.write_text("[]")):
        (tmp_path / "points" / "1b-60-1.json").write_text("[]")
        damage()
        with pytest.raises(InputError, match="holds another run"):
            store_in(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        store_in(tmp_path / "file")


def test_files_are_written_atomically(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(TypeError):
        write_atomically(path, 3.0)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path, monkeypatch):
    store = store_in(tmp_path)
    run_all(store)

    def full(path, content):
        raise OSError(28, "no space left")

    monkeypatch.setattr("hubermean_experiments.figures.run.write_atomically", full)
    (point, *_) = TINY.points(select_panels(["1b"]))
    with pytest.raises(InputError, match="cannot be written any more"):
        store.keep(point, store.rows(point))
    assert store.rows(point)


@pytest.mark.slow  # one panel of it always runs, from the command line
def test_figures_plots_and_pages_from_one_call(tmp_path):
    def reproduce(folder):
        run = Reproduction(["1b", "2b"], effort=TINY, folder=folder, seed=3, jobs=2)
        run.run(lambda point: None)
        return run.publish()

    results = reproduce(tmp_path / "a")
    reproduce(tmp_path / "b")
    assert [panel.name for panel in results.panels] == ["1b", "2b"]
    names = {path.name for path in (tmp_path / "a").iterdir() if path.is_file()}
    stems = ("1b", "2b", "figure1-fair-60", "figure1-paper-60", "figure2-fair-60", "figure2-paper-60")
    plots = {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}
    assert names == plots | {"1b.csv", "2b.csv", "RESULTS.md", "RESULTS.html", "run.json"}
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    text = (tmp_path / "a" / "RESULTS.md").read_text()
    for stem in stems:
        assert f"({stem}.svg)" in text
    assert json.loads((tmp_path / "a" / "run.json").read_text())["seed"] == 3


@pytest.mark.slow
def test_panels_of_one_run_may_come_one_by_one(tmp_path):
    for figure in ("1b", "1h"):
        run = Reproduction([figure], effort=TINY, folder=tmp_path, seed=3, jobs=2)
        run.run(lambda point: None)
        results = run.publish()
    assert [panel.name for panel in results.panels] == ["1b", "1h"]
    text = (tmp_path / "RESULTS.md").read_text()
    assert "### 1b: Gaussian, d = 1" in text
    assert "CC BY-SA 3.0" in text
    again = Reproduction(["1b"], effort=TINY, folder=tmp_path, seed=3, jobs=2)
    again.run(lambda point: None)
    assert [panel.name for panel in again.publish().panels] == ["1b", "1h"]


def test_an_interrupted_run_does_not_wait(tmp_path):
    def stop(point):
        raise KeyboardInterrupt

    store = store_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_points(TINY.points(select_panels(["1b"])), SYNTHETIC, TINY, store, jobs=2, done=stop)
    assert len(list((tmp_path / "points").iterdir())) >= 1
    assert sorted(run_all(store)) == ["1b-60-1", "1b-60-20", "1b-60-5"]


def test_a_killed_worker_is_reported(tmp_path):
    broken = {"Gaussian": Dies()}
    with pytest.raises(InputError, match="a worker process was killed"):
        run_points(TINY.points(select_panels(["1b"])), broken, TINY, store_in(tmp_path), jobs=1, done=print)


class Dies:
    """A law that ends the process which draws from it."""

    def draw_user_means(self, generator, counts):
        os._exit(9)


def test_users_of_an_extract(tmp_path):
    """A table in the format of IPUMS USA: households differ much, so that what a user is shows."""
    lines = ["YEAR,SERIAL,PERNUM,INCTOT,INCWAGE"]
    for serial in range(1, 301):
        for person in range(1, 1 + serial % 3 + 1):
            income = 9999999 if person == 3 else 1_000 * serial + person
            lines.append(f"2020,{serial},{person},{income},{min(income, 999999)}")
    extract = tmp_path / "usa.csv"
    extract.write_text("\n".join(lines) + "\n")
    from hubermean_experiments.figures.data import Extract, load_incomes, record_distributions

    panels = select_panels(["1g", "1h"])
    deviations = {}
    for user in ("person", "household"):
        given = Extract(path=extract, user=user)
        incomes = load_incomes(panels, given)
        assert {name: records.missing for name, records in incomes.items()} == {
            "total income": 100,
            "salary": 100,
        }
        distribution = record_distributions(incomes, given)["total income"]
        counts = PanelPoint(panel=PANELS["1g"], users=10, x=100).counts
        deviations[user] = math.sqrt(float(distribution.mean_variances(counts)[0])) / distribution.deviation
    assert deviations["person"] == pytest.approx(0.1)
    assert deviations["household"] > 0.99
    extract.write_text("INCTOT\n" + "0\n" * 10)
    with pytest.raises(InputError, match="all records of INCTOT are equal"):
        record_distributions(load_incomes(select_panels(["1g"]), Extract(path=extract)), None)
    with pytest.raises(InputError, match="--ipums applies to panels"):
        load_incomes(select_panels(["1a"]), Extract(path=extract))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"figures": ["3a"]}, "there is no figure '3a'"),
        ({"jobs": 0}, "jobs must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(tmp_path, arguments, says):
    given = {"figures": ["1a"], "effort": TINY, "folder": tmp_path / "out", "seed": 1, "jobs": 1} | arguments
    figures = given.pop("figures")
    with pytest.raises(InputError, match=says):
        Reproduction(figures, **given)
    assert not (tmp_path / "out").exists()
