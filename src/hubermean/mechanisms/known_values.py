"""What the caller knows of the values, checked; `tuned` finds the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hubermean.errors import InputError, is_real
from hubermean.mechanisms.clipped import Clipped
from hubermean.mechanisms.protocol import Bounds

_MOST_USERS = 2**40


@dataclass(frozen=True, kw_only=True)
class KnownValues:
    """None where something is to be found. `scales` has one number per column; see `Tuned` for the others."""

    bounds: Bounds | Sequence[Bounds] | None
    threshold: float | None
    scales: tuple[float, ...] | None
    radius: float | None
    record_cap: int | None
    likeness: float | None
    n_users: int | None

    @classmethod
    def checked(cls, given: Any, *, columns: int | None) -> KnownValues:
        """Refuse what is out of range or superfluous; `columns` is None while it is not known."""
        for name in ("threshold", "radius"):
            if (number := getattr(given, name)) is not None and not _usable(number):
                raise InputError(f"{name} must be a positive number (from 1e-60 to 1e60), not {number!r}")
        if given.bounds is not None:
            Clipped(bounds=given.bounds)
            for name in ("threshold", "scale", "radius"):
                if getattr(given, name) is not None:
                    raise InputError(f"{name} says nothing that bounds do not; leave it out")
        if given.threshold is not None and given.scale is not None:
            raise InputError("threshold and scale say the same twice; give one of them")
        likeness = given.likeness
        if likeness is not None and not (is_real(likeness) and 0.0 <= likeness <= 1.0):
            raise InputError(f"likeness must be a number from 0 to 1, not {likeness!r}")
        users = given.n_users
        whole = isinstance(users, int) and not isinstance(users, bool)
        if users is not None and not (whole and 1 <= users <= _MOST_USERS):
            raise InputError(f"n_users must be a whole number from 1 to 2^40, not {users!r}")
        return cls(
            bounds=given.bounds,
            threshold=given.threshold,
            scales=None if given.scale is None else _scales(given.scale, columns),
            radius=given.radius,
            record_cap=given.record_cap,
            likeness=None if likeness is None else float(likeness),
            n_users=users,
        )


def _scales(given: Any, columns: int | None) -> tuple[float, ...]:
    several = isinstance(given, list | tuple)
    if not all(_usable(scale) for scale in (given if several else [given])):
        raise InputError(f"scale must be a positive number, or one per column, not {given!r}")
    if not several:
        return (float(given),) * (columns or 1)
    if columns is not None and len(given) != columns:
        raise InputError(f"there are {len(given)} scales for {columns} columns; give one per column")
    return tuple(map(float, given))


def _usable(number: Any) -> bool:
    return is_real(number) and bool(1e-60 <= number <= 1e60)
