"""Counts with discrete Laplace noise: of users, or of records up to a contribution bound per user.

One integer per group. A user adds at most one, or at most `max_records`. Proof: proofs/groups.md, Theorem 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import THE_COUNT, Claim
from hubermean.accounting.discrete import laplace_scale
from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.fixed_point import BLOCK
from hubermean.data.group_table import Membership, Totals
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.queries import sum_over_partitions
from hubermean.distributions.output import NoiseDistribution, NoisySum, OutputDistribution
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.adaptive.mechanism import Adaptive, PreparedSteps
from hubermean.mechanisms.adaptive.parameters import AdaptiveEstimates
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.mechanisms.contributions import check_max_records, find_weight_cap
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.types.release import Denominator, Interval
from hubermean.types.request import Column, PublicFacts, Request


@dataclass(frozen=True, kw_only=True)
class Count:
    """The number of users (`per="user"`), or of records up to a contribution bound per user (`per="record"`).

    Args:
        max_records: the most records a user counts for; for `per="record"`.
        changes: as for `Clipped`.
        usable: whether only users with a usable record count; else all users do.

    Formal guarantees:
    - epsilon-DP for the neighbor relation of the request (proofs/groups.md, Theorem 2).
    - What that relation makes public is released without noise where all users count: the number of users under
      `replace-user` and `replace-values`, and of records under `replace-values`.
    """

    max_records: int | None = None
    changes: int = 1
    usable: bool = True
    name = "counted"

    def check(self, request: Request) -> None:
        check_max_records(self.max_records, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedCount:
        self.check(request)
        cap = find_weight_cap(self.max_records, request, facts)
        public = None
        if not self.usable:  # whether a value is usable is part of the values
            if request.per == "user":
                public = facts.n_users
            elif facts.record_counts is not None:
                public = sum(np.minimum(facts.record_counts, cap).tolist())
        scale = laplace_scale(request.epsilon, sensitivity=cap * self.changes)
        if scale > LARGEST_SCALE:
            raise InputError(
                f"{parameter('epsilon')} is too small for this {parameter('max_records')}; raise epsilon "
                f"or lower {parameter('max_records')}"
            )
        return PreparedCount(
            request=request, cap=cap, noise=NoiseDistribution(kind="laplace", scale=scale), public=public
        )


@dataclass(frozen=True, kw_only=True)
class AdaptiveCount:
    """The number of records without a given contribution bound: the bound is estimated with a part of the budget."""

    name = "counted"

    def check(self, request: Request) -> None:
        self._adaptive.check(request)

    @property
    def _adaptive(self) -> Adaptive:
        return Adaptive(bounds=(0.0, 1.0))  # only the contribution bound remains to be estimated

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedAdaptiveCount:
        steps = self.steps(request, facts)
        return PreparedAdaptiveCount(
            request=steps.request,
            facts=steps.facts,
            split=steps.split,
            steps=steps.steps,
            final_step=THE_COUNT,
        )

    def steps(self, request: Request, facts: PublicFacts) -> PreparedSteps:
        """The private steps that estimate the contribution bound."""
        column = Column(name="records", limit=Fraction(2**62))
        request = replace(request, columns=("records",))
        return self._adaptive.steps(request, replace(facts, columns=(column,)), "count")


@dataclass(frozen=True, kw_only=True)
class PreparedAdaptiveCount(PreparedSteps, Prepared):
    """The steps that estimate a contribution bound, then a count."""

    def users_to_audit(self) -> int:
        return math.ceil(1.3 * self.split.least_users())

    def count_with(self, found: AdaptiveEstimates) -> PreparedCount:
        remaining = round_down(self.split.privacy_budget.total - found.spent)
        return Count(max_records=found.cap).prepare(replace(self.request, epsilon=remaining), self.facts)

    def distribution(self, table: PrivateTable) -> OutputDistribution:
        return self.chain_steps(table, lambda found: self.count_with(found).distribution(table))

    def outcome(self, sample: Any) -> Outcome:
        results = self.replay(sample, self.count_with)
        outcome = results.made.outcome(results.sample)
        return replace(
            outcome,
            parameters={**outcome.parameters, **results.found.parameters()},
            budget_breakdown=self.break_down_budget(results),
        )


@dataclass(frozen=True, kw_only=True)
class PreparedCount(Prepared):
    """A count with its noise decided; `public` is the count where the neighbor relation makes it public."""

    request: Request
    cap: int
    noise: NoiseDistribution
    public: int | None

    def predicted_noise(self) -> tuple[float, ...]:
        return (0.0,) if self.public is not None else (self.noise.stddev,)

    def statistic(self, table: UserTable, membership: Membership | None = None) -> list[list[int]]:
        """The counts that noise is added to, one per group."""
        weights: IntArray = np.minimum(table.counts, self.cap)
        totals = Totals(membership)
        block = BLOCK if membership is None else membership.block
        for start in range(0, len(weights), block):
            totals.add(weights[start : start + block], start)
        return [totals.integers()]

    def distribution(self, table: PrivateTable) -> NoisySum:
        return self.noisy([[]] if self.public is not None else sum_over_partitions(table, self.statistic))

    def noisy(self, sums: Sequence[Sequence[int]]) -> NoisySum:
        claim = Claim(what=THE_COUNT, epsilon=self.request.epsilon)
        return NoisySum(position=list(sums[0]), noise=self.noise, claim=claim)

    def estimate(self, sample: Sequence[int], groups: int = 1) -> CountInterval:
        cap = self.cap if self.request.per == "record" else None
        return CountInterval(counts=np.array(sample, dtype=np.float64), noise=self.noise, cap=cap)

    def outcome(self, sample: Sequence[int]) -> Outcome:
        found = self.estimate(sample)
        if self.public is not None:
            found = CountInterval(counts=np.array([self.public], dtype=np.float64), noise=None)
        return Outcome(
            values=tuple(found.values()[0].tolist()), parameters=self.parameters(), interval_rule=found
        )

    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {"max_records": self.cap} if self.request.per == "record" else {}
        if self.public is not None:
            return {
                **parameters,
                "noise": f"none, the number is public under {self.request.neighbors.value!r}",
            }
        return {**parameters, "noise": self.noise.name, "noise_scale": self.noise.scale}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountInterval:
    """Counts and their intervals for the noise; never below zero."""

    counts: FloatArray
    noise: NoiseDistribution | None
    cap: int | None = None

    @property
    def covers(self) -> str:
        if self.noise is None:
            return "everything, the number is public"
        return "noise" if self.cap is None else f"noise, not a user's records beyond {self.cap:,}"

    def values(self) -> FloatArray:
        return np.maximum(self.counts, 0.0)[:, np.newaxis]

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        width = 0.0 if self.noise is None else float(math.ceil(self.noise.bound(tail=1.0 - level)))
        low, high = np.maximum(self.counts - width, 0.0), np.maximum(self.counts + width, 0.0)
        return low[:, np.newaxis], high[:, np.newaxis]

    def denominators(self) -> list[Denominator]:
        """Empty: a count has no denominator."""
        return []

    def at(self, level: float) -> Interval:
        low, high = self.ends(level)
        return Interval(
            level=level, low=tuple(low[0].tolist()), high=tuple(high[0].tolist()), covers=self.covers
        )
