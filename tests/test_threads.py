"""Work shared out among threads: all of it is done, in order, and no failure is lost."""

from __future__ import annotations

import os
import threading

import pytest

from hubermean import threads


def test_results_are_in_the_order_of_the_items() -> None:
    assert threads.at_once(lambda item: item * item, list(range(7))) == [0, 1, 4, 9, 16, 25, 36]
    assert threads.at_once(lambda item: item, [5]) == [5]


def test_the_first_is_done_by_the_caller_and_each_other_by_a_thread() -> None:
    workers = threads.at_once(lambda _: threading.current_thread(), [0, 1, 2])
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
        threads.at_once(work, [0, 1, 2])
    assert sorted(done) == sorted({0, 1, 2} - {failing})


def test_ranges_cover_all_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "processors", lambda: 3)
    shares = threads.shared_out(lambda share: list(range(share.start, share.stop)), 10, threads.WORTHWHILE)
    assert len(shares) == 3
    assert [row for share in shares for row in share] == list(range(10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_work_is_shared_out_in_a_forked_process_too() -> None:
    threads.at_once(abs, [1, 2])
    child = os.fork()
    if not child:
        os._exit(0 if threads.at_once(abs, [-1, -2]) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
