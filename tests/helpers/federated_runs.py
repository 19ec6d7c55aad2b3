"""The privacy loss of a whole federated run, measured on the numbers it releases.

Nothing of the mechanism is taken from its plan: how far one client moves each released number, and how far a unit of
noise does, are differences between real runs whose noise is scripted. A run on the neighbor is brought to the same
released numbers round by round, by scripting its noise, so that later rounds are compared after equal histories, as the
likelihoods of a composition are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.stats import norm, qmc

from hubermean.federated import PrivateAverage

History = list[tuple[np.ndarray, float]]
"""Released so far: an average and the threshold after it, for each round."""
Script = list[list[list[int]]]
"""Noise of each round: a row for the sums, one for the count."""
Clients = Callable[[History], dict[int, Any]]
"""What the clients send, given what was released."""


class ScriptedNoise:
    """Noise that was written down: one row of integers for the sums, one for the count, and a coin per client."""

    secure = False

    def __init__(self, rows: list[list[int]], coin: bool = True) -> None:
        self._rows, self._coin = list(rows), coin
        self.stddevs: list[float] = []

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        self.stddevs.append(stddev)
        return self._rows.pop(0)

    def below(self, limit: int) -> int:
        return 0 if self._coin else limit - 1

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        raise AssertionError

    def choose(self, costs: Any, sizes: Any, rate: Fraction) -> int:
        raise AssertionError

    def permute_and_flip(self, costs: Any, rate: Fraction) -> int:
        raise AssertionError


@dataclass
class Run:
    """One way to make a run: its parameters and what its clients send."""

    given: dict[str, Any]
    clients: Clients
    size: int = 2

    def replay(self, script: Script, coin: bool) -> tuple[History, list[float]]:
        """Return what is released with this noise, and the standard deviations asked for in the last round."""
        sources: list[ScriptedNoise] = []

        def noise(number: int) -> ScriptedNoise:
            sources.append(ScriptedNoise(script[number - 1], coin))
            return sources[-1]

        average = PrivateAverage(like=np.zeros(self.size), noise=noise, **self.given)
        history: History = []
        for _ in script:
            updates = self.clients(history)
            if average.plan.sampled:
                drawn = set(average.draw_cohort(updates))
                # Only the client in question is left to its coin; the others are the same in both runs.
                updates = {name: update for name, update in updates.items() if name in drawn}
            history = [*history, (np.asarray(average.aggregate(updates)), average.threshold)]
        return history, sources[-1].stddevs


@dataclass
class Released:
    """The last round of a run with one script, as numbers that are linear in its noise."""

    numbers: np.ndarray
    history: History
    stddevs: np.ndarray


def released(run: Run, script: Script, coin: bool = True) -> Released:
    history, stddevs = run.replay(script, coin)
    before = history[-2][1] if len(history) > 1 else 1.0
    moved = math.log(history[-1][1] / before)
    spread = np.repeat(stddevs, [len(row) for row in script[-1]])
    return Released(numbers=np.append(history[-1][0], moved), history=history, stddevs=spread)


def measure_round(
    mine: Run, other: Run, past: Script, past_other: Script, count: int = 0, count_other: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shift of each released number between two runs, and the noise's deviation, in units of the noise.

    Given the noise of the count in either run, so that sums are compared after equal thresholds.
    """
    rows = [[0] * mine.size, [count]]
    here = released(mine, [*past, rows])
    there = released(other, [*past_other, [[0] * mine.size, [count_other]]])
    effects = []
    for number, row in enumerate(rows):
        for index in range(len(row)):
            moved = [list(one) for one in rows]
            unit = round(here.stddevs[len(effects)] / 4)
            moved[number][index] += unit
            effects.append((released(mine, [*past, moved]).numbers - here.numbers)[len(effects)] / unit)
    return (here.numbers - there.numbers) / np.array(effects), here.stddevs


def measured_delta(
    mine: Run,
    other: Run,
    epsilon: float,
    *,
    rounds: int,
    samples: int,
    rate: float,
    control: tuple[float, float],
) -> float:
    """Return E[(1 - e^(epsilon - loss))_+] of a whole run under `mine`, by quasi-Monte Carlo over its noise.

    With sampling, `other` is the run without the client, which is in a round of `mine` with probability `rate`.

    Args:
        control: the shift of a round of fixed Gaussians, and the delta of these at `epsilon`. They are a control
            variate: what is integrated is only how the run differs from them, for the same noise.
    """
    width = mine.size + 1
    ideal, expected = control
    points = qmc.Sobol(rounds * (width + 1), seed=1).random(samples)
    gains = []
    for point in points:
        draws = norm.ppf(np.clip(point, 1e-12, 1 - 1e-12)).reshape(rounds, width + 1)
        past: Script = []
        past_other: Script = []
        loss = ideal_loss = 0.0
        for draw in draws:
            present = norm.cdf(draw[-1]) < rate
            apart, stddevs = measure_round(mine, other, past, past_other)
            # A standard Gaussian in the direction of the shift, which so far follows from the past alone.
            usual = float(apart / stddevs @ draw[:-1]) / (float(np.linalg.norm(apart / stddevs)) or 1.0)
            output = round(draw[-2] * stddevs[-1] + (apart[-1] if present else 0.0))
            given_count = measure_round(mine, other, past, past_other, output - round(apart[-1]), output)
            apart[:-1] = given_count[0][:-1]
            shift = apart / stddevs
            size = float(np.linalg.norm(shift))
            along = float(shift @ draw[:-1]) / size if size > 0 else 0.0
            loss += _log_ratio(size, along, present, rate)
            ideal_loss += _log_ratio(ideal, usual, present, rate)
            # What is released, relative to the run without the client, in units; then as noise of either run.
            output = draw[:-1] * stddevs + (apart if present else 0.0)
            past = [*past, _rows(output - apart, mine.size)]
            past_other = [*past_other, _rows(output, mine.size)]
        a, b = released(mine, past).history[-1], released(other, past_other).history[-1]
        assert np.allclose(a[0], b[0], rtol=1e-6, atol=1e-9)
        assert math.isclose(a[1], b[1], rel_tol=1e-6)
        gains.append(_gain(epsilon, loss) - _gain(epsilon, ideal_loss))
    return expected + float(np.mean(gains))


def _log_ratio(shift: float, along: float, present: bool, rate: float) -> float:
    """The loss of one round: of an output along the shift, of the run that may have the client, against the other."""
    likelihood = shift * along + shift**2 * (0.5 if present else -0.5)
    return likelihood if rate == 1.0 else math.log1p(rate * math.expm1(likelihood))


def _gain(epsilon: float, loss: float) -> float:
    return max(0.0, -math.expm1(epsilon - loss))


def _rows(noise: np.ndarray, size: int) -> list[list[int]]:
    whole = [round(one) for one in noise.tolist()]
    return [whole[:size], whole[size:]]
