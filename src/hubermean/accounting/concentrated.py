"""Concentrated differential privacy (zCDP): conversion from (epsilon, delta), and Gaussian noise.

A mechanism is rho-zCDP if the Renyi divergence of order alpha between its output distributions on neighbors is at
most rho * alpha for every alpha > 1 (Bun & Steinke 2016). The values of rho add up under (adaptive) composition.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from hubermean.accounting.arguments import check_positive, check_positive_integer, check_probability

# Relative to the terms of the formula, whose float error is a few units in 2^-53.
_SLACK = 1e-12


def largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho, rounded down, such that rho-zCDP implies (epsilon, delta)-DP by the conversion below.

    **Formal guarantees**
    - For every alpha > 1, rho-zCDP gives (epsilon, delta)-DP with ln delta = (alpha - 1)(alpha rho - epsilon)
      - ln(alpha - 1) + alpha ln(1 - 1/alpha) (Canonne, Kamath & Steinke 2020, Prop. 12). That equation is solved for
        rho.
      Any alpha is valid, so the search over alpha affects accuracy only.
    - 0.0 if no alpha gives a positive rho.

    >>> round(largest_rho(1.0, 1e-5), 4)
    0.0306
    """
    return _best_order(check_positive("epsilon", epsilon), check_probability("delta", delta))[0]


def epsilon_of_part(epsilon: float, delta: float, part: Fraction) -> Fraction:
    """Return what a rho-zCDP budget of several steps has used of epsilon when it ended after steps of rho = `part`.

    **Formal guarantees**
    - With alpha the order that `largest_rho` uses for its R, the bound epsilon - alpha (R - part) holds for all ends
      of one release together, each with its own part, for delta as a whole (proofs/ledger.md, Lemma 7). The delta is
      used in full.
    - Never more than epsilon; epsilon - alpha R, which the conversion costs, is never saved.
    """
    rho, order = _best_order(check_positive("epsilon", epsilon), check_probability("delta", delta))
    saved = Fraction(order) * max(Fraction(rho) - part, Fraction(0))
    return max(Fraction(epsilon) - saved, Fraction(0))


@lru_cache(maxsize=1024)
def _best_order(eps: float, target: float) -> tuple[float, float]:
    """The largest rho, 0.0 if there is none, and the order alpha of the conversion that gives it."""

    def rho_at(log_order: float) -> float:
        excess = math.exp(log_order)  # alpha - 1
        order = 1.0 + excess
        # alpha ln(1 - 1/alpha) = alpha (ln(alpha - 1) - ln alpha)
        terms = (math.log(target), log_order, order * math.log1p(1.0 / excess))
        size = eps + sum(map(abs, terms)) / excess
        return (eps + sum(terms) / excess - _SLACK * size) / order

    # rho_at has a single peak, found by golden sections. Every point is safe.
    low, high = -40.0, 40.0
    best = max((low + (high - low) * step / 160 for step in range(161)), key=rho_at)
    low, high = best - 0.5, best + 0.5
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if rho_at(left) > rho_at(right) else (left, high)
    rho, log_order = max((rho_at(one), one) for one in ((low + high) / 2.0, best))
    return max(rho, 0.0), 1.0 + math.exp(log_order)


def concentrated_sigma(rho: float, *, squared_sensitivity: int) -> float:
    """Return the smallest float sigma, up to rounding, for which discrete Gaussian noise is rho-zCDP.

    `squared_sensitivity` bounds the squared Euclidean distance between the integer answers on neighbors.

    **Formal guarantees**
    - squared_sensitivity / (2 sigma^2) <= rho in exact arithmetic, which is rho-zCDP in any number of coordinates
      (Canonne, Kamath & Steinke 2020, Thm. 14).
    """
    exact = Fraction(check_positive_integer("squared_sensitivity", squared_sensitivity)) / (
        2 * Fraction(check_positive("rho", rho))
    )
    sigma = math.sqrt(exact)
    while Fraction(sigma) ** 2 < exact:
        sigma = math.nextafter(sigma, math.inf)
    return sigma
