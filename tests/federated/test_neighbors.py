"""Adversarial neighbors of whole runs of three rounds, whose later rounds depend on what was released before.

The privacy loss is measured on released numbers (`helpers.federated_runs`) and integrated over the noise. Mutants of
the mechanism must exceed its guarantee.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.federated_runs import measured_delta
from hubermean.accounting.rounds import run_delta
from hubermean.federated import AdaptiveThreshold, PrivateAverage, average, plan
from hubermean.federated.clipping import ClippedTotals
from hubermean.federated.run_audit import History, ScriptedRun, audit

EPSILON, DELTA, ROUNDS = 1.0, 0.02, 3
# Thresholds that swing: the noise of the count moves them by a factor of two per standard deviation.
RULE = AdaptiveThreshold(initial=1.0, target=0.5, learning_rate=30.0, first_rate=30.0, count_share=0.4)
GIVEN: dict[str, Any] = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "rounds": ROUNDS,
    "population": 100,
    "threshold": RULE,
    "step_size": 1.0,
}


def others(history: History) -> dict[int, Any]:
    """Two clients that react to what was released: one sits at the threshold, one answers with the average."""
    threshold = history[-1][1] if history else 1.0
    last = history[-1][0] if history else np.zeros(2)
    return {1: np.array([threshold, 0.0]), 2: 3.0 * last}


def direction(history: History) -> np.ndarray:
    """Where the client in question goes: another way in each round, as the releases say."""
    last = history[-1][0] if history else np.array([1.0, 0.0])
    return np.array([1.0, 0.0]) if last[1] > 0 else np.array([-0.6, 0.8])


def with_far_client(history: History) -> dict[int, Any]:
    return others(history) | {0: 1e12 * direction(history)}


def with_client_inside(history: History) -> dict[int, Any]:
    threshold = history[-1][1] if history else 1.0
    return others(history) | {0: threshold * (1 - 1e-9) * direction(history)}


def with_opposite_client(history: History) -> dict[int, Any]:
    return others(history) | {0: -1e12 * direction(history)}


def delta_of(first: Any, second: Any, *, samples: int = 64, **changed: Any) -> float:
    given = GIVEN | changed
    rate = changed.get("sampling_rate", 1.0)
    shift = PrivateAverage(**given).plan.shift
    size = 2 * shift if given.get("neighbors") == "replace-user" else shift
    control = size, run_delta(EPSILON, shift=size, rounds=ROUNDS, sampling_rate=rate)
    runs = [ScriptedRun(parameters=given, clients=clients) for clients in (first, second)]
    return measured_delta(*runs, EPSILON, rounds=ROUNDS, samples=samples, rate=rate, control=control)


@pytest.mark.parametrize(
    ("first", "second", "changed"),
    [
        (with_far_client, others, {}),
        (others, with_far_client, {}),
        (with_client_inside, others, {"center": "last"}),
        (with_far_client, others, {"neighbors": "add-remove", "center": "last"}),
        (with_far_client, others, {"step_size": "adaptive"}),
        (with_far_client, with_opposite_client, {"neighbors": "replace-user"}),
        (with_far_client, with_client_inside, {"neighbors": "replace-user"}),
    ],
)
def test_the_loss_of_a_run_is_at_most_its_guarantee(first: Any, second: Any, changed: dict[str, Any]) -> None:
    found = delta_of(first, second, **changed)
    assert found <= 1.01 * DELTA  # the error of the integration


def test_the_bound_is_attained() -> None:
    assert (
        delta_of(with_far_client, others) > 0.97 * DELTA
    )  # so a mechanism with a tenth more noise would be seen


def test_with_a_secret_sample() -> None:
    sampled = {"sampling": "poisson", "sampling_rate": 0.3}
    found = delta_of(with_far_client, others, samples=64, **sampled)
    assert 0.97 * DELTA <= found <= 1.01 * DELTA


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"threshold": 2},
        {"neighbors": "add-remove", "center": "last"},
        {"threshold": AdaptiveThreshold(fraction=1.0), "step_size": 2.0},
        {"neighbors": "replace-user", "threshold": AdaptiveThreshold(target=0.3)},
        {"sampling": "poisson", "sampling_rate": 0.1, "step_size": 4.0},
    ],
)
def test_an_audit_finds_the_claimed_shift_and_no_more(given: dict[str, Any]) -> None:
    found = audit(epsilon=4, delta=1e-5, rounds=30, population=1000, histories=3, **given)
    assert found.kept
    assert found.measured > 0.95 * found.claimed
    assert str(found).startswith("kept")


# --- mutants ----------------------------------------------------------------------------------------------------------


def test_a_count_that_is_not_paid_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = plan.RoundPlan.noise_multiplier.func  # type: ignore[attr-defined]
    free = property(lambda self: sums(_without_count(self)))
    monkeypatch.setattr(plan.RoundPlan, "noise_multiplier", free)
    assert not audit(**GIVEN, histories=2).kept
    assert delta_of(with_far_client, others) >= 1.5 * DELTA


def _without_count(made: Any) -> Any:
    return replace(made, threshold=1.0)


def average_without_noise(run: PrivateAverage, selected: Any, shape: Any) -> np.ndarray:
    totals = average.clip_and_add(
        shape.blocks(selected),
        size=shape.size,
        center=None,
        threshold=run.threshold,
        threshold_units=run.plan.threshold_units,
        count_within=run.threshold,
        count_units=(0, 0),
    )
    return totals.sums * (run.threshold / run.plan.threshold_units / run.plan.denominator)


def test_noise_scaled_by_the_next_threshold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = PrivateAverage._compute_round

    def rescaled(self: PrivateAverage, selected: Any, number: int, shape: Any) -> Any:
        found, threshold = compute(self, selected, number, shape)
        exact = average_without_noise(self, selected, shape)
        return exact + (found - exact) * threshold / self.threshold, threshold

    monkeypatch.setattr(PrivateAverage, "_compute_round", rescaled)
    assert not audit(**GIVEN, histories=2).kept
    assert delta_of(with_far_client, others) >= 1.5 * DELTA


def test_a_claimed_weight_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def weighted(blocks: Any, **given: Any) -> ClippedTotals:
        totals = [clip([row[None]], **given) for block in blocks for row in block.copy()]
        weights = [3 if np.abs(one.sums).max() > given["threshold_units"] / 2 else 1 for one in totals]
        sums = sum(weight * one.sums for weight, one in zip(weights, totals, strict=True))
        return ClippedTotals(sums=sums, count=sum(one.count for one in totals))

    clip = average.clip_and_add
    monkeypatch.setattr(average, "clip_and_add", weighted)
    assert not audit(**GIVEN, histories=2).kept
    assert delta_of(with_far_client, others) >= 1.5 * DELTA


def test_a_norm_that_is_not_clipped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = average.clip_and_add

    def by_coordinate(blocks: Any, **given: Any) -> ClippedTotals:
        clipped = [np.clip(block, -given["threshold"], given["threshold"]) for block in blocks]
        wide = given | {"threshold": 2 * given["threshold"], "threshold_units": 2 * given["threshold_units"]}
        return replace(clip(clipped, **wide), count=clip(clipped, **given).count)

    monkeypatch.setattr(average, "clip_and_add", by_coordinate)
    assert delta_of(with_far_client, others) >= 1.2 * DELTA


def test_a_step_that_follows_what_was_not_released_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same step, from averages without their noise: every move is noisy, and its length tells."""
    compute, move = PrivateAverage._compute_round, PrivateAverage._move
    exact: list[np.ndarray] = []

    def clean(self: PrivateAverage, selected: Any, number: int, shape: Any) -> Any:
        exact.append(average_without_noise(self, selected, shape) / self.threshold)
        return compute(self, selected, number, shape)

    def tell(self: PrivateAverage, found: Any, threshold: float, number: int) -> Any:
        answer, step = move(self, found, threshold, number)
        assert step is not None
        return answer, replace(step, longest=step.longest * (1.0 + np.linalg.norm(exact[-1])))

    monkeypatch.setattr(PrivateAverage, "_compute_round", clean)
    monkeypatch.setattr(PrivateAverage, "_move", tell)
    assert not audit(**GIVEN | {"step_size": "adaptive"}, histories=2).kept
