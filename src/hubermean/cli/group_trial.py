"""How users spread over groups, and what a release by group would clip, without any privacy, for `hubermean check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from hubermean import _api as api
from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError, NotReleased
from hubermean.ingest.inspection import UnsafeGroupEntries, unsafe_group_entries
from hubermean.types.group_order import group_times, order_groups
from hubermean.types.options import TextKeywords
from hubermean.types.release_table import ReleaseTable

GROUPS_LISTED = 16
FEW = 200  # users, below which an interval of a group is hardly tested
_FAR = 2.0  # times the spread of the median group, between the mean of a group and that of the median group
_WIDE = 3.0  # times that spread, or a third of it


@dataclass(frozen=True, kw_only=True)
class UnsafeGroup:
    """Statistics of a group that no mechanism protects.

    Attributes:
        keys: the group.
        users, records: how many have a usable value.
        mean: the mean over records.
        spread: the standard deviation of user means.
        differs: whether its mean or its spread is far from those of the other groups.
        clipped_users: how many of its users a release would clip; None if it states no bounds.
        clipped_mean: the mean after clipping, before noise.
    """

    keys: tuple[str, ...]
    users: int
    records: int
    mean: float
    spread: float
    differs: bool
    clipped_users: int | None = None
    clipped_mean: float | None = None


@dataclass(frozen=True, kw_only=True)
class UnsafeGroupTrial:
    """What a release by group of one column would do; no mechanism protects these numbers.

    Attributes:
        name, by: the value column and the group columns.
        groups: all groups, in the order in which a release shows them.
        groups_per_user: fewest, median, 90%, 99%, most.
        small: how many groups have fewer users than is needed for an interval that can be trusted.
        max_groups: how many groups of a user the release counts; None for all of them.
        refusal: why there was no release.
    """

    name: str
    by: tuple[str, ...]
    groups: tuple[UnsafeGroup, ...]
    groups_per_user: tuple[int, ...]
    small: int
    max_groups: int | None = None
    refusal: str | None = None


def unsafe_group_trial(
    data: Any,
    *,
    user: Sequence[str],
    value: str,
    by: Sequence[str],
    epsilon: float,
    **text: Unpack[TextKeywords],
) -> UnsafeGroupTrial:
    """Make a release by group with default parameters and public keys, and compare it with the data. Not private."""
    entries = unsafe_group_entries(data, user=user, value=value, by=by, **text)
    in_groups = np.bincount(entries.users)
    quantiles = (
        np.quantile(in_groups, (0.0, 0.5, 0.9, 0.99, 1.0), method="inverted_cdf") if len(in_groups) else ()
    )
    trial = UnsafeGroupTrial(
        name=value, by=tuple(by), groups=(), groups_per_user=tuple(map(int, quantiles)), small=0
    )
    release: ReleaseTable | None = None
    try:
        release = api.mean(data, user=user, value=value, by=by, keys=entries.keys, epsilon=epsilon, **text)
        trial = replace(trial, max_groups=release.max_groups)
    except (NotReleased, InputError) as refusal:
        trial = replace(trial, refusal=str(refusal).partition(";")[0])
    found = _describe_groups(entries, release)
    order = order_groups([group.mean for group in found], times=group_times(entries.keys))
    return replace(
        trial,
        groups=tuple(found[row] for row in order.rows),
        small=sum(group.users < FEW for group in found),
    )


def _describe_groups(entries: UnsafeGroupEntries, release: ReleaseTable | None) -> list[UnsafeGroup]:
    groups, means, counts = entries.groups, entries.means, entries.records.astype(np.float64)
    size = len(entries.keys)

    def total(numbers: FloatArray) -> FloatArray:
        return np.bincount(groups, weights=numbers, minlength=size).astype(np.float64)

    with np.errstate(invalid="ignore", divide="ignore"):
        users, records = total(np.ones(len(groups))), total(counts)
        mean = total(means * counts) / records
        center = total(means) / users
        spread = np.sqrt(total((means - center[groups]) ** 2) / users)
        several = spread[users > 1]
        common = float(np.median(several)) if len(several) else 0.0
        overall = float(np.nanmedian(mean)) if np.isfinite(mean).any() else 0.0
        away = np.abs(mean - overall) > _FAR * common
        differs = away | (spread > _WIDE * common) | ((spread * _WIDE < common) & (users > 1))
        clipped = None if release is None else _clip(entries, mean, total, release)
    return [
        UnsafeGroup(
            keys=entries.keys[row],
            users=int(users[row]),
            records=int(records[row]),
            mean=float(mean[row]),
            spread=float(spread[row]),
            differs=bool(differs[row]),
            clipped_users=None if clipped is None else int(clipped[0][row]),
            clipped_mean=None if clipped is None else float(clipped[1][row]),
        )
        for row in range(size)
    ]


def _clip(
    entries: UnsafeGroupEntries,
    centers: FloatArray,
    total: Callable[[FloatArray], FloatArray],
    release: ReleaseTable,
) -> tuple[FloatArray, FloatArray] | None:
    """Return the clipped users and the mean after clipping of each group, by the bounds of a release; None without any.

    A release bounds user means and numbers of records, or the norm of a user's row of sums over all groups.
    """
    means, counts = entries.means, entries.records.astype(np.float64)
    bounds, norm_bound = (release.parameters.get(name) for name in ("bounds", "norm_bound"))
    if bounds:
        within = means.clip(float(bounds[0]), float(bounds[1]))
        weights = np.minimum(counts, float(release.parameters.get("max_records") or np.inf))
        clipped = (within != means) | (weights != counts)
        return total(clipped.astype(np.float64)), total(within * weights) / total(weights)
    if isinstance(norm_bound, int | float):
        away = counts * (means - centers[entries.groups])
        power = 1 if release.parameters.get("norm") == "L1" else 2
        norms = np.bincount(entries.users, weights=np.abs(away) ** power) ** (1.0 / power)
        shrunk = np.minimum(norm_bound / np.maximum(norms, 1e-300), 1.0)[entries.users]
        return total((shrunk < 1.0).astype(np.float64)), centers + total(shrunk * away) / total(counts)
    return None
