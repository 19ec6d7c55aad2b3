"""How much worse than the non-private mean a release is, with the luck of the data sets taken out.

For a release r, the plain mean p of the same data and the true mean t, the excess is

    E (r - t)^2 - E (p - t)^2 = E [(r - p)^2 + 2 (r - p)(p - t)].

Both sides are averages over the same data sets; the right one never sees most of the plain mean's own scatter. Where a
release is the mean c of the clipped data plus noise that knows nothing of the data, it is also

    E (r - c)^2 + E [(c - t)^2 - (p - t)^2],

for then the noise has no part in any product. That saves the scatter of 2 (r - c)(c - t), which is all that would be
seen where the noise is a hundredth of the sampling error. (Dividing by a noisy count, or keeping the answer within the
bounds, changes this by far less than a standard error here.)
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from accuracy.draws import Floats

Z95 = 1.96


def excess_scores(released: Floats, *, truth: Floats, plain: Floats, clipped: Floats | None) -> Floats:
    """One number per data set, whose expectation is the excess; not a number where nothing was released.

    Args:
        released: shape (data sets, releases), not a number for a refusal.
        truth, plain: shape (data sets,).
        clipped: the same, for releases that are the clipped mean plus noise; else None.
    """
    center = plain if clipped is None else clipped
    gap = released - center[:, None]
    noise = _mean_of_released(gap**2)
    if clipped is None:
        return noise + 2.0 * _mean_of_released(gap) * (plain - truth)
    return noise + (clipped - truth) ** 2 - (plain - truth) ** 2


def _mean_of_released(values: Floats) -> Floats:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a data set without any release
        return np.asarray(np.nanmean(values, axis=1))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    value: float
    error: float

    @classmethod
    def of(cls, scores: Floats) -> Estimate:
        seen = scores[np.isfinite(scores)]
        if len(seen) < 2:
            return cls(value=math.nan, error=math.nan)
        return cls(value=float(seen.mean()), error=float(seen.std(ddof=1) / len(seen) ** 0.5))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Theirs against ours, on the same data sets.

    Attributes:
        ratio: their excess over ours; not a number unless both are above zero.
        low, high: its 95% interval; `high` is infinite where ours cannot be distinguished from zero.
        lead: by how many standard errors their excess is larger than ours. What both owe to the data cancels.
    """

    ratio: float
    low: float
    high: float
    lead: float

    @classmethod
    def of(cls, theirs: Floats, ours: Floats) -> Comparison:
        """Fieller's interval: all R for which the mean of theirs - R ours is within 1.96 standard errors of zero."""
        both = np.isfinite(theirs) & np.isfinite(ours)
        if both.sum() < 2:
            return cls(ratio=math.nan, low=math.nan, high=math.nan, lead=math.nan)
        a, b = theirs[both], ours[both]
        difference = Estimate.of(a - b)
        lead = difference.value / difference.error if difference.error > 0.0 else 0.0
        mean_a, mean_b = float(a.mean()), float(b.mean())
        if mean_a <= 0.0 or mean_b <= 0.0:
            return cls(ratio=math.nan, low=math.nan, high=math.nan, lead=lead)
        (var_a, cov), (_, var_b) = np.cov(a, b) / len(a) * Z95**2
        square, linear, constant = mean_b**2 - var_b, mean_a * mean_b - cov, mean_a**2 - var_a
        root = math.sqrt(max(linear**2 - square * constant, 0.0))
        if square > 0.0:
            low, high = (linear - root) / square, (linear + root) / square
        else:  # ours may be zero: only the lower end is known, and only if theirs is above zero
            low, high = ((linear - root) / square if constant > 0.0 else 0.0), math.inf
        return cls(ratio=mean_a / mean_b, low=max(low, 0.0), high=high, lead=lead)
