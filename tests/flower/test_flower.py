"""Flower itself, in an environment of its own: `make flower` makes it, and `make test-all` does so first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import hubermean.flower

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-flower" / "bin" / "python"
INSIDE = Path(__file__).with_name("inside")

there = pytest.mark.skipif(
    not (ROOT / ".venv-flower" / ".made-from").exists(), reason="make flower makes the environment of Flower"
)


def run(*arguments: str, folder: Path, seconds: int) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))
    }
    done = subprocess.run(
        [str(PYTHON), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


def pytest_inside(*arguments: str) -> str:
    # A configuration of its own: that of this repository is for the development environment.
    given = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(INSIDE)]
    return run(*given, *arguments, str(INSIDE), folder=INSIDE, seconds=500)


def test_without_flower_the_error_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"pip install 'hubermean\[flower\]'"):
        hubermean.flower.PrivateFedAvg  # noqa: B018


@there
def test_a_run_and_a_few_hostile_replies() -> None:
    assert "passed" in pytest_inside(
        "-k", "fedavg or claimed or logs or NaN or terabytes or (beyond and budget)"
    )


@there
@pytest.mark.slow
def test_everything_in_memory() -> None:
    assert "passed" in pytest_inside()


@there
@pytest.mark.slow
def test_the_example_runs_in_flowers_simulation(tmp_path: Path) -> None:
    printed = run("run.py", "--rounds", "3", folder=ROOT / "examples" / "flower", seconds=300)
    assert "round 3" in printed
