"""The examples of the documentation print what the pages say, command by command, on real data."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
HARNESS = ROOT / "docs" / "tools" / "run_examples.py"


@pytest.fixture(scope="module")
def harness() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_examples", HARNESS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HARNESS), *arguments], check=False, capture_output=True, encoding="utf-8"
    )


def test_every_example_prints_what_its_page_says(harness: ModuleType) -> None:
    named = {path.relative_to(ROOT).as_posix() for path in harness.pages()}
    assert {
        "README.md",
        "CONTRIBUTING.md",
        "docs/guides/quick-start.md",
        "docs/guides/privacy-budget.md",
        "docs/reference/command-line.md",
    } <= named
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_that_is_out_of_date_is_found_and_renewed(tmp_path: Path) -> None:
    right = (
        "Text.\n\n```console\n$ hubermean --version >/dev/null; echo done\ndone\n```\n\n"
        "```pycon\n>>> 1 + 1\n2\n>>> for one in (1, 2):\n...     print(one)\n1\n2\n```\n"
    )
    wrong = right.replace("\ndone\n", "\nready\n").replace(">>> 1 + 1\n2\n", ">>> 1 + 1\n3\n")
    page = tmp_path / "page.md"
    page.write_text(wrong)
    done = run(str(page))
    assert done.returncode == 1
    assert page.read_text() == wrong
    assert "-ready\n+done" in done.stdout
    assert "-3\n+2" in done.stdout
    assert run("--write", str(page)).returncode == 0
    assert page.read_text() == right


def test_examples_draw_the_same_noise_again_and_other_commands_draw_other(harness: ModuleType) -> None:
    from hubermean.noise.system import SystemNoise

    names = ("discrete_laplace", "discrete_gaussian", "below", "choose")
    real = {name: SystemNoise.__dict__[name] for name in names}
    try:
        drawn = []
        for example in ("one", "one", "two"):
            harness.seed_noise(example)
            drawn.append(SystemNoise().discrete_laplace(1e6, 4))
    finally:
        for name, method in real.items():
            setattr(SystemNoise, name, method)
    assert drawn[0] == drawn[1] != drawn[2]
    assert SystemNoise().discrete_laplace(1e6, 4) != SystemNoise().discrete_laplace(1e6, 4)


def test_the_setup_of_the_quick_start_is_what_the_harness_stands_in_for(harness: ModuleType) -> None:
    assert f"```sh\n{harness.SETUP}```" in (ROOT / "docs" / "guides" / "quick-start.md").read_text()
    assert "demo: $(READY)" in (ROOT / "Makefile").read_text()
    assert "$(BIN)/python examples/demo.py" in (ROOT / "Makefile").read_text()
