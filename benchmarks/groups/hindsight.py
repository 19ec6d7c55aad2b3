"""The best that one norm bound on each user's row of groups could do, if it were chosen with the data in sight.

A user's row holds what the user adds to the sum of each group around the group's true mean. Its norm is clipped to the
bound, symmetric and the same for all users: L2 with Gaussian noise, which needs delta > 0, or L1 with Laplace noise,
whichever is better. The whole budget is noise on the sums, and sums are divided by the true weights. What is cut counts
in absolute value, so that opposite cuts do not cancel; errors are computed, not drawn.
"""

from __future__ import annotations

import math

import numpy as np

from groups.measures import Measured, large_groups
from groups.tables import Floats, GroupTable
from hubermean.accounting import gaussian_alpha

HINDSIGHT = "best norm bound in hindsight"
_STEPS, _PER_OCTAVE = 80, 4


def noise_stddev(bound: float, norm: int, epsilon: float, delta: float) -> float:
    """Of the noise in each group, for rows whose L1 or L2 norm is at most `bound`."""
    return bound / gaussian_alpha(epsilon, delta) if norm == 2 else math.sqrt(2.0) * bound / epsilon


def row_norms(table: GroupTable, pulls: Floats, norm: int) -> Floats:
    """The L1 or L2 norm of each user's row."""
    return np.sqrt(table.by_user(pulls**2)) if norm == 2 else table.by_user(np.abs(pulls))


def errors_with_bound(
    table: GroupTable, per: str, bound: float, norm: int, *, epsilon: float, delta: float
) -> Floats:
    """The error of each group mean, in the unit of the values."""
    pulls = _pulls(table, per)
    return _errors(
        table, per, pulls, row_norms(table, pulls, norm), bound, noise_stddev(bound, norm, epsilon, delta)
    )


def measure_hindsight(table: GroupTable, *, per: str, epsilon: float, delta: float) -> Measured:
    pulls, truth = _pulls(table, per), table.plain_means(per)
    usable = truth != 0.0
    large = large_groups(table)[usable]
    best = (math.inf, math.inf, 0.0, 0)
    for norm in (1, 2) if delta > 0.0 else (1,):
        norms = row_norms(table, pulls, norm)
        for bound in float(norms.max()) * 2.0 ** (-np.arange(_STEPS) / _PER_OCTAVE):
            noise = noise_stddev(bound, norm, epsilon, delta)
            errors = _errors(table, per, pulls, norms, bound, noise)
            relative = errors[usable] / np.abs(truth[usable])
            best = min(best, (float(np.median(relative[large])), float(np.median(relative)), bound, norm))
    rmse, rmse_all, bound, norm = best
    return Measured(
        table=table.name,
        contestant=HINDSIGHT,
        setting=f"L{norm} norm at most {bound:.3g}",
        per=per,
        epsilon=epsilon,
        delta=delta,
        runs=0,
        rmse=rmse,
        rmse_all=rmse_all,
        typical=math.nan,
        typical_all=math.nan,
    )


def _pulls(table: GroupTable, per: str) -> Floats:
    """What each cell adds around the true mean of its group."""
    return table.weights(per) * (table.sums / table.counts - table.plain_means(per)[table.groups])


def _errors(table: GroupTable, per: str, pulls: Floats, norms: Floats, bound: float, noise: float) -> Floats:
    cut_share = 1.0 - bound / np.maximum(norms, bound)
    cut = table.by_group(np.abs(pulls) * cut_share[table.users])
    return np.hypot(cut, noise) / table.by_group(table.weights(per))
