"""The printed sensitivity: G(D, k) and S(D) (Zhao et al. 2024, Definitions G and Gunb, eq. S).

All of it depends on private data and is returned only in an `Unsafe` object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hubermean_experiments.paper.outliers import (
    balanced_outliers,
    distances_to_mean,
    h,
    imbalanced_outliers,
    imbalanced_outliers_printed,
    witnessed_outliers,
)
from hubermean_experiments.paper.users import Floats, PaperUsers

DeltaReading = Literal["lemma", "printed"]
OutlierCount = Literal["lipschitz", "witness"]


@dataclass(frozen=True, kw_only=True, repr=False)
class UnsafeSensitivity:
    """S(D), and G(D, k) for k = 0, 1, ... up to the first k of case (c), with their ingredients."""

    distances: Floats
    outliers: int | None
    by_distance: Floats
    smooth: float


def printed_sensitivity(
    users: PaperUsers,
    points: Floats,
    *,
    radius: float,
    beta: float,
    reading: DeltaReading,
    counted: OutlierCount,
) -> UnsafeSensitivity:
    """S(D) = max_k e^(-beta k) G(D, k), eq. S. From the first case (c) on G is 2 R_c, so k stops there.

    Definition G (a) has "k = 0" in its condition and Definition Gunb (a) does not; both are read with it.
    """
    distances = distances_to_mean(points, users.weights)
    outliers: int | None
    if users.k_0 is None:
        outliers, few = _few_outliers_balanced(users, points, counted)
        first = _no_outliers_balanced(users, distances)
    else:
        outliers, few = _few_outliers_imbalanced(users, points, distances, reading, counted)
        first = _no_outliers_imbalanced(users, distances)
    by_distance = np.append(few, 2.0 * radius)  # case (c)
    if first is not None:
        # (a) takes the place of (b) or (c) at k = 0; if that was (c), (c) follows at k = 1.
        by_distance = np.concatenate(([first], by_distance[1:] if len(few) else by_distance))
    discounts = np.exp(-beta * np.arange(len(by_distance)))
    return UnsafeSensitivity(
        distances=distances,
        outliers=outliers,
        by_distance=by_distance,
        smooth=float(np.max(discounts * by_distance)),
    )


def sensitivity_range(users: PaperUsers, radius: float) -> tuple[float, float]:
    """Public bounds on S(D): the least and the largest value of (a), (b) and (c).

    (a) and (b) are at least w_n T_n, n the heaviest user; at most twice the largest w_i T_i over the weight of the
    fewest users they include. Used only for the grid.
    """
    n, heaviest = users.n_users, int(users.lightest_first[-1])
    products = users.weights * users.thresholds
    uncounted = max(n // 4 if users.k_0 is None else users.k_0, 1)
    counted = users.lightest_first[: max(n - uncounted, 1)]
    largest = 2.0 * float(np.max(products)) / float(np.sum(users.weights[counted]))
    return min(float(products[heaviest]), 2.0 * radius), max(largest, 2.0 * radius)


def _no_outliers_balanced(users: PaperUsers, distances: Floats) -> float | None:
    """Definition G (a), Lemma common."""
    n, threshold, largest = users.n_users, float(users.thresholds[0]), float(np.max(distances))
    if largest < (1.0 - 2.0 / n) * threshold:
        return (threshold + largest) / (n - 1)
    return None


def _few_outliers_balanced(users: PaperUsers, points: Floats, counted: OutlierCount) -> tuple[int, Floats]:
    """Definition G (b), Lemma outlier: 2T / (n - k - Delta) for k <= n/4 - 1 - Delta."""
    n, threshold = users.n_users, float(users.thresholds[0])
    witnessed = None
    if counted == "witness" and points.shape[1] > 1:  # for one column Delta is known exactly
        witnessed = witnessed_outliers(users, points)
    outliers = balanced_outliers(points, threshold) if witnessed is None else witnessed
    k = np.arange(max(n // 4 - outliers, 0))
    return outliers, 2.0 * threshold / (n - k - outliers)


def _no_outliers_imbalanced(users: PaperUsers, distances: Floats) -> float | None:
    """Definition Gunb (a), Lemma unbcommon as stated, with h(D, 1); its proof needs more (docs/concepts/paper.md)."""
    if users.n_users < 2:
        return None
    influence = h(users, distances, 1)
    return influence if influence <= float(np.min(users.thresholds - distances)) else None


def _few_outliers_imbalanced(
    users: PaperUsers, points: Floats, distances: Floats, reading: DeltaReading, counted: OutlierCount
) -> tuple[int | None, Floats]:
    """Definition Gunb (b), Lemma unboutlier: for k <= k_0 - Delta - 1."""
    if reading == "printed":
        outliers = imbalanced_outliers_printed(users, distances)
    elif counted == "witness":
        outliers = witnessed_outliers(users, points)
    else:
        outliers = imbalanced_outliers(users, points)
    if outliers is None:
        return None, np.empty(0)
    k = np.arange(max((users.k_0 or 0) - outliers, 0))
    lightest = np.cumsum(users.weights[users.lightest_first])
    largest = 2.0 * float(np.max(users.weights * users.thresholds))
    few: Floats = largest / lightest[users.n_users - outliers - k - 2]
    return outliers, few
