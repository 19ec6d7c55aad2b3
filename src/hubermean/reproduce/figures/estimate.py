"""Mean squared errors with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubermean.reproduce.figures.records import Floats

_PRACTICALLY_ALWAYS = 0.999  # of data sets released


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean and its standard error."""

    value: float
    error: float

    @property
    def relative(self) -> float:
        return self.error / self.value if self.value > 0.0 else math.inf


def mean_squared_error(errors: Floats, chances: Floats, plain: Floats, plain_variance: float) -> Estimate:
    """E[errors | release], with the luck of the draws taken out where it can be.

    The error of the plain mean on the same data sets has a known expectation; what the draws add to it tells, by
    regression, what they add to `errors`. That expectation is over all data sets, so this is done only where
    practically all are released.
    """
    if np.count_nonzero(chances) < 2:
        return Estimate(value=math.nan, error=math.nan)
    if float(chances.mean()) >= _PRACTICALLY_ALWAYS:
        slope = np.cov(errors, plain)[0, 1] / plain.var(ddof=1)
        errors = errors - slope * (plain - plain_variance)
    value = float(np.average(errors, weights=chances))
    # Of a ratio of sums; for chances of 1 this is the standard error of a mean.
    scatter = float(np.sum((chances * (errors - value)) ** 2)) * len(errors) / (len(errors) - 1)
    return Estimate(value=value, error=math.sqrt(scatter) / float(chances.sum()))


def plain_estimate(errors: Sequence[float]) -> Estimate:
    """The mean of squared errors as they are."""
    values = np.array(errors)
    return Estimate(value=float(values.mean()), error=float(values.std(ddof=1)) / math.sqrt(len(values)))


def words(found: Estimate, *, digits: int = 3) -> str:
    """A number with its standard error, as short as it may be."""
    if math.isnan(found.value):
        return "none"
    if abs(found.value) >= 1_000:
        return f"{found.value:,.0f}" + (f" ± {_rough(found.error)}" if found.error >= 1 else "")
    shown = f"{found.value:.{digits}g}" if abs(found.value) >= 1 or digits != 2 else f"{found.value:.2f}"
    return f"{shown} ± {found.error:.1g}" if found.error > 1e-6 * abs(found.value) else shown


def _rough(error: float) -> str:
    """One digit, written out."""
    return f"{float(f'{error:.1g}'):,.0f}"
