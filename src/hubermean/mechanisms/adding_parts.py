"""Sums of integers over all parts of a table, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubermean.user_table import PrivateTable, UserTable

Terms = list[list[int]]


def added_up(table: PrivateTable, statistic: Callable[[UserTable], Terms]) -> Terms:
    """The statistic of all users, if it is a sum over users: entry by entry, in integers of any size."""
    return _sum(table.each_part(_ByBlocks(statistic)))


@dataclass(frozen=True, repr=False)
class _ByBlocks:
    """The statistic of a part, of few enough users at a time for the processor's cache."""

    statistic: Callable[[UserTable], Terms]

    def __call__(self, part: UserTable) -> Terms:
        return _sum([self.statistic(block) for block in part.blocks()])


def _sum(parts: Sequence[Terms]) -> Terms:
    return [[sum(entries) for entries in zip(*terms, strict=True)] for terms in zip(*parts, strict=True)]
