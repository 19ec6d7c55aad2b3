"""The best that fixed bounds could do if they were chosen with the data in sight, at no cost.

The whole epsilon goes into Laplace noise around the plain mean. The error is sqrt(cut^2 + noise^2), where `cut` adds
the absolute values of what is cut off on either side, so that opposite cuts do not cancel.
"""

from __future__ import annotations

import math

import numpy as np

from realdata.tables import Floats, UserSums

_STEPS, _PER_OCTAVE = 60, 4


def best_error(table: UserSums, per: str, epsilon: float, *, neighbors: str = "add-remove") -> float:
    """The smallest error over a grid of bounds: on a user's influence or, per record, on records and values."""
    weights, means = table.weights(per), table.means
    centered = means - table.plain_mean(per)
    bounded = best_for_influence(
        weights * centered, float(weights.sum()), epsilon, two_sided=neighbors != "add-remove"
    )
    if per == "user":
        return bounded
    return min(bounded, _best_for_capped(weights, centered, epsilon, two_sided=neighbors != "add-remove"))


def best_for_influence(pulls: Floats, weight: float, epsilon: float, *, two_sided: bool = False) -> float:
    """The smallest error of sum(clip(pulls, -low, high)) / weight over a grid of both bounds.

    Args:
        pulls: what each user adds to the sum around the plain mean.
        weight: what the sum is divided by, without noise.
        epsilon: of the Laplace noise.
        two_sided: one user is replaced (noise for low + high), not added or removed (for the larger of both).
    """
    bounds = _grid(float(np.abs(pulls).max()))
    cut_above, cut_below = _beyond(pulls, bounds), _beyond(-pulls, bounds)
    cut = cut_above[:, None] + cut_below[None, :]
    sensitivity = (np.add if two_sided else np.maximum).outer(bounds, bounds)
    return float(np.sqrt(cut**2 + 2.0 * (sensitivity / epsilon) ** 2).min() / weight)


def _best_for_capped(weights: Floats, centered: Floats, epsilon: float, *, two_sided: bool) -> float:
    """The same for a cap on the records of a user together with bounds on user means."""
    pulls, best = weights * centered, math.inf
    bounds = _grid(float(np.abs(centered).max()))
    sensitivity = (np.add if two_sided else np.maximum).outer(bounds, bounds)
    largest = float(weights.max())
    caps = np.unique(np.ceil(largest * 2.0 ** (-np.arange(40) / _PER_OCTAVE)))
    for cap in caps:
        capped = np.minimum(weights, cap)
        # What the bounds keep of a user beyond them is capped * bound; all else of its pull is cut.
        cut_above = _cut_with_cap(pulls, centered, capped, bounds)
        cut_below = _cut_with_cap(-pulls, -centered, capped, bounds)
        cut = cut_above[:, None] + cut_below[None, :]
        errors = np.sqrt(cut**2 + 2.0 * (cap * sensitivity / epsilon) ** 2) / capped.sum()
        best = min(best, float(errors.min()))
    return best


def _grid(largest: float) -> Floats:
    return largest * 2.0 ** (-np.arange(_STEPS) / _PER_OCTAVE)


def _beyond(pulls: Floats, bounds: Floats) -> Floats:
    """What lies above each bound, added up."""
    return _cut_with_cap(pulls, pulls, np.ones_like(pulls), bounds)


def _cut_with_cap(pulls: Floats, centered: Floats, capped: Floats, bounds: Floats) -> Floats:
    """sum of pulls - capped * min(centered, bound) over users with centered > 0, for each bound."""
    order = np.argsort(centered)[::-1]
    order = order[centered[order] > 0]
    weights, values = capped[order], centered[order]
    beyond = np.searchsorted(-values, -bounds, side="left")
    weight_beyond = np.concatenate([[0.0], np.cumsum(weights)])[beyond]
    kept_whole = np.concatenate([np.cumsum((weights * values)[::-1])[::-1], [0.0]])[beyond]
    return np.maximum(pulls[order].sum() - kept_whole - bounds * weight_beyond, 0.0)
