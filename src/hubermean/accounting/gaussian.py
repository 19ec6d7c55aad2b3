"""Calibration of Gaussian noise whose scale may depend on the data (proofs/gaussian-calibration.md).

A mechanism releases N(f(D), (S(D)/alpha)^2 I_d). For neighbors D, D' it guarantees |f(D) - f(D')| <= min(S(D),
S(D')) and |ln S(D') - ln S(D)| <= beta: S is a beta-smooth bound on the sensitivity of f. This module computes the
delta of such a mechanism, and the alpha that reaches a given delta. With beta = 0 the scale is fixed, and this is the
analytic Gaussian mechanism of Balle & Wang (2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from hubermean.accounting.arguments import (
    check_non_negative,
    check_positive,
    check_positive_integer,
    check_probability,
)
from hubermean.accounting.hockey_stick import (
    log_divergence_equal_scale,
    log_divergence_narrow_first,
    log_divergence_wide_first,
)
from hubermean.errors import InputError

# Arguments beyond these are replaced by them, on the safe side, so that no intermediate value overflows:
# delta is non-decreasing in beta and in the shift, and non-increasing in epsilon.
_SMALLEST_BETA = 1e-30
_SMALLEST_SHIFT = 1e-100
_LARGEST_EPSILON = 1e12
# Above these, delta = 1 is returned without computation: the two distributions are far apart, or (alpha) the rounding
# of shift/2 - epsilon/shift would exceed the error budget of Lemma 6.
_LARGEST_BETA = 100.0
_LARGEST_ALPHA = 1e4
_LARGEST_DIMENSION = 10**9
# The search stops at this alpha: the noise would be a billion times the sensitivity.
_SMALLEST_ALPHA = 1e-9


def gaussian_delta(epsilon: float, *, alpha: float, beta: float = 0.0, dimension: int = 1) -> float:
    """Return the delta of Gaussian noise of standard deviation S/alpha, where S is a beta-smooth sensitivity bound.

    Args:
        epsilon: the allowed privacy loss, above 0.
        alpha: sensitivity bound over noise standard deviation, above 0. A larger alpha means less noise.
        beta: bound on the difference of the logarithms of the two scales; 0 (the default) for a fixed scale.
        dimension: number of coordinates d; default 1.

    Returns:
        delta, between the smallest positive float and 1.

    Raises:
        InputError: an argument is out of range.

    **Formal guarantees**
    - The mechanism above is (epsilon, returned delta)-DP in both directions, for every pair of centers within min(S,
      S') and every pair of scales within a factor e^beta (Lemmas 1 to 5, proved for all d, alpha, beta without a grid
      over the scale ratio).
    - The bound is tight: it is the supremum over such pairs, times 1 + `rounding_margin(dimension)`, which covers
      quadrature and rounding (Lemma 6: an error estimate confirmed by tests, not interval arithmetic).
    - Non-decreasing in alpha, beta and dimension, non-increasing in epsilon, up to that margin.

    The printed constants of the d = 1 mechanism in Zhao et al. (2024) at epsilon = 1, delta = 1e-5:

    >>> log_term = math.log(1e5)
    >>> f"{gaussian_delta(1.0, alpha=1.0 / math.sqrt(log_term), beta=1.0 / (2.0 * log_term)):.3e}"
    '1.279e-03'
    >>> f"{gaussian_delta(1.0, alpha=1.0 / math.sqrt(log_term)):.3e}"
    '4.284e-05'
    """
    return _delta(
        check_positive("epsilon", epsilon),
        check_positive("alpha", alpha),
        check_non_negative("beta", beta),
        check_positive_integer("dimension", dimension),
    )


def gaussian_alpha(epsilon: float, delta: float, *, beta: float = 0.0, dimension: int = 1) -> float:
    """Return the largest alpha, rounded down, for which noise of standard deviation S/alpha is (epsilon, delta)-DP.

    Args:
        epsilon: above 0.
        delta: strictly between 0 and 1.
        beta: smoothness of S, as in `gaussian_delta`; default 0.
        dimension: number of coordinates d; default 1.

    Returns:
        alpha, at least 1e-9. The noise has standard deviation sensitivity / alpha.

    Raises:
        InputError: no alpha of at least 1e-9 reaches delta, because two scales a factor e^beta apart around one
            center already distinguish the neighbors (large dimension times beta).

    **Formal guarantees**
    - `gaussian_delta(epsilon, alpha=returned, beta=beta, dimension=dimension) <= delta` holds; it was evaluated at
      the returned float.
    - Within one part in 10^7 of the largest such alpha, where delta is sensitive to alpha.

    >>> round(gaussian_alpha(1.0, 1e-5), 5)
    0.26805
    >>> round(gaussian_alpha(1.0, 1e-5, beta=0.01644, dimension=3), 4)
    0.2057
    """
    alpha = largest_alpha(
        check_positive("epsilon", epsilon),
        check_probability("delta", delta),
        check_non_negative("beta", beta),
        check_positive_integer("dimension", dimension),
    )
    if alpha is None:
        cure = "a smaller beta, or a larger epsilon or delta" if beta > 0 else "a larger epsilon or delta"
        raise InputError(
            f"no usable amount of noise gives epsilon={epsilon:g}, delta={delta:g} with beta={beta:g} in "
            f"dimension {dimension}: choose {cure}"
        )
    return alpha


def rounding_margin(dimension: int) -> float:
    """Return the relative amount by which `gaussian_delta` is inflated (Lemma 6, proofs/gaussian-calibration.md).

    >>> rounding_margin(1) < 2e-9
    True
    """
    return 1e-9 * (1.0 + dimension / 10_000)


def _delta(epsilon: float, alpha: float, beta: float, dimension: int) -> float:
    if beta > _LARGEST_BETA or alpha > _LARGEST_ALPHA or (beta > 0.0 and dimension > _LARGEST_DIMENSION):
        return 1.0
    epsilon, alpha = min(epsilon, _LARGEST_EPSILON), max(alpha, _SMALLEST_SHIFT)
    logs = []
    # Lemma 3: below alpha^2 = 2 eps the divergence grows with |lambda| on the negative side, so lambda = 0
    # is dominated; above, it is one of the candidates of Lemma 4.
    if beta == 0.0 or alpha * alpha >= 2.0 * epsilon * (1.0 - 1e-12):
        logs.append(log_divergence_equal_scale(epsilon, alpha))
    if beta > 0.0:
        ratio = max(beta, _SMALLEST_BETA)
        logs.append(log_divergence_wide_first(epsilon, alpha, ratio, dimension))
        if dimension == 1:  # Lemma 5 dominates this candidate from d = 2 on
            logs.append(log_divergence_narrow_first(epsilon, alpha, ratio))
    value = math.exp(max(logs)) * (1.0 + rounding_margin(dimension if beta > 0.0 else 1))
    return min(1.0, max(value, math.nextafter(0.0, 1.0)))


@lru_cache(maxsize=1024)
def largest_alpha(epsilon: float, delta: float, beta: float, dimension: int) -> float | None:
    """`gaussian_alpha` for validated arguments; None if no alpha of at least 1e-9 exists."""

    def excess(log_alpha: float) -> float:
        """Above 0 exactly where delta is exceeded as a float; the logarithms guide the search."""
        reached = _delta(epsilon, math.exp(log_alpha), beta, dimension)
        difference = math.log(reached) - math.log(delta)
        return max(difference, 1e-300) if reached > delta else min(difference, 0.0)

    # Dwork & Roth (2014), Thm A.1, only as a first guess.
    guess = math.log(epsilon) - 0.5 * math.log(2.0 * (math.log(1.25) - math.log(delta)))
    bracket = _bracket(excess, max(guess, math.log(_SMALLEST_ALPHA)))
    if bracket is None:
        return None
    alpha = math.exp(_largest_below(excess, *bracket))
    # exp and log round: test the returned float itself against delta.
    step = 1e-12
    while _delta(epsilon, alpha, beta, dimension) > delta:
        alpha *= 1.0 - step
        step = min(2.0 * step, 0.5)  # where delta is flat in alpha, small steps would take forever
        if alpha < _SMALLEST_ALPHA:
            return None
    return alpha


def _bracket(
    function: Callable[[float], float], start: float
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return points (x, function(x)) with values <= 0 and > 0 around a sign change; None if there is none below."""
    here = (start, function(start))
    step = 0.125
    if here[1] > 0.0:
        floor = math.log(_SMALLEST_ALPHA)
        above = here
        while above[0] > floor:
            x = max(above[0] - step, floor)
            below = (x, function(x))
            if below[1] <= 0.0:
                return below, above
            above = below
            step *= 2.0
        return None
    below = here
    while True:  # ends: delta tends to 1 as alpha grows, and is 1 from some float on
        above = (below[0] + step, function(below[0] + step))
        if above[1] > 0.0:
            return below, above
        below = above
        step *= 2.0


def _largest_below(
    function: Callable[[float], float], below: tuple[float, float], above: tuple[float, float]
) -> float:
    """Return the largest x with function(x) <= 0 by the Illinois variant of regula falsi, to about 1e-11."""
    low, low_value = below
    high, high_value = above
    side = 0
    for iteration in range(200):
        if high - low <= 1e-11:
            break
        if iteration % 8 == 7:  # a bisection now and then bounds the number of steps
            x = 0.5 * (low + high)
        else:
            x = low - low_value * (high - low) / (high_value - low_value)
            # Strictly inside the bracket, so that every step shortens it.
            x = min(max(x, low + 0.25e-11), high - 0.25e-11)
        value = function(x)
        if value <= 0.0:
            low, low_value = x, value
            high_value *= 0.5 if side == -1 else 1.0
            side = -1
        else:
            high, high_value = x, value
            low_value *= 0.5 if side == 1 else 1.0
            side = 1
    return low
