"""What fuzzing found in files and queries, each as it was found."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.neighbors import sums_by_size
from hubermean.ingest.engine import mask_engine_errors, mask_errors
from hubermean.ingest.groups import read_group_keys
from hubermean.ingest.reading import group_table, user_table

# Bytes that are no UTF-8 by themselves; the engine's other encodings refuse a file for some of them.
ODD_BYTES = [bytes([byte]) for byte in range(0x80, 0x100)]


def csv(path: Path, *lines: bytes) -> Path:
    content = b"u,v\n" + b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def keys_alone(folder: Path, *keys: bytes) -> Path:
    (folder / "keys.csv").write_bytes(b"u\n" + b"".join(key + b"\n" for key in keys))
    return folder / "keys.csv"


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz"])
def test_a_byte_that_is_no_utf8_neither_stops_a_csv_file_nor_joins_users(name: str, tmp_path: Path) -> None:
    path = csv(tmp_path / name, *(b"x%sy,1" % byte for byte in ODD_BYTES), b"plain,5")
    found = sums_by_size(user_table(path, user="u", value="v"))
    assert found == [(1, 1, 1)] * len(ODD_BYTES) + [(5, 1, 1)]


def test_text_that_is_utf8_is_read_the_same_beside_bytes_that_are_not(tmp_path: Path) -> None:
    """Which groups a user counts in follows from names; they must not change with another user's record."""
    lines = [f"{user},{user % 7}É€中".encode() for user in range(200)]

    def groups(*more: bytes) -> list[tuple[object, int]]:
        table = group_table(
            csv(tmp_path / "data.csv", *lines, *lines[::-1], *more),
            user=["u"],
            value=[],
            by=["v"],
            keys=None,
            max_groups=1,
        )
        return sorted(zip(table.keys, np.bincount(table.membership.groups).tolist(), strict=True))

    assert groups() == groups(b"other,\x80") == groups(b"other,\xf4\x8f\xbf\xbf")
    assert len(groups()) == 7


def test_letters_that_stand_for_bytes_are_told_from_the_same_letters_in_a_file(tmp_path: Path) -> None:
    reserved = chr(0x10FF80).encode()
    path = csv(tmp_path / "data.csv", b"\x80,1", reserved + b",2", b"\xf4\x8f\xbe,3")
    assert sums_by_size(user_table(path, user="u", value="v")) == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]
    with pytest.raises(hm.InputError, match="keys is empty"):  # none of them can be shown
        read_group_keys(str(keys_alone(tmp_path, b"\x80", reserved, b"\xf4\x8f\xbe")), ["u"])


def test_public_keys_and_queries_speak_of_csv_text_as_it_is_written(tmp_path: Path) -> None:
    path = csv(tmp_path / "data.csv", *(f"{user},Zürich".encode() for user in range(30)), b"31,\xff")
    counted = hm.count(path, user="u", by="v", keys=["Zürich", "Genève"], epsilon=100)
    assert [row.value for row in counted] == [30, 0]
    query = hm.sql("select u, 1 as one from data where v = 'Zürich'", files=[path])
    assert user_table(query, user="u", value="one").n_users == 30
    with pytest.raises(hm.HubermeanError, match="last 128 code points"):
        hm.count(path, user="u", by="v", keys=[chr(0x10FFFF)], epsilon=1)


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_a_public_key_that_is_no_text_is_refused(name: str, tmp_path: Path) -> None:
    path = csv(tmp_path / "data.csv", b"1,2")
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"u": [1], "v": ["2"]}), path := tmp_path / name)
    with pytest.raises(hm.HubermeanError, match="UTF-8"):
        hm.count(path, user="u", by="v", keys=["\ud800"], epsilon=1)


def test_a_broken_archive_is_refused_in_words(tmp_path: Path) -> None:
    path = csv(tmp_path / "data.csv.gz", *(b"%d,1" % number for number in range(5000)))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(hm.HubermeanError, match="could not be read completely"):
        user_table(path, user="u", value="v")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("name", ["data.jsonl", "data.csv", "data.parquet"])
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / f"endless-{name}").symlink_to("/dev/zero")
    for path in (tmp_path / name, tmp_path / f"endless-{name}"):
        with pytest.raises(hm.HubermeanError, match="not a regular file"):
            user_table(path, user="u", value="v")


def test_an_error_is_one_line_without_control_codes_whatever_the_names(tmp_path: Path) -> None:
    csv(tmp_path / "a\nb\x1b[31m.csv", b"1,2")
    for name, column in (("a\nb\x1b[31m.csv", "x"), ("a\rb.csv", "u"), ("a\u202eb.txt", "u")):
        with pytest.raises(hm.HubermeanError) as caught:
            hm.mean(tmp_path / name, user=column, value="v", epsilon=1)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("query", ["select 1 as u, '\ud800' as v", "\udcff"])
def test_a_query_that_is_no_text_is_refused(query: str) -> None:
    with pytest.raises(hm.HubermeanError, match="UTF-8"):
        hm.sql(query)


def test_a_table_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = csv(tmp_path / "data.csv", b"1,2")
    with pytest.raises(hm.HubermeanError, match="UTF-8"):
        hm.sql("select 1", files={"\ud800": path})


@pytest.mark.parametrize("files", [5, None, [5], {"t": 5}, [b"data.csv"], [None]])
def test_files_that_are_no_paths_are_refused(files: Any) -> None:
    with pytest.raises(hm.HubermeanError):
        hm.sql("select 1", files=files)


def failing_batches() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"u": [1], "v": pa.array([1], pa.duration("s"))})
    raise LookupError("secret")


def test_a_frame_whose_plan_fails_is_refused_before_it_is_read() -> None:
    with pytest.raises(hm.InputError, match="cannot be read") as caught:
        user_table(pl.LazyFrame({"u": [1]}).select("absent"), user="u", value="v")
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "frame",
    [
        pl.LazyFrame({"u": [1, 2], "t": ["1", "secret"]}).with_columns(v=pl.col("t").cast(pl.Int64)),
        pa.RecordBatchReader.from_batches(next(failing_batches()).schema, failing_batches()),
    ],
    ids=["cast", "batches"],
)
def test_a_frame_that_fails_is_refused_without_its_words(frame: Any) -> None:
    """What a lazy frame says of a value it cannot convert quotes that value."""
    with pytest.raises(hm.HubermeanError, match="could not be read") as caught:
        user_table(frame, user="u", value="v")
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "error",
    [
        duckdb.Error,
        duckdb.InvalidInputException,
        pa.ArrowInvalid,
        KeyError,
        ValueError,
        OSError,
        RuntimeError,
    ],
)
@pytest.mark.parametrize("quiet", [mask_engine_errors, mask_errors])
def test_an_error_of_an_engine_becomes_the_sentence_and_nothing_else(quiet: Any, error: Any) -> None:
    def work() -> None:
        raise error("secret")

    with pytest.raises(hm.InputError) as caught:
        quiet(work, "it failed")
    assert str(caught.value) == "it failed"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
