"""Sums over partitions, memoised queries, and batches of queries that share a pass.

A pass over users on many machines takes seconds, whatever it computes. Computations that do not depend on each other,
such as one per column, therefore run concurrently: each has a thread of its own and runs up to its next query. Then
one pass answers the pending queries of all of them, and all continue. Sixteen columns take as many passes as one, and
each computation is written as if it ran alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from fractions import Fraction
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from hubermean.data.threads import join_threads
from hubermean.data.user_table import PrivateTable, UserTable

T = TypeVar("T")
Terms = list[list[int]]
Query = Callable[[UserTable], Any]

_LARGEST_BATCH = 16  # so that the answers of all partitions fit the memory of the driver


# --- sums ----------------------------------------------------------------------------------------------------------


def sum_over_partitions(table: PrivateTable, statistic: Callable[[UserTable], Terms]) -> Terms:
    """The statistic of all users, if it is a sum over users: entry by entry, in integers of any size."""
    return _sum_terms(table.map_partitions(_BlockwiseSum(statistic)))


@dataclass(frozen=True, repr=False)
class _BlockwiseSum:
    """The statistic of a partition, computed in blocks of users that fit the processor's cache."""

    statistic: Callable[[UserTable], Terms]

    def __call__(self, part: UserTable) -> Terms:
        return _sum_terms([self.statistic(block) for block in part.blocks()])


def _sum_terms(parts: Sequence[Terms]) -> Terms:
    return [[sum(entries) for entries in zip(*terms, strict=True)] for terms in zip(*parts, strict=True)]


# --- memoised queries ----------------------------------------------------------------------------------------------


def memoise(table: PrivateTable) -> PrivateTable:
    """The same users, with the results of earlier computations or queries kept for one release."""
    if isinstance(table, UserTable):
        return table.with_cache()
    return table if isinstance(table, MemoisedTable) else MemoisedTable(table)


def run_queries(table: PrivateTable, queries: Sequence[Query]) -> list[list[Any]]:
    """The answers of all partitions to each query, in at most one pass."""
    if isinstance(table, MemoisedTable):
        return table.run_queries(queries)
    parts = table.map_partitions(_BatchedQuery(tuple(queries)))
    return [[part[place] for part in parts] for place in range(len(queries))]


class TableWrapper:
    """The users of another table; a subclass answers queries in its own way."""

    def __init__(self, table: PrivateTable) -> None:
        self._table = table

    @property
    def columns(self) -> tuple[str, ...]:
        return self._table.columns

    @property
    def n_users(self) -> int:
        return self._table.n_users

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return self._table.limits

    @property
    def max_local_users(self) -> int | None:
        return self._table.max_local_users

    def collect(self) -> UserTable:
        return self._table.collect()


class MemoisedTable(TableWrapper):
    """Keeps the answers to queries, by the pickled query; private, and discarded with the release."""

    def __init__(self, table: PrivateTable) -> None:
        super().__init__(table)
        self._answers: dict[bytes, list[Any]] = {}

    def map_partitions(self, look: Callable[[UserTable], T]) -> list[T]:
        (answers,) = self.run_queries([look])
        return answers

    def run_queries(self, queries: Sequence[Query]) -> list[list[Any]]:
        """The answers of all partitions to each query; one pass if any of the queries is new."""
        keys = [pickle.dumps(query) for query in queries]
        new = {key: query for key, query in zip(keys, queries, strict=True) if key not in self._answers}
        if new:
            self._answers.update(zip(new, run_queries(self._table, list(new.values())), strict=True))
        return [self._answers[key] for key in keys]


@dataclass(frozen=True, repr=False)
class _BatchedQuery:
    """Several queries of one partition."""

    queries: tuple[Query, ...]

    def __call__(self, part: UserTable) -> list[Any]:
        return [query(part) for query in self.queries]


# --- batched queries -----------------------------------------------------------------------------------------------


def run_batched(table: PrivateTable, computations: Sequence[Callable[[PrivateTable], T]]) -> list[T]:
    """The results of independent computations, in order; over partitions in as many passes as the longest of them.

    *Formal guarantees*
    - Every computation sees the answers that it would see alone. The first failure, in their order, is raised.
    - No thread is left when this returns, fails or is interrupted.
    """
    if isinstance(table, UserTable):
        return [compute(table) for compute in computations]
    results: list[T] = []
    for start in range(0, len(computations), _LARGEST_BATCH):
        results += _run_batch(table, computations[start : start + _LARGEST_BATCH])
    return results


def run_each(table: PrivateTable, computations: Sequence[Callable[[PrivateTable], T]]) -> Iterable[T]:
    """As `run_batched`; on one machine each result is computed when it is take, so wide data needs no more memory."""
    if isinstance(table, UserTable):
        return (compute(table) for compute in computations)
    return run_batched(table, computations)


def _run_batch(table: PrivateTable, computations: Sequence[Callable[[PrivateTable], T]]) -> list[T]:
    threads = [_ComputationThread(compute, table) for compute in computations]
    try:
        for thread in threads:
            thread.start()
        waiting = [thread for thread in threads if thread.wait_for_query()]
        while waiting:
            answers = run_queries(table, [thread.query for thread in waiting])
            for thread, answer in zip(waiting, answers, strict=True):
                thread.resume(answer)
            waiting = [thread for thread in waiting if thread.wait_for_query()]
    finally:
        join_threads(threads, notify=_ComputationThread.cancel)
    return [thread.result() for thread in threads]


class _CancelledError(BaseException):
    """Ends a computation whose query will not be answered; a BaseException, so that the computation does not catch
    it.
    """


class _ComputationThread(Thread, Generic[T]):
    """One computation, whose queries wait for the next pass.

    It runs in the context of the caller, so that numpy treats an overflow as it would there.
    """

    def __init__(self, compute: Callable[[PrivateTable], T], table: PrivateTable) -> None:
        super().__init__(daemon=True)
        self._compute, self._table = compute, table
        self._caller_context = copy_context()
        self._queries: SimpleQueue[Query | None] = SimpleQueue()
        self._answers: SimpleQueue[list[Any] | _CancelledError] = SimpleQueue()
        self._query: Query | None = None
        self._results: list[T] = []
        self._failure: BaseException | None = None

    # Called by the thread that runs the batch.

    def wait_for_query(self) -> bool:
        """Wait for the next query; False if the computation has ended."""
        self._query = self._queries.get()
        return self._query is not None

    @property
    def query(self) -> Query:
        assert self._query is not None
        return self._query

    def resume(self, answers: list[Any]) -> None:
        self._answers.put(answers)

    def cancel(self) -> None:
        """Answer no further query."""
        self._answers.put(_CancelledError())

    def result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._results[0]

    # Called by the computation.

    def run(self) -> None:
        users = _BatchingTable(self._table, self.submit)
        try:
            self._results.append(self._caller_context.run(self._compute, users))
        except BaseException as failure:  # noqa: BLE001 - raised where the result is take
            self._failure = failure
        users.stop_batching()
        self._queries.put(None)

    def submit(self, query: Query) -> list[Any]:
        """Hand over a query and wait for its answers."""
        self._queries.put(query)
        answers = self._answers.get()
        if isinstance(answers, _CancelledError):
            raise answers
        return answers


class _BatchingTable(TableWrapper):
    """The table as a computation sees it. What the computation returned may run queries after the batch has ended."""

    def __init__(self, table: PrivateTable, submit: Callable[[Query], list[Any]]) -> None:
        super().__init__(table)
        self._submit = submit

    def stop_batching(self) -> None:
        self._submit = self._table.map_partitions

    def map_partitions(self, look: Callable[[UserTable], T]) -> list[T]:
        return self._submit(look)
