"""Ingest is exact: the same integers from every container, order and thread count, equal to rationals."""

from __future__ import annotations

import decimal
import gzip
import uuid
from collections import defaultdict
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.neighbors import exact_sum, sums_by_size
from hubermean.ingest.duckdb.queries import DuckdbRows
from hubermean.ingest.reading import user_table


def sample(rows: int = 5_000, users: int = 300, seed: int = 0) -> pa.Table:
    generator = np.random.default_rng(seed)
    values = generator.standard_t(2, rows) * 10.0 ** generator.integers(-12, 12, rows)
    values[:4] = [1e12, -1e12, 1e-12, 2.0**-60]
    return pa.table({"u": generator.integers(0, users, rows), "v": values})


def rational(table: pa.Table) -> list[tuple[Fraction, int, int]]:
    """The oracle: exact rational sums per user, in Python."""
    records: dict[int, list[float]] = defaultdict(list)
    for user, value in zip(table["u"].to_pylist(), table["v"].to_pylist(), strict=True):
        records[user].append(value)
    return sorted((exact_sum(values), len(values), len(values)) for values in records.values())


def containers(table: pa.Table, folder: Path) -> dict[str, Any]:
    pq.write_table(table, folder / "t.parquet", row_group_size=700)
    half = table.num_rows // 2
    for number, part in enumerate([table.slice(0, half), table.slice(half)]):
        pq.write_table(part, folder / f"part-{number}.parquet")
    frame = table.to_pandas()
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "t.tsv", index=False, sep="\t")
    frame.to_csv(folder / "t.csv.gz", index=False)
    frame.to_json(folder / "t.jsonl", orient="records", lines=True, double_precision=15)
    lines = [f'{{"u": {u}, "v": {v!r}}}\n' for u, v in zip(frame["u"], frame["v"].tolist(), strict=True)]
    (folder / "t.jsonl").write_text("".join(lines))
    with gzip.open(folder / "t.ndjson.gz", "wt") as zipped:
        zipped.writelines(lines)
    return {
        "parquet": folder / "t.parquet",
        "parquet glob": str(folder / "part-*.parquet"),
        "csv": folder / "t.csv",
        "tsv": folder / "t.tsv",
        "csv.gz": folder / "t.csv.gz",
        "jsonl": folder / "t.jsonl",
        "ndjson.gz": folder / "t.ndjson.gz",
        "pandas": frame,
        "pandas arrow dtypes": frame.convert_dtypes(dtype_backend="pyarrow"),
        "polars": pl.from_arrow(table),
        "polars lazy": pl.from_arrow(table).lazy(),
        "arrow": table,
        "arrow chunks": pa.concat_tables([table.slice(0, half), table.slice(half)]),
        "arrow reader": table.to_reader(max_chunksize=123),
        "arrow data set": ds.dataset(folder / "t.parquet"),
        "sql": hm.sql("select u, v from t", files=[folder / "t.parquet"]),
        "sql csv": hm.sql("select u, try_cast(v as double) as v from t", files=[folder / "t.csv"]),
    }


def test_the_same_bits_from_every_container(tmp_path: Path) -> None:
    table = sample()
    oracle = rational(table)
    for name, data in containers(table, tmp_path).items():
        assert sums_by_size(user_table(data, user="u", value="v")) == oracle, name
    with duckdb.connect() as connection:
        relation = connection.sql(f"select * from '{tmp_path / 't.parquet'}'")
        assert sums_by_size(user_table(relation, user="u", value="v")) == oracle


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_bits_for_every_order_and_thread_count(threads: int, tmp_path: Path) -> None:
    table = sample(rows=200_000, users=2_000, seed=1)
    oracle = rational(table)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(table.num_rows)
        path = tmp_path / f"{seed}.parquet"
        pq.write_table(table.take(order), path, row_group_size=20_000)
        assert sums_by_size(user_table(path, user="u", value="v", threads=threads)) == oracle


def test_spilling_to_disk_changes_nothing(tmp_path: Path) -> None:
    table = sample(rows=400_000, users=200_000, seed=2)
    pq.write_table(table, tmp_path / "t.parquet")
    in_memory, spilled = (
        user_table(tmp_path / "t.parquet", user="u", value="v", memory_limit=limit, threads=1)
        for limit in (None, "60MB")
    )
    assert sums_by_size(spilled) == sums_by_size(in_memory)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_sums_equal_rationals(rows: list[tuple[int, float]]) -> None:
    table = pa.table(
        {"u": pa.array([u for u, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.float64())}
    )
    assert sums_by_size(user_table(table, user="u", value="v")) == rational(table)


def one_user(values: Any, kind: pa.DataType | None = None, **options: Any) -> tuple[Fraction, int, int]:
    column = pa.array(values, kind) if kind is not None else values
    table = user_table(pa.table({"u": [1] * len(values), "v": column}), user="u", value="v", **options)
    return sums_by_size(table)[0]


@pytest.mark.parametrize(
    ("values", "kind", "total"),
    [
        ([1, -2, 2**62, 2**62], pa.int64(), Fraction(2**63 - 1)),
        ([1, 2, None], pa.int8(), Fraction(3)),
        ([2**64 - 1, 5], pa.uint64(), Fraction(2**63 - 1 + 5)),
        ([True, False, True, None], pa.bool_(), Fraction(2)),
        ([0.1, 0.2], pa.float32(), Fraction(float(np.float32(0.1))) + Fraction(float(np.float32(0.2)))),
        ([1.5, -0.25], pa.float16(), Fraction(5, 4)),
        ([decimal.Decimal("1.10"), decimal.Decimal("-0.03")], pa.decimal128(12, 2), Fraction(107, 100)),
        (
            [decimal.Decimal("1e20"), decimal.Decimal("0.0000000001")],
            pa.decimal128(38, 10),
            10**20 + Fraction(1, 10**10),
        ),
        (
            [decimal.Decimal("-9e19"), decimal.Decimal("-0.5")],
            pa.decimal128(38, 18),
            Fraction(-(2**63 - 1)) - Fraction(1, 2),
        ),
        (
            [timedelta(seconds=1.5), None, timedelta(microseconds=-1)],
            pa.duration("us"),
            Fraction(1499999, 10**6),
        ),
        ([10**12, 1], pa.duration("s"), Fraction(10**12 + 1)),
        ([1, 2], pa.duration("ns"), Fraction(3, 10**9)),
    ],
)
def test_every_value_type_is_summed_exactly(values: list[Any], kind: pa.DataType, total: Fraction) -> None:
    found, count, records = one_user(values, kind)
    assert (
        abs(found - total) < 1 if kind == pa.decimal128(38, 18) else found == total
    )  # the former is clamped
    assert (count, records) == (sum(value is not None for value in values), len(values))


def test_sums_beyond_128_bits_are_exact() -> None:
    """One user with twenty million records at the limit: the engine's one sum overflows, its two parts do not."""
    with duckdb.connect() as connection:
        relation = connection.sql("select 1 as u, 8e12::double as v from range(20_000_000)")
        table = user_table(relation, user="u", value="v")
    assert sums_by_size(table) == [(Fraction(8 * 10**12 * 20_000_000), 20_000_000, 20_000_000)]


@pytest.mark.parametrize("non_finite", ["drop", "clamp"])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.floats(), st.none() | st.floats(-1e13, 1e13)), min_size=1, max_size=30
    )
)
@example(
    rows=[(0, -(2.0**42), 1.0), (0, -(2.0**42), 1.0), (0, -(2.0**-60), 1.0)]
)  # upper parts add up to -2^63
@example(rows=[(0, 2.0**42, 1.0), (0, 2.0**42, 1.0), (0, 2.0**-60, 1.0)])
@example(rows=[(0, number * 2.0**-61, 3.0) for number in (1, 3, 5, -1, -3, 2**41 + 1)])  # halves of a unit
@example(rows=[(0, number, None) for number in (float("nan"), float("inf"), -float("inf"), 8e12, -9e12, 0.0)])
@settings(max_examples=12, deadline=None)
def test_the_roomy_query_gives_the_same_integers(
    non_finite: str, rows: list[tuple[int, float, float | None]]
) -> None:
    users, first, second = zip(*rows, strict=True)
    table = pa.table(
        {
            "u": pa.array(users, pa.int64()),
            "v": pa.array(first, pa.float64(), from_pandas=False),
            "w": pa.array(second, pa.float64(), from_pandas=False),
        }
    )
    for value in ("v", ["v", "w"], ["w", "v"]):
        plain = user_table(table, user="u", value=value, non_finite=non_finite)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DuckdbRows, "_with_room", lambda self, grouped: grouped(True))
            roomy = user_table(table, user="u", value=value, non_finite=non_finite)
        assert sums_by_size(roomy) == sums_by_size(plain)
        # To the last bit: what floats make of a user must not depend on how the sums were added up.
        assert sorted(map(repr, roomy.means.tolist())) == sorted(map(repr, plain.means.tolist()))


def test_a_missing_value_does_not_change_how_pandas_integers_are_read() -> None:
    whole = pd.DataFrame({"u": [1, 2], "v": [9 * 10**12, 9 * 10**12]})
    missing = pd.DataFrame({"u": [1, 2], "v": [9 * 10**12, None]})
    first, second = (user_table(frame, user="u", value="v") for frame in (whole, missing))
    assert first.sums[0].encoding == second.sums[0].encoding
    nullable = whole.astype({"v": "Int64"})  # which one float would turn into floats, too
    assert sums_by_size(user_table(nullable, user="u", value="v")) == sums_by_size(first)


def test_durations_of_files_and_pandas_are_seconds(tmp_path: Path) -> None:
    frame = pd.DataFrame({"u": [1, 1], "v": pd.to_timedelta([1500, 250], unit="ms")})
    assert sums_by_size(user_table(frame, user="u", value="v"))[0][0] == Fraction(7, 4)
    with duckdb.connect() as connection:
        relation = connection.sql("select 1 as u, interval '90 seconds' as v")
        assert sums_by_size(user_table(relation, user="u", value="v"))[0][0] == 90


@pytest.mark.parametrize("resolution", [0.01, decimal.Decimal("0.01"), Fraction(1, 100)])
def test_a_resolution_rounds_each_record(resolution: Any) -> None:
    assert one_user([0.294, 1e-9, -0.296, 1e300], resolution=resolution)[0] == Fraction(
        29 - 30 + 92 * 10**17, 100
    )
    assert one_user([3, 4], pa.int64(), resolution=resolution)[0] == 7


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1, 2, 1, None], pa.int32()),
        pa.array(["a", "b", "a", None]),
        pa.array(["a", "b", "a", None]).dictionary_encode(),
        pa.array([1.0, 2.0, 1.0, float("nan")]),
        pa.array([uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes, uuid.UUID(int=1).bytes, None], pa.uuid()),
        pa.array([decimal.Decimal(1), decimal.Decimal(2), decimal.Decimal(1), None]),
    ],
)
def test_every_key_type_groups_users_and_drops_the_rest(keys: pa.Array) -> None:
    table = user_table(pa.table({"u": keys, "v": [1.0, 2.0, 4.0, 8.0]}), user="u", value="v")
    assert sums_by_size(table) == [(2, 1, 1), (5, 2, 2)]


def test_several_key_columns_and_pandas_objects() -> None:
    frame = pd.DataFrame({"a": [1, 1, 1, 2], "b": ["x", "y", "x", None], "v": [1.0, 2.0, 4.0, 8.0]})
    assert sums_by_size(user_table(frame, user=["a", "b"], value="v")) == [(2, 1, 1), (5, 2, 2)]
    frame["o"] = pd.Series([7, [1, 2], "7", None], dtype=object)  # a list is no identity: dropped
    frame["c"] = pd.Categorical(["p", "q", "p", None])
    assert sums_by_size(user_table(frame, user="o", value="v")) == [(5, 2, 2)]
    assert sums_by_size(user_table(frame, user="c", value="v")) == [(2, 1, 1), (5, 2, 2)]


def test_the_mean_on_a_grid_does_not_depend_on_the_container(tmp_path: Path) -> None:
    """Whole numbers are one part in Parquet and two parts in CSV; the rounded means are the same integers."""
    from hubermean.data.fixed_point import round_means

    table = pa.table({"u": [1, 1, 1, 2, 2, 3], "v": [10, 11, 13, -5, 2, 7]})
    pq.write_table(table, tmp_path / "t.parquet")
    table.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    found = []
    for name in ("t.parquet", "t.csv"):
        read = user_table(tmp_path / name, user="u", value="v")
        means = round_means(read.sums[0], read.counts, exponent=-30, low=-(2**40), high=2**40)
        found.append(sorted(means.tolist()))
    assert found[0] == found[1]


def test_user_table_shows_no_number_and_is_read_only() -> None:
    table = user_table(pa.table({"u": [41, 41, 43], "v": [47.0, 53.0, 59.0]}), user="u", value="v")
    assert not any(digit in repr(table) for digit in "0123456789")
    with pytest.raises(ValueError, match="read-only"):
        table.counts[0] = 5
    assert sorted(table.means.tolist()) == [50.0, 59.0]
    assert not hasattr(table, "users")
