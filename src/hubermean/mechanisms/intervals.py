"""Confidence intervals from public or released numbers, shared by several mechanisms.

`half_widths` combines noise of a known distribution with a normal sampling error of an estimated variance. The classes
are interval rules (`types.release.IntervalRule`): they hold released numbers and make an interval for any level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.distributions.output import NoiseDistribution
from hubermean.types.release import Interval, IntervalRule

NOISE_AND_SAMPLING = "noise and sampling; values beyond the bounds count as the bounds"
NOISE_SAMPLING_AND_CLIPPING = "noise, sampling and clipping"

# Ratio of a normal deviation to a Laplace scale beyond which the sum counts as normal.
_AS_GOOD_AS_NORMAL = 30.0


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # independent of the caller's numpy settings
def half_widths(
    level: float,
    *,
    kind: Literal["laplace", "gaussian"],
    noise_variance: FloatArray,
    sampling_variance: FloatArray,
) -> FloatArray:
    """How far noise and a normal sampling error together lie from 0 at most, with probability `level`.

    One result per entry; infinite where a variance is. Laplace noise may be a mixture of several terms, which lies
    between a Laplace and a normal distribution of the same variance; the wider of the two is used.
    """
    from statistics import NormalDist

    tail = (1.0 - level) / 2.0
    normal: FloatArray = -NormalDist().inv_cdf(tail) * np.sqrt(noise_variance + sampling_variance)
    scale, deviation = np.sqrt(noise_variance / 2.0), np.sqrt(sampling_variance)
    mixed = np.isfinite(normal) & (deviation <= _AS_GOOD_AS_NORMAL * scale) & (scale > 0.0)
    if kind == "gaussian" or not mixed.any():
        return normal
    widths = normal.copy()
    widths[mixed] = np.maximum(normal[mixed], _laplace_widths(tail, scale[mixed], deviation[mixed]))
    return widths


def noise_width(level: float, *, kind: Literal["laplace", "gaussian"], stddev: float) -> float:
    """As `half_widths`, for noise alone."""
    from statistics import NormalDist

    tail = (1.0 - level) / 2.0
    normal = -NormalDist().inv_cdf(tail) * stddev
    return normal if kind == "gaussian" else max(normal, -math.log(2.0 * tail) * stddev / math.sqrt(2.0))


def _laplace_widths(tail: float, scale: FloatArray, deviation: FloatArray) -> FloatArray:
    """The distance beyond which the mixture has the given tail probability, rounded up."""
    low, high = np.zeros_like(scale), scale + deviation
    while (short := laplace_tail(high, scale=scale, deviation=deviation) > tail).any():
        high[short] *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if ((middle == low) | (middle == high)).all():  # neighboring numbers: nothing changes any more
            break
        short = laplace_tail(middle, scale=scale, deviation=deviation) > tail
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def laplace_tail(distance: FloatArray, *, scale: FloatArray, deviation: FloatArray) -> FloatArray:
    """P(Laplace of the scale + normal of the deviation > distance), entry by entry."""
    deviation = np.maximum(deviation, 1e-9 * scale)
    z, ratio = distance / deviation, deviation / scale
    shift = ratio * ratio / 2.0
    central, under, over = _upper(np.array((z, ratio - z, ratio + z)))
    below = np.exp(shift - distance / scale) * under
    above = np.exp(np.minimum(shift + distance / scale, 700.0)) * over
    return np.asarray(central + 0.5 * (below - above))


def _upper(z: FloatArray) -> FloatArray:
    """P(a standard normal number > z)."""
    upper = np.array([0.5 * math.erfc(one) for one in (z / math.sqrt(2.0)).ravel().tolist()])
    return upper.reshape(z.shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class GaussianNoiseInterval:
    """An interval per column, from noisy values and the public noise: for the Huber location, or another center."""

    center: Sequence[float]
    noise_stddevs: Sequence[float]
    covers: str = "noise only"

    def at(self, level: float) -> Interval:
        # In units of 2^-44 deviations, so that the grid is negligible.
        bound = NoiseDistribution(kind="gaussian", scale=2.0**44).bound(tail=1.0 - level) * 2.0**-44
        ends = list(zip(self.center, self.noise_stddevs, strict=True))
        low = tuple(value - bound * stddev for value, stddev in ends)
        high = tuple(value + bound * stddev for value, stddev in ends)
        return Interval(level=level, low=low, high=high, covers=self.covers)


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnIntervals:
    """The interval of each column by its own rule; every rule makes intervals for all columns."""

    rules: Sequence[IntervalRule]

    def at(self, level: float) -> Interval:
        own = [rule.at(level) for rule in self.rules]
        return replace(
            own[0],
            low=tuple(one.low[column] for column, one in enumerate(own)),
            high=tuple(one.high[column] for column, one in enumerate(own)),
        )
