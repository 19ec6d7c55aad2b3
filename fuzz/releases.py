"""What holds of every release, whatever it was made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import hubermean as hm
from fuzz.pages import check_page
from fuzz.randomness import CountedNoise
from fuzz.violation import require
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable


def check_release(release: Any, noise: CountedNoise, *, hidden: Iterable[str] = ()) -> None:
    """Noise was drawn, numbers are numbers, and all that is shown can be shown."""
    public = "public" in str(release.parameters.get("noise", ""))
    empty = isinstance(release, ReleaseTable) and not len(release)
    require(noise.draws > 0 or public or empty, "a release draws noise")
    for values, statistic, bounds in _values(release):
        for value in values:
            require(math.isfinite(value), "a released value is finite")
            if statistic == "count":
                require(value >= 0 and value == int(value), "a count is a whole number of at least zero")
            elif bounds is not None:
                room = 1e-9 * (bounds[1] - bounds[0])
                require(
                    bounds[0] - room <= value <= bounds[1] + room, "a clipped mean lies within its bounds"
                )
    shown = [json.dumps(json.loads(release.to_json())), repr(release)]
    for text in hidden:
        require(all(text not in one for one in shown), "a release shows no data")
    check_page(release)


def _values(release: Release | ReleaseTable) -> Iterator[tuple[tuple[float, ...], str, Any]]:
    one_column = len(release.columns) == 1
    bounds = release.parameters.get("bounds") if one_column else None
    if isinstance(release, Release):
        yield release.values, release.statistic, bounds
        return
    for row in release:
        if isinstance(row, hm.Release):
            yield row.values, row.statistic, bounds
