"""Work shared out among threads: all of it is done, in order, and no failure is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean.data import threads


def test_results_are_in_the_order_of_the_items() -> None:
    assert threads.run_in_threads(lambda item: item * item, list(range(7))) == [0, 1, 4, 9, 16, 25, 36]
    assert threads.run_in_threads(lambda item: item, [5]) == [5]


def test_the_first_is_done_by_the_caller_and_each_other_by_a_thread() -> None:
    workers = threads.run_in_threads(lambda _: threading.current_thread(), [0, 1, 2])
    assert workers[0] is threading.current_thread()
    assert len(set(workers)) == 3


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_is_raised_after_all_have_ended(failing: int) -> None:
    done = []

    def work(item: int) -> None:
        if item == failing:
            raise KeyError(item)
        done.append(item)

    with pytest.raises(KeyError, match=str(failing)):
        threads.run_in_threads(work, [0, 1, 2])
    assert sorted(done) == sorted({0, 1, 2} - {failing})


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there is no such signal here")
def test_an_interrupt_waits_until_no_thread_works_on() -> None:
    ended: list[int] = []
    begun = threading.Event()

    def work(item: int) -> None:
        if item == 0:
            begun.set()
            return
        begun.wait()
        time.sleep(0.1)  # the caller waits for us by now
        if item == 1:
            os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(0.2 * item)
        ended.append(item)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.run_in_threads(work, [0, 1, 2])
        assert ended == [1, 2]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_thread_that_cannot_start_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread._item == 2:  # type: ignore[attr-defined]
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threads._ItemThread, "start", limited)
    with pytest.raises(RuntimeError, match="start"):
        threads.run_in_threads(lambda item: (time.sleep(0.2), ended.append(item)), [0, 1, 2])
    assert ended == [1]


@pytest.mark.parametrize("first", [100.0, 1e-200])
@pytest.mark.parametrize("processors", [1, 2])
def test_what_a_caller_has_numpy_raise_is_not_raised_for_what_users_hold(
    first: float, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "count_processors", lambda: processors)
    monkeypatch.setattr(threads, "MIN_PARALLEL_ELEMENTS", 1)
    means = np.full((6_000, 8), 1e-200)
    means[0] = first
    with np.errstate(all="raise"):
        release = hm.mean_of_user_means(means, epsilon=1.0, delta=1e-6, threshold=1.0, radius=10.0)
        assert np.geterr()["under"] == "raise"
    assert len(release.values) == 8


def test_all_shares_have_the_callers_context() -> None:
    with np.errstate(all="ignore", under="raise"):
        assert threads.run_in_threads(lambda _: np.geterr()["under"], [0, 1, 2]) == ["raise"] * 3


def test_ranges_cover_all_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "count_processors", lambda: 3)
    shares = threads.map_row_ranges(
        lambda share: list(range(share.start, share.stop)), 10, threads.MIN_PARALLEL_ELEMENTS
    )
    assert len(shares) == 3
    assert [row for share in shares for row in share] == list(range(10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_work_is_shared_out_in_a_forked_process_too() -> None:
    threads.run_in_threads(abs, [1, 2])
    child = os.fork()
    if not child:
        os._exit(0 if threads.run_in_threads(abs, [-1, -2]) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
