"""What ingest makes of records in a container, in a form that two data sets can be compared by.

Only this file knows how tables are asked for and read; a change of a signature is a change here.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import hubermean as hm
from helpers.more_containers import ALL_CONTAINERS, OPTIONS
from hubermean.auditing.cells import Columns, Kinds, identity
from hubermean.data.user_table import UserTable
from hubermean.ingest.reading import group_table, user_table

USER, GROUP, VALUE = "u", "g", "v"

Entries = Counter[tuple[Hashable, ...]]
"""("user", sum, usable records, records) of each user, or ("group", type of the key, key, sum, usable records) of each
user in each group that it counts in, ("row", these of all its groups) and ("total", sum, usable records) of each user:
all that a release is made of."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Look:
    """Which table to ask for: that of users, or, with `max_groups` or `by_group`, that of users and groups."""

    max_groups: int | None = None
    by_group: bool = False
    keys: tuple[Hashable, ...] | None = None
    engine: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def grouped(self) -> bool:
        return self.by_group or self.max_groups is not None

    def of_one_user(self, records: int) -> int:
        """How many entries a user with so many records has at most: those of its groups, its row and its total."""
        return (self.max_groups or records) + 2 if self.grouped else 1

    def at(self, data: Any) -> Entries | Refusal:
        try:
            return Counter(self._entries(data))
        except hm.HubermeanError as refusal:
            return Refusal(kind=type(refusal).__name__, message=str(refusal))

    def within(self, name: str, columns: Columns, kinds: Kinds | None = None) -> Entries | Refusal:
        """At columns in a container; messages do not show where its files lie."""
        with tempfile.TemporaryDirectory() as folder:
            look = replace(self, options=OPTIONS.get(name, {}))
            found = look.at(ALL_CONTAINERS[name].make(columns, Path(folder), kinds))
            if isinstance(found, Refusal):
                return Refusal(kind=found.kind, message=found.message.replace(folder, ""))
            return found

    def _entries(self, data: Any) -> Iterator[tuple[Hashable, ...]]:
        if not self.grouped:
            users = user_table(data, user=[USER], value=[VALUE], engine=self.engine, **self.options).collect()
            for share, records in zip(_shares(users), users.records.tolist(), strict=True):
                yield "user", *share, records
            return
        keys = None if self.keys is None else [(key,) for key in self.keys]
        table = group_table(
            data,
            user=[USER],
            value=[VALUE],
            by=[GROUP],
            keys=keys,
            max_groups=self.max_groups,
            engine=self.engine,
            **self.options,
        )
        if keys is not None:  # shown as they were given, type and all
            assert [(type(key), key) for (key,) in table.keys] == [(type(key), key) for (key,) in keys]
        names = [(type(key).__name__, key) for (key,) in table.keys]
        rows: dict[int, list[tuple[Hashable, ...]]] = {owner: [] for owner in range(table.n_owners)}
        for owner, code, share in zip(
            table.owners.tolist(), table.membership.groups.tolist(), _shares(table.members), strict=True
        ):
            rows[owner].append((*names[code], *share))
        yield from _of_rows(rows.values())
        totals = table.users()
        for row, share in zip(rows.values(), _shares(totals), strict=True):
            assert share == _total(row)
        assert totals.records.tolist() == totals.counts.tolist()


def _of_rows(rows: Iterable[Sequence[tuple[Hashable, ...]]]) -> Iterator[tuple[Hashable, ...]]:
    for row in rows:
        for entry in row:
            yield "group", *entry
        yield "row", *sorted(row, key=str)
        yield "total", *_total(row)


def _total(row: Sequence[tuple[Any, ...]]) -> tuple[Fraction, int]:
    return sum((entry[-2] for entry in row), Fraction(0)), sum(entry[-1] for entry in row)


def _shares(table: UserTable) -> list[tuple[Fraction, int]]:
    sums = table.sums[0]
    return [(sums.fraction(position), count) for position, count in enumerate(table.counts.tolist())]


def expected_users(columns: Columns, numbers: Sequence[Fraction | None]) -> Entries:
    """What the rules of reading make of the cells, in plain Python; `numbers` are the values, None where unusable."""
    held: dict[str, list[Fraction | None]] = {}
    for user, number in zip(columns[USER], numbers, strict=True):
        if (who := identity(user)) is not None:
            held.setdefault(who, []).append(number)
    return Counter(("user", *_share(of_user), len(of_user)) for of_user in held.values())


def expected_groups(
    columns: Columns, numbers: Sequence[Fraction | None], shown: Callable[[str], bool] = lambda _: True
) -> Entries:
    """The same by group, if everybody counts in all its groups; those that cannot be shown are none."""
    held: dict[str, dict[str, list[Fraction | None]]] = {}
    for user, group, number in zip(columns[USER], columns[GROUP], numbers, strict=True):
        if (who := identity(user)) is not None:
            row = held.setdefault(who, {})
            if (where := identity(group)) is not None and shown(where):
                row.setdefault(where, []).append(number)
    return Counter(
        _of_rows([("str", where, *_share(share)) for where, share in row.items()] for row in held.values())
    )


def _share(held: Sequence[Fraction | None]) -> tuple[Fraction, int]:
    usable = [number for number in held if number is not None]
    return sum(usable, Fraction(0)), len(usable)
