"""Rows of results: mean squared errors with their standard errors, and the CSV file of a panel."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hubermean_experiments.figures.records import Floats

_NEARLY_ALWAYS = 0.999  # share of data sets released


@dataclass(frozen=True, kw_only=True)
class MeanEstimate:
    """A mean and its standard error."""

    value: float
    error: float

    @property
    def relative(self) -> float:
        return self.error / self.value if self.value > 0.0 else math.inf


def mean_squared_error(
    errors: Floats, probabilities: Floats, plain: Floats, non_private_variance: float
) -> MeanEstimate:
    """E[errors | release], with a control variate where possible.

    The control variate is the error of the non-private mean on the same data sets, whose expectation is known. That
    expectation is over all data sets, so it is used only where nearly all of them are released.
    """
    if np.count_nonzero(probabilities) < 2:
        return MeanEstimate(value=math.nan, error=math.nan)
    if float(probabilities.mean()) >= _NEARLY_ALWAYS:
        slope = np.cov(errors, plain)[0, 1] / plain.var(ddof=1)
        errors = errors - slope * (plain - non_private_variance)
    value = float(np.average(errors, weights=probabilities))
    # Standard error of a ratio of sums; with probabilities of 1 it is that of a mean.
    scatter = float(np.sum((probabilities * (errors - value)) ** 2)) * len(errors) / (len(errors) - 1)
    return MeanEstimate(value=value, error=math.sqrt(scatter) / float(probabilities.sum()))


def estimate_mean(errors: Sequence[float]) -> MeanEstimate:
    """The mean of squared errors, without a control variate."""
    values = np.array(errors)
    return MeanEstimate(value=float(values.mean()), error=float(values.std(ddof=1)) / math.sqrt(len(values)))


def format_estimate(found: MeanEstimate, *, digits: int = 3) -> str:
    """Format a number with its standard error, as briefly as possible."""
    if math.isnan(found.value):
        return "none"
    if abs(found.value) >= 1_000:
        return f"{found.value:,.0f}" + (f" ± {_rough(found.error)}" if found.error >= 1 else "")
    shown = f"{found.value:.{digits}g}" if abs(found.value) >= 1 or digits != 2 else f"{found.value:.2f}"
    return f"{shown} ± {found.error:.1g}" if found.error > 1e-6 * abs(found.value) else shown


def _rough(error: float) -> str:
    """One significant digit, in decimal notation."""
    return f"{float(f'{error:.1g}'):,.0f}"


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """The result of one method at one point in one setting; None where it cannot release or nothing is tuned.

    Attributes:
        x: records of each user, or gamma.
        mse: mean squared error, summed over columns; `mse_error` is its standard error.
        non_private: mean squared error of the mean over all records, by formula.
        released: share of data sets on which the method released.
        runs: number of data sets it was measured on.
        factor: the threshold chosen on separate data sets, in standard deviations of a user mean (of a record, for
            HLM in figure 2).
        share: for `propose-test-release`, the share of users within the threshold.
        same_draws_mse, same_draws_factor: the least error of the final candidates on the measured data sets, as
            the paper tunes, and its threshold.
    """

    panel: str
    setting: str
    users: int
    x: int
    method: str
    mse: float | None
    mse_error: float | None
    non_private: float
    released: float
    runs: int
    factor: float | None = None
    share: float | None = None
    same_draws_mse: float | None = None
    same_draws_factor: float | None = None

    @property
    def ratio(self) -> float | None:
        """The error as a multiple of the non-private error."""
        return None if self.mse is None else self.mse / self.non_private

    @property
    def ratio_error(self) -> float | None:
        return None if self.mse_error is None else self.mse_error / self.non_private


def rows_to_csv(rows: Sequence[ResultRow]) -> str:
    """The CSV file of a panel, with nine digits, which do not depend on the order of summation."""
    names = [one.name for one in fields(ResultRow)]
    names[names.index("non_private") : names.index("non_private")] = ["ratio", "ratio_error"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else value
