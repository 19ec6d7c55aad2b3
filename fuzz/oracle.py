"""What ingest must make of a value, in plain Python: the rules of docs/reference/input-data.md as fractions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hubermean.data.group_table import GroupTable
from hubermean.data.user_table import UserTable
from hubermean.ingest.identity import identity_text

Sums = list[tuple[tuple[Fraction, ...], int, int]]
"""Of each user: a sum per column, usable records, records. In an order of its own."""

_FLOAT_LIMIT = Fraction(8 * 10**12)
_STEPS_LIMIT = 9.2e18


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`resolution` and `non_finite` of a call."""

    resolution: float | None = None
    clamp: bool = False

    @property
    def arguments(self) -> dict[str, object]:
        return {"resolution": self.resolution, "non_finite": "clamp" if self.clamp else "drop"}

    def real(self, value: float | None) -> Fraction | None:
        """A float: multiples of 2^-60 up to a limit, or of the resolution."""
        if value is None or math.isnan(value) or (math.isinf(value) and not self.clamp):
            return None
        if self.resolution is not None:
            return self._steps(value, self.resolution)
        if math.isinf(value):
            return _FLOAT_LIMIT if value > 0 else -_FLOAT_LIMIT
        clamped = min(max(Fraction(value), -_FLOAT_LIMIT), _FLOAT_LIMIT)
        return Fraction(round(clamped * 2**60), 2**60)

    def whole(
        self, value: int | None, unit: Fraction = Fraction(1), most: int = 2**63 - 1
    ) -> Fraction | None:
        """An integer multiple of a unit, clamped to 64 bits, or of the resolution."""
        if value is None:
            return None
        if self.resolution is not None:
            # The engine multiplies by the unit or divides by it, whichever the type calls for: see `exact_in_steps`.
            return self._steps(float(value) * float(unit), self.resolution)
        return min(max(value, -most - 1), most) * unit

    def _steps(self, value: float, resolution: float) -> Fraction:
        step = Fraction(repr(resolution))
        if not abs(value) <= _STEPS_LIMIT * float(step):
            return int(math.copysign(_STEPS_LIMIT, value)) * step
        return round(Fraction(value / float(step))) * step


def expected(users: Sequence[Hashable | None], columns: Sequence[Sequence[Fraction | None]]) -> Sums:
    """Sums by user; records without a user belong to nobody, and one is usable where all its values are."""
    held: dict[Hashable, tuple[list[Fraction], list[int]]] = {}
    for position, user in enumerate(users):
        if user is None or user != user:
            continue
        sums, counts = held.setdefault(user, ([Fraction(0)] * len(columns), [0, 0]))
        counts[1] += 1
        values = [column[position] for column in columns]
        if all(value is not None for value in values):
            counts[0] += 1
            for place, value in enumerate(values):
                sums[place] += value or 0
    return sorted((tuple(sums), counts[0], counts[1]) for sums, counts in held.values())


def found(table: UserTable) -> Sums:
    """The same of a table that ingest made."""
    return sorted(
        (tuple(column.fraction(position) for column in table.sums), count, records)
        for position, (count, records) in enumerate(
            zip(table.counts.tolist(), table.records.tolist(), strict=True)
        )
    )


def found_in_groups(table: GroupTable) -> list[tuple[str, tuple[Fraction, ...], int]]:
    """(group, sums, usable records) of every user in every group."""
    sums = table.members.sums
    return sorted(
        (repr(table.keys[code]), tuple(column.fraction(position) for column in sums), count)
        for position, (code, count) in enumerate(
            zip(table.membership.groups.tolist(), table.members.counts.tolist(), strict=True)
        )
    )


def expected_in_groups(
    users: Sequence[Hashable | None],
    groups: Sequence[Hashable | None],
    columns: Sequence[Sequence[Fraction | None]],
) -> list[tuple[str, tuple[Fraction, ...], int]]:
    named = {group for group in groups if group is not None}
    parts: list[tuple[str, tuple[Fraction, ...], int]] = []
    for group in named:
        only = [user if one == group else None for user, one in zip(users, groups, strict=True)]
        name = identity_text(group)
        parts += [(repr((name,)), sums, count) for sums, count, _ in expected(only, columns)]
    return sorted(parts)


def clipped_mean(table: Sums, *, low: float, high: float, cap: int) -> Fraction | None:
    """The mean over records, each user's mean clamped and its weight capped; None where nobody weighs anything."""
    total = weight = Fraction(0)
    for (value, *_), count, _ in table:
        if count:
            share = min(count, cap)
            total += share * min(max(value / count, Fraction(low)), Fraction(high))
            weight += share
    return total / weight if weight else None


def total(table: Sums) -> tuple[tuple[Fraction, ...], int, int]:
    """Over all users, whoever they are."""
    columns = zip(*(sums for sums, _, _ in table), strict=True)
    return (
        tuple(sum(column, Fraction(0)) for column in columns),
        sum(count for _, count, _ in table),
        sum(records for _, _, records in table),
    )


def added(*totals: tuple[tuple[Fraction, ...], int, int]) -> tuple[tuple[Fraction, ...], int, int]:
    held = [one for one in totals if one[2]]
    if not held:
        return (), 0, 0
    sums = zip(*(one[0] for one in held), strict=True)
    return (
        tuple(sum(column, Fraction(0)) for column in sums),
        sum(one[1] for one in held),
        sum(one[2] for one in held),
    )
