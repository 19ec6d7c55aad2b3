"""The experiments are a package of their own: the main package works without it and says how to install it."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPERIMENTS = "hubermean_experiments"


def imported_packages(source: str) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_one_module_of_the_main_package_imports_the_experiments() -> None:
    source = ROOT / "src" / "hubermean"
    modules = {path.relative_to(source).as_posix(): path.read_text() for path in source.rglob("*.py")}
    assert {name for name, text in modules.items() if EXPERIMENTS in imported_packages(text)} == {
        "cli/experiments.py"
    }
    assert {name for name, text in modules.items() if EXPERIMENTS in text} == {"cli/experiments.py"}


def test_the_wheel_and_the_source_archive_leave_the_experiments_out() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["src/hubermean"]
    included = targets["sdist"]["include"]
    assert all(pattern.startswith("/") and "experiments" not in pattern for pattern in included)
    assert not list((ROOT / "src").glob("hubermean/**/*experiments*/"))


def run_without_experiments(*words: str) -> subprocess.CompletedProcess[str]:
    program = (
        f"import sys; sys.modules[{EXPERIMENTS!r}] = None; sys.argv = ['hubermean', *{list(words)!r}]; "
        "from hubermean.cli.app import main; main()"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ("reproduce",),
        ("reproduce", "--quick", "--figure", "1a"),
        ("audit", "--mechanism", "paper-literal", "--threshold", "1", "--radius", "10"),
    ],
)
def test_without_the_experiments_one_sentence_says_how_to_install_them(words: tuple[str, ...]) -> None:
    done = run_without_experiments(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "pip install -e experiments" in done.stderr


def test_without_the_experiments_help_offers_no_mechanism_of_the_paper() -> None:
    done = run_without_experiments("audit", "--help")
    assert done.returncode == 0
    assert "paper-literal" not in done.stdout
