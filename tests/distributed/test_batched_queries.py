"""Searches over users in parts, side by side: the answers of each alone, the passes of one, no thread left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from helpers.partitioned import PartedTable, partitioned, populations
from hubermean import mechanisms
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.queries import _ComputationThread, memoise, run_batched
from hubermean.errors import InputError
from hubermean.mechanisms.propose_test_release.fallback import PreparedWithFallback
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease
from hubermean.mechanisms.registry import Auto
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

Relations = pytest.mark.parametrize("relation", [Neighbors.REPLACE_USER, Neighbors.ADD_REMOVE])


def searching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, _ComputationThread)]


def sum_of(column: int, power: int, part: UserTable) -> float:
    return float((part.column_means(column) ** power).sum())


def moments(table: PrivateTable, column: int, questions: int) -> list[float]:
    """A search of so many questions, each after the answer to the last."""
    return [sum(table.map_partitions(partial(sum_of, column, 1 + power))) for power in range(questions)]


def people(d: int) -> PartedTable:
    return partitioned(UserTable.from_means(np.random.default_rng(d).normal(size=(500, d))), 4)


def test_each_search_sees_what_it_would_see_alone_in_the_passes_of_the_longest() -> None:
    users = people(5)
    searches = [partial(moments, column=column, questions=column) for column in range(5)]
    together = run_batched(users, searches)
    assert users.passes == 4
    assert together == [pytest.approx(moments(users.whole, column, column)) for column in range(5)]  # type: ignore[arg-type]
    assert not searching()


def test_on_one_machine_they_are_made_one_after_the_other() -> None:
    whole = people(3).whole
    assert whole is not None
    assert run_batched(whole, [lambda table: table is whole] * 3) == [True] * 3


def test_more_columns_than_go_at_once_take_a_few_passes_more() -> None:
    users = people(40)
    run_batched(users, [partial(moments, column=column, questions=2) for column in range(40)])
    assert users.passes == 6


def test_what_was_answered_is_not_asked_again() -> None:
    users = people(2)
    table = memoise(users)
    assert memoise(table) is table
    searches = [partial(moments, column=column, questions=3) for column in (0, 1, 1)]
    first = run_batched(table, searches)
    assert users.passes == 3
    assert run_batched(table, searches) == first
    assert moments(table, 1, 3) == first[1]
    assert users.passes == 3


def test_the_first_failure_is_raised_and_no_thread_is_left() -> None:
    def fails(table: PrivateTable, name: str, after: int) -> None:
        moments(table, 0, after)
        raise InputError(name)

    searches = [
        partial(moments, column=1, questions=4),
        partial(fails, name="second", after=3),
        partial(fails, name="third", after=0),
    ]
    with pytest.raises(InputError, match="second"):
        run_batched(people(2), searches)  # type: ignore[arg-type]
    assert not searching()


@pytest.mark.parametrize("failure", [RuntimeError("a worker was lost"), KeyboardInterrupt()])
def test_a_pass_that_fails_ends_all_of_them(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    users, map_partitions = people(3), PartedTable.map_partitions

    def lost(self: PartedTable, look: Callable[[UserTable], Any]) -> list[Any]:
        if self.passes == 2:
            raise failure
        return map_partitions(self, look)

    monkeypatch.setattr(PartedTable, "map_partitions", lost)
    with pytest.raises(type(failure)):
        run_batched(users, [partial(moments, column=column, questions=9) for column in range(3)])
    assert not searching()


@pytest.mark.parametrize("failure", [RuntimeError("no thread can be started"), KeyboardInterrupt()])
def test_threads_that_were_not_started_are_not_waited_for(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = _ComputationThread.start

    def started(self: Any) -> None:
        if len(searching()) == 2:
            raise failure
        start(self)

    monkeypatch.setattr(_ComputationThread, "start", started)
    with pytest.raises(type(failure)):
        run_batched(people(5), [partial(moments, column=column, questions=2) for column in range(5)])
    assert not searching()


def test_an_impatient_interrupt_waits_for_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, interrupts = _ComputationThread.cancel, iter([True])

    def interrupted(self: Any) -> None:
        if next(interrupts, False):
            raise KeyboardInterrupt
        cancel(self)

    def lost(self: PartedTable, look: Callable[[UserTable], Any]) -> list[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(PartedTable, "map_partitions", lost)
    monkeypatch.setattr(_ComputationThread, "cancel", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_batched(people(3), [partial(moments, column=column, questions=9) for column in range(3)])
    assert not searching()


def test_what_a_search_made_may_ask_when_it_is_over() -> None:
    users = people(2)

    def search(table: PrivateTable, column: int) -> Callable[[], list[float]]:
        moments(table, column, 1)
        return lambda: moments(table, column, 2)

    later = run_batched(users, [partial(search, column=column) for column in range(2)])
    assert users.passes == 1
    assert [ask()[1] for ask in later] == [pytest.approx(500.0, rel=0.3)] * 2
    assert users.passes == 5


def test_searches_work_in_the_context_of_the_caller() -> None:
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        run_batched(people(2), [lambda table: np.ones(1) / np.zeros(1)] * 2)


def released(mechanism: Any, table: Any, whole: UserTable, relation: Neighbors) -> Any:
    request = Request(columns=whole.columns, epsilon=2.0, delta=1e-6, neighbors=relation, per="user")
    prepared = mechanism.prepare(request, PublicFacts.of(whole, relation))
    return prepared, prepared.run(table, InsecureSeededNoise(3))


@Relations
@pytest.mark.parametrize("d", [3, 12])
@pytest.mark.parametrize(
    "mechanism",
    [mechanisms.InverseSensitivity(threshold=2.0, radius=1e4), mechanisms.Adaptive()],
    ids=["inverse-sensitivity", "adaptive"],
)
def test_many_columns_take_the_passes_of_one_and_release_the_bits_of_one_machine(
    mechanism: Any, d: int, relation: Neighbors
) -> None:
    rng = np.random.default_rng(d)
    whole = UserTable.from_means(rng.normal(size=(6000, d)) * np.arange(1, d + 1) + 5.0)
    users = partitioned(whole, 5)
    _, there = released(mechanism, users, whole, relation)
    _, here = released(mechanism, users.whole, whole, relation)
    assert there.values == here.values
    assert there.parameters == here.parameters
    assert users.passes <= 8


def test_ties_in_every_column_are_looked_beyond_at_once() -> None:
    rng = np.random.default_rng(1)
    some = [np.where(rng.random(20_000) < 0.9, 1.5, rng.normal(size=20_000) * 10) for _ in range(6)]
    whole = UserTable.from_means(np.column_stack(some))
    users = partitioned(whole, 3)
    _, there = released(mechanisms.Adaptive(), users, whole, Neighbors.REPLACE_USER)
    _, here = released(mechanisms.Adaptive(), users.whole, whole, Neighbors.REPLACE_USER)
    assert there.values == here.values
    assert users.passes <= 12


def test_populations_that_ask_different_things_release_the_bits_of_one_machine() -> None:
    rng = np.random.default_rng(2)
    whole = UserTable.from_means(np.column_stack(list(populations(3000, rng).values())))
    users = partitioned(whole, 7)
    exact = mechanisms.InverseSensitivity(threshold=2.0, radius=1e5)
    assert (
        released(exact, users, whole, Neighbors.REPLACE_USER)[1].values
        == released(exact, users.whole, whole, Neighbors.REPLACE_USER)[1].values
    )
    assert users.passes <= 12


def test_users_are_not_located_where_their_weight_speaks_for_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    whole = UserTable.from_means(rng.normal(size=(20_000, 8)) * 0.1 + 2.0)
    request = Request(
        columns=whole.columns, epsilon=1.0, delta=1e-6, neighbors=Neighbors.ADD_REMOVE, per="user"
    )
    # The plan is for many users, and there are few.
    facts = PublicFacts.of(whole, Neighbors.ADD_REMOVE)
    prepared = Auto.from_parameters(PublicParameters(threshold=1.0, radius=10.0)).prepare(request, facts)
    assert isinstance(prepared.inner, PreparedWithFallback)
    users = partitioned(whole.take(np.arange(60)), 3)
    monkeypatch.setattr(
        PreparedProposeTestRelease, "locate", lambda self, table: pytest.fail("located for nothing")
    )
    assert prepared.run(users, InsecureSeededNoise(1)).mechanism == "inverse-sensitivity"  # type: ignore[arg-type]
    assert users.passes <= 6
