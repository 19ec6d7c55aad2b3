"""Older files, clocks, cut cables, files that move: what is released is charged, and no charge is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm
from helpers.ledger_asks import ask_means, kinds_at, opened, small_file
from helpers.postgres_server import Cable, Server
from hubermean.ledger import ledger as ledger_module
from hubermean.ledger.store import SCHEMA

TESTS = Path(__file__).parent.parent
OLD = TESTS / "ledger" / "ledger-schema-1.sqlite"
PROGRAM = str(Path(sys.executable).with_name("hubermean"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_file(tmp_path)


# --- older and newer files --------------------------------------------------------------------------------------------


def test_an_older_file_is_brought_up_to_date_and_keeps_its_answers(tmp_path: Path) -> None:
    place = tmp_path / "old.sqlite"
    shutil.copy(OLD, place)
    with sqlite3.connect(place) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        before = connection.execute("SELECT * FROM hubermean_entries ORDER BY number").fetchall()
    connection.close()
    with hm.Ledger(place) as ledger:
        assert ledger.verify().sound
        kept = next(entry for entry in ledger.entries() if entry.kind == "released").content["release"]
        again = ask_means(ledger, "asked long ago", 0.5, neighbors="replace-user")
        assert again.receipt is not None
        assert again.receipt.again
        assert again.value == kept["values"][0]
        assert ledger.dataset("d").spent.loss == Decimal("0.5")
        with pytest.raises(hm.BudgetExhausted):
            ask_means(ledger, "something else", 0.75, neighbors="replace-user")
        assert ledger.verify().sound
    with sqlite3.connect(place) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        after = connection.execute("SELECT * FROM hubermean_entries ORDER BY number").fetchall()
    connection.close()
    assert after[: len(before)] == before


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "l.sqlite"
    opened(str(place))
    with sqlite3.connect(place) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    for use in (
        lambda book: book.datasets(),
        lambda book: book.init("e", epsilon=1),
        lambda book: ask_means(book),
    ):
        with hm.Ledger(place) as ledger, pytest.raises(hm.InputError, match="a newer hubermean; upgrade"):
            use(ledger)


def test_an_older_database_is_brought_up_to_date(postgres: Server) -> None:
    from hubermean.ledger import postgres_store, store

    url = postgres.new_database("older")
    with hm.Ledger(url) as ledger:
        ledger.init("d", epsilon=1)
        first = ask_means(ledger, "asked long ago")
        with ledger._store.writing() as rows:
            rows.execute("DROP TABLE hubermean_answers")
            rows.execute("DROP TRIGGER hubermean_append_only ON hubermean_entries")
            rows.execute("DROP FUNCTION hubermean_append_only()")
            rows.execute("UPDATE hubermean_schema SET version = 1")
        ledger.init("e", epsilon=1)
        assert ask_means(ledger, "asked long ago") == first
        assert ledger.verify().sound
    assert max(postgres_store._VERSIONS) == store.SCHEMA


def test_a_database_of_a_newer_version_is_refused_and_left_alone(postgres: Server) -> None:
    url = postgres.new_database("newer")
    opened(url)
    with hm.Ledger(url) as held:
        held.datasets()
        with held._store.writing() as rows:
            rows.execute("UPDATE hubermean_schema SET version = version + 1")
        for use in (hm.Ledger.datasets, ask_means, lambda book: book.init("e", epsilon=1)):
            with pytest.raises(hm.InputError, match="a newer hubermean; upgrade"):
                use(held)


# --- databases that are set up in other ways --------------------------------------------------------------------------


def test_somebody_without_permission_is_not_told_that_the_ledger_is_damaged(postgres: Server) -> None:
    import psycopg

    url = postgres.new_database("permissions")
    opened(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    with hm.Ledger(url.replace(f"//{postgres.user}@", "//reader@")) as ledger:
        assert ledger.verify().sound
        for use in (ask_means, lambda book: book.init("e", epsilon=1)):
            with pytest.raises(hm.LedgerUnavailable, match="ask for SELECT, INSERT and UPDATE"):
                use(ledger)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "UTF8"])
def test_a_database_may_have_any_encoding(postgres: Server, encoding: str) -> None:
    import psycopg

    name = f"encoding_{encoding}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE \"{name}\" ENCODING '{encoding}' TEMPLATE template0")
    opened(postgres.url(name))
    with hm.Ledger(postgres.url(name)) as ledger:
        first = ask_means(ledger)
        assert ask_means(ledger) == first
        if encoding == "LATIN1":
            with pytest.raises(hm.InputError, match="cannot store a character of this name"):
                ledger.init("日本", epsilon=1)
        else:
            ledger.init("日本", epsilon=1)
            assert ledger.datasets()[-1].name == "日本"
        assert ledger.verify().sound


def test_a_charge_is_on_the_disk_of_the_server_though_its_default_is_not_to_wait(postgres: Server) -> None:
    """Also where a pool of sessions lost what was set when the connection was made."""
    url = postgres.new_database("asynchronous")
    opened(url)
    with hm.Ledger(url) as ledger:
        with ledger._store.reading() as rows:
            rows.execute("SET SESSION synchronous_commit = off")
        with ledger._store.writing() as rows:
            assert rows.execute("SHOW synchronous_commit") == [("on",)]
            assert rows.execute("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


@pytest.mark.parametrize(
    ("statement", "drops"),
    [
        ("CREATE RULE mine AS ON INSERT TO hubermean_entries DO INSTEAD NOTHING", True),
        ("CREATE RULE mine AS ON INSERT TO hubermean_heads DO INSTEAD NOTHING", True),
        ("ALTER TABLE hubermean_entries SET UNLOGGED", False),
        ("ALTER TABLE hubermean_heads ENABLE ROW LEVEL SECURITY", False),
    ],
)
def test_tables_of_a_database_that_do_not_keep_what_is_written_are_damage(
    postgres: Server, statement: str, drops: bool
) -> None:
    place = postgres.new_database(f"drops_{abs(hash(statement))}")
    opened(place)
    with hm.Ledger(place) as ledger:
        assert ledger.verify().sound
        with ledger._store.writing() as rows:
            rows.execute(statement)
        if drops:
            with pytest.raises(hm.LedgerDamaged, match="entry 2 was not stored as it was written"):
                ask_means(ledger)
        assert [fault.what for fault in ledger.verify().faults] == [
            "one of its tables is a view, is unlogged, or has additional rules or policies"
        ]


# --- clocks and cables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["hubermean_schema", "hubermean_heads"])
def test_a_database_that_lost_its_version_or_the_row_that_writers_wait_for_is_damaged(
    postgres: Server, table: str
) -> None:
    place = postgres.new_database(f"emptied_{table}")
    opened(place)
    with hm.Ledger(place) as ledger:
        with ledger._store.writing() as rows:
            rows.execute(f"DELETE FROM {table}")
        with pytest.raises(hm.LedgerDamaged):
            ledger.spend("d", epsilon=0.125)


def test_a_clock_that_is_set_back_changes_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(place)
    with hm.Ledger(place) as ledger:
        first = ask_means(ledger, "before")
        monkeypatch.setattr(ledger_module, "_now", lambda: "1970-01-01T00:00:00+00:00")
        ask_means(ledger, "after")
        assert ask_means(ledger, "before") == first
        verification = ledger.verify()
        assert verification.sound
        assert any("set back before entry 4" in remark for remark in verification.remarks)
        assert ledger.dataset("d").spent.loss == Decimal("0.5")


@pytest.mark.parametrize("mended", [True, False], ids=["mended at once", "not mended"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 9))
def test_a_cable_that_is_cut_during_a_commit(
    postgres: Server, number: int, moment: str, mended: bool
) -> None:
    """The number-th COMMIT of a release gets lost, or its answer does."""
    url = postgres.new_database(f"cut_{number}_{moment}_{mended}")
    opened(url)
    commits = 0

    def cut(message: bytes) -> bool:
        nonlocal commits
        commits += message.count(b"COMMIT")
        if commits >= number and b"COMMIT" in message:
            if mended:
                cable.mended.set()
            return True
        return False

    cable = Cable(postgres, cut, moment)
    value = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hm.NotRecorded)
            through = postgres.url(url.rsplit("/", 1)[1], port=cable.port)
            with hm.Ledger(through) as ledger, contextlib.suppress(hm.LedgerUnavailable):
                value = ask_means(ledger).value
    finally:
        cable.close()
    with hm.Ledger(url) as ledger:
        assert ledger.verify().sound
        found = [entry.kind for entry in ledger.entries()]
        spent = ledger.dataset("d").spent.loss
        assert spent == found.count("charged") * Decimal("0.25")
        if mended and "charged" in found:  # a second look found the charge, and the release went on
            assert value is not None
        if value is not None:
            assert found.count("charged") == 1
            recorded = [entry for entry in ledger.entries() if entry.kind == "released"]
            assert all(entry.content["release"]["values"][0] == value for entry in recorded)
        else:
            assert "released" not in found


def test_a_server_that_is_not_there_is_said_so() -> None:
    with pytest.raises(hm.LedgerUnavailable, match="cannot be reached; check the server"):
        hm.Ledger("postgresql://somebody@127.0.0.1:1/nothing").datasets()


def test_the_database_itself_refuses_to_change_an_entry(place: str) -> None:
    opened(place)
    with hm.Ledger(place) as ledger:
        for statement in ("UPDATE hubermean_entries SET body = '{}'", "DELETE FROM hubermean_entries"):
            with pytest.raises(hm.LedgerDamaged), ledger._store.writing() as rows:
                rows.execute(statement)
        assert ledger.verify().sound


# --- a file that moves ------------------------------------------------------------------------------------------------


def test_a_file_that_was_replaced_is_charged_in_its_new_place(tmp_path: Path) -> None:
    """A copy that was put back, say: what is kept open is no longer what others read."""
    place = tmp_path / "l.sqlite"
    opened(str(place))
    with hm.Ledger(place) as held:
        ask_means(held, "one")
        held.close()
        shutil.copy(place, tmp_path / "copy.sqlite")
        held.dataset("d")
        os.replace(tmp_path / "copy.sqlite", place)
        ask_means(held, "two", 0.5)
        with hm.Ledger(place) as other:
            assert other.dataset("d").spent.loss == Decimal("0.75")
            with pytest.raises(hm.BudgetExhausted):
                ask_means(other, "three", 0.5)
        os.unlink(place)
        with pytest.raises(hm.InputError, match="there is no ledger"):
            ask_means(held, "four")


def test_a_file_that_is_replaced_during_a_charge_lets_nothing_out(tmp_path: Path) -> None:
    place, older = tmp_path / "l.sqlite", tmp_path / "older.sqlite"
    opened(str(place))
    shutil.copy(place, older)
    with hm.Ledger(place) as held:
        store: Any = held._store
        within = store.writing

        @contextlib.contextmanager
        def replaced() -> Iterator[Any]:
            with within() as rows:
                yield rows
                if older.exists():
                    for log in ("-wal", "-shm"):
                        os.unlink(f"{place}{log}")
                    os.replace(older, place)

        store.writing = replaced
        with pytest.raises(hm.LedgerUnavailable, match="moved or replaced during a write"):
            ask_means(held)
        assert kinds_at(str(place)) == ["opened"]
        assert ask_means(held).receipt.entry == 3  # type: ignore[union-attr]


def test_a_file_of_two_names_is_not_charged(tmp_path: Path) -> None:
    """Each name has a log of its own: charges by one would be missed by the other."""
    place, other = tmp_path / "l.sqlite", tmp_path / "other.sqlite"
    opened(str(place))
    os.link(place, other)
    for name in (place, other):
        with pytest.raises(hm.LedgerUnavailable, match="a second name"):
            ask_means(str(name))
        with hm.Ledger(name) as ledger:
            assert ledger.verify().sound
    other.unlink()
    other.symlink_to(place)
    with hm.Ledger(place) as first, hm.Ledger(other) as second:
        ask_means(first, "one", 0.75)
        with pytest.raises(hm.BudgetExhausted):
            ask_means(second, "two", 0.75)


def test_a_ledger_is_the_same_file_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = hm.Ledger("l.sqlite")
    ledger.init("d", epsilon=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ledger.close()
    ask_means(ledger)
    ledger.close()
    assert ledger.location == "l.sqlite"
    assert kinds_at(str(tmp_path / "l.sqlite")) == ["opened", "charged", "released"]


def test_a_commit_waits_for_the_disk(place: str) -> None:
    """What no test can cut the power for: the settings under which a commit is on disk when it returns."""
    opened(place)
    with hm.Ledger(place) as ledger, ledger._store.writing() as rows:
        if "://" in place:
            assert rows.execute("SHOW synchronous_commit") == [("on",)]
            kept = "SELECT relpersistence FROM pg_class WHERE relname = 'hubermean_entries'"
            assert rows.execute(kept) == [("p",)]
        else:
            assert rows.execute("PRAGMA synchronous") == [(2,)]
            assert rows.execute("PRAGMA journal_mode") == [("wal",)]
