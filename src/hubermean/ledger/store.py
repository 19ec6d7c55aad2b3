"""The storage of entries: three tables, the same in SQLite and in PostgreSQL.

    hubermean_entries   the chain, append-only
    hubermean_heads     the last entry of the whole ledger (name "") and of each data set, with its digest
    hubermean_answers   which entry answers a question; can be rebuilt from the entries

A head holds the number of an entry and the digest that it must have. It no longer matches if either was changed by
accident, or if entries were removed from the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hubermean.errors import LedgerDamaged
from hubermean.ledger.entries import ANSWERS, Entry

SCHEMA = 3
"""1: entries and heads. 2: answers, and triggers by which the database refuses changes of entries. 3: refunds, a kind
of entry that earlier programs do not know; the tables are those of 2."""

WHOLE = ""
"""The name of the head of the whole ledger; no data set can have it."""

_COLUMNS = "number, dataset, kind, body, previous, digest"
_COLUMNS_OF_ENTRIES = ", ".join(f"entries.{column}" for column in _COLUMNS.split(", "))
_HEADS_WITH_ENTRIES = (
    "hubermean_heads AS heads LEFT JOIN hubermean_entries AS entries ON entries.number = heads.number"
)
_BLOCK = 500
BLOCK_CHARACTERS = 32_000_000
"""Characters of bodies that are read at once; the entry of a table with many groups is large."""


class Execute(Protocol):
    """Runs one statement with named parameters and returns its rows, if it has any."""

    def __call__(self, statement: str, **parameters: Any) -> Sequence[Sequence[Any]]: ...


class Store(Protocol):
    """A file or database that holds a ledger. Errors of its engine become LedgerUnavailable or LedgerDamaged."""

    @property
    def location(self) -> str:
        """The file name or URL, without the password."""

    def create(self) -> None:
        """Create the tables, or migrate older ones."""

    def reading(self) -> AbstractContextManager[Rows]:
        """Open a transaction with one consistent view."""

    def writing(self) -> AbstractContextManager[Rows]:
        """Open the transaction of the only writer: committed to disk at its end, rolled back after an error."""

    def faults(self) -> list[str]:
        """Return faults of the file or database itself: its tables, its pages."""

    def close(self) -> None:
        """Close the file or the connection."""


class Rows:
    """The rows of a ledger within one transaction."""

    def __init__(self, execute: Execute) -> None:
        self.execute = execute

    def entry(self, number: int) -> Entry | None:
        found = self.execute(
            f"SELECT {_COLUMNS} FROM hubermean_entries WHERE number = :number", number=number
        )
        return to_entry(found[0]) if found else None

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Iterate over all entries after a number, in order."""
        while found := self.block(after):
            yield from map(to_entry, found)
            after = found[-1][0]

    def block(self, after: int) -> Sequence[Sequence[Any]]:
        """Return the next rows after a number, as many as fit in memory; empty at the end."""
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
        return _check_head(found[0]) if found else None

    def heads(self) -> dict[str, tuple[int, str]]:
        found = self.execute("SELECT number, digest, name FROM hubermean_heads ORDER BY name")
        return {str(row[2]): _check_head(row[:2]) for row in found}

    def last(self, name: str) -> Entry | None:
        """Return the last entry of the ledger or of a data set, checked against its head."""
        found = self.execute(
            f"SELECT heads.number, heads.digest, {_COLUMNS_OF_ENTRIES} FROM {_HEADS_WITH_ENTRIES} "
            "WHERE heads.name = :name",
            name=name,
        )
        if not found:
            return None
        number, digest = _check_head(found[0][:2])
        if number == 0:
            return None
        if found[0][2] is None:
            raise LedgerDamaged(f"entry {number} is missing", entry=number)
        entry = to_entry(found[0][2:])
        if entry.digest != digest or not entry.is_intact or name not in (WHOLE, entry.dataset):
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
        self._require_stored(entry)

    def _require_stored(self, entry: Entry) -> None:
        """Read an entry back: a foreign rule or trigger could drop it without an error."""
        found = self.execute(
            f"SELECT heads.name, heads.number, heads.digest, entries.digest FROM {_HEADS_WITH_ENTRIES} "
            f"WHERE heads.name IN ('{WHOLE}', :dataset)",
            dataset=entry.dataset,
        )
        written = {(name, entry.number, entry.digest, entry.digest) for name in (WHOLE, entry.dataset)}
        if len(found) != len(written) or {tuple(row) for row in found} != written:
            raise LedgerDamaged(f"entry {entry.number} was not stored as it was written", entry=entry.number)

    def answer(self, question: str) -> Entry | None:
        found = self.execute(
            "SELECT number FROM hubermean_answers WHERE question = :question", question=question
        )
        return self.entry(found[0][0]) if found else None

    def answers(self) -> dict[str, int]:
        found = self.execute("SELECT question, number FROM hubermean_answers")
        return {str(question): number for question, number in found}

    def remember_all(self) -> None:
        """Rebuild the answers from the entries."""
        for question, number in index_answers(self.entries()).items():
            self.remember(question, number)

    def remember(self, question: str, number: int) -> None:
        """Note that an entry answers a question; the latest entry does."""
        self.execute(
            "INSERT INTO hubermean_answers (question, number) VALUES (:question, :number) "
            "ON CONFLICT (question) DO UPDATE SET number = excluded.number",
            question=question,
            number=number,
        )


class OldRows(Rows):
    """Rows of a read-only ledger of schema 1, which has no table of answers: they are computed each time."""

    def answer(self, question: str) -> Entry | None:
        number = self.answers().get(question)
        return None if number is None else self.entry(number)

    def answers(self) -> dict[str, int]:
        return index_answers(self.entries())


def index_answers(entries: Iterable[Entry]) -> dict[str, int]:
    """Map each question to the entry that answers it."""
    return {entry.read_text("question"): entry.number for entry in entries if entry.kind in ANSWERS}


def to_entry(row: Sequence[Any]) -> Entry:
    number, *texts = row
    if type(number) is not int or not all(type(text) is str for text in texts):
        raise LedgerDamaged(f"entry {number!r:.40} cannot be read", entry=_integer_or_none(number))
    dataset, kind, body, previous, digest = texts
    return Entry(number=number, dataset=dataset, kind=kind, body=body, previous=previous, digest=digest)


def _check_head(row: Sequence[Any]) -> tuple[int, str]:
    number, digest = row
    if type(number) is not int or type(digest) is not str:
        raise LedgerDamaged("the list of last entries cannot be read")
    return number, digest


def _integer_or_none(number: Any) -> int | None:
    return number if type(number) is int else None
