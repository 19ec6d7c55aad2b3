"""What a ledger has of a run: the charge for all rounds, made once before the first, and which rounds were answered."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from hubermean.accounting.budget import PrivacyCost
from hubermean.errors import InputError, parameter
from hubermean.federated.plan import RoundPlan
from hubermean.ledger.entries import CHARGES, Question, check_name, compute_digest, name_asker
from hubermean.ledger.ledger import BudgetLedger
from hubermean.types.clients import ClientNeighbors, Relation, parse_relation


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the ledger knows of a run: whether it was charged, and the last round that was answered."""

    charged: bool
    answered: int


@dataclass(frozen=True, kw_only=True)
class RunCharge:
    """The data set whose budget pays for a run."""

    ledger: BudgetLedger
    dataset: str
    by_whom: str
    own: bool = False  # opened here, and closed after each use

    @classmethod
    def checked(
        cls, ledger: BudgetLedger | str | os.PathLike[str] | None, dataset: str | None, by_whom: str | None
    ) -> Self | None:
        """Return the charge, None without a ledger; InputError where only a part is given."""
        if ledger is None and dataset is None and by_whom is None:
            return None
        if ledger is None or dataset is None:
            raise InputError(
                f"{parameter('ledger')} and {parameter('dataset')} go together; give both or neither"
            )
        own = not isinstance(ledger, BudgetLedger)
        opened = ledger if isinstance(ledger, BudgetLedger) else BudgetLedger(ledger)
        return cls(
            ledger=opened, own=own, dataset=check_name(dataset, "dataset"), by_whom=name_asker(by_whom)
        )

    def look_up(self, run_id: str) -> Standing:
        """Return what the ledger knows of a run; it reads all entries of the ledger."""
        charged, answered = False, 0
        with self._opened() as ledger:
            for entry in ledger.entries(self.dataset):
                about = entry.content.get("asked") if entry.kind in CHARGES else None
                if isinstance(about, dict) and about.get("run") == run_id:
                    charged = charged or "round" not in about
                    answered = max(answered, int(about.get("round", 0)))
        return Standing(charged=charged, answered=answered)

    def charge(self, plan: RoundPlan, run_id: str) -> None:
        """Commit the charge of all rounds, unless this very run was charged before.

        Raises:
            BudgetExhausted: too little is left; nothing was charged.
            InputError: the run does not hide what the budget is about.
        """
        if not self.look_up(run_id).charged:
            self._commit(
                plan, plan.privacy_cost, run_id, {"note": f"{plan.rounds} federated rounds, run {run_id[:8]}"}
            )

    def note_round(self, plan: RoundPlan, run_id: str, number: int) -> None:
        """Write down, at no cost, that a round was answered: an older copy of the saved run is then recognised."""
        note = {"note": f"round {number} of run {run_id[:8]} was answered", "round": number}
        self._commit(plan, PrivacyCost(epsilon=0.0, delta=0.0, rho=Fraction(0)), run_id, note)

    def _commit(self, plan: RoundPlan, cost: PrivacyCost, run_id: str, note: dict[str, Any]) -> None:
        about = {
            "statistic": "elsewhere",
            "run": run_id,
            "epsilon": cost.epsilon,
            "delta": cost.delta,
            "neighbors": plan.neighbors.value,
            **note,
        }
        question = Question(
            digest=compute_digest(["federated run", run_id, about.get("round", "charge")]),
            description=about,
            user_columns=(),
            by_whom=self.by_whom,
        )
        with self._opened() as ledger:
            relation = _relation(plan.neighbors, ledger.dataset(self.dataset).neighbors)
            ledger.charge(self.dataset, question, cost, relation, kind="spent")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BudgetLedger]:
        try:
            yield self.ledger
        finally:
            if self.own:
                self.ledger.close()


def _relation(neighbors: ClientNeighbors, budget: Relation) -> Relation:
    """Return the relation under which a run is charged to a budget.

    A run that hides replacing a client hides throwing its replies away, which is one replacement.
    """
    if budget is ClientNeighbors.ZERO_OUT and neighbors is ClientNeighbors.REPLACE_USER:
        return budget
    return parse_relation(neighbors)
