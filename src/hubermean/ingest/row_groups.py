"""Parquet files cut between their row groups, so that several threads may read them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RowGroups:
    """Row groups that follow each other, by file; with the number of their first record and how many they have."""

    groups: tuple[tuple[str, tuple[int, ...]], ...]
    first: int
    records: int


def shares_of(paths: Sequence[str], wanted: int) -> list[RowGroups]:
    """All records of some files, cut between row groups into so many shares at most, of about one size."""
    import pyarrow.parquet as pq

    sizes = [
        (path, number, footer.row_group(number).num_rows)
        for path in paths
        for footer in [pq.read_metadata(path)]
        for number in range(footer.num_row_groups)
    ]
    records = sum(size for _, _, size in sizes)
    shares, first = [], 0
    ends = itertools.accumulate(size for _, _, size in sizes)
    # A row group belongs to the share in which it ends.
    by_share = itertools.groupby(
        zip(sizes, ends, strict=True), lambda one: max(one[1] - 1, 0) * wanted // max(records, 1)
    )
    for _, members in by_share:
        mine = [size for size, _ in members]
        groups = [
            (path, tuple(number for _, number, _ in some))
            for path, some in itertools.groupby(mine, lambda size: size[0])
        ]
        count = sum(size for _, _, size in mine)
        shares.append(RowGroups(groups=tuple(groups), first=first, records=count))
        first += count
    return shares
