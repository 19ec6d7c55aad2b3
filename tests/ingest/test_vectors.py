"""Vectors in Parquet files: one row a user, from its own records alone, in little memory and gone afterwards."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import hubermean as hm
from hubermean.data.user_table import UserTable
from hubermean.ingest.duckdb.session import PREFIX
from hubermean.ingest.vectors import (
    _READ_ELEMENTS,
    RowGroupRange,
    _choose_block_rows,
    open_vectors,
    split_row_groups,
    vectors,
)

MODULE = sys.modules["hubermean.ingest.vectors"]  # the package has a function of this name
WIDE = {"epsilon": 1e6, "per": "user", "bounds": (-10, 10)}


def written(path: Path, users: Sequence[Any], lists: Any, kind: Any, key: Any = None) -> Path:
    table = pa.table({"client": pa.array(users, type=key), "update": pa.array(lists, type=kind)})
    pq.write_table(table, path, row_group_size=7)
    return path


def by_user(path: Path | str, **given: Any) -> tuple[dict[tuple[float, ...], int], UserTable]:
    """The vectors of users with how often each is there; users have no names any more."""
    with open_vectors(vectors(path, user="client", value="update", **given)) as table:
        rows = [
            tuple(row) for row in np.array(table.means).reshape(table.n_users, len(table.columns)).tolist()
        ]
        held = UserTable(
            columns=table.columns, sums=table.sums, counts=table.counts.copy(), records=table.records.copy()
        )
    return {row: rows.count(row) for row in rows}, held


@pytest.fixture
def drawn() -> tuple[list[int], NDArray[np.float32]]:
    """40 users, most with one record, some with up to nine."""
    rng = np.random.default_rng(3)
    users = [user for user in range(40) for _ in range(1 if user % 4 else 1 + user // 4 % 9)]
    return users, rng.standard_cauchy((len(users), 5)).astype(np.float32)


def test_a_users_vector_is_the_mean_of_its_records(tmp_path: Path, drawn: Any) -> None:
    users, rows = drawn
    path = written(tmp_path / "u.parquet", users, rows.tolist(), pa.list_(pa.float32(), 5))
    found, table = by_user(path)
    expected = {user: rows[np.array(users) == user].astype(np.float64).mean(axis=0) for user in set(users)}
    assert table.n_users == 40
    assert table.columns == tuple(f"update[{place}]" for place in range(5))
    means = np.array(sorted(found))
    assert np.allclose(means, np.array(sorted(map(tuple, expected.values()))), rtol=1e-6)
    assert sorted(table.counts.tolist()) == sorted(np.bincount(users).tolist())
    assert sorted(table.records.tolist()) == sorted(table.counts.tolist())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_order_and_the_company_of_records_change_no_bit(
    tmp_path: Path, drawn: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, rows = drawn
    rows = rows.astype(dtype) * np.float64(1e3) ** np.arange(-2, 3)
    kind = pa.list_(pa.from_numpy_dtype(dtype), 5)
    found, _ = by_user(written(tmp_path / "u.parquet", users, rows.tolist(), kind))
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(users))
        shuffled = [users[place] for place in order]
        monkeypatch.setattr(MODULE, "_READ_ELEMENTS", 11 * seed)
        again = written(tmp_path / "again.parquet", shuffled, rows[order].tolist(), kind)
        assert by_user(again)[0] == found
        parts = tmp_path / f"parts{seed}"
        parts.mkdir()
        half = len(users) // 2
        written(parts / "a.parquet", shuffled[:half], rows[order][:half].tolist(), kind)
        written(parts / "b.parquet", shuffled[half:], rows[order][half:].tolist(), kind)
        assert by_user(f"{parts}/*.parquet")[0] == found
    # One user goes, with all records: all others stay as they are.
    stays = np.array(users) != 36
    fewer = written(tmp_path / "fewer.parquet", np.array(users)[stays].tolist(), rows[stays].tolist(), kind)
    left = by_user(fewer)[0]
    assert len(left) == 39
    assert left.items() <= found.items()


@pytest.mark.parametrize("readers", [1, 2, 3, 4, 9])
def test_threads_read_every_row_group_once(
    tmp_path: Path, drawn: Any, readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, lists = drawn
    kind = pa.list_(pa.float32(), lists.shape[1])
    for part, rows in enumerate([slice(0, 3), slice(3, 3), slice(3, 90), slice(90, None)]):
        written(tmp_path / f"{part}.parquet", users[rows], lists[rows].tolist(), kind, pa.int64())
    paths = [str(tmp_path / f"{part}.parquet") for part in range(4)]
    ranges = split_row_groups(paths, readers)
    assert len(ranges) <= readers
    assert len(ranges) > 1 or readers == 1
    groups = [(path, number) for rows in ranges for path, numbers in rows.row_groups for number in numbers]
    assert groups == [
        (path, number) for path in paths for number in range(pq.read_metadata(path).num_row_groups)
    ]
    ends = np.cumsum([rows.records for rows in ranges]).tolist()
    assert [rows.first for rows in ranges] == [0, *ends[:-1]]
    assert ends[-1] == len(users)
    alone, _ = by_user(written(tmp_path / "whole.pq", users, lists.tolist(), kind))
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: readers)
    assert by_user(str(tmp_path / "*.parquet"))[0] == alone


def test_files_without_records_have_no_users(tmp_path: Path) -> None:
    kind = pa.list_(pa.float32(), 2)
    path = written(tmp_path / "none.parquet", [], [], kind, pa.int64())
    assert by_user(path)[1].n_users == 0


def test_records_are_judged_one_by_one_and_users_without_any_stay(tmp_path: Path) -> None:
    lists: list[Any] = [
        [1.0, 2.0], [3.0, 4.0, 5.0], None, [1.0, None], [float("nan"), 1.0], [float("inf"), 0.0], [9.0, 9.0],
        [7.0, 8.0], [1.0, 2.0], [], [3e38, 3e38], [3e38, 3e38],
    ]  # fmt: skip
    users = ["a", "a", "b", "c", "d", "e", None, "f", "f", "f", "g", "g"]
    path = written(tmp_path / "u.parquet", users, lists, pa.list_(pa.float32()))
    _, table = by_user(path, length=2)
    held = {
        tuple(row) if count else None: (count, records)
        for row, count, records in zip(
            np.array(table.means).tolist(), table.counts.tolist(), table.records.tolist(), strict=True
        )
    }
    assert table.n_users == 7
    largest = float(np.float32(3e38))
    assert held == {(1.0, 2.0): (1, 2), (4.0, 5.0): (2, 3), (largest, largest): (2, 2), None: (0, 1)}
    assert sorted(table.counts.tolist()) == [0, 0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(
    ("kind", "key", "told"),
    [
        (pa.list_(pa.float32(), 2), pa.int32(), {}),
        (pa.list_(pa.float64()), pa.string(), {"length": 2}),
        (pa.large_list(pa.int64()), pa.large_string(), {"length": 2}),
        (pa.list_(pa.uint8(), 2), pa.binary(), {"length": 2}),
        (pa.list_(pa.float16(), 2), pa.uint64(), {}),
    ],
)
def test_types_of_vectors_and_of_users(tmp_path: Path, kind: Any, key: Any, told: Mapping[str, int]) -> None:
    users: list[Any] = [1, 2, 2] if pa.types.is_integer(key) else ["1", "2", "2"]
    if key == pa.binary():
        users = [b"\xff", b"\xfe", b"\xfe"]
    lists: Any = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float16).tolist()
    lists = [[int(x) for x in row] for row in lists] if pa.types.is_integer(kind.value_type) else lists
    if kind.value_type == pa.float16():
        lists = [np.array(row, dtype=np.float16) for row in lists]
    found, _ = by_user(written(tmp_path / "u.parquet", users, lists, kind, key), **told)
    assert found == {(1.0, 2.0): 1, (4.0, 5.0): 1}


@pytest.mark.parametrize("other", ["update.list", "update.list.element"])
def test_a_column_is_taken_by_its_whole_name(tmp_path: Path, other: str) -> None:
    """Parquet knows the numbers of a list by a path that another column may have for a name."""
    kind = pa.list_(pa.float32(), 2)
    columns = {
        "client": pa.array(["u"]),
        "update": pa.array([[1, 2]], type=kind),
        other: pa.array([[8, 9]], type=kind),
    }
    path = tmp_path / "u.parquet"
    pq.write_table(pa.table(columns), path)
    for name in ("update", other):
        with open_vectors(vectors(path, user="client", value=name)) as table:
            assert table.means.tolist() == [columns[name][0].as_py()]


def test_files_that_changed_their_types_meanwhile_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "u.parquet", [1, 2], [[1.0], [2.0]], pa.list_(pa.float32(), 1))
    file = vectors(path, user="client", value="update")
    written(path, [1, 2], [["1"], ["x"]], pa.list_(pa.string(), 1))
    with pytest.raises(hm.InputError, match="in another type"), open_vectors(file):
        pass


@pytest.mark.parametrize("sizes", [(50, 70), (49, 51), (50, 50), (50, 30), None])
def test_files_that_change_while_they_are_read_are_refused(
    tmp_path: Path, sizes: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids come from the one version and vectors from the other: no row would be its user's, and no count is named."""
    kind = pa.list_(pa.float32(), 2)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for number, path in enumerate(paths):
        written(path, range(50 * number, 50 * number + 50), [[float(number), 1.0]] * 50, kind, pa.int64())

    def changed(*given: Any) -> list[RowGroupRange]:
        ranges = split_row_groups(*given)
        for path, size in zip(paths, sizes or (), strict=False):
            written(path, range(size), [[2.0, 3.0]] * size, kind, pa.int64())
        if sizes is None:
            pq.write_table(pa.table({"client": range(50)}), paths[1])
        return ranges

    monkeypatch.setattr(MODULE, "split_row_groups", changed)
    for readers in (1, 2):
        monkeypatch.setattr("hubermean.data.threads.count_processors", lambda readers=readers: readers)
        with pytest.raises(hm.InputError) as refused:
            by_user(str(tmp_path / "*.parquet"))
        assert not re.search(r"\d", str(refused.value).replace(str(tmp_path), ""))
        if sizes is None:
            break  # what is there now is no column of vectors any more


def test_lists_that_are_too_long_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    lists = [[1.0, 2.0]] * 50 + [[0.0] * 100_000] * 50
    path = written(tmp_path / "u.parquet", list(range(100)), lists, pa.list_(pa.float32()))
    footer = pq.ParquetFile(path).metadata
    assert _choose_block_rows(footer, 2) <= _READ_ELEMENTS // 100_000 + 1
    _, table = by_user(path, length=2)
    assert table.counts.tolist() == [1] * 50 + [0] * 50


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiny_numbers_are_no_error_for_who_has_numpy_raise_them(tmp_path: Path, dtype: type) -> None:
    tiny = float(np.finfo(dtype).smallest_subnormal)
    lists = [[tiny, tiny], [0.0, tiny], [tiny, 1.0]]
    kind = pa.list_(pa.from_numpy_dtype(dtype), 2)
    path = written(tmp_path / "u.parquet", ["a", "a", "b"], lists, kind)
    with np.errstate(all="raise"):
        hm.mean_of_user_means(vectors(path, user="client", value="update"), **WIDE)


def test_a_release_of_vectors_is_that_of_the_means_held(tmp_path: Path, drawn: Any) -> None:
    users, rows = drawn
    path = written(tmp_path / "u.parquet", users, rows.tolist(), pa.list_(pa.float32(), 5))
    release = hm.mean_of_user_means(hm.vectors(path, user="client", value="update"), **WIDE)
    means = np.array([rows[np.array(users) == user].mean(axis=0) for user in sorted(set(users))])
    assert np.allclose(release.values, np.clip(means, -10, 10).mean(axis=0), atol=1e-3)
    assert release.columns[4] == "update[4]"


def test_large_vectors_lie_in_the_scratch_folder_and_are_gone_afterwards(
    tmp_path: Path, drawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, rows = drawn
    path = written(tmp_path / "u.parquet", users, rows.tolist(), pa.list_(pa.float32(), 5))
    expected = by_user(path)[0]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(MODULE, "_MEMORY_BYTES", 0)
    with open_vectors(vectors(path, user="client", value="update")) as table:
        (folder,) = scratch.glob(f"{PREFIX}*")
        assert {"means", "records"} <= {file.name for file in folder.iterdir()}
        assert folder.stat().st_mode & 0o777 == 0o700
        assert isinstance(table.matrix().base, np.memmap)
    assert list(scratch.iterdir()) == []
    assert by_user(path)[0] == expected


def test_a_disk_without_room_is_said_so(tmp_path: Path, drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    users, rows = drawn
    path = written(tmp_path / "u.parquet", users, rows.tolist(), pa.list_(pa.float32(), 5))
    monkeypatch.setattr(MODULE, "_MEMORY_BYTES", 0)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with (
        pytest.raises(hm.InputError, match="not enough disk space for the vectors; set TMPDIR"),
        open_vectors(vectors(path, user="client", value="update")),
    ):
        pass


def test_what_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    path = written(tmp_path / "u.parquet", ["a", "b"], [[1.0], [2.0]], pa.list_(pa.float32()))
    fixed = written(tmp_path / "f.parquet", ["a", "b"], [[1.0], [2.0]], pa.list_(pa.float32(), 1))
    ints = written(tmp_path / "i.parquet", [1, 2], [[1.0], [2.0]], pa.list_(pa.float32(), 1))
    flat = written(tmp_path / "flat.parquet", [1.5, 2.5], [1.0, 2.0], pa.float32())
    text = tmp_path / "u.csv"
    text.write_text("client,update\na,1\n")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(fixed.read_bytes()[:-20])
    for given, words in (
        ({"data": None}, "pass a path or a pattern"),
        ({"data": path}, "does not include the length of its lists; set length"),
        ({"data": path, "length": 0}, "length must be a whole number from 1 to"),
        ({"data": path, "length": True}, "length must be a whole number"),
        ({"data": fixed, "length": 3}, "have 1 numbers, not 3"),
        ({"data": flat}, "has type double and cannot identify users here"),
        ({"data": flat, "user": "update", "value": "client"}, "cannot identify users"),
        ({"data": ints, "value": "client", "user": "update"}, "cannot identify users"),
        ({"data": ints, "value": "client", "user": "client"}, "is both user and value"),
        ({"data": fixed, "value": "gone"}, "there is no column 'gone'; the columns are: client, update"),
        ({"data": fixed, "user": ["client"]}, "user must be the name of one column"),
        ({"data": text}, "vectors are read from Parquet files"),
        ({"data": broken}, "cannot be read as Parquet; check that it is complete"),
        ({"data": str(tmp_path / "[fi].parquet")}, "in another type; write all files with the same types"),
        ({"data": tmp_path / "none.parquet"}, "there is no file"),
    ):
        with pytest.raises(hm.InputError, match=words.replace("[", "\\[")):
            vectors(**{"user": "client", "value": "update", **given})
    with pytest.raises(hm.InputError, match="leave counts out"):
        hm.mean_of_user_means(vectors(fixed, user="client", value="update"), [1, 2], **WIDE)


def test_a_ledger_answers_the_same_question_again_without_reading(tmp_path: Path, drawn: Any) -> None:
    users, rows = drawn
    path = written(tmp_path / "u.parquet", users, rows.tolist(), pa.list_(pa.float32(), 5))
    ledger = hm.Ledger(tmp_path / "budget.sqlite")
    ledger.init("updates", epsilon=3)
    asked = {"epsilon": 1, "bounds": (-10, 10), "ledger": ledger, "dataset": "updates"}
    first = hm.mean_of_user_means(hm.vectors(path, user="client", value="update"), **asked)
    file = hm.vectors(path, user="client", value="update")
    path.write_bytes(b"no longer there")
    assert hm.mean_of_user_means(file, **asked).values == first.values
