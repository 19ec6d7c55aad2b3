"""`PrivateFedAvg` with the real Flower, in the environment that `scripts/make_flower_environment.py` makes."""

from __future__ import annotations

import io
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from memory_grid import MemoryGrid, moves, reply

import hubermean as hm
from hubermean.flower import PrivateFedAvg
from hubermean.noise.seeded import InsecureSeededNoise

INITIAL = {"weight": np.zeros((3, 2), np.float32), "bias": np.zeros(2, np.float64), "batches": np.array(7)}
HONEST = 30


def record(arrays: dict[str, np.ndarray] = INITIAL) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def strategy(**given: Any) -> PrivateFedAvg:
    wanted = {
        "epsilon": 1e4,
        "delta": 1e-5,
        "num_rounds": 3,
        "population": HONEST,
        "threshold": 10.0,
        "min_available_nodes": 1,
    }
    wanted |= given
    return PrivateFedAvg(noise=lambda number: InsecureSeededNoise(number), **wanted)


def arrays_of(found: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in found.items()}


def grid_of(*more: Any, honest: int = HONEST) -> MemoryGrid:
    clients = {100 + i: moves(1.0) for i in range(honest)}
    return MemoryGrid(clients | dict(enumerate(more)))


def test_a_run_is_fedavg_with_noise() -> None:
    ran = strategy()
    seen: list[int] = []

    def evaluate(number: int, model: ArrayRecord) -> MetricRecord:
        seen.append(number)
        return MetricRecord({"weight": float(model["weight"].numpy().mean())})

    result = ran.start(grid_of(), record(), evaluate_fn=evaluate)
    final = arrays_of(result.arrays)
    assert np.allclose(final["weight"], 3.0, atol=0.05)
    assert np.allclose(final["bias"], 3.0, atol=0.05)
    assert final["batches"] == 7
    assert [array.dtype for array in final.values()] == [array.dtype for array in INITIAL.values()]
    assert seen == [0, 1, 2, 3]
    assert not result.train_metrics_clientapp
    assert not result.evaluate_metrics_clientapp
    assert ran.privacy_spent().rounds_done == 3


def bad_array(**changed: Any) -> Any:
    def client(message: Message) -> Message:
        fields = {"dtype": "float64", "shape": (2,), "stype": "numpy.ndarray", "data": b"nothing"}
        made = record()
        made["bias"] = Array(**(fields | changed))
        return reply(message, made)

    return client


def huge_header() -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    return buffer.getvalue()


def with_bias(value: Any) -> Any:
    return lambda message: reply(message, INITIAL | {"bias": np.asarray(value)})


HOSTILE = {
    "NaN": with_bias([np.nan, 1.0]),
    "infinite": with_bias([np.inf, 1.0]),
    "other shape": with_bias([1.0]),
    "text": with_bias(["a", "b"]),
    "complex": with_bias([1j, 1.0]),
    "unreadable": bad_array(),
    "a header of terabytes": bad_array(data=huge_header()),
    "another serialization": bad_array(stype="pickle"),
    "missing array": lambda m: reply(m, {"weight": INITIAL["weight"]}),
    "another array": lambda m: reply(m, INITIAL | {"more": np.zeros(3)}),
    "no record": lambda m: Message(RecordDict({"c": ConfigRecord({"a": 1})}), reply_to=m),
    "two records": lambda m: Message(RecordDict({"a": record(), "b": record()}), reply_to=m),
    "an error": lambda m: Message(Error(code=1, reason="secret-reason"), reply_to=m),
    "no answer": lambda m: None,
    "twice": lambda m: [moves(9.0)(m), moves(9.0)(m)],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_counts_as_zero(kind: str) -> None:
    with_it = strategy().start(grid_of(HOSTILE[kind]), record(), num_rounds=1)
    without = strategy().start(grid_of(), record(), num_rounds=1)
    assert arrays_of(with_it.arrays)["weight"].tolist() == arrays_of(without.arrays)["weight"].tolist()


def test_claimed_examples_have_no_weight() -> None:
    def client(message: Message) -> Message:
        return reply(message, INITIAL | {"weight": np.full((3, 2), 1e30, np.float32)}, examples=10**6)

    moved = arrays_of(strategy().start(grid_of(client), record(), num_rounds=1).arrays)["weight"]
    honest = arrays_of(strategy().start(grid_of(), record(), num_rounds=1).arrays)["weight"]
    apart = np.linalg.norm(moved.astype(float) - honest)
    bound = strategy().average.influence_bound(1 / HONEST)
    assert 0.9 * bound <= apart <= bound * (1 + 1e-6)


def test_metrics_leave_only_when_asked_for_by_an_unsafe_name() -> None:
    def mean_loss(contents: list[RecordDict], key: str) -> MetricRecord:
        return MetricRecord({"loss": float(np.mean([one["metrics"]["loss"] for one in contents]))})

    unsafe = strategy(unsafe_train_metrics_aggr_fn=mean_loss, unsafe_evaluate_metrics_aggr_fn=mean_loss)
    grid = grid_of()
    result = unsafe.start(grid, record(), num_rounds=1)
    assert result.train_metrics_clientapp[1]["loss"] == 0.5
    assert result.evaluate_metrics_clientapp[1]["loss"] == 0.5
    assert strategy().start(grid_of(), record(), num_rounds=1).evaluate_metrics_clientapp == {}


def test_logs_do_not_depend_on_replies(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").propagate = True
    texts = []
    for more in ([], list(HOSTILE.values())[:13]):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="flwr"):
            strategy().start(MemoryGrid(grid_of(*more).clients | {0: lambda m: None}), record(), num_rounds=1)
        texts.append([line for line in caplog.messages if "finished in" not in line and "MB" not in line])
    assert texts[0] == texts[1]
    assert texts[0]
    assert "secret-reason" not in str(texts)


def test_rounds_beyond_the_budget_are_refused() -> None:
    with pytest.raises(hm.InputError, match="exceeds the 3 rounds"):
        strategy().start(grid_of(), record(), num_rounds=4)
    ran = strategy()
    grid = grid_of()
    ran.start(grid, record())
    with pytest.raises(hm.BudgetExhausted):
        ran.configure_train(4, record(), ConfigRecord(), grid)


class CrashError(Exception):
    pass


def test_a_crash_in_any_step_is_resumed_to_the_same_model(tmp_path: Path) -> None:
    whole = arrays_of(strategy(sampling="poisson", sampling_rate=0.5).start(grid_of(), record()).arrays)
    for number, (where, when) in enumerate(
        [("configure_train", 1), ("aggregate_train", 1), ("configure_evaluate", 1), ("configure_train", 3)]
    ):
        given: dict[str, Any] = {
            "sampling": "poisson",
            "sampling_rate": 0.5,
            "state_file": tmp_path / f"run{number}",
        }
        first = strategy(**given)
        usual, calls = getattr(first, where), []

        def crash(*args: Any, usual: Any = usual, calls: list[int] = calls, when: int = when) -> Any:
            calls.append(1)
            found = usual(*args)
            if len(calls) == when:
                raise CrashError
            return found

        setattr(first, where, crash)
        with pytest.raises(CrashError):
            first.start(grid_of(), record())
        resumed = strategy(**given)
        different = record({name: np.asarray(array + 5) for name, array in INITIAL.items()})
        started = record() if resumed.average.rounds_done == 0 else different
        found = arrays_of(resumed.start(grid_of(), started).arrays)
        assert all(np.array_equal(found[name], whole[name]) for name in whole)
        again = arrays_of(strategy(**given).start(grid_of(), different).arrays)
        assert all(np.array_equal(again[name], whole[name]) for name in whole)


def test_a_run_goes_on_in_the_same_process_without_a_file() -> None:
    whole = arrays_of(strategy().start(grid_of(), record()).arrays)
    parts = strategy()
    first = parts.start(grid_of(), record(), num_rounds=2)
    second = parts.start(grid_of(), first.arrays)
    assert np.array_equal(arrays_of(second.arrays)["weight"], whole["weight"])


def test_only_drawn_nodes_are_asked() -> None:
    grid = grid_of(honest=200)
    strategy(sampling="poisson", sampling_rate=0.2, population=200).start(grid, record())
    trained = grid.asked[0::2]
    assert all(15 <= len(asked) <= 70 for asked in trained)
    assert trained[0] != trained[1]
    assert {message.content["config"]["server-round"] for message in grid.sent} == {
        3
    }  # one config for all rounds


def test_epsilon_is_at_most_that_of_flowers_accountant() -> None:
    from flwr.serverapp import (
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        RdpAccountant,
        SamplingMethod,
    )

    for rounds, epsilon, sampling in ((30, 4.0, "all"), (100, 1.0, "all"), (30, 4.0, "poisson")):
        rate = 0.1 if sampling == "poisson" else None
        ours = strategy(
            num_rounds=rounds, epsilon=epsilon, sampling=sampling, sampling_rate=rate, population=1000
        )
        method = SamplingMethod.POISSON if rate else SamplingMethod.NO_AMPLIFICATION
        relation = NeighboringRelation.ADD_OR_REMOVE_ONE
        config = PrivacyConfig(
            target_delta=1e-5, population_size=1000, neighboring_relation=relation, sampling_method=method
        )
        accountant = RdpAccountant(config)
        event = GaussianPrivacyEvent(
            noise_multiplier=ours.average.plan.noise_multiplier,
            sample_size=100 if rate else 1000,
            population_size=1000,
        )
        accountant.compose(event, rounds)
        assert epsilon <= accountant.get_epsilon(1e-5) * (1 + 1e-9)


def test_nothing_waits_forever() -> None:
    begun = time.monotonic()
    strategy().start(grid_of(honest=1), record(), num_rounds=1)
    assert time.monotonic() - begun < 60  # it asked the one node that is there
