"""`Ledger`: the budgets of data sets, and every release that was charged to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, overload
from uuid import uuid4

from hubermean.errors import InputError, LedgerDamaged, LedgerUnavailable, is_real
from hubermean.ingest import column_names
from hubermean.ledger.amounts import NOTHING, Cost
from hubermean.ledger.composition import composition_named
from hubermean.ledger.entries import ANSWERS, GENESIS, Entry, Kind, digest_of
from hubermean.ledger.places import store_at
from hubermean.ledger.question import Question, checked_name
from hubermean.ledger.standing import Dataset, standing
from hubermean.ledger.store import WHOLE, Rows, entry_of
from hubermean.ledger.verify import Verification, verified
from hubermean.relations import DEFAULT_NEIGHBORS, Neighbors
from hubermean.spending import Price, checked_budget


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A charge that is on disk."""

    entry: Entry
    cost: Cost
    dataset: Dataset


class Ledger:
    """Budgets that releases are charged to before they leave the process.

    Args:
        place: a file (SQLite), or the URL of a PostgreSQL database for a team.

    Formal guarantees:
    - a release is made only after its charge is on disk, and only if all charges of its data set, this one included,
      add up to no more than the total, however many processes ask at once;
    - entries are chained by digests: `verify` finds one that was removed, altered or moved;
    - nothing in it comes from the data but what was released, and what it decides follows from public numbers alone.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/budget.sqlite")
    >>> ledger.init("trips", epsilon=1.0, user="rider")
    >>> import hubermean as hm, pyarrow as pa
    >>> trips = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0]})
    >>> ask = dict(user="rider", value="fare", bounds=(0, 100), per="user", ledger=ledger, dataset="trips")
    >>> first = hm.mean(trips, epsilon=0.75, **ask)
    >>> hm.mean(trips, epsilon=0.75, **ask).value == first.value  # the same question, at no further cost
    True
    >>> ledger.dataset("trips").left_in_words
    'epsilon = 0.25'
    >>> hm.mean(trips, epsilon=0.5, **ask)
    Traceback (most recent call last):
    hubermean.errors.BudgetExhausted: ...
    >>> ledger.verify().sound
    True
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._store = store_at(place)

    @property
    def place(self) -> str:
        """Where it lies; without a password."""
        return self._store.place

    def __repr__(self) -> str:
        return f"Ledger({self.place!r})"

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file or the connection; it is opened again when it is next used."""
        self._store.close()

    def init(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
        user: str | list[str] | tuple[str, ...] | None = None,
        composition: str = "basic",
    ) -> None:
        """Open a data set; the ledger is made if there is none.

        Args:
            dataset: its name.
            epsilon, delta: its total, which cannot be changed later.
            neighbors: the change of the data that the total is about; releases must hide at least that.
            user: the column or columns that identify a user, in all releases; those of the first, if left out.
            composition: "basic" (epsilons and deltas add up) or "concentrated" (less for many releases; needs delta).
        """
        name = checked_name(dataset, "dataset")
        epsilon, delta = checked_budget(epsilon, delta)
        relation, how = Neighbors.parse(neighbors), composition_named(composition)
        limit = how.limit(epsilon, delta)
        users = None if user is None else [checked_name(one, "user") for one in column_names(user, "user")]
        content = {
            "at": _now(),
            "epsilon": epsilon,
            "delta": delta,
            "neighbors": relation.value,
            "composition": how.name,
            "user": users,
            "limit": limit.to_dict(),
            "spent": NOTHING.to_dict(),
        }

        def opening(rows: Rows) -> Entry:
            if rows.head(name) is not None:
                raise InputError(
                    f"there is a data set {name!r} in this ledger, whose total stays as it is; take another name"
                )
            return _appended(rows, name, "opened", content)

        self._store.create()
        self._written(opening)

    def datasets(self) -> list[Dataset]:
        """How all data sets stand, in the order in which they were opened."""
        with self._store.reading() as rows:
            found = [standing(rows, name) for name in rows.heads() if name != WHOLE]
        return sorted(found, key=lambda dataset: dataset.number)

    def dataset(self, name: str) -> Dataset:
        """How one data set stands."""
        with self._store.reading() as rows:
            return standing(rows, name)

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        """All entries, or those of one data set, in order; with what is added meanwhile.

        Nothing is held between them: a ledger can be used, also by others, while its entries are looked at.
        """
        after = 0
        while True:
            with self._store.reading() as rows:
                found = rows.block(after)
            if not found:
                return
            for entry in map(entry_of, found):
                if dataset is None or entry.dataset == dataset:
                    yield entry
            after = found[-1][0]

    def spend(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        neighbors: str | Neighbors | None = None,
        note: str = "",
    ) -> Dataset:
        """Charge for something that is released elsewhere, before it is.

        Args:
            dataset: the data set.
            epsilon, delta: what it costs.
            neighbors: the change of the data that it hides; that of the data set if left out.
            note: what it is, for people.

        Raises:
            BudgetExhausted: too little is left; nothing was charged.
        """
        if not (is_real(epsilon) and 0 <= epsilon <= 1e9):
            raise InputError(f"epsilon must be a number from 0 to 1e9, not {epsilon!r}")
        if not (is_real(delta) and 0 <= delta < 1):
            raise InputError(f"delta must be 0 or more and below 1, not {delta!r}")
        if note != "":
            note = checked_name(note, "note")
        relation = None if neighbors is None else Neighbors.parse(neighbors)
        shown = {
            "statistic": "elsewhere",
            "note": note,
            "epsilon": float(epsilon),
            "delta": float(delta),
            "neighbors": relation and relation.value,
        }
        question = Question(users=(), shown=shown, digest=uuid4().hex)
        price = Price(epsilon=float(epsilon), delta=float(delta))
        return self.charge(dataset, question, price, relation, kind="spent").dataset

    def verify(self, anchor: str | None = None) -> Verification:
        """Whether everything is as it was written; see `Verification`.

        Args:
            anchor: the digest of some entry, noted down earlier: one that is gone means that the chain was made anew.
        """
        faults = self._store.faults()
        with self._store.reading() as rows:
            return verified(rows, faults, anchor)

    # --- what a release does, through `Account` -----------------------------------------------------------------------

    def room_for(self, name: str, question: Question, price: Price, relation: Neighbors) -> None:
        """Refuse what could not be charged now, before any data is read; what is charged is decided later, and once."""
        with self._store.reading() as rows:
            dataset = standing(rows, name)
        cost = dataset.cost(question, price, relation)
        if not (dataset.spent + cost).within(dataset.limit):
            self.charge(name, question, price, relation)

    def answered(self, name: str, question: Question) -> Entry | None:
        """The entry that answers the same question."""
        with self._store.reading() as rows:
            standing(rows, name)
            return _answer(rows, name, question)

    @overload
    def charge(
        self,
        name: str,
        question: Question,
        price: Price,
        relation: Neighbors | None,
        *,
        kind: Kind = "charged",
    ) -> Charge: ...

    @overload
    def charge(
        self, name: str, question: Question, price: Price, relation: Neighbors, *, unless_answered: bool
    ) -> Charge | Entry: ...

    def charge(
        self,
        name: str,
        question: Question,
        price: Price,
        relation: Neighbors | None,
        *,
        unless_answered: bool = False,
        kind: Kind = "charged",
    ) -> Charge | Entry:
        """Charge, if there is room; committed when this returns.

        Without a relation, it is that of the data set. With `unless_answered`, an answer to the same question that was
        recorded meanwhile is returned instead.

        Raises:
            BudgetExhausted: there is not; that it was asked for is on record.
        """
        made: list[Charge] = []

        def charging(rows: Rows) -> Entry:
            dataset = standing(rows, name)
            if unless_answered and (answer := _answer(rows, name, question)) is not None:
                return answer
            cost = dataset.cost(question, price, relation)
            after = dataset.spent + cost
            fits = after.within(dataset.limit)
            if fits:
                dataset = replace(dataset, spent=after)
            content = {
                "at": _now(),
                "token": uuid4().hex,  # no two charges are the same text
                "question": _asked(name, question),
                "asked": dict(question.shown),
                "cost": cost.to_dict(),
            }
            # Who is a user is decided by what is released, not by what was asked for in vain.
            entry = _append(rows, dataset, question if fits else None, kind if fits else "refused", content)
            made.append(Charge(entry=entry, cost=cost, dataset=dataset))
            return entry

        entry = self._written(charging)
        if not made:
            return entry
        if made[-1].entry.kind == "refused":
            raise made[-1].dataset.exhausted(made[-1].cost)
        return made[-1]

    def conclude(self, charge: Charge, question: Question, kind: Kind, content: Mapping[str, Any]) -> Entry:
        """Record what came of a charge. There is no time in it: how long a release took may depend on the data."""
        name = charge.dataset.name
        asked = _asked(name, question)

        def concluding(rows: Rows) -> Entry:
            whole = {**content, "charge": charge.entry.number, "question": asked}
            entry = _append(rows, standing(rows, name), question, kind, whole)
            if kind in ANSWERS:
                rows.remember(asked, entry.number)
            return entry

        return self._written(concluding)

    def _written(self, work: Callable[[Rows], Entry]) -> Entry:
        """Write an entry and see it committed.

        Where the connection is lost during a commit it is not known what became of it; a second look tells.
        """
        made: list[Entry] = []
        try:
            with self._store.writing() as rows:
                made.append(work(rows))
            return made[-1]
        except LedgerUnavailable as error:
            trouble = error
        if not made:
            raise trouble
        try:
            with self._store.reading() as rows:
                found = rows.entry(made[-1].number)
        except LedgerUnavailable:
            raise LedgerUnavailable(
                f"{trouble}; whether the charge was made is not known, nothing was released: "
                "see hubermean ledger show"
            ) from None
        if found is not None and found.digest == made[-1].digest:
            return made[-1]
        raise trouble


def _append(
    rows: Rows, dataset: Dataset, question: Question | None, kind: Kind, content: Mapping[str, Any]
) -> Entry:
    """An entry of a data set, which says how that stands now and what opened it."""
    whole = {
        **content,
        "user": dataset.users_after(question),
        "spent": dataset.spent.to_dict(),
        "opened": [dataset.number, dataset.digest],
    }
    return _appended(rows, dataset.name, kind, whole)


def _appended(rows: Rows, name: str, kind: Kind, content: Mapping[str, Any]) -> Entry:
    last = rows.last(WHOLE)
    number, previous = (0, GENESIS) if last is None else (last.number, last.digest)
    entry = Entry.after(number, previous, dataset=name, kind=kind, content=content)
    rows.append(entry)
    return entry


def _answer(rows: Rows, name: str, question: Question) -> Entry | None:
    asked = _asked(name, question)
    found = rows.answer(asked)
    if found is None:
        return None
    asked_for = found.is_whole and found.dataset == name and found.content.get("question") == asked
    if not asked_for or found.kind not in ANSWERS:
        raise LedgerDamaged(f"entry {found.number} was altered", entry=found.number)
    return found


def _asked(name: str, question: Question) -> str:
    return digest_of([name, question.digest])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
