"""Parameters of the values: those that the caller stated, and those that the private steps found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hubermean.accounting.arguments import is_real
from hubermean.errors import InputError, parameter
from hubermean.searches.location import LENGTHS
from hubermean.types.options import PartialBounds

_MOST_USERS = 2**40


@dataclass(frozen=True, kw_only=True)
class ValueParameters:
    """None where something is to be found; `bounds` and `scales` have one entry per column. See `Adaptive`."""

    bounds: tuple[PartialBounds, ...] | None
    threshold: float | None
    scales: tuple[float, ...] | None
    radius: float | None
    max_records: int | None
    hostile: float
    n_users: int | None

    @classmethod
    def checked(cls, given: Any, *, columns: int | None) -> ValueParameters:
        """Refuse what is out of range or superfluous; `columns` is None while it is not known."""
        for name in ("threshold", "radius"):
            if (number := getattr(given, name)) is not None and not _usable(number):
                raise InputError(
                    f"{parameter(name)} must be a positive number (from 1e-60 to 1e60), not {number!r}"
                )
        bounds = None if given.bounds is None else _bounds(given.bounds, columns)
        if bounds is not None and any(both(pair) for pair in bounds):
            for name in ("threshold", "scale", "radius"):
                if getattr(given, name) is not None:
                    raise InputError(f"{parameter(name)} adds nothing to bounds; leave it out")
        if given.threshold is not None and given.scale is not None:
            raise InputError(
                f"{parameter('threshold')} and scale give the same information; give one of them"
            )
        hostile = 0.0 if given.hostile is None else given.hostile
        if not (is_real(hostile) and 0.0 <= hostile <= 0.2):
            raise InputError(
                f"{parameter('hostile')} must be a share of the users from 0 to 0.2, not {hostile!r}"
            )
        users = given.n_users
        whole = isinstance(users, int) and not isinstance(users, bool)
        if users is not None and not (whole and 1 <= users <= _MOST_USERS):
            raise InputError(f"{parameter('n_users')} must be a whole number from 1 to 2^40, not {users!r}")
        return cls(
            bounds=bounds,
            threshold=given.threshold,
            scales=None if given.scale is None else _scales(given.scale, columns),
            radius=given.radius,
            max_records=given.max_records,
            hostile=float(hostile),
            n_users=users,
        )

    def pair(self, column: int) -> PartialBounds:
        return (None, None) if self.bounds is None else self.bounds[column]


def both(pair: PartialBounds) -> bool:
    return pair[0] is not None and pair[1] is not None


def is_one_sided(bounds: Any) -> bool:
    """Whether some bound is left open, so that something is left to be found."""
    if bounds is None or not isinstance(bounds, list | tuple):
        return False
    return any(one is None or is_one_sided(one) for one in bounds)


def _bounds(given: Any, columns: int | None) -> tuple[PartialBounds, ...]:
    try:
        if all(one is None or is_real(one) for one in given):
            pairs = [tuple(given)] * (columns or 1)
        else:
            pairs = [tuple(pair) for pair in given]
        checked = [_pair(low, high) for low, high in pairs]
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{parameter('bounds')} must be (low, high), or one such pair per column; None leaves an end open"
        ) from None
    if not checked or (columns is not None and len(checked) != columns):
        raise InputError(
            f"there are {len(checked)} pairs of bounds for {columns} columns; give one per column"
        )
    if len({both(pair) for pair in checked}) > 1:
        raise InputError("give both bounds for all columns, or leave an end open in all of them")
    return tuple(checked)


def _pair(low: Any, high: Any) -> PartialBounds:
    ends = tuple(None if end is None else float(end) for end in (low, high))
    if any(end is not None and not math.isfinite(end) for end in ends):
        raise InputError(f"{parameter('bounds')} must be finite numbers; None leaves an end open")
    if ends[0] is not None and ends[1] is not None and not ends[0] < ends[1]:
        raise InputError(
            f"{parameter('bounds')} must be (low, high) with low < high, not ({low!r}, {high!r})"
        )
    return ends  # type: ignore[return-value]


def _scales(given: Any, columns: int | None) -> tuple[float, ...]:
    several = isinstance(given, list | tuple)
    if not all(_usable(scale) for scale in (given if several else [given])):
        raise InputError(f"{parameter('scale')} must be a positive number, or one per column, not {given!r}")
    if not several:
        return (float(given),) * (columns or 1)
    if columns is not None and len(given) != columns:
        raise InputError(f"there are {len(given)} scales for {columns} columns; give one per column")
    return tuple(map(float, given))


def _usable(number: Any) -> bool:
    return is_real(number) and bool(1e-60 <= number <= 1e60)


def per_column(values: Sequence[Any]) -> Any:
    """One value for one column, a list for several."""
    return values[0] if len(values) == 1 else list(values)


APART = (
    "most values lie too far apart for their number, or further from 0 than radius or 10^9 times their scale"
)
_MOST_NAMED = 3
TIED = -1
"""In place of the number of a length: most users have the same value."""

TOO_FEW = "there are too few users with usable records to estimate the bounds privately"


class InfeasibleError(Exception):
    """No mean can be released from the estimates so far. The message says why, with released numbers at most."""


class TiesError(InfeasibleError):
    """Most users have the same value in these of all columns, as was released."""

    def __init__(self, tied: Sequence[str], *, columns: int) -> None:
        named = ", ".join(map(repr, tied[:_MOST_NAMED]))
        more = f" and {len(tied) - _MOST_NAMED} more columns" if len(tied) > _MOST_NAMED else ""
        where = f" in {named}{more}" if columns > 1 else ""
        super().__init__(f"most users have the same value{where}, so no scale can be found")
        self.leaves_others = len(tied) < columns


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What was found of a column's tails, as distances from its center.

    Attributes:
        below, above: the bounds.
        seen_below, seen_above: the distances that the search chose, before they were stretched.
        rank: about how many users lie beyond such a distance; 0 for bounds that the caller gave.
    """

    below: float
    above: float
    seen_below: float = 0.0
    seen_above: float = 0.0
    rank: float = 0.0

    @property
    def seen(self) -> float:
        return max(self.seen_below, self.seen_above)


@dataclass(frozen=True, kw_only=True)
class AdaptiveEstimates:
    """What is public or was estimated by the steps so far.

    Attributes:
        spent: of the budget.
        epsilon: what the steps cost in pure epsilon, whatever the budget is in.
        users: how many have usable records, if that is public or was measured.
        users_stddev: the standard deviation of the noise in that.
        cap: the largest weight of a user in the sum of weights.
        beyond_cap: about how many users have more records than the cap; 0 where none count.
        skew: the cap beside the one that exponential numbers of records would have; 1 where it is not known.
        weight: the sum of weights of users with usable records.
        weight_stddev: about how far it may be off: the noise in that, and the records guessed beyond a cap.
        lengths: the numbers of the lengths found, one per column.
        shares: of the users within each of them.
        centers: one per column.
        tails: one per column.
        measured: further numbers for the release.
    """

    spent: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)
    users: float | None = None
    users_stddev: float = 0.0
    cap: int | None = None
    beyond_cap: float = 0.0
    skew: float = 1.0
    weight: float = 0.0
    weight_stddev: float = 0.0
    lengths: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    centers: tuple[float, ...] = ()
    tails: tuple[Tail, ...] = ()
    measured: tuple[tuple[str, Any], ...] = ()

    def parameters(self) -> dict[str, Any]:
        """For the release."""
        parameters = dict(self.measured)
        if self.lengths:
            parameters["scale"] = per_column([float(LENGTHS[number]) / 2.0 for number in self.lengths])
            parameters["share_within_scale"] = per_column(self.shares)
        return parameters
