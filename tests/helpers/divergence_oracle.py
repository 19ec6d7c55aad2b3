"""An independent oracle for the Gaussian calibration: probabilities of balls in 70-digit arithmetic.

H = P(A) - e^eps Q(A), A the ball {ln dP/dQ > eps} (or its outside), each probability an integral of a normal
distribution function along the shift against a chi density across it. The library instead integrates a
positive function of the distance from the ball's center in double precision; the two share no formula.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import mpmath as mp

DIGITS = 70


@lru_cache(maxsize=1)
def _legendre(count: int = 36) -> list[tuple[mp.mpf, mp.mpf]]:
    """Gauss-Legendre nodes and weights by Newton's method on the recurrence."""
    nodes = []
    for i in range(1, count + 1):
        x = mp.cos(mp.pi * (i - mp.mpf(1) / 4) / (count + mp.mpf(1) / 2))
        for _ in range(12):
            p0, p1 = mp.mpf(1), x
            for j in range(2, count + 1):
                p0, p1 = p1, ((2 * j - 1) * x * p1 - (j - 1) * p0) / j
            derivative = count * (x * p1 - p0) / (x * x - 1)
            x -= p1 / derivative
        nodes.append((x, 2 / ((1 - x * x) * derivative**2)))
    return nodes


def _normal(x: mp.mpf) -> mp.mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def outside_ball(center: mp.mpf, radius: mp.mpf, scale: mp.mpf, dimension: int) -> mp.mpf:
    """P(|X - center e_1| > radius) for X ~ N(0, scale^2 I)."""
    c, r = abs(center) / scale, radius / scale
    if dimension == 1:
        return _normal(c - r) + _normal(-c - r)
    n = mp.mpf(dimension - 1)
    log_constant = (1 - n / 2) * mp.log(2) - mp.loggamma(n / 2)

    def chi(v: mp.mpf) -> mp.mpf:
        return mp.exp(log_constant + (n - 1) * mp.log(v) - v * v / 2)

    # Across the shift: v = r sin(angle), the ball's chord has half-length r cos(angle).
    middle = mp.sqrt(n)
    cuts = [middle + step for step in (-14, -10, -7, -5, -3, -1.5, 0, 1.5, 3, 5, 7, 10, 14)]
    inner = [mp.mpf(0)] + [v for v in cuts if 0 < v < r] + ([r] if r < middle + 14 else [])
    angles = [mp.asin(v / r) for v in inner]
    total = mp.mpf(0)
    for a, b in pairwise(angles):
        pieces = 2
        for i in range(pieces):
            low, high = a + (b - a) * i / pieces, a + (b - a) * (i + 1) / pieces
            half, center_angle = (high - low) / 2, (high + low) / 2
            for x, weight in _legendre():
                angle = center_angle + half * x
                chord = r * mp.cos(angle)
                chances = _normal(c - chord) + _normal(-c - chord)
                total += half * weight * chord * chi(r * mp.sin(angle)) * chances
    if r < middle + 14:
        total += mp.gammainc(n / 2, r * r / 2, regularized=True)
    return total


def divergence(epsilon: float, shift: mp.mpf, log_ratio: mp.mpf, dimension: int) -> mp.mpf:
    """H_eps( N(0, I) || N(shift e_1, t^2 I) ), t = e^log_ratio of either sign."""
    with mp.workdps(DIGITS):
        eps, s, lam = mp.mpf(epsilon), mp.mpf(shift), mp.mpf(log_ratio)
        if lam == 0:
            return _normal(s / 2 - eps / s) - mp.exp(eps) * _normal(-s / 2 - eps / s)
        t = mp.exp(lam)
        spread = t * t - 1
        center = -s / spread
        square = t * t / spread * (2 * (dimension * lam - eps) + s * s / spread)
        if square <= 0:  # lam > 0 only: the loss never exceeds eps
            return mp.mpf(0)
        r = mp.sqrt(square)
        p = outside_ball(center, r, mp.mpf(1), dimension)
        q = outside_ball(center - s, r, t, dimension)
        if lam < 0:
            return +(p - mp.exp(eps) * q)
        return +((1 - p) - mp.exp(eps) * (1 - q))


def scale_pair(epsilon: float, alpha: float, log_ratio: float, dimension: int) -> mp.mpf:
    """The divergence of the calibration at one lambda: shift alpha * min(1, e^lambda)."""
    with mp.workdps(DIGITS):
        shift = mp.mpf(alpha) * min(mp.mpf(1), mp.exp(mp.mpf(log_ratio)))
        return divergence(epsilon, shift, mp.mpf(log_ratio), dimension)
