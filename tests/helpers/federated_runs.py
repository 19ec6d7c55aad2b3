"""The delta of a whole federated run, integrated over its noise from shifts that an audit measures."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm, qmc

from hubermean.federated.run_audit import SIZE, Script, ScriptedRun, measure_round


def measured_delta(
    mine: ScriptedRun,
    other: ScriptedRun,
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
    width = SIZE + 1
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
            past = [*past, _rows(output - apart)]
            past_other = [*past_other, _rows(output)]
        a, b = mine.replay(past).history[-1], other.replay(past_other).history[-1]
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


def _rows(noise: np.ndarray) -> list[list[int]]:
    whole = [round(one) for one in noise.tolist()]
    return [whole[:SIZE], whole[SIZE:]]
