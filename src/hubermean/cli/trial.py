"""What a release would clip, without any privacy protection, for `hubermean check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from hubermean import _api as api
from hubermean.errors import InputError, NotReleased
from hubermean.ingest.reading import user_table
from hubermean.types.options import TextKeywords


@dataclass(frozen=True, kw_only=True)
class UnsafeTrial:
    """The clipping of one release that is not shown; no mechanism protects these numbers.

    Attributes:
        name: the value column.
        users: how many users have a usable value.
        mean: the mean over their records.
        clipped_users: how many of them contribute more than the bounds that the release found; None if it clips none.
        clipped_mean: the mean over records after clipping, before noise.
        refusal: why there was no release.
    """

    name: str
    users: int
    mean: float
    clipped_users: int | None = None
    clipped_mean: float | None = None
    refusal: str | None = None


def unsafe_trial(
    data: Any, *, user: Sequence[str] | None, value: str, epsilon: float, **text: Unpack[TextKeywords]
) -> UnsafeTrial:
    """Make a release with default parameters and compare its bounds with the data. Not private."""
    assert user is not None
    table = user_table(data, user=user, value=value, records=False, **text).collect()
    table = table.take(np.flatnonzero(table.counts > 0))
    counts = table.counts.astype(np.float64)
    sums = table.sums[0].means(table.counts) * counts
    mean = float(sums.sum() / counts.sum()) if len(counts) else float("nan")
    trial = UnsafeTrial(name=value, users=len(counts), mean=mean)
    try:
        release = api.mean(data, user=user, value=value, epsilon=epsilon, **text)
    except (NotReleased, InputError) as refusal:
        return replace(trial, refusal=str(refusal).partition(";")[0])
    bounds, center = (release.parameters.get(name) for name in ("influence_bounds", "center"))
    if bounds is None or center is None:
        return trial
    # The contribution of a user: the distances of its records from the center, added up.
    influence = sums - float(center) * counts
    clipped = influence.clip(float(bounds[0]), float(bounds[1]))
    return replace(
        trial,
        clipped_users=int(np.count_nonzero(clipped != influence)),
        clipped_mean=float(center) + float(clipped.sum() / counts.sum()),
    )
