"""Statistics of the data without any privacy protection, for `hubermean check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.errors import InputError, parameter
from hubermean.ingest.duckdb.queries import DuckdbRows
from hubermean.ingest.duckdb.source import open_source
from hubermean.ingest.engine import mask_engine_errors
from hubermean.ingest.schema import ColumnRoles, KeyColumn, Schema, ValueColumn, alias_keys, require_keys
from hubermean.types.options import ReadOptions, TextKeywords
from hubermean.types.request import column_names

_EXAMPLES, _EXAMPLE_LENGTH = 8, 60
_INCOMPLETE = "the data could not be read completely; check that they are complete and well formed"
_KEPT = "inspected"  # the records of a stream, which can be selected from once


@dataclass(frozen=True, kw_only=True)
class UnsafeInspection:
    """Statistics that no mechanism protects: for the owner of the data, never for publication."""

    columns: tuple[tuple[str, str], ...]
    records: int
    records_without_user: int | None
    users: int | None
    records_per_user: tuple[int, ...] | None
    values: tuple[UnsafeColumn, ...]


@dataclass(frozen=True, kw_only=True)
class UnsafeColumn:
    """Statistics of a value column.

    Attributes:
        unusable: how many records of users have no usable value.
        examples: the most frequent cells among them as they are written, each with its number of records; a missing
            cell is None.
        minimum, median, maximum: of the usable values.
        user_means: smallest, 1%, median, 99% and largest mean of a user.
    """

    name: str
    unusable: int
    examples: tuple[tuple[str | None, int], ...]
    minimum: float | None
    median: float | None
    maximum: float | None
    user_means: tuple[float, ...] | None


def unsafe_inspection(
    data: Any, *, user: str | Sequence[str] | None, value: Sequence[str], **text: Unpack[TextKeywords]
) -> UnsafeInspection:
    """Return columns, counts, ranges and unusable cells of `data`, written as `text` says. Not private."""
    users = [] if user is None else column_names(user, "user")
    with open_source(data, ColumnRoles(users=users, values=list(value)), ReadOptions(**text)) as source:
        if not source.schema.types:
            raise InputError(
                f"give {parameter('user')} and {parameter('value')}: only columns that are named are read"
            )
        for name in users:
            source.schema.check_user(name)
        values = [source.schema.value_column(name, resolution=None, clamp_infinities=False) for name in value]

        def inspect() -> UnsafeInspection:
            with source.open() as rows:
                if rows.once:
                    assert rows.connection is not None
                    rows.connection.execute(
                        f"CREATE TEMP TABLE {_KEPT} AS SELECT * FROM {rows.name}"
                    ).fetchall()
                    rows = replace(rows, name=_KEPT, once=False)
                return _inspect_rows(rows, users, values, source.schema)

        return mask_engine_errors(inspect, _INCOMPLETE)


def _inspect_rows(
    rows: DuckdbRows, users: Sequence[str], values: Sequence[ValueColumn], declared: Schema
) -> UnsafeInspection:
    own = [rows.schema.key_column(name) for name in users]
    has_user = require_keys(own) or "true"
    keys = ", ".join(column.expression for column in own)
    records, without = rows.run(
        f"SELECT count(*), count(*) FILTER (NOT ({has_user})) FROM {rows.name}"
    ).fetchall()[0]
    n_users, per_user = None, None
    if users:
        n_users, per_user = rows.run(
            f"SELECT count(*), quantile_disc(its_count, [0, 0.5, 0.9, 0.99, 1]) FROM "
            f"(SELECT count(*) AS its_count FROM {rows.name} WHERE {has_user} GROUP BY {keys})"
        ).fetchall()[0]
    return UnsafeInspection(
        columns=tuple((name, str(kind)) for name, kind in declared.types.items()),
        records=records,
        records_without_user=without if users else None,
        users=n_users,
        records_per_user=None if per_user is None else tuple(per_user),
        values=tuple(_inspect_column(rows, own, has_user, value) for value in values),
    )


def _inspect_column(
    rows: DuckdbRows, users: Sequence[KeyColumn], has_user: str, value: ValueColumn
) -> UnsafeColumn:
    number = f"CAST({value.number} AS DOUBLE)"
    unusable, minimum, median, maximum = rows.run(
        f"SELECT count(*) FILTER (its_value IS NULL OR NOT isfinite(its_value)), "
        f"min(its_value) FILTER (isfinite(its_value)), median(its_value) FILTER (isfinite(its_value)), "
        f"max(its_value) FILTER (isfinite(its_value)) "
        f"FROM (SELECT {number} AS its_value FROM {rows.name} WHERE {has_user})"
    ).fetchall()[0]
    cell = f"CAST({rows.schema.dialect.quote(value.name)} AS VARCHAR)"
    examples = rows.run(
        f"SELECT cell, count(*) AS cells FROM "
        f"(SELECT {cell} AS cell, {number} AS its_value FROM {rows.name} WHERE {has_user}) "
        f"WHERE its_value IS NULL OR NOT isfinite(its_value) GROUP BY cell ORDER BY cells DESC, cell LIMIT {_EXAMPLES}"
    ).fetchall()
    means = None
    if users:
        selected, names = alias_keys(users, "user")
        means = rows.run(
            f"SELECT quantile_cont(its_mean, [0, 0.01, 0.5, 0.99, 1]) FROM "
            f"(SELECT avg(its_value) AS its_mean FROM "
            f"(SELECT {', '.join(selected)}, {number} AS its_value FROM {rows.name} WHERE {has_user}) "
            f"WHERE isfinite(its_value) GROUP BY {', '.join(names)})"
        ).fetchall()[0][0]
    return UnsafeColumn(
        name=value.name,
        unusable=unusable,
        examples=tuple((None if cell is None else cell[:_EXAMPLE_LENGTH], cells) for cell, cells in examples),
        minimum=minimum,
        median=median,
        maximum=maximum,
        user_means=None if means is None else tuple(means),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnsafeGroupEntries:
    """One entry per user and group with usable values: the number of the user, the group, and what it has there."""

    users: IntArray
    groups: IntArray
    keys: tuple[tuple[str, ...], ...]
    records: IntArray
    means: FloatArray


def unsafe_group_entries(
    data: Any, *, user: Sequence[str], value: str, by: Sequence[str], **text: Unpack[TextKeywords]
) -> UnsafeGroupEntries:
    """Return the number and the mean of usable values of each user in each group. Not private."""
    roles = ColumnRoles(users=user, values=[value], groups=by)
    with open_source(data, roles, ReadOptions(**text)) as source:
        for name in user:
            source.schema.check_user(name)
        for name in by:
            source.schema.check_group(name)
        column = source.schema.value_column(value, resolution=None, clamp_infinities=False)

        def read() -> UnsafeGroupEntries:
            with source.open() as rows:
                return _read_entries(rows, user, by, column)

        return mask_engine_errors(read, _INCOMPLETE)


def _read_entries(
    rows: DuckdbRows, user: Sequence[str], by: Sequence[str], value: ValueColumn
) -> UnsafeGroupEntries:
    own, groups = [
        [make(name) for name in names]
        for make, names in ((rows.schema.key_column, user), (rows.schema.group_column, by))
    ]
    selected_users, users = alias_keys(own, "user")
    selected_groups, names = alias_keys(groups, "group")
    texts = ", ".join(
        f"{group.identity(name)} AS key_{number}"
        for number, (group, name) in enumerate(zip(groups, names, strict=True))
    )
    found = rows.run(
        f"SELECT dense_rank() OVER (ORDER BY {', '.join(users)}) - 1 AS its_user, "
        f"dense_rank() OVER (ORDER BY {', '.join(names)}) - 1 AS its_group, {texts}, its_count, its_mean FROM "
        f"(SELECT {', '.join([*users, *names])}, count(*) AS its_count, avg(its_value) AS its_mean FROM "
        f"(SELECT {', '.join([*selected_users, *selected_groups])}, CAST({value.number} AS DOUBLE) AS its_value "
        f"FROM {rows.name} WHERE {require_keys([*own, *groups])}) "
        f"WHERE isfinite(its_value) GROUP BY {', '.join([*users, *names])})"
    ).fetchnumpy()
    codes = np.asarray(found["its_group"], dtype=np.int64)
    _, first = np.unique(codes, return_index=True)
    columns = [[str(key) for key in found[f"key_{number}"][first]] for number in range(len(by))]
    return UnsafeGroupEntries(
        users=np.asarray(found["its_user"], dtype=np.int64),
        groups=codes,
        keys=tuple(zip(*columns, strict=True)),
        records=np.asarray(found["its_count"], dtype=np.int64),
        means=np.asarray(found["its_mean"], dtype=np.float64),
    )
