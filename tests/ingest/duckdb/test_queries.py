"""Sums and counts as one aggregate of the engine's: the same integers as two, or it is not used."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from hubermean.data.user_table import UserTable
from hubermean.ingest.duckdb import queries as rows
from hubermean.ingest.duckdb import source as duckdb_source
from hubermean.ingest.duckdb.queries import split_joint_state, supports_joint_state
from hubermean.ingest.schema import ColumnRoles
from hubermean.types.options import ReadOptions

USERS = [0, 0, 1, 1, 1, 2, 3, 3, None]


def numbers(kind: pa.DataType) -> pa.Table:
    """Records of four users, one of whom has none that is usable, and one of nobody."""
    written: list[Any] = [5, -7, 3, None, 9, None, 0, 1, 4]
    if pa.types.is_boolean(kind):
        written = [None if one is None else one > 2 for one in written]
    elif pa.types.is_decimal(kind):
        written = [None if one is None else Decimal(one) / 4 for one in written]
    elif pa.types.is_floating(kind):
        written = [5.1, -7e300, 3e-9, float("nan"), 9.25, None, -0.0, float("inf"), 4.0]
    elif pa.types.is_unsigned_integer(kind):
        written = [None if one is None else abs(one) for one in written]
    return pa.table({"user": pa.array(USERS, pa.int64()), "value": pa.array(written, kind)})


KINDS = [
    *(pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64(), pa.float32(), pa.float64()),
    *(
        pa.decimal128(4, 2),
        pa.decimal128(9, 2),
        pa.decimal128(18, 4),
        pa.decimal128(30, 2),
        pa.duration("ms"),
    ),
]


def read(table: pa.Table, values: list[str], *, records: bool = False) -> UserTable:
    with duckdb_source.open_source(
        table, ColumnRoles(users=["user"], values=values), ReadOptions()
    ) as source:
        readers = [
            source.schema.value_column(name, resolution=None, clamp_infinities=True) for name in values
        ]
        return source.read_users(readers, records=records)


def integers(table: UserTable) -> list[tuple[int, ...]]:
    return sorted(
        (int(table.counts[user]), int(table.records[user]), *(sums.integer(user) for sums in table.sums))
        for user in range(table.n_users)
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("records", [False, True])
def test_one_aggregate_makes_the_same_integers_as_two(
    kind: pa.DataType, records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = []
    fetch = rows.fetch
    monkeypatch.setattr(
        rows,
        "fetch",
        lambda query, *rest, **more: queries.append(query.sql_query()) or fetch(query, *rest, **more),
    )
    table = numbers(kind)
    jointly = read(table, ["value"], records=records)
    monkeypatch.setattr(rows, "supports_joint_state", lambda run: False)
    apart = read(table, ["value"], records=records)
    assert integers(jointly) == integers(apart)
    assert ["EXPORT_STATE" in query for query in queries] == [True, False]


def test_several_columns_count_the_records_that_are_usable_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    table = numbers(pa.float64())
    table = table.append_column("other", pa.array([1, None, 3, 4, 5, 6, 7, 8, 9], pa.int64()))
    jointly = read(table, ["other", "value"], records=True)
    monkeypatch.setattr(rows, "supports_joint_state", lambda run: False)
    assert integers(jointly) == integers(read(table, ["other", "value"], records=True))
    assert sorted(jointly.counts.tolist()) == [0, 1, 2, 2]


def test_the_installed_engine_supports_it() -> None:
    with duckdb.connect() as connection:
        assert supports_joint_state(connection.sql)


@pytest.mark.parametrize(
    "instead",
    [
        "SELECT 1 AS state",
        "SELECT nothing AS state",
        "SELECT {'count': 3, 'value': 3} AS state",
        f"SELECT {{'value': {3 - 2**101}::DECIMAL(38, 0), 'count': 3::UBIGINT}} AS state",
        f"SELECT {{'count': 3::UBIGINT, 'value': {4 - 2**101}::HUGEINT}} AS state",
        f"SELECT {{'count': 4::UBIGINT, 'value': {3 - 2**101}::HUGEINT}} AS state",
    ],
)
def test_an_engine_with_another_state_is_not_trusted(instead: str) -> None:
    with duckdb.connect() as connection:
        assert not supports_joint_state(lambda _: connection.sql(instead))


def test_another_state_in_the_answer_is_refused() -> None:
    table = pa.table({"state": [{"count": 1, "value": 2.0}]})
    with pytest.raises(TypeError, match="state"):
        split_joint_state(table)


def test_a_sum_beyond_128_bits_is_noticed() -> None:
    """The second query, with two parts, depends on that: a sum that wraps around would be wrong."""
    rows = 2**24
    with duckdb.connect() as connection, pytest.raises(duckdb.OutOfRangeException):
        connection.sql(
            f"SELECT avg(v) EXPORT_STATE FROM (SELECT i % 3 AS u, {2**103}::HUGEINT AS v "
            f"FROM range({3 * rows}) t(i)) GROUP BY u"
        ).to_arrow_table()


def test_users_are_those_of_plain_python() -> None:
    """Many users in many threads, each in records all over the table."""
    rng = np.random.default_rng(1)
    users = rng.integers(0, 5_000, 200_000) * 1_000_003
    values = rng.integers(-(2**62), 2**62, 200_000)
    found = read(pa.table({"user": users, "value": values}), ["value"])
    sums: dict[int, list[int]] = {}
    for user, value in zip(users.tolist(), values.tolist(), strict=True):
        sums.setdefault(user, [0, 0])
        sums[user][0] += 1
        sums[user][1] += value
    assert integers(found) == sorted((count, count, total) for count, total in sums.values())
