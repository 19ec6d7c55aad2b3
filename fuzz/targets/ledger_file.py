"""A ledger file that somebody else wrote: found out, refused, or read as it is; never a value that was not paid for."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import uuid
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import hubermean as hm
from fuzz.draw import Draw
from fuzz.novelty import notice
from fuzz.pages import Element, Skeleton
from fuzz.randomness import CountedNoise, drawn_from
from fuzz.releases import check_release
from fuzz.surroundings import working_folder
from fuzz.violation import Violation, require, result_or_refusal
from hubermean.ledger.dataset import Dataset
from hubermean.ledger.entries import GENESIS, Entry
from hubermean.ledger.sqlite_store import _VERSIONS, APPLICATION
from hubermean.report.ledger_export import export_ledger
from hubermean.report.ledger_page import ledger_page

DICTIONARY = (
    b"SQLite format 3\0",
    b"released",
    b"charged",
    b"opened",
    b'"spent"',
    b'"loss":"0"',
    b"hubermean_heads",
)

_MEANS = np.array([1.0, 2.0, 3.0])
_NAME, _QUESTION = "l.sqlite", "asked before"
_ASK: dict[str, Any] = {"epsilon": 0.25, "bounds": (0, 9), "dataset": "d"}
_KINDS = ("opened", "charged", "released", "not-released", "failed", "spent", "refused", "gift", "")
_MOST_PAGES = 16

Content = list[tuple[Any, ...]]


def check(data: bytes) -> None:
    draw = Draw(data)
    made = draw.below(4)
    uses = [draw.pick(_USES) for _ in range(1 + draw.below(2))]
    with working_folder() as folder:
        place = folder / _NAME
        match made:
            case 0:
                place.write_bytes(draw.rest())
            case 1:
                place.write_bytes(_edited(_whole(), draw))
            case 2:
                place.write_bytes(_whole())
                place.with_name(_NAME + draw.pick(("-wal", "-journal", "-shm"))).write_bytes(draw.rest())
            case _:
                _write_rows(place, draw)
        for number, use in enumerate(uses):
            use(place, as_written=made == 1 and number == 0)


# --- what is done with it ---------------------------------------------------------------------------------------------


def _verify(place: Path, *, as_written: bool) -> None:
    """Damage is found, or was of no effect."""

    def verified() -> tuple[bool, Content]:
        with hm.Ledger(place) as ledger:
            found = ledger.verify()
            json.dumps(found.to_dict())
            return found.sound, _content(ledger) if found.sound else []

    found = result_or_refusal(verified)
    if found is not None:
        notice(f"sound {found[0]}")
        if as_written and found[0]:
            require(found[1] == _whole_content(), "a ledger that is sound is as it was written")


def _show(place: Path, *, as_written: bool) -> None:
    def shown() -> None:
        with hm.Ledger(place) as ledger:
            for dataset in ledger.datasets():
                json.dumps(dataset.to_dict())

    result_or_refusal(shown)


def _export(place: Path, *, as_written: bool) -> None:
    def page() -> str:
        with hm.Ledger(place) as ledger:
            content = export_ledger(ledger)
            json.dumps(content, allow_nan=False)
            return ledger_page(content)

    made = result_or_refusal(page)
    if made is not None:
        require(set(Skeleton(made).elements) <= _page_elements(), "a page has no elements but its own")


def _release(place: Path, *, as_written: bool) -> None:
    """What is new was drawn with noise and is charged; what is not new is what an entry holds."""
    for question in (_QUESTION, "something new"):
        with drawn_from(CountedNoise()) as noise, warnings.catch_warnings():
            warnings.simplefilter("ignore", hm.NotRecorded)
            release = result_or_refusal(
                lambda question=question: hm.mean_of_user_means(  # type: ignore[misc]
                    _MEANS, ledger=str(place), question=question, **_ASK
                )
            )
        if release is None:
            continue
        receipt = release.receipt
        if receipt is None:
            raise Violation("a release that is charged has a receipt")
        # Entries that the release had no need to look at may be damaged all the same.
        kept = result_or_refusal(lambda: _kept(place))
        if kept is None:
            continue
        entries, dataset, sound = kept
        if receipt.entry not in entries:  # found by its number, but not when all are gone through
            require(not sound, "a ledger that is sound holds what was released")
            continue
        entry = entries[receipt.entry]
        if receipt.again:
            require(entry.is_intact and entry.kind == "released", "what is given again is recorded")
        else:
            check_release(release, noise)
            # Where it could not be recorded, the receipt is about the charge.
            charge = entry if entry.kind == "charged" else entries[entry.content["charge"]]
            require(entry.is_intact and charge.is_intact, "a release is recorded")
            require(charge.kind == "charged", "a release is charged")
        require(dataset.spent.within(dataset.limit), "no more is spent than the total")


def _kept(place: Path) -> tuple[dict[int, Entry], Dataset, bool]:
    with hm.Ledger(place) as ledger:
        entries = {entry.number: entry for entry in ledger.entries()}
        return entries, ledger.dataset("d"), ledger.verify().sound


def _spend(place: Path, *, as_written: bool) -> None:
    def spent() -> None:
        with hm.Ledger(place) as ledger:
            before = ledger.dataset("d")
            after = ledger.spend("d", epsilon=0.125)
            require(after.spent.loss > before.spent.loss, "what is charged is spent")
            require(after.spent.within(after.limit), "no more is spent than the total")

    result_or_refusal(spent)


def _init(place: Path, *, as_written: bool) -> None:
    def opened() -> None:
        with hm.Ledger(place) as ledger:
            ledger.init("new", epsilon=1, delta=1e-6)

    result_or_refusal(opened)


_USES = (_verify, _show, _export, _release, _spend, _init)


# --- how it is made ---------------------------------------------------------------------------------------------------


@cache
def _whole() -> bytes:
    """A small ledger with all kinds of entries; its pages are small, so that many edits matter."""
    with tempfile.TemporaryDirectory(prefix="hubermean-fuzz-") as folder:
        place = Path(folder) / _NAME
        connection = sqlite3.connect(place)
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("VACUUM")
        connection.close()
        # The same in every process, so that an input means the same.
        tokens = (uuid.UUID(int=number) for number in range(100))
        with (
            mock.patch("hubermean.ledger.ledger._now", return_value="2026-01-01T00:00:00+00:00"),
            mock.patch("hubermean.ledger.ledger.uuid4", side_effect=tokens),
            drawn_from(CountedNoise()),
            hm.Ledger(place) as ledger,
        ):
            ledger.init("d", epsilon=1, user="rider")
            ledger.init("e", epsilon=4, delta=1e-6, composition="concentrated")
            hm.mean_of_user_means(_MEANS, ledger=ledger, question=_QUESTION, **_ASK)
            ledger.spend("e", epsilon=0.1, note="elsewhere")
        return place.read_bytes()


@cache
def _whole_content() -> Content:
    with tempfile.TemporaryDirectory(prefix="hubermean-fuzz-") as folder:
        place = Path(folder) / _NAME
        place.write_bytes(_whole())
        with hm.Ledger(place) as ledger:
            return _content(ledger)


@cache
def _page_elements() -> frozenset[Element]:
    """Of a page about a sound ledger, and of one about a damaged one."""
    found: set[Element] = set()
    with tempfile.TemporaryDirectory(prefix="hubermean-fuzz-") as folder:
        for number, content in enumerate((_whole(), _whole().replace(b"elsewhere", b"elsewhare"))):
            place = Path(folder) / f"{number}.sqlite"
            place.write_bytes(content)
            with hm.Ledger(place) as ledger:
                found |= set(Skeleton(ledger_page(export_ledger(ledger))).elements)
    return frozenset(found)


def _content(ledger: hm.Ledger) -> Content:
    entries = [
        (one.number, one.dataset, one.kind, one.body, one.previous, one.digest) for one in ledger.entries()
    ]
    return [*entries, *((one.name, one.spent, one.limit) for one in ledger.datasets())]


def _edited(whole: bytes, draw: Draw) -> bytes:
    data = bytearray(whole)
    for _ in range(1 + draw.below(4)):
        place = draw.below(len(data) + 1)
        match draw.below(5):
            case 0:
                new = draw.chunk(16)
                data[place : place + len(new)] = new
            case 1:
                data[place : place + 1] = bytes(
                    [(data[place] if place < len(data) else 0) ^ (1 << draw.below(8))]
                )
            case 2:
                del data[place : place + draw.below(64)]
            case 3:
                data[place:place] = draw.chunk(64)
            case _:
                page, other = place // 1024 * 1024, draw.below(_MOST_PAGES) * 1024
                data[page : page + 1024], data[other : other + 1024] = (
                    data[other : other + 1024],
                    data[page : page + 1024],
                )
        if not data:
            return b""
    return bytes(data)


def _write_rows(place: Path, draw: Draw) -> None:
    """Entries by somebody who can compute digests, or mostly can."""
    connection = sqlite3.connect(place, isolation_level=None)
    for made in (*_VERSIONS[1].values(), *_VERSIONS[2].values()):
        connection.execute(made)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("PRAGMA user_version = 2")
    templates = [json.loads(body) for body in _bodies()]
    number, previous = 0, GENESIS
    last: dict[str, tuple[int, str]] = {"": (0, GENESIS)}
    while not draw.ended and number < 12:
        content = draw.pick(templates) if draw.below(8) else _json(draw, 3)
        if isinstance(content, dict):
            content = dict(content)
            for _ in range(draw.below(3)):
                content[draw.pick(sorted(content) or [""])] = _json(draw, 3)
            if draw.below(4) and number:
                content["opened"] = [1, last["opened"][1] if "opened" in last else ""]
        try:
            entry = Entry.after(
                number,
                previous,
                dataset=draw.pick(("d", "d", "e", "", "x")),
                kind=draw.pick(_KINDS),
                content=content,  # type: ignore[arg-type]
            )
        except (ValueError, TypeError):
            break
        last.setdefault("opened", (entry.number, entry.digest))
        number, previous = entry.number, entry.digest
        last[entry.dataset] = last[""] = (number, previous)
        values = [entry.number, entry.dataset, entry.kind, entry.body, entry.previous, entry.digest]
        if draw.below(16) == 1:
            values[draw.below(6)] = draw.pick((None, 7, b"\xff", 1.5, "x"))
        try:
            connection.execute("INSERT INTO hubermean_entries VALUES (?, ?, ?, ?, ?, ?)", values)
            if isinstance(content, dict) and isinstance(content.get("question"), str):
                connection.execute(
                    "INSERT OR REPLACE INTO hubermean_answers VALUES (?, ?)",
                    (content["question"], entry.number),
                )
        except (sqlite3.Error, OverflowError):
            break
    for name, (count, digest) in last.items():
        if name != "opened":
            connection.execute("INSERT INTO hubermean_heads VALUES (?, ?, ?)", (name, count, digest))
    connection.close()


@cache
def _bodies() -> tuple[str, ...]:
    return tuple(row[3] for row in _whole_content() if len(row) == 6)


def _json(draw: Draw, depth: int) -> Any:
    match draw.below(10 if depth else 8):
        case 0:
            return draw.text(20).encode("utf-8", "replace").decode()
        case 1:
            return draw.signed(64)
        case 2:
            return None
        case 3:
            return draw.pick(("0", "1", "-1", "1e9", "0.1", "1" * 2000, "NaN", "0.0", "00", "9" * 999))
        case 4:
            return {"loss": _json(draw, 0), "delta": _json(draw, 0)}
        case 5:
            return draw.pick((True, False, 10**400, -1, 0, 2**63))
        case 6:
            return draw.pick(
                ("basic", "concentrated", "replace-user", "d", "released", "2026-11-16T00:00:00+00:00")
            )
        case 7:
            return draw.pick((0.5, 1e308, -0.0, 5e-324))
        case 8:
            return [_json(draw, depth - 1) for _ in range(draw.below(4))]
        case _:
            return {
                draw.text(8).encode("utf-8", "replace").decode(): _json(draw, depth - 1)
                for _ in range(draw.below(4))
            }


def seeds() -> Iterable[bytes]:
    for use in range(len(_USES)):
        yield bytes([0, 0, use]) + _whole()[:64]
        yield bytes([0, 0, use])
        for number in range(24):
            offset = (number * 977) % len(_whole())
            yield bytes([1, 0, use, 0]) + offset.to_bytes(2, "little") + bytes([1, number % 8])
            yield (
                bytes([1, 0, use, 1])
                + offset.to_bytes(2, "little")
                + bytes([2, number])
                + offset.to_bytes(2, "little")
                + bytes([4, number])
            )
        for log in range(3):
            yield bytes([2, 0, use, log]) + b"7\x7f\x06\x82" + bytes(64)
        for row in range(20):
            yield bytes([3, 0, use]) + bytes([1, row % 5, 0, 1, 0, 0, 1] * 4)
