"""Records that engines would lose, refuse or take for others: read like any other, for all files and queries alike."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.neighbors import sums_by_size
from hubermean.data.user_table import UserTable, pad_users
from hubermean.ingest.reading import group_table, user_table
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

LONG = 70_000_000  # more than the engine makes room for at first


def test_a_byte_order_mark_belongs_to_no_record(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"u": 1, "v": 2}\n{"u": 2, "v": 3}\n')
    assert sums_by_size(user_table(path, user="u", value="v")) == [(2, 1, 1), (3, 1, 1)]


def test_json_numbers_identify_by_their_value(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    cells = ["5", "5.0", '"5"', "5.50", "true", '"true"', "null", '{"a": 1}', "[5]", "-7.0", '"-7"']
    path.write_text("".join(f'{{"u": {cell}, "v": 1}}\n' for cell in cells))
    counts = sorted(count for _, count, _ in sums_by_size(user_table(path, user="u", value="v")))
    assert counts == [
        1,
        2,
        2,
        3,
    ]  # 5.50 alone, two flags, two of -7, three of 5; an object and a list are nobody


def test_a_long_record_of_a_csv_file_is_in_the_result_of_a_query(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    with path.open("w") as file:
        file.write("u,v,note\na,1,x\nb,2," + "y" * LONG + "\nc,3,z\n")
    query = hm.sql("select u, try_cast(v as double) as v from records", files=[path])
    assert user_table(query, user="u", value="v").n_users == 3


def invalid_text(*texts: bytes) -> pa.Array:
    held = pa.array(texts, type=pa.binary())
    return pa.Array.from_buffers(pa.string(), len(texts), held.buffers())


def names_and_sums(path: Any, **how: Any) -> list[Any]:
    table = group_table(path, user=["u"], value=["v"], by=["g"], keys=None, **how)
    return sorted(
        (table.keys[group], float(table.members.means[place]))
        for place, group in enumerate(table.membership.groups.tolist())
    )


@pytest.mark.parametrize("files", [1, 2])
def test_text_of_parquet_files_that_is_no_utf8_changes_nothing_for_others(files: int, tmp_path: Path) -> None:
    """The engine refuses a whole file for one such text; as an id it is one more user, as a group it has no name."""
    users = [f"u{number}".encode() for number in range(60)]
    groups = [f"g{number % 5}".encode() for number in range(60)]

    def written(odd: bytes) -> Path:
        for part in range(files):
            ids, names = invalid_text(*users[part::files], odd), invalid_text(*groups[part::files], odd)
            values = pa.array([*[float(number) for number in range(60)][part::files], 1000.0])
            stored = {"u" if part == 0 else "U": ids, "g": names, "v": values}  # one column to the engine
            pq.write_table(pa.table(stored), tmp_path / f"part-{part}.parquet")
        return tmp_path / "part-*.parquet"

    fine = names_and_sums(written(b"zz"), max_groups=1)
    odd = names_and_sums(written(b"\xff\xfe"), max_groups=1)
    assert [one for one in fine if one[1] < 1000] == odd
    assert user_table(written(b"\xff"), user="u", value="v").n_users == 61
    release = hm.count(written(b"\xff"), user="u", epsilon=100)
    assert release.value == 61


def test_a_stream_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that was used up would look like data without users."""
    import duckdb

    from hubermean.ingest.duckdb import queries as rows

    table = pa.table({"u": range(20), "v": [1.0] * 20})

    def failing(*_: Any, **__: Any) -> Any:
        raise duckdb.OutOfMemoryException("no")

    monkeypatch.setattr(rows, "fetch", failing)
    with pytest.raises(hm.InputError, match="could not be read"):
        user_table(table.to_reader(), user="u", value="v", memory_limit="20MB")


def test_users_who_were_stated_and_not_found_have_nothing_usable() -> None:
    table = UserTable.from_means(np.array([1.0, 5.0]), np.array([1, 1]))
    whole = pad_users(table, 5).collect()
    assert (whole.n_users, sorted(whole.counts.tolist())) == (5, [0, 0, 0, 1, 1])
    with pytest.raises(hm.InputError, match="more users"):
        pad_users(table, 1)
    request = Request.checked(("mean",), epsilon=1, delta=0, per="user", neighbors="replace-user")
    facts = PublicFacts.of(whole, Neighbors.REPLACE_USER)
    missing = UserTable.from_means(np.array([1.0, 5.0, *[np.nan] * 3]), np.ones(5, dtype=int))
    distributions = [
        Clipped(bounds=(0, 10)).prepare(request, facts).distribution(one) for one in (whole, missing)
    ]
    first, second = (list(distribution.position) for distribution in distributions)
    assert first == second


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("scale", [1.0, 1e15, 1e-20])
def test_who_is_not_there_changes_no_number_of_others(scale: float, kind: Any) -> None:
    """Means made anew from exact sums differ: in the last bits, below the resolution, beyond the largest value."""
    rng = np.random.default_rng(0)
    means = (scale * rng.normal(size=(500, 3))).astype(kind)
    counts = rng.integers(1, 50, 500)
    whole = UserTable.from_means(means, counts)
    missing = pad_users(UserTable.from_means(means[1:], counts[1:]), 500).collect()
    assert np.array_equal(missing.matrix()[missing.counts > 0], whole.matrix()[1:])
    assert missing.matrix().dtype == whole.matrix().dtype
    for column in range(3):
        assert np.array_equal(missing.column_means(column)[:499], whole.column_means(column)[1:])
        assert [missing.sums[column].integer(user) for user in range(500)] == [
            *(whole.sums[column].integer(user) for user in range(1, 500)),
            0,
        ]
    squares, others = missing.squared_row_norms(), whole.squared_row_norms()
    assert (squares is None) == (others is None)
    if squares is not None and others is not None:
        assert np.array_equal(squares[:499], others[1:])


@pytest.mark.parametrize("mechanism", ["propose-test-release", "smooth-sensitivity"])
@pytest.mark.parametrize("scale", [1e15, 1e-20])
def test_an_answer_does_not_tell_that_a_stated_user_is_not_there(mechanism: str, scale: float) -> None:
    """The answers of neighbors are as close as their noise covers, also beyond what exact sums can hold."""
    means = scale * (5.0 + np.random.default_rng(0).normal(size=3_000))
    whole, missing = UserTable.from_means(means), pad_users(UserTable.from_means(means[1:]), 3_000)
    request = Request.checked(("mean",), epsilon=1, delta=1e-6, per="user", neighbors="replace-user")
    facts = PublicFacts.of(whole, Neighbors.REPLACE_USER)
    known = PublicParameters.from_keywords(threshold=4.0 * scale, radius=20.0 * scale)
    prepared: Any = resolve_mechanism(mechanism, known).prepare(request, facts)
    claims = prepared.claims(prepared.distribution(whole), prepared.distribution(missing))
    assert max(claims.values()) <= 1.0


def test_the_charge_is_on_disk_before_the_first_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubermean.ingest.duckdb import queries as rows

    pq.write_table(pa.table({"u": range(300), "v": [1.0] * 300}), tmp_path / "t.parquet")
    ledger = hm.Ledger(tmp_path / "ledger.sqlite")
    ledger.init("trips", epsilon=1.0)
    fetch, seen = rows.fetch, []

    def watched(*given: Any, **more: Any) -> Any:
        seen.append(json.loads(json.dumps(str(ledger.dataset("trips").left_in_words))))
        return fetch(*given, **more)

    monkeypatch.setattr(rows, "fetch", watched)
    hm.mean(
        tmp_path / "t.parquet",
        user="u",
        value="v",
        epsilon=0.25,
        bounds=(0, 2),
        per="user",
        ledger=ledger,
        dataset="trips",
    )
    assert seen
    assert all("0.75" in left for left in seen)


@pytest.mark.parametrize("max_groups", [30, None])
def test_a_user_in_groups_without_names_is_in_none_that_has_one(
    max_groups: int | None, tmp_path: Path
) -> None:
    """DuckDB makes what a window sorts by anew: text that is no UTF-8 came back as the name of another group."""
    odd = [b"A\xff%03d" % number for number in range(20)] + [b"\xff%03d" % number for number in range(20)]
    users = [b"u%d" % number for number in range(50)] + [b"x"] * 40
    table = pa.table(
        {
            "u": invalid_text(*users),
            "g": invalid_text(*[b"A"] * 50, *odd),
            "v": [1.0] * 50 + [100.0] * 40,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    for data in (table, table.to_reader(), tmp_path / "t.parquet"):
        found = group_table(data, user=["u"], value=["v"], by=["g"], keys=None, max_groups=max_groups)
        assert found.keys == (("A",),)
        assert found.users_per_group().tolist() == [50]
        assert set(np.atleast_1d(found.members.means).tolist()) == {1.0}


def test_a_user_id_that_is_no_text_changes_no_name_of_a_group() -> None:
    ids = invalid_text(*[b"u%d" % number for number in range(20)], *[b"x\xff\x00m\xff\x001\xff"] * 4)
    table = pa.table({"u": ids, "g": [7] * 20 + [1, 2, 3, 4], "v": [1.0] * 24})
    for most in (2, None):
        found = group_table(table, user=["u"], value=["v"], by=["g"], keys=None, max_groups=most)
        assert {key for (key,) in found.keys} <= {"7", "1", "2", "3", "4"}
        per_group = dict(zip(found.keys, found.users_per_group().tolist(), strict=True))
        assert per_group[("7",)] == 20
        assert sum(per_group.values()) == 20 + (most or 4)
        assert found.n_owners == 21
        assert np.bincount(found.owners, minlength=21).max() == (most or 4)


@pytest.mark.parametrize(
    ("cells", "odd"),
    [
        ([1, 2], 3j),
        ([np.timedelta64(5, "D"), np.timedelta64(7, "D")], "x"),
        ([np.datetime64("2020-01-01"), np.datetime64("2020-01-02")], "x"),
        ([1.5, 2.5], complex(3, 0)),
    ],
    ids=["complex", "durations", "dates", "real complex"],
)
def test_one_cell_of_another_kind_changes_no_other_in_pandas(cells: list[Any], odd: Any) -> None:
    import pandas as pd

    def entries(column: list[Any], role: str) -> list[Any]:
        frame = pd.DataFrame({"c": column, "other": [float(one) for one in range(len(column))]})
        user, value = ("c", "other") if role == "user" else ("other", "c")
        table = user_table(frame, user=user, value=value).collect()
        return sorted(zip(np.nan_to_num(table.means, nan=-1.0).tolist(), table.counts.tolist(), strict=True))

    for role in ("user", "value"):
        alone, beside = entries(cells, role), entries([*cells, odd], role)
        assert all(one in beside for one in alone), role


@pytest.mark.parametrize("kind", ["string", "date32[day]", "timestamp[s]", "duration[s]"])
def test_a_cell_that_python_cannot_hold_stops_no_release(kind: str) -> None:
    import pandas as pd

    if kind == "string":
        held = pa.chunked_array([invalid_text(b"1", b"2", b"\xff")])
    else:
        type_ = {
            "date32[day]": pa.date32(),
            "timestamp[s]": pa.timestamp("s"),
            "duration[s]": pa.duration("s"),
        }[kind]
        whole = pa.int32() if kind.startswith("date") else pa.int64()
        most = 2**31 - 1 if kind.startswith("date") else 2**62
        held = pa.chunked_array([pa.array([1, 2, most], whole).cast(type_)])
    column = pd.Series(pd.arrays.ArrowExtensionArray(held))
    frame = pd.DataFrame({"c": column, "n": [1.0, 2.0, 3.0]})
    assert user_table(frame, user="c", value="n").n_users == (
        0 if kind.startswith("dur") else 3 - ("[" in kind)
    )
    assert user_table(frame, user="n", value="c").n_users == 3


def test_names_that_differ_in_case_alone_are_refused_in_one_file(tmp_path: Path) -> None:
    """The two ways to read a file took different ones of them; the second is for text that is no UTF-8."""
    for names in (("V", "v"), ("É", "é")):
        pq.write_table(pa.table({"u": ["a"], names[0]: [1.0], names[1]: [2.0]}), tmp_path / "t.parquet")
        with pytest.raises(hm.InputError, match="upper and lower case"):
            user_table(tmp_path / "t.parquet", user="u", value=names[0])


def test_a_stream_takes_no_limit_of_memory_that_it_may_exceed() -> None:
    long = pa.table({"u": ["x" * 30_000_000, "a", "b"], "v": [1.0, 2.0, 3.0]})
    assert user_table(long.to_reader(), user="u", value="v", memory_limit="20MB").n_users == 3


def test_an_archive_is_read_the_same_beside_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    import gzip

    for odd in (b"b", b"\xff"):
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"u,v\na,1\n" + odd + b",2\n") + b"\0" * 20)
        assert user_table(tmp_path / "t.csv.gz", user="u", value="v").n_users == 2


def test_a_query_that_does_not_fit_shows_no_first_line(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("alice,secretville\nbob,5\n")
    for query in ("select sum(records) from records", "select records + 1 from records"):
        with pytest.raises(hm.InputError) as caught:
            user_table(hm.sql(query, files=[tmp_path / "records.csv"]), user="u", value="v")
        assert "secretville" not in str(caught.value)


@pytest.mark.parametrize("kind", ["relation", "arrow", "query"])
def test_a_column_without_any_value_is_read_as_one_whose_cells_are_missing(kind: str, tmp_path: Path) -> None:
    """Where one record decides whether a column has a type, that must not decide whether there is an answer."""
    import duckdb

    empty = pa.table({"u": [1, 2], "v": pa.nulls(2), "g": pa.nulls(2)})
    selected = "SELECT u, NULL AS v, NULL AS g FROM (VALUES (1), (2)) t(u)"
    data: Any = {
        "relation": lambda: duckdb.connect().sql(selected),
        "arrow": lambda: empty,
        "query": lambda: hm.sql(selected, files=[]),
    }[kind]()
    assert sums_by_size(user_table(data, user="u", value="v")) == [(0, 0, 1), (0, 0, 1)]
    assert names_and_sums(data, max_groups=1) == []


def with_wrong_statistics(table: pa.Table, path: Path, true: int, stated: int) -> Path:
    """A file whose footer states another largest integer than there is."""
    pq.write_table(table, path, use_dictionary=False)
    held = path.read_bytes()
    start = len(held) - 8 - struct.unpack("<I", held[-8:-4])[0]
    footer, told = held[start:], struct.pack("<q", true)
    assert told in footer
    path.write_bytes(held[:start] + footer.replace(told, struct.pack("<q", stated)))
    return path


@pytest.mark.parametrize("odd", [45, 261, 1000, 2**16 + 7, 2**40 + 3])
def test_statistics_that_are_wrong_about_ids_make_one_user_of_no_two(odd: int, tmp_path: Path) -> None:
    table = pa.table({"u": [*range(40), odd], "v": [*map(float, range(40)), 777.0]})
    path = with_wrong_statistics(table, tmp_path / "records.parquet", odd, 39)
    expected = [*((number, 1, 1) for number in range(40)), (777, 1, 1)]
    for data in (path, hm.sql("SELECT * FROM records", files=[path])):
        assert sorted(sums_by_size(user_table(data, user="u", value="v"))) == expected


@pytest.mark.parametrize("odd", [5, 9, 17, 1000, 2**40 + 1])
def test_statistics_that_are_wrong_about_groups_move_no_one_to_others(odd: int, tmp_path: Path) -> None:
    groups = [number % 4 for number in range(40)]
    table = pa.table({"u": [*range(41)], "g": [*groups, odd], "v": [*map(float, range(40)), 777.0]})
    path = with_wrong_statistics(table, tmp_path / "records.parquet", odd, 3)
    found = names_and_sums(path, max_groups=1)
    assert found == sorted([*(((str(g),), float(n)) for n, g in enumerate(groups)), ((str(odd),), 777.0)])
    shuffled = table.select(["g", "u", "v"]).rename_columns(["u", "w", "v"])
    path = with_wrong_statistics(shuffled, tmp_path / "two.parquet", odd, 3)
    assert user_table(path, user=["u", "w"], value="v").n_users == 41


@pytest.mark.parametrize("role", ["u", "g"])
def test_decimals_of_more_digits_than_the_engine_has_identify_nobody(role: str, tmp_path: Path) -> None:
    """It would read them as doubles, and make one user of two."""
    held = pa.array([Decimal(10) ** 50, Decimal(10) ** 50 + 1], pa.decimal256(60, 0))
    path = tmp_path / "records.parquet"
    pq.write_table(pa.table({"u": [1, 2], "g": [1, 2], "v": [1.0, 2.0]} | {role: held}), path)
    with pytest.raises(hm.InputError, match="DuckDB rounds"):
        names_and_sums(path, max_groups=1)
    if role == "u":
        with pytest.raises(hm.InputError, match="DuckDB rounds"):
            user_table(path, user="u", value="v")
