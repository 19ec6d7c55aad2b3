"""`tested` on a memory-mapped array and on lists in Parquet beside numpy's mean and sum, in turns: a line of JSON.

A process of its own, for the memory is that of the process; `suite_vectors.py` starts it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import hubermean as hm
import hubermean.location.huber as solver
from side_by_side import in_turns

EPSILON, DELTA = 1.0, 1e-6


def main() -> None:
    given = json.loads(sys.argv[1])
    array = np.load(given["path"], mmap_mode="r")
    dimension = array.shape[1]
    # Wide enough for Gaussian users of deviation 1: they lie sqrt(d) from their centre, give or take 1.
    threshold, radius = 2.0 * dimension**0.5 + 3.0, 1000.0 * dimension**0.5

    def release(users: Any) -> Any:
        return hm.mean_of_user_means(
            users, epsilon=EPSILON, delta=DELTA, mechanism="tested", threshold=threshold, radius=radius
        )

    release(np.ones((4000, 3), dtype=np.float32) * np.arange(3))  # what is loaded at first use
    jobs = {
        "read": lambda: float(array.sum(dtype=np.float32)),
        "plain": lambda: array.mean(axis=0, dtype=np.float64),
        "hubermean": lambda: release(array),
    }
    # Not in turn with the others: it writes a file as large as theirs, which the disk is busy with afterwards.
    lists = {"lists": lambda: release(hm.vectors(given["lists"], user="user", value="update"))}
    with counted_passes() as passes:
        release(array)
    with most_held() as held:
        release(array)
    times = in_turns(jobs, given["repeats"]) | in_turns(lists, given["repeats"])
    print(json.dumps({"seconds": times, "passes": len(passes), "extra_bytes": held[1] - held[0]}))


@contextmanager
def counted_passes() -> Iterator[list[None]]:
    """Over all users: one that looks whether their numbers are finite and near, one for their mean, and those of the
    solver."""
    passes: list[None] = [None, None]
    plain = solver.sweep

    def counted(*given: Any, **more: Any) -> Any:
        passes.append(None)
        return plain(*given, **more)

    solver.sweep = counted  # type: ignore[assignment]
    try:
        yield passes
    finally:
        solver.sweep = plain


@contextmanager
def most_held() -> Iterator[list[int]]:
    """[before, the most inside], of anonymous memory in bytes, looked at every few milliseconds."""
    held = [_anonymous()] * 2
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            held[1] = max(held[1], _anonymous())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield held
    finally:
        done.set()
        watcher.join()


def _anonymous() -> int:
    (kilobytes,) = re.findall(r"^RssAnon:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kilobytes) * 1024


if __name__ == "__main__":
    main()
