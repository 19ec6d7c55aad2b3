"""Where entries lie: three tables, the same in SQLite and in PostgreSQL, behind a few questions.

    hubermean_entries   the chain, append-only
    hubermean_heads     the last entry of the whole ledger (name "") and of each data set, with its digest
    hubermean_answers   which entry answers a question; can be made anew from the entries

A head names a number and the digest that the entry of that number must have: one that was changed by accident, or an
entry that was taken from the end, does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hubermean.errors import LedgerDamaged
from hubermean.ledger.entries import ANSWERS, Entry

SCHEMA = 2
"""1: entries and heads. 2: answers, and rows that the database itself does not let change."""

WHOLE = ""
"""The name of the head of the whole ledger; no data set has it."""

_COLUMNS = "number, dataset, kind, body, previous, digest"
_COLUMNS_OF_ENTRIES = ", ".join(f"entries.{column}" for column in _COLUMNS.split(", "))
_HEADS_WITH_ENTRIES = (
    "hubermean_heads AS heads LEFT JOIN hubermean_entries AS entries ON entries.number = heads.number"
)
_BLOCK = 500
BLOCK_CHARACTERS = 32_000_000
"""Of bodies that are read at once: a table of many groups is large, and there may be many of them."""


class Execute(Protocol):
    """Run one statement with named parameters; its rows, if it has any."""

    def __call__(self, statement: str, **parameters: Any) -> Sequence[Sequence[Any]]: ...


class Store(Protocol):
    """A ledger's place. Errors of the engine become ours: LedgerUnavailable, or LedgerDamaged."""

    @property
    def place(self) -> str:
        """Where it is, for people; without a password."""

    def create(self) -> None:
        """Make the tables, or bring older ones up to date."""

    def reading(self) -> AbstractContextManager[Rows]:
        """One consistent view."""

    def writing(self) -> AbstractContextManager[Rows]:
        """The same for one writer at a time; on disk when it ends, and as before if it ends in an error."""

    def faults(self) -> list[str]:
        """What is wrong with the place itself: its tables, its pages."""

    def close(self) -> None: ...


class Rows:
    """The rows of a ledger within one transaction."""

    def __init__(self, execute: Execute) -> None:
        self.execute = execute

    def entry(self, number: int) -> Entry | None:
        found = self.execute(
            f"SELECT {_COLUMNS} FROM hubermean_entries WHERE number = :number", number=number
        )
        return entry_of(found[0]) if found else None

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """All entries behind a number, in order."""
        while found := self.block(after):
            yield from map(entry_of, found)
            after = found[-1][0]

    def block(self, after: int) -> Sequence[Sequence[Any]]:
        """The next rows behind a number, as many as can be held at once; none at the end."""
        sizes = self.execute(
            "SELECT number, length(body) FROM hubermean_entries WHERE number > :after "
            f"ORDER BY number LIMIT {_BLOCK}",
            after=after,
        )
        last, characters = after, 0
        for number, size in sizes:
            characters += size if type(size) is int else 0
            if last > after and characters > BLOCK_CHARACTERS:
                break
            last = number
        return self.execute(
            f"SELECT {_COLUMNS} FROM hubermean_entries WHERE number > :after AND number <= :last ORDER BY number",
            after=after,
            last=last,
        )

    def head(self, name: str) -> tuple[int, str] | None:
        found = self.execute("SELECT number, digest FROM hubermean_heads WHERE name = :name", name=name)
        return _head(found[0]) if found else None

    def heads(self) -> dict[str, tuple[int, str]]:
        found = self.execute("SELECT number, digest, name FROM hubermean_heads ORDER BY name")
        return {str(row[2]): _head(row[:2]) for row in found}

    def last(self, name: str) -> Entry | None:
        """The last entry of the ledger or of a data set, checked against its head."""
        found = self.execute(
            f"SELECT heads.number, heads.digest, {_COLUMNS_OF_ENTRIES} FROM {_HEADS_WITH_ENTRIES} "
            "WHERE heads.name = :name",
            name=name,
        )
        if not found:
            return None
        number, digest = _head(found[0][:2])
        if number == 0:
            return None
        if found[0][2] is None:
            raise LedgerDamaged(f"entry {number} is missing", entry=number)
        entry = entry_of(found[0][2:])
        if entry.digest != digest or not entry.is_whole or name not in (WHOLE, entry.dataset):
            raise LedgerDamaged(f"entry {number} was altered", entry=number)
        return entry

    def append(self, entry: Entry) -> None:
        self.execute(
            f"INSERT INTO hubermean_entries ({_COLUMNS}) "
            "VALUES (:number, :dataset, :kind, :body, :previous, :digest)",
            number=entry.number,
            dataset=entry.dataset,
            kind=entry.kind,
            body=entry.body,
            previous=entry.previous,
            digest=entry.digest,
        )
        self.execute(
            "INSERT INTO hubermean_heads (name, number, digest) "
            f"VALUES ('{WHOLE}', :number, :digest), (:dataset, :number, :digest) "
            "ON CONFLICT (name) DO UPDATE SET number = excluded.number, digest = excluded.digest",
            dataset=entry.dataset,
            number=entry.number,
            digest=entry.digest,
        )
        self._require_kept(entry)

    def _require_kept(self, entry: Entry) -> None:
        """A rule or a trigger that is not ours may drop what is written without a word."""
        found = self.execute(
            f"SELECT heads.name, heads.number, heads.digest, entries.digest FROM {_HEADS_WITH_ENTRIES} "
            f"WHERE heads.name IN ('{WHOLE}', :dataset)",
            dataset=entry.dataset,
        )
        written = {(name, entry.number, entry.digest, entry.digest) for name in (WHOLE, entry.dataset)}
        if len(found) != len(written) or {tuple(row) for row in found} != written:
            raise LedgerDamaged(f"entry {entry.number} is not kept as it is written", entry=entry.number)

    def answer(self, question: str) -> Entry | None:
        found = self.execute(
            "SELECT number FROM hubermean_answers WHERE question = :question", question=question
        )
        return self.entry(found[0][0]) if found else None

    def answers(self) -> dict[str, int]:
        found = self.execute("SELECT question, number FROM hubermean_answers")
        return {str(question): number for question, number in found}

    def remember_all(self) -> None:
        """Make the answers anew from the entries."""
        for question, number in answers_of(self.entries()).items():
            self.remember(question, number)

    def remember(self, question: str, number: int) -> None:
        """That an entry answers a question; the latest does."""
        self.execute(
            "INSERT INTO hubermean_answers (question, number) VALUES (:question, :number) "
            "ON CONFLICT (question) DO UPDATE SET number = excluded.number",
            question=question,
            number=number,
        )


class OldRows(Rows):
    """Of a ledger of the first version that may only be read: its answers are worked out each time."""

    def answer(self, question: str) -> Entry | None:
        number = self.answers().get(question)
        return None if number is None else self.entry(number)

    def answers(self) -> dict[str, int]:
        return answers_of(self.entries())


def answers_of(entries: Iterable[Entry]) -> dict[str, int]:
    """Which entry answers which question."""
    return {entry.text_of("question"): entry.number for entry in entries if entry.kind in ANSWERS}


def entry_of(row: Sequence[Any]) -> Entry:
    number, *texts = row
    if type(number) is not int or not all(type(text) is str for text in texts):
        raise LedgerDamaged(f"entry {number!r:.40} is of no kind that can be read", entry=_whole(number))
    dataset, kind, body, previous, digest = texts
    return Entry(number=number, dataset=dataset, kind=kind, body=body, previous=previous, digest=digest)


def _head(row: Sequence[Any]) -> tuple[int, str]:
    number, digest = row
    if type(number) is not int or type(digest) is not str:
        raise LedgerDamaged("the list of last entries cannot be read")
    return number, digest


def _whole(number: Any) -> int | None:
    return number if type(number) is int else None
