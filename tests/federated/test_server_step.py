"""The adaptive step: it is made of released numbers, finds the scale of any problem, and is bounded and saved."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean.federated import AdaptiveThreshold, PrivateAverage
from hubermean.federated.server_step import (
    LARGEST_MULTIPLE,
    LENGTH_ROUNDS,
    MOVE_LENGTHS,
    ServerStep,
)
from hubermean.noise.seeded import InsecureSeededNoise

CLIENTS, SIZE = 200, 6
SPREAD = np.random.default_rng(3).normal(0.0, 1.0, (CLIENTS, SIZE))


def make(**given: Any) -> PrivateAverage:
    wanted: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "rounds": 30, "population": CLIENTS}
    return PrivateAverage(noise=InsecureSeededNoise, **(wanted | given))


def train(one: PrivateAverage, rate: float, goal: np.ndarray) -> np.ndarray:
    """Clients go a part of the way to goals of their own."""
    model = np.zeros(SIZE)
    while one.rounds_left:
        model = model + one.aggregate(rate * (goal + SPREAD - model))
    return model


@pytest.mark.parametrize("rate", [0.03, 0.3, 1.0])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_no_step_needs_to_be_chosen(rate: float, scale: float) -> None:
    goal = scale * np.array([3.0, -2.0, 1.0, 0.0, 4.0, -1.0])
    found = train(make(), rate, goal)
    assert np.linalg.norm(found - goal) < 0.15 * np.linalg.norm(goal) + 0.5
    # With averages as they are, small clips and small rates do not arrive.
    plain = train(make(step_size=1.0), rate, goal)
    assert np.linalg.norm(found - goal) < np.linalg.norm(plain - goal) + 0.2


def test_a_move_is_the_average_times_a_factor_known_before() -> None:
    one, plain = make(epsilon=1e4), make(epsilon=1e4, step_size=1.0)
    factor = MOVE_LENGTHS * AdaptiveThreshold().length(one.threshold)
    for rows in (SPREAD + 2.0, -2.0 - SPREAD, SPREAD):
        threshold, reach = one.threshold, one.noise_stddev * CLIENTS / one.plan.noise_multiplier
        assert threshold == plain.threshold
        if one.rounds_done == 0:
            assert reach == pytest.approx(factor, rel=1e-12)
        assert np.allclose(one.aggregate(rows), reach / threshold * plain.aggregate(rows), rtol=1e-9)


def test_moves_have_the_same_length_whatever_clients_agree_on() -> None:
    def length(share: float) -> float:
        step, last = ServerStep(longest=2.0), None
        for number in range(1, 11):
            last, step = step.move(
                share * np.array([0.6, 0.8]),
                last,
                round=number,
                rounds=1000,
                noise_square=1e-6,
                next_length=2.0,
            )
        return float(np.linalg.norm(last))

    assert length(0.9) == pytest.approx(2.0 * MOVE_LENGTHS, rel=0.02)
    assert length(0.2) == pytest.approx(2.0 * MOVE_LENGTHS, rel=0.02)
    assert length(0.01) == pytest.approx(2.0 * LARGEST_MULTIPLE * 0.01, rel=0.02)


def test_steps_shrink_on_a_turn_recover_along_and_ignore_noise() -> None:
    rng = np.random.default_rng(0)
    step = ServerStep(longest=1.0, shrink=0.5)
    signal = np.full(2000, 1.0 / 2000**0.5)

    def change(average: np.ndarray, last: np.ndarray) -> float:
        found = step.move(average, last, round=2, rounds=100, noise_square=1.0, next_length=1.0)
        return found[1].shrink / step.shrink

    def noise() -> np.ndarray:
        return rng.normal(0.0, 2000**-0.5, 2000)  # as long as the signal

    along = [change(signal + noise(), signal + noise()) for _ in range(50)]
    against = [change(signal + noise(), noise() - signal) for _ in range(50)]
    nothing = [change(noise(), noise()) for _ in range(50)]
    assert np.median(along) > 1.05
    assert np.median(against) < 0.9
    assert np.median(nothing) == 1.0
    assert all(0.81 < one < 1.17 for one in along + against + nothing)
    full = ServerStep(longest=1.0)
    assert full.move(signal, signal, round=2, rounds=9, noise_square=1.0, next_length=1.0)[1].shrink == 1.0


def test_lengths_are_learned_in_the_first_rounds_alone() -> None:
    step = ServerStep(longest=1.0)
    last = None
    for number in range(1, 30):
        last, step = step.move(
            np.ones(3), last, round=number, rounds=30, noise_square=0.1, next_length=float(number + 1)
        )
        assert step.longest == min(number + 1, LENGTH_ROUNDS)


def test_a_short_run_takes_short_steps() -> None:
    step = ServerStep(longest=2.0)
    assert step.factor(round=1, rounds=1) == 2.0
    assert step.factor(round=1, rounds=18) == 3.0
    assert step.factor(round=1, rounds=300) == 2.0 * MOVE_LENGTHS
    assert step.factor(round=151, rounds=300) == MOVE_LENGTHS


def test_steps_stay_finite() -> None:
    for sign in (1.0, -1.0):
        step, last = ServerStep(longest=1e80), None
        for number in range(1, 400):
            last, step = step.move(
                np.array([1.0, sign**number]) * sign**number,
                last,
                round=number,
                rounds=10**6,
                noise_square=1e-9,
                next_length=1e80,
            )
        assert np.isfinite(last).all()
        assert 0.0 < step.shrink <= 1.0


def test_hostile_clients_stay_within_the_stated_bound_in_every_round() -> None:
    rows = SPREAD + 1.0
    for attack in (np.full(SIZE, 1e9), -10 * rows.mean(0), np.full(SIZE, np.nan)):
        honest, hostile = make(like=np.zeros(SIZE)), make(like=np.zeros(SIZE))
        poisoned = [*rows[:180], *[attack] * 20]
        for number in range(6):
            bound = honest.influence_bound(hostile=0.1)
            if number == 5:
                moved = hostile.aggregate(poisoned) - honest.aggregate([*rows[:180], *[None] * 20])
                assert np.linalg.norm(moved) <= bound
            else:
                honest.aggregate(rows)
                hostile.aggregate(rows)


def test_a_saved_run_goes_on_with_its_step(tmp_path: Path) -> None:
    goal = np.full(SIZE, 3.0)
    rows = [rate * (goal + SPREAD) for rate in (1.0, -0.5, 0.7, -1.0, 0.3, 0.3, 0.3)]
    whole = make()
    wanted = [whole.aggregate(one) for one in rows]
    for number, one in enumerate(rows):  # a new process for each round
        again = make(state_file=tmp_path / "run", like=np.zeros(SIZE))
        assert np.array_equal(again.aggregate(one), wanted[number])
    again = make(state_file=tmp_path / "run", like=np.zeros(SIZE))
    assert again.noise_stddev == whole.noise_stddev
    assert again.influence_bound(0.1) == whole.influence_bound(0.1)


@pytest.mark.parametrize("text", ["", "1", "nan 0x1p0 0x1p0 0x1p0", "0x1p0 0x1p0 0x1p0 -0x1p0"])
def test_a_damaged_step_is_refused(tmp_path: Path, text: str) -> None:
    make(state_file=tmp_path / "run").aggregate(SPREAD)
    with sqlite3.connect(tmp_path / "run") as file:
        file.execute("UPDATE rounds SET step = ?", (text,))
    file.close()
    with pytest.raises(hm.InputError):
        make(state_file=tmp_path / "run")


def test_the_step_follows_the_threshold_rule() -> None:
    assert make().plan.step_size == "adaptive"
    assert make(threshold=AdaptiveThreshold(target=0.3)).plan.step_size == "adaptive"
    assert make(threshold=1.0).plan.step_size == 1.0
    assert make(center="last").plan.step_size == 1.0
    for given in ({"threshold": 1.0}, {"center": "last"}):
        with pytest.raises(hm.InputError, match="needs an adaptive"):
            make(step_size="adaptive", **given)
    with pytest.raises(hm.InputError, match="'adaptive' or a number"):
        make(step_size="large")
