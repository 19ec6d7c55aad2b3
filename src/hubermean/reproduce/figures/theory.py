"""The error bounds of the paper's theorems, up to their constants: what they say about growth, not about size."""

from __future__ import annotations

import math

from hubermean.reproduce.constants import (
    bounded_users_suffice,
    heavy_tail_users_suffice,
    imbalanced_users_suffice,
    printed_constants,
)
from hubermean.reproduce.figures.panels import DELTA, EPSILON, RECORDS_PER_USER, Panel


def bound(panel: Panel, users: int, x: int, *, moment_order: float) -> float:
    """The bound that the panel's theorem puts on the mean squared error, with every constant and R set to 1.

    >>> from hubermean.reproduce.figures.panels import PANELS
    >>> first, last = (bound(PANELS["1a"], 10_000, m, moment_order=math.inf) for m in (1, 1000))
    >>> round(math.log(last / first) / math.log(1000), 3)
    -0.999
    """
    match panel.theorem:
        case "mse":
            return bounded(users, x, panel.columns)
        case "heavytail":
            return heavy_tailed(users, x, panel.columns, moment_order)
        case "mseunb":
            return imbalanced(users, RECORDS_PER_USER * users, x, panel.columns)


def over_the_floor(panel: Panel, users: int, x: int, *, moment_order: float) -> float:
    """The bound over its first term, the non-private error: how many times that it allows, with constants of 1."""
    records = users * (x if panel.axis == "records" else RECORDS_PER_USER)
    return records * bound(panel, users, x, moment_order=moment_order)


def enough_users(panel: Panel, users: int, x: int) -> bool:
    """Whether the theorem's condition on n can hold: with R_c = T, or T = 1; a larger radius asks for more users."""
    beta = printed_constants(EPSILON, DELTA, dimension=panel.columns).beta
    match panel.theorem:
        case "mse":
            return bounded_users_suffice(users, radius=1.0, threshold=1.0, beta=beta)
        case "heavytail":
            return heavy_tail_users_suffice(users, threshold=1.0, beta=beta)
        case "mseunb":
            records = RECORDS_PER_USER * users
            return imbalanced_users_suffice(users, total_records=records, gamma=x, beta=beta)


def bounded(n: int, m: int, d: int) -> float:
    """Zhao et al. (2024), Thm mse, eq. mse."""
    noise = d / (m * n**2 * EPSILON**2) * math.log(m * n * d) * math.log(1.0 / DELTA)
    return 1.0 / (m * n) + noise


def heavy_tailed(n: int, m: int, d: int, p: float) -> float:
    """Zhao et al. (2024), Thm heavytail, eq. msetail."""
    body = d * math.log(n * d) / (m * n**2 * EPSILON**2)
    tail = math.pow(d / (m**2 * n**2 * EPSILON**2), 1.0 - 1.0 / p) * math.log(n * d) ** 2
    return 1.0 / (m * n) + (body + tail) * math.log(1.0 / DELTA)


def imbalanced(n: int, total: int, gamma: float, d: int) -> float:
    """Zhao et al. (2024), Thm mseunb, eq. mseunb."""
    noise = d * gamma / (total * n * EPSILON**2) * math.log(total * n * d) ** 2 * math.log(1.0 / DELTA)
    return 1.0 / total + noise
