"""What a release does with a ledger: asks whether it was made before, pays, and has recorded what came out.

`Account.pay` is the place where the guarantee is kept: the work that computes an answer is not begun before its charge
is committed, and nothing it returns leaves by another way.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar, cast

from hubermean.errors import HubermeanError, InputError, LedgerDamaged, NotRecorded, NotReleased
from hubermean.ledger.entries import Entry
from hubermean.ledger.ledger import Charge, Ledger
from hubermean.ledger.question import Question, checked_name
from hubermean.ledger.recorded import kept_as, restored
from hubermean.mechanisms import Request
from hubermean.relations import Neighbors
from hubermean.release import Release
from hubermean.release_table import ReleaseTable
from hubermean.spending import Price, Receipt

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Account:
    """One question to one data set of a ledger."""

    ledger: Ledger
    dataset: str
    question: Question
    relation: Neighbors
    fresh: bool = False

    def answered(self, request: Request) -> Release | ReleaseTable | None:
        """The release that was recorded for the same question, at no cost; None if it has to be made, and can be paid.

        Raises:
            NotReleased: what was recorded is that the mechanism's own test said no.
            BudgetExhausted: it would have to be made, and there is too little left.
        """
        entry = None if self.fresh else self.ledger.answered(self.dataset, self.question)
        if entry is not None:
            return self._given_again(entry)
        # What a concentrated law costs is known later.
        price = Price(epsilon=request.epsilon, delta=request.delta, rho=Fraction(0))
        self.ledger.room_for(self.dataset, self.question, price, self.relation)
        return None

    def _given_again(self, entry: Entry) -> Release | ReleaseTable:
        if entry.kind == "not-released":
            raise NotReleased(
                f"{entry.text_of('reason')} (recorded in entry {entry.number} when this was asked before, at no "
                "further cost; fresh=True asks anew, and pays)",
                epsilon=0.0,
                delta=0.0,
            )
        kept = entry.content.get("release")
        try:
            release = restored(kept if isinstance(kept, dict) else {})
        except LedgerDamaged as damage:
            raise LedgerDamaged(f"entry {entry.number}: {damage}", entry=entry.number) from None
        left = self.ledger.dataset(self.dataset).left_in_words
        receipt = Receipt(dataset=self.dataset, entry=entry.number, charged="nothing", left=left, again=True)
        return replace(release, receipt=receipt)

    def pay(self, price: Price, work: Callable[[], R]) -> R:
        """Charge, then work, then record."""
        charge = self.ledger.charge(
            self.dataset, self.question, price, self.relation, unless_answered=not self.fresh
        )
        if isinstance(charge, Entry):  # somebody else asked the same meanwhile
            return cast(R, self._given_again(charge))
        try:
            release = work()
        except NotReleased as refusal:
            self._conclude_quietly(charge, "not-released", {"reason": str(refusal)})
            raise
        except BaseException:
            self._conclude_quietly(charge, "failed", {})
            raise
        return self._recorded(charge, release)

    def _recorded(self, charge: Charge, release: R) -> R:
        """What was paid for is handed over even where it cannot be kept."""
        try:
            entry: Entry | None = self.ledger.conclude(
                charge, self.question, "released", {"release": kept_as(cast(Any, release))}
            )
        except Exception:  # noqa: BLE001 - whatever it is, the charge stands and the answer is due
            entry = None
        if entry is None:
            with contextlib.suppress(NotRecorded):  # where warnings are errors, the receipt says it
                warnings.warn(
                    f"this release is charged (entry {charge.entry.number}) but could not be recorded; keep it, "
                    "since asking again would be charged again",
                    NotRecorded,
                    stacklevel=2,
                )
        receipt = Receipt(
            dataset=self.dataset,
            entry=(entry or charge.entry).number,
            charged=charge.dataset.composition.worded(charge.cost),
            left=charge.dataset.left_in_words,
            recorded=entry is not None,
        )
        return cast(R, replace(cast(Any, release), receipt=receipt))

    def _conclude_quietly(self, charge: Charge, kind: Any, content: dict[str, Any]) -> None:
        """A charge without an outcome counts all the same; the error that is under way matters more."""
        with contextlib.suppress(HubermeanError):
            self.ledger.conclude(charge, self.question, kind, content)


@contextlib.contextmanager
def charged_to(
    ledger: Ledger | str | os.PathLike[str] | None,
    dataset: str | None,
    question: Callable[[], Question],
    request: Request,
    *,
    fresh: bool = False,
) -> Iterator[Account | None]:
    """The account that a release is charged to, or None; refused where it is plain that it could not be charged."""
    if ledger is None or dataset is None:
        if ledger is not None or dataset is not None or fresh:
            raise InputError("ledger and dataset go together; give ledger= and dataset=, or neither")
        yield None
        return
    name = checked_name(dataset, "dataset")
    opened = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    try:
        yield Account(
            ledger=opened, dataset=name, question=question(), relation=request.neighbors, fresh=fresh
        )
    finally:
        if opened is not ledger:
            opened.close()
