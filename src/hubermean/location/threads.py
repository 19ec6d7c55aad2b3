"""Rows shared out among the processors of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

# With fewer numbers than this a pass takes a few milliseconds, and threads would not pay.
WORTHWHILE = 2**22
_MOST_THREADS = 4  # each holds a block of rows, and more would wait for memory


def processors() -> int:
    """How many this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such question outside Linux
        return os.cpu_count() or 1


def shared_out(work: Callable[[slice], T], n_rows: int, row_elements: int) -> list[T]:
    """What `work` makes of each of some ranges that cover all rows, in order; of one range if there is little to do."""
    threads = min(processors(), _MOST_THREADS, n_rows)
    if threads <= 1 or n_rows * row_elements < WORTHWHILE:
        return [work(slice(0, n_rows))]
    cuts = [n_rows * number // threads for number in range(threads + 1)]
    ranges = [slice(start, stop) for start, stop in pairwise(cuts)]
    # Made anew each time: a pool that is kept does not survive a fork.
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, ranges))
