"""Entries by somebody who can compute digests: they must add up all the same, and an anchor shows a chain made anew."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm
from helpers.damaged_ledgers import ask, changed, content, verdict
from hubermean.ledger import sqlite_store
from hubermean.ledger.entries import Entry


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
            "the anchor is not among the entries: they were rewritten"
        ]
        with pytest.raises(hm.InputError, match="64 characters"):
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
    from hubermean.report.ledger_export import export_ledger
    from hubermean.report.ledger_page import ledger_page

    rewritten(copy, MALFORMED[case])
    found = verdict(copy)
    assert isinstance(found, hm.LedgerDamaged) or not found.sound  # type: ignore[union-attr]
    with hm.Ledger(copy) as ledger:
        if not isinstance(found, hm.HubermeanError):
            assert "<html" in ledger_page(json.loads(json.dumps(export_ledger(ledger), allow_nan=False)))
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
    digest = hm.ledger.entries._compute_digest(*row[:3], body, row[4])
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


# --- refunds ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def refunded(tmp_path: Path) -> Path:
    """A data set "d": a charge that was given back in part, one that was released, one for something elsewhere."""
    from helpers.refusals import refuse

    place = tmp_path / "refunded.sqlite"
    with hm.Ledger(place) as ledger:
        ledger.init("d", epsilon=4)
        refuse(ledger, "refused")  # entries 2, 3 and 4
        ask(ledger, "released")  # 5 and 6
        ledger.spend("d", epsilon=2.25)  # 7
        refuse(ledger, "refused later")  # 8, 9 and 10
        assert ledger.verify().sound
        kinds = [entry.kind for entry in ledger.entries()]
    assert kinds[3] == kinds[9] == "refunded"
    return place


def shift(rows: list[dict[str, Any]], first: int, by: str) -> None:
    """All that was spent from an entry on is as the forger needs it."""
    for row in rows[first:]:
        row["content"]["spent"]["loss"] = str(Decimal(row["content"]["spent"]["loss"]) - Decimal(by))


def give_back_more(rows: list[dict[str, Any]]) -> None:
    rows[3]["content"]["refund"]["loss"] = str(
        Decimal(rows[3]["content"]["refund"]["loss"]) + Decimal("0.01")
    )
    shift(rows, 3, "0.01")


def give_back_more_than_was_charged(rows: list[dict[str, Any]]) -> None:
    rows[3]["content"]["refund"]["loss"] = "1.01"
    rows[2]["content"]["used"]["loss"] = "0"
    shift(rows, 3, "0.07")


def use_less_than_nothing(rows: list[dict[str, Any]]) -> None:
    rows[2]["content"]["used"]["loss"] = "-0.5"


def use_more_than_was_charged(rows: list[dict[str, Any]]) -> None:
    rows[2]["content"]["used"]["loss"] = "1.5"


def give_back_twice(rows: list[dict[str, Any]]) -> None:
    rows.insert(4, json.loads(json.dumps(rows[3])))
    shift(rows, 4, "0.94")
    for row in rows[5:]:
        if "charge" in row["content"] and row["content"]["charge"] >= 5:
            row["content"]["charge"] += 1


def give_back_again_at_the_end(rows: list[dict[str, Any]]) -> None:
    rows.append(json.loads(json.dumps(rows[9])))
    shift(rows, len(rows) - 1, "0.94")


def give_a_release_back(rows: list[dict[str, Any]]) -> None:
    back = json.loads(json.dumps(rows[9]))
    back["content"].update(charge=5, refund={"loss": "0.25", "delta": "0"})
    back["content"]["spent"] = dict(rows[5]["content"]["spent"])
    rows.insert(6, back)
    shift(rows, 6, "0.25")
    for row in rows[9:]:
        row["content"]["charge"] += 1


def give_back_what_was_spent_elsewhere(rows: list[dict[str, Any]]) -> None:
    rows[9]["content"].update(charge=7, refund={"loss": "0.25", "delta": "0"})
    rows[9]["content"]["spent"]["loss"] = str(Decimal(rows[8]["content"]["spent"]["loss"]) - Decimal("0.25"))


def give_back_before_the_refusal(rows: list[dict[str, Any]]) -> None:
    rows[8], rows[9] = rows[9], rows[8]
    rows[9]["content"]["spent"] = dict(rows[8]["content"]["spent"])


def give_back_without_a_charge(rows: list[dict[str, Any]]) -> None:
    del rows[9]["content"]["charge"]


def give_back_to_another_data_set(rows: list[dict[str, Any]]) -> None:
    opening = json.loads(json.dumps(rows[0]))
    opening["dataset"] = "e"
    rows.append(opening)
    rows.append(json.loads(json.dumps(rows[9])))
    rows[-1].update(dataset="e")
    rows[-1]["content"].update(opened=[11, ""], spent={"loss": "0", "delta": "0"})


@pytest.mark.parametrize(
    "change",
    [
        give_back_more,
        give_back_more_than_was_charged,
        use_less_than_nothing,
        use_more_than_was_charged,
        give_back_twice,
        give_back_again_at_the_end,
        give_a_release_back,
        give_back_what_was_spent_elsewhere,
        give_back_before_the_refusal,
        give_back_without_a_charge,
        give_back_to_another_data_set,
    ],
)
def test_forged_refunds_are_found_though_their_digests_fit(
    refunded: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    rewritten(refunded, change)
    found = verdict(refunded)
    assert isinstance(found, hm.ledger.Verification)
    assert not found.sound
    assert all(fault.entry is not None for fault in found.faults)


def test_a_ledger_with_refunds_that_is_rewritten_without_a_change_is_sound(refunded: Path) -> None:
    rewritten(refunded, lambda rows: None)
    assert verdict(refunded).sound  # type: ignore[union-attr]
