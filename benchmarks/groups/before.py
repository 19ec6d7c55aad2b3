"""What hubermean did before a user's whole row of groups was bounded by one norm, kept in before.json.

    PYTHONPATH=benchmarks python -m groups.before      # about ten minutes, once

Commit 429ab22 counts a user in at most `max_groups` groups, 1 by default. It is checked out into a worktree of its own
and measured in a process of its own, with the tables and the measures of this package: once with defaults only, and
once with the `max_groups` that has the least error, which nobody knows without the data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from groups.measures import Measured, summarize
from groups.releases import release_often
from groups.tables import JUDGE, TUNE, GroupTable, load

COMMIT = "429ab22"
KEPT = Path(__file__).parent / "before.json"
DELTAS = (1e-6, 0.0)
BEFORE, BEFORE_BEST = "before, max_groups = 1", "before, best max_groups"
_TRIED = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100)
_ABOUT = (
    f"Measured with hubermean at commit {COMMIT} by python -m groups.before; groups/before.py says how. "
    "Kept, because that code does not change any more."
)


def measure_before(table: GroupTable, *, per: str, delta: float, runs: int) -> Iterator[Measured]:
    def measured(max_groups: int | None, runs: int, name: str) -> Measured:
        return summarize(
            table,
            release_often(table, per=per, epsilon=1.0, delta=delta, runs=runs, max_groups=max_groups),
            contestant=name,
            setting=f"max_groups = {max_groups or 1}",
            per=per,
            epsilon=1.0,
            delta=delta,
        )

    default = measured(None, runs, BEFORE)
    yield default
    # No more groups than the user with the most is in: more would only add noise.
    most = int(table.groups_per_user.max())
    tried = sorted({min(max_groups, most) for max_groups in _TRIED})
    rough = {max_groups: measured(max_groups, max(3, runs // 6), "") for max_groups in tried}
    best = min(rough, key=lambda max_groups: rough[max_groups].rmse)
    remeasured = default if best == 1 else measured(best, runs, BEFORE_BEST)
    # Few runs chose: in favor of before, what turns out worse than the default is not taken.
    yield replace(min(default, remeasured, key=lambda row: row.rmse), contestant=BEFORE_BEST)


def kept_results(path: Path = KEPT) -> list[Measured]:
    return [Measured(**row) for row in json.loads(path.read_text())["measured"]] if path.exists() else []


def _measure_all(runs: int, tables: Sequence[str] | None) -> None:
    """Measure these tables, or all; what is kept of others stays."""
    for table in load(source for source in TUNE + JUDGE if tables is None or source.name in tables):
        rows = [row for row in kept_results() if row.table != table.name]
        for per in ("user", "record"):
            for delta in DELTAS:
                rows += measure_before(table, per=per, delta=delta, runs=runs)
                print(rows[-2:], flush=True)
        kept = {"about": _ABOUT, "commit": COMMIT, "measured": [asdict(row) for row in rows]}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")


def _measure_in_worktree(runs: int, tables: Sequence[str] | None) -> None:
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--detach", checkout, COMMIT], cwd=root, check=True)
        try:
            path = os.pathsep.join([str(checkout / "src"), str(root / "benchmarks")])
            command = [sys.executable, "-m", "groups.before", "--measure", "--runs", str(runs)]
            command += [] if tables is None else ["--tables", *tables]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=root, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="releases per case")
    parser.add_argument("--tables", nargs="*", help="only tables with these names")
    parser.add_argument(
        "--measure", action="store_true", help="measure the hubermean that Python finds, without a worktree"
    )
    options = parser.parse_args()
    (_measure_all if options.measure else _measure_in_worktree)(options.runs, options.tables)


if __name__ == "__main__":
    main()
