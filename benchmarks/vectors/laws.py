"""Laws of honest vectors, and what hostile users send in their place.

Constants of `norm-clipping` were chosen on `TUNED_ON`; a benchmark judges them on all laws, and says which are which.
The mean of a law has a random direction: along an axis, or at zero, an answer might be right by luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Law = Callable[[Generator, int, NDArray[np.float64]], NDArray[np.float64]]


def _normal(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    return mean + rng.standard_normal((n, mean.size))


def _decaying(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variances fall as 1, 1/2, 1/3, ... over the columns."""
    scales = 1.0 / np.sqrt(1.0 + np.arange(mean.size))
    return mean + rng.standard_normal((n, mean.size)) * scales * math.sqrt(mean.size) / np.linalg.norm(scales)


def _log_normal_spread(
    sigma: float,
) -> Law:
    def draw(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        lengths = np.exp(sigma * rng.normal(size=(n, 1)) - sigma**2 / 2.0)
        return mean + lengths * rng.standard_normal((n, mean.size))

    return draw


def _log_normal_length(sigma: float) -> Law:
    """The whole vector of a user is scaled, its share of the mean included."""

    def draw(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(sigma * rng.normal(size=(n, 1)) - sigma**2 / 2.0) * _normal(rng, n, mean)

    return draw


def _student(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Student's t with three degrees of freedom: one factor per user, heavy tails in length."""
    return mean + rng.standard_normal((n, mean.size)) * np.sqrt(1.0 / rng.chisquare(3.0, size=(n, 1)))


def _layers(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Three layers of a network, each with a spread of its own: 0.1, 1 and 3."""
    return (
        mean
        + rng.standard_normal((n, mean.size)) * np.repeat([0.1, 1.0, 3.0], -(-mean.size // 3))[: mean.size]
    )


def _two_groups(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """A third of the users has another mean, of the same length."""
    other = rng.normal(size=mean.size)
    other *= np.linalg.norm(mean) / np.linalg.norm(other)
    return np.where(rng.random((n, 1)) < 1 / 3, other, mean) + rng.standard_normal((n, mean.size))


def _sparse(rng: Generator, n: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """A user has values in one column of five."""
    return (rng.random((n, mean.size)) < 0.2) * 5.0 * _normal(rng, n, mean)


LAWS: dict[str, Law] = {
    "normal": _normal,
    "decaying variances": _decaying,
    "log-normal(0.5) spread": _log_normal_spread(0.5),
    "log-normal(1) spread": _log_normal_spread(1.0),
    "log-normal(0.5) length": _log_normal_length(0.5),
    "log-normal(1) length": _log_normal_length(1.0),
    "Student(3) spread": _student,
    "three layers": _layers,
    "two groups": _two_groups,
    "one column of five": _sparse,
}

TUNED_ON = tuple(LAWS)[:6]


def _nobody(rng: Generator, users: Vectors, hostile: int) -> None:
    """Leave all users as they are."""


def _times(factor: float) -> Callable[[Generator, Vectors, int], None]:
    def attack(rng: Generator, users: Vectors, hostile: int) -> None:
        users[:hostile] *= np.float32(factor)

    return attack


def _one_direction(rng: Generator, users: Vectors, hostile: int) -> None:
    direction = rng.normal(size=users.shape[1])
    direction *= 100.0 * math.sqrt(users.shape[1]) / np.linalg.norm(direction)
    users[:hostile] = direction.astype(np.float32)


ATTACKS: dict[str, Callable[[Generator, Vectors, int], None]] = {
    "nobody hostile": _nobody,
    "5% times 100": _times(100.0),
    "5% times -100": _times(-100.0),
    "5% in one direction": _one_direction,
}
HOSTILE = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """Users, and the mean of the honest ones."""

    users: Vectors
    target: NDArray[np.float64]


def draw(rng: Generator, law: str, attack: str, *, users: int, columns: int, mean: float) -> Drawn:
    """Draw users whose mean is `mean` per column, in the root mean square."""
    direction = rng.normal(size=columns)
    direction *= mean * math.sqrt(columns) / np.linalg.norm(direction)
    made = LAWS[law](rng, users, direction).astype(np.float32)
    hostile = 0 if attack == "nobody hostile" else int(HOSTILE * users)
    target = made[hostile:].mean(axis=0, dtype=np.float64)
    ATTACKS[attack](rng, made, hostile)
    return Drawn(users=made, target=target)
