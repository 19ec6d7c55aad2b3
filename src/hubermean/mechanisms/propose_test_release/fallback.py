"""`propose-test-release`, or `inverse-sensitivity` where the estimated total weight is too small for it.

Where the total weight is private, a choice between the two from public numbers rests on a guess, and
`propose-test-release` refuses whenever the guess was too high. It spends a part of epsilon on an estimate of the total
weight in any case; here the choice waits for that estimate. Proof: proofs/propose-test-release.md, Theorem 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from hubermean.accounting.budget import THE_MEAN
from hubermean.data.user_table import PrivateTable
from hubermean.distributed.queries import run_each
from hubermean.distributions.output import Independent, OutputDistribution, Staged
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.mechanisms.inverse_sensitivity.mechanism import PreparedInverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease
from hubermean.mechanisms.propose_test_release.stability import StabilityTest

_CACHED_COLUMNS = 16


@dataclass(frozen=True, kw_only=True)
class PreparedWithFallback(Prepared):
    """Both mechanisms, for the epsilon that the estimate of the total weight leaves.

    Formal guarantees: (epsilon, delta)-DP for the request of `propose_test_release`, provided that
    `inverse_sensitivity` was prepared for `propose_test_release.epsilon`. Which of the two made the release is a
    function of the estimated weight.
    """

    propose_test_release: PreparedProposeTestRelease
    inverse_sensitivity: PreparedInverseSensitivity

    def predicted_noise(self) -> tuple[float, ...]:
        return self.propose_test_release.predicted_noise()

    def concentrated(self) -> Fraction | None:
        """The dearer of the two; either comes after the estimate of the total weight."""
        first, second = self.propose_test_release.concentrated(), self.inverse_sensitivity.concentrated()
        if first is None or second is None:
            return None
        return max(first, second + self.propose_test_release.weight_cost() ** 2 / 2)

    def concentrated_delta(self) -> float:
        return self.propose_test_release.concentrated_delta()

    def users_to_audit(self) -> int:
        return self.propose_test_release.users_to_audit()

    def distribution(self, table: PrivateTable) -> Staged:
        search = self.propose_test_release.search(table)
        # An audit evaluates many weight estimates. Few columns are cached, so that wide data needs no more memory.
        cached = lru_cache(maxsize=_CACHED_COLUMNS)(self.inverse_sensitivity.column_distribution)
        columns = [partial(cached, column=column) for column in range(len(table.columns))]

        def then(measured: list[int]) -> OutputDistribution:
            plan = self._plan(measured[0])
            if plan is not None:
                return self.propose_test_release.noisy_test(search.locate(), plan)
            return Independent(parts=run_each(table, columns), claim=self.inverse_sensitivity.claim)

        return Staged(first=self.propose_test_release.weight_distribution(search.total_weight), then=then)

    def claims(self, distribution: Any, neighbor: Any) -> Mapping[str, float]:
        measured = distribution.first.position
        if self._plan(measured[0]) is None:
            return self.inverse_sensitivity.claims(distribution.then(measured), neighbor.then(measured))
        return self.propose_test_release.claims(distribution, neighbor)

    def outcome(self, sample: Any) -> Outcome:
        (measured,), answer = sample
        if self._plan(measured) is not None:
            return replace(self.propose_test_release.outcome(sample), mechanism="propose-test-release")
        made = self.inverse_sensitivity.outcome(answer)
        parameters = {**made.parameters, **self.propose_test_release.estimate_parameters(measured)}
        return replace(
            made,
            mechanism="inverse-sensitivity",
            parameters=parameters,
            budget_breakdown=self.propose_test_release.break_down_budget(THE_MEAN),
        )

    def _plan(self, measured: int) -> StabilityTest | None:
        """The test where users with a good threshold are sure to pass it and it adds less noise; else None."""
        plan = self.propose_test_release.plan_for_estimate(measured)
        if plan is None or not self.propose_test_release.is_reliable(plan):
            return None
        weight = max(float(measured), 1.0)
        others = replace(self.inverse_sensitivity, planned_weight=weight).predicted_noise()
        return plan if plan.noise_stddev < others[0] else None
