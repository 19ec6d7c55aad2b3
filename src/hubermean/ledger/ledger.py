"""`BudgetLedger`: the budgets of data sets, the charges against them and the recorded outcomes.

The ledger holds a digest and a description of each question, and the cost of each release. The record of a release is
opaque to it: canonical JSON of limited size. `hubermean.release.ledger.Ledger`, which users see, adds the check of
these records.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self, overload
from uuid import uuid4

from hubermean.accounting.arguments import is_real
from hubermean.accounting.budget import PrivacyCost, checked_budget
from hubermean.errors import InputError, LedgerDamaged, LedgerUnavailable, parameter
from hubermean.ledger.amounts import NOTHING, Cost
from hubermean.ledger.composition import changes_between, composition_named
from hubermean.ledger.dataset import Dataset, read_dataset
from hubermean.ledger.entries import (
    ANSWERS,
    CHARGES,
    GENESIS,
    Entry,
    Kind,
    Question,
    check_name,
    compute_digest,
    name_asker,
)
from hubermean.ledger.postgres_store import PostgresStore
from hubermean.ledger.sqlite_store import SqliteStore
from hubermean.ledger.store import WHOLE, Rows, Store, to_entry
from hubermean.ledger.verification import Verification, check_entry, verify_entries
from hubermean.types.clients import Relation, parse_relation
from hubermean.types.request import DEFAULT_NEIGHBORS, column_names

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_LIKE_A_URL = re.compile(r"^\s*(\w+:)?postgres(ql)?\b[^/]*:|://|\bpassword\s*=", re.ASCII | re.IGNORECASE)
_POSTGRES_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A committed charge.

    Attributes:
        entry: its entry.
        cost: what the data set was charged.
        dataset: its budget after the charge.
        privacy_cost, changes: what the cost was made from: that of the release, and how many of the changes that it
            hides make up one change of the data set.
    """

    entry: Entry
    cost: Cost
    dataset: Dataset
    privacy_cost: PrivacyCost
    changes: int

    def cost_of(self, used: PrivacyCost) -> Cost:
        """Return what stays charged if the release ended early and used no more than this."""
        return self.dataset.composition.cost_of_part(self.privacy_cost, used, self.changes)


class BudgetLedger:
    """Budgets of data sets, and charges that are committed before a release is computed.

    Args:
        location: a file name (SQLite), or the URL of a PostgreSQL database.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self._store = open_store(location)

    @property
    def location(self) -> str:
        """The file name or URL, without the password."""
        return self._store.location

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file or the connection; the next use opens it again."""
        self._store.close()

    def init(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        neighbors: str | Relation = DEFAULT_NEIGHBORS,
        user: str | list[str] | tuple[str, ...] | None = None,
        composition: str = "basic",
        by_whom: str | None = None,
    ) -> None:
        """Open a data set; creates the ledger if there is none.

        Args:
            dataset: its name.
            epsilon, delta: its total, which cannot be changed later.
            neighbors: the change of the data that the total is about; releases must hide at least that change.
                "zero-out" is for clients of federated runs, whose number is public.
            user: the column or columns that identify a user in all releases. If omitted, the first release decides.
            composition: "basic" (epsilons and deltas add up) or "concentrated" (many releases cost less in total;
                needs delta > 0).
            by_whom: who opens it; by default the system's user.

        Raises:
            InputError: an argument is invalid, or the data set exists already.
        """
        name = check_name(dataset, "dataset")
        epsilon, delta = checked_budget(epsilon, delta)
        relation, rule = parse_relation(neighbors), composition_named(composition)
        limit = rule.limit(epsilon, delta)
        users = None if user is None else [check_name(one, "user") for one in column_names(user, "user")]
        content = {
            "at": _now(),
            "by_whom": name_asker(by_whom),
            "epsilon": epsilon,
            "delta": delta,
            "neighbors": relation.value,
            "composition": rule.name,
            "user": users,
            "limit": limit.to_dict(),
            "spent": NOTHING.to_dict(),
        }

        def append_opening(rows: Rows) -> Entry:
            if rows.head(name) is not None:
                raise InputError(
                    f"the data set {name!r} exists already and its total cannot be changed; choose another name"
                )
            return _append(rows, name, "opened", content)

        self._store.create()
        self._commit(append_opening)

    def datasets(self) -> list[Dataset]:
        """Return the budgets of all data sets, in the order in which they were opened."""
        with self._store.reading() as rows:
            found = [read_dataset(rows, name) for name in rows.heads() if name != WHOLE]
        return sorted(found, key=lambda dataset: dataset.number)

    def dataset(self, name: str) -> Dataset:
        """Return the budget of the data set `name`."""
        with self._store.reading() as rows:
            return read_dataset(rows, name)

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        """Iterate over all entries, or those of `dataset`, in order, including entries added meanwhile.

        No transaction is held between blocks: the ledger can be used, also by others, during the iteration.
        """
        after = 0
        while True:
            with self._store.reading() as rows:
                found = rows.block(after)
            if not found:
                return
            for entry in map(to_entry, found):
                if dataset is None or entry.dataset == dataset:
                    yield entry
            after = found[-1][0]

    def spend(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        neighbors: str | Relation | None = None,
        note: str = "",
        by_whom: str | None = None,
    ) -> Dataset:
        """Charge for a release that is made with other software; call it before that release.

        Args:
            dataset: the data set.
            epsilon, delta: the cost of the release.
            neighbors: the change of the data that the release hides; by default that of the data set.
            note: what the release is, for readers of the ledger.
            by_whom: who makes it; by default the system's user.

        Raises:
            BudgetExhausted: too little is left; nothing was charged.
        """
        if not (is_real(epsilon) and 0 <= epsilon <= 1e9):
            raise InputError(f"{parameter('epsilon')} must be a number from 0 to 1e9, not {epsilon!r}")
        if not (is_real(delta) and 0 <= delta < 1):
            raise InputError(f"{parameter('delta')} must be 0 or more and below 1, not {delta!r}")
        if note != "":
            note = check_name(note, "note")
        relation = None if neighbors is None else parse_relation(neighbors)
        description = {
            "statistic": "elsewhere",
            "note": note,
            "epsilon": float(epsilon),
            "delta": float(delta),
            "neighbors": relation and relation.value,
        }
        question = Question(
            digest=uuid4().hex, description=description, user_columns=(), by_whom=name_asker(by_whom)
        )
        privacy_cost = PrivacyCost(epsilon=float(epsilon), delta=float(delta))
        return self.charge(dataset, question, privacy_cost, relation, kind="spent").dataset

    def verify(self, anchor: str | None = None) -> Verification:
        """Check that the ledger is exactly as it was written; see `Verification`.

        Args:
            anchor: the digest of an earlier entry, stored elsewhere. If it is missing, the chain was rewritten.
        """
        faults = self._store.faults()
        with self._store.reading() as rows:
            return verify_entries(rows, faults, anchor, self.is_record)

    def check_entry(self, entry: Entry) -> None:
        """Raise LedgerDamaged if an entry does not have the content of its kind."""
        check_entry(entry, self.is_record)

    def is_record(self, record: Mapping[str, Any]) -> bool:
        """Whether the record of a release has the form in which it was written; to be overridden."""
        return True

    # --- used by the release path -------------------------------------------------------------------------------------

    def check_budget(
        self, name: str, question: Question, privacy_cost: PrivacyCost, relation: Relation
    ) -> None:
        """Raise BudgetExhausted if a charge would exceed the budget now; `charge` decides in the end."""
        with self._store.reading() as rows:
            dataset = read_dataset(rows, name)
        cost = dataset.compute_cost(question, privacy_cost, relation)
        if not (dataset.spent + cost).within(dataset.limit):
            self.charge(name, question, privacy_cost, relation)

    def find_answer(self, name: str, question: Question) -> Entry | None:
        """Return the entry that answers the same question, if there is one."""
        with self._store.reading() as rows:
            read_dataset(rows, name)
            return _find_answer(rows, name, question)

    def is_charged(self, name: str, question: Question) -> bool:
        """Whether a charge for this very question was committed; it reads all entries of the ledger."""
        key = _question_key(name, question)
        return any(
            entry.kind in CHARGES and entry.content.get("question") == key for entry in self.entries(name)
        )

    @overload
    def charge(
        self,
        name: str,
        question: Question,
        privacy_cost: PrivacyCost,
        relation: Relation | None,
        *,
        kind: Kind = "charged",
    ) -> Charge: ...

    @overload
    def charge(
        self,
        name: str,
        question: Question,
        privacy_cost: PrivacyCost,
        relation: Relation,
        *,
        unless_answered: bool,
    ) -> Charge | Entry: ...

    def charge(
        self,
        name: str,
        question: Question,
        privacy_cost: PrivacyCost,
        relation: Relation | None,
        *,
        unless_answered: bool = False,
        kind: Kind = "charged",
    ) -> Charge | Entry:
        """Charge a data set if its budget suffices; the charge is committed when this returns.

        Args:
            name: the data set.
            question: what is charged for.
            privacy_cost: its cost under one change of `relation`.
            relation: the change that the release hides; None for that of the data set.
            unless_answered: return an answer to the same question instead, if one was recorded meanwhile.
            kind: the kind of the entry.

        Raises:
            BudgetExhausted: the budget does not suffice; the refused request is recorded.
        """
        made: list[Charge] = []

        def append_charge(rows: Rows) -> Entry:
            dataset = read_dataset(rows, name)
            if unless_answered and (answer := _find_answer(rows, name, question)) is not None:
                return answer
            cost = dataset.compute_cost(question, privacy_cost, relation)
            changes = changes_between(relation or dataset.neighbors, dataset.neighbors)
            after = dataset.spent + cost
            fits = after.within(dataset.limit)
            if fits:
                dataset = replace(dataset, spent=after)
            content = {
                "at": _now(),
                "token": uuid4().hex,  # makes every charge a different text
                "question": _question_key(name, question),
                "asked": dict(question.description),
                "by_whom": question.by_whom,
                "cost": cost.to_dict(),
            }
            # Only a release decides which columns identify a user, not a request that was refused.
            entry = _append_to_dataset(
                rows, dataset, question if fits else None, kind if fits else "refused", content
            )
            made.append(
                Charge(entry=entry, cost=cost, dataset=dataset, privacy_cost=privacy_cost, changes=changes)
            )
            return entry

        entry = self._commit(append_charge)
        if not made:
            return entry
        if made[-1].entry.kind == "refused":
            raise made[-1].dataset.budget_exhausted(made[-1].cost)
        return made[-1]

    def conclude(
        self,
        charge: Charge,
        question: Question,
        kind: Kind,
        content: Mapping[str, Any],
        *,
        used: PrivacyCost | None = None,
    ) -> Entry:
        """Record the outcome of a charge, without a time: how long a release took may depend on the data.

        A refusal that used less than was charged is followed by a refund, which is committed with it or not at all.

        Args:
            charge: the charge.
            question: what it was for.
            kind, content: the outcome.
            used: what a refusal used, of the charge's `privacy_cost`; None for all of it. It must follow from samples
                that are part of what the charge pays for, and from public numbers.
        """
        name = charge.dataset.name
        key = _question_key(name, question)
        about = {"charge": charge.entry.number, "question": key}
        stays = charge.cost if used is None else charge.cost_of(used)
        refund = charge.cost - stays

        def append_outcome(rows: Rows) -> Entry:
            whole = {**content, **about}
            if kind == "not-released":
                whole["used"] = stays.to_dict()
            dataset = read_dataset(rows, name)
            entry = _append_to_dataset(rows, dataset, question, kind, whole)
            if kind in ANSWERS:
                rows.remember(key, entry.number)
            if refund != NOTHING:
                dataset = replace(dataset, spent=dataset.spent - refund)
                given_back = {**about, "refund": refund.to_dict()}
                entry = _append_to_dataset(rows, dataset, question, "refunded", given_back)
            return entry

        return self._commit(append_outcome)

    def _commit(self, append: Callable[[Rows], Entry]) -> Entry:
        """Append an entry and make sure that it is committed.

        If the connection is lost during the commit, a second transaction finds out whether the commit succeeded.
        """
        made: list[Entry] = []
        try:
            with self._store.writing() as rows:
                made.append(append(rows))
            return made[-1]
        except LedgerUnavailable as error:
            failure = error
        if not made:
            raise failure
        try:
            with self._store.reading() as rows:
                found = rows.entry(made[-1].number)
        except LedgerUnavailable:
            raise LedgerUnavailable(
                f"{failure}; nothing was released, but the charge may have been committed: "
                "check with hubermean ledger show"
            ) from None
        if found is not None and found.digest == made[-1].digest:
            return made[-1]
        raise failure


def open_store(location: str | os.PathLike[str]) -> Store:
    """Return the store of a ledger for a file name or URL; no file or connection is opened yet.

    >>> open_store("budget.sqlite").location
    'budget.sqlite'
    """
    text = os.fspath(location) if isinstance(location, str | os.PathLike) else None
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        raise InputError(
            f"{parameter('ledger')} must be a file name or a URL such as postgresql://host/database, "
            "in printable characters"
        )
    url = _URL.match(text)
    if url is None:
        if _LIKE_A_URL.search(text):  # as a file name it would be printed, including the password
            raise InputError(
                "the URL of the ledger cannot be read; write postgresql://user:password@host:port/database"
            )
        return SqliteStore(text)
    scheme = url["scheme"].lower()
    if scheme == "sqlite":
        raise InputError("give the file name of the ledger without sqlite://")
    if scheme not in _POSTGRES_SCHEMES:
        raise InputError(f"a ledger is a file or at postgresql://host/database; {scheme}:// is not supported")
    return PostgresStore(text)


def _append_to_dataset(
    rows: Rows, dataset: Dataset, question: Question | None, kind: Kind, content: Mapping[str, Any]
) -> Entry:
    """Append an entry that states the budget of its data set and the entry that opened it."""
    whole = {
        **content,
        "user": dataset.users_after(question),
        "spent": dataset.spent.to_dict(),
        "opened": [dataset.number, dataset.digest],
    }
    return _append(rows, dataset.name, kind, whole)


def _append(rows: Rows, name: str, kind: Kind, content: Mapping[str, Any]) -> Entry:
    last = rows.last(WHOLE)
    number, previous = (0, GENESIS) if last is None else (last.number, last.digest)
    entry = Entry.after(number, previous, dataset=name, kind=kind, content=content)
    rows.append(entry)
    return entry


def _find_answer(rows: Rows, name: str, question: Question) -> Entry | None:
    key = _question_key(name, question)
    found = rows.answer(key)
    if found is None:
        return None
    matches = found.is_intact and found.dataset == name and found.content.get("question") == key
    if not matches or found.kind not in ANSWERS:
        raise LedgerDamaged(f"entry {found.number} was altered", entry=found.number)
    return found


def _question_key(name: str, question: Question) -> str:
    return compute_digest([name, question.digest])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
