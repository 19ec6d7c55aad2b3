"""From what an engine finds per user and group to a `GroupTable`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hubermean.exact.adding import Membership
from hubermean.group_table import GroupTable, Key
from hubermean.ingest.columns import ValueColumn
from hubermean.ingest.engine import PublicKeys
from hubermean.ingest.grouping import read_user_table
from hubermean.ingest.identity import has_name
from hubermean.user_table import IntArray

if TYPE_CHECKING:
    import pyarrow as pa


def group_table_of(
    table: pa.Table,
    readers: Sequence[ValueColumn],
    by: Sequence[str],
    public: PublicKeys | None,
    *,
    pooled: bool,
) -> GroupTable:
    """What an engine found (`Source.entries`) as a table."""
    pool = None
    if pooled:
        n_users = table.column("n_users")[0].as_py()
        table = table.filter(table.column("usable").is_valid())
        pool = n_users, np.flatnonzero(table.column("first").to_numpy())
    codes, found = _codes(table, by, public)
    everything = read_user_table(table, readers)
    members = everything
    if (codes < 0).any():  # groups that have no name; the pool is that of all groups, named or not
        named = np.flatnonzero(codes >= 0)
        codes, members = codes[named], everything.taken(named)
    return GroupTable(
        by=tuple(by),
        keys=tuple(found),
        members=members,
        membership=Membership(groups=codes, size=len(found)),
        pool=None if pool is None else everything.taken(_padded(*pool)),
    )


def _padded(n_users: int, positions: IntArray) -> IntArray:
    """One entry per user: where one is, else -1."""
    return np.concatenate([positions, np.full(n_users - len(positions), -1)]).astype(np.int64)


def _codes(table: pa.Table, by: Sequence[str], public: PublicKeys | None) -> tuple[IntArray, Sequence[Key]]:
    """The number of each entry's group, and the groups; -1 where a group has no name, and so cannot appear."""
    if public is not None:
        return table.column("code").to_numpy().astype(np.int64), public.given
    combined = np.zeros(table.num_rows, dtype=np.int64)
    for number in range(len(by)):
        column = table.column(f"group_{number}").combine_chunks().dictionary_encode()
        codes = column.indices.to_numpy().astype(np.int64)
        # Renumbered after every column, so that the product stays small.
        combined = np.unique(combined * len(column.dictionary) + codes, return_inverse=True)[1]
    _, first = np.unique(combined, return_index=True)
    columns = [map(_name, table.column(f"group_{number}").take(first)) for number in range(len(by))]
    keys = list(zip(*columns, strict=True))
    named = np.array([all(map(has_name, key)) for key in keys], dtype=bool)
    if not named.all():
        combined = np.where(named, np.cumsum(named) - 1, -1)[combined]
    return combined, [key for key, has in zip(keys, named.tolist(), strict=True) if has]


def _name(key: pa.Scalar) -> str | None:
    """A name as text; None where it is no UTF-8: that may not stop the release of the other groups."""
    try:
        name: str | None = key.as_py()
    except UnicodeDecodeError:
        return None
    return name
