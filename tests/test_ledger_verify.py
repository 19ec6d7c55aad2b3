"""Damage is found, and named: one changed byte, a row that is gone, moved or made up, a total that was raised."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from hubermean.ledger import sqlite_store
from hubermean.ledger.entries import Entry


def ask(ledger: Any, question: str, epsilon: float = 0.25, dataset: str = "d") -> hm.Release:
    return hm.mean_of_user_means(
        np.array([1.0, 2.0]),
        epsilon=epsilon,
        bounds=(0, 9),
        ledger=ledger,
        dataset=dataset,
        question=question,
    )


def filled(place: Any) -> None:
    with hm.Ledger(place) as ledger:
        ledger.init("d", epsilon=1)
        ledger.init("e", epsilon=2)
        ask(ledger, "one")
        ask(ledger, "two", dataset="e")
        ledger.spend("d", epsilon=0.5, note="a histogram")
        ask(ledger, "three")
        with pytest.raises(hm.BudgetExhausted):
            ask(ledger, "four")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ledger") / "whole.sqlite"
    filled(place)
    assert not place.with_name(place.name + "-wal").exists()
    return place


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy.sqlite"
    shutil.copy(whole, place)
    return place


def content(place: Path) -> list[tuple[Any, ...]]:
    with hm.Ledger(place) as ledger:
        entries = [
            (one.number, one.dataset, one.kind, one.body, one.previous, one.digest)
            for one in ledger.entries()
        ]
        return [*entries, *((one.name, one.spent, one.limit) for one in ledger.datasets())]


def verdict(place: Path) -> hm.ledger.Verification | hm.HubermeanError:
    try:
        with hm.Ledger(place) as ledger:
            return ledger.verify()
    except hm.HubermeanError as error:
        return error


def changed(place: Path, *statements: str) -> None:
    """Somebody with a tool for databases, who takes the triggers away and puts them back."""
    triggers = {name: made for name, made in sqlite_store._VERSIONS[2].items() if "TRIGGER" in made}
    with sqlite3.connect(place) as connection:
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for made in triggers.values():
            connection.execute(made)
    connection.close()


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
            with pytest.raises(hm.LedgerDamaged, match="entry 11 is not kept as it is written"):
                ask(ledger, "five", dataset="e")
            connection.execute("DROP TRIGGER mine")
        assert ask(ledger, "five", dataset="e").receipt.entry == 12  # type: ignore[union-attr]


# --- somebody who can compute digests ---------------------------------------------------------------------------------


def rewritten(place: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """All entries written anew, with digests that fit, by somebody who knows how."""
    with sqlite3.connect(place) as connection:
        found = connection.execute(
            "SELECT dataset, kind, body FROM hubermean_entries ORDER BY number"
        ).fetchall()
    connection.close()
    rows = [{"dataset": one[0], "kind": one[1], "content": json.loads(one[2])} for one in found]
    change(rows)
    place.unlink()
    number, previous, digests = 0, hm.ledger.entries.GENESIS, {}
    store = sqlite_store.SqliteStore(place)
    store.create()
    with store.writing() as writing:
        for row in rows:
            if row["kind"] != "opened":
                opened = row["content"]["opened"][0]
                row["content"]["opened"] = [opened, digests.get(opened, "")]
            entry = Entry.after(number, previous, **row)
            number, previous, digests[entry.number] = entry.number, entry.digest, entry.digest
            writing.append(entry)
            if entry.kind in ("released", "not-released"):
                writing.remember(entry.content["question"], entry.number)
    store.close()


def test_an_anchor_finds_a_chain_that_was_made_anew(copy: Path) -> None:
    with hm.Ledger(copy) as ledger:
        anchor = ledger.verify().head
        ledger.spend("e", epsilon=0.25)
        assert ledger.verify(anchor).sound

    def dearer(rows: list[dict[str, Any]]) -> None:
        rows[0]["content"].update(epsilon=9.0, limit={"loss": "9", "delta": "0"})

    rewritten(copy, dearer)
    with hm.Ledger(copy) as ledger:
        assert ledger.verify().sound  # which is what the anchor is for
        found = ledger.verify(anchor)
        assert [fault.what for fault in found.faults] == [
            "the anchor is not among the entries: they were made anew"
        ]
        with pytest.raises(hm.InputError, match="64 letters"):
            ledger.verify("abc")


def spend_less(rows: list[dict[str, Any]]) -> None:
    rows[6]["content"]["cost"]["loss"] = "0.1"


def raise_the_limit(rows: list[dict[str, Any]]) -> None:
    rows[0]["content"]["limit"]["loss"] = "9"


def spend_more_than_there_is(rows: list[dict[str, Any]]) -> None:
    rows[6]["content"]["cost"]["loss"] = "5.5"
    rows[6]["content"]["spent"]["loss"] = "5.75"


def spend_more_than_there_is_and_say_so(rows: list[dict[str, Any]]) -> None:
    """All sums are right; only the total is passed."""
    rows[6]["content"]["cost"]["loss"] = "5.5"
    for row in rows[6:]:
        if row["dataset"] == "d":
            row["content"]["spent"]["loss"] = str(Decimal(row["content"]["spent"]["loss"]) + 5)


def conclude_twice(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[3])


def release_without_a_charge(rows: list[dict[str, Any]]) -> None:
    rows[3]["content"]["charge"] = 7


def open_again(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[0])


def an_unknown_kind(rows: list[dict[str, Any]]) -> None:
    rows[-1]["kind"] = "gift"


def no_such_data_set(rows: list[dict[str, Any]]) -> None:
    rows[-1]["dataset"] = "z"


def amounts_that_are_none(rows: list[dict[str, Any]]) -> None:
    rows[2]["content"]["cost"] = {"loss": "-1", "delta": "0"}


@pytest.mark.parametrize(
    "change",
    [
        spend_less,
        raise_the_limit,
        spend_more_than_there_is,
        spend_more_than_there_is_and_say_so,
        conclude_twice,
        release_without_a_charge,
        open_again,
        an_unknown_kind,
        no_such_data_set,
        amounts_that_are_none,
    ],
)
def test_entries_that_do_not_add_up_are_found_though_their_digests_fit(
    copy: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    rewritten(copy, change)
    found = verdict(copy)
    assert isinstance(found, hm.ledger.Verification)
    assert not found.sound
    assert all(fault.entry is not None for fault in found.faults)


def put(number: int, *path: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Puts the last of a path where the others lead, in an entry."""

    def change(rows: list[dict[str, Any]]) -> None:
        place: Any = rows[number - 1]["content"]
        for step in path[:-2]:
            place = place[step]
        place[path[-2]] = path[-1]

    return change


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


MALFORMED = {
    "a total beyond all floats": put(1, "epsilon", 10**400),
    "no total": put(1, "limit", {"loss": "0", "delta": "0"}),
    "no time": put(3, "at", None),
    "a time that is none": put(3, "at", "soon\x1b[31m"),
    "nothing was asked": put(3, "asked", None),
    "columns that are none": put(3, "asked", "columns", 7),
    "no note": put(7, "asked", "note", 7),
    "users that are none": put(3, "user", 7),
    "a cost in numbers": put(3, "cost", "loss", 0.25),
    "no release": put(4, "release", {}),
    "no values": put(4, "release", "values", 7),
    "too many values": put(4, "release", "values", [1.0, 2.0]),
    "values in words": put(4, "release", "values", ["1"]),
    "users in words": put(4, "release", "n_users", "many"),
    "a denominator in words": put(
        4, "release", "denominator", {"value": "x", "low": 1, "high": 2, "exact": True}
    ),
    "an unknown unit": put(4, "release", "spent", 0, "unit", "euro"),
    "a level too few": put(4, "release", "intervals", "ends", 0, [0.4, [[1.0]], [[2.0]]]),
    "an interval too many": put(4, "release", "intervals", "ends", 0, [0.5, [[1.0], [1.0]], [[2.0], [2.0]]]),
    "parameters without end": put(4, "release", "parameters", "bounds", nested(200)),
    "a charge that is none": put(4, "charge", [3]),
    "a charge that is a flag": put(4, "charge", True),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_entries_that_do_not_hold_what_they_should_are_found_and_break_nothing(
    copy: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though their digests fit: every way of looking ends in an answer or in an error of ours."""
    from hubermean.cli.ledger import _show_charges
    from hubermean.ledger.export import exported
    from hubermean.report import ledger_page

    rewritten(copy, MALFORMED[case])
    found = verdict(copy)
    assert isinstance(found, hm.LedgerDamaged) or not found.sound  # type: ignore[union-attr]
    with hm.Ledger(copy) as ledger:
        if not isinstance(found, hm.HubermeanError):
            assert "<html" in ledger_page(json.loads(json.dumps(exported(ledger), allow_nan=False)))
        for look in (
            ledger.datasets,
            lambda: repr(ask(ledger, "one")),
            lambda: ask(ledger, "one").to_json(),
            lambda: _show_charges(ledger, None, as_json=False, quiet=True),
            lambda: ledger.spend("d", epsilon=0.01),
        ):
            with contextlib.suppress(hm.HubermeanError):
                look()
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity", "9" * 5000], ids=lambda one: one[:9])
def test_numbers_that_json_does_not_have_are_damage(copy: Path, number: str) -> None:
    altered_body(copy, 1, '"epsilon":1.0', f'"epsilon":{number}')
    found = verdict(copy)
    assert isinstance(found, hm.LedgerDamaged) or 1 in [fault.entry for fault in found.faults]  # type: ignore[union-attr]


def test_a_name_that_is_there_twice_is_damage(copy: Path) -> None:
    """Readers differ in which of the two they take."""
    altered_body(copy, 10, '{"asked"', '{"asked":{},"asked"')
    found = verdict(copy)
    assert isinstance(found, hm.ledger.Verification)
    assert [fault.entry for fault in found.faults] == [10]


def altered_body(place: Path, number: int, old: str, new: str) -> None:
    """The text of an entry, and the digests of it and its heads; those that follow it no longer fit."""
    with sqlite3.connect(place) as connection:
        row = connection.execute(
            "SELECT number, dataset, kind, body, previous FROM hubermean_entries WHERE number = ?", (number,)
        ).fetchone()
    connection.close()
    body = row[3].replace(old, new)
    assert body != row[3]
    digest = hm.ledger.entries._digest(*row[:3], body, row[4])
    literal = body.replace("'", "''")
    changed(
        place,
        f"UPDATE hubermean_entries SET body = '{literal}', digest = '{digest}' WHERE number = {number}",
        f"UPDATE hubermean_heads SET digest = '{digest}' WHERE number = {number}",
    )


def test_a_limit_may_differ_in_digits_in_which_machines_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logarithms are not the same everywhere, to the last bit."""
    from hubermean.ledger import composition

    place = tmp_path / "l.sqlite"
    with hm.Ledger(place) as ledger:
        ledger.init("d", epsilon=3, delta=1e-6, composition="concentrated")
        ledger.spend("d", epsilon=0.5)
        here = composition.largest_rho
        for factor, sound in ((1 + 1e-14, True), (1 - 1e-14, True), (1 - 1e-6, False), (1 + 1e-6, False)):
            monkeypatch.setattr(composition, "largest_rho", lambda *given, by=factor: here(*given) * by)
            assert ledger.verify().sound is sound


def test_one_entry_that_was_written_anew_does_not_fit_between_the_others(copy: Path) -> None:
    """Its own digest is right; that of the entry before, which the next one holds, is another."""
    with hm.Ledger(copy) as ledger:
        entries = list(ledger.entries())
    old = entries[6]
    new = Entry.after(
        old.number - 1,
        old.previous,
        dataset=old.dataset,
        kind="spent",
        content={**old.content, "token": "another"},
    )
    changed(
        copy,
        f"UPDATE hubermean_entries SET body = '{new.body}', digest = '{new.digest}' WHERE number = {old.number}",
    )
    found = verdict(copy)
    assert isinstance(found, hm.ledger.Verification)
    assert [str(fault) for fault in found.faults] == ["entry 8: it does not follow from the entry before it"]


def test_rewriting_without_a_change_is_sound(copy: Path) -> None:
    """The tests above are not red for another reason."""
    before = content(copy)
    rewritten(copy, lambda rows: None)
    assert verdict(copy).sound  # type: ignore[union-attr]
    assert content(copy) == before


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
    assert "the trigger that keeps" in str(tamper(off).faults[0])
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

    from hubermean.ledger.export import exported

    def text(content: Any) -> str:
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    with hm.Ledger(whole) as ledger:
        export = json.loads(json.dumps(exported(ledger)))
    previous = hashlib.sha256(b"hubermean ledger").hexdigest()
    for entry in export["entries"]:
        row = [entry["number"], entry["dataset"], entry["kind"], text(entry["content"]), entry["previous"]]
        assert entry["previous"] == previous
        assert entry["digest"] == hashlib.sha256(text(row).encode()).hexdigest()
        previous = entry["digest"]
    assert export["verification"]["head"] == previous
    assert Decimal(export["datasets"][0]["left"]["loss"]) == 0
