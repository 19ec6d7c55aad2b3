"""The Huber location by other means: rational and extended arithmetic; data with outliers. No test here."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np


def exact_minimizers(values, weights, thresholds) -> tuple[Fraction, Fraction]:
    """All minimizers [first, last] of a one-dimensional Huber loss, in rationals, corner by corner."""
    users = [
        (Fraction(y), Fraction(a), Fraction(t))
        for y, a, t in zip(
            map(float, values),
            map(float, np.broadcast_to(weights, len(values))),
            map(float, np.broadcast_to(thresholds, len(values))),
            strict=True,
        )
        if a > 0
    ]
    corners = sorted({y + side * t for y, _, t in users for side in (-1, 1)})
    gradients = [sum(a * min(max(s - y, -t), t) for y, a, t in users) for s in corners]
    after = next(k for k, g in enumerate(gradients) if g >= 0)
    before = max(k for k, g in enumerate(gradients) if g <= 0)

    def crossing(k: int) -> Fraction:
        width, rise = corners[k + 1] - corners[k], gradients[k + 1] - gradients[k]
        return corners[k] - gradients[k] * width / rise

    first = corners[after] if gradients[after] == 0 else crossing(after - 1)
    last = corners[before] if gradients[before] == 0 else crossing(before)
    return first, last


def exact_gradient(points, center, weights, thresholds) -> list[mpmath.mpf]:
    n, d = points.shape
    total = [mpmath.mpf(0)] * d
    for y, a, t in zip(points, np.broadcast_to(weights, n), np.broadcast_to(thresholds, n), strict=True):
        offset = [c - mpmath.mpf(float(v)) for c, v in zip(center, y, strict=True)]
        r = mpmath.sqrt(mpmath.fsum(x * x for x in offset))
        influence = mpmath.mpf(float(a)) * (mpmath.mpf(float(t)) / r if r > float(t) else 1)
        total = [g + influence * x for g, x in zip(total, offset, strict=True)]
    return total


def precise_minimizer(points, start, weights, thresholds) -> mpmath.matrix:
    """Newton in 60 digits from `start`; ends only at a gradient below 1e-40 of the total weight."""
    n, d = points.shape
    with mpmath.workdps(60):
        center = [mpmath.mpf(float(c)) for c in start]
        for _ in range(60):
            gradient = exact_gradient(points, center, weights, thresholds)
            if mpmath.norm(mpmath.matrix(gradient)) < mpmath.mpf(10) ** -40 * float(
                np.sum(np.broadcast_to(weights, n))
            ):
                return mpmath.matrix(center)
            hessian = mpmath.zeros(d, d)
            for y, a, t in zip(
                points, np.broadcast_to(weights, n), np.broadcast_to(thresholds, n), strict=True
            ):
                x = mpmath.matrix([c - mpmath.mpf(float(v)) for c, v in zip(center, y, strict=True)])
                r = mpmath.norm(x)
                if r <= float(t):
                    hessian += float(a) * mpmath.eye(d)
                else:
                    hessian += float(a) * float(t) / r * (mpmath.eye(d) - x * x.T / r**2)
            step = mpmath.lu_solve(hessian, mpmath.matrix(gradient))
            center = [c - s for c, s in zip(center, step, strict=True)]
    raise AssertionError("the high-precision oracle did not converge")


def distance(point, truth: mpmath.matrix) -> float:
    with mpmath.workdps(60):
        return float(mpmath.norm(mpmath.matrix([mpmath.mpf(float(c)) for c in point]) - truth))


def contaminated(seed: int, n: int, d: int, share: float, tail: str = "normal") -> np.ndarray:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d)) if tail == "normal" else rng.standard_cauchy(size=(n, d))
    outliers = int(share * n)
    points[:outliers] += 40.0 * rng.normal(size=(outliers, d)) + 15.0
    return points
