"""Releases of a memory-mapped array, with defaults only and by `propose-test-release`, and of lists in Parquet, beside
numpy's mean and sum, in turns: a line of JSON.

A process of its own, for the memory is that of the process; `suite_vectors.py` starts it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import hubermean as hm
from common.interleaved import in_turns
from hubermean.data import user_table
from hubermean.distributions.output import NoiseDistribution
from hubermean.huber import core, descent
from hubermean.huber.distances import Distances

EPSILON, DELTA = 1.0, 1e-6
HOSTILE = 20  # one user in so many


def main() -> None:
    given = json.loads(sys.argv[1])
    array = np.load(given["path"], mmap_mode="r")
    dimension = array.shape[1]
    # Wide enough for Gaussian users of deviation 1: they lie sqrt(d) from their center, give or take 1.
    threshold, radius = 2.0 * dimension**0.5 + 3.0, 1000.0 * dimension**0.5

    def release(users: Any) -> Any:
        return hm.mean_of_user_means(
            users,
            epsilon=EPSILON,
            delta=DELTA,
            mechanism="propose-test-release",
            threshold=threshold,
            radius=radius,
        )

    def default(users: Any) -> Any:
        return hm.mean_of_user_means(users, epsilon=EPSILON, delta=DELTA)

    release(np.ones((4000, 3), dtype=np.float32) * np.arange(3))  # what is loaded at first use
    default(np.ones((4000, 40), dtype=np.float32) * np.arange(40))
    jobs = {
        "read": lambda: float(array.sum(dtype=np.float32)),
        "plain": lambda: array.mean(axis=0, dtype=np.float64),
        "single": lambda: array.mean(axis=0),
        "defaults": lambda: default(array),
        "hubermean": lambda: release(array),
    }
    # Not in turn with the others: it writes a file as large as theirs, which the disk is busy with afterwards.
    lists = {"lists": lambda: release(hm.vectors(given["lists"], user="user", value="update"))}
    with most_held() as held:
        release(array)
    with most_held() as held_by_default:
        default(array)
    honest, hostile = array, _with_hostile(given["path"])
    jobs["hostile"] = lambda: release(hostile)
    parts = {
        name: [timed_parts(lambda users=users: release(users)) for _ in range(given["repeats"])]
        for name, users in (("honest", honest), ("hostile", hostile))
    }
    best = {name: {part: min(one[part] for one in runs) for part in runs[0]} for name, runs in parts.items()}
    times = in_turns(jobs, given["repeats"]) | in_turns(lists, given["repeats"])
    shifted = np.load(given["path"], mmap_mode="c")
    for row in shifted:
        row += 3.0
    times |= in_turns({"shifted": lambda: default(shifted)}, given["repeats"])
    extra = {
        "extra_bytes": held[1] - held[0],
        "extra_bytes_by_default": held_by_default[1] - held_by_default[0],
    }
    print(json.dumps({"seconds": times, "parts": best, **extra}))


def _with_hostile(path: str) -> np.ndarray[Any, Any]:
    """The same users, one in twenty thirty times as far away and all of these on one side."""
    array: np.ndarray[Any, Any] = np.load(path, mmap_mode="c")
    for row in array[::HOSTILE]:
        row *= 30.0
        row += 5.0
    return array


FINITE, SUM, LOOK, DISTANCES, NOISE, ALL = (
    "squares of all rows: finite and near",
    "their sum",
    "looks at users beyond the threshold",
    "distances of whoever may be",
    "noise",
    "the whole release",
)
_PARTS = (
    (FINITE, user_table, "find_finite_rows"),
    (SUM, core, "weighted_sum"),
    (LOOK, descent, "evaluate_gradient"),
    (DISTANCES, Distances, "_refine_in_single_precision"),
    (DISTANCES, Distances, "_compute"),
    (NOISE, NoiseDistribution, "sample"),
)
"""What takes the time of a release, and where it is called."""


def timed_parts(job: Callable[[], object]) -> dict[str, float]:
    """Seconds in all, of each part and of the whole."""
    found = dict.fromkeys((*(name for name, _, _ in _PARTS), ALL), 0.0)

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def worked(*given: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*given, **more)
            finally:
                found[name] += time.perf_counter() - start

        return worked

    with ExitStack() as patches:
        for name, owner, attribute in _PARTS:
            work = timed(name, getattr(owner, attribute))
            patches.enter_context(patch.object(owner, attribute, work))
        timed(ALL, job)()
    return found


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
