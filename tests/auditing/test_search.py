"""The audit finds slips that nobody told it of, in mechanisms written for the purpose, and raises no false alarm."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from helpers.caught import is_caught
from hubermean.auditing import effort
from hubermean.auditing.compare import compare
from hubermean.auditing.loss import GaussianScales
from hubermean.auditing.search import Finding, PairEvaluator
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import (
    Independent,
    NoiseDistribution,
    NoisySum,
    NoisyTest,
    OutputDistribution,
)
from hubermean.mechanisms.base import Prepared
from hubermean.mechanisms.inverse_sensitivity.mechanism import PreparedInverseSensitivity
from hubermean.types.request import PublicFacts, Request

FINE = 2**20


class Own:
    """A mechanism that is its law; what is public about it are attributes."""

    name = "own"

    def __init__(self, distribution: Callable[[UserTable], OutputDistribution], **public: Any) -> None:
        self._law = distribution
        self.__dict__.update(public)

    def check(self, request: Request) -> None: ...

    def prepare(self, request: Request, facts: PublicFacts) -> Prepared:
        made = self._law

        class Ready(Prepared):
            def distribution(self, table: UserTable) -> OutputDistribution:
                return made(table)

            def outcome(self, sample: Any) -> Any:
                raise NotImplementedError

        return Ready()


def clamped(table: UserTable, low: Any = 0.0, high: Any = 10.0) -> np.ndarray:
    """Usable users' means within bounds."""
    matrix = np.asarray(table.matrix(), dtype=np.float64)[table.counts > 0]
    return np.clip(matrix, low, high)


def noisy(sums: np.ndarray, *scales: float) -> NoisySum:
    return NoisySum(
        position=[round(float(one) * FINE) for one in sums],
        noise=[NoiseDistribution(kind="laplace", scale=one * FINE) for one in scales],
    )


def right(table: UserTable) -> NoisySum:
    return noisy(clamped(table).sum(axis=0), 10.0)


def with_noisy_test(table: UserTable, passes: bool) -> NoisyTest:
    return NoisyTest(passes=int(passes), bits=0, inner=right(table))


def too_few_usable(table: UserTable) -> NoisyTest:
    return with_noisy_test(table, int((table.counts > 0).sum()) >= 3)


def half_unusable(table: UserTable) -> NoisyTest:
    return with_noisy_test(table, 2 * int((table.counts > 0).sum()) >= table.n_users)


def chance_that_jumps(table: UserTable) -> NoisyTest:
    has_enough_users = int((table.counts > 0).sum()) > 7
    return NoisyTest(passes=3 if has_enough_users else 1, bits=2, inner=right(table))


def weighs_counts(table: UserTable) -> NoisySum:
    means = np.nan_to_num(np.clip(np.asarray(table.matrix(), dtype=np.float64), 0.0, 10.0))
    return noisy(means.T @ np.minimum(table.counts, 5), 10.0)


def slip_beside_the_cap(table: UserTable) -> NoisySum:
    means = np.nan_to_num(np.clip(np.asarray(table.matrix(), dtype=np.float64), 0.0, 10.0))
    return noisy(means.T @ np.where(table.counts <= 51, table.counts, 50), 500.0)


def too_few_records(table: UserTable) -> NoisyTest:
    weights = np.minimum(table.counts, 10)
    means = np.nan_to_num(np.clip(np.asarray(table.matrix(), dtype=np.float64), 0.0, 10.0))
    return NoisyTest(passes=int(weights.sum() >= 60), bits=0, inner=noisy(means.T @ weights, 100.0))


def quiet_second_column(table: UserTable) -> NoisySum:
    low = np.array([0.0, 1000.0])
    return noisy((clamped(table, low, low + 1.0) - low).sum(axis=0), 2.0, 1.0)


ONE: dict[str, Any] = {"bounds": (0.0, 10.0)}


@pytest.mark.parametrize(
    ("distribution", "public", "options"),
    [
        (too_few_usable, ONE, {}),
        (half_unusable, ONE, {}),
        (half_unusable, ONE, {"users": 200, "neighbors": "replace-user"}),
        (too_few_usable, ONE, {"neighbors": "replace-user"}),
        (chance_that_jumps, ONE, {}),
        (weighs_counts, ONE, {"per": "user"}),
        (slip_beside_the_cap, {**ONE, "max_records": 50}, {"per": "record"}),
        (too_few_records, {**ONE, "max_records": 10}, {"per": "record"}),
        (quiet_second_column, {"bounds": ((0.0, 1.0), (1000.0, 1001.0))}, {"columns": 2}),
    ],
)
def test_slips_are_found_without_being_named(
    distribution: Callable[[UserTable], OutputDistribution], public: dict[str, Any], options: dict[str, Any]
) -> None:
    found = hm.audit(Own(distribution, **public), epsilon=1, pairs=400, **options)
    assert not found.kept, found


@pytest.mark.parametrize("neighbors", ["replace-user", "replace-values", "add-remove"])
def test_the_same_mechanism_without_a_slip_stands(neighbors: str) -> None:
    found = hm.audit(Own(right, **ONE), epsilon=1, neighbors=neighbors, pairs=200)
    assert found.kept
    assert found.loss == pytest.approx(1.0, rel=1e-3)


def test_unusable_users_that_lose_their_public_weight_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `replace-values` which values are missing is private: a user that becomes unusable must keep its reach."""
    import dataclasses

    made = PreparedInverseSensitivity.distribution

    def distribution(self: PreparedInverseSensitivity, table: UserTable) -> Independent:
        return made(self, dataclasses.replace(table, records=table.counts))

    monkeypatch.setattr(PreparedInverseSensitivity, "distribution", distribution)
    options: dict[str, Any] = {"threshold": 1, "radius": 100, "per": "record", "max_records": 3}
    assert not hm.audit(
        "inverse-sensitivity", epsilon=1, neighbors="replace-values", pairs=400, **options
    ).kept


@pytest.mark.parametrize("scale", [0.8, 3.0, 40.0])
@pytest.mark.parametrize("gap", [1, 4])
def test_coarse_gaussian_noise_is_compared_as_the_integers_it_is(scale: float, gap: int) -> None:
    """The continuous formula is off by a good part of delta there, in both directions."""
    noise = NoiseDistribution(kind="gaussian", scale=scale)
    found = compare(NoisySum(position=[0], noise=noise), NoisySum(position=[gap], noise=noise))
    x = np.arange(-2000, 2001)
    first, second = (np.exp(-0.5 * ((x - place) / scale) ** 2) for place in (0, gap))
    for epsilon in (0.1, 1.0):
        excess = np.maximum(first / first.sum() - math.exp(epsilon) * second / second.sum(), 0.0).sum()
        assert found.delta(epsilon) == pytest.approx(float(excess), rel=1e-9, abs=1e-300)
    assert found.largest == math.inf


@pytest.mark.parametrize("log_ratio", [0.01, 0.5])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0])
def test_two_widths_at_a_large_epsilon_drown_in_no_rounding(shift: float, log_ratio: float) -> None:
    """The narrow law is never e^20 times the wide one, so delta is 0, not what is left of a difference of 1e8."""
    assert GaussianScales(shift=shift, log_ratio=log_ratio, dimension=3).delta(20.0) < 1e-30
    assert GaussianScales(shift=shift, log_ratio=log_ratio, dimension=3).delta(1e4) < 1e-30


def test_laplace_noise_of_two_scales_in_several_draws() -> None:
    """An unbounded loss beside another is unbounded, not a number made of infinities."""
    one, two = (
        Independent(parts=[noisy(np.zeros(1), scale), noisy(np.zeros(1), scale)]) for scale in (1.2, 1.0)
    )
    found = compare(one, two)
    assert found.largest == math.inf
    assert 0.0 < found.delta(0.2) < 1.0


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [
        ("clipped", {"bounds": (-1.7e308, 1.7e308)}),
        (
            "propose-test-release",
            {"delta": 1e-5, "threshold": 1, "radius": 10, "users": 5, "neighbors": "replace-user"},
        ),
        ("inverse-sensitivity", {"epsilon": 1e-9, "threshold": 1, "radius": 10, "neighbors": "add-remove"}),
    ],
)
def test_what_is_always_refused_gets_no_verdict(mechanism: str, options: dict[str, Any]) -> None:
    with pytest.raises(hm.InputError):
        hm.audit(mechanism, **{"epsilon": 1, "pairs": 3, **options})


@pytest.mark.parametrize("given", [0, -1, 2.5, math.nan, math.inf, "3", None, True, [1], 10**30])
@pytest.mark.parametrize("name", ["columns", "users", "pairs", "seed"])
def test_bad_numbers_are_refused_in_one_sentence(name: str, given: Any) -> None:
    if (name, given) in (("seed", 0), ("users", None), ("pairs", None), ("seed", 10**30), ("pairs", 10**30)):
        return
    with pytest.raises(hm.InputError, match=f"{name} (must|may)|{name} at most"):
        hm.audit("clipped", epsilon=1, bounds=(0, 1), **{"pairs": 3, name: given})


def test_numbers_of_numpy_are_numbers() -> None:
    three = np.int64(3)
    found = hm.audit(
        "clipped", epsilon=1, bounds=np.array([0, 1]), users=three, seed=three, pairs=three, columns=three
    )
    assert json.loads(found.to_json())["seed"] == 3


# --- how long a search takes --------------------------------------------------------------------------------------


def test_a_search_ends_at_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair takes a second of a clock that is made up, with shapes, a chain and variations."""
    now = [0.0]
    shares: list[float] = []

    def tick(evaluated: int, share: float) -> None:
        now[0] += 1.0
        shares.append(share)

    monkeypatch.setattr(effort.time, "monotonic", lambda: now[0])
    found = hm.audit("clipped", epsilon=1, bounds=(0, 10), progress=tick)
    assert found.kept
    assert 75 <= found.pairs <= 80
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] <= 1.0
    shares.clear()
    exact = hm.audit("clipped", epsilon=1, bounds=(0, 10), pairs=120, progress=tick)
    assert exact.pairs == 120, "a stated number of pairs is not cut short"
    assert shares[-1] == 1.0


def test_a_search_with_a_limit_still_scans_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The half of the effort that goes to shapes ends with the largest inner group, by pairs or by time."""
    now = [0.0]
    monkeypatch.setattr(effort.time, "monotonic", lambda: now[0])
    limited = effort.Effort(pairs=1_000, seconds=10.0)
    assert limited.used(100) == 0.1
    now[0] = 4.9
    assert limited.used(100) == pytest.approx(0.49)
    assert not limited.is_late(0.5)
    now[0] = 5.0
    assert limited.is_late(0.5)
    unlimited = effort.Effort(pairs=1_000)
    now[0] = 1e9
    assert unlimited.used(100) == 0.1
    assert not unlimited.is_late(0.5)


def test_a_thorough_search_compares_ten_times_as_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    audit_module = importlib.import_module("hubermean.auditing.audit")
    monkeypatch.setattr(audit_module, "PAIRS", 40)
    monkeypatch.setattr(audit_module, "_LEAST_PAIRS", 40)
    assert hm.audit("clipped", epsilon=1, bounds=(0, 10)).pairs == 40
    assert hm.audit("clipped", epsilon=1, bounds=(0, 10), thorough=True).pairs == 400
    with pytest.raises(hm.InputError, match="pairs or thorough=True"):
        hm.audit("clipped", epsilon=1, bounds=(0, 10), thorough=True, pairs=3)


@pytest.mark.parametrize("number", [1, 4, 11])
def test_one_broken_pair_decides_the_verdict(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is, and however small its loss: tests of what is broken may end there (`helpers.caught`)."""
    made, seen = PairEvaluator.__call__, list[Any]()

    def evaluate(self: PairEvaluator[Any], pair: Any, *, loss: bool = False) -> Finding[Any]:
        seen.append(pair)
        return replace(made(self, pair, loss=loss), broken=len(seen) >= number and pair is seen[number - 1])

    monkeypatch.setattr(PairEvaluator, "__call__", evaluate)
    options: dict[str, Any] = {"epsilon": 1, "bounds": (0, 10), "pairs": 12}
    assert not hm.audit("clipped", **options).kept
    monkeypatch.undo()
    assert hm.audit("clipped", **options).kept
    assert not is_caught("clipped", **options)
