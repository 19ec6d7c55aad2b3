"""Contribution bounds: how much each user counts, and how far one user can move a result.

With `per="record"` the weight of a user is its number of records, at most `max_records`. With `per="user"` every user
with a usable record has weight one. The largest possible weight is public.

| neighbor relation | records that count | user without usable records |
|---|---|---|
| `add-remove`, `replace-user` | usable records; counts are private | weight zero |
| `replace-values` | all records; counts are public | keeps its public weight |

Under `replace-values` a missing value is part of the values and therefore private. It must not show in a weight, which
is why unusable records count there.

The Huber mechanisms bound a user's influence by a threshold as well (`huber.thresholds`); its public parameters are
checked here. `UserPoints` turns a table into weighted points for the mechanisms that work on all columns at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.accounting.arguments import is_real
from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.user_table import UserTable
from hubermean.errors import InputError, parameter
from hubermean.huber.geometry import Geometry
from hubermean.huber.points import PointRows
from hubermean.huber.thresholds import WHOLE
from hubermean.types.options import Bounds
from hubermean.types.request import Column, PublicFacts, Request

LARGEST_MAX_RECORDS = 2**32
MOST_USERS = 2**40
"""More users than any data set has, about a hundred times the number of people."""

_SMALLEST_LENGTH, _LARGEST_LENGTH = 1e-60, 1e60


# --- public parameters ---------------------------------------------------------------------------------------------


def check_max_records(max_records: int | None, request: Request) -> None:
    """Refuse a contribution bound that is out of range, missing or superfluous; reads the request only.

    Raises:
        InputError: the bound cannot be used with this request.
    """
    check_optional_max_records(max_records, request)
    if request.per == "record" and max_records is None and not request.neighbors.counts_are_public:
        raise InputError(
            f"give {parameter('max_records')} (the largest number of records a user counts for), since "
            f"{request.neighbors.value!r} keeps counts private; or use {parameter('per', 'user')}"
        )


def check_optional_max_records(max_records: int | None, request: Request) -> None:
    """Refuse a contribution bound that is out of range or superfluous; it may be missing."""
    if max_records is not None:
        whole = isinstance(max_records, int) and not isinstance(max_records, bool)
        if not whole or not 1 <= max_records <= LARGEST_MAX_RECORDS:
            raise InputError(
                f"{parameter('max_records')} must be a whole number from 1 to 2^32, not {max_records!r}"
            )
    if request.per == "user" and max_records is not None:
        raise InputError(
            f"{parameter('max_records')} is for {parameter('per', 'record')}; with "
            f"{parameter('per', 'user')} every user counts once, so leave it out"
        )


def check_user_estimate(n_users: int | None, request: Request) -> None:
    """Refuse an estimate of the number of users where the number itself is public."""
    if n_users is not None and request.neighbors.users_are_public:
        raise InputError(f"{parameter('n_users')} is public under {request.neighbors.value!r}; leave it out")


def check_lengths(**lengths: float) -> None:
    """Refuse a threshold or radius outside the range in which no intermediate number over- or underflows."""
    for name, given in lengths.items():
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not _SMALLEST_LENGTH <= given <= _LARGEST_LENGTH:
            raise InputError(
                f"{parameter(name)} must be a finite number above 0 (from {_SMALLEST_LENGTH:g} to "
                f"{_LARGEST_LENGTH:g}), "
                f"not {given!r}"
            )


def parse_threshold_power(given: Any) -> int:
    """theta as a whole number of parts, each 1 / `WHOLE`; 0 if it was not given.

    Raises:
        InputError: it is not a number from 0 to 1.
    """
    if given is None:
        return 0
    if not is_real(given) or not 0.0 <= given <= 1.0:
        raise InputError(f"{parameter('threshold_power')} must be a number from 0 to 1, not {given!r}")
    return round(float(given) * WHOLE)


def check_threshold_power(given: float | None, request: Request) -> None:
    """Refuse a power where all users have the same weight, so that it would have no effect."""
    if given is not None and request.per == "user":
        raise InputError(
            f"{parameter('threshold_power')} is for {parameter('per', 'record')}; with "
            f"{parameter('per', 'user')} all users weigh the same, so leave it out"
        )


# --- weights -------------------------------------------------------------------------------------------------------


def find_weight_cap(max_records: int | None, request: Request, facts: PublicFacts) -> int:
    """The largest weight a user can have: public, never computed from private data."""
    if request.per == "user":
        return 1
    if max_records is not None:
        return max_records
    if facts.record_counts is None:
        raise InputError(f"give {parameter('max_records')} (the largest number of records a user counts for)")
    return min(int(facts.record_counts.max(initial=1)), LARGEST_MAX_RECORDS)


def expected_weight(request: Request, facts: PublicFacts, cap: int) -> float:
    """The total weight to expect, from public numbers; a wrong guess costs accuracy only."""
    if facts.record_counts is not None:
        return max(float(np.minimum(facts.record_counts, cap).sum()), 1.0)
    if facts.planned_weight is not None:
        return max(facts.planned_weight, 1.0)
    users = facts.planned_users if facts.n_users is None else facts.n_users
    # Counts are private: expect a user to fill half of its contribution bound.
    return max(float(users) if request.per == "user" else users * cap / 2.0, 1.0)


def countable_records(table: UserTable, request: Request) -> IntArray:
    """Each user's number of records that count, before capping; public under `replace-values`, private otherwise."""
    return table.records if request.neighbors.counts_are_public else table.counts


def user_weights(table: UserTable, request: Request, cap: int) -> IntArray:
    """Each user's weight, at most `cap`."""
    weights: IntArray = np.minimum(countable_records(table, request), cap)
    return weights


def find_least_users(enough: Callable[[int], bool]) -> int:
    """The least number of users for which `enough` holds, by bisection; it must hold for `MOST_USERS`."""
    low, high = 0, MOST_USERS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# --- points --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UserPoints:
    """How users become weighted points: public, and the same rule in every partition.

    Attributes:
        geometry: the ball that user means are clamped to, and the standardization of the columns.
        request: decides which records count.
        cap: the largest weight of a user.
    """

    geometry: Geometry
    request: Request
    cap: int

    def read(self, table: UserTable) -> tuple[PointRows, IntArray | None]:
        """Means, clamped, and weights of the users with a usable record; None stands for weights of one.

        The means are read from the table block by block when they are needed; no copy of them is made. What a user's
        mean becomes depends on its own numbers alone (`PointRows`; proofs/smooth-sensitivity.md, Lemma 1), so its
        rounding costs no privacy.
        """
        usable = np.flatnonzero(table.counts > 0)
        chosen = None if len(usable) == table.n_users else usable
        matrix, squares = table.matrix(), table.squared_row_norms()
        if self.geometry.standardization.centers:
            matrix, squares = self.geometry.standardization.apply(matrix), None
        points = PointRows.within_ball(matrix, self.geometry.clamp, chosen=chosen, squares=squares)
        if self.cap == 1:
            return points, None
        return points, user_weights(table, self.request, self.cap)[usable]


_FINEST_GRID_BITS = 32
_COARSEST_GRID_BITS = 12
_NOISE_BITS = 44  # the grid is chosen so that the noise scale stays below 2^46 grid units
HALF_MULTIPLE = 16
"""Half widths are multiples of this, so that every part of one is a whole number."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The public grid of a column: multiples of 2^exponent, from middle - half to middle + half of them."""

    exponent: int
    middle: int
    half: int

    @property
    def low(self) -> int:
        return self.middle - self.half

    @property
    def high(self) -> int:
        return self.middle + self.half

    @property
    def spacing(self) -> Fraction:
        return Fraction(2) ** self.exponent

    def values(self, shares: FloatArray) -> FloatArray:
        """The values at these shares of the way from the middle to the high end."""
        return float(self.middle * self.spacing) + shares * float(self.half * self.spacing)

    @classmethod
    def choose(cls, bounds: Bounds, column: Column, *, noise_factor: float) -> Grid:
        """Bounds snapped outward to a grid fine enough not to matter beside the noise."""
        if not all(abs(end) <= column.limit for end in bounds):  # NaN too, as which bounds near 1e308 arrive
            raise InputError(
                f"bounds of {column.name!r} reach beyond {float(column.limit):g}, the largest value its numbers are "
                f"read with; give {parameter('resolution')} (a coarser step) or narrower bounds"
            )
        low, high = Fraction(bounds[0]), Fraction(bounds[1])
        bits = min(
            max(_NOISE_BITS - math.ceil(math.log2(noise_factor)), _COARSEST_GRID_BITS), _FINEST_GRID_BITS
        )
        exponent = math.floor(math.log2(high - low)) - bits
        # Grid numbers stay within 61 bits, and no grid is finer than what ingest keeps.
        exponent = max(exponent, math.ceil(math.log2(max(abs(low), abs(high)))) - 60, -60)
        spacing = Fraction(2) ** exponent
        first, last = math.floor(low / spacing), math.ceil(high / spacing)
        if last - first < 2**_COARSEST_GRID_BITS:
            raise InputError(f"bounds of {column.name!r} are too close together for their size; widen them")
        middle = (first + last) // 2
        half = -(-max(last - middle, middle - first) // HALF_MULTIPLE) * HALF_MULTIPLE
        return cls(exponent=exponent, middle=middle, half=half)
