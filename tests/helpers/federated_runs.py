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

    def replay(self, script: list[list[list[int]]], coin: bool) -> tuple[History, list[float]]:
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


def released(run: Run, script: list[list[list[int]]], coin: bool = True) -> Released:
    history, stddevs = run.replay(script, coin)
    before = history[-2][1] if len(history) > 1 else 0.0
    logarithm = math.log(history[-1][1]) - (math.log(before) if before else 0.0)
    spread = np.repeat(stddevs, [len(row) for row in script[-1]][: len(stddevs)])
    steps = len(script[-1]) - 1
    numbers = np.append(history[-1][0], logarithm) if len(spread) > steps * run.size else history[-1][0]
    return Released(numbers=numbers, history=history, stddevs=spread)


def measure_round(
    mine: Run, other: Run, past: list[list[list[int]]], past_other: list[list[list[int]]], rows: list[list[int]]
) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Return the shift of each released number, in standard deviations, and the noise that makes the other run equal.

    Returns (shift, scale, rows of the other run): shift in units of the noise; one step per round.
    """
    here, there = released(mine, [*past, rows]), released(other, [*past_other, rows])
    shifts, matching, position = [], [list(row) for row in rows], 0
    for number, row in enumerate(rows):
        for index in range(len(row)):
            moved = [list(one) for one in rows]
            unit = round(here.stddevs[position])  # one standard deviation of noise more
            moved[number][index] += unit
            effect = (released(mine, [*past, moved]).numbers - here.numbers)[position] / unit
            apart = (here.numbers - there.numbers)[position] / effect  # in units of the noise
            shifts.append(apart / here.stddevs[position])
            matching[number][index] += round(apart)
            position += 1
    return np.array(shifts), here.stddevs, matching


def measured_delta(
    mine: Run, other: Run, epsilon: float, *, rounds: int, samples: int, rate: float = 1.0, seed: int = 1
) -> float:
    """Return E[(1 - e^(epsilon - loss))_+] of a whole run under `mine`, by quasi-Monte Carlo over its noise.

    With sampling `other` is the run without the client, and it is in a round of `mine` with probability `rate`.
    """
    shape = [mine.size, 1]  # the sums, the count
    points = qmc.Sobol(rounds * (sum(shape) + 1), seed=seed).random(samples)
    gains = []
    for point in points:
        draws = norm.ppf(np.clip(point, 1e-12, 1 - 1e-12)).reshape(rounds, sum(shape) + 1)
        past: list[list[list[int]]] = []
        past_other: list[list[list[int]]] = []
        loss = 0.0
        for draw in draws:
            zero = [[0] * size for size in shape]
            stddevs = released(mine, [*past, zero]).stddevs
            present = norm.cdf(draw[-1]) < rate
            shift, _, _ = measure_round(mine, other, past, past_other, zero)
            # The output in standard deviations, relative to the run without the client.
            output = draw[:-1] + (shift if present else 0.0)
            likelihood = float(shift @ output - shift @ shift / 2)  # of the client in the round, against not
            loss += likelihood if rate == 1.0 else math.log1p(rate * math.expm1(likelihood))
            noise = np.rint((output - shift) * stddevs).astype(np.int64).tolist()  # as seen by `mine`
            rows = [noise[: mine.size], noise[mine.size :]]
            *_, matching = measure_round(mine, other, past, past_other, rows)
            past, past_other = [*past, rows], [*past_other, matching]
            a, b = released(mine, past).history[-1], released(other, past_other).history[-1]
            assert np.allclose(a[0], b[0], rtol=1e-6, atol=1e-9) and math.isclose(a[1], b[1], rel_tol=1e-6)
        gains.append(max(0.0, -math.expm1(epsilon - loss)))
    return float(np.mean(gains))
