"""Charges to a ledger: commit the charge, compute the release, record it.

`LedgerCharge.charge` enforces the guarantee of a ledger: a release is not computed before its charge is committed, and
no result leaves by another path.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypedDict, TypeVar, cast

from hubermean.accounting.budget import PrivacyCost
from hubermean.errors import HubermeanError, InputError, LedgerDamaged, NotRecorded, NotReleased, parameter
from hubermean.ledger.entries import Entry, Kind, Question, check_name
from hubermean.ledger.ledger import Charge
from hubermean.release.ledger import Ledger
from hubermean.release.records import record_release, restore_release
from hubermean.types.dry_run import Prospect
from hubermean.types.release import Release
from hubermean.types.release_info import Receipt
from hubermean.types.release_table import ReleaseTable
from hubermean.types.request import Neighbors, Request

R = TypeVar("R")

ENVIRONMENT = {"ledger": "HUBERMEAN_LEDGER", "dataset": "HUBERMEAN_DATASET"}
"""Environment variables that the command line reads where an option is not given."""
_WORDS = {"ledger": "ledger", "dataset": "data set"}


@dataclass(frozen=True, kw_only=True)
class LedgerCharge:
    """The charge for one question to one data set of a ledger.

    Attributes:
        ledger, dataset: what is charged.
        question: what is released.
        relation: the change of the data that the release hides.
        fresh: compute and charge again even if the question has a recorded answer.
    """

    ledger: Ledger
    dataset: str
    question: Question
    relation: Neighbors
    fresh: bool = False

    def find_recorded(self, request: Request) -> Release | ReleaseTable | None:
        """Return the recorded release of the same question, at no cost; None if it must be computed and charged.

        Raises:
            NotReleased: the recorded outcome is that the mechanism's private test decided against a release.
            BudgetExhausted: nothing is recorded, and too little budget is left.
        """
        if (entry := self.find_answer()) is not None:
            return self._restore(entry)
        # The rho of a concentrated output distribution is known only later.
        privacy_cost = PrivacyCost(epsilon=request.epsilon, delta=request.delta, rho=Fraction(0))
        self.ledger.check_budget(self.dataset, self.question, privacy_cost, self.relation)
        return None

    def find_answer(self) -> Entry | None:
        """Return the entry that answers the question already; None if there is none or a fresh answer is wanted."""
        return None if self.fresh else self.ledger.find_answer(self.dataset, self.question)

    def foresee(self, privacy_cost: PrivacyCost) -> tuple[str, str]:
        """Return what would be charged, and what would be left then, as texts; nothing is recorded.

        Raises:
            BudgetExhausted: too little budget is left.
        """
        budget = self.ledger.dataset(self.dataset)
        cost = budget.compute_cost(self.question, privacy_cost, self.relation)
        after = replace(budget, spent=budget.spent + cost)
        if not after.spent.within(budget.limit):
            raise budget.budget_exhausted(cost)
        return budget.composition.format_cost(cost), after.left_in_words

    def charge(
        self, privacy_cost: PrivacyCost, compute: Callable[[], R], prospect: Callable[[], Prospect]
    ) -> R:
        """Commit the charge, compute the release, record it."""
        charge = self.ledger.charge(
            self.dataset, self.question, privacy_cost, self.relation, unless_answered=not self.fresh
        )
        if isinstance(charge, Entry):  # another process answered the same question in the meantime
            return cast(R, self._restore(charge))
        try:
            release = compute()
        except NotReleased as refusal:
            used = _used_by(refusal)
            content = {"reason": str(refusal)}
            if (
                not self._conclude(charge, "not-released", content, used)
                and charge.cost_of(used) != charge.cost
            ):
                raise NotReleased(
                    f"{refusal.message}; the ledger cannot be written now, so all of the charge stands",
                    epsilon=privacy_cost.epsilon,
                    delta=privacy_cost.delta,
                    rho=privacy_cost.rho,
                ) from None
            raise
        except BaseException:
            self._conclude(charge, "failed", {})
            raise
        return self._record(charge, release)

    def _restore(self, entry: Entry) -> Release | ReleaseTable:
        if entry.kind == "not-released":
            raise NotReleased(
                f"{entry.read_text('reason')} (recorded in entry {entry.number} for the same question; nothing was "
                f"charged. {parameter('fresh', True)} computes and charges it again)",
                epsilon=0.0,
                delta=0.0,
            )
        record = entry.content.get("release")
        try:
            release = restore_release(record if isinstance(record, dict) else {})
        except LedgerDamaged as damage:
            raise LedgerDamaged(f"entry {entry.number}: {damage}", entry=entry.number) from None
        left = self.ledger.dataset(self.dataset).left_in_words
        receipt = Receipt(dataset=self.dataset, entry=entry.number, charged="nothing", left=left, again=True)
        return replace(release, receipt=receipt)

    def _record(self, charge: Charge, release: R) -> R:
        """Record a release and return it with its receipt; a charged release is returned even if recording fails."""
        try:
            entry: Entry | None = self.ledger.conclude(
                charge, self.question, "released", {"release": record_release(cast(Any, release))}
            )
        except Exception:  # noqa: BLE001 - after any failure the charge stands and the caller is owed the release
            entry = None
        if entry is None:
            with contextlib.suppress(NotRecorded):  # where warnings are errors, the receipt says it
                warnings.warn(
                    f"this release was charged (entry {charge.entry.number}) but could not be recorded; keep it: "
                    "making it again would be charged again",
                    NotRecorded,
                    stacklevel=2,
                )
        receipt = Receipt(
            dataset=self.dataset,
            entry=(entry or charge.entry).number,
            charged=charge.dataset.composition.format_cost(charge.cost),
            left=charge.dataset.left_in_words,
            recorded=entry is not None,
            lasting=self.question.lasting,
        )
        return cast(R, replace(cast(Any, release), receipt=receipt))

    def _conclude(
        self, charge: Charge, kind: Kind, content: dict[str, Any], used: PrivacyCost | None = None
    ) -> bool:
        """Record a failure, and give back what it did not use. If that fails too, the whole charge still counts.

        Returns whether it was recorded; the original error is raised in any case.
        """
        with contextlib.suppress(HubermeanError):
            self.ledger.conclude(charge, self.question, kind, content, used=used)
            return True
        return False


def _used_by(refusal: NotReleased) -> PrivacyCost:
    """Return what a refusal says was spent; everything where a custom mechanism states what is no cost."""
    try:
        return PrivacyCost(epsilon=refusal.epsilon, delta=refusal.delta, rho=refusal.rho)
    except InputError:
        return PrivacyCost(epsilon=1e9, delta=1.0)


@dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """The ledger and the data set whose budget a release is charged to; `ledger` and `dataset` go together.

    Attributes:
        ledger: File or postgresql:// URL of the ledger that is charged. Or a `Ledger`. The charge is committed before
            the release is made; a release that is repeated is charged once, and the recorded one is returned.
        dataset: Name of the data set in the ledger whose budget is charged.
        question: Public name of the query, in place of the file's name. A query is recognised by it when it is
            repeated with the same parameters. Files and queries have their own; data frames have none beyond this
            process.
        by_whom: Who asks, as the ledger shows it; by default the system's user.
        fresh: Make the release again and charge it again, for data that have changed.
    """

    ledger: Ledger | str | os.PathLike[str] | None = None
    dataset: str | None = None
    question: str | None = None
    by_whom: str | None = None
    fresh: bool = False

    @contextlib.contextmanager
    def open_charge(
        self, describe: Callable[[], Question], request: Request
    ) -> Iterator[LedgerCharge | None]:
        """Open the charge of a release, or None without a ledger.

        Raises:
            InputError: only one of ledger and data set is given.
        """
        if self.ledger is None or self.dataset is None:
            self._refuse_half()
            yield None
            return
        name = check_name(self.dataset, "dataset")
        opened = self.ledger if isinstance(self.ledger, Ledger) else Ledger(self.ledger)
        try:
            yield LedgerCharge(
                ledger=opened,
                dataset=name,
                question=describe(),
                relation=request.neighbors,
                fresh=self.fresh,
            )
        finally:
            if opened is not self.ledger:
                opened.close()

    def _refuse_half(self) -> None:
        """Raise InputError where something is given that needs a ledger and a data set, and one of them is not."""
        given = [name for name in ("ledger", "dataset", "fresh", "by_whom") if getattr(self, name)]
        if not given:
            return
        if given[0] in ENVIRONMENT:
            missing = "dataset" if given[0] == "ledger" else "ledger"
            variable = ENVIRONMENT[given[0]]
            if os.environ.get(variable) == getattr(self, given[0]):
                raise InputError(
                    f"the environment variable {variable} gives a {_WORDS[given[0]]}, but no {_WORDS[missing]} is "
                    f"given; add {parameter(missing)} or set {ENVIRONMENT[missing]}, or unset {variable} to release "
                    "without a ledger"
                )
        raise InputError(
            f"{parameter('ledger')} and {parameter('dataset')} go together; give both, or neither of them and no "
            f"{parameter('fresh')} or {parameter('by_whom')}"
        )


class LedgerKeywords(TypedDict, total=False):
    """The fields of `LedgerOptions` as keywords."""

    ledger: Ledger | str | os.PathLike[str] | None
    dataset: str | None
    question: str | None
    by_whom: str | None
    fresh: bool
