"""Work shared out among the processors of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

S = TypeVar("S")
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
    if n_rows * row_elements < WORTHWHILE:
        return [work(slice(0, n_rows))]
    threads = min(processors(), _MOST_THREADS, n_rows)
    cuts = [n_rows * number // threads for number in range(threads + 1)]
    return at_once(work, [slice(start, stop) for start, stop in pairwise(cuts)])


def at_once(work: Callable[[S], T], items: list[S]) -> list[T]:
    """What `work` makes of each item, in order, one thread to an item; a single item needs none."""
    if len(items) == 1:
        return [work(items[0])]
    # Made anew each time: a pool that is kept does not survive a fork.
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(work, items))
