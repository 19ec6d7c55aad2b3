"""What releases of one table by group add up to: errors, coverage and widths, against the plain group means."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groups.tables import Floats, GroupTable

ENOUGH_USERS = 200
"""Aims are for groups with so many users or more."""
SIZES = (1, 20, 50, 200, 1_000)
"""Where classes of groups begin, in users."""
REFUSED_ERROR = 1.0
LEVEL, NORMAL_QUANTILE = 0.95, 1.959964


@dataclass(frozen=True, kw_only=True)
class Released:
    """Releases of one table, each array of shape (runs, groups); NaN for what was refused.

    Attributes:
        low, high: ends of 95% intervals; NaN where there are none.
    """

    values: Floats
    low: Floats
    high: Floats

    @classmethod
    def without_intervals(cls, values: Floats) -> Released:
        nowhere = np.full_like(values, np.nan)
        return cls(values=values, low=nowhere, high=nowhere)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One contestant on one table. Errors are relative to each plain group mean; a group of mean 0 has none.

    A refused group counts as an error of 100%, so that refusing what is hard does not make errors smaller.

    Attributes:
        setting: what was given to the contestant beside the budget.
        runs: releases of the whole table; 0 if the error was computed.
        rmse: the median over groups of at least 200 users of the RMSE of the group.
        rmse_all: the same over all groups.
        typical, typical_all: the median absolute error over groups and runs.
        coverage: of groups with at least 200 users and all runs, the share of intervals that hold the plain mean.
        worst_coverage: the smallest share of a group.
        width: median width of intervals over that of the plain group mean's own 95% interval.
        rmse_released: as `rmse`, of the releases that were not refused.
        refused, refused_large: share of groups without a value, of all and of those with at least 200 users.
        by_size: the median RMSE of groups of each class of `SIZES`; NaN where there are none.
        refused_by_size: share of groups without a value in each class.
    """

    table: str
    contestant: str
    setting: str
    per: str
    epsilon: float
    delta: float
    runs: int
    rmse: float
    rmse_all: float
    typical: float
    typical_all: float
    coverage: float = np.nan
    worst_coverage: float = np.nan
    width: float = np.nan
    rmse_released: float = np.nan
    refused: float = 0.0
    refused_large: float = 0.0
    by_size: Sequence[float] = ()
    refused_by_size: Sequence[float] = ()


def large_groups(table: GroupTable) -> np.ndarray:
    return table.users_per_group >= ENOUGH_USERS


def delta_text(delta: float) -> str:
    """As people write it: 1e-6, 0."""
    return f"{delta:g}".replace("e-0", "e-")


def by_size(table: GroupTable) -> list[np.ndarray]:
    """Which groups are in each class of `SIZES`."""
    ends = [*SIZES[1:], np.inf]
    sizes = table.users_per_group
    return [(first <= sizes) & (sizes < end) for first, end in zip(SIZES, ends, strict=True)]


def summarize(
    table: GroupTable,
    released: Released,
    *,
    contestant: str,
    setting: str,
    per: str,
    epsilon: float,
    delta: float,
) -> Measured:
    truth, large = table.plain_means(per), large_groups(table)
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # groups that were always refused
        errors = np.where(truth == 0.0, np.nan, (released.values - truth) / np.abs(truth))
        refused = np.isnan(released.values)
        rmse_released = np.sqrt(np.nanmean(errors**2, axis=0))
        errors = np.where(refused & (truth != 0.0), REFUSED_ERROR, errors)
        rmse = np.sqrt(np.mean(errors**2, axis=0))
        classes = by_size(table)
        known = np.isfinite(released.low)
        held = np.where(known, (released.low <= truth) & (truth <= released.high), np.nan)[:, large]
        widths = (released.high - released.low) / (2.0 * NORMAL_QUANTILE * table.sampling_errors(per))
        return Measured(
            table=table.name,
            contestant=contestant,
            setting=setting,
            per=per,
            epsilon=epsilon,
            delta=delta,
            runs=len(errors),
            rmse=float(np.nanmedian(rmse[large])),
            rmse_all=float(np.nanmedian(rmse)),
            typical=float(np.nanmedian(np.abs(errors[:, large]))),
            typical_all=float(np.nanmedian(np.abs(errors))),
            coverage=float(np.nanmean(held)),
            worst_coverage=float(np.nanmin(np.nanmean(held, axis=0))),
            width=float(np.nanmedian(widths[:, large])),
            rmse_released=float(np.nanmedian(rmse_released[large])),
            refused=float(refused.mean()),
            refused_large=float(refused[:, large].mean()),
            by_size=tuple(float(np.nanmedian(rmse[kept])) for kept in classes),
            refused_by_size=tuple(float(refused[:, kept].mean()) for kept in classes),
        )
