"""Distances to the mean and numbers of outliers: Z, Z_i, h and Delta (Zhao et al. 2024, sections 5 and 6).

Delta(D) is the least number of users to replace before the data is concentrated (eq. delta, deltaunb). The paper gives
no algorithm for it. There are three here:

- `outliers_exact`: exact, for one column and equal users;
- `outliers_bound`: an upper bound that changes by at most 1 when one user changes, as the proof of Thm dp needs
  (proofs/paper-literal.md). It can be far above Delta, and so can the noise;
- `witnessed_outliers`: close to Delta and never below, from a data set D* that shows how few users need to change. It
  is not Lipschitz, so no proof covers the noise that follows from it. It measures the error of the paper as printed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hubermean.huber.solver import huber_location
from hubermean_experiments.paper.users import Floats, Integers, PaperUsers

# Radii are multiplied by this, so that inequalities are strict despite rounding (Lemma 3).
SHRINK = 1.0 - 1e-6
# Allowance per step for the error of two computed centers and distances, in thresholds (Lemma 4).
ALLOWANCE = 1e-9


def distances_to_mean(points: Floats, weights: Floats) -> Floats:
    """Z_i(D) = |ybar - y_i| with ybar the weighted mean (section 6); their maximum is Z(D) of eq. zdf.

    `points` is (n, d); the result is (n,).
    """
    # Shift first: with users far from 0, the mean would lose digits that the distances need.
    shifted = points - points[0]
    offsets = shifted - weights @ shifted
    distances: Floats = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
    return distances


def h(users: PaperUsers, distances: Floats, k: int) -> float:
    """h(D, k), eq. h: the influence of the k heaviest users, if replaced, relative to the others.

    As printed it includes only the users with the largest m_i. The proof of Lemma unbcommon needs the largest
    value over all sets of k users, which can be larger (docs/concepts/paper.md, item 3).
    """
    split = users.n_users - k
    heavy, light = users.lightest_first[split:], users.lightest_first[:split]
    influence = float(np.sum(users.weights[heavy] * (users.thresholds[heavy] + distances[heavy])))
    return influence / float(np.sum(users.weights[light]))


def outliers_exact(points: Floats, threshold: float) -> int:
    """Delta(D) of eq. delta for one column and equal users, exactly, in O(n log n).

    Lemma 1: r users can be kept if and only if r of them, next to each other in sorted order, with least a,
    greatest b and sum s, have b - a < T, 2 (r b - s) < n T and 2 (s - r a) < n T. Lemma 2: if r can be kept, so
    can r - 1; hence a bisection over r. Comparisons are exact for the float64 points.
    """
    blocks = _Blocks(np.sort(points[:, 0]), threshold)
    kept, too_many = 1, len(points) + 1
    while too_many - kept > 1:
        middle = (kept + too_many) // 2
        if blocks.can_keep(middle):
            kept = middle
        else:
            too_many = middle
    return len(points) - kept


class _Blocks:
    """Runs of sorted points, tested in floats and, where rounding could matter, in integers."""

    def __init__(self, ordered: Floats, threshold: float) -> None:
        self.ordered = ordered
        self.threshold = threshold
        self.n = len(ordered)
        self.centered = ordered - ordered[self.n // 2]
        self.sums = np.concatenate(([0.0], np.cumsum(self.centered)))
        # The rounding error of a prefix sum is below n 2^-53 sum|z|; four of them enter, doubled, with a margin.
        self.tolerance = 16.0 * (self.n + 1) * 2.0**-53 * (float(np.sum(np.abs(self.centered))) + threshold)
        self._exact: tuple[list[int], list[int], int] | None = None

    def can_keep(self, r: int) -> bool:
        """Whether some r adjacent points in sorted order satisfy the three inequalities of Lemma 1."""
        first, last = self.centered[: self.n - r + 1], self.centered[r - 1 :]
        # Rounding is monotone: a rounded difference below T means an exact one below T, and above T above.
        lengths = self.ordered[r - 1 :] - self.ordered[: self.n - r + 1]
        total = self.sums[r:] - self.sums[: self.n - r + 1]
        worst = 2.0 * np.maximum(r * last - total, total - r * first) - self.n * self.threshold
        if np.any((lengths < self.threshold) & (worst < -self.tolerance)):
            return True
        unclear = np.flatnonzero((lengths <= self.threshold) & (worst <= self.tolerance))
        return any(self._can_keep_exactly(int(start), r) for start in unclear)

    def _can_keep_exactly(self, start: int, r: int) -> bool:
        if self._exact is None:
            self._exact = self._integers()
        values, sums, threshold = self._exact
        first, last, total = values[start], values[start + r - 1], sums[start + r] - sums[start]
        limit = self.n * threshold
        return last - first < threshold and 2 * (r * last - total) < limit and 2 * (total - r * first) < limit

    def _integers(self) -> tuple[list[int], list[int], int]:
        """Points, their prefix sums and the threshold as integers on one scale."""
        ratios = [value.as_integer_ratio() for value in [*self.ordered.tolist(), self.threshold]]
        scale = max(denominator for _, denominator in ratios)  # all are powers of two
        *values, threshold = [numerator * (scale // denominator) for numerator, denominator in ratios]
        sums = [0]
        for value in values:
            sums.append(sums[-1] + value)
        return values, sums, threshold


def outliers_bound(points: Floats, *, weights: Floats, radii: Floats, horizon: int) -> int:
    """An upper bound on min(distance, horizon), 1-Lipschitz when one user changes; any dimension.

    `distance` is the least number of users to replace until every user is nearer than its radius to the
    weighted mean. Values of `horizon` or more mean the same to Definitions G and Gunb: case (b) is void.

    Let c be the Huber location with thresholds slightly below the radii, and the slack of a user its
    threshold minus its distance to c. If n - u users have slack s >= 0, the other u can be placed so that the weighted
    mean is c (Lemma 3). One changed user moves c by at most step_u = 2 max(w_i tau_i) / (weight of the lightest
    n - u - 1 users) while s >= step_u (Lemma 4). So the result is horizon - max(v - u) over u < v <= horizon with
    n - u users of slack at least step_u + ... + step_(v-1), or horizon if there are none (Theorem 5).

    >>> tight = np.zeros((100, 2))
    >>> equal = {"weights": np.full(100, 0.01), "radii": np.full(100, 0.5), "horizon": 25}
    >>> outliers_bound(tight, **equal)
    0
    >>> tight[:3] = 1e6
    >>> outliers_bound(tight, **equal)
    3
    """
    if horizon < 1 or not np.min(radii) > 0:
        return max(horizon, 0)
    tau = radii * SHRINK
    center = np.atleast_1d(huber_location(points, weights=weights, thresholds=tau).point)
    offsets = points - center
    slack = np.sort(tau - np.sqrt(np.einsum("ij,ij->i", offsets, offsets)))
    n = len(points)
    mass = np.cumsum(np.sort(weights))
    # mass[n - u - 2] is the weight of the lightest n - u - 1 users; horizon < n, so there is one.
    steps = 2.0 * np.max(weights * tau) / mass[n - horizon - 1 : n - 1][::-1] + ALLOWANCE * np.max(tau)
    reached = np.concatenate(([0.0], np.cumsum(steps)))
    kept = slack[:horizon]  # the largest s such that n - u users have slack s, for u = 0, 1, ...
    furthest = np.searchsorted(reached, reached[:horizon] + kept, side="right") - 1
    gain = np.where(kept >= 0, furthest - np.arange(horizon), 0)
    return horizon - int(np.clip(gain, 0, horizon).max())


def balanced_outliers(points: Floats, threshold: float) -> int:
    """Delta(D), eq. delta: exact for d = 1, the bound above for d > 1, with T/2 for every radius."""
    n, d = points.shape
    if d == 1:
        return outliers_exact(points, threshold)
    return outliers_bound(
        points, weights=np.full(n, 1.0 / n), radii=np.full(n, threshold / 2.0), horizon=n // 4
    )


def imbalanced_outliers(users: PaperUsers, points: Floats) -> int | None:
    """Delta(D), eq. deltaunb read with Z_i(D*): an upper bound, 1-Lipschitz; None where no Delta exists.

    Deviation: as printed the condition reads h(D*, k_0) < min_i(T_i - Z_i(D)); with D in place of D*, one
    outlier makes Delta undefined, and S is not smooth (docs/concepts/paper.md, item 3). Lemma unboutlier and its
    proof have D*.
    Lemma 6: with e = 2 sum of w_i T_i over the k_0 heaviest, Z_i(D*) < T_i - e for all i is enough.
    """
    heavy = users.heaviest
    products = users.weights * users.thresholds
    light_weight = float(np.sum(users.weights[_others(users.n_users, heavy)]))
    if float(np.sum(products[heavy])) >= light_weight * float(np.min(users.thresholds)):
        return None  # not even n equal users satisfy the condition
    allowance = 2.0 * float(np.sum(products[heavy]))
    return outliers_bound(
        points,
        weights=users.weights,
        radii=users.thresholds - allowance,
        horizon=users.k_0 or 0,
    )


def imbalanced_outliers_printed(users: PaperUsers, distances: Floats) -> int | None:
    """Delta(D), eq. deltaunb to the letter, with Z_i(D) on the right; None where no Delta exists.

    Then v = min_i(T_i - Z_i(D)) is fixed. 0 is exact, and so is None. Otherwise an upper bound: one light user
    is placed so that the mean stays at ybar(D), and the heavy users who add most to h are put there
    (Lemma 7). It is not Lipschitz, because the printed condition is not.
    """
    heavy = users.heaviest
    room = float(np.min(users.thresholds - distances))
    light_weight = float(np.sum(users.weights[_others(users.n_users, heavy)]))
    budget = room * light_weight - float(np.sum((users.weights * users.thresholds)[heavy]))
    if not budget > 0.0:
        return None
    if h(users, distances, users.k_0 or 0) < room:
        return 0
    kept = np.cumsum(np.sort((users.weights * distances)[heavy]))
    return 1 + len(heavy) - int(np.searchsorted(kept, budget, side="left"))


def _others(n: int, chosen: Integers) -> npt.NDArray[np.bool_]:
    mask = np.ones(n, dtype=np.bool_)
    mask[chosen] = False
    return mask


def witnessed_outliers(users: PaperUsers, points: Floats) -> int | None:
    """The least number of outermost users whose replacement concentrates the data; None where none does.

    The r users of least slack at the Huber location are replaced by users at c, the weighted mean of those who stay.
    Then c is the weighted mean of D* as well, and Z_i(D*) is |y_i - c| for those who stay, 0 for the others. The
    condition is checked for this D*. All values from the horizon (n/4 or k_0) on have the same effect in Definitions G
    and Gunb: case (b) is void.

    >>> users = PaperUsers.balanced(100, 1.0)
    >>> tight = np.zeros((100, 2))
    >>> witnessed_outliers(users, tight)
    0
    >>> tight[:3] = 1e6
    >>> witnessed_outliers(users, tight)
    3
    """
    if users.k_0 is not None and not _concentrated(users, np.zeros(users.n_users)):
        return None  # not even n equal users satisfy the condition
    horizon = users.n_users // 4 if users.k_0 is None else users.k_0
    center = huber_location(points, weights=users.weights, thresholds=users.thresholds).point
    slack = users.thresholds - _distances(points, np.atleast_1d(np.asarray(center)))
    outermost_first = np.argsort(slack, kind="stable")
    fewest, enough = -1, horizon
    while enough - fewest > 1:
        middle = (fewest + enough) // 2
        if _shows(users, points, outermost_first[middle:]):
            enough = middle
        else:
            fewest = middle
    return enough


def _shows(users: PaperUsers, points: Floats, kept: np.ndarray) -> bool:
    weights = users.weights[kept] / np.sum(users.weights[kept])
    distances = np.zeros(users.n_users)
    distances[kept] = _distances(points[kept], weights @ points[kept])
    return _concentrated(users, distances)


def _concentrated(users: PaperUsers, distances: Floats) -> bool:
    """Z(D*) < T/2 for equal users; h(D*, k_0) < min_i(T_i - Z_i(D*)) for unequal ones."""
    if users.k_0 is None:
        return bool(np.max(distances) < users.thresholds[0] / 2.0)
    return bool(h(users, distances, users.k_0) < np.min(users.thresholds - distances))


def _distances(points: Floats, center: Floats) -> Floats:
    offsets = points - center
    found: Floats = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
    return found
