"""`hubermean reproduce` as it is typed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.command_line import typed
from helpers.tiny_figures import TINY
from hubermean_experiments.figures.panels import QUICK

PROGRAM = Path(sys.executable).with_name("hubermean")


def in_a_process(*words, cwd):
    return subprocess.run([PROGRAM, *words], cwd=cwd, capture_output=True, text=True, check=False)


def check_a_panel(run, tmp_path):
    quick = ("reproduce", "--figure", "1b", "--quick", "--out", "figures")
    done = run(*quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Claims of the paper" in done.stdout
    assert "start with figures/RESULTS.md" in done.stdout
    assert (tmp_path / "figures" / "1b.csv").read_text().startswith("panel,setting,users,x,method,mse,")
    # Given again it only draws; with another seed it is refused.
    again = run(*quick, "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "figures/RESULTS.md\n")
    other = run(*quick, "--seed", "2", cwd=tmp_path)
    assert other.returncode == 2
    assert other.stderr.startswith("error: figures holds another run")


def test_a_panel_from_the_command_line(tmp_path, monkeypatch):
    """With fewer draws still than --quick takes."""
    monkeypatch.setattr(
        "hubermean_experiments.figures.panels.QUICK", replace(TINY, name=QUICK.name, batch=20)
    )
    check_a_panel(typed, tmp_path)


@pytest.mark.slow
def test_a_quick_panel_as_it_is_typed(tmp_path):
    check_a_panel(in_a_process, tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--figure", "1x"], "there is no figure '1x'"),
        (["--figure", "1a", "--jobs", "0"], "jobs must be"),
        (["--ddi", "usa.xml"], "name it with --ipums"),
        (["--ipums-user", "household"], "name it with --ipums"),
        (["--figure", "1g", "--ipums", "none.csv"], "none.csv"),
        (["--figure", "1g", "--ipums", "none.csv", "--ipums-user", "dog"], "'person' or 'household'"),
        (["--figure", "1a", "--ipums", "none.csv"], "1g, 1h and 2d"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(tmp_path, words, says):
    done = typed("reproduce", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
