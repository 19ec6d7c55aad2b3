"""Threads: split the rows of a pass among the processors of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextvars import copy_context
from itertools import pairwise
from threading import Thread
from typing import Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")
Th = TypeVar("Th", bound=Thread)

# A pass over fewer numbers takes a few milliseconds, less than threads would save.
MIN_PARALLEL_ELEMENTS = 2**22
_MAX_THREADS = 4  # each holds a block of rows in memory; more would wait for memory bandwidth


def count_processors() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # available on Linux only
        return os.cpu_count() or 1


def choose_thread_count() -> int:
    """Return the number of threads to run at the same time."""
    return min(count_processors(), _MAX_THREADS)


def map_row_ranges(work: Callable[[slice], T], n_rows: int, row_elements: int) -> list[T]:
    """Call `work` on ranges that together cover all rows, in threads; return the results in order."""
    return run_in_threads(work, split_rows(n_rows, row_elements))


def split_rows(n_rows: int, row_elements: int) -> list[slice]:
    """Return one range of rows per thread; a single range for little work."""
    threads = min(choose_thread_count(), n_rows) if n_rows * row_elements >= MIN_PARALLEL_ELEMENTS else 1
    cuts = [n_rows * number // threads for number in range(threads + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def run_in_threads(work: Callable[[S], T], items: list[S]) -> list[T]:
    """Call `work` on each item and return the results in order: the first item in this thread, each other in its own.

    No thread is running when this returns, fails or is interrupted. Threads are created each time, because those of a
    pool would not survive a fork.
    """
    others = [_ItemThread(work, item) for item in items[1:]]
    try:
        for other in others:
            other.start()
        first = [work(item) for item in items[:1]]
    finally:
        join_threads(others)
    return first + [other.result() for other in others]


def join_threads(threads: Sequence[Th], *, notify: Callable[[Th], None] = lambda _: None) -> None:
    """Wait until all started threads have ended; an interrupt is raised only then.

    `notify` is called on each thread first, possibly more than once.
    """
    interrupt: KeyboardInterrupt | None = None
    waiting = True
    while waiting:
        try:
            for thread in threads:
                notify(thread)
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            waiting = False
        except KeyboardInterrupt as raised:
            interrupt = raised
    if interrupt is not None:
        raise interrupt


class _ItemThread(Thread, Generic[S, T]):
    """A thread that calls `work` on one item and holds the result or the error.

    It runs in the caller's context, so that numpy handles overflows in the same way in all threads.
    """

    def __init__(self, work: Callable[[S], T], item: S) -> None:
        super().__init__(daemon=True)
        self._work, self._item = work, item
        self._context = copy_context()
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self._context.run(self._work, self._item))
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]
