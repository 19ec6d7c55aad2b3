"""Totals over groups: the mean of every part of a hierarchy and of all of it, from the released means of the groups.

The groups of `by=("region", "city")` have the totals of each region and of everything, like SQL's `ROLLUP`. A total is
the average of its groups, by their released weights: totals agree with their parts exactly, and they cost no budget.
With equal noise on the sums of all groups, no other unbiased total of these has less noise (Gauss & Markov).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.group_table import GroupKey
from hubermean.mechanisms.groups.group_weights import GroupWeights
from hubermean.mechanisms.groups.row_estimates import ColumnEstimates, RowEstimates


@dataclass(frozen=True, kw_only=True, eq=False)
class Total:
    """One total: its key, with None for the columns it adds up over, and the groups it is made of, by number."""

    key: GroupKey
    parts: IntArray


def list_totals(keys: Sequence[GroupKey], seen: Sequence[bool]) -> list[Total]:
    """Return the totals of a hierarchy in the order of the columns: inner ones first, that of everything last.

    Only groups that have a value are parts. Keys are the same if their texts are, as for groups: 0 and "0" are, 1 and
    True are not.
    """
    parts: dict[tuple[str, ...], tuple[GroupKey, list[int]]] = {}
    columns = len(keys[0]) if keys else 0
    for width in range(columns - 1, -1, -1):
        for number, key in enumerate(keys):
            total = (*key[:width], *(None,) * (columns - width))
            _, own = parts.setdefault(tuple(map(_identify, total[:width])), (total, []))
            if seen[number]:
                own.append(number)
    return [Total(key=key, parts=np.array(own, dtype=np.int64)) for key, own in parts.values() if own]


def _identify(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def add_totals(
    estimates: RowEstimates, keys: Sequence[GroupKey], groups_per_user: float
) -> tuple[RowEstimates, tuple[GroupKey, ...]]:
    """Return the estimates of all groups followed by their totals, and the keys of these.

    A user may be in several groups of a total. Its errors there may all point one way, so their variance counts as
    often as users are in groups on average.
    """
    weights = estimates.weights
    totals = list_totals(keys, (weights.surely_seen() > 0.0).tolist())
    if not totals:
        return estimates, tuple(keys)
    columns = [_add(column, weights, totals, groups_per_user) for column in estimates.columns]
    sums = np.array([weights.values[one.parts].sum() for one in totals])
    noise = weights.stddev * np.sqrt(np.array([len(one.parts) for one in totals], dtype=np.float64))
    made = replace(
        weights,
        values=np.concatenate([weights.values, sums]),
        noise=np.concatenate([weights.noise, noise]),
    )
    return replace(estimates, columns=columns, weights=made), (*keys, *(one.key for one in totals))


def _add(
    column: ColumnEstimates, weights: GroupWeights, totals: Sequence[Total], groups_per_user: float
) -> ColumnEstimates:
    rows = [_total(column, weights, one.parts, groups_per_user) for one in totals]
    means, noise, sampling, clipping = (np.array(one) for one in zip(*rows, strict=True))
    # A part that was not reached is missing from its totals, however few users it has.
    reached = [bool(column.reached[one.parts].all()) for one in totals]
    return ColumnEstimates(
        means=np.concatenate([column.means, means]),
        noise_variance=np.concatenate([column.noise_variance, noise]),
        sampling_variance=np.concatenate([column.sampling_variance, sampling]),
        clipping=np.concatenate([column.clipping, clipping]),
        reached=np.concatenate([column.reached, reached]),
        drawn=np.concatenate([column.drawn, np.zeros(len(totals), dtype=np.bool_)]),
    )


def _total(
    column: ColumnEstimates, weights: GroupWeights, parts: IntArray, groups_per_user: float
) -> tuple[float, float, float, float]:
    """Return (mean, variance of noise, variance of sampling, what clipping may take off) of a total."""
    own = weights.values[parts]
    shares: FloatArray = own / own.sum()
    mean = float(shares @ column.means[parts])
    # A weight that is off by one moves the total by how far the group's mean lies from it.
    apart = np.abs(column.means[parts] - mean) / own.sum()
    noise = (shares**2) @ column.noise_variance[parts] + weights.stddev**2 * (apart**2).sum()
    sampling = groups_per_user * float((shares**2) @ column.sampling_variance[parts] + (apart**2) @ own)
    clipping = float(shares @ column.clipping[parts] + weights.missed * (apart @ weights.shares[parts]))
    return mean, float(noise), sampling, clipping
