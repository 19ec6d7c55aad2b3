"""Warnings beside a release: how its number should not be read.

They are made after the release, from public parameters and released numbers alone, and so are post-processing: they
cost no budget and hold for a release that a ledger returns from its record. Warnings that a mechanism makes, such as
that of a heavy tail, come with its outcome.
"""

from __future__ import annotations

import numpy as np

from hubermean.data.user_table import MAX_COUNT
from hubermean.errors import InputError, parameter
from hubermean.release.grouped import Grouping
from hubermean.types.formatting import about, number
from hubermean.types.release import Release
from hubermean.types.release_info import largest_factor
from hubermean.types.request import Request

LARGE_EPSILON = 10.0
"""Beyond this epsilon, a guarantee says little about a single user."""
_FEWER = 0.9  # of the expected records: fewer are worth a warning


def check_expected_records(expected: object, request: Request, grouping: Grouping | None) -> int:
    """Return the number of records that the caller expects; InputError where no release could be compared with it."""
    name = parameter("expected_records")
    whole = isinstance(expected, int | np.integer) and not isinstance(expected, bool)
    if not whole or not 1 <= expected <= MAX_COUNT:  # type: ignore[operator]
        raise InputError(f"{name} must be a whole number from 1 to {MAX_COUNT:,}, not {expected!r}")
    if request.per != "record":
        raise InputError(
            f"{name} is for {parameter('per', 'record')}, where the number of records is measured; leave it out"
        )
    if grouping is not None:
        raise InputError(f"{name} is for a release without groups; leave it out, or {parameter('by')}")
    return int(expected)  # type: ignore[call-overload, no-any-return]


def compare_records(release: Release, expected: int) -> list[str]:
    """Return a warning where the measured number of records, with its noise, is clearly below the expected one."""
    measured = release.denominator
    if measured is None:
        return [
            f"Your expected number of records was not checked: {release.mechanism} does not measure how many there are."
        ]
    if measured.high >= _FEWER * expected:
        return []
    return [
        f"About {about(measured.value, measured.high - measured.low)} usable records were measured, but you expect "
        f"{expected:,}. Values may be missing or unreadable, or users with very many records count only in part; "
        "let the owner of the data run hubermean check."
    ]


def warn_of_epsilon(epsilon: float) -> str:
    """Return the warning about an epsilon beyond `LARGE_EPSILON`."""
    return (
        f"Epsilon = {number(epsilon)} protects a single user little: one user's records may make a result "
        f"{largest_factor(epsilon)} times as likely. Most releases use 1 or less; use at most {number(LARGE_EPSILON)}."
    )
