"""Damage is found, and named: one changed byte, a row that is gone, moved or made up, a total that was raised."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.damaged_ledgers import ask, changed, content, filled, verdict
from hubermean.ledger import sqlite_store

# --- one byte ---------------------------------------------------------------------------------------------------------


def flip(place: Path, original: bytes, offset: int, mask: int) -> None:
    data = bytearray(original)
    data[offset] ^= mask
    place.write_bytes(data)


def check_flip(copy: Path, original: bytes, before: list[tuple[Any, ...]], offset: int, mask: int) -> str:
    """Found, or of no effect whatever: what is read is to the letter what was written."""
    flip(copy, original, offset, mask)
    found = verdict(copy)
    for log in ("-wal", "-shm", "-journal"):
        copy.with_name(copy.name + log).unlink(missing_ok=True)
    if isinstance(found, hm.HubermeanError):
        assert isinstance(found, hm.LedgerDamaged | hm.InputError), found
        return "refused"
    if found.sound:
        assert content(copy) == before, f"byte {offset} was changed, and it was not seen"
        return "of no effect"
    return "found"


def test_a_changed_byte_is_found_or_of_no_effect(whole: Path, copy: Path) -> None:
    original, before = whole.read_bytes(), content(whole)
    outcomes = {check_flip(copy, original, before, offset, 0x01) for offset in range(0, len(original), 29)}
    assert outcomes == {"found", "refused", "of no effect"}


@pytest.mark.slow
@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_every_changed_byte_is_found_or_of_no_effect(whole: Path, copy: Path, mask: int) -> None:
    original, before = whole.read_bytes(), content(whole)
    for offset in range(len(original)):
        check_flip(copy, original, before, offset, mask)


def test_a_changed_byte_of_an_entry_names_the_entry(whole: Path, copy: Path) -> None:
    original = whole.read_bytes()
    with hm.Ledger(whole) as ledger:
        entries = list(ledger.entries())
    for entry in entries:
        start = original.index(entry.body.encode())
        behind = start + len(entry.body)  # where the digest before it follows, and then its own
        assert original[behind : behind + 128] == (entry.previous + entry.digest).encode()
        for offset in (start, start + len(entry.body) // 2, behind - 1, behind + 32, behind + 96):
            flip(copy, original, offset, 0x01)
            found = verdict(copy)
            assert isinstance(found, hm.ledger.Verification)
            assert not found.sound
            assert entry.number in [fault.entry for fault in found.faults], (entry.number, found.faults)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_damage_is_found_or_of_no_effect(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    original, before = whole.read_bytes(), content(whole)
    place = tmp_path_factory.mktemp("damaged") / "l.sqlite"
    damaged = bytearray(original)
    start = data.draw(st.integers(0, len(original) - 1))
    match data.draw(st.sampled_from(["overwrite", "cut", "insert", "swap"])):
        case "overwrite":
            new = data.draw(st.binary(min_size=1, max_size=64))
            damaged[start : start + len(new)] = new
        case "cut":
            del damaged[start:]
        case "insert":
            damaged[start:start] = data.draw(st.binary(min_size=1, max_size=4096))
        case "swap":
            page, other = start // 4096 * 4096, data.draw(st.integers(0, len(original) // 4096 - 1)) * 4096
            damaged[page : page + 4096], damaged[other : other + 4096] = (
                damaged[other : other + 4096],
                damaged[page : page + 4096],
            )
    place.write_bytes(damaged)
    found = verdict(place)
    if isinstance(found, hm.ledger.Verification) and found.sound:
        assert content(place) == before
    elif isinstance(found, hm.HubermeanError):
        assert isinstance(found, hm.LedgerDamaged | hm.InputError)


# --- rows -------------------------------------------------------------------------------------------------------------

TAMPERED: dict[str, tuple[list[str], int | None]] = {
    "an entry from the middle is gone": (["DELETE FROM hubermean_entries WHERE number = 4"], 5),
    "the last entry is gone": (["DELETE FROM hubermean_entries WHERE number = 10"], 10),
    "the first entry is gone": (["DELETE FROM hubermean_entries WHERE number = 1"], 2),
    "two entries change places": (
        [
            "UPDATE hubermean_entries SET number = 99 WHERE number = 4",
            "UPDATE hubermean_entries SET number = 4 WHERE number = 5",
            "UPDATE hubermean_entries SET number = 5 WHERE number = 99",
        ],
        4,
    ),
    "an entry is doubled": (
        [
            "INSERT INTO hubermean_entries SELECT 11, dataset, kind, body, previous, digest "
            "FROM hubermean_entries WHERE number = 10"
        ],
        11,
    ),
    "a charge is smaller": (
        ["UPDATE hubermean_entries SET body = replace(body, '0.25', '0.01') WHERE number = 3"],
        3,
    ),
    "a total is larger": (
        ["UPDATE hubermean_entries SET body = replace(body, '\"1\"', '\"9\"') WHERE number = 1"],
        1,
    ),
    "an entry is of another data set": (["UPDATE hubermean_entries SET dataset = 'e' WHERE number = 3"], 3),
    "a number became text": (["UPDATE hubermean_entries SET body = 7 WHERE number = 3"], 3),
    "a text became bytes": (["UPDATE hubermean_entries SET body = CAST(body AS BLOB) WHERE number = 3"], 3),
    "a head is of an older entry": (
        [
            "UPDATE hubermean_heads SET number = 3, digest = (SELECT digest FROM hubermean_entries WHERE number = 3) "
            "WHERE name = 'd'"
        ],
        10,
    ),
    "a head is gone": (["DELETE FROM hubermean_heads WHERE name = 'e'"], 6),
    "an answer is another": (["UPDATE hubermean_answers SET number = 6 WHERE number = 4"], 4),
    "an answer is gone": (["DELETE FROM hubermean_answers WHERE number = 4"], 4),
    "an answer is made up": (["INSERT INTO hubermean_answers VALUES ('x', 4)"], 4),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_tampering_with_rows_is_found_and_named(copy: Path, case: str) -> None:
    statements, entry = TAMPERED[case]
    changed(copy, *statements)
    found = verdict(copy)
    assert isinstance(found, hm.ledger.Verification)
    assert not found.sound
    assert entry in [fault.entry for fault in found.faults], found.faults


def test_nothing_is_released_against_entries_that_were_tampered_with(copy: Path) -> None:
    changed(
        copy,
        'UPDATE hubermean_entries SET body = replace(body, \'"loss":"1"\', \'"loss":"0"\') WHERE number = 10',
    )
    with pytest.raises(hm.LedgerDamaged, match="entry 10 was altered") as error:
        ask(str(copy), "five")
    assert (error.value.exit_code, error.value.entry) == (5, 10)


def test_an_answer_that_was_tampered_with_is_not_given_again(copy: Path) -> None:
    with hm.Ledger(copy) as ledger:
        answer = next(entry for entry in ledger.entries() if entry.kind == "released")
    changed(copy, f"UPDATE hubermean_entries SET body = body || ' ' WHERE number = {answer.number}")
    with pytest.raises(hm.LedgerDamaged, match=f"entry {answer.number} was altered"):
        ask(str(copy), "one")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER mine AFTER INSERT ON hubermean_entries BEGIN DELETE FROM hubermean_heads; END",
        "CREATE TABLE mine (x)",
        "CREATE VIEW mine AS SELECT 1",
        "DROP TRIGGER hubermean_no_update",
        "DROP TABLE hubermean_answers",
        "CREATE INDEX mine ON hubermean_entries (body)",
    ],
)
def test_tables_and_triggers_that_are_not_a_ledgers_are_damage(copy: Path, statement: str) -> None:
    with sqlite3.connect(copy) as connection:
        connection.execute(statement)
    connection.close()
    for use in (lambda book: book.verify(), lambda book: ask(book, "five")):
        with hm.Ledger(copy) as ledger, pytest.raises(hm.LedgerDamaged):
            use(ledger)


def test_a_trigger_that_bears_the_name_of_a_table_is_damage(tmp_path: Path) -> None:
    """Made before the table of its name, it would hide behind that, and drop every charge."""
    place = tmp_path / "l.sqlite"
    tables, more = sqlite_store._VERSIONS[1], sqlite_store._VERSIONS[2]
    dropping = "BEFORE {what} ON {table} WHEN new.number > 1 BEGIN SELECT RAISE(IGNORE); END"
    with sqlite3.connect(place) as connection:
        for statement in (
            tables["hubermean_entries"],
            "CREATE TRIGGER hubermean_heads " + dropping.format(what="INSERT", table="hubermean_entries"),
            tables["hubermean_heads"],
            "CREATE TRIGGER hubermean_answers " + dropping.format(what="UPDATE", table="hubermean_heads"),
            *more.values(),
            f"INSERT INTO hubermean_heads VALUES ('', 0, '{hm.ledger.entries.GENESIS}')",
            f"PRAGMA application_id = {sqlite_store.APPLICATION}",
            "PRAGMA user_version = 2",
        ):
            connection.execute(statement)
    connection.close()
    with hm.Ledger(place) as ledger:
        for use in (lambda: ledger.init("d", epsilon=1), lambda: ask(ledger, "one"), ledger.verify):
            with pytest.raises(hm.LedgerDamaged):
                use()


def test_what_is_written_is_looked_at_before_it_counts(copy: Path) -> None:
    """Even if a trigger got past the list of tables: a charge that was dropped is none."""
    with hm.Ledger(copy) as ledger:
        ledger.dataset("e")
        connection = ledger._store._connection  # type: ignore[attr-defined]
        for kept in ("hubermean_entries", "hubermean_heads"):
            connection.execute(
                f"CREATE TEMP TRIGGER mine BEFORE INSERT ON {kept} BEGIN SELECT RAISE(IGNORE); END"
            )
            with pytest.raises(hm.LedgerDamaged, match="entry 11 was not stored as it was written"):
                ask(ledger, "five", dataset="e")
            connection.execute("DROP TRIGGER mine")
        assert ask(ledger, "five", dataset="e").receipt.entry == 12  # type: ignore[union-attr]


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_tampering_with_a_database_is_found(postgres: Any) -> None:
    url = postgres.new_database("tampered")
    filled(url)
    off = "ALTER TABLE hubermean_entries DISABLE TRIGGER hubermean_append_only"
    on = "ALTER TABLE hubermean_entries ENABLE TRIGGER hubermean_append_only"

    def tamper(*statements: str) -> hm.ledger.Verification:
        with hm.Ledger(url) as ledger:
            with ledger._store.writing() as rows:
                for statement in statements:
                    rows.execute(statement)
            return ledger.verify()

    assert tamper().sound
    assert "the trigger that prevents" in str(tamper(off).faults[0])
    assert tamper(on).sound
    change = "UPDATE hubermean_entries SET body = replace(body, '0.25', '0.01') WHERE number = 3"
    assert tamper(off, change, on).faults[0].entry == 3
    back = "UPDATE hubermean_entries SET body = replace(body, '0.01', '0.25') WHERE number = 3"
    assert tamper(off, back, on).sound
    last = tamper(off, "DELETE FROM hubermean_entries WHERE number = 10", on)
    assert 10 in [fault.entry for fault in last.faults]


def test_a_digest_is_what_the_documentation_says(whole: Path) -> None:
    """Worked out from an export, without the package."""
    import hashlib

    from hubermean.report.ledger_export import export_ledger

    def text(content: Any) -> str:
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    with hm.Ledger(whole) as ledger:
        export = json.loads(json.dumps(export_ledger(ledger)))
    previous = hashlib.sha256(b"hubermean ledger").hexdigest()
    for entry in export["entries"]:
        row = [entry["number"], entry["dataset"], entry["kind"], text(entry["content"]), entry["previous"]]
        assert entry["previous"] == previous
        assert entry["digest"] == hashlib.sha256(text(row).encode()).hexdigest()
        previous = entry["digest"]
    assert export["verification"]["head"] == previous
    assert Decimal(export["datasets"][0]["left"]["loss"]) == 0
