"""`tested` or `exact`, whichever fits the total weight once that has been measured.

Where the total weight is private, a choice between the two from public numbers rests on a guess, and `tested` refuses
whenever the guess was too high. It spends a part of epsilon to measure the weight in any case; here the choice waits
for what was measured. Proof: proofs/tested.md, Theorem 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

from hubermean.laws import Independent, Law, Staged
from hubermean.mechanisms.exact import PreparedExact
from hubermean.mechanisms.margin import MarginPlan
from hubermean.mechanisms.protocol import Outcome, Prepared
from hubermean.mechanisms.tested import PreparedTested
from hubermean.spending import THE_MEAN
from hubermean.user_table import PrivateTable, UserTable

_COLUMNS_KEPT = 16


@dataclass(frozen=True, kw_only=True)
class PreparedWeighed(Prepared):
    """Both mechanisms, for the epsilon that the weighing leaves; `tested` has the weighing.

    Formal guarantees: (epsilon, delta)-DP for the request of `tested`, provided that `exact` was prepared for
    `tested.epsilon`; which of the two made the release is a function of the measured weight.
    """

    tested: PreparedTested
    exact: PreparedExact

    def predicted_noise(self) -> tuple[float, ...]:
        return self.tested.predicted_noise()

    def users_to_audit(self) -> int:
        return self.tested.users_to_audit()

    def law(self, table: PrivateTable) -> Staged:
        # An audit asks for many measured weights; few columns are kept, so that wide data needs no more memory. Users
        # in parts are located when that is known to be needed.
        column = lru_cache(maxsize=_COLUMNS_KEPT)(partial(self.exact.column_law, table))
        counted = None if isinstance(table, UserTable) else self.tested.counted(table)
        located = cache(partial(self.tested.locate, table, counted))

        def then(measured: list[int]) -> Law:
            plan = self._plan(measured[0])
            if plan is not None:
                return self.tested.gate(located(), plan)
            if isinstance(table, UserTable):
                return Independent(parts=map(column, range(len(table.columns))), claim=self.exact.claim)
            return self.exact.law(table)

        weight = located().total_weight if counted is None else counted.weight
        return Staged(first=self.tested.weighed(weight), then=then)

    def claims(self, law: Any, neighbour: Any) -> Mapping[str, float]:
        measured = law.first.position
        if self._plan(measured[0]) is None:
            return self.exact.claims(law.then(measured), neighbour.then(measured))
        return self.tested.claims(law, neighbour)

    def outcome(self, draw: Any) -> Outcome:
        (measured,), answer = draw
        if self._plan(measured) is not None:
            return replace(self.tested.outcome(draw), mechanism="tested")
        made = self.exact.outcome(answer)
        parameters = {**made.parameters, **self.tested.measured(measured)}
        return replace(made, mechanism="exact", parameters=parameters, spent=self.tested.account(THE_MEAN))

    def _plan(self, measured: int) -> MarginPlan | None:
        """The plan of `tested` where it is sure to serve and adds less noise than `exact`; else None."""
        plan = self.tested.weighed_plan(measured)
        if plan is None or not self.tested.is_safe(plan):
            return None
        others = replace(self.exact, planned_weight=max(float(measured), 1.0)).predicted_noise()
        return plan if plan.noise_stddev < others[0] else None
