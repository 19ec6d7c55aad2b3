"""Queries of PostgreSQL: what each type is read as, what cannot be written or told, on a real server."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import hubermean as hm
from helpers.postgres_server import Server
from hubermean.cli.app import main
from hubermean.ingest import postgres as reader
from hubermean.ingest.reading import group_table, user_table
from hubermean.ingest.schema import ColumnRoles

_NAMES = itertools.count()
SECRET = "s3cr/et@word"


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.new_database(f"source_{next(_NAMES)}")


def run(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def sums(query: Any, **how: Any) -> list[tuple[float, int, int]]:
    table = user_table(query, **{"user": "u", "value": "v", **how}).collect()
    total = [float(table.sums[0].fraction(place)) for place in range(table.n_users)]
    return sorted(zip(total, table.counts.tolist(), table.records.tolist(), strict=True))


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "cells", "wanted"),
    [
        ("numeric(10, 2)", "1.10 NaN 99999999.99 -5", [-5.0, 1.10, 99999999.99]),
        ("numeric", "5.500 NaN Infinity -Infinity 1e400 0.1", [0.1, 5.5]),
        ("numeric(3, -2)", "12300", [12300.0]),
        ("money", "12.34 -1", [-1.0, 12.34]),
        ("double precision", "1.5 NaN Infinity 1e308", [1.5, 8e12]),
        ("real", "2.5 NaN", [2.5]),
        ("smallint", "-3 32767", [-3.0, 32767.0]),
        ("boolean", "true false", [0.0, 1.0]),
        (
            "interval",
            "'1 day 2 hours' '-1 second' '178000000 years' '-178000000 years'",
            [-8e12, -1, 93600, 8e12],
        ),
    ],
)
def test_values_of_a_type_are_read_without_failing(
    url: str, kind: str, cells: str, wanted: list[float]
) -> None:
    listed = (
        cells.replace("' '", "'\n'").split("\n") if "'" in cells else [f"'{one}'" for one in cells.split()]
    )
    rows = ", ".join(f"({place}, {cell})" for place, cell in enumerate([*listed, "NULL"]))
    run(url, f"CREATE TABLE t (u integer, v {kind})", f"INSERT INTO t VALUES {rows}")
    found = sums(hm.sql("SELECT * FROM t", connection=url))
    assert len(found) == len(listed) + 1, "a record has vanished"
    assert [total for total, usable, _ in found if usable] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("kind", "cells", "wanted"),
    [
        ("numeric", "5.500 5.5 1e2 100 NaN", 2),
        ("numeric(20, 2)", "5.50 5.5 NaN", 1),
        ("char(5)", "a a b", 2),
        ("uuid", "00000000-0000-0000-0000-00000000000A 00000000-0000-0000-0000-00000000000a", 1),
        ("bytea", r"\x00 \xff \xff", 2),
        ("mood", "sad ok sad", 2),
        ("date", "2024-02-29 infinity -infinity 4714-11-24BC 5874897-12-31", 3),
        ("name", "a b", 2),
    ],
)
def test_users_of_a_type_are_distinguished(url: str, kind: str, cells: str, wanted: int) -> None:
    rows = ", ".join(f"('{cell.replace('BC', ' BC')}', 1)" for cell in cells.split())
    run(
        url,
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        f"CREATE TABLE t (u {kind}, v integer)",
        f"INSERT INTO t VALUES {rows}",
    )
    assert len(sums(hm.sql("SELECT * FROM t", connection=url))) == wanted


@pytest.mark.parametrize("column", ["moment", "moment_tz"])
def test_points_in_time_beyond_what_arrow_holds_are_no_failure(url: str, column: str) -> None:
    run(
        url,
        "CREATE TABLE t (u integer, v integer, moment timestamp, moment_tz timestamptz)",
        "INSERT INTO t SELECT 1, 1, m, m::timestamp AT TIME ZONE 'UTC' "
        "FROM (VALUES ('infinity'::timestamp), ('-infinity'), ('294276-12-31 23:59:59.999999'), "
        "('4714-11-24 00:00:00 BC'), (NULL), ('2024-02-29')) t(m)",
    )
    query = hm.sql("SELECT * FROM t", connection=url)
    for period in ("day", "week", "month", "quarter", "year"):
        table = group_table(
            query, user=["u"], value=["v"], by=[f"{period}({column})"], keys=None, max_groups=9
        )
        assert len(table.keys) == 3
    with pytest.raises(hm.InputError, match=rf"timestamp .* group by month\({column}\)"):
        group_table(query, user=["u"], value=["v"], by=[column], keys=None, max_groups=9)


def test_text_that_is_no_utf8_is_a_user_of_its_own(postgres: Server) -> None:
    name = f"bytes_{next(_NAMES)}"
    run(postgres.url(), f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    url = postgres.url(name)
    run(
        url,
        "CREATE TABLE t (u text, v integer)",
        r"INSERT INTO t VALUES (E'\xff', 1), (E'\xfe', 2), (E'\xff', 4), ('a', 8)",
    )
    assert [total for total, _, _ in sums(hm.sql("SELECT * FROM t", connection=url))] == [2, 5, 8]
    table = group_table(
        hm.sql("SELECT v AS w, u, v FROM t", connection=url),
        user=["w"],
        value=["v"],
        by=["u"],
        keys=None,
        max_groups=9,
    )
    assert table.keys == (("a",),)


@pytest.mark.parametrize("kind", ["json", "integer[]", "inet", "timestamp", "interval"])
def test_other_types_are_refused_with_what_to_do(url: str, kind: str) -> None:
    run(url, f"CREATE TABLE t (u {kind}, v integer)")
    with pytest.raises(hm.InputError, match=r"cast it in the query|group by month"):
        sums(hm.sql("SELECT * FROM t", connection=url))


# --- reading only -----------------------------------------------------------------------------------------------------

WRITING = [
    "SELECT 1; DROP TABLE t",
    "DELETE FROM t RETURNING u, v",
    "INSERT INTO t VALUES (9, 9) RETURNING u, v",
    "WITH gone AS (DELETE FROM t RETURNING u, v) SELECT * FROM gone",
    "SELECT u, v FROM t FOR UPDATE",
    "SELECT 1) AS q; DROP TABLE t; SELECT * FROM (SELECT 1 AS u, 2 AS v",
    "SELECT 1 AS u, 2 AS v) TO STDOUT; DROP TABLE t; COPY (SELECT 1 AS u, 2 AS v",
    "SELECT u, v FROM t /*",
    "SELECT u, nextval('s') AS v FROM t",
    "SELECT u, write_it() AS v FROM t",
    "SELECT u, write_it() AS v FROM t WHERE set_config('transaction_read_only', 'off', true) = 'off'",
]


@pytest.mark.parametrize("query", WRITING)
def test_a_query_cannot_write(url: str, query: str) -> None:
    run(
        url,
        "CREATE TABLE t (u integer, v integer)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "CREATE SEQUENCE s",
        "CREATE FUNCTION write_it() RETURNS integer LANGUAGE plpgsql AS "
        "$$ BEGIN DELETE FROM t; RETURN 1; END $$",
    )
    with pytest.raises(hm.InputError):
        sums(hm.sql(query, connection=url))
    assert run(url, "SELECT count(*) FROM t") == [(2,)]
    assert run(url, "SELECT is_called FROM s") == [(False,)]


def test_nothing_is_committed(url: str) -> None:
    """Before version 16 the server lets a transaction that only reads make large objects."""
    run(url, "CREATE TABLE t (u integer, v integer)", "INSERT INTO t VALUES (1, 1)")
    with contextlib.suppress(hm.InputError):
        sums(hm.sql("SELECT u, lo_create(0)::int AS v FROM t", connection=url))
    assert run(url, "SELECT count(*) FROM pg_largeobject_metadata") == [(0,)]


def test_a_server_that_does_not_say_read_only_is_not_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(url, "CREATE TABLE t (u integer, v integer)")
    monkeypatch.setattr(reader, "_BEGIN", "BEGIN TRANSACTION READ WRITE")
    with pytest.raises(hm.InputError, match="could not be read"):
        sums(hm.sql("SELECT * FROM t", connection=url))


def test_types_that_change_after_they_were_declared_end_the_release(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(url, "CREATE TABLE t (u integer, v integer)", "INSERT INTO t VALUES (1, 1)")
    begin = reader._run

    def change_first(*given: Any) -> Any:
        run(url, "ALTER TABLE t ALTER u TYPE double precision")
        return begin(*given)

    monkeypatch.setattr(reader, "_run", change_first)
    with pytest.raises(hm.InputError, match="could not be read"):
        sums(hm.sql("SELECT * FROM t", connection=url))


# --- fetching while grouping -----------------------------------------------------------------------------------------


def batches(n: int) -> Iterator[pa.RecordBatch]:
    for place in range(n):
        yield pa.record_batch({"v": [place]})


def fetchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hubermean-fetch"]


def test_batches_fetched_ahead_are_all_there_in_their_order() -> None:
    stream = pa.RecordBatchReader.from_batches(pa.schema({"v": pa.int64()}), batches(50))
    with reader._fetch_ahead(stream, lambda: None) as ahead:
        assert ahead.read_all().column("v").to_pylist() == list(range(50))
    assert not fetchers()


def test_an_error_of_the_server_ends_the_stream_and_not_as_if_it_were_complete() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(3)
        raise RuntimeError("the connection was lost")

    stream = pa.RecordBatchReader.from_batches(pa.schema({"v": pa.int64()}), broken())
    with (
        reader._fetch_ahead(stream, lambda: None) as ahead,
        pytest.raises(RuntimeError, match="connection was lost"),
    ):
        ahead.read_all()
    assert not fetchers()


@pytest.mark.parametrize("read", [0, 1, 7])
def test_who_stops_early_leaves_no_thread_behind_that_uses_the_connection(read: int) -> None:
    used = []

    def endless() -> Iterator[pa.RecordBatch]:
        for batch in batches(10**9):
            used.append(batch)
            yield batch

    cancelled = []
    stream = pa.RecordBatchReader.from_batches(pa.schema({"v": pa.int64()}), endless())
    with reader._fetch_ahead(stream, lambda: cancelled.append(True)) as ahead:
        for _ in range(read):
            ahead.read_next_batch()
    assert cancelled == [True]
    assert not fetchers()
    assert len(used) <= read + 2 * reader._BATCHES_AHEAD + 3  # and not much was fetched that nobody reads


def test_a_release_that_ends_early_makes_the_server_give_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_BATCH_BYTES", 1 << 12)
    data = hm.sql("SELECT x AS u, x AS v FROM generate_series(1, 1000000) x", connection=url)
    roles = ColumnRoles(users=("u",), values=("v",))
    with reader.open_postgres(data, roles) as frame:
        first = frame.read().read_next_batch()
        again = frame.read()  # as after memory ran out: from the beginning, on the same connection
        assert again.read_next_batch().equals(first)
    assert not fetchers()


# --- what is charged, and what is told --------------------------------------------------------------------------------


def test_what_can_be_known_is_refused_before_the_charge(url: str, tmp_path: Path) -> None:
    run(
        url,
        "CREATE TABLE t (u integer, v integer)",
        "DROP ROLE IF EXISTS guest",
        "CREATE ROLE guest LOGIN",
    )
    guest = url.replace("postgresql://postgres", "postgresql://guest")
    with hm.Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.init("trips", epsilon=10)
    refused = [
        (url, "SELECT nothing FROM t", "does not exist"),
        (url, "SELECT u FROM t", "there is no column 'v'; the columns are: u"),
        (url, "SELECT u, v FROM t FOR SHARE", "only reads"),
        (url, "DROP TABLE t", "syntax error"),
        (guest, "SELECT u, v FROM t", "permission denied"),
        (url.replace("source_", "nowhere_"), "SELECT u, v FROM t", "cannot be reached"),
        (url, "SELECT u, v, v FROM t", "several columns 'v'"),
    ]
    for where, query, words in refused:
        with pytest.raises(hm.InputError, match=words):
            hm.mean(
                hm.sql(query, connection=where),
                user="u",
                value="v",
                epsilon=1,
                ledger=tmp_path / "ledger.sqlite",
                dataset="trips",
            )
    with hm.Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert "10" in ledger.dataset("trips").left_in_words


@pytest.mark.parametrize(
    "query",
    [
        "SELECT u, CAST(secret AS integer) AS v FROM t",
        "SELECT u, 1 / (v - 500) AS v FROM t",
        "SELECT u, tell(secret) AS v FROM t",
    ],
)
def test_an_error_in_the_middle_of_the_stream_quotes_nothing(
    url: str, query: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run(
        url,
        "CREATE TABLE t AS SELECT x AS u, x AS v, CASE WHEN x = 900 THEN 'qzCanary' ELSE '1' END AS secret "
        "FROM generate_series(1, 1000) x",
        "CREATE FUNCTION tell(t text) RETURNS integer LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE NOTICE '%', t; RAISE WARNING '%', t; IF t <> '1' THEN RAISE EXCEPTION '%', t; END IF; "
        "RETURN 1; END $$",
    )
    with pytest.raises(hm.NotReleased) as caught:
        hm.mean(hm.sql(query, connection=url), user="u", value="v", epsilon=1, bounds=(0, 9), max_records=1)
    assert str(caught.value).startswith("the data could not be read completely")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    said = capfd.readouterr()
    assert "qzCanary" not in said.out + said.err


def test_a_time_limit_of_the_server_does_not_end_a_release(url: str) -> None:
    run(
        url,
        "CREATE TABLE t AS SELECT x AS u, x AS v FROM generate_series(1, 3) x",
        f"ALTER DATABASE {url.rpartition('/')[2]} SET statement_timeout = '50ms'",
    )
    query = hm.sql("SELECT u, v FROM t WHERE pg_sleep(0.1) IS NOT NULL", connection=url)
    assert len(sums(query)) == 3


def test_a_password_is_nowhere_to_be_seen(
    postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        postgres.new_database("own"), "CREATE TABLE t AS SELECT x AS u, x AS v FROM generate_series(1, 900) x"
    )
    own = f"postgresql://{postgres.user}:{SECRET.replace('/', '%2F').replace('@', '%40')}@127.0.0.1:{postgres.port}/own"
    plain = f"postgresql://{postgres.user}:{SECRET}@127.0.0.1:{postgres.port}/own"
    query = hm.sql("SELECT u, v FROM t", connection=own)
    ledger = tmp_path / "ledger.sqlite"
    with hm.Ledger(ledger) as made:
        made.init("trips", epsilon=10)
    told = [repr(query), str(query)]
    known: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 1, "bounds": (0, 9), "max_records": 1}
    first = hm.mean(query, **known, ledger=ledger, dataset="trips")
    again = hm.mean(
        hm.sql("SELECT u, v FROM t", connection=own.replace("s3cr", "new")),
        **known,
        ledger=ledger,
        dataset="trips",
    )
    assert again.value == first.value, "a changed password is no other question"
    told += [first.to_json(), str(first), ledger.read_bytes().decode("latin-1")]
    for bad in (
        plain,
        own.replace("/own", "/nowhere"),
        own.replace("127.0.0.1", "no.such.host.invalid"),
        f"{own}?what=ever",
    ):
        with pytest.raises(hm.InputError) as caught:
            sums(hm.sql("SELECT u, v FROM t", connection=bad))
        told.append(str(caught.value))
    monkeypatch.setenv("HUBERMEAN_CONNECTION", own)
    page = tmp_path / "page.html"
    words = [
        "--user",
        "u",
        "--value",
        "v",
        "--epsilon",
        "1",
        "--bounds",
        "0",
        "9",
        "--max-records",
        "1",
        "--report",
        str(page),
    ]
    monkeypatch.setattr("sys.argv", ["hubermean", "release", "SELECT u, v FROM t", *words])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    captured = capsys.readouterr()
    told += [captured.out, captured.err, page.read_text()]
    for text in told:
        assert "s3cr" not in text
        assert "et@word" not in text


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        ("mysql://host/db", "export the records to Parquet"),
        ("host=127.0.0.1 password=secret", "must begin with postgresql://"),
        (7, "must begin with postgresql://"),
        ("sqlite:///nowhere.sqlite", "there is no file"),
        ("sqlite://nowhere.sqlite", "four slashes"),
        ("postgresql://127.0.0.1:1/db", "cannot be reached"),
    ],
)
def test_connections_that_cannot_be_used_are_refused_in_words(connection: Any, words: str) -> None:
    with pytest.raises(hm.InputError, match=words) as caught:
        sums(hm.sql("SELECT 1 AS u, 2 AS v", connection=connection))
    assert "secret" not in str(caught.value)


def test_files_and_a_connection_are_two_things(tmp_path: Path) -> None:
    with pytest.raises(hm.InputError, match="not both"):
        hm.sql("SELECT 1", files=["a.parquet"], connection="sqlite:///a.sqlite")


def test_a_query_of_a_database_counts_no_users(url: str) -> None:
    run(url, "CREATE TABLE t (u integer, v integer)")
    with pytest.raises(hm.InputError, match="give n_users"):
        hm.mean(
            hm.sql("SELECT * FROM t", connection=url),
            user="u",
            value="v",
            epsilon=1,
            bounds=(0, 1),
            neighbors="replace-user",
        )
