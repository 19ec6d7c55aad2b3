"""The charge of a whole run to a ledger, made once before its first round."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from hubermean.errors import InputError, parameter
from hubermean.federated.plan import RoundPlan
from hubermean.ledger.entries import Question, check_name, compute_digest, name_asker
from hubermean.ledger.ledger import BudgetLedger
from hubermean.types.clients import ClientNeighbors, Relation, parse_relation


@dataclass(frozen=True, kw_only=True)
class RunCharge:
    """The data set whose budget pays for a run."""

    ledger: BudgetLedger
    dataset: str
    by_whom: str
    own: bool = False  # opened here, and closed after the charge

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

    def charge(self, plan: RoundPlan, run_id: str) -> None:
        """Commit the charge of all rounds, unless this very run was charged before.

        Raises:
            BudgetExhausted: too little is left; nothing was charged.
            InputError: the run does not hide what the budget is about.
        """
        question = Question(
            digest=compute_digest(["federated run", run_id]),
            description={
                "statistic": "elsewhere",
                "note": f"{plan.rounds} federated rounds, run {run_id[:8]}",
                "epsilon": plan.epsilon,
                "delta": plan.delta,
                "neighbors": plan.neighbors.value,
            },
            user_columns=(),
            by_whom=self.by_whom,
        )
        try:
            if not self.ledger.is_charged(self.dataset, question):
                relation = _relation(plan.neighbors, self.ledger.dataset(self.dataset).neighbors)
                self.ledger.charge(self.dataset, question, plan.privacy_cost, relation, kind="spent")
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
