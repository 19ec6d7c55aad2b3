"""The speed of reading in the working tree beside that of another revision: the same releases, in turns.

    python -m speed.compare_revisions --base d0f6a76

Each revision runs in a process of its own; both have the packages of this environment. In every turn all release the
same mean, and who begins changes with the turn. A ratio above one means that the working tree is slower. The base runs
twice: how far its two ratios are from one is noise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.rows_file import AMOUNT, SCATTERED, TEXT, USER, WHOLE, RowsFile, make_file
from common.sections import Table, seconds

ROOT = Path(__file__).parents[2]
RELATION = "replace-user"  # a relation that every revision knows, and whose users are counted
OURS, BASE, AGAIN = "working tree", "base", "base again"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is read: a column by users, from the file or from a frame of it."""

    title: str
    user: str
    column: str
    frame: str = ""


CASES = (
    Case(title="Parquet, integer ids, double", user=USER, column=AMOUNT),
    Case(title="Parquet, integer ids, integer", user=USER, column=WHOLE),
    Case(title="Parquet, text ids, double", user=TEXT, column=AMOUNT),
    Case(title="Parquet, text ids, integer", user=TEXT, column=WHOLE),
    Case(title="Parquet, scattered ids, double", user=SCATTERED, column=AMOUNT),
    Case(title="Parquet, scattered ids, integer", user=SCATTERED, column=WHOLE),
    Case(title="Arrow, integer ids, double", user=USER, column=AMOUNT, frame="arrow"),
    Case(title="Arrow, text ids, double", user=TEXT, column=AMOUNT, frame="arrow"),
    Case(title="pandas, integer ids, double", user=USER, column=AMOUNT, frame="pandas"),
    Case(title="pandas, text ids, double", user=TEXT, column=AMOUNT, frame="pandas"),
    Case(title="pandas, scattered ids, integer", user=SCATTERED, column=WHOLE, frame="pandas"),
)


def work(threads: int) -> None:
    """Answer questions, one a line, with the seconds that the release took."""
    import hubermean

    print(json.dumps(hubermean.__file__), flush=True)
    held: tuple[Any, Any] = (None, None)
    for line in sys.stdin:
        what = json.loads(line)
        if held[0] != what:
            held = (None, None)  # one frame at a time
            held = (what, _data(*what))
        start = time.perf_counter()
        hubermean.mean(held[1], user=what[1], value=what[2], epsilon=1.0, neighbors=RELATION, threads=threads)
        print(json.dumps(time.perf_counter() - start), flush=True)


def _data(path: str, user: str, column: str, frame: str) -> Any:
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=[user, column]) if frame else path
    return table.to_pandas() if frame == "pandas" else table


@contextlib.contextmanager
def worker(source: Path, threads: int) -> Iterator[Callable[[RowsFile, Case], float]]:
    command = [sys.executable, __file__, "--work", "--threads", str(threads)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT / "benchmarks")])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if not Path(json.loads(process.stdout.readline())).is_relative_to(source):
            raise RuntimeError("another hubermean than the one to be measured was imported")

        def ask(file: RowsFile, case: Case) -> float:
            print(json.dumps([file.path, case.user, case.column, case.frame]), file=process.stdin, flush=True)
            return float(json.loads(process.stdout.readline()))  # type: ignore[union-attr]

        yield ask
        process.stdin.close()


def compare(given: argparse.Namespace) -> Table:
    file, small = make_file(given.rows, given.users), make_file(given.frame_rows, given.users)
    rows = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as started:
        archive = subprocess.check_output(["git", "archive", given.base, "src"], cwd=ROOT)
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        places = {OURS: ROOT / "src", BASE: Path(folder, "src"), AGAIN: Path(folder, "src")}
        ask = {name: started.enter_context(worker(place, given.threads)) for name, place in places.items()}
        for case in (one for one in CASES if given.only in one.title):
            of = small if case.frame else file
            times: dict[str, list[float]] = {name: [] for name in ask}
            for turn in range(-1, given.turns):  # the first is not counted
                for name in [*ask] if turn % 2 else reversed([*ask]):
                    times[name].append(ask[name](of, case))
            kept = {name: found[1:] for name, found in times.items()}
            best = (seconds(min(kept[name])) for name in (OURS, BASE))
            ratios = (_ratio(kept[name], kept[BASE]) for name in (OURS, AGAIN))
            rows.append([case.title, f"{of.rows:,}", *best, *ratios])
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    title = f"Working tree beside {given.base}: {given.users:,} users, {given.turns} turns, {given.threads} threads"
    headings = ["reading", "rows", "s", "base s", "ratio", "base over base"]
    return Table(title=title, headings=headings, rows=rows, left=["reading"])


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The median of the turns' ratios, with the least and the largest."""
    each = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f}..{max(each):.2f})"


def main() -> None:
    options = argparse.ArgumentParser(description="the speed of reading beside that of another revision")
    options.add_argument("--base", default="main", help="a commit, branch or tag")
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--users", type=int, default=1_000_000)
    options.add_argument("--frame-rows", type=int, default=5_000_000, help="of pandas and Arrow frames")
    options.add_argument("--turns", type=int, default=7)
    options.add_argument("--only", default="", help="cases whose title has these words in it")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        work(given.threads)
    else:
        print(compare(given).text())


if __name__ == "__main__":
    main()
