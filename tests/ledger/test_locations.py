"""Where ledgers lie and what they are called; what is something else is left alone."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm
from helpers.ledger_asks import ASK, TRIPS, ask, spent


def test_a_total_stays_as_it_is(ledger: hm.Ledger) -> None:
    with pytest.raises(hm.InputError, match="choose another name"):
        ledger.init("trips", epsilon=100)
    assert ledger.dataset("trips").epsilon == 1.0


def test_data_sets_do_not_mix(ledger: hm.Ledger) -> None:
    ledger.init("others", epsilon=2.0)
    first = ask(ledger, 1.0)
    other = ask(ledger, 1.0, dataset="others")
    assert not other.receipt.again
    assert [one.name for one in ledger.datasets()] == ["trips", "others"]
    assert first.receipt.left.startswith("epsilon = 0,")
    assert other.receipt.left == "epsilon = 1"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "x" * 201, 3, None, "\u202ecilbup"])
def test_names_are_printable(ledger: hm.Ledger, name: Any) -> None:
    with pytest.raises(hm.InputError):
        ledger.init(name, epsilon=1)
    with pytest.raises(hm.InputError):
        ask(ledger, dataset=name)


@pytest.mark.parametrize("note", [3, None, "x" * 201, "a\nb", b"a"])
def test_a_note_is_a_short_text(ledger: hm.Ledger, note: Any) -> None:
    with pytest.raises(hm.InputError, match="note must be a text"):
        ledger.spend("trips", epsilon=0.1, note=note)
    ledger.spend("trips", epsilon=0.1)


@pytest.mark.parametrize("user", [[], (), "", 3, [3], [""]])
def test_a_user_is_told_by_columns(ledger: hm.Ledger, user: Any) -> None:
    with pytest.raises(hm.InputError):
        ledger.init("others", epsilon=1, user=user)


def test_ledger_and_dataset_go_together(ledger: hm.Ledger) -> None:
    for half in ({"ledger": None}, {"dataset": None}, {"ledger": None, "dataset": None, "fresh": True}):
        with pytest.raises(hm.InputError, match="go together"):
            hm.mean(TRIPS, **{**ASK, "epsilon": 1, "ledger": ledger, "dataset": "trips", **half})
    with pytest.raises(hm.InputError, match="there is no data set 'trip'"):
        ask(ledger, dataset="trip")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("mysql://host/db", "mysql:// is not supported"),
        ("sqlite:///x.sqlite", "without sqlite://"),
        ("postgresql://user:secret@host:notaport/db", "cannot be read"),
        ("postgresql://user:the@secret@host/db", "with %40 for an @"),
        ("postgresql:/user:secret@host/db", "cannot be read"),
        ("Postgres:user:secret@host/db", "cannot be read"),
        (" postgresql://user:secret@host/db", "cannot be read"),
        ("jdbc:postgresql://user:secret@host/db", "cannot be read"),
        ("host=here user=me password=secret", "cannot be read"),
        ("", "a file name or a URL"),
        ("a\x00b", "a file name or a URL"),
        (7, "a file name or a URL"),
    ],
)
def test_invalid_locations_are_refused(given: Any, sentence: str) -> None:
    with pytest.raises(hm.InputError, match=sentence) as error:
        hm.Ledger(given)
    assert "secret" not in str(error.value)


def test_a_password_is_never_shown(postgres: Any) -> None:
    ledger = hm.Ledger(
        f"postgresql://somebody:hunter2@127.0.0.1:{postgres.port}/nowhere?application_name=hunter3"
    )
    assert "hunter" not in repr(ledger)
    with pytest.raises(hm.LedgerUnavailable) as error:
        ledger.datasets()
    assert "hunter" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("my notes, " * 1000)
    for path in (other, text):
        before = path.read_bytes()
        with pytest.raises(hm.HubermeanError):
            hm.Ledger(path).init("trips", epsilon=1)
        with pytest.raises(hm.LedgerDamaged):
            hm.Ledger(path).datasets()
        assert path.read_bytes() == before
    with pytest.raises(hm.InputError, match="there is no ledger"):
        hm.Ledger(tmp_path / "none.sqlite").datasets()
    with pytest.raises(hm.InputError, match="does not exist; create it"):
        hm.Ledger(tmp_path / "no" / "l.sqlite").init("trips", epsilon=1)
    with pytest.raises(hm.InputError, match="is not a file"):
        hm.Ledger(tmp_path).init("trips", epsilon=1)


def test_a_ledger_survives_a_fork(ledger: hm.Ledger) -> None:
    """A connection from before a fork must not be shared by parent and child."""
    ask(ledger, 0.25)
    child = os.fork()
    if child == 0:
        try:
            ledger.spend("trips", epsilon=0.25)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    ledger.spend("trips", epsilon=0.25)
    assert spent(ledger) == Decimal("0.75")
    assert ledger.verify().sound


def test_one_ledger_for_all_who_connect_to_a_database(postgres: Any) -> None:
    """A schema of one's own name comes first for that user; the ledger is the same all the same."""
    url = postgres.new_database("schemas")
    with hm.Ledger(url) as ledger:
        ledger.init("trips", epsilon=1)
        with ledger._store.writing() as rows:
            rows.execute(f'CREATE SCHEMA "{postgres.user}"')
    with hm.Ledger(url) as ledger:
        ledger.spend("trips", epsilon=1)
        with pytest.raises(hm.BudgetExhausted):
            ledger.spend("trips", epsilon=1)


def test_a_traceback_does_not_show_the_error_of_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    path.write_bytes(b"not a database" * 200)
    with pytest.raises(hm.LedgerDamaged) as error:
        hm.Ledger(path).datasets()
    assert error.value.__context__ is None or error.value.__suppress_context__
