"""`hubermean reproduce` as it is typed."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("hubermean")


def typed(*words, folder):
    return subprocess.run(
        [PROGRAM, "reproduce", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_panel_from_the_command_line(tmp_path):
    done = typed("--figure", "1b", "--quick", "--out", "figures", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "What the paper claims" in done.stdout
    assert "begin with figures/RESULTS.md" in done.stdout
    assert (tmp_path / "figures" / "1b.csv").read_text().startswith("panel,setting,users,x,method,mse,")
    # Given again it only draws; with another seed it is refused.
    again = typed("--figure", "1b", "--quick", "--out", "figures", "--quiet", folder=tmp_path)
    assert (again.returncode, again.stdout) == (0, "figures/RESULTS.md\n")
    other = typed("--figure", "1b", "--quick", "--out", "figures", "--seed", "2", folder=tmp_path)
    assert other.returncode == 2
    assert other.stderr.startswith("error: figures holds another run")


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
    done = typed(*words, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
