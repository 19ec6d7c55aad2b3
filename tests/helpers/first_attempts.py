"""Wrong and unusual first attempts: what a new user types or writes, and what comes back. No test here.

    python tests/helpers/first_attempts.py                    # print the table
    python tests/helpers/first_attempts.py --write            # into docs/evidence/first-attempts.md
    python tests/helpers/first_attempts.py --json FILE        # what comes back, as data

Attempts share a folder of files. Each has a ledger of its own, with a data set of epsilon = 10 that it is charged to.
`first_attempts_before.json` holds what came back before messages were reviewed, for the column beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import hubermean as hm
from helpers.attempts import ATTEMPTS, Attempt, write_files
from helpers.command_line import typed

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "first-attempts.md"
BEFORE = Path(__file__).with_name("first_attempts_before.json")
TOTAL = 10.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came back: an exit code (of Python the name of the error), a message, and what the ledger holds."""

    exit_code: str
    message: str
    ledger: str


def attempt(one: Attempt, files: Path) -> Result:
    """Make an attempt in a folder of files, with a new ledger."""
    ledger = files / "budget.sqlite"
    ledger.unlink(missing_ok=True)
    with hm.Ledger(ledger) as book:
        book.init("trips", epsilon=TOTAL, delta=1e-3)
    with contextlib.chdir(files):
        if one.code is not None:
            exit_code, message = _run_python(
                one.code, {"ledger": str(ledger), "dataset": "trips"} if one.charged else {}
            )
        else:
            words = (
                [*one.words, "--ledger", str(ledger), "--dataset", "trips"] if one.charged else [*one.words]
            )
            exit_code, message = _run_command(words, dict(one.environment))
    with hm.Ledger(ledger) as book:
        spent, entries = book.dataset("trips").spent.loss, [entry.kind for entry in book.entries("trips")]
    kinds = [kind for kind in entries if kind not in ("dataset", "charged", "opened")]
    recorded = f"{', '.join(kinds)}; epsilon {float(spent):g} spent" if kinds or spent else "nothing"
    return Result(exit_code=exit_code, message=_public(message, files), ledger=recorded)


def _run_command(words: Sequence[str], environment: dict[str, str]) -> tuple[str, str]:
    """Return the exit code and the message: an error, or the first line of the answer and its warnings."""
    done = typed(*words, **{"COLUMNS": "80", **environment})
    if done.returncode:
        return str(done.returncode), done.stderr.strip()
    return "0", _answer(done.stdout)


def _run_python(code: Callable[[dict[str, Any]], Any], ledger: dict[str, Any]) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "released", _answer(repr(code(ledger)))
    except Exception as error:  # noqa: BLE001 - whatever comes back is what is listed
        return type(error).__name__, str(error)


def _answer(shown: str) -> str:
    """Return what is said beside the number: its warnings, without the digits of the noise."""
    text = " ".join(line.strip() for line in shown.splitlines())
    found = re.search(
        r"(?:Warning|warning) +(.*?) +(?:95% interval|interval covers|Interval|│ interval|Based on)", text
    )
    return (
        f"released, with a warning: {' '.join(found[1].replace('│', ' ').split())}" if found else "released"
    )


def _public(message: str, files: Path) -> str:
    """Return a message without this machine's folders and the digits of noise."""
    text = " ".join(message.replace(str(files), ".").replace("\n", " ⏎ ").split())
    return re.sub(r"(?<=about )[\d,]+(?= usable)|(?<=About )[\d,]+(?= usable)", "N", text)


def run_all() -> dict[str, Result]:
    """Make all attempts; the result of each by its name."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        write_files(files)
        return {one.name: attempt(one, files) for one in ATTEMPTS}


def write_table(results: dict[str, Result], before: dict[str, dict[str, str]]) -> str:
    """Return the page."""
    lines = [
        "# First attempts",
        "",
        "What new users try, and what comes back: exit code (in Python the kind of the error), message, and what the "
        f"ledger recorded of a budget of epsilon = {TOTAL:g}. Beside it, what came back before the messages were "
        "reviewed (commit 19af849). Every refusal is one sentence that says what to do, has a non-zero exit code, and "
        "costs nothing unless it is itself a private result.",
        "",
        "Written by `python tests/helpers/first_attempts.py --write`. The test suite makes all attempts again.",
    ]
    for group in dict.fromkeys(one.group for one in ATTEMPTS):
        lines += ["", f"## {group}", "", "| attempt | before | now |", "|---|---|---|"]
        for one in ATTEMPTS:
            if one.group == group:
                old = before.get(one.name)
                shown = "not tried" if old is None else _cell(Result(**old))
                lines.append(f"| {one.name} | {shown} | {_cell(results[one.name])} |")
    return "\n".join(lines) + "\n"


def _cell(result: Result) -> str:
    message = result.message.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
    recorded = "" if result.ledger == "nothing" else f" *Ledger: {result.ledger}.*"
    return f"**{result.exit_code}** {message}{recorded}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--json", type=Path, help="write what comes back to this file")
    given = parser.parse_args()
    results = run_all()
    if given.json is not None:
        plain = {name: vars(result) for name, result in results.items()}
        given.json.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    page = write_table(results, json.loads(BEFORE.read_text(encoding="utf-8")))
    if given.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
