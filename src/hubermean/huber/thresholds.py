"""Thresholds that shrink with the weight of a user: T(a) = A a^(-theta), the adaptive thresholds of the paper.

A user of weight a has an influence of at most a T(a) = A a^(1 - theta) on the gradient. theta = 0 gives all users one
threshold, theta = 1/2 is the paper's A / sqrt(m), and theta = 1 bounds the influence of every user by A, however many
records it has. With theta = 1 no contribution bound is needed for privacy.

theta is public and rounded to ten binary digits. Powers are products of repeated square roots. IEEE arithmetic
determines the result of both operations, so the threshold of a user is a function of its weight alone. A library's
power function may return two results for one number, depending on its position in an array or on the machine.
"""

from __future__ import annotations

import math

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray

_BITS = 10
WHOLE = 1 << _BITS
"""theta is a whole number of parts, each 1 / `WHOLE`."""


def powers(weights: IntArray, parts: int) -> FloatArray:
    """weights^(parts / WHOLE), for weights of 0 or more and 0 <= parts <= WHOLE.

    Formal guarantees: non-decreasing in the weight, also as computed, and each result is a function of its own weight;
    within (3 + 2 `_BITS`) 2^-53 relative of the exact power.
    """
    result = np.ones(weights.shape)
    if parts >> _BITS:
        return weights.astype(np.float64)
    root = weights.astype(np.float64)
    for digit in range(_BITS - 1, -1, -1):
        np.sqrt(root, out=root)
        if parts >> digit & 1:
            result *= root
    return result


def power_of(weight: int, parts: int) -> float:
    """As `powers`, of one weight."""
    return float(powers(np.array([weight], dtype=np.int64), parts)[0])


def influence_bounds(weights: IntArray, threshold: int, parts: int) -> IntArray:
    """The most that users of these weights can add to the gradient: A a^(1 - theta), rounded down; 0 for weight 0.

    Formal guarantees: non-decreasing in the weight, so the bound of the largest weight bounds all; an integer that
    depends on the weight and on public numbers alone; exact for theta = 0 and for theta = 1.
    """
    if parts == 0:
        return weights * threshold
    if parts == WHOLE:
        return np.where(weights > 0, threshold, 0)
    grown = powers(weights, WHOLE - parts)
    grown *= float(threshold)
    bounds: IntArray = grown.astype(np.int64)
    return bounds


def influence_bound(weight: int, threshold: int, parts: int) -> int:
    """As `influence_bounds`, of one weight."""
    return int(influence_bounds(np.array([weight], dtype=np.int64), threshold, parts)[0])


def thresholds(weights: IntArray, threshold: float, parts: int) -> FloatArray:
    """T(a) = A a^(-theta) as floats, for weights of 1 or more: at most A, non-increasing in the weight."""
    scaled = threshold / powers(weights, parts)
    return np.minimum(scaled, threshold)


def threshold_of(weight: int, threshold: float, parts: int) -> float:
    """As `thresholds`, of one weight."""
    return float(thresholds(np.array([weight], dtype=np.int64), threshold, parts)[0])


def total_influence_bound(weight: int, users: int, parts: int) -> int:
    """A bound on the total influence of `users` users of this weight, in multiples of A."""
    return math.ceil(power_of(weight, WHOLE - parts) * (1.0 + 2.0**-40)) * users
