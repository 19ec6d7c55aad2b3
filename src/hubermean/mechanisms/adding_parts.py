"""Sums of integers over all parts of a table, in one pass."""

from __future__ import annotations

from collections.abc import Callable

from hubermean.user_table import PrivateTable, UserTable


def added_up(table: PrivateTable, statistic: Callable[[UserTable], list[list[int]]]) -> list[list[int]]:
    """The statistic of all users, if it is a sum over users: entry by entry, in integers of any size."""
    parts = table.each_part(statistic)
    return [[sum(entries) for entries in zip(*terms, strict=True)] for terms in zip(*parts, strict=True)]
