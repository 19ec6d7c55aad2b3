"""The paper's baseline as printed: the winsorized mean estimator of Levy et al. (2021), Algorithms 1 to 3.

For research, in floats, with its expectation and variance in closed form. To release, use mechanism "winsorized", whose
tighter budget split and composition reduce the error severalfold for more than one column.

Users of unequal size have weight m_i / N (Zhao et al. 2024, App. "Comment on Two-stage Approach"), and the sensitivity
is m_max (b - a) / N. The paper prints m_max (b - a) / n, which is a misprint: with m_i = 1 it would not divide by n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard

Floats = npt.NDArray[np.float64]

_NEGLIGIBLE = 1e-18  # bins with a smaller probability are left out; their error is at most the range squared


@dataclass(frozen=True, kw_only=True)
class TwoStageMoments:
    """The expectation and the variance of each column of the estimate, given the data."""

    expectation: Floats
    variance: Floats


def two_stage_moments(
    means: Floats,
    counts: npt.NDArray[np.int64] | None = None,
    *,
    threshold: float,
    radius: float,
    epsilon: float,
    delta: float,
    signs: Floats | None = None,
) -> TwoStageMoments:
    """The expectation and variance of the two-stage estimate over its own randomness, rotation apart.

    Args:
        means: one row per user, shape (n, d).
        counts: records per user; None gives all users the same weight.
        threshold: tau, for several columns that of a rotated coordinate. The paper tunes it.
        radius: B; the mean of every column is in [-B, B].
        epsilon, delta: the privacy budget; delta is used only for more than one column.
        signs: of the rotation, one for each of the padded columns.

    >>> means = np.linspace(-1.0, 1.0, 101)[:, None] + 5.0
    >>> found = two_stage_moments(means, threshold=1.0, radius=8.0, epsilon=1.0, delta=0.0)
    >>> bool(abs(found.expectation[0] - 5.0) < 1e-6), round(float(found.variance[0]) * (101 / 8) ** 2, 3)
    (True, 2.0)
    """
    users, columns = means.shape
    shares = np.full(users, 1.0 / users) if counts is None else counts / counts.sum()
    heaviest = float(shares.max())
    if columns == 1:
        center, variance = _one_coordinate(means[:, 0], shares, heaviest, threshold, radius, epsilon)
        return TwoStageMoments(expectation=np.array([center]), variance=np.array([variance]))
    padded = 1 << (columns - 1).bit_length()
    if signs is None:
        raise ValueError("several columns need the signs of a rotation")
    rotation = hadamard(padded) * signs / math.sqrt(padded)  # orthonormal: U = H D / sqrt(d)
    rotated = means @ rotation[:, :columns].T
    part = epsilon / math.sqrt(8.0 * padded * math.log(1.0 / delta))  # Algorithm 3
    reach = math.sqrt(padded) * radius
    found = [
        _one_coordinate(rotated[:, axis], shares, heaviest, threshold, reach, part) for axis in range(padded)
    ]
    centers, variances = (np.array(one) for one in zip(*found, strict=True))
    back = rotation.T[:columns]
    return TwoStageMoments(expectation=back @ centers, variance=back**2 @ variances)


def _one_coordinate(
    values: Floats, shares: Floats, heaviest: float, threshold: float, radius: float, epsilon: float
) -> tuple[float, float]:
    """Algorithms 1 and 2: expectation and variance over the selected bin and the noise."""
    bins = max(math.ceil(radius / threshold), 1)
    midpoints: Floats = (2.0 * np.arange(bins, dtype=np.float64) + 1.0 - bins) * threshold
    nearest = np.clip(np.floor((values + bins * threshold) / (2.0 * threshold)), 0, bins - 1).astype(np.int64)
    in_bin = np.bincount(nearest, minlength=bins)
    left = np.cumsum(in_bin) - in_bin
    costs = np.maximum(left, len(values) - left - in_bin)
    # Selection with epsilon / 2 and sensitivity 1: rate epsilon / 4.
    probabilities = np.exp(-epsilon / 4.0 * (costs - costs.min()))
    probabilities /= probabilities.sum()
    likely = np.flatnonzero(probabilities > _NEGLIGIBLE)
    centers = _clipped_means(values, shares, midpoints[likely], 2.0 * threshold)
    weights = probabilities[likely] / probabilities[likely].sum()
    center = float(weights @ centers)
    between = float(weights @ (centers - center) ** 2)
    noise = 4.0 * threshold * heaviest / (epsilon / 2.0)  # the scale: 8 tau / (n epsilon) for equal users
    return center, between + 2.0 * noise**2


def _clipped_means(values: Floats, shares: Floats, midpoints: Floats, reach: float) -> Floats:
    """The weighted mean of values clipped to [midpoint - reach, midpoint + reach], for every midpoint."""
    order = np.argsort(values)
    ordered, weights = values[order], shares[order]
    mass = np.concatenate([[0.0], np.cumsum(weights)])
    moment = np.concatenate([[0.0], np.cumsum(weights * ordered)])
    low, high = midpoints - reach, midpoints + reach
    below, above = np.searchsorted(ordered, low), np.searchsorted(ordered, high)
    inside = moment[above] - moment[below]
    found: Floats = low * mass[below] + inside + high * (mass[-1] - mass[above])
    return found
