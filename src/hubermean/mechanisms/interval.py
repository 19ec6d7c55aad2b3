"""Confidence intervals for a mean with noise of a known law and sampling of an estimated variance."""

from __future__ import annotations

import math
from typing import Literal

NOISE_AND_SAMPLING = "noise and sampling, not the bias of clamping"

_AS_GOOD_AS_NORMAL = 30.0  # deviations of a normal error for one scale of Laplace noise beside it


def half_width(
    level: float, *, kind: Literal["laplace", "gaussian"], noise_variance: float, sampling_variance: float
) -> float:
    """How far noise and a normal sampling error together stray from 0, except with probability 1 - level.

    Laplace noise may be a mixture of several terms, which lies between a Laplace law and a normal one of the same
    variance: the wider of the two counts.
    """
    total = noise_variance + sampling_variance
    if not math.isfinite(total):
        return math.inf
    from statistics import NormalDist

    tail = (1.0 - level) / 2.0
    normal = -NormalDist().inv_cdf(tail) * math.sqrt(total)
    scale, deviation = math.sqrt(noise_variance / 2.0), math.sqrt(sampling_variance)
    if kind == "gaussian" or deviation > _AS_GOOD_AS_NORMAL * scale:
        return normal
    low, high = 0.0, normal
    while laplace_tail(high, scale=scale, deviation=deviation) > tail:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if laplace_tail(middle, scale=scale, deviation=deviation) > tail:
            low = middle
        else:
            high = middle
    return max(high, normal)


def laplace_tail(distance: float, *, scale: float, deviation: float) -> float:
    """P(Laplace of the scale + normal of the deviation > distance)."""
    if deviation <= 1e-9 * scale:
        return 0.5 * math.exp(-distance / scale)
    z, ratio = distance / deviation, deviation / scale
    beyond = 0.5 * math.erfc(z / math.sqrt(2.0))
    shift = ratio * ratio / 2.0
    below = math.exp(shift - distance / scale) * 0.5 * math.erfc((ratio - z) / math.sqrt(2.0))
    above = 0.0
    if shift + distance / scale < 700.0:
        above = math.exp(shift + distance / scale) * 0.5 * math.erfc((ratio + z) / math.sqrt(2.0))
    return beyond + 0.5 * (below - above)
