"""What is read of any data, and how: decided once, opened to see the schema, then read by user or by group.

Opening looks at the schema alone, so that whatever is wrong with it is said before a budget is charged; reading looks
at records, and all its failures are one (`engine.UNREADABLE`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hubermean.errors import InputError
from hubermean.group_table import GroupTable, Key
from hubermean.ingest.columns import Schema, ValueColumn
from hubermean.ingest.engine import UNREADABLE, GroupsAsked, Limits, Roles, Source
from hubermean.ingest.engines import engine_for
from hubermean.ingest.groups import group_table_of
from hubermean.ingest.keys import public_keys
from hubermean.ingest.session import quietly
from hubermean.unsafe_timings import stage
from hubermean.user_table import PrivateTable

READING = "reading and grouping"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The columns to read and how; see `user_table` for the arguments."""

    user: Sequence[str]
    value: Sequence[str]
    resolution: float | Decimal | Fraction | None = None
    non_finite: str = "drop"
    memory_limit: str | None = None
    threads: int | None = None
    progress: bool = False
    engine: str | None = None

    @contextlib.contextmanager
    def opened(self, data: Any, *, by: Sequence[str] = ()) -> Iterator[OpenedData]:
        """Data whose schema fits.

        Raises:
            InputError: a column that is not there or cannot play its role, or an argument out of range.
        """
        _require_apart(user=self.user, value=self.value, by=by)
        rule = _ValueRule.checked(self.resolution, self.non_finite)
        roles = Roles(users=self.user, values=self.value, groups=by)
        limits = Limits(memory_limit=self.memory_limit, threads=self.threads, progress=self.progress)
        with engine_for(data, self.engine).open(data, roles, limits) as source:
            for name in self.user:
                source.schema.check_user(name)
            readers = rule.readers(source.schema, self.value)
            for name in by:
                source.schema.check_group(name)
            yield OpenedData(source=source, readers=tuple(readers), by=tuple(by))


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenedData:
    """Data of which nothing but the schema was looked at."""

    source: Source
    readers: tuple[ValueColumn, ...]
    by: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(reader.name for reader in self.readers)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        """Per column, the largest magnitude its encoding can hold."""
        return tuple(reader.encoding.limit for reader in self.readers)

    @property
    def countable(self) -> bool:
        """Whether the number of users may be counted; see `Source`."""
        return self.source.countable

    def held_up_to(self, *, records: bool) -> int | None:
        return self.source.held_up_to(self.readers, records=records)

    def check_keys(self, keys: Sequence[Key]) -> None:
        """Refuse public groups that no value of the declared types can be in."""
        for number, texts in enumerate(public_keys(keys).texts, 1):
            for name, text in zip(self.by, texts, strict=True):
                self.source.schema.check_key(name, text, number)

    @stage(READING)
    def users(self, *, records: bool) -> PrivateTable:
        """Exact sums and counts per user."""
        return self.source.users(self.readers, records=records)

    @stage(READING)
    def groups(self, *, keys: Sequence[Key] | None, max_groups: int, pooled: bool) -> GroupTable:
        """Exact sums and counts per user and group; see `group_table`."""
        public = None if keys is None else public_keys(keys)
        most = None if keys is not None and len(keys) <= max_groups else max_groups
        found = self.source.entries(self.readers, GroupsAsked(keys=public, max_groups=most, pooled=pooled))
        return quietly(
            lambda: group_table_of(found, self.readers, self.by, public, pooled=pooled), UNREADABLE
        )


def column_names(given: str | Sequence[str], what: str) -> list[str]:
    try:
        names = [given] if isinstance(given, str) else list(given)
    except TypeError:
        names = []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{what} must be a column name or a list of column names")
    if len(set(names)) != len(names):
        raise InputError(f"{what} names a column twice; name each column once")
    return names


def _require_apart(**roles: Sequence[str]) -> None:
    """Refuse a column that plays two roles."""
    seen: dict[str, str] = {}
    for role, names in roles.items():
        for name in names:
            if name in seen:
                raise InputError(
                    f"column {name!r} is both {seen[name]} and {role}; name two different columns"
                )
            seen[name] = role


@dataclass(frozen=True, kw_only=True)
class _ValueRule:
    """How values are read: the public step they are rounded to, and whether infinite ones are clamped."""

    step: Fraction | None
    clamp_infinities: bool

    @classmethod
    def checked(cls, resolution: float | Decimal | Fraction | None, non_finite: str) -> _ValueRule:
        step = _resolution(resolution)
        if not isinstance(non_finite, str) or non_finite not in ("drop", "clamp"):
            raise InputError(f"non_finite must be 'drop' or 'clamp', not {non_finite!r}")
        return cls(step=step, clamp_infinities=non_finite == "clamp")

    def readers(self, schema: Schema, values: Sequence[str]) -> list[ValueColumn]:
        return [
            schema.value(name, resolution=self.step, clamp_infinities=self.clamp_infinities)
            for name in values
        ]


def _resolution(given: float | Decimal | Fraction | None) -> Fraction | None:
    if given is None:
        return None
    try:
        # A float is meant as it is written: 0.01 is one hundredth, not its nearest binary fraction.
        step = Fraction(repr(given)) if isinstance(given, float) else Fraction(given)
    except (TypeError, ValueError, OverflowError):
        step = Fraction(0)
    if isinstance(given, bool) or not Fraction(1, 10**18) <= step <= 10**18:
        raise InputError(f"resolution must be a positive number from 1e-18 to 1e18, not {given!r}")
    return step
