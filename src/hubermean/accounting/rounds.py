"""Noise of a run of rounds, fixed before the first: how far one client may move each round (proofs/federated.md).

A round adds Gaussian noise to one or more sums. Its *shift* is the Euclidean distance between the sums with and without
one client, each divided by the standard deviation of its noise: sqrt(sum of (sensitivity / stddev)^2). A run of R such
rounds, each chosen from the answers before, is as private as R scalar Gaussians of that shift. With everybody in every
round that is one Gaussian of shift sqrt(R) (closed form); with Poisson sampling the privacy loss distributions of
dp-accounting are composed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hubermean.accounting.arguments import (
    check_positive,
    check_positive_integer,
    check_probability,
    is_real,
    round_down,
)
from hubermean.accounting.gaussian import gaussian_alpha, gaussian_delta
from hubermean.errors import InputError, parameter

SMALLEST_SAMPLED_DELTA = 1e-12
"""Privacy loss distributions are composed by FFT in floats; deltas below this drown in its rounding."""

_MARGIN = (
    1e-6  # relative, on delta of a composed privacy loss distribution, beside its pessimistic discretisation
)
_FLOOR = 1e-14  # absolute, for the rounding of the FFT
_PRECISION = 1e-4  # of the search, in ln(shift)


def largest_shift(
    epsilon: float, delta: float, *, rounds: int, sampling_rate: float = 1.0, replace: bool = False
) -> float:
    """Return the largest shift of one round, rounded down, for which the whole run is (epsilon, delta)-DP.

    Args:
        epsilon: above 0.
        delta: strictly between 0 and 1; at least 1e-12 with sampling.
        rounds: number of rounds.
        sampling_rate: probability with which each client is drawn into each round, independently and secretly; 1 for
            everybody in every round.
        replace: whether a client may be replaced by another one; otherwise it is added, removed or zeroed out.

    Raises:
        InputError: an argument is out of range.

    **Formal guarantees**
    - `run_delta` of the same arguments at the returned float is at most `delta`: it was evaluated after the search.

    >>> shift = largest_shift(4.0, 1e-5, rounds=30)
    >>> round(1 / shift, 2)
    5.92
    """
    eps, target = check_positive("epsilon", epsilon), check_probability("delta", delta)
    count, rate = check_positive_integer("rounds", rounds), _check_rate(sampling_rate)
    if rate < 1.0 and target < SMALLEST_SAMPLED_DELTA:
        raise InputError(
            f"with {parameter('sampling', 'poisson')} {parameter('delta')} must be at least "
            f"{SMALLEST_SAMPLED_DELTA:g}, not {delta!r}"
        )
    return _largest_shift(eps, target, count, rate, bool(replace))


def run_delta(
    epsilon: float, *, shift: float, rounds: int, sampling_rate: float = 1.0, replace: bool = False
) -> float:
    """Return the delta, rounded up, of a run at `epsilon`; arguments as for `largest_shift`.

    **Formal guarantees** (proofs/federated.md, Theorem 1)
    - An upper bound on the hockey-stick divergence of the whole run on neighbors, in both directions, for any
      adaptive choice of what is summed; tight for fixed sums.
    """
    eps, size = check_positive("epsilon", epsilon), check_positive("shift", shift)
    count, rate = check_positive_integer("rounds", rounds), _check_rate(sampling_rate)
    if rate == 1.0:
        return gaussian_delta(eps, alpha=_whole_shift(size, count, replace))
    return _sampled_delta(eps, size, count, rate, bool(replace))


def _check_rate(rate: float) -> float:
    if not (is_real(rate) and 0.0 < rate <= 1.0):
        raise InputError(f"{parameter('sampling_rate')} must be above 0 and at most 1, not {rate!r}")
    return float(rate)


def _whole_shift(shift: float, rounds: int, replace: bool) -> float:
    """The shift of all rounds together, rounded up: from a client to another one it is twice that to none."""
    return math.sqrt(rounds) * shift * (2.0 if replace else 1.0) * (1.0 + 1e-15)


@lru_cache(maxsize=256)
def _largest_shift(epsilon: float, delta: float, rounds: int, rate: float, replace: bool) -> float:
    alpha = gaussian_alpha(epsilon, delta)
    if rate == 1.0:
        return round_down(Fraction(alpha) / (2 if replace else 1)) / math.sqrt(rounds) * (1.0 - 1e-14)
    # A guess: many rounds are nearly one Gaussian of shift q sqrt(R (e^(shift^2) - 1)) (Dong, Roth & Su 2022, 5.4).
    guess = math.sqrt(math.log1p((alpha / rate) ** 2 / rounds)) / (2.0 if replace else 1.0)
    return _search(lambda shift: _sampled_delta(epsilon, shift, rounds, rate, replace), delta, guess)


def _search(delta_of: Callable[[float], float], delta: float, guess: float) -> float:
    """Return a shift near the largest whose delta is at most `delta`, and never one above it."""

    def excess(log_shift: float) -> float:
        return math.log(delta_of(math.exp(log_shift))) - math.log(delta)

    low = high = math.log(guess)
    low_value = high_value = excess(low)
    step = 0.05
    while low_value > 0.0:
        high, high_value = low, low_value
        low, step = low - step, 1.5 * step
        low_value = excess(low)
    while high_value <= 0.0:  # small steps: the losses of a far too large shift take long to compose
        low, low_value = high, high_value
        high += step
        high_value = excess(high)
    side = 0
    while high - low > _PRECISION:  # the Illinois variant of regula falsi
        x = low - low_value * (high - low) / (high_value - low_value)
        x = min(max(x, low + 0.3 * _PRECISION), high - 0.3 * _PRECISION)
        value = excess(x)
        if value <= 0.0:
            low, low_value = x, value
            high_value *= 0.5 if side == -1 else 1.0
            side = -1
        else:
            high, high_value = x, value
            low_value *= 0.5 if side == 1 else 1.0
            side = 1
    shift = math.exp(low)
    while delta_of(shift) > delta:  # exp rounds: the returned float itself is checked
        shift *= 1.0 - 1e-9
    return shift


@lru_cache(maxsize=256)
def _sampled_delta(epsilon: float, shift: float, rounds: int, rate: float, replace: bool) -> float:
    composed = _sampled_losses(shift, rate, replace, epsilon / 4000.0).self_compose(rounds)
    delta = float(composed.get_delta_for_epsilon(epsilon))
    if not delta >= 0.0:  # also where it is not a number: a check that cannot be made fails closed
        return 1.0
    return min(1.0, delta * (1.0 + _MARGIN) + _FLOOR)


def _sampled_losses(shift: float, rate: float, replace: bool, interval: float) -> Any:
    """The privacy loss distribution of one round: a client is drawn with probability `rate`, and shifts then.

    Replacement: (1 - q) N(0, 1) + q N(shift, 1) against (1 - q) N(0, 1) + q N(-shift, 1), Lemma 3.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    return privacy_loss_distribution.from_gaussian_mechanism(
        1.0,
        sensitivity=shift,
        sampling_prob=rate,
        value_discretization_interval=interval,
        neighboring_relation=relation,
    )
