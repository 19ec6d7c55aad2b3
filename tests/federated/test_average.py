"""`PrivateAverage` as its users see it: shapes, limits, thresholds, rounds, ledgers."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean.federated import AdaptiveThreshold, PrivateAverage
from hubermean.huber import huber_location
from hubermean.noise.seeded import InsecureSeededNoise

RNG = np.random.default_rng(5)
UPDATES = RNG.normal(0.3, 1.0, (200, 7))


def average(**given: Any) -> PrivateAverage:
    wanted: dict[str, Any] = {
        "epsilon": 1e5,
        "delta": 1e-5,
        "rounds": 20,
        "population": 200,
        "threshold": 1e3,
    }
    return PrivateAverage(noise=InsecureSeededNoise, **(wanted | given))


def test_a_huge_threshold_is_the_plain_mean() -> None:
    found = average(epsilon=1e6, threshold=10.0).aggregate(UPDATES)
    assert np.allclose(found, UPDATES.mean(0), atol=1e-3)


class FakeTensor:
    """What is used of a tensor of PyTorch: it needs no gradient detached by hand, and may have no type of numpy."""

    def __init__(self, values: Any, *, state: str = "gradient") -> None:
        self.values, self.state = np.asarray(values), state

    def __array__(self, *_: Any, **__: Any) -> Any:
        if self.state != "plain":
            raise RuntimeError("call detach() or float() first")
        return self.values

    def detach(self) -> FakeTensor:
        return FakeTensor(self.values, state="plain" if self.state == "gradient" else self.state)

    def cpu(self) -> FakeTensor:
        return self

    def float(self) -> FakeTensor:
        return FakeTensor(self.values.astype(np.float32), state="plain")

    def new_tensor(self, values: Any) -> FakeTensor:
        return FakeTensor(values, state="plain")


@pytest.mark.parametrize(
    ("like", "make"),
    [
        (np.zeros(7), lambda row: row),
        (np.zeros((7, 1), np.float32), lambda row: row.reshape(7, 1).astype(np.float32)),
        ([np.zeros(3), np.zeros((2, 2))], lambda row: [row[:3], row[3:].reshape(2, 2)]),
        ([np.zeros(3), np.zeros((2, 2))], lambda row: (row[:3].tolist(), row[3:].reshape(2, 2))),
        ({"a": np.zeros(3), "b": {"c": np.zeros(4)}}, lambda row: {"b": {"c": row[3:]}, "a": row[:3]}),
        ([0.0] * 7, lambda row: row.tolist()),
        ([FakeTensor(np.zeros(7), state="plain")], lambda row: [FakeTensor(row)]),
        ([FakeTensor(np.zeros(7), state="bfloat16")], lambda row: [FakeTensor(row, state="bfloat16")]),
    ],
)
def test_the_average_has_the_shape_of_an_update(like: Any, make: Any) -> None:
    plain = average(threshold=10.0).aggregate(UPDATES)
    found = average(threshold=10.0, like=like).aggregate([make(row) for row in UPDATES])
    leaves = list(_leaves(found))
    assert np.allclose(np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves]), plain, atol=1e-4)
    for leaf, example in zip(leaves, _leaves(like), strict=True):
        assert isinstance(leaf, FakeTensor) == isinstance(example, FakeTensor)
        assert np.shape(np.asarray(leaf)) == np.shape(
            np.asarray(example.float() if isinstance(example, FakeTensor) else example)
        )


def _leaves(tree: Any) -> Any:
    if isinstance(tree, dict):
        for name in tree:
            yield from _leaves(tree[name])
    elif isinstance(tree, list | tuple):
        for one in tree:
            yield from _leaves(one)
    else:
        yield tree


def test_arrays_lists_and_dictionaries_of_clients_agree() -> None:
    like = np.zeros(7)
    found = [
        average(like=like).aggregate(given)
        for given in (UPDATES, list(UPDATES), (row for row in UPDATES), dict(enumerate(UPDATES)))
    ]
    assert all(np.array_equal(found[0], one) for one in found)


def test_the_shape_is_never_read_off_replies() -> None:
    with pytest.raises(hm.InputError, match="give like: the model"):
        average().aggregate(list(UPDATES))
    one = average()
    assert one.aggregate(list(UPDATES), like=np.zeros(7)).shape == (7,)
    with pytest.raises(hm.InputError, match="rows of shape"):
        one.aggregate(np.zeros((5, 8)))
    with pytest.raises(hm.InputError, match="another shape"):
        one.aggregate(UPDATES, like=np.zeros(8))
    with pytest.raises(hm.InputError, match="rows of shape"):
        average(like=np.zeros(7)).aggregate(np.zeros((5, 8)))
    with pytest.raises(hm.InputError, match="holds integers"):
        average(like={"batches": np.array(3)})


def test_steps_find_the_huber_location_and_one_step_is_clipping() -> None:
    hostile = UPDATES.copy()
    hostile[:40] = -1e6
    norms = np.linalg.norm(hostile, axis=1, keepdims=True)
    clipped = hostile / np.maximum(norms, 1.0)
    assert np.allclose(average(threshold=1.0).aggregate(hostile), clipped.mean(0), atol=0.01)
    location = huber_location(hostile, thresholds=1.0).point
    assert np.allclose(average(threshold=1.0, steps=100).aggregate(hostile), location, atol=0.03)


def test_the_center_can_be_the_last_average() -> None:
    far = UPDATES + 20.0
    zero, last = (average(threshold=8.0, center=center) for center in ("zero", "last"))
    for _ in range(20):
        found_zero, found_last = zero.aggregate(far), last.aggregate(far)
    assert np.linalg.norm(found_zero) < 8.1
    assert np.allclose(found_last, far.mean(0), atol=0.5)


@pytest.mark.parametrize("norm", [0.003, 1.0, 50.0])
@pytest.mark.parametrize("target", [0.3, 0.5, 0.8])
def test_the_threshold_reaches_the_quantile_from_below_and_above(norm: float, target: float) -> None:
    norms = norm * np.random.default_rng(0).lognormal(0, 0.3, 1000)
    updates = np.zeros((1000, 4))
    updates[:, 1] = norms
    rule = AdaptiveThreshold(target=target, learning_rate=0.5)
    one = PrivateAverage(
        epsilon=8, delta=1e-5, rounds=60, population=1000, threshold=rule, noise=InsecureSeededNoise
    )
    for _ in range(60):
        one.aggregate(updates)
    assert np.mean(norms <= rule.length(one.threshold)) == pytest.approx(target, abs=0.15)


def test_clients_that_do_not_reply_do_not_move_the_threshold() -> None:
    one = average(threshold="adaptive", population=200, like=np.zeros(7))
    one.aggregate([None] * 200)
    assert one.threshold == pytest.approx(0.025, rel=0.05)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("step_size", [1.0, 2.5])
def test_hostile_clients_stay_within_the_stated_bound(steps: int, step_size: float) -> None:
    given: dict[str, Any] = {"threshold": 1.5, "steps": steps, "step_size": step_size}
    bound = average(**given).influence_bound(hostile=0.1)
    honest = average(**given, like=np.zeros(7)).aggregate([*UPDATES[:180], *[None] * 20])
    for attack in (np.full(7, 1e9), -10 * UPDATES[:180].mean(0), np.zeros(7)):
        hostile = UPDATES.copy()
        hostile[180:] = attack
        assert np.linalg.norm(average(**given).aggregate(hostile) - honest) <= bound


def test_all_rounds_and_no_more() -> None:
    one = average(rounds=2)
    assert one.privacy_spent().epsilon == 0.0
    one.aggregate(UPDATES)
    assert (one.privacy_spent().epsilon, one.rounds_left) == (1e5, 1)
    one.aggregate(UPDATES)
    with pytest.raises(hm.BudgetExhausted, match="all 2 rounds"):
        one.aggregate(UPDATES)
    assert np.array_equal(one.aggregate(UPDATES, round=2), one.last)
    with pytest.raises(hm.InputError, match="each has one answer"):
        average().aggregate(UPDATES, round=3)


def test_a_run_cannot_be_copied_or_pickled() -> None:
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(hm.InputError, match="cannot be copied"):
            attempt(average())


def test_a_run_stays_in_its_process() -> None:
    one = average()
    child = os.fork()
    if child == 0:
        try:
            one.aggregate(UPDATES)
        except hm.InputError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_real_noise_has_the_stated_size() -> None:
    one = PrivateAverage(epsilon=4, delta=1e-5, rounds=1, population=100, threshold=1.0)
    stated = one.noise_stddev
    noise = one.aggregate(np.zeros((100, 40_000)))
    # 40,000 values: a deviation 2% too small or large is 5.6 standard errors away.
    assert np.std(noise) == pytest.approx(stated, rel=0.02)
    assert one.privacy_spent().secure


def test_seeded_noise_is_called_no_privacy() -> None:
    one = average()
    one.aggregate(UPDATES)
    assert "No privacy" in str(one.privacy_spent())


def test_nothing_of_a_reply_is_in_repr() -> None:
    one = average()
    before = repr(one)
    one.aggregate(UPDATES)
    assert repr(one) == before.replace("0 of", "1 of")


def test_the_ledger_is_charged_once_and_in_full(tmp_path: Path) -> None:
    with hm.Ledger(tmp_path / "budget.sqlite") as ledger:
        ledger.init("phones", epsilon=6.0, delta=1e-4, neighbors="zero-out")
        given: dict[str, Any] = {
            "epsilon": 4.0,
            "rounds": 3,
            "ledger": ledger,
            "dataset": "phones",
            "threshold": 1.0,
        }
        one = average(state_file=tmp_path / "run", **given)
        assert ledger.dataset("phones").spent.loss == 0
        one.aggregate(UPDATES)
        one.aggregate(UPDATES)
        again = average(state_file=tmp_path / "run", **given)
        again.aggregate(UPDATES)
        assert float(ledger.dataset("phones").spent.loss) == 4.0
        another = average(**given)
        with pytest.raises(hm.BudgetExhausted):
            another.aggregate(UPDATES)
        assert another.rounds_done == 0
        assert another.last is None
        assert ledger.verify().sound


@pytest.mark.parametrize(
    ("dataset", "run", "changes"),
    [
        ("add-remove", "add-remove", 1),
        ("add-remove", "zero-out", None),
        ("add-remove", "replace-user", None),
        ("zero-out", "zero-out", 1),
        ("zero-out", "add-remove", 1),
        ("zero-out", "replace-user", 1),
        ("replace-user", "zero-out", 2),
        ("replace-user", "replace-user", 1),
    ],
)
def test_what_a_run_costs_a_data_set(tmp_path: Path, dataset: str, run: str, changes: int | None) -> None:
    with hm.Ledger(tmp_path / "budget.sqlite") as ledger:
        ledger.init("phones", epsilon=10.0, delta=0.5, neighbors=dataset)
        one = average(epsilon=1.0, neighbors=run, ledger=ledger, dataset="phones", threshold=1.0)
        if changes is None:
            with pytest.raises(hm.InputError, match="neighbors"):
                one.aggregate(UPDATES)
            assert ledger.dataset("phones").spent.loss == 0
        else:
            one.aggregate(UPDATES)
            assert ledger.dataset("phones").spent.loss == changes


def test_zero_out_is_for_federated_runs_only() -> None:
    with pytest.raises(hm.InputError, match="zero-out"):
        hm.mean_of_user_means([1.0, 2.0], per="user", bounds=(0, 3), epsilon=1, neighbors="zero-out")


def test_nothing_federated_is_imported_before_it_is_used() -> None:
    code = "import sys, hubermean; print([m for m in ('hubermean.federated', 'dp_accounting') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = "import sys, hubermean.federated; print([m for m in ('torch', 'jax', 'flwr', 'duckdb') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_refused_call_keeps_no_shape() -> None:
    one = average(sampling="poisson", sampling_rate=0.5, epsilon=10.0)
    one.draw_cohort(range(200))
    with pytest.raises(hm.InputError, match="dictionary of updates by client"):
        one.aggregate(UPDATES)
    assert one.aggregate({}, like=np.zeros(2)).shape == (2,)


def test_equal_parameters_are_the_same_run(tmp_path: Path) -> None:
    for initial in (1, 1.0, np.float32(1), Fraction(1)):
        average(threshold=AdaptiveThreshold(initial=initial), state_file=tmp_path / "run")


@pytest.mark.parametrize(
    "given", [{"sampling": "poisson", "sampling_rate": 1e-200}, {"step_size": 1e308}, {"step_size": 1e-300}]
)
def test_extreme_parameters_are_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(hm.InputError, match=next(reversed(given))):
        average(**given)


def test_a_fork_never_waits_for_the_lock() -> None:
    one = average()
    with one._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                one.aggregate(UPDATES)
            except hm.InputError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
