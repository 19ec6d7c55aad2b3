"""Sums in coarse 64-bit units with remainders equal the 128-bit sums, whatever the statistics of a file say."""

from __future__ import annotations

import struct
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
from hubermean.ingest.duckdb.fast_sums import CoarseSums, SumOverflowError, choose_coarse_sums
from hubermean.ingest.files import FileSet
from hubermean.ingest.reading import user_table

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
COARSE = {"tiny", "below 8", "prices", "wide", "near the limit", "float32"}


@pytest.fixture(autouse=True)
def small_files_use_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MIN_FILE_BYTES", 0)


def written(
    path: Path, values: np.ndarray[Any, Any], *, users: Any = USERS * 2**40 + 1, **options: Any
) -> Path:
    column = pa.array(values, mask=np.arange(len(values)) % 13 == 12)
    pq.write_table(pa.table({"user": users, "value": column}), path, row_group_size=1_000, **options)
    return path


def unit_integer(value: float) -> int | None:
    """The rule in plain fractions; `round` is half to even."""
    if not np.isfinite(value):
        return None
    return round(Fraction(float(np.clip(value, -8e12, 8e12))) * 2**60)


def expected(values: np.ndarray[Any, Any]) -> list[tuple[int, int, int]]:
    found: dict[int, list[int]] = {}
    for place, (user, value) in enumerate(zip(USERS.tolist(), values.tolist(), strict=True)):
        sums = found.setdefault(user, [0, 0, 0])
        integer = None if place % 13 == 12 else unit_integer(value)
        sums[0] += integer or 0
        sums[1] += integer is not None
        sums[2] += 1
    return sorted((total, usable, records) for total, usable, records in found.values())


def read(path: Path | str, **given: Any) -> list[tuple[int, int, int]]:
    table = user_table(path, user="user", value="value", **given).collect()
    return sorted(
        (table.sums[0].integer(user), int(table.counts[user]), int(table.records[user]))
        for user in range(table.n_users)
    )


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


@pytest.mark.parametrize("name", VALUES)
def test_sums_are_those_of_plain_fractions(name: str, tmp_path: Path, queries: list[str]) -> None:
    path = written(tmp_path / "a.parquet", VALUES[name])
    assert read(path) == expected(VALUES[name])
    assert ["_remainder" in query for query in queries] == [name in COARSE]


def test_ids_that_index_an_array_give_the_same(tmp_path: Path, queries: list[str]) -> None:
    path = written(tmp_path / "a.parquet", VALUES["wide"], users=USERS)
    assert read(path) == read(path, memory_limit="1GB") == expected(VALUES["wide"])
    assert ["_remainder" in query for query in queries] == [True, False]  # remainders take additional memory


def test_files_of_one_table_share_coarse_units(tmp_path: Path, queries: list[str]) -> None:
    values = VALUES["wide"] * np.where(np.arange(N_ROWS) < 3_000, 1e-6, 1.0)
    for part in range(2):
        share = slice(part * 3_000, (part + 1) * 3_000)
        column = pa.array(values[share], mask=np.arange(N_ROWS)[share] % 13 == 12)
        pq.write_table(pa.table({"user": USERS[share], "value": column}), tmp_path / f"part-{part}.parquet")
    assert read(tmp_path / "part-*.parquet") == expected(values)
    assert len(queries) == 1


@pytest.mark.parametrize("options", [{"write_statistics": False}, {"write_statistics": ["user"]}])
def test_without_statistics_sums_are_of_128_bits(
    options: dict[str, Any], tmp_path: Path, queries: list[str]
) -> None:
    assert read(written(tmp_path / "a.parquet", VALUES["wide"], **options)) == expected(VALUES["wide"])
    assert ["_remainder" in query for query in queries] == [False]


def test_small_files_are_read_without_statistics(
    tmp_path: Path, queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.parquet", VALUES["wide"])
    monkeypatch.setattr(rows, "MIN_FILE_BYTES", path.stat().st_size + 1)
    assert read(path) == expected(VALUES["wide"])
    monkeypatch.setattr(rows, "MIN_FILE_BYTES", path.stat().st_size)
    assert read(path) == expected(VALUES["wide"])
    assert ["_remainder" in query for query in queries] == [False, True]


def test_infinite_values_that_are_clamped_are_left_to_128_bits(tmp_path: Path, queries: list[str]) -> None:
    path = written(tmp_path / "a.parquet", VALUES["wide"])
    assert read(path, non_finite="clamp") == expected(VALUES["wide"])
    assert ["_remainder" in query for query in queries] == [False]


def change_pages(path: Path, claimed: float, true: float) -> None:
    """Put another value into the pages of a file, and leave its statistics as they are."""
    content = path.read_bytes()
    foot = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    old, new = struct.pack("<d", claimed), struct.pack("<d", true)
    assert content.count(old, 0, foot) > 0
    assert content.count(old, foot) > 0
    path.write_bytes(content[:foot].replace(old, new) + content[foot:])


@pytest.mark.parametrize("true_value", [1e6, 3e12, np.inf, np.nan])
def test_a_wrong_statistic_changes_no_sum(true_value: float, tmp_path: Path, queries: list[str]) -> None:
    """A writer that is wrong about its largest value costs a second query; it must not cost anybody a record."""
    values = np.clip(VALUES["prices"], 0.0, 500.0)
    values[78] = claimed = 1000.125
    path = written(tmp_path / "a.parquet", values, use_dictionary=False, compression="none")
    change_pages(path, claimed, true_value)
    values[78] = true_value
    assert read(path) == expected(values)
    assert ["_remainder" in query for query in queries] == (
        [True] if not np.isfinite(true_value) else [True, False]
    )


def test_remainders_that_statistics_deny_are_added(tmp_path: Path, queries: list[str]) -> None:
    """The statistics claim one value, which is a whole number of coarse units."""
    claimed, true = 2.0**-9, 2.0**-9 * (1 + 2.0**-51)
    assert unit_integer(true) == 2**51 + 1
    path = written(tmp_path / "a.parquet", np.full(N_ROWS, claimed), use_dictionary=False, compression="none")
    change_pages(path, claimed, true)
    assert read(path) == expected(np.full(N_ROWS, true))
    assert ["_remainder" in query for query in queries] == [True]


def test_a_sum_that_does_not_fit_is_computed_in_128_bits(
    tmp_path: Path, queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise SumOverflowError

    monkeypatch.setattr(CoarseSums, "combine_words", full)
    assert read(written(tmp_path / "a.parquet", VALUES["wide"])) == expected(VALUES["wide"])
    assert ["_remainder" in query for query in queries] == [True, False]


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
        return CoarseSums(bits).combine_words(low, high, np.array([remainder for _, remainder in sums]))

    if any(not -(2**126) <= units << (60 - bits) < 2**126 for units, _ in sums):
        with pytest.raises(SumOverflowError):
            added()
        return
    below, above = added()
    found = [int(h) * 2**64 + int(w) for w, h in zip(below.view(np.uint64), above, strict=True)]
    assert found == totals


def test_coarse_units_are_as_fine_as_the_largest_value_allows(tmp_path: Path) -> None:
    def bits(*values: float) -> int | None:
        path = tmp_path / "b.parquet"
        pq.write_table(pa.table({"value": pa.array(values, pa.float64())}), path)
        with duckdb.connect() as connection:
            found = choose_coarse_sums(connection, FileSet.find(path), "value")
            assert choose_coarse_sums(connection, FileSet.find(path), "other") is None
        return None if found is None else found.bits

    assert bits(0.0) == bits(-1e-300, 0.5) == bits(1.0, -3.9, 2.5) == bits(15.9) == 59
    assert bits(-255.0, 3.0) == 55
    assert bits(256.0) == bits(-256.0) == 54
    assert bits(2.0**41) == 21
    assert bits(2.0**42) is None
    assert bits(1.797e308) is None
    assert bits(float("inf"), 1.0) is None
    assert bits(float("nan")) is None
    assert bits() is None


def test_the_coarse_unit_is_not_shown() -> None:
    """It would reveal the magnitude of the largest value."""
    assert "55" not in repr(CoarseSums(55)).partition(" object at ")[0]
    assert "bits" not in repr(CoarseSums(55))
