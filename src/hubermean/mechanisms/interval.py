"""Confidence intervals for a mean with noise of a known law and sampling of an estimated variance."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISE_AND_SAMPLING = "noise and sampling; values beyond the bounds count as the bounds"
NOISE_SAMPLING_AND_CLIPPING = "noise, sampling and clipping"

_AS_GOOD_AS_NORMAL = 30.0  # deviations of a normal error for one scale of Laplace noise beside it


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # whatever the caller has numpy do about them
def half_widths(
    level: float, *, kind: Literal["laplace", "gaussian"], noise_variance: Floats, sampling_variance: Floats
) -> Floats:
    """How far noise and a normal sampling error together stray from 0, except with probability 1 - level.

    One answer per entry; infinite where a variance is. Laplace noise may be a mixture of several terms, which lies
    between a Laplace law and a normal one of the same variance: the wider of the two counts.
    """
    from statistics import NormalDist

    tail = (1.0 - level) / 2.0
    normal: Floats = -NormalDist().inv_cdf(tail) * np.sqrt(noise_variance + sampling_variance)
    scale, deviation = np.sqrt(noise_variance / 2.0), np.sqrt(sampling_variance)
    mixed = np.isfinite(normal) & (deviation <= _AS_GOOD_AS_NORMAL * scale) & (scale > 0.0)
    if kind == "gaussian" or not mixed.any():
        return normal
    widths = normal.copy()
    widths[mixed] = np.maximum(normal[mixed], _laplace_widths(tail, scale[mixed], deviation[mixed]))
    return widths


def noise_width(level: float, *, kind: Literal["laplace", "gaussian"], stddev: float) -> float:
    """The same for noise alone."""
    from statistics import NormalDist

    tail = (1.0 - level) / 2.0
    normal = -NormalDist().inv_cdf(tail) * stddev
    return normal if kind == "gaussian" else max(normal, -math.log(2.0 * tail) * stddev / math.sqrt(2.0))


def _laplace_widths(tail: float, scale: Floats, deviation: Floats) -> Floats:
    """Where the tail of the mixture has the given probability, rounded up."""
    low, high = np.zeros_like(scale), scale + deviation
    while (short := laplace_tail(high, scale=scale, deviation=deviation) > tail).any():
        high[short] *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        short = laplace_tail(middle, scale=scale, deviation=deviation) > tail
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def laplace_tail(distance: Floats, *, scale: Floats, deviation: Floats) -> Floats:
    """P(Laplace of the scale + normal of the deviation > distance), entry by entry."""
    deviation = np.maximum(deviation, 1e-9 * scale)
    z, ratio = distance / deviation, deviation / scale
    shift = ratio * ratio / 2.0
    below = np.exp(shift - distance / scale) * _upper(ratio - z)
    above = np.exp(np.minimum(shift + distance / scale, 700.0)) * _upper(ratio + z)
    return np.asarray(_upper(z) + 0.5 * (below - above))


def _upper(z: Floats) -> Floats:
    """P(a standard normal number > z)."""
    return np.array([0.5 * math.erfc(one) for one in (z / math.sqrt(2.0)).tolist()])
