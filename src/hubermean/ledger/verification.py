"""Verification: every entry is checked, and everything that follows from the entries is computed again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hubermean.errors import HubermeanError, InputError, LedgerDamaged
from hubermean.ledger.amounts import NOTHING, Cost
from hubermean.ledger.dataset import Dataset, dataset_from_entries
from hubermean.ledger.entries import (
    ANSWERS,
    CHARGES,
    GENESIS,
    KINDS,
    OUTCOMES,
    Entry,
    check_name,
    to_canonical_json,
)
from hubermean.ledger.store import WHOLE, Rows

MOST_FAULTS = 20

IsRecord = Callable[[Mapping[str, Any]], bool]
"""Whether the record of an outcome has the form in which the caller of the ledger writes it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A difference between a ledger and what was written to it; `entry` is None if no single entry is affected."""

    entry: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.entry is None else f"entry {self.entry}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of `Ledger.verify`.

    Attributes:
        sound: whether there is no fault.
        faults: the first faults.
        entries: the number of entries.
        head: the digest of the last entry. Stored elsewhere, it is an anchor: as long as this digest is in the chain,
            nothing before it was changed, not even by someone who can recompute every digest.
        remarks: observations that are not faults: a clock that was set back, charges without an outcome.
    """

    entries: int
    head: str
    faults: tuple[Fault, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "sound": self.sound,
            "entries": self.entries,
            "head": self.head,
            "faults": [{"entry": fault.entry, "what": fault.what} for fault in self.faults],
            "remarks": list(self.remarks),
        }


def verify_entries(
    rows: Rows, store_faults: Sequence[str], anchor: str | None, is_record: IsRecord
) -> Verification:
    """Check all entries.

    Args:
        rows: the rows of one transaction.
        store_faults: faults of the file or database that holds the entries.
        anchor: the digest of an earlier entry that must still be in the chain.
        is_record: checks the record of an outcome.
    """
    if anchor is not None and (not isinstance(anchor, str) or not re.fullmatch(r"[0-9a-f]{64}", anchor)):
        raise InputError(
            "anchor must be a digest that an earlier verification printed: 64 characters from 0 to 9 and a to f"
        )
    faults = [Fault(entry=None, what=what) for what in store_faults]
    totals, expected, previous, anchored = _RunningTotals(), 1, GENESIS, anchor is None
    last_of: dict[str, tuple[int, str]] = {WHOLE: (0, GENESIS)}
    entries = rows.entries()
    while len(faults) < MOST_FAULTS:
        try:
            entry = next(entries, None)
        except LedgerDamaged as damage:
            faults.append(Fault(entry=damage.entry, what=str(damage)))
            break
        if entry is None:
            break
        if entry.number != expected:
            missing = str(expected) if entry.number == expected + 1 else f"{expected} to {entry.number - 1}"
            what = (
                f"entry {missing} before it is missing" if entry.number > expected else "it is out of order"
            )
            faults.append(Fault(entry=entry.number, what=what))
        elif entry.previous != previous:
            faults.append(Fault(entry=entry.number, what="it does not follow from the entry before it"))
        if not entry.is_intact:
            faults.append(Fault(entry=entry.number, what="it was altered: its digest does not match"))
        else:
            try:
                faults += [Fault(entry=entry.number, what=what) for what in totals.check(entry)]
                check_entry(entry, is_record)
            except HubermeanError as damage:
                faults.append(Fault(entry=entry.number, what=str(damage)))
        last_of[WHOLE] = last_of[entry.dataset] = (entry.number, entry.digest)
        expected, previous = entry.number + 1, entry.digest
        anchored = anchored or entry.digest == anchor
    if not faults:  # the indexes follow from the entries, so these must be sound first
        faults += _check_indexes(rows, last_of, totals)
    if not anchored:
        faults.append(Fault(entry=None, what="the anchor is not among the entries: they were rewritten"))
    number, digest = last_of[WHOLE]
    return Verification(
        entries=number, head=digest, faults=tuple(faults), remarks=tuple(_find_remarks(totals))
    )


def check_entry(entry: Entry, is_record: IsRecord) -> None:
    """Refuse an entry that lacks a field of its kind, or has one of another form. The digest is checked elsewhere.

    Raises:
        LedgerDamaged: the entry does.
    """
    if not _is_well_formed(entry, is_record):
        raise LedgerDamaged(f"entry {entry.number} lacks valid content", entry=entry.number)


def _is_well_formed(entry: Entry, is_record: IsRecord) -> bool:
    content = entry.content
    try:
        check_name(entry.dataset, "dataset")
        # Only canonical JSON: no name occurs twice, and nesting is bounded.
        if to_canonical_json(content) != entry.body or entry.kind not in KINDS:
            return False
        entry.read_cost("spent")
        if content.get("by_whom"):  # empty where the system had no name; the first ledgers had none
            check_name(content["by_whom"], "by_whom")
        if entry.kind == "opened":
            return _is_time(content.get("at")) and _has_user_columns(content)
        if not isinstance(content.get("question"), str) or not _has_user_columns(content):
            return False
        if entry.kind in OUTCOMES:
            return type(content.get("charge")) is int and _is_outcome(entry.kind, content, is_record)
        if entry.kind == "refunded":
            entry.read_cost("refund")
            return type(content.get("charge")) is int
        entry.read_cost("cost")
        return _is_time(content.get("at")) and _is_description(content.get("asked"))
    except (HubermeanError, ValueError, RecursionError):
        return False


def _is_outcome(kind: str, content: Mapping[str, Any], is_record: IsRecord) -> bool:
    if kind == "released":
        return isinstance(content.get("release"), dict) and is_record(content["release"])
    if kind == "not-released" and "used" in content:  # the first ledgers had no refunds
        Cost.read(content["used"])
    return kind == "failed" or isinstance(content.get("reason"), str)


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and datetime.fromisoformat(value) is not None


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _has_user_columns(content: Mapping[str, Any]) -> bool:
    return content.get("user") is None or _is_text_list(content["user"])


def _is_description(description: Any) -> bool:
    if not isinstance(description, dict):
        return False
    if description.get("statistic") == "elsewhere":
        return isinstance(description.get("note"), str)
    return all(isinstance(description.get(one), str) for one in ("statistic", "mechanism", "source")) and all(
        _is_text_list(description.get(one)) for one in ("columns", "by")
    )


@dataclass
class _RunningTotals:
    """What the entries so far add up to."""

    datasets: dict[str, tuple[Entry, Entry]] = field(default_factory=dict)  # (opening entry, last entry)
    open_charges: dict[int, tuple[str, Cost]] = field(default_factory=dict)  # by entry: data set and cost
    refusal: tuple[Any, str, Cost] | None = (
        None  # if the last entry is one: its charge, data set and possible refund
    )
    answers: dict[str, int] = field(default_factory=dict)
    clock: str = ""
    set_back: list[int] = field(default_factory=list)

    def check(self, entry: Entry) -> Iterator[str]:
        """Yield what is wrong with an entry, its digest aside, given the entries before it."""
        name = entry.dataset
        refusal, self.refusal = self.refusal, None
        if entry.kind == "opened":
            if name in self.datasets or name == WHOLE:
                yield "it opens a data set that exists already"
            else:
                self.datasets[name] = (entry, entry)
                dataset = self._dataset(name)
                if dataset.spent != NOTHING:
                    yield "it opens a data set whose budget is partly spent"
                if not dataset.composition.gives(dataset.limit, dataset.epsilon, dataset.delta):
                    yield "its limit does not follow from its total"
        elif entry.kind not in KINDS or name not in self.datasets:
            yield "its kind or its data set is unknown"
        else:
            yield from self._check_later(entry, refusal)
        if (at := entry.content.get("at")) is not None:
            if str(at) < self.clock:
                self.set_back.append(entry.number)
            self.clock = str(at)

    def _dataset(self, name: str) -> Dataset:
        return dataset_from_entries(*self.datasets[name])

    def _check_later(self, entry: Entry, refusal: tuple[Any, str, Cost] | None) -> Iterator[str]:
        """As `check`, for all but openings; `refusal` is what the entry before this one allows to be given back."""
        name = entry.dataset
        before = self._dataset(name)
        opened = self.datasets[name][0]
        self.datasets[name] = (opened, entry)
        spent = before.spent
        if entry.content.get("opened") != [opened.number, opened.digest]:
            yield "it does not name the entry that opened its data set"
        charge = entry.content.get("charge")
        if entry.kind in CHARGES:
            spent += entry.read_cost("cost")
        if entry.kind == "charged":
            self.open_charges[entry.number] = (name, entry.read_cost("cost"))
        elif entry.kind in OUTCOMES:
            of, cost = self.open_charges.pop(charge, ("", NOTHING)) if type(charge) is int else ("", NOTHING)
            if of != name:
                yield "it is the outcome of no charge, or of one that has an outcome already"
            elif entry.kind == "not-released" and "used" in entry.content:
                self.refusal = (charge, name, cost - entry.read_cost("used"))
        elif entry.kind == "refunded":
            refund = entry.read_cost("refund")
            if type(charge) is not int or refusal != (charge, name, refund):
                yield "it does not give back what the refusal before it left of its charge"
            spent -= refund
        if entry.spent != spent:
            yield "its total spent is not the sum of the charges"
        if not spent.within(before.limit):
            yield "the charges exceed the total of its data set"
        if entry.kind in ANSWERS:
            self.answers[entry.read_text("question")] = entry.number


def _check_indexes(
    rows: Rows, last_of: dict[str, tuple[int, str]], totals: _RunningTotals
) -> Iterator[Fault]:
    """Compare the lists of last entries and of answers with the entries."""
    heads = rows.heads()
    for name in sorted(heads.keys() | last_of.keys()):
        if heads.get(name) != last_of.get(name):
            listed, found = heads.get(name), last_of.get(name, (0, ""))
            is_missing = listed is not None and listed[0] > found[0]
            number = found[0] + 1 if is_missing else found[0]
            what = "it is missing" if is_missing else "the list of last entries differs"
            yield Fault(entry=number or None, what=what)
            return
    listed_answers = rows.answers()
    for question, number in totals.answers.items():
        if listed_answers.pop(question, None) != number:
            yield Fault(entry=number, what="it is missing in the list of answers")
            return
    for number in listed_answers.values():
        yield Fault(entry=number, what="the list of answers has it for a question that it does not answer")
        return


def _find_remarks(totals: _RunningTotals) -> Iterator[str]:
    if totals.set_back:
        yield f"the clock was set back before entry {_list_some(totals.set_back)}; the order of entries is intact"
    if totals.open_charges:
        numbers = _list_some(list(totals.open_charges))
        yield f"entry {numbers} is a charge without an outcome: interrupted, or still running; the charge counts"


def _list_some(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5:,} more"
