"""The logarithm of sqrt(2 pi x) exp(-x) I_k(x), the angular part of a shifted Gaussian's radius.

Three regimes, because no single routine covers k = -1/2 ... 5,000 and x = 0 ... 1e60 in doubles:
elementary functions (k = -1/2, 1/2), scipy's exponentially scaled Bessel function with its two limits
(k < 25), and the uniform expansion for large order (k >= 25).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# From this order on nine Debye terms leave a relative error below 1e-13
# (Lemma 6, proofs/gaussian-calibration.md).
_DEBYE_ORDER = 25.0
_DEBYE_TERMS = 9


def log_scaled_bessel(order: float, x: Array) -> Array:
    """log( sqrt(2 pi x) exp(-x) I_order(x) ) for x > 0 and order = d/2 - 1, d = 1, 2, ...

    The value is at most log 2, and tends to 0 as x grows.

    >>> log_scaled_bessel(-0.5, np.array([1e-9, 1e3])).round(6).tolist()
    [0.693147, 0.0]
    """
    if order == -0.5:
        return np.log1p(np.exp(-2.0 * x))
    if order == 0.5:
        return np.asarray(np.log(-np.expm1(-2.0 * x)))
    if order >= _DEBYE_ORDER:
        return _debye(order, x)
    return _small_order(order, x)


def _small_order(order: float, x: Array) -> Array:
    from scipy import special  # deferred: scipy would dominate the import time of the package

    out = np.empty_like(x)
    near, far = x < 1e-2, x > 1e6
    middle = ~(near | far)
    out[middle] = 0.5 * np.log(2.0 * math.pi * x[middle]) + np.log(special.ive(order, x[middle]))

    # DLMF 10.25.2, three terms: ive underflows here at the larger orders.
    v = x[near]
    y = 0.25 * v * v
    series = y / (order + 1.0) * (1.0 + y / (2.0 * (order + 2.0)))
    out[near] = (
        0.5 * np.log(2.0 * math.pi * v)
        - v
        + order * np.log(0.5 * v)
        - math.lgamma(order + 1.0)
        + np.log1p(series)
    )

    # DLMF 10.40.1, four terms of size (order^2 / 2x)^j / j! < (4e-4)^j / j!.
    v = x[far]
    mu = 4.0 * order * order
    term = np.ones_like(v)
    total = np.zeros_like(v)
    for j in range(1, 5):
        term = -term * (mu - (2 * j - 1) ** 2) / (j * 8.0 * v)
        total += term
    out[far] = np.log1p(total)
    return out


def _debye(order: float, x: Array) -> Array:
    # DLMF 10.41.3 in the variable p = order / hypot(order, x); the leading exponent order * eta - x is
    # written so that neither a huge x nor a tiny one cancels.
    big = np.hypot(order, x)
    p = order / big
    exponent = order * (order / (big + x)) - order * np.arcsinh(order / x) + 0.5 * np.log(x / big)
    square = p * p
    power = np.ones_like(x)
    total = np.zeros_like(x)
    for coefficients in _debye_polynomials():
        power = power * (p / order)
        value = np.full_like(x, coefficients[-1])
        for c in coefficients[-2::-1]:
            value = value * square + c
        total += power * value
    return np.asarray(exponent + np.log1p(total))


@lru_cache(maxsize=1)
def _debye_polynomials() -> tuple[tuple[float, ...], ...]:
    """Coefficients u_0, u_1, ... of U_j(p) = p^j (u_0 + u_1 p^2 + ...), j = 1, 2, ... (DLMF 10.41.9)."""
    result = []
    current = {0: Fraction(1)}
    for j in range(1, _DEBYE_TERMS + 1):
        following: dict[int, Fraction] = {}
        for degree, c in current.items():
            # p^2 (1 - p^2) U' / 2  +  (integral of (1 - 5 s^2) U) / 8
            for shift, factor in (
                (1, Fraction(degree, 2) + Fraction(1, 8 * (degree + 1))),
                (3, -Fraction(degree, 2) - Fraction(5, 8 * (degree + 3))),
            ):
                following[degree + shift] = following.get(degree + shift, Fraction(0)) + factor * c
        current = following
        result.append(tuple(float(current[j + 2 * i]) for i in range(j + 1)))
    return tuple(result)
