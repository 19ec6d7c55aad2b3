"""Work shared out among the processors of this machine."""

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

# With fewer numbers than this a pass takes a few milliseconds, and threads would not pay.
WORTHWHILE = 2**22
_MOST_THREADS = 4  # each holds a block of rows, and more would wait for memory


def processors() -> int:
    """How many this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such question outside Linux
        return os.cpu_count() or 1


def most_at_once() -> int:
    """How many pieces of work are worth doing at the same time."""
    return min(processors(), _MOST_THREADS)


def shared_out(work: Callable[[slice], T], n_rows: int, row_elements: int) -> list[T]:
    """What `work` makes of each of some ranges that cover all rows, in order."""
    return at_once(work, shares(n_rows, row_elements))


def shares(n_rows: int, row_elements: int) -> list[slice]:
    """A range of rows for each of the threads that share them; one range if there is little to do."""
    threads = min(most_at_once(), n_rows) if n_rows * row_elements >= WORTHWHILE else 1
    cuts = [n_rows * number // threads for number in range(threads + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def at_once(work: Callable[[S], T], items: list[S]) -> list[T]:
    """What `work` makes of each item, in order; the first is the caller's own, each other has a thread.

    None works on when this returns, or fails, or is interrupted. Threads are made anew each time: those of a pool that
    is kept do not survive a fork.
    """
    others = [_Share(work, item) for item in items[1:]]
    try:
        for other in others:
            other.start()
        first = [work(item) for item in items[:1]]
    finally:
        wait_for(others)
    return first + [other.result() for other in others]


def wait_for(threads: Sequence[Th], *, told: Callable[[Th], None] = lambda _: None) -> None:
    """Until all that were started have ended, each `told` so first, maybe more than once; an interrupt waits, too."""
    interrupt: KeyboardInterrupt | None = None
    waiting = True
    while waiting:
        try:
            for thread in threads:
                told(thread)
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            waiting = False
        except KeyboardInterrupt as raised:
            interrupt = raised
    if interrupt is not None:
        raise interrupt


class _Share(Thread, Generic[S, T]):
    """A thread that does one item's work and keeps what comes of it, a failure included.

    It works in the context of the caller, so that what numpy makes of an overflow is the same in all shares.
    """

    def __init__(self, work: Callable[[S], T], item: S) -> None:
        super().__init__(daemon=True)
        self._work, self._item = work, item
        self._from_caller = copy_context()
        self._made: list[T] = []
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._made.append(self._from_caller.run(self._work, self._item))
        except BaseException as failure:  # noqa: BLE001 - raised where the result is asked for
            self._failure = failure

    def result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._made[0]
