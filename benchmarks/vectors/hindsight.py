"""The error of the best threshold in hindsight, with the whole budget for noise and nothing to find.

Two ways to use a threshold are compared, and the better one counts: vectors clipped around zero and averaged, with
Gaussian noise, as in federated averaging; and the Huber center, as `propose-test-release` has it, with noise for its
sensitivity. Their thresholds are those of least error against the true mean, which nobody knows. Errors are roots of
expected squares: the noise is not sampled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubermean.accounting.gaussian import gaussian_alpha
from vectors.laws import Drawn, Vectors

_CLIPPED = np.exp2(np.arange(-16, 17) / 2.0)  # times the median distance
_HUBER = (0.8, 1.07, 1.2, 1.41, 2.0, 2.83, 4.0, 8.0)
_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class Hindsight:
    """The least error, the threshold that has it in median distances, and of which way to use it."""

    error: float
    threshold: float
    way: str


def find_best(drawn: Drawn, *, epsilon: float, delta: float) -> Hindsight:
    alpha = gaussian_alpha(epsilon, delta)
    return min((_best_clipped(drawn, alpha), _best_huber(drawn, alpha)), key=lambda found: found.error)


def _best_clipped(drawn: Drawn, alpha: float) -> Hindsight:
    n, d = drawn.users.shape
    distances = _distances(drawn.users, np.zeros(d))
    median = float(np.median(distances))
    found = []
    for factor in _CLIPPED.tolist():
        total, _ = _clipped_sum(drawn.users, np.zeros(d), factor * median, distances)
        noise = math.sqrt(d) * factor * median / (n * alpha)
        error = math.hypot(float(np.linalg.norm(total / n - drawn.target)), noise)
        found.append(Hindsight(error=error, threshold=factor, way="clipped around zero"))
    return min(found, key=lambda one: one.error)


def _best_huber(drawn: Drawn, alpha: float) -> Hindsight:
    n, d = drawn.users.shape
    start = np.zeros(d)
    for _ in range(_STEPS):  # a center that hostile users do not move
        distances = _distances(drawn.users, start)
        start = _step(drawn.users, start, 0.5 * float(np.median(distances)), distances)
    median = float(np.median(_distances(drawn.users, start)))
    found = []
    for factor in _HUBER:
        center = start
        for _ in range(_STEPS):
            center = _step(drawn.users, center, factor * median, _distances(drawn.users, center))
        within = float(np.mean(_distances(drawn.users, center) < factor * median))
        noise = math.sqrt(d) * factor * median / (max(within, 0.02) * n * alpha)
        error = math.hypot(float(np.linalg.norm(center - drawn.target)), noise)
        found.append(Hindsight(error=error, threshold=factor, way="Huber center"))
    return min(found, key=lambda one: one.error)


def _distances(users: Vectors, center: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.linalg.norm(users - center.astype(np.float32), axis=1).astype(np.float64)


def _clipped_sum(
    users: Vectors, center: NDArray[np.float64], threshold: float, distances: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    factors = np.minimum(1.0, threshold / np.maximum(distances, 1e-30))
    return (factors.astype(np.float32) @ users).astype(np.float64) - factors.sum() * center, float(
        factors.sum()
    )


def _step(
    users: Vectors, center: NDArray[np.float64], threshold: float, distances: NDArray[np.float64]
) -> NDArray[np.float64]:
    total, weight = _clipped_sum(users, center, threshold, distances)
    return center + total / weight
