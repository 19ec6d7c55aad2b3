"""Ids that lie close together are looked up in an array; the sums are the same, and memory is kept to."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubermean.errors import InputError
from hubermean.ingest.duckdb.session import choose_id_index_bits, engine_memory
from hubermean.ingest.duckdb.source import open_source
from hubermean.ingest.engine import check_engine_options, parse_size
from hubermean.ingest.files import FileSet
from hubermean.ingest.reading import user_table
from hubermean.ingest.schema import ColumnRoles
from hubermean.types.options import ReadOptions

ROWS, USERS = 60_000, 6_000
FIRST = 1_000_000_007


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same users under ids that lie close together, far apart, or are text; in one file or in several."""
    rng = np.random.default_rng(1)
    users = rng.integers(0, USERS, ROWS)
    users[:USERS] = np.arange(USERS)
    folder = tmp_path_factory.mktemp("ids")
    table = pa.table(
        {
            "close": FIRST + users,
            "apart": users * 2**40,
            "text": [f"u{user}" for user in users],
            "double": rng.normal(size=ROWS) * 1e6,
            "whole": rng.integers(-(2**62), 2**62, ROWS),
        }
    )
    pq.write_table(table, folder / "one.parquet")
    for part in range(3):
        pq.write_table(table.slice(part * 20_000, 20_000), folder / f"part-{part}.parquet")
    return folder


def grouping(path: Path | str, user: str) -> str:
    """Return the plan of a grouping."""
    with (
        open_source(path, ColumnRoles(users=[user], values=["whole"]), ReadOptions()) as source,
        source.open() as rows,
    ):
        query = f'EXPLAIN SELECT sum("whole"), count("whole") FROM {rows.name} GROUP BY "{user}"'
        return str(rows.run(query).fetchall())


def sums(path: Path | str, user: str, value: str, **given: Any) -> list[tuple[int, int]]:
    table = user_table(path, user=user, value=value, **given).collect()
    return sorted((table.sums[0].integer(user), int(table.counts[user])) for user in range(table.n_users))


@pytest.mark.parametrize("name", ["one.parquet", "part-*.parquet"])
def test_ids_that_lie_close_together_are_indexed(folder: Path, name: str) -> None:
    assert "Perfect" in grouping(folder / name, "close")
    assert "Perfect" not in grouping(folder / name, "apart")
    assert "Perfect" not in grouping(folder / name, "text")


@pytest.mark.parametrize("value", ["double", "whole"])
@pytest.mark.parametrize("name", ["one.parquet", "part-*.parquet"])
def test_sums_do_not_depend_on_what_ids_look_like(folder: Path, name: str, value: str) -> None:
    expected = sums(folder / "one.parquet", "text", value)
    assert len(expected) == USERS
    assert sums(folder / name, "close", value) == expected
    assert sums(folder / name, "apart", value) == expected
    assert sums(folder / name, "close", value, threads=1, records=True) == expected


def test_the_index_has_a_few_rows_for_an_entry_and_fits_in_memory(folder: Path) -> None:
    files = FileSet.find(folder / "one.parquet")
    with duckdb.connect(config={"threads": "2"}) as connection:

        def bits(memory_limit: str | None, sums: int = 1) -> int:
            return choose_id_index_bits(connection, files, sums, memory_limit=memory_limit)

        assert 2 ** bits("100GB") <= ROWS // 4 < 2 ** (bits("100GB") + 1)
        assert bits(None) == bits("100GB")
        assert 2 ** bits("1MB") * 2 * 40 <= 700_000 < 2 ** (bits("1MB") + 1) * 2 * 40
        assert bits("10MB", sums=20) < bits("10MB")
        assert bits("1KB") == 12  # what the engine does by itself


def test_a_statistic_that_leaves_ids_out_joins_no_users(folder: Path, tmp_path: Path) -> None:
    """A writer with a wrong range of ids must not merge two users: the file is read in another way."""
    lying = tmp_path / "lying.parquet"
    table = pq.read_table(folder / "one.parquet", columns=["close", "whole"])
    pq.write_table(table, lying, use_dictionary=False)
    content = bytearray(lying.read_bytes())
    foot = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    last, claimed = struct.pack("<q", FIRST + USERS - 1), struct.pack("<q", FIRST + USERS // 2)
    found = content.find(last, foot)
    assert found > 0
    while found > 0:
        content[found : found + 8] = claimed
        found = content.find(last, foot)
    lying.write_bytes(content)
    assert "Perfect" in grouping(lying, "close")
    assert sums(lying, "close", "whole") == sums(folder / "one.parquet", "close", "whole")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        (" 1.5 gib ", 3 * 2**29),
        ("60mb", 60 * 10**6),
        ("20000000B", 2 * 10**7),
        ("1TiB", 2**40),
    ],
)
def test_sizes_are_read_as_they_are_written(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(engine_memory(text)) == 3 * size // 4


@pytest.mark.parametrize(
    "text", ["", "2", "lots", "-1GB", "2GBs", "1e9B", "2\u212ab", "9" * 5000 + "GB", 2, None]
)
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="memory_limit must be a size such as '2GB'"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0B", "10KB", "9.9MB"])
def test_what_the_engine_cannot_start_with_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="memory_limit must be at least 10MB"):
        check_engine_options(ReadOptions(memory_limit=text))
