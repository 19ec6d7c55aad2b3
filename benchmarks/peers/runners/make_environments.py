"""A virtual environment per peer, `.venv-<peer>` beside this file, with plain pip and pinned versions.

    python benchmarks/peers/runners/make_environments.py [PEER ...]

The peers want versions of common packages that hubermean does not, so none of them shares its environment. An
environment that already holds what its requirements name is left alone. A peer that cannot be installed is reported,
the others go on, and the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PEERS = ("opendp", "pipelinedp", "diffprivlib", "tumult")
"""Those of `make environments`; any other with a file of requirements is made when it is named."""


def python_of(peer: str) -> Path:
    return HERE / f".venv-{peer}" / "bin" / "python"


def is_ready(peer: str) -> bool:
    """Whether the environment was made, to the end, from the requirements of today."""
    made_from = HERE / f".venv-{peer}" / ".made-from"
    return made_from.is_file() and made_from.read_text() == _requirements(peer).read_text()


def _requirements(peer: str) -> Path:
    return HERE / f"requirements-{peer}.txt"


def _make(peer: str) -> bool:
    folder = HERE / f".venv-{peer}"
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    # hubermean's own constraints must not pin the peers' packages.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    command = [str(python_of(peer)), "-m", "pip", "install", "--quiet", "-r", str(_requirements(peer))]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        return False
    (folder / ".made-from").write_text(_requirements(peer).read_text())
    return True


def main() -> int:
    failed = []
    for peer in sys.argv[1:] or PEERS:
        if is_ready(peer):
            continue
        print(f"{peer}: making its environment", flush=True)
        if not _make(peer):
            print(f"{peer}: pip could not install it; the comparison will do without", flush=True)
            failed.append(peer)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
