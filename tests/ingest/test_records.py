"""One record is judged by itself: special values, malformed rows, hostile text."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.neighbors import sums_by_size
from hubermean.ingest.reading import user_table

NAN, INF = math.nan, math.inf


def test_unusable_records_are_dropped_and_their_user_stays() -> None:
    table = pa.table({"u": [1, 1, 2, 2, 3, None], "v": [1.0, NAN, INF, None, 5.0, 9.0]})
    assert sums_by_size(user_table(table, user="u", value="v")) == [(0, 0, 2), (1, 1, 2), (5, 1, 1)]


@pytest.mark.parametrize("resolution", [None, 0.5])
@pytest.mark.parametrize("values", [[0.0, NAN], [NAN, 1.0, 1.0], [INF, NAN], [1e300, NAN], [None, NAN]])
def test_file_statistics_do_not_let_nan_through(
    values: list[float | None], resolution: float | None, tmp_path: Path
) -> None:
    """Parquet statistics leave NaN out, so an optimiser may take a range test on the column for granted."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"u": [1] * len(values), "v": pa.array(values, pa.float64())}), path)
    finite = sum(value is not None and math.isfinite(value) for value in values)
    with duckdb.connect() as connection:
        for data in (path, connection.sql(f"select * from '{path}'")):
            for rule, usable in (("drop", finite), ("clamp", finite + values.count(INF))):
                read = user_table(data, user="u", value="v", resolution=resolution, non_finite=rule)
                assert read.counts.tolist() == [usable]


def test_file_statistics_do_not_let_a_nan_user_through(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"u": [1.0, NAN, INF], "v": [1.0, 2.0, 4.0]}), path)
    assert [total for total, _, _ in sums_by_size(user_table(path, user="u", value="v"))] == [1, 4]


def test_infinities_are_clamped_on_request() -> None:
    table = pa.table({"u": [1, 2, 3], "v": [INF, -INF, NAN]})
    found = sums_by_size(user_table(table, user="u", value="v", non_finite="clamp"))
    assert found == [(-8 * 10**12, 1, 1), (0, 0, 1), (8 * 10**12, 1, 1)]


def test_values_beyond_the_range_are_clamped() -> None:
    table = pa.table({"u": [1, 2, 3], "v": [1e13, -1.7e308, 8e12]})
    assert [total for total, _, _ in sums_by_size(user_table(table, user="u", value="v"))] == [
        -8e12,
        8e12,
        8e12,
    ]


def test_a_record_needs_all_its_values() -> None:
    table = pa.table({"u": [1, 1, 2], "a": [1.0, 2.0, NAN], "b": [10, None, 30]})
    read = user_table(table, user="u", value=["a", "b"])
    assert sums_by_size(read, 0) == [(0, 0, 1), (1, 1, 2)]
    assert sums_by_size(read, 1) == [(0, 0, 1), (10, 1, 2)]
    assert read.means.shape == (2, 2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "row",
    [
        "evil,abc",
        "evil,",
        "evil",
        "evil,1,2,3",
        'evil,"1"x',
        'evil,"1\n2"',
        "evil,nan",
        "evil,1e999999",
        "evil," + "9" * 5_000_000,
        'evil,"2020-01-01"',
        "evil,0x10",
        "",
        ",7",
        '"",7',
    ],
    ids=range(14),
)
def test_a_malformed_csv_row_touches_nobody_else(row: str, threads: int, tmp_path: Path) -> None:
    good = [f"user{i},{i}.5" for i in range(3000)]
    (tmp_path / "t.csv").write_text("\n".join(["u,v", *good[:1500], row, *good[1500:]]) + "\n")
    read = user_table(tmp_path / "t.csv", user="u", value="v", threads=threads)
    totals = [total for total, count, _ in sums_by_size(read) if count]
    assert sorted(set(totals) & {i + 0.5 for i in range(3000)}) == [i + 0.5 for i in range(3000)]
    assert len(totals) <= 3001


def test_lines_inside_a_quoted_field_are_no_records(tmp_path: Path) -> None:
    """A reader that starts in the middle of the file, as parallel ones do every few megabytes, would see rows."""
    path = tmp_path / "t.csv"
    lines = [f"user{i:07d},0.5,{'x' * 60}\n" for i in range(150_000)]
    size, position = 0, 0
    while size < 7_999_500:
        size += len(lines[position])
        position += 1
    lines.insert(position, 'evil,1,"' + "\n".join(["victim,1000000,z"] * 60) + '"\n')
    path.write_text("u,v,note\n" + "".join(lines))
    read = user_table(path, user="u", value="v")
    assert read.n_users == 150_001
    assert max(total for total, _, _ in sums_by_size(read)) == 1


@pytest.mark.parametrize("value", [b"\xff", b"9" * 2_100_000, b'"a""b"', b""])
def test_a_csv_value_of_any_bytes_keeps_its_record(value: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"u,v\na,1\nb," + value + b"\n\xe9,3\n")
    assert user_table(tmp_path / "t.csv", user="u", value="v").n_users == 3


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.int64(),
        pa.decimal128(12, 2),
        pa.decimal128(20, 2),
        pa.decimal128(38, 0),
        pa.float64(),
        pa.bool_(),
    ],
)
def test_null_is_no_number_in_any_type(kind: pa.DataType) -> None:
    one = Decimal(1) if pa.types.is_decimal(kind) else kind == pa.bool_() or 1
    table = pa.table({"u": [1, 2, 2], "v": pa.array([one, None, None], kind)})
    assert sums_by_size(user_table(table, user="u", value="v")) == [(0, 0, 2), (1, 1, 1)]


@pytest.mark.parametrize("odd", ["new", 0.5, None, NAN, [1], 1j, "\ud800", pd.NA])
def test_one_odd_key_does_not_merge_others(odd: object) -> None:
    keys = pd.Series([*(10**18 + i for i in range(200)), odd], dtype=object)
    read = user_table(pd.DataFrame({"u": keys, "v": 1.0}), user="u", value="v")
    assert read.n_users in (200, 201)


def test_a_key_whose_own_code_fails_names_nobody() -> None:
    class Broken:
        def __hash__(self) -> int:
            raise RuntimeError("no")

    frame = pd.DataFrame({"u": pd.Series([1, Broken(), 2], dtype=object), "v": [1.0, 2.0, 3.0]})
    assert user_table(frame, user="u", value="v").n_users == 2


def test_a_stream_is_read_once_whatever_it_holds() -> None:
    wide = [Decimal(5), Decimal(7), *[Decimal("9" * 38)] * 40]
    table = pa.table({"u": [0, 1, *[2] * 40], "v": pa.array(wide, pa.decimal128(38, 0))})
    assert user_table(table.to_reader(), user="u", value="v").n_users == 3


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_points_in_time_identify_nobody_where_types_are_declared(unit: str, tmp_path: Path) -> None:
    """Engines fail to read some of them: whether there was an answer would depend on one record."""
    table = pa.table({"u": pa.array([1, 2**50, 1], pa.timestamp(unit)), "v": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    for data in (table, tmp_path / "t.parquet"):
        with pytest.raises(hm.InputError, match=r"TIMESTAMP.*cannot identify users"):
            user_table(data, user="u", value="v")


def test_an_empty_json_lines_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("")
    assert user_table(tmp_path / "t.jsonl", user="u", value="v").n_users == 0


def test_sql_over_text_files_does_not_guess_types(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for value in ("3", "abc"):
        path.write_text(f"u,v\na,1\nb,2\nc,{value}\n")
        query = hm.sql("select u, try_cast(v as double) as v from t", files=[path])
        assert user_table(query, user="u", value="v").n_users == 3
        with pytest.raises(hm.InputError):
            user_table(hm.sql(f"select * from '{path}'", files=[path]), user="u", value="v")


@pytest.mark.parametrize("other", ["u", "U"])  # one column to the engine
def test_files_that_store_a_key_differently_are_refused(other: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": pa.array([2**53, 2**53 + 1]), "v": [1.0, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({other: pa.array([1.0, 2.0]), "v": [1.0, 2.0]}), tmp_path / "b.parquet")
    with pytest.raises(hm.InputError, match="different types"):
        user_table(tmp_path / "*.parquet", user="u", value="v")


def test_a_first_line_of_data_is_not_shown_as_a_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("alice,473\nbob,5\n")
    with pytest.raises(hm.InputError, match="no column 'u'; check its spelling") as caught:
        user_table(tmp_path / "t.csv", user="u", value="v")
    assert "473" not in str(caught.value)
    assert "alice" not in str(caught.value)


def test_newline_styles_and_byte_order_marks(tmp_path: Path) -> None:
    for name, text in {
        "crlf": "u,v\r\na,1\r\nb,2\r\n",
        "mixed": "u,v\na,1\r\nb,2\n",
        "bom": "\ufeffu,v\na,1\nb,2",
        "blank": "u,v\n\na,1\n\nb,2\n\n",
    }.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(text, newline="", encoding="utf-8")
        assert sums_by_size(user_table(path, user="u", value="v")) == [(1, 1, 1), (2, 1, 1)], name


def test_malformed_json_lines_touch_nobody_else(tmp_path: Path) -> None:
    lines = [
        *('{"u":"a","v":1.5}', "{bad", '{"u":"b","v":{"x":1}}', "", '"text"', "[1]", '{"u":"c","v":true}'),
        *('{"u":"d"}', '{"v":3}', '{"u":null,"v":3}', '{"u":"e","v":"2.5"}', '{"u":"f","v":NaN}'),
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    read = user_table(tmp_path / "t.jsonl", user="u", value="v")
    assert sorted(t for t, count, _ in sums_by_size(read) if count) == [1, 1.5, 2.5]  # true is one
    assert read.n_users == 6


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_user_whose_text_is_no_number_keeps_its_place(kind: str, tmp_path: Path) -> None:
    rows = [("mine", "1"), ("evil", "abc"), ("evil", ""), ("other", "2")]
    lines = {
        "csv": ["u,v", *(f"{user},{value}" for user, value in rows)],
        "jsonl": [f'{{"u": "{user}", "v": "{value}"}}' for user, value in rows],
    }[kind]
    (tmp_path / f"t.{kind}").write_text("\n".join(lines))
    read = user_table(tmp_path / f"t.{kind}", user="u", value="v")
    assert sums_by_size(read) == [(0, 0, 2), (1, 1, 1), (2, 1, 1)]


def test_csv_numbers_are_parsed_alike_whatever_the_others_are(tmp_path: Path) -> None:
    """No guessing of types from content: one user's text does not change another's number."""
    for other in ("1", "abc", "2020-01-01", "true", "1.0000000000001"):
        (tmp_path / "t.csv").write_text(f"u,v\nother,{other}\nmine,00012.5\n")
        assert (12.5, 1, 1) in sums_by_size(user_table(tmp_path / "t.csv", user="u", value="v"))


def test_sql_reads_only_the_named_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": [1, 2], "v": [1.0, 2.0]}), tmp_path / "named.parquet")
    pq.write_table(pa.table({"u": [1, 2], "v": [1.0, 2.0]}), tmp_path / "other.parquet")
    named, other = tmp_path / "named.parquet", tmp_path / "other.parquet"
    for query in ("select * from named", f"select * from '{named}'", f"from read_parquet('{named}');"):
        assert user_table(hm.sql(query, files=[named]), user="u", value="v").n_users == 2
    mapped = hm.sql("select * from trips where v > 1", files={"trips": named})
    assert user_table(mapped, user="u", value="v").n_users == 1
    for query in (
        f"select * from '{other}'",
        f"select * from read_parquet('{tmp_path}/*.parquet')",
        "select filename as u, 1 as v from read_text('/etc/hostname')",
        "select file as u, 1 as v from glob('/*')",
    ):
        with pytest.raises(hm.InputError):
            user_table(hm.sql(query, files=[named]), user="u", value="v")


@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1 as u, 2 as v) to 'leak.csv'",
        "select 1 as u; select 2 as v",
        "attach 'x.db'",
        "set enable_external_access = true",
        "create table t (u int)",
        "install httpfs",
        "pragma version",
        "selec u",
        "select nothing from nowhere",
        "",
    ],
)
def test_only_one_select_is_run(query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hm.InputError):
        user_table(hm.sql(query), user="u", value="v")
    assert not list(tmp_path.iterdir())


def test_an_error_inside_a_query_quotes_no_data(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": [1, 2], "v": ["12", "secret-473"]}), tmp_path / "t.parquet")
    query = hm.sql("select u, v::double as v from t", files=[tmp_path / "t.parquet"])
    with pytest.raises(hm.InputError) as caught:
        user_table(query, user="u", value="v")
    assert "473" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_from_means_is_the_same_table_as_from_records() -> None:
    from hubermean.data.user_table import UserTable

    means, counts = np.array([1.25, -3e11, NAN]), np.array([4, 2_000_000, 3])
    table = UserTable.from_means(means, counts)
    assert sums_by_size(table) == [(-6 * 10**17, 2_000_000, 2_000_000), (0, 0, 3), (5, 4, 4)]


def test_a_progress_bar_appears_on_a_terminal_past_one_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slow query runs in a thread, and what it returns or raises reaches the caller all the same."""
    from hubermean.ingest.duckdb.session import fetch, open_session
    from hubermean.types.options import EngineOptions

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with open_session((), EngineOptions(threads=1)) as connection:
        slow = connection.sql("select sum(hash(range) % 7) as s from range(400_000_000)")
        assert fetch(slow, connection, progress=True).num_rows == 1
        with pytest.raises(duckdb.Error):
            fetch(connection.sql("select error('no') from range(3)"), connection, progress=True)
    assert "Reading and grouping" in capsys.readouterr().err


@pytest.mark.parametrize("frame", ["pandas", "polars", "arrow", "reader"])
def test_points_in_time_have_no_mean_in_any_frame(frame: str) -> None:
    """They were averaged as the integers they are stored as."""
    import datetime

    import pandas as pd
    import polars as pl

    when = [datetime.datetime(2026, 1, day) for day in (1, 2, 3)]
    columns = {"u": [1, 2, 3], "t": when}
    table = pa.table(columns)
    if frame == "pandas":  # which infers types: no cell is a number, whatever the type
        read = user_table(pd.DataFrame(columns), user="u", value="t").collect()
        assert read.counts.tolist() == [0, 0, 0]
        assert user_table(pd.DataFrame({"u": when, "v": 1.0}), user="u", value="v").n_users == 3
        return
    data = {
        "polars": lambda: pl.DataFrame(columns),
        "arrow": lambda: table,
        "reader": lambda: table.to_reader(),
    }[frame]
    with pytest.raises(hm.InputError, match=r"TIMESTAMP.*has no mean"):
        user_table(data(), user="u", value="t")
