"""Run every example of the documentation and compare what it prints with the text.

    python docs/tools/run_examples.py             # exit code 1 and a difference where a page is out of date
    python docs/tools/run_examples.py --write     # put what was printed into the pages: `make tutorial`

The pages are README.md, CONTRIBUTING.md and all pages of docs/ that hold blocks of these languages:

- `console`: shell commands after `$ `, with their output. They run in bash, in a folder with the demo's data; a command
  that starts with `python scripts/` runs in the root of the repository.
- `pycon`: Python after `>>> `, with its output; one session per page.
- `sh`: how to get the software and the data, from a clone. The environment exists already, so only the demo is run.

Releases draw fresh noise, so two readers never see the same digits. Here noise is seeded by the text of the example.
The text can then be compared with the program, and changes when the program does.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import doctest
import io
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(console|pycon|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?", re.MULTILINE)
# How far a search has come, every few seconds: on a slow machine more often than on a page.
PROGRESS = re.compile(r"compared [\d,]+ pairs, about .* left")
LONG = re.compile(r"\d+\.\d{5,}")
SETUP = "make demo\n. .venv/bin/activate\ncd demo-data\n"
DATA = "demo-data"
# What a command may hold to run without a shell, in a process that has the program loaded: most of its time goes there.
PLAIN_COMMAND = re.compile(r"hubermean [^|&;<>$`*?]*")
LOADED = [
    "__main__",
    "duckdb",
    "hubermean._api",
    "hubermean.cli.app",
    "hubermean.cli.output",
    "pyarrow.parquet",
]
TERMINAL = {"COLUMNS": "80", "PYTHONUTF8": "1", "NO_COLOR": "1"}
PROGRAM = """#!{python}
import os, sys
sys.path.insert(0, {tools!r})
import run_examples
run_examples.seed_noise(os.environ["EXAMPLE"])
from hubermean.cli.app import main
main()
"""


def seed_noise(example: str) -> None:
    """Take the noise of all releases of this process from a seed made of the example. It then protects nobody.

    The methods of the source are replaced, not the source: releases look as they do with real noise, without the
    mark that a release with seeded noise carries.
    """
    from hubermean.noise.seeded import InsecureSeededNoise
    from hubermean.noise.system import SystemNoise

    seeded = InsecureSeededNoise(zlib.crc32(example.encode()))
    for name in ("discrete_laplace", "discrete_gaussian", "below", "choose", "permute_and_flip"):
        setattr(SystemNoise, name, staticmethod(getattr(seeded, name)))


def pages() -> list[Path]:
    """Return the pages that hold examples."""
    candidates = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in candidates if BLOCK.search(path.read_text())]


def renewed(text: str, folder: Path) -> str:
    """The text of a page with the output of its examples as it is now."""
    session = _Python()
    run: dict[str, Callable[[str], str]] = {
        "console": lambda block: _console(block, folder),
        "pycon": session.run,
        "sh": _checked_setup,
    }
    return BLOCK.sub(lambda block: f"```{block[1]}\n{run[block[1]](block[2])}```", text)


def prepared_folder(folder: Path) -> Path:
    """Make what the setup leaves: the demo's data; and a program whose noise is seeded."""
    demo = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    if demo.returncode != 0:
        sys.exit(f"the demo failed:\n{demo.stdout}{demo.stderr}")
    program = folder / "bin" / "hubermean"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, tools=str(Path(__file__).parent)))
    program.chmod(0o755)
    return folder / DATA


def _in_short(text: str) -> str:
    """The text with its long numbers cut short: their last digits depend on the processor."""
    return LONG.sub(lambda number: f"{float(number[0]):.7g}", text)


def _checked_setup(block: str) -> str:
    if block != SETUP:
        sys.exit(f"a block of language sh holds the setup, which is:\n{SETUP}")
    return block


def _console(block: str, folder: Path) -> str:
    """The commands of a block, each with what it prints now; errors and output as they come on a terminal."""
    shown = ""
    for command in COMMAND.findall(block):
        plain = PLAIN_COMMAND.fullmatch(command) is not None
        printed = _printed_by_program(command, folder) if plain else _printed_by_shell(command, folder)
        lines = [line.rstrip() for line in printed.splitlines() if not PROGRESS.fullmatch(line)]
        shown += f"$ {command}\n" + "".join(f"{line}\n" for line in lines)
    return shown


def _printed_by_shell(command: str, folder: Path) -> str:
    environment = {
        **os.environ,
        **TERMINAL,
        "PATH": f"{folder.parent / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "EXAMPLE": command,
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT if command.startswith("python scripts/") else folder,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    ).stdout


def _printed_by_program(command: str, folder: Path) -> str:
    """The same in a process that is forked from one that has loaded the program."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary, "output")
        process = context.Process(target=_run_program, args=(command, folder, output))
        process.start()
        process.join()
        return output.read_text(encoding="utf-8")


def _run_program(command: str, folder: Path, output: Path) -> None:
    from hubermean.cli.app import main as program

    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.chdir(folder)
    sys.argv = shlex.split(command.replace("\\\n", ""))
    seed_noise(command)
    program()


class _Python:
    """A session of Python, as at its prompt."""

    def __init__(self) -> None:
        self._names: dict[str, object] = {"__name__": "__main__"}

    def run(self, block: str) -> str:
        shown = ""
        for example in doctest.DocTestParser().get_examples(block):
            prompts = example.source.rstrip("\n").split("\n")
            shown += (
                "\n".join([f">>> {prompts[0]}", *(f"... {line}".rstrip() for line in prompts[1:])]) + "\n"
            )
            shown += "".join(line.rstrip() + "\n" for line in self._printed(example.source).splitlines())
        return shown

    def _printed(self, source: str) -> str:
        seed_noise(source)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of data packages; the program's own fail the test suite
            try:
                exec(compile(source, "<example>", "single"), self._names)
            except Exception as error:  # noqa: BLE001 - an example may show any
                printed.write("Traceback (most recent call last):\n  ...\n")
                printed.write("".join(traceback.format_exception_only(error)))
        return printed.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the examples of the documentation.")
    parser.add_argument("pages", nargs="*", type=Path, help="pages; all that hold examples if left out")
    parser.add_argument("--write", action="store_true", help="renew the pages")
    given = parser.parse_args()
    os.environ.update(TERMINAL)
    out_of_date = []
    chosen = [path.resolve() for path in given.pages] or pages()
    with tempfile.TemporaryDirectory() as temporary:
        folder = prepared_folder(Path(temporary))
        os.chdir(folder)
        for path in chosen:
            text = path.read_text()
            now = renewed(text, folder)
            if _in_short(now) != _in_short(text):
                out_of_date.append(path.name)
                sys.stdout.writelines(
                    difflib.unified_diff(
                        text.splitlines(keepends=True), now.splitlines(keepends=True), str(path), "now"
                    )
                )
                if given.write:
                    path.write_text(now)
        os.chdir(ROOT)
    if out_of_date and not given.write:
        print(f"out of date: {', '.join(out_of_date)}; look at the difference, then run make tutorial")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
