"""Searches that do not depend on each other, such as one a column, made side by side.

A pass over users on many machines takes seconds, whatever is asked. Each of the searches runs in a thread of its own up
to its next question; then one pass asks all of these questions, and all go on with their answers. So sixteen columns
take as many passes as one, and a search is written as if it were alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from hubermean.mechanisms.asked_once import Look, SameUsers, each_part_at_once
from hubermean.threads import wait_for
from hubermean.user_table import PrivateTable, UserTable

T = TypeVar("T")

_MOST_AT_ONCE = 16  # so that the answers of all parts to all of them fit the memory of the driver


def side_by_side(table: PrivateTable, searches: Sequence[Callable[[PrivateTable], T]]) -> list[T]:
    """What each search makes of the table, in order; in parts, with as many passes as the longest of them takes.

    *Formal guarantees*
    - Every search sees the answers that it would see alone. The first failure, in their order, is raised.
    - No thread is left when this returns, fails or is interrupted.
    """
    if isinstance(table, UserTable):
        return [search(table) for search in searches]
    made: list[T] = []
    for start in range(0, len(searches), _MOST_AT_ONCE):
        made += _batch(table, searches[start : start + _MOST_AT_ONCE])
    return made


def _batch(table: PrivateTable, searches: Sequence[Callable[[PrivateTable], T]]) -> list[T]:
    threads = [_Search(search, table) for search in searches]
    try:
        for thread in threads:
            thread.start()
        waiting = [thread for thread in threads if thread.next_question()]
        while waiting:
            answers = each_part_at_once(table, [thread.question for thread in waiting])
            for thread, answer in zip(waiting, answers, strict=True):
                thread.go_on(answer)
            waiting = [thread for thread in waiting if thread.next_question()]
    finally:
        wait_for(threads, told=_Search.give_up)
    return [thread.result() for thread in threads]


class _GivenUpError(BaseException):
    """Ends a search whose question will not be answered; nothing that a search catches."""


class _Search(Thread, Generic[T]):
    """One search; to it, this thread is the table.

    It works in the context of the caller, so that numpy does with an overflow what it would do there.
    """

    def __init__(self, search: Callable[[PrivateTable], T], table: PrivateTable) -> None:
        super().__init__(daemon=True)
        self._search, self._table = search, table
        self._from_caller = copy_context()
        self._questions: SimpleQueue[Look | None] = SimpleQueue()
        self._answers: SimpleQueue[list[Any] | _GivenUpError] = SimpleQueue()
        self._question: Look | None = None
        self._made: list[T] = []
        self._failure: BaseException | None = None

    # What the caller does.

    def next_question(self) -> bool:
        """Wait for it; whether there is one, or else an end."""
        self._question = self._questions.get()
        return self._question is not None

    @property
    def question(self) -> Look:
        assert self._question is not None
        return self._question

    def go_on(self, answers: list[Any]) -> None:
        self._answers.put(answers)

    def give_up(self) -> None:
        """Whatever is asked from now on is not answered."""
        self._answers.put(_GivenUpError())

    def result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._made[0]

    # What the search does.

    def run(self) -> None:
        users = _Waiting(self._table, self.ask)
        try:
            self._made.append(self._from_caller.run(self._search, users))
        except BaseException as failure:  # noqa: BLE001 - raised where the result is asked for
            self._failure = failure
        users.wait_no_more()
        self._questions.put(None)

    def ask(self, look: Look) -> list[Any]:
        self._questions.put(look)
        answers = self._answers.get()
        if isinstance(answers, _GivenUpError):
            raise answers
        return answers


class _Waiting(SameUsers):
    """The table as a search sees it: it waits for its answers. What a search made may ask when that is over, too."""

    def __init__(self, table: PrivateTable, ask: Callable[[Look], list[Any]]) -> None:
        super().__init__(table)
        self._ask = ask

    def wait_no_more(self) -> None:
        self._ask = self._table.each_part

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        return self._ask(look)
