"""Sums of doubles in parts equal the 128-bit sums, whatever the statistics of a file say."""

from __future__ import annotations

import struct
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubermean.ingest.duckdb import queries as rows
from hubermean.ingest.duckdb import source
from hubermean.ingest.duckdb.coarse_sums import CoarseSums
from hubermean.ingest.duckdb.fast_sums import DoubleParts, SumOverflowError, choose_fast_sums
from hubermean.ingest.files import FileSet
from hubermean.ingest.reading import group_table, user_table
from hubermean.ingest.schema import ColumnRoles
from hubermean.types.options import ReadOptions

N_ROWS, N_USERS = 6_000, 300
RNG = np.random.default_rng(3)
USERS = RNG.integers(0, N_USERS, N_ROWS)


def doubles(scale: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Doubles of all magnitudes below a scale, with special ones: zeros, halves of a unit, smaller ones, NaN."""
    values = scale * RNG.uniform(-1, 1, N_ROWS) * 2.0 ** -RNG.integers(0, 70, N_ROWS)
    values[:8] = [0.0, -0.0, 2.0**-61, -(2.0**-61), 3 * 2.0**-61, 5e-324, np.nan, scale]
    return values


VALUES = {
    "tiny": doubles(1e-9),
    "below 8": doubles(7.9),
    "prices": np.round(RNG.exponential(100.0, N_ROWS), 2),
    "wide": doubles(1e6),
    "near the limit": doubles(2.0**42 * (1 - 2.0**-19)),
    "beyond it": doubles(2.0**42),
    "clamped": doubles(1e15),
    "float32": doubles(3e5).astype(np.float32),
    "infinite": np.where(np.arange(N_ROWS) % 50 == 1, np.inf, doubles(9.0)),
}
FAST = {"tiny", "below 8", "prices", "wide", "near the limit", "float32"}


@pytest.fixture(autouse=True)
def small_files_use_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MIN_FILE_BYTES", 0)


def written(
    path: Path,
    values: np.ndarray[Any, Any],
    *,
    users: np.ndarray[Any, Any] = USERS * 2**40 + 1,
    **options: Any,
) -> Path:
    column = pa.array(values, mask=np.arange(len(values)) % 13 == 12)
    pq.write_table(
        pa.table({"user": users, "group": users * 0 + 7, "value": column}),
        path,
        row_group_size=1_000,
        **options,
    )
    return path


def unit_integer(value: float) -> int | None:
    """The rule in plain fractions; `round` is half to even."""
    if not np.isfinite(value):
        return None
    return round(Fraction(float(np.clip(value, -8e12, 8e12))) * 2**60)


def expected(values: np.ndarray[Any, Any], way: str = "users") -> list[tuple[int, ...]]:
    """Sums and numbers of usable records, for users also of all records."""
    found: dict[int, list[int]] = {}
    for place, (user, value) in enumerate(zip(USERS.tolist(), values.tolist(), strict=True)):
        sums = found.setdefault(user, [0, 0, 0])
        integer = None if place % 13 == 12 else unit_integer(value)
        sums[0] += integer or 0
        sums[1] += integer is not None
        sums[2] += 1
    return sorted(tuple(sums[: 2 if way == "groups" else 3]) for sums in found.values())


WAYS = ("users", "groups")


def read(path: Path | str, way: str = "users", **given: Any) -> list[tuple[int, ...]]:
    """Read users, with sums in coarse units; or all of them in one group, with sums in parts."""
    if way == "users":
        table = user_table(path, user="user", value="value", **given).collect()
    else:
        how = {"by": ["group"], "keys": None, "max_groups": None, **given}
        table = group_table(path, user=["user"], value=["value"], **how).users()
    return sorted(
        (
            table.sums[0].integer(user),
            int(table.counts[user]),
            *table.records[user : user + 1][way == "groups" :],
        )
        for user in range(table.n_users)
    )


def in_parts(query: str) -> bool:
    return "size_0" in query or "remainder" in query


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the queries that read a file from now on."""
    asked: list[str] = []
    fetch = rows.fetch

    def noted(query: Any, *args: Any, **more: Any) -> Any:
        asked.append(query.sql_query())
        return fetch(query, *args, **more)

    monkeypatch.setattr(rows, "fetch", noted)
    return asked


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VALUES)
def test_sums_are_those_of_plain_fractions(way: str, name: str, tmp_path: Path, queries: list[str]) -> None:
    path = written(tmp_path / "a.parquet", VALUES[name])
    assert read(path, way) == expected(VALUES[name], way)
    # Sums near the limit do not fit the upper part of the encoding, and are computed again.
    repeated = [False] if name == "near the limit" and way == "groups" else []
    assert [*map(in_parts, queries)] == [name in FAST, *repeated]


def test_ids_that_index_an_array_give_the_same(tmp_path: Path, queries: list[str]) -> None:
    path = written(tmp_path / "a.parquet", VALUES["wide"], users=USERS)
    assert read(path) == read(path, memory_limit="1GB") == expected(VALUES["wide"])
    assert [*map(in_parts, queries)] == [True, True]


def test_files_of_one_table_share_the_parts(tmp_path: Path, queries: list[str]) -> None:
    values = VALUES["wide"] * np.where(np.arange(N_ROWS) < 3_000, 1e-6, 1.0)
    for part in range(2):
        share = slice(part * 3_000, (part + 1) * 3_000)
        column = pa.array(values[share], mask=np.arange(N_ROWS)[share] % 13 == 12)
        pq.write_table(pa.table({"user": USERS[share], "value": column}), tmp_path / f"part-{part}.parquet")
    assert read(tmp_path / "part-*.parquet") == expected(values)
    assert len(queries) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{"write_statistics": False}, {"write_statistics": ["user"]}])
def test_without_statistics_sums_are_of_128_bits(
    way: str, options: dict[str, Any], tmp_path: Path, queries: list[str]
) -> None:
    path = written(tmp_path / "a.parquet", VALUES["wide"], **options)
    assert read(path, way) == expected(VALUES["wide"], way)
    assert [*map(in_parts, queries)] == [False]


def test_small_files_are_read_without_statistics(
    tmp_path: Path, queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.parquet", VALUES["wide"])
    monkeypatch.setattr(source, "MIN_FILE_BYTES", path.stat().st_size + 1)
    assert read(path) == expected(VALUES["wide"])
    monkeypatch.setattr(source, "MIN_FILE_BYTES", path.stat().st_size)
    assert read(path) == expected(VALUES["wide"])
    assert [*map(in_parts, queries)] == [False, True]


def test_infinite_values_that_are_clamped_are_left_to_128_bits(tmp_path: Path, queries: list[str]) -> None:
    path = written(tmp_path / "a.parquet", VALUES["wide"])
    assert read(path, non_finite="clamp") == expected(VALUES["wide"])
    assert [*map(in_parts, queries)] == [False]


def change_pages(path: Path, claimed: float, true: float) -> None:
    """Put another value into the pages of a file, and leave its statistics as they are."""
    content = path.read_bytes()
    foot = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    old, new = struct.pack("<d", claimed), struct.pack("<d", true)
    assert content.count(old, 0, foot) > 0
    assert content.count(old, foot) > 0
    path.write_bytes(content[:foot].replace(old, new) + content[foot:])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("true_value", [1e6, 3e12, np.inf, np.nan])
def test_a_wrong_statistic_changes_no_sum(
    way: str, true_value: float, tmp_path: Path, queries: list[str]
) -> None:
    """A writer that is wrong about its largest value costs a second query; it must not cost anybody a record."""
    values = np.clip(VALUES["prices"], 0.0, 500.0)
    values[78] = claimed = 1000.125
    path = written(tmp_path / "a.parquet", values, use_dictionary=False, compression="none")
    change_pages(path, claimed, true_value)
    values[78] = true_value
    assert read(path, way) == expected(values, way)
    assert [*map(in_parts, queries)] == ([True] if not np.isfinite(true_value) else [True, False])


@pytest.mark.parametrize("way", WAYS)
def test_remainders_that_statistics_deny_are_added(way: str, tmp_path: Path, queries: list[str]) -> None:
    """The statistics claim one value, which has one part."""
    claimed, true = 2.0**-9, 2.0**-9 * (1 + 2.0**-51)
    assert unit_integer(true) == 2**51 + 1
    path = written(tmp_path / "a.parquet", np.full(N_ROWS, claimed), use_dictionary=False, compression="none")
    change_pages(path, claimed, true)
    assert read(path, way) == expected(np.full(N_ROWS, true), way)
    assert [*map(in_parts, queries)] == [True]


@pytest.mark.parametrize("way", WAYS)
def test_a_sum_that_does_not_fit_is_computed_in_128_bits(
    way: str, tmp_path: Path, queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise SumOverflowError

    monkeypatch.setattr(DoubleParts, "read_sums", full)
    monkeypatch.setattr(CoarseSums, "combine_words", full)
    assert read(written(tmp_path / "a.parquet", VALUES["wide"]), way) == expected(VALUES["wide"], way)
    assert [*map(in_parts, queries)] == [True, False]


magnitudes = st.integers(-20, 42)


@given(magnitudes, st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 80)), min_size=1, max_size=40))
@example(42, [(1.0, 0), (-1.0, 0), (1.0, 42 + 61), (2.0**-60 * 3, 43)])
def test_parts_of_a_double_add_up_to_its_integer(magnitude: int, drawn: list[tuple[float, int]]) -> None:
    parts = DoubleParts.up_to(magnitude)
    for fraction, smaller in drawn:
        rest = value = float(np.ldexp(fraction, magnitude - smaller))
        total, bound = 0, 2.0**magnitude
        for unit in parts.units:
            middle = 1.5 * 2.0 ** (52 - unit)
            part = (rest + middle) - middle
            assert abs(part) <= bound
            assert parts.max_records * bound * 2.0**unit <= 2.0**53
            assert (part * 2.0**unit).is_integer()
            total += int(part * 2.0**unit) << (60 - unit)
            assert Fraction(rest) - Fraction(part) == Fraction(rest - part), "the difference is exact"
            rest, bound = rest - part, 2.0 ** (-unit - 1)
        assert total == unit_integer(value)
    assert parts.max_records >= 2**10


@given(st.integers(-20, 30), st.data())
def test_sums_of_parts_are_combined_exactly(magnitude: int, data: st.DataObject) -> None:
    parts = DoubleParts.up_to(magnitude)
    reach = [2 ** min(53, 39 + parts.units[0]), *[2**53] * (len(parts.units) - 1)]
    drawn = [data.draw(st.lists(st.integers(-most, most), min_size=3, max_size=3)) for most in reach]
    sums = [np.array(own) * 2.0**-unit for own, unit in zip(drawn, parts.units, strict=True)]
    found = parts.read_sums([[one[:2] for one in sums], [one[2:] for one in sums]], np.array([1, 2, 3]))
    wanted = [
        sum(own[user] << (60 - unit) for own, unit in zip(drawn, parts.units, strict=True))
        for user in range(3)
    ]
    assert [found.integer(user) for user in range(3)] == wanted
    assert found.low.small.min() >= 0
    assert found.low.small.max() < 2**40


def test_a_sum_that_may_not_be_exact_is_refused() -> None:
    parts = DoubleParts.up_to(9)
    fine = [np.array([1.0]), np.array([2.0**-60])]
    assert parts.read_sums([fine], np.array([parts.max_records])).integer(0) == 2**60 + 1
    for sums, count in (
        (fine, parts.max_records + 1),
        ([np.array([1.0 + 2.0**-50]), fine[1]], 1),  # the split was not made as it is written
        ([fine[0], np.array([2.0**-61])], 1),
        ([np.array([np.nan]), fine[1]], 1),
        ([np.array([2.0**41]), fine[1]], 1),
    ):
        with pytest.raises(SumOverflowError):
            parts.read_sums([sums], np.array([count]))


def test_more_records_than_are_exact_cost_a_second_query(
    tmp_path: Path, queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DoubleParts, "max_records", 3)
    assert read(written(tmp_path / "a.parquet", VALUES["wide"]), "groups") == expected(
        VALUES["wide"], "groups"
    )
    assert [*map(in_parts, queries)] == [True, False]


def test_parts_are_as_fine_as_the_largest_value_allows(tmp_path: Path) -> None:
    def magnitude(*values: float) -> int | None:
        path = tmp_path / "b.parquet"
        pq.write_table(pa.table({"value": pa.array(values, pa.float64())}), path)
        with source.open_source(str(path), ColumnRoles(users=[], values=["value"]), ReadOptions()) as opened:
            value = opened.schema.value_column("value", resolution=None, clamp_infinities=False)
        with duckdb.connect() as connection:
            found = choose_fast_sums(connection, FileSet.find(path), [value])
            assert choose_fast_sums(connection, FileSet.find(path), [replace(value, name="other")]) is None
        return None if found is None or found.parts[0] is None else found.parts[0].magnitude

    assert magnitude(0.0) == 0
    assert magnitude(1e-300) == -20
    assert magnitude(-255.0, 3.0) == 8
    assert magnitude(256.0) == magnitude(-256.0) == 9
    assert magnitude(2.0**41) == 42
    assert magnitude(2.0**42) is None
    assert magnitude(1.797e308) is None
    assert magnitude(float("inf"), 1.0) is None
    assert magnitude(float("nan")) is None
    assert magnitude() is None


words = st.integers(-(2**63), 2**63 - 1)


@example([(2**87 - 1, 2**63 - 1), (-(2**87), -(2**63))], 21)
@example([(2**87, 0)], 21)
@example([(-(2**87) - 1, 0)], 21)
@given(st.lists(st.tuples(st.integers(-(2**101), 2**101 - 1), words), min_size=1), st.integers(21, 59))
def test_coarse_units_and_remainders_are_combined_exactly(sums: list[tuple[int, int]], bits: int) -> None:
    low = np.array([units & (2**64 - 1) for units, _ in sums], dtype=np.uint64).view(np.int64)
    high = np.array([units >> 64 for units, _ in sums])
    totals = [(units << (60 - bits)) + remainder for units, remainder in sums]

    def added() -> Any:
        return CoarseSums(number="", bits=bits).combine_words(
            low, high, np.array([remainder for _, remainder in sums])
        )

    if any(not -(2**126) <= units << (60 - bits) < 2**126 for units, _ in sums):
        with pytest.raises(SumOverflowError):
            added()
        return
    below, above = added()
    found = [int(h) * 2**64 + int(w) for w, h in zip(below.view(np.uint64), above, strict=True)]
    assert found == totals


@pytest.mark.parametrize("magnitude", [20, 40, 41])
def test_what_several_numbers_together_leave_room_for_is_within_the_limit(
    magnitude: int, tmp_path: Path
) -> None:
    path, names = tmp_path / "c.parquet", ["a", "b", "c"]
    pq.write_table(pa.table({name: [0.75 * 2.0**magnitude] for name in names}), path)
    with source.open_source(str(path), ColumnRoles(users=[], values=names), ReadOptions()) as opened:
        values = [opened.schema.value_column(name, resolution=None, clamp_infinities=False) for name in names]
    with duckdb.connect() as connection:
        found = choose_fast_sums(connection, FileSet.find(path), values)
    if magnitude + 2 > 42:
        assert found is None  # a value that statistics leave out may be beyond the limit of the encoding
    else:
        assert found is not None
        assert [part.magnitude for part in found.parts if part is not None] == 3 * [magnitude + 2]


MANY: dict[str, list[Any]] = {
    "a": VALUES["wide"].tolist(),
    "b": VALUES["prices"].tolist(),
    "whole": RNG.integers(-(2**62), 2**62, N_ROWS).tolist(),
    "price": [Decimal(cents).scaleb(-2) for cents in RNG.integers(-(10**9), 10**9, N_ROWS).tolist()],
    "large": doubles(2.0**30).tolist(),
}


def sums_of_usable_records(columns: dict[str, list[Any]]) -> list[tuple[int, ...]]:
    held: dict[int, list[Any]] = {}
    for place, user in enumerate(USERS.tolist()):
        sums = held.setdefault(user, [0, *[Fraction(0)] * len(columns)])
        cells = [held_there[place] for held_there in columns.values()]
        if any(cell is None or (isinstance(cell, float) and not np.isfinite(cell)) for cell in cells):
            continue
        sums[0] += 1
        for number, cell in enumerate(cells, start=1):
            whole = unit_integer(cell) if isinstance(cell, float) else None
            sums[number] += Fraction(cell) if whole is None else Fraction(whole, 2**60)
    return sorted(map(tuple, held.values()))


@pytest.mark.parametrize("by", [None, "group"])
@pytest.mark.parametrize("odd", [None, np.nan, np.inf])
def test_columns_of_all_types_are_summed_in_one_pass(
    odd: float | None, by: str | None, tmp_path: Path, queries: list[str]
) -> None:
    """A cell that is missing, or no number, makes its whole record unusable, and no other."""
    columns = {name: list(held) for name, held in MANY.items()}
    columns["b"][100], columns["whole"][200], columns["price"][300] = odd, None, None
    path = tmp_path / "a.parquet"
    table = pa.table({"user": USERS * 2**40, "group": USERS * 0 + 7, **columns})
    pq.write_table(table, path, row_group_size=1_000)
    names = list(columns)
    if by is None:
        users = user_table(path, user="user", value=names).collect()
    else:
        users = group_table(path, user=["user"], value=names, by=[by], keys=None, max_groups=None).users()
    found = sorted(
        (count, *(users.sums[place].fraction(user) for place in range(len(names))))
        for user, count in enumerate(users.counts.tolist())
    )
    assert found == sums_of_usable_records(columns)
    assert [*map(in_parts, queries)] == [odd is None or not np.isinf(odd)]


@pytest.mark.parametrize("true_value", [1e6, np.inf, np.nan])
def test_a_wrong_statistic_of_one_of_several_columns_changes_no_sum(
    true_value: float, tmp_path: Path, queries: list[str]
) -> None:
    values = np.clip(VALUES["prices"], 0.0, 500.0)
    values[78] = claimed = 1000.125
    path = tmp_path / "a.parquet"
    table = pa.table({"user": USERS, "other": VALUES["wide"], "value": values})
    pq.write_table(table, path, use_dictionary=False, compression="none")
    change_pages(path, claimed, true_value)
    values[78] = true_value
    users = user_table(path, user="user", value=["other", "value"]).collect()
    found = sorted(
        (count, users.sums[0].fraction(user), users.sums[1].fraction(user))
        for user, count in enumerate(users.counts.tolist())
    )
    assert found == sums_of_usable_records({"other": VALUES["wide"].tolist(), "value": values.tolist()})
    assert [*map(in_parts, queries)] == ([True] if not np.isfinite(true_value) else [True, False])


def test_each_number_is_small_enough_but_not_all_together(tmp_path: Path, queries: list[str]) -> None:
    """Magnitudes are checked by one sum over several columns; where it is too large, the query must fail."""
    columns = {name: np.clip(VALUES["prices"], 0.0, 500.0) for name in "abc"}
    for name, held in columns.items():
        held[78] = 600.0 + ord(name)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": USERS, **columns}), path, use_dictionary=False, compression="none")
    for held in columns.values():
        change_pages(path, float(held[78]), 3_000.0)  # magnitude 10, and two bits for the sum of three
        held[78] = 3_000.0
    users = user_table(path, user="user", value=list(columns)).collect()
    found = sorted(
        (count, *(users.sums[place].fraction(user) for place in range(3)))
        for user, count in enumerate(users.counts.tolist())
    )
    assert found == sums_of_usable_records({name: held.tolist() for name, held in columns.items()})
    assert [*map(in_parts, queries)] == [True, False]


def test_sums_of_one_column_are_in_coarse_units_per_user_and_in_parts_per_group(
    tmp_path: Path, queries: list[str]
) -> None:
    path = written(tmp_path / "a.parquet", VALUES["prices"])
    for way in WAYS:
        read(path, way)
    assert ["remainder" in query for query in queries] == [True, False]
    assert ["size_0" in query for query in queries] == [False, True]


def test_the_parts_are_not_shown() -> None:
    """They would reveal the magnitude of the largest value."""
    assert "magnitude" not in repr(DoubleParts.up_to(9))
    assert "bits" not in repr(CoarseSums.up_to(9, "value"))
