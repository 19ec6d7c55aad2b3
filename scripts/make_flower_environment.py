"""The environment `.venv-flower`, in which Flower and hubermean live together, with plain pip and pinned versions.

    python scripts/make_flower_environment.py

Flower wants older versions of typer and rich than the development environment has, so its tests and its example run in
an environment of their own, of about a gigabyte. One that already holds what is wanted is left alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-flower"
PYTHON = FOLDER / "bin" / "python"
REQUIREMENTS = ROOT / "examples" / "flower" / "requirements.txt"


def is_ready() -> bool:
    """Whether the environment was made, to the end, from the requirements of today."""
    made_from = FOLDER / ".made-from"
    return made_from.is_file() and made_from.read_text() == wanted()


def wanted() -> str:
    return REQUIREMENTS.read_text() + (ROOT / "pyproject.toml").read_text().partition("[project.scripts]")[0]


def main() -> int:
    if is_ready():
        return 0
    print("making the environment of Flower", flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    venv.create(FOLDER, with_pip=True)
    # hubermean's own constraints must not pin Flower's packages.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    install = [
        str(PYTHON),
        "-m",
        "pip",
        "install",
        "--quiet",
        "-e",
        str(ROOT),
        "-r",
        str(REQUIREMENTS),
        "pytest>=8.3",
    ]
    if subprocess.run(install, env=environment, check=False).returncode != 0:
        print("pip could not install Flower", file=sys.stderr)
        return 1
    (FOLDER / ".made-from").write_text(wanted())
    return 0


if __name__ == "__main__":
    sys.exit(main())
