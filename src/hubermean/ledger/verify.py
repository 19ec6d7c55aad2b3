"""Is a ledger as it was written? Every entry is looked at, and what follows from the entries is worked out again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubermean.errors import HubermeanError, InputError, LedgerDamaged
from hubermean.ledger.amounts import NOTHING
from hubermean.ledger.entries import ANSWERS, CHARGES, GENESIS, KINDS, OUTCOMES, Entry
from hubermean.ledger.shape import require_shape
from hubermean.ledger.standing import Dataset, standing_of
from hubermean.ledger.store import WHOLE, Rows

MOST_FAULTS = 20


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that is not as it was written; `entry` is None where no entry can be named."""

    entry: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.entry is None else f"entry {self.entry}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `Ledger.verify` found.

    Attributes:
        sound: whether everything is as it was written.
        faults: what is not, the first of them.
        entries: how many entries there are.
        head: number and digest of the last one. Noted down elsewhere, it is an anchor: as long as that digest is in the
            chain, nothing before it was changed, even by somebody who can write every digest anew.
        remarks: what is no fault but worth knowing: a clock that was set back, charges without an outcome.
    """

    entries: int
    head: str
    faults: tuple[Fault, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        return {
            "sound": self.sound,
            "entries": self.entries,
            "head": self.head,
            "faults": [{"entry": fault.entry, "what": fault.what} for fault in self.faults],
            "remarks": list(self.remarks),
        }


@dataclass
class _Books:
    """What the entries so far come to."""

    datasets: dict[str, tuple[Entry, Entry]] = field(default_factory=dict)  # (the opening one, the last one)
    open_charges: dict[int, str] = field(default_factory=dict)  # number to data set
    answers: dict[str, int] = field(default_factory=dict)
    clock: str = ""
    set_back: list[int] = field(default_factory=list)

    def check(self, entry: Entry) -> Iterator[str]:
        """What is wrong with an entry, beside its digest, given those before it."""
        name = entry.dataset
        if entry.kind == "opened":
            if name in self.datasets or name == WHOLE:
                yield "it opens a data set that there was before"
            else:
                self.datasets[name] = (entry, entry)
                dataset = self._standing(name)
                if dataset.spent != NOTHING:
                    yield "it opens a data set that has spent before"
                if not dataset.composition.gives(dataset.limit, dataset.epsilon, dataset.delta):
                    yield "its limit does not follow from its total"
        elif entry.kind not in KINDS or name not in self.datasets:
            yield "it is of no known kind, or of no data set"
        else:
            yield from self._check_later(entry)
        if (at := entry.content.get("at")) is not None:
            if str(at) < self.clock:
                self.set_back.append(entry.number)
            self.clock = str(at)

    def _standing(self, name: str) -> Dataset:
        return standing_of(*self.datasets[name])

    def _check_later(self, entry: Entry) -> Iterator[str]:
        name = entry.dataset
        before = self._standing(name)
        opened = self.datasets[name][0]
        self.datasets[name] = (opened, entry)
        spent = before.spent
        if entry.content.get("opened") != [opened.number, opened.digest]:
            yield "it does not name the entry that opened its data set"
        if entry.kind in CHARGES:
            spent += entry.cost_of("cost")
        if entry.kind == "charged":
            self.open_charges[entry.number] = name
        elif entry.kind in OUTCOMES:
            charge = entry.content.get("charge")
            if type(charge) is not int or self.open_charges.pop(charge, None) != name:
                yield "it concludes no charge, or one that was concluded before"
        if entry.spent != spent:
            yield "what it says was spent is not the sum of the charges"
        if not spent.within(before.limit):
            yield "more was charged than the total of its data set"
        if entry.kind in ANSWERS:
            self.answers[entry.text_of("question")] = entry.number


def verified(rows: Rows, found_before: Sequence[str], anchor: str | None) -> Verification:
    """Go through all entries; `found_before` are faults of the place that holds them."""
    if anchor is not None and (not isinstance(anchor, str) or not re.fullmatch(r"[0-9a-f]{64}", anchor)):
        raise InputError(
            "an anchor is the digest that an earlier verification showed: 64 letters from 0 to f"
        )
    faults = [Fault(entry=None, what=what) for what in found_before]
    books, expected, previous, anchored = _Books(), 1, GENESIS, anchor is None
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
        if not entry.is_whole:
            faults.append(Fault(entry=entry.number, what="it was altered: its digest does not fit"))
        else:
            try:
                faults += [Fault(entry=entry.number, what=what) for what in books.check(entry)]
                require_shape(entry)
            except HubermeanError as damage:
                faults.append(Fault(entry=entry.number, what=str(damage)))
        last_of[WHOLE] = last_of[entry.dataset] = (entry.number, entry.digest)
        expected, previous = entry.number + 1, entry.digest
        anchored = anchored or entry.digest == anchor
    if not faults:  # what follows from entries is looked at once these are sound
        faults += _indexes(rows, last_of, books)
    if not anchored:
        faults.append(Fault(entry=None, what="the anchor is not among the entries: they were made anew"))
    number, digest = last_of[WHOLE]
    return Verification(entries=number, head=digest, faults=tuple(faults), remarks=tuple(_remarks(books)))


def _indexes(rows: Rows, last_of: dict[str, tuple[int, str]], books: _Books) -> Iterator[Fault]:
    heads = rows.heads()
    for name in sorted(heads.keys() | last_of.keys()):
        if heads.get(name) != last_of.get(name):
            known, found = heads.get(name), last_of.get(name, (0, ""))
            number = found[0] + 1 if known is not None and known[0] > found[0] else found[0]
            what = (
                "it is missing"
                if known is not None and known[0] > found[0]
                else "the list of last entries differs"
            )
            yield Fault(entry=number or None, what=what)
            return
    kept = rows.answers()
    for question, number in books.answers.items():
        if kept.pop(question, None) != number:
            yield Fault(entry=number, what="it is not on the list of answers")
            return
    for number in kept.values():
        yield Fault(entry=number, what="it is on the list of answers for a question that it does not answer")
        return


def _remarks(books: _Books) -> Iterator[str]:
    if books.set_back:
        yield f"the clock was set back before entry {_few(books.set_back)}; entries stand in order all the same"
    if books.open_charges:
        numbers = list(books.open_charges)
        yield f"no outcome is recorded for the charge in entry {_few(numbers)}: interrupted, or under way; it counts"


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5:,} more"
