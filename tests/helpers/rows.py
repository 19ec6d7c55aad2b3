"""Rows of users over groups, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hubermean.data.group_table import GroupTable, Membership
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.groups.rows import UserRows

Row = Sequence[tuple[int, float, int]]
"""The entries of a user: group, mean, number of records."""


def make_table(users: Sequence[Row], groups: int) -> GroupTable:
    entries = [(owner, *entry) for owner, row in enumerate(users) for entry in row]
    owners, places, means, counts = (
        (list(column) for column in zip(*entries, strict=True)) if entries else ([],) * 4
    )
    return GroupTable(
        by=("group",),
        keys=tuple((f"g{number}",) for number in range(groups)),
        members=UserTable.from_means(
            np.array(means, dtype=float).reshape(-1, 1), np.array(counts, dtype=np.int64)
        ),
        membership=Membership(groups=np.array(places, dtype=np.int64), size=groups),
        owners=np.array(owners, dtype=np.int64),
        n_owners=len(users),
    )


def make_rows(users: Sequence[Row], groups: int) -> UserRows:
    table = make_table(users, groups)
    return UserRows(
        members=table.members,
        owners=table.owners,
        n_owners=table.n_owners,
        groups=table.membership.groups,
        n_groups=groups,
    )


def make_entries(owners: Sequence[int]) -> UserRows:
    """Rows of which only the owners matter, each entry in a group of its own."""
    count = len(owners)
    return UserRows(
        members=UserTable.from_means(np.zeros((count, 1))),
        owners=np.array(owners, dtype=np.int64),
        n_owners=max(owners, default=-1) + 1,
        groups=np.arange(count, dtype=np.int64),
        n_groups=count,
    )
