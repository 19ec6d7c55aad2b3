"""The paper's constants: noise (eq. param), thresholds of its theorems, and the numbers of users they require.

All of them depend on public numbers only. The paper's letters: R bounds the norm of a record, m is the number of
records per user, n the number of users, d the dimension, N the total number of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hubermean.accounting.arguments import check_positive, check_positive_integer, check_probability
from hubermean_experiments.paper.users import check_counts, effective_counts, resolve_gamma

SMALLEST_BOUNDED_CONSTANT = 16.0 * math.sqrt(2.0 / 3.0)
"""Theorems mse and mseunb require C_T above this value. It is the default here: the least noise they allow."""


@dataclass(frozen=True, kw_only=True)
class PrintedConstants:
    """Noise has standard deviation S/alpha for a beta-smooth sensitivity bound S (eq. param)."""

    alpha: float
    beta: float


def printed_constants(epsilon: float, delta: float, *, dimension: int) -> PrintedConstants:
    """The noise constants as printed: Zhao et al. (2024), eq. param.

    For d = 1 they do not give (epsilon, delta)-DP; for d > 1 they do, with much more noise than needed
    (docs/concepts/paper.md). `hubermean.accounting.gaussian_alpha` replaces them.

    >>> constants = printed_constants(1.0, 1e-5, dimension=1)
    >>> round(constants.alpha, 5), round(constants.beta, 5)
    (0.29472, 0.04343)
    >>> constants = printed_constants(1.0, 1e-5, dimension=3)
    >>> round(constants.alpha, 5), round(constants.beta, 5)
    (0.04048, 0.01644)
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_probability("delta", delta)
    dimension = check_positive_integer("dimension", dimension)
    if dimension == 1:
        log_term = math.log(1.0 / delta)
        return PrintedConstants(alpha=epsilon / math.sqrt(log_term), beta=epsilon / (2.0 * log_term))
    log_term = math.log(2.0 / delta)
    return PrintedConstants(
        alpha=epsilon / (5.0 * math.sqrt(2.0 * log_term)), beta=epsilon / (4.0 * (dimension + log_term))
    )


def bounded_threshold(
    *,
    bound: float,
    records: int,
    n_users: int,
    dimension: int = 1,
    constant: float = SMALLEST_BOUNDED_CONSTANT,
) -> float:
    """T for records of norm at most `bound`: Zhao et al. (2024), Thm mse.

    As printed, with the logarithm itself. Its proof needs only the square root of the logarithm, and the
    error bound of eq. mse follows only with the square root.

    >>> round(bounded_threshold(bound=1.0, records=100, n_users=1000), 3)
    33.994
    """
    m, n = check_positive_integer("records", records), check_positive_integer("n_users", n_users)
    d = check_positive_integer("dimension", dimension)
    logarithm = math.log(m * n**3 * (d + 1))
    return check_positive("constant", constant) * check_positive("bound", bound) * logarithm / math.sqrt(m)


def heavy_tail_threshold(
    *,
    moment_order: float,
    moment: float,
    records: int,
    n_users: int,
    epsilon: float,
    dimension: int = 1,
    constant: float | None = None,
) -> float:
    """T for records with a bounded p-th moment: Zhao et al. (2024), Thm heavytail, eq. Ttail.

    Args:
        moment_order, moment: p (at least 2) and M_p.
        constant: C_T, above 8 M_p^(1/p), which is the default.

    >>> round(heavy_tail_threshold(moment_order=4, moment=1.0, records=1, n_users=1000, epsilon=1.0), 2)
    343.38
    """
    p, m_p = check_positive("moment_order", moment_order), check_positive("moment", moment)
    m, n = check_positive_integer("records", records), check_positive_integer("n_users", n_users)
    d = check_positive_integer("dimension", dimension)
    nu = math.sqrt(d) / (n * check_positive("epsilon", epsilon))
    logarithm = math.log(3.0 * (d + 1) / nu)
    body = math.sqrt(logarithm / m)
    tail = 2.0 * (3.0 * m) ** (1.0 / p - 1.0) * nu ** (-1.0 / p) * logarithm
    scale = 8.0 * m_p ** (1.0 / p) if constant is None else check_positive("constant", constant)
    return float(scale * max(body, tail))


def imbalanced_scale(
    *,
    bound: float,
    total_records: int,
    n_users: int,
    dimension: int = 1,
    constant: float = SMALLEST_BOUNDED_CONSTANT,
) -> float:
    """A = C_T R sqrt(ln(N n^2 (d+1))), so that T_i = A / sqrt(min(m_i, m_c)): Thm mseunb, eq. Ti.

    This is what `paper_literal` takes as `threshold` when counts are given.

    >>> round(imbalanced_scale(bound=1.0, total_records=10_000, n_users=100), 3)
    57.115
    """
    total, n = (
        check_positive_integer("total_records", total_records),
        check_positive_integer("n_users", n_users),
    )
    d = check_positive_integer("dimension", dimension)
    return (
        check_positive("constant", constant)
        * check_positive("bound", bound)
        * math.sqrt(math.log(total * n**2 * (d + 1)))
    )


def imbalanced_thresholds(
    counts: npt.ArrayLike,
    *,
    bound: float,
    dimension: int = 1,
    gamma: float | Fraction | None = None,
    constant: float = SMALLEST_BOUNDED_CONSTANT,
) -> npt.NDArray[np.float64]:
    """T_i of every user, in the order of `counts`: Zhao et al. (2024), Thm mseunb, eq. Ti."""
    m = check_counts(counts)
    scale = imbalanced_scale(
        bound=bound,
        total_records=int(m.sum()),
        n_users=len(m),
        dimension=dimension,
        constant=constant,
    )
    thresholds: npt.NDArray[np.float64] = scale / np.sqrt(effective_counts(m, resolve_gamma(m, gamma)))
    return thresholds


def bounded_users_suffice(n_users: int, *, radius: float, threshold: float, beta: float) -> bool:
    """Whether n > (4/beta) ln(n R_c / T): the condition of Thm mse.

    >>> bounded_users_suffice(1000, radius=10.0, threshold=1.0, beta=0.0434)
    True
    """
    return n_users > 4.0 / check_positive("beta", beta) * math.log(n_users * radius / threshold)


def heavy_tail_users_suffice(n_users: int, *, threshold: float, beta: float) -> bool:
    """Whether n > 8 (1 + (1/beta) ln(n / (2T))): the condition of Thm heavytail, which implies R_c = 1."""
    return n_users > 8.0 * (1.0 + math.log(n_users / (2.0 * threshold)) / check_positive("beta", beta))


def imbalanced_users_suffice(n_users: int, *, total_records: int, gamma: float, beta: float) -> bool:
    """Whether n > 8 gamma (1 + (1/(2 beta)) ln(N n)): the condition of Thm mseunb."""
    return n_users > 8.0 * gamma * (
        1.0 + math.log(total_records * n_users) / (2.0 * check_positive("beta", beta))
    )
