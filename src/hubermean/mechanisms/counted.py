"""`count`: how many users there are, or how many records up to a cap each.

One integer per group, with discrete Laplace noise on the integers: a user adds at most one, or at most the cap. Proof:
proofs/groups.md, Theorem 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError
from hubermean.exact.adding import Membership, Totals
from hubermean.exact.sums import BLOCK
from hubermean.laws import Claim, Law, NoisySum
from hubermean.mechanisms.adaptive import Adaptive, Found, PreparedSteps
from hubermean.mechanisms.adding_parts import added_up
from hubermean.mechanisms.protocol import Column, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.weights import check_cap, weight_cap
from hubermean.noise import LARGEST_SCALE, NoiseLaw
from hubermean.privacy import float_down, laplace_scale
from hubermean.release import Denominator, Interval
from hubermean.spending import THE_COUNT
from hubermean.user_table import IntArray, PrivateTable, UserTable

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Count:
    """The number of users (`per="user"`) or of records up to a cap each (`per="record"`).

    Args:
        record_cap: the most records a user counts for.
        changes: as for `Clipped`.
        usable: whether only users with a usable record count; else everybody does.

    Formal guarantees:
    - epsilon-DP for the neighbour relation of the request;
    - what that relation makes public is given as it is where everybody counts: the number of users under
      `replace-user` and `replace-values`, and of records under `replace-values`.
    """

    record_cap: int | None = None
    changes: int = 1
    usable: bool = True
    name = "counted"

    def check(self, request: Request) -> None:
        check_cap(self.record_cap, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedCount:
        self.check(request)
        cap = weight_cap(self.record_cap, request, facts)
        public = None
        if not self.usable:  # whether a value is usable is part of the values
            if request.per == "user":
                public = facts.n_users
            elif facts.record_counts is not None:
                public = sum(np.minimum(facts.record_counts, cap).tolist())
        scale = laplace_scale(request.epsilon, sensitivity=cap * self.changes)
        if scale > LARGEST_SCALE:
            raise InputError("epsilon is too small for this record_cap; raise epsilon or lower record_cap")
        return PreparedCount(
            request=request, cap=cap, noise=NoiseLaw(kind="laplace", scale=scale), public=public
        )


@dataclass(frozen=True, kw_only=True)
class AdaptiveCount:
    """The number of records where no cap is known: it is found privately, with a part of the budget."""

    name = "counted"

    def check(self, request: Request) -> None:
        self._adaptive.check(request)

    @property
    def _adaptive(self) -> Adaptive:
        return Adaptive(bounds=(0.0, 1.0))  # so that nothing but the cap is left to be found

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedAdaptiveCount:
        steps = self.steps(request, facts)
        return PreparedAdaptiveCount(
            request=steps.request, facts=steps.facts, split=steps.split, steps=steps.steps, leads_to=THE_COUNT
        )

    def steps(self, request: Request, facts: PublicFacts) -> PreparedSteps:
        """The search for the cap alone."""
        column = Column(name="records", limit=Fraction(2**62))
        request = replace(request, columns=("records",))
        return self._adaptive.steps(request, replace(facts, columns=(column,)), "count", groups=1)


@dataclass(frozen=True, kw_only=True)
class PreparedAdaptiveCount(PreparedSteps, Prepared):
    """The search for a cap, then a count."""

    def users_to_audit(self) -> int:
        return math.ceil(1.3 * self.split.users_needed())

    def counted(self, found: Found) -> PreparedCount:
        rest = float_down(self.split.purse.total - found.spent)
        return Count(record_cap=found.cap).prepare(replace(self.request, epsilon=rest), self.facts)

    def law(self, table: PrivateTable) -> Law:
        return self.after_steps(table, lambda found: self.counted(found).law(table))

    def outcome(self, draw: Any) -> Outcome:
        learned = self.learned(draw, self.counted)
        outcome = learned.made.outcome(learned.draw)
        return replace(
            outcome,
            parameters={**outcome.parameters, **learned.found.parameters()},
            spent=self.account(learned),
        )


@dataclass(frozen=True, kw_only=True)
class PreparedCount(Prepared):
    """A count with its noise decided; `public` is the count itself where the relation makes it public."""

    request: Request
    cap: int
    noise: NoiseLaw
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

    def law(self, table: PrivateTable) -> NoisySum:
        return self.noisy([[]] if self.public is not None else added_up(table, self.statistic))

    def noisy(self, sums: Sequence[Sequence[int]]) -> NoisySum:
        claim = Claim(what=THE_COUNT, epsilon=self.request.epsilon)
        return NoisySum(position=list(sums[0]), noise=self.noise, claim=claim)

    def found(self, draw: Sequence[int], groups: int = 1) -> CountInterval:
        cap = self.cap if self.request.per == "record" else None
        return CountInterval(counts=np.array(draw, dtype=np.float64), noise=self.noise, cap=cap)

    def outcome(self, draw: Sequence[int]) -> Outcome:
        found = self.found(draw)
        if self.public is not None:
            found = CountInterval(counts=np.array([self.public], dtype=np.float64), noise=None)
        return Outcome(
            values=tuple(found.values()[0].tolist()), parameters=self.parameters(), interval_rule=found
        )

    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {"record_cap": self.cap} if self.request.per == "record" else {}
        if self.public is not None:
            return {
                **parameters,
                "noise": f"none, the number is public under {self.request.neighbors.value!r}",
            }
        return {**parameters, "noise": self.noise.name, "noise_scale": self.noise.scale}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountInterval:
    """Counts, and how far noise may have taken them; never below zero."""

    counts: Floats
    noise: NoiseLaw | None
    cap: int | None = None

    @property
    def covers(self) -> str:
        if self.noise is None:
            return "everything, the number is public"
        return "noise" if self.cap is None else f"noise, not a user's records beyond {self.cap:,}"

    def values(self) -> Floats:
        return np.maximum(self.counts, 0.0)[:, np.newaxis]

    def ends(self, level: float) -> tuple[Floats, Floats]:
        width = 0.0 if self.noise is None else float(math.ceil(self.noise.bound(tail=1.0 - level)))
        low, high = np.maximum(self.counts - width, 0.0), np.maximum(self.counts + width, 0.0)
        return low[:, np.newaxis], high[:, np.newaxis]

    def denominators(self) -> list[Denominator]:
        """None: a count was divided by nothing."""
        return []

    def at(self, level: float) -> Interval:
        low, high = self.ends(level)
        return Interval(
            level=level, low=tuple(low[0].tolist()), high=tuple(high[0].tolist()), covers=self.covers
        )
