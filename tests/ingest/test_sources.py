"""SQLite files, remote files, Arrow files, Delta tables and arrays: what is particular to each of them."""

from __future__ import annotations

import contextlib
import gzip
import os
import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.s3_server import BUCKET, KEY, SECRET, S3Server
from hubermean.ingest.inspection import unsafe_inspection
from hubermean.ingest.locations import without_credentials
from hubermean.ingest.reading import group_table, user_table
from hubermean.ingest.sql import identify_connection


def entries(data: Any, **how: Any) -> list[tuple[Fraction, int, int]]:
    table = user_table(data, **{"user": "u", "value": "v", **how}).collect()
    return sorted(
        (table.sums[0].fraction(place), table.counts.tolist()[place], table.records.tolist()[place])
        for place in range(table.n_users)
    )


# --- SQLite -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = tmp_path / "trips.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE t (u INTEGER, v REAL, day TEXT)")
        made.execute(
            "INSERT INTO t VALUES (1, 1.5, '2024-02-29'), (1, '2', '2024-02-01 12:00'), ('1', 'x', NULL)"
        )
        made.execute(
            "INSERT INTO t VALUES (x'ff', 4, 'soon'), (CAST(x'ff' AS TEXT), 8, '2024-03-01'), (1.0, 16, 5)"
        )
    return f"sqlite:///{path}"


def test_cells_of_sqlite_are_read_by_themselves(database: str) -> None:
    query = hm.sql("SELECT * FROM t -- all", connection=database)
    assert entries(query) == [(Fraction(4), 1, 1), (Fraction(8), 1, 1), (Fraction(39, 2), 3, 4)]
    table = group_table(query, user=["u"], value=["v"], by=["month(day)"], keys=None, max_groups=9)
    assert sorted(table.keys) == [("2024-02",), ("2024-03",)]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM t RETURNING u, v",
        "SELECT u, v FROM t; DROP TABLE t",
        "ATTACH 'other.sqlite' AS other",
        "PRAGMA user_version = 7",
        "SELECT u, load_extension('x') AS v FROM t",
        "SELECT u, v FROM nothing",
        "INSERT INTO t SELECT * FROM t",
    ],
)
def test_a_query_of_sqlite_cannot_write(database: str, query: str) -> None:
    path = Path(database.removeprefix("sqlite:///"))
    before = path.read_bytes()
    with pytest.raises(hm.InputError):
        entries(hm.sql(query, connection=database))
    assert path.read_bytes() == before
    assert sorted(one.name for one in path.parent.iterdir()) == ["trips.sqlite"]


def test_a_query_of_sqlite_runs_after_the_charge(database: str) -> None:
    """Else whether it is refused for nothing would depend on the records."""
    query = hm.sql("SELECT u, abs(-9223372036854775807 - (v > 1)) AS v FROM t", connection=database)
    with pytest.raises(hm.NotReleased, match="could not be read completely") as caught:
        hm.mean(query, user="u", value="v", epsilon=1, bounds=(0, 1), max_records=1)
    assert caught.value.__context__ is None


def test_a_folder_or_another_file_is_no_sqlite_database(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("u,v\n" * 300)
    for name in ("text.sqlite", ".", "nothing.sqlite"):
        with pytest.raises(hm.InputError, match=r"cannot be opened as a SQLite database|there is no file"):
            entries(hm.sql("SELECT 1 AS u, 2 AS v", connection=f"sqlite:///{tmp_path}/{name}"))


# --- remote files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path) -> str:
    folder = tmp_path.name
    table = pa.table({"u": [1, 1, 2, None], "v": [1.5, 2.0, 3.0, 4.0], "g": ["a", "b", None, "a"]})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.slice(0, 2), tmp_path / "b.parquet")
    feather.write_feather(table, tmp_path / "a.arrow")
    (tmp_path / "a.csv").write_text("u;v\n1;1,5\n1;2\n2;3\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    (tmp_path / "a.jsonl").write_text('{"u": 1, "v": 3.5}\n{"u": 2, "v": 3}\n')
    for name in ("a.parquet", "b.parquet", "a.arrow", "a.csv", "a.csv.gz", "a.jsonl"):
        s3.upload(tmp_path / name, f"{folder}/deep/{name}")
    return f"s3://{BUCKET}/{folder}"


FORMAT: dict[str, Any] = {"delimiter": ";", "decimal": ","}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("deep/a.parquet", {}),
        ("deep/a.arrow", {}),
        ("deep/a.csv", FORMAT),
        ("deep/a.csv.gz", FORMAT),
        ("**/a.p*", {}),
        ("deep/[!b].parquet", {}),
    ],
)
def test_remote_files_are_read_like_local_ones(bucket: str, name: str, options: dict[str, Any]) -> None:
    wanted = [(Fraction(3), 1, 1), (Fraction(7, 2), 2, 2)]
    assert entries(f"{bucket}/{name}", **options) == wanted
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("hubermean-scratch-*/*-a.csv*"))


def test_several_remote_files_are_one_table(bucket: str, tmp_path: Path) -> None:
    assert entries(f"{bucket}/deep/*.parquet") == [(Fraction(3), 1, 1), (Fraction(7), 4, 4)]
    query = hm.sql("SELECT u, sum(v) AS v FROM a GROUP BY u", files=[f"{bucket}/deep/a.parquet"])
    assert entries(query) == [(Fraction(3), 1, 1), (Fraction(7, 2), 1, 1)]
    table = group_table(
        f"{bucket}/deep/*.parquet", user=["u"], value=["v"], by=["g"], keys=None, max_groups=1
    )
    assert table.members.n_users == 1
    assert unsafe_inspection(f"{bucket}/deep/a.csv", user="u", value=["v"], **FORMAT).records == 3
    assert unsafe_inspection(f"{bucket}/deep/a.parquet", user="u", value=["v"]).records == 4


def test_remote_files_are_counted_like_local_ones(bucket: str) -> None:
    release = hm.mean(
        f"{bucket}/deep/a.parquet",
        user="u",
        value="v",
        epsilon=1,
        bounds=(0, 1),
        per="user",
        neighbors="replace-user",
    )
    assert release.n_users == 2


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("s3://{bucket}/nothing.parquet", "there is no file"),
        ("s3://{bucket}/*.nothing", "there is no file"),
        ("s3://{bucket}", "is a folder; name its files"),
        ("s3://key:{secret}@{bucket}/a.parquet?region=nowhere", "cannot be opened; check"),
        ("hdfs://127.0.0.1:1/a.parquet", "install the Hadoop client"),
        ("ftp://user:{secret}@host/a.parquet", "neither a local path nor on s3://"),
        ("s3://{bucket}/deep/a.csv", "there is no column 'u'"),
    ],
)
def test_remote_files_that_cannot_be_read_are_refused_in_words(
    bucket: str, location: str, words: str
) -> None:
    place = location.format(bucket=bucket.removeprefix("s3://"), secret=SECRET)
    with pytest.raises(hm.InputError, match=words) as caught:
        entries(place)
    assert SECRET not in str(caught.value)


def test_credentials_of_a_uri_are_nowhere_to_be_seen(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    place = (
        f"s3://{KEY}:{SECRET.replace('/', '%2F').replace('+', '%2B')}@{bucket.removeprefix('s3://')}/deep/a.parquet"
        f"?scheme=http&endpoint_override=127.0.0.1:{s3.port}&region=us-east-1"
    )
    assert len(entries(place)) == 2
    ledger = tmp_path / "ledger.sqlite"
    with hm.Ledger(ledger) as made:
        made.init("trips", epsilon=10)
    known: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 1, "bounds": (0, 1), "max_records": 1}
    first = hm.mean(place, **known, ledger=ledger, dataset="trips")
    again = hm.mean(f"{bucket}/deep/a.parquet", **known, ledger=ledger, dataset="trips")
    assert first.value == again.value, "other credentials are no other question"
    held = ledger.read_bytes().decode("latin-1") + first.to_json()
    assert "a.parquet" in held
    assert KEY not in held
    assert "secret" not in held


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/a.csv", "s3://bucket/a.csv"),
        ("s3://k:a/b@c@bucket/x/a.csv?region=x", "s3://bucket/x/a.csv"),
        ("postgresql://u:p@h:5432/d?sslmode=require", "postgresql://h:5432/d"),
        ("postgresql://h/d?password=secret@x", "postgresql://h/d"),
        ("postgresql://h/d?user=a&password=b/c", "postgresql://h/d"),
        ("/local/a@b?c.csv", "/local/a@b?c.csv"),
    ],
)
def test_what_is_shown_of_a_uri(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


# --- Arrow files, Delta tables, arrays --------------------------------------------------------------------------------


def test_arrow_files_of_several_schemas_are_refused(tmp_path: Path) -> None:
    feather.write_feather(pa.table({"u": [1], "v": [1.0]}), tmp_path / "a.arrow")
    feather.write_feather(pa.table({"u": ["1"], "v": [1.0]}), tmp_path / "b.arrow")
    with pytest.raises(hm.InputError, match="another type"):
        entries(tmp_path / "*.arrow")
    (tmp_path / "c.arrow").write_bytes(b"ARROW1\0\0 no")
    with pytest.raises(hm.InputError, match="cannot be read; check that it is complete"):
        entries(tmp_path / "c.arrow")
    with pytest.raises(hm.InputError, match="cannot be queried"):
        hm.sql("SELECT * FROM a", files=[tmp_path / "a.arrow"])


def test_a_delta_table_is_its_present_version(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    path = str(tmp_path / "trips")
    write_deltalake(path, pa.table({"u": [1, 2], "v": [1.0, 2.0], "g": ["01", "x"]}), partition_by=["g"])
    write_deltalake(path, pa.table({"u": [1, 3], "v": [4.0, 8.0], "g": ["01", "1"]}), mode="append")
    DeltaTable(path).delete("u = 2")
    assert entries(path) == [(Fraction(5), 2, 2), (Fraction(8), 1, 1)]
    table = group_table(path, user=["u"], value=["v"], by=["g"], keys=None, max_groups=9)
    assert sorted(table.keys) == [("01",), ("1",)], "the log declares the column as text"


def test_an_iceberg_table_says_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "trips" / "metadata").mkdir(parents=True)
    (tmp_path / "trips" / "data").mkdir()
    with pytest.raises(hm.InputError, match="to_arrow_batch_reader"):
        entries(tmp_path / "trips")


def test_arrays_have_names() -> None:
    structured = np.array([(1, 2.5), (1, 3.0), (2, np.nan)], dtype=[("u", ">i4"), ("v", "f2")])
    assert entries(structured) == [(Fraction(0), 0, 1), (Fraction(11, 2), 2, 2)]
    masked = np.ma.array([1.0, 2.0, 4.0], mask=[False, True, False])
    assert entries({"u": np.array(["a", "a", "b"]), "v": masked}) == [
        (Fraction(1), 1, 2),
        (Fraction(4), 1, 1),
    ]
    for bad in (np.zeros((3, 2)), np.zeros(3), {"u": np.zeros(2), "v": np.zeros(3)}, {"u": [1], "v": [2]}):
        with pytest.raises(hm.InputError, match=r"needs names of columns|of the same length|data must be"):
            entries(bad)


def test_days_of_numpy_have_months() -> None:
    days = np.array(["2024-02-29", "2024-03-01", "NaT"], dtype="datetime64[D]")
    for kind in ("datetime64[D]", "datetime64[s]", "datetime64[ns]"):
        data = {"u": np.arange(3), "v": np.ones(3), "day": days.astype(kind)}
        table = group_table(data, user=["u"], value=["v"], by=["month(day)"], keys=None, max_groups=1)
        assert sorted(table.keys) == [("2024-02",), ("2024-03",)]


def test_a_database_that_an_option_names_is_another_one() -> None:
    names = [
        identify_connection(f"postgresql://ann:secret@h/{rest}")
        for rest in ("?dbname=a", "?dbname=b", "?dbname=b&host=c", "?dbname=b&password=secret", "?x=se@cret")
    ]
    assert names == [
        "ann@h/?dbname=a",
        "ann@h/?dbname=b",
        "ann@h/?dbname=b&host=c",
        "ann@h/?dbname=b",
        "ann@h/",
    ]
