"""Hockey-stick divergences of two isotropic Gaussians, the kernel of the Gaussian calibration.

    H_eps(P || Q) = sup_A P(A) - e^eps Q(A) = E_P (1 - e^(eps - L))_+ ,   L = ln dP/dQ.

Each function returns ln H from a one-dimensional integral of a positive function. No difference of probabilities is
taken, so the relative error does not grow as H shrinks. `gaussian.py` rounds the results outward
(proofs/gaussian-calibration.md, Lemma 6).

The angular part of a shifted Gaussian's radius is sqrt(2 pi x) exp(-x) I_k(x). Its logarithm needs three regimes,
because no single routine covers k = -1/2 ... 5,000 and x = 0 ... 1e60 in doubles: elementary functions
(k = -1/2, 1/2), scipy's exponentially scaled Bessel function with its two limits (k < 25), and the uniform expansion
for large order (k >= 25).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
# The integrand is cut where it has fallen to e^-46 = 1e-20 of its peak.
_CUT = 46.0
_NODES_PER_PANEL = 16


def log_divergence_equal_scale(epsilon: float, shift: float) -> float:
    """ln H_eps( N(0, 1) || N(shift, 1) ), the analytic Gaussian mechanism.

    Balle & Wang (2018), Thm 8: H = Phi(shift/2 - eps/shift) - e^eps Phi(-shift/2 - eps/shift).

    >>> round(math.exp(log_divergence_equal_scale(1.0, 0.26805112)), 9)
    1e-05
    """
    edge = 0.5 * shift - epsilon / shift  # the half-space {L > eps} is {z < edge}; L - eps = shift * y

    def log_integrand(y: Array) -> Array:
        z = edge - y
        return _log_normal(z) + _log_gain(shift * y)

    return _log_integral(log_integrand, bulk=edge, width=1.0, steepness=shift)


def log_divergence_wide_first(epsilon: float, shift: float, log_ratio: float, dimension: int) -> float:
    """ln H_eps( N(0, t^2 I_d) || N(shift e_1, I_d) ), t = e^log_ratio > 1: the case lambda = -log_ratio.

    {L > eps} is the outside of a ball around x0 e_1, x0 = shift t^2/(t^2 - 1). With rho the distance from
    x0 e_1 and z = x0 - rho, L = shift^2/2 - d log_ratio - shift z + kappa z^2 (Lemma 6): every term stays
    finite as t -> 1, where x0 and rho diverge and z becomes the coordinate along e_1.
    """
    t = math.exp(log_ratio)
    excess = math.expm1(2.0 * log_ratio)  # t^2 - 1
    kappa = 0.5 * excess / (t * t)
    x0 = shift * (t * t / excess)
    order = 0.5 * dimension - 1.0

    constant = 0.5 * shift * shift - dimension * log_ratio - epsilon
    slope = math.sqrt(_discriminant(shift, kappa, constant, epsilon, log_ratio, dimension))
    edge = _inner_root(shift, kappa, constant, slope)  # {L > eps} is {z < edge}
    bulk = -dimension * t * t / (x0 + math.sqrt(x0 * x0 + dimension * t * t))

    def log_integrand(y: Array) -> Array:
        z = edge - y
        rho = np.maximum(x0 - z, np.finfo(float).tiny)
        # Density of rho: the noncentral chi density in its Bessel form (Lemma 6).
        log_density = (
            _log_normal(z / t)
            - log_ratio
            + (order + 0.5) * np.where(np.abs(z) < 0.5 * x0, np.log1p(-z / x0), np.log(rho / x0))
            + log_scaled_bessel(order, rho * (x0 / (t * t)))
        )
        return log_density + _log_gain(y * (slope + kappa * y))

    steepness = slope + math.sqrt(kappa)
    return _log_integral(log_integrand, bulk=edge - bulk, width=t, steepness=steepness)


def log_divergence_narrow_first(epsilon: float, shift: float, log_ratio: float) -> float:
    """ln H_eps( N(0, 1) || N(shift, t^2) ), t = e^log_ratio > 1: the case lambda = +log_ratio, d = 1 only.

    For d >= 2 Lemma 5 makes it redundant. -inf where the loss never exceeds eps.
    """
    t = math.exp(log_ratio)
    kappa = 0.5 * math.expm1(2.0 * log_ratio) / (t * t)
    # L - eps = constant - b x - kappa x^2 with b = shift / t^2, positive between two roots.
    b = shift / (t * t)
    constant = 0.5 * shift * b + log_ratio - epsilon
    discriminant = b * b + 4.0 * kappa * constant
    if discriminant <= 0.0:
        return -math.inf
    slope = math.sqrt(discriminant)
    edge = 2.0 * constant / (b + slope)
    length = slope / kappa

    def log_integrand(y: Array) -> Array:
        gain = y * (slope - kappa * y)
        inside = gain > 0.0
        return np.where(inside, _log_normal(edge - y) + _log_gain(np.where(inside, gain, 1.0)), -np.inf)

    return _log_integral(log_integrand, bulk=edge, width=1.0, steepness=slope, length=length)


def _discriminant(
    shift: float, kappa: float, constant: float, epsilon: float, log_ratio: float, dimension: int
) -> float:
    """shift^2 - 4 kappa constant = (2 kappa r)^2 for the ball's radius r, as a sum of positive terms."""
    if constant <= 0.0:
        return shift * shift - 4.0 * kappa * constant
    return shift * shift * (1.0 - 2.0 * kappa) + 4.0 * kappa * (dimension * log_ratio + epsilon)


def _inner_root(shift: float, kappa: float, constant: float, slope: float) -> float:
    """The smaller root of kappa z^2 - shift z + constant, without cancellation as kappa -> 0."""
    return 2.0 * constant / (shift + slope)


def _log_normal(z: Array) -> Array:
    return -0.5 * z * z - _LOG_SQRT_2PI


def _log_gain(loss: Array) -> Array:
    """ln(1 - e^-loss) for loss > 0."""
    return np.asarray(np.log(-np.expm1(-loss)))


def _log_integral(
    log_integrand: Callable[[Array], Array],
    *,
    bulk: float,
    width: float,
    steepness: float,
    length: float = math.inf,
) -> float:
    """ln of the integral over 0 < y < length of a function with one peak.

    A scan finds the peak and the range that matters; composite Gauss-Legendre integrates over it. `bulk` and
    `width` say where the underlying density sits, for the case that the peak is far inside; `steepness` is
    the rate at which 1 - e^-loss leaves 0 at y = 0.
    """
    spread = np.concatenate((width * _scan_steps(), bulk + width * np.linspace(-16.0, 16.0, 129)))
    if math.isfinite(length):
        spread = np.concatenate((spread, length * np.linspace(0.0, 1.0, 65)[1:-1]))
    points = np.unique(spread[(spread > 0.0) & (spread < length)])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        values = log_integrand(points)
    if np.isnan(values).any():
        return 0.0  # fail closed: arguments beyond double precision, and H <= 1 always
    peak = float(values.max())
    if peak < -1e4:
        return -math.inf  # no positive float is that small; the caller rounds up
    kept = np.flatnonzero(values > peak - _CUT)
    low = float(points[kept[0] - 1]) if kept[0] > 0 else 0.0
    last = int(kept[-1])
    high = float(points[last + 1]) if last + 1 < points.size else min(length, 2.0 * float(points[last]))

    layers = (high - low) * steepness  # the range in units of the boundary layer at y = 0
    fractions, weights = _panels(min(40, max(0, math.ceil(math.log2(max(layers, 1.0) / 16.0)))))
    y = low + (high - low) * fractions
    values = log_integrand(y)
    top = float(values.max())
    return top + math.log(float(np.dot(weights, np.exp(values - top)))) + math.log(high - low)


@lru_cache(maxsize=1)
def _scan_steps() -> Array:
    steps = np.geomspace(1e-9, 1e3, 240)
    steps.setflags(write=False)
    return steps


@lru_cache(maxsize=64)
def _panels(halvings: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1]: eight equal panels, the first one halved towards 0 so many times.

    The equal panels resolve a peak inside, the halved ones the boundary layer of 1 - e^-loss at 0.
    """
    x, w = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    edges = np.concatenate(([0.0], 0.125 * 0.5 ** np.arange(halvings, 0, -1), np.linspace(0.125, 1.0, 8)))
    half = 0.5 * np.diff(edges)
    nodes = (half[:, None] * (x + 1.0) + edges[:-1, None]).ravel()
    weights = (half[:, None] * w).ravel()
    nodes.setflags(write=False)
    weights.setflags(write=False)
    return nodes, weights


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
