"""`group_table`: any supported data, grouped by user and by the groups that means are wanted for."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hubermean.exact.adding import Membership
from hubermean.group_table import GroupTable, Key
from hubermean.ingest.columns import Schema, ValueColumn
from hubermean.ingest.engine import UNREADABLE, GroupsAsked, Limits, Roles
from hubermean.ingest.engines import engine_for
from hubermean.ingest.grouping import read_user_table
from hubermean.ingest.keys import checked_keys, decoded
from hubermean.ingest.read import ValueRule, require_apart
from hubermean.ingest.session import quietly
from hubermean.user_table import IntArray

if TYPE_CHECKING:
    import pyarrow as pa


def group_table(
    data: Any,
    *,
    user: Sequence[str],
    value: Sequence[str],
    by: Sequence[str],
    keys: Sequence[Key] | None,
    max_groups: int,
    pooled: bool,
    resolution: float | Decimal | Fraction | None = None,
    non_finite: str = "drop",
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    engine: str | None = None,
) -> GroupTable:
    """Group `data` by user and group in exact integers, in one pass, with each user in at most `max_groups` groups.

    A record without a group, or in a group that is not among the public `keys`, counts in none. `pooled` asks for a
    table of one group of each user as well. The other arguments are those of `user_table`.

    Formal guarantees: those of `user_table`; and which groups a user counts in follows from that user's records alone.
    """
    require_apart(user=user, value=value, by=by)
    rule = ValueRule.checked(resolution, non_finite)
    roles = Roles(users=user, values=value, groups=by)
    limits = Limits(memory_limit=memory_limit, threads=threads, progress=progress)
    with engine_for(data, engine).open(data, roles, limits) as source:
        schema = source.schema
        for name in user:
            schema.key(name)
        readers = rule.readers(schema, value)
        for name in by:
            schema.group(name)
        public = None if keys is None else checked_keys(keys, by, schema)
        most = None if keys is not None and len(keys) <= max_groups else max_groups
        table = source.entries(readers, GroupsAsked(keys=public, max_groups=most, pooled=pooled))

    def grouped() -> GroupTable:
        return _group_table(table, schema, readers, by, None if public is None else public.typed, pooled)

    return quietly(grouped, UNREADABLE)


def _group_table(
    table: pa.Table,
    schema: Schema,
    readers: Sequence[ValueColumn],
    by: Sequence[str],
    typed: Sequence[Key] | None,
    pooled: bool,
) -> GroupTable:
    """What an engine found (`Source.entries`) as a table."""
    pool = None
    if pooled:
        n_users = table.column("n_users")[0].as_py()
        table = table.filter(table.column("usable").is_valid())
        pool = n_users, np.flatnonzero(table.column("first").to_numpy())
    codes, found = _codes(table, by, typed, schema)
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


def _codes(
    table: pa.Table, by: Sequence[str], typed: Sequence[Key] | None, schema: Schema
) -> tuple[IntArray, Sequence[Key]]:
    """The number of each entry's group, and the groups; -1 where a group has no name, and so cannot appear."""
    if typed is not None:
        return table.column("code").to_numpy().astype(np.int64), typed
    combined = np.zeros(table.num_rows, dtype=np.int64)
    for number in range(len(by)):
        column = table.column(f"group_{number}").combine_chunks().dictionary_encode()
        codes = column.indices.to_numpy().astype(np.int64)
        # Renumbered after every column, so that the product stays small.
        combined = np.unique(combined * len(column.dictionary) + codes, return_inverse=True)[1]
    _, first = np.unique(combined, return_index=True)
    columns = [
        _names(table.column(f"group_{number}").take(first), schema, schema.types[name].id)
        for number, name in enumerate(by)
    ]
    keys = list(zip(*columns, strict=True))
    named = np.array([None not in key for key in keys], dtype=bool)
    if not named.all():
        combined = np.where(named, np.cumsum(named) - 1, -1)[combined]
    return combined, [key for key in keys if None not in key]


def _names(column: pa.ChunkedArray, schema: Schema, kind: str) -> list[Any]:
    """Keys of one column as Python has them, each judged by itself; None where it has no such value.

    Dates beyond the year 9999 and text that is no UTF-8 are such: neither may stop the release of the other groups, nor
    be shown as the same name as another key, for then one user could decide which of the two is shown.
    """
    try:
        keys = column.to_pylist()
    except (ArithmeticError, ValueError):
        keys = [_name(one) for one in column]
    if kind in ("ubigint", "hugeint", "uhugeint"):  # which may arrive as signed decimals of 128 bits
        return [int(one) % 2**128 if kind == "uhugeint" else int(one) for one in keys]
    if kind == "uuid":
        return [uuid.UUID(str(one)) for one in keys]
    return [decoded(one, schema) for one in keys]


def _name(key: pa.Scalar) -> Any:
    try:
        return key.as_py()
    except (ArithmeticError, ValueError):
        return None
