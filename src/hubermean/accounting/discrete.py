"""Calibration of discrete Gaussian and discrete Laplace noise on the integers.

A mechanism that rounds its answer to an integer grid and adds integer noise has exactly the output distribution that
the proof is about; floating-point noise does not. All sensitivities and scales are in grid units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from hubermean.accounting.arguments import (
    check_exact_positive,
    check_positive,
    check_positive_integer,
    check_probability,
)
from hubermean.accounting.gaussian import gaussian_alpha
from hubermean.errors import InputError

SMALLEST_DISCRETE_SIGMA: Final = 1024.0
"""The smallest standard deviation, in grid units, for which Lemma 7 is stated."""

# Share of delta spent on the tail of Lemma 7, and the relative margin for float rounding of its terms.
_TAIL_SHARE = 2.0**-20


def discrete_gaussian_sigma(
    epsilon: float, delta: float, *, sensitivity: float | Fraction, dimension: int = 1
) -> float:
    """Return the smallest parameter sigma, rounded up, of a discrete Gaussian on Z^d that is (epsilon, delta)-DP.

    The noise has P(x) proportional to exp(-|x|^2 / (2 sigma^2)) on integer vectors and is added to an integer answer.

    Args:
        epsilon: above 0.
        delta: strictly between 0 and 1.
        sensitivity: largest Euclidean distance between the answers on neighbors, in grid units. The answers are
            integers, their distance need not be.
        dimension: number of coordinates d.

    **Formal guarantees**
    - The release is (epsilon, delta)-DP for every integer shift of at most `sensitivity` (Lemma 7,
      proofs/gaussian-calibration.md). Discreteness costs d/(24 sigma^2) + R/(8 sigma^2) of epsilon, with R of the
      order of d + ln(1/delta), and one part in 2^19 of delta.
    - sigma * alpha >= sensitivity holds in exact arithmetic for the alpha of the continuous distribution.

    Raises:
        InputError: sigma would be below 1,024 grid units, or discreteness would cost half of epsilon. A finer grid,
            hence a larger `sensitivity` in grid units, solves both.

    >>> sigma = discrete_gaussian_sigma(1.0, 1e-5, sensitivity=2**20)
    >>> round(2**20 / sigma, 5)
    0.26805
    """
    eps = check_positive("epsilon", epsilon)
    target = check_probability("delta", delta)
    shift = check_exact_positive("sensitivity", sensitivity)
    d = check_positive_integer("dimension", dimension)

    continuous_alpha = gaussian_alpha(eps, target)
    floor = _quotient_up(shift, continuous_alpha, "sensitivity")
    if floor < SMALLEST_DISCRETE_SIGMA:
        raise InputError(
            f"the noise would have a standard deviation of {floor:.3g} grid units, below the "
            f"{SMALLEST_DISCRETE_SIGMA:g} its proof needs: use a finer grid, so that sensitivity is larger"
        )
    # The returned sigma is at least `floor`, and both terms fall with sigma: evaluating them here is safe.
    log_tail = -(math.log(_TAIL_SHARE) + math.log(target))
    radius = math.sqrt(d + 2.0 * math.sqrt(d * log_tail) + 2.0 * log_tail) + continuous_alpha
    slack = 1.0 + _TAIL_SHARE
    pointwise = slack * d / (24.0 * floor * floor)  # a of Lemma 7
    in_ball = slack * radius * radius / (8.0 * floor * floor)  # b of Lemma 7
    if pointwise + in_ball >= 0.5 * min(eps, 1.0):
        raise InputError(
            f"the grid is so coarse that discreteness alone costs {pointwise + in_ball:.3g} of "
            f"epsilon={eps:g}: use a finer grid, so that sensitivity is larger, or fewer dimensions"
        )
    # Lemma 7: delta_discrete <= tail + e^a delta_continuous(eps - a - b), and e^-a >= 1 - a.
    remaining = target * (1.0 - 2.0 * _TAIL_SHARE) * (1.0 - pointwise)
    alpha = min(continuous_alpha, gaussian_alpha(eps - slack * (pointwise + in_ball), remaining))
    return _quotient_up(shift, alpha, "sensitivity")


def discrete_gaussian_sigmas(
    epsilon: float, delta: float, *, sensitivities: Sequence[int], dimension: int
) -> list[float]:
    """Return sigmas for several groups of coordinates, each with its own sensitivity.

    **Formal guarantees**
    - (epsilon, delta)-DP if the squares of shift over sensitivity, summed over the groups, are at most one. All
      groups have the alpha of the finest noise, for which discreteness costs most. `dimension` counts all
      coordinates.
    """
    least = min(sensitivities)
    sigma = discrete_gaussian_sigma(epsilon, delta, sensitivity=least, dimension=dimension)
    return [_float_up(Fraction(one) * Fraction(sigma) / least, "sensitivity") for one in sensitivities]


def laplace_scale(epsilon: float, sensitivity: float | Fraction) -> float:
    """Return the smallest float `scale` with sensitivity / scale <= epsilon in exact arithmetic.

    Args:
        epsilon: above 0; the float is used exactly, as the binary fraction it is.
        sensitivity: largest distance |f(D) - f(D')| of the integer answers on neighbors, in grid units.

    **Formal guarantees**
    - Discrete Laplace noise, P(k) proportional to exp(-|k| / scale) on the integers, is epsilon-DP: the probabilities
      of two answers at most `sensitivity` apart differ by a factor of at most exp(sensitivity / scale).
    - The next smaller float would violate the inequality.

    >>> laplace_scale(0.5, 3)
    6.0
    >>> scale = laplace_scale(0.1, 1)
    >>> Fraction(1) / Fraction(scale) <= Fraction(0.1) < Fraction(1) / Fraction(math.nextafter(scale, 0.0))
    True
    """
    shift = check_exact_positive("sensitivity", sensitivity)
    return _quotient_up(shift, check_positive("epsilon", epsilon), "sensitivity")


def _quotient_up(numerator: Fraction, denominator: float, name: str) -> float:
    """Return the smallest float that is at least numerator / denominator."""
    return _float_up(numerator / Fraction(denominator), name)


def _float_up(exact: Fraction, name: str) -> float:
    """Return the smallest float that is at least `exact`."""
    try:
        value = float(exact)  # correctly rounded, hence at most one step off
    except OverflowError:
        value = math.inf
    if value < exact:
        value = math.nextafter(value, math.inf)
    if not math.isfinite(value):
        raise InputError(f"{name} is too large for noise of a representable scale: use a coarser grid")
    return max(value, math.nextafter(0.0, 1.0))
