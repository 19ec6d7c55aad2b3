"""The private table of a grouped release: what each user holds in each group that it counts in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubermean.exact.adding import Membership
from hubermean.user_table import IntArray, UserTable

Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupTable:
    """What is known of each user in each of its groups. Everything is private, but the keys where they were given.

    Attributes:
        by: names of the group columns.
        keys: the groups: all public ones, in the caller's order, or those that occur, in any order.
        members: one entry per user and group; no user has more entries than it may count in groups.
        membership: the number of each entry's group.
        pool: one entry per user, of one of its groups, users without any included; None unless it was asked for.
    """

    by: tuple[str, ...]
    keys: tuple[Key, ...]
    members: UserTable
    membership: Membership
    pool: UserTable | None = None

    def users_per_group(self) -> IntArray:
        """How many users count in each group, usable records or none."""
        return np.bincount(self.membership.groups, minlength=self.membership.size).astype(np.int64)

    def tables(self) -> Iterator[UserTable]:
        """The table of each group, in the order of the keys."""
        order = np.argsort(self.membership.groups, kind="stable")
        ends = np.cumsum(self.users_per_group())
        start = 0
        for end in ends.tolist():
            yield self.members.taken(order[start:end])
            start = end

    def __repr__(self) -> str:
        return f"GroupTable(by={self.by!r}, private contents not shown)"
