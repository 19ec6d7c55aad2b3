"""Means and counts by group with users in all of their groups: one bound on the norm of a user's whole row.

First come the private steps of `adaptive` on the users as a whole: their number, a center and a scale. Then the rows of
users over groups are added up in several passes. Each pass clips rows around the centers that the passes before it
found, each group having its own, to a bound found privately from the norms of rows. The result is the average of all
passes, by the inverse of their variances.

- Guarantee: that of the request, for the whole contribution of a user to all groups (proofs/groups.md, Theorem 3). No
  bound on the number of groups of a user is needed.
- Rows are clipped in Euclidean norm with Gaussian noise where delta > 0, in 1-norm with Laplace noise otherwise.
- Pieces: `rows` (exact clipping), `row_queries` (private steps on rows), `row_plan` (what each may cost),
  `row_estimates` (from sums to means and intervals).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hubermean.accounting.budget import THE_MEAN, BudgetEntry, PrivacyBudget
from hubermean.data.group_table import GroupKey, GroupTable
from hubermean.distributions.output import OutputDistribution
from hubermean.errors import parameter
from hubermean.mechanisms.adaptive.mechanism import PreparedSteps, StepResults
from hubermean.mechanisms.adaptive.parameters import AdaptiveEstimates, InfeasibleError, per_column
from hubermean.mechanisms.groups.group_weights import SEEN, GroupWeights
from hubermean.mechanisms.groups.grouped import GroupMechanism, GroupOutcome
from hubermean.mechanisms.groups.noise_choice import UsersInMany, resolve_accounting
from hubermean.mechanisms.groups.row_estimates import (
    ColumnEstimates,
    Combined,
    Pass,
    RowEstimates,
    shrink_scales,
)
from hubermean.mechanisms.groups.row_plan import RowPlan
from hubermean.mechanisms.groups.row_queries import (
    ChainRefusedError,
    Deviations,
    NormSearch,
    Query,
    RowSums,
    Weights,
    chain_queries,
    replay_queries,
)
from hubermean.mechanisms.groups.row_totals import add_totals
from hubermean.mechanisms.groups.rows import UserRows
from hubermean.types.dry_run import Prospect
from hubermean.types.request import Neighbors

GROUP_WEIGHTS = "weights of groups"
_NOTHING_SEEN = "there are too few users in these groups to see any of them beside the noise"
_TOO_SMALL = "too few users to see beside the noise"
_TOO_FAR = "values too far from those of most users to be found"
_FINEST = 1.0 / 16.0  # of a scale, and of a usual row: the least bound on the norm of a row
# Groups whose centers differ by less than this many scales are unlikely to differ in scale.
_APART = 1.0


@dataclass(frozen=True, kw_only=True)
class RowMechanism(GroupMechanism):
    """What means and counts share: the private steps on users, then a chain of queries on their rows.

    Attributes:
        steps: the private steps on users as a whole.
        cap: the most records of a user that count in a group; 1 to count users.
        few: users in at most so many groups are in few, where that decides about the noise.
        selected: whether groups were selected privately, so that each has users.
    """

    steps: PreparedSteps
    cap: int | None
    few: int = 0
    selected: bool = False

    def prospect(self) -> Prospect:
        return replace(self.steps.prospect(), mechanism="adaptive")

    def distribution(self, table: GroupTable, keys: Sequence[GroupKey]) -> OutputDistribution:
        rows = select_rows(table, keys)
        return self.steps.chain_steps(
            table.users(), lambda found: chain_queries(partial(self.measure, found, len(keys)), rows)
        )

    def measure(self, found: AdaptiveEstimates, groups: int) -> Generator[Query, Any, Any]:
        """Yield the queries on rows, in order; return the estimates."""
        raise NotImplementedError

    def plan(self, found: AdaptiveEstimates, groups: int) -> Generator[Query, Any, RowPlan]:
        split = self.steps.split
        accounting = yield from resolve_accounting(
            split.privacy_budget,
            found,
            few=self.few,
            add_remove=split.request.neighbors is Neighbors.ADD_REMOVE,
        )
        return RowPlan(
            accounting=accounting,
            groups=groups,
            users=max(split.conservative_users(found), 1.0),
            columns=split.columns,
            hostile=split.known.hostile,
            per="user" if self.cap == 1 else "record",
        )

    def replay(self, sample: Any, groups: int) -> tuple[Any, AdaptiveEstimates, tuple[BudgetEntry, ...]]:
        """Return the estimates of a sample, those of the steps before, and the budget breakdown.

        Raises:
            NotReleased: the sample allows no release.
        """
        results = self.steps.replay(sample, lambda found: found)
        try:
            made, queries = replay_queries(partial(self.measure, results.found, groups), results.sample)
        except ChainRefusedError as refused:
            budget, costs = self._resolve(results, refused.queries)
            before = self.steps.split.start.spent
            raise self.steps.refusal(
                str(refused),
                f"raise {parameter('epsilon')}, or ask for fewer and larger groups",
                spent=before + sum((cost for _, cost in costs), Fraction(0)),
                budget=budget,
            ) from None
        budget, costs = self._resolve(results, queries)
        return made, results.found, budget.break_down_budget(costs, self.steps.request.delta)

    def _resolve(
        self, results: StepResults[Any], queries: Sequence[Query]
    ) -> tuple[PrivacyBudget, list[tuple[str, Fraction]]]:
        """Return the budget in whose accounting the release ended, and what each step and query cost in that."""
        budget = self.steps.split.privacy_budget
        if budget.pure_total is None or not queries or queries[-1].budget.accounting != "pure":
            return budget, [*results.costs, *((query.what, query.cost) for query in queries)]
        epsilons = [
            (query.what, query.epsilon if isinstance(query, UsersInMany) else query.cost) for query in queries
        ]
        return PrivacyBudget(accounting="pure", total=budget.pure_total), [*results.epsilons, *epsilons]

    def measure_weights(self, plan: RowPlan) -> Generator[Query, Any, tuple[GroupWeights, Fraction, float]]:
        """Return the weights of groups, what they cost, and the bound on a user's row of weights."""
        weights = Weights(cap=self.cap)
        search = NormSearch(
            entries=weights, unit=1.0, search=plan.weights_search(), accounting=plan.accounting
        )
        bound = search.found((yield search))
        if self.cap is not None:  # nobody's row can be longer
            bound = min(bound, self.cap * plan.longest_row)
        sums = RowSums(
            what=GROUP_WEIGHTS,
            entries=weights,
            bound=bound,
            terms="nonnegative",
            sums_cost=plan.weights_cost(search.cost),
            accounting=plan.accounting,
        )
        (values,) = sums.found((yield sums), plan.groups)
        measured = GroupWeights.of_groups(
            values,
            stddev=sums.stddev,
            kind=sums.sums_noise.kind,
            inhabited=self.selected,
            missed=plan.missed(search.search.expected_beyond, bound=bound, usual=1.0, groups_per_user=1.0),
        )
        return measured, search.cost + sums.cost, bound


@dataclass(frozen=True, kw_only=True)
class RowMeans(RowMechanism):
    """The mean of each group; with `rollup` also the totals of the hierarchy of group columns."""

    rollup: bool = False

    def measure(self, found: AdaptiveEstimates, groups: int) -> Generator[Query, Any, _Means | None]:
        if groups == 0:
            return None
        plan = yield from self.plan(found, groups)
        weights, spent, weight_bound = yield from self.measure_weights(plan)
        hidden = np.flatnonzero(weights.shown() == 0.0)
        if len(hidden) == groups:  # noise hides them all; everybody who was counted is in one of them
            weights = replace(weights, inhabited=(found.users or 0.0) > SEEN * found.users_stddev)
        elif len(hidden) > 1:
            # Noise hides who is in them: if anybody is, they share a mean.
            anybody = UsersInMany.of_budget(plan.accounting.budget, hidden)
            (number,) = yield anybody
            weights, spent = replace(weights, inhabited=anybody.shows(number)), spent + anybody.cost
        if not weights.shown().any():
            raise InfeasibleError(_NOTHING_SEEN)
        users = max(found.users or 1.0, 1.0)
        # How many groups a user is in is not measured; per record this is an upper bound, which only costs accuracy.
        groups_per_user = min(max(weights.total / users, 1.0), float(groups))
        budget = plan.column_budget(spent)
        columns = []
        for column in range(plan.columns):
            made = yield from self._measure_column(plan, found, column, weights, budget, groups_per_user)
            columns.append(made)
        split = self.steps.split
        return _Means(
            estimates=RowEstimates(
                columns=[made for made, _ in columns],
                weights=weights,
                accounting=plan.accounting,
                bounds=[split.clamp(column, found) for column in range(plan.columns)],
            ),
            last=[last for _, last in columns],
            weight_bound=weight_bound,
            groups_per_user=groups_per_user,
        )

    def _measure_column(
        self,
        plan: RowPlan,
        found: AdaptiveEstimates,
        column: int,
        weights: GroupWeights,
        budget: Fraction,
        groups_per_user: float,
    ) -> Generator[Query, Any, tuple[ColumnEstimates, Pass]]:
        split, accounting = self.steps.split, plan.accounting
        # The norm of a row with the usual number of groups and records, one scale from the centers.
        usual = (groups_per_user**0.5 if accounting.concentrated else groups_per_user) * max(
            weights.total / plan.users / groups_per_user, 1.0
        )
        unit, (low, high) = split.unit(column, found), split.clamp(column, found)
        centers = np.full(plan.groups, split.center(column, found))
        scales = np.full(plan.groups, unit)
        passes: list[Pass] = []
        searches = [plan.search(number, budget, groups_per_user) for number in range(plan.passes)]
        left = budget - sum(
            (accounting.budget.cost_of_selection(one.epsilon) for one in searches), Fraction(0)
        )
        squares_cost = left * plan.shares.squares
        left -= squares_cost
        differ = False
        for number, search in enumerate(searches):
            last = number == plan.passes - 1
            entries = Deviations(
                column=column,
                weights=Weights(cap=self.cap),
                centers=centers,
                scales=scales,
                low=low,
                high=high,
            )
            chosen = NormSearch(
                entries=entries, unit=_FINEST * max(usual, 1.0), search=search, accounting=accounting
            )
            rank = plan.rank(number, budget, groups_per_user)
            bound, beyond = plan.stretch(chosen.found((yield chosen)), search, rank, usual=usual)
            sums = RowSums(
                what=THE_MEAN,
                entries=entries,
                bound=bound,
                terms="sides" if differ and not last else "signed",
                sums_cost=(cost := plan.pass_cost(number, left)),
                squares_cost=squares_cost if last else Fraction(0),
                accounting=accounting,
            )
            left -= cost
            terms = sums.found((yield sums), plan.groups)
            stddev = sums.stddev
            sides = sums.terms == "sides"
            passes.append(
                Pass(
                    centers=centers,
                    scales=scales,
                    bound=bound,
                    sums=terms[0] - terms[1] if sides else terms[0],
                    stddev=stddev * np.sqrt(2.0) if sides else stddev,
                    beyond=beyond,
                    # Of rows beyond what the search found: the tail may not reach the stretched bound as expected.
                    missed=plan.missed(
                        search.expected_beyond, bound=bound, usual=usual, groups_per_user=groups_per_user
                    ),
                )
            )
            if last:
                made = ColumnEstimates.of(
                    passes, terms[-1], sums.squares_stddev, weights, usual=usual, unit=unit
                )
                return made, passes[-1]
            centers, spread = Combined.of(passes, weights).pooled()
            if low is not None or high is not None:
                centers = np.clip(centers, low, high)
            if sides:
                noise = np.sqrt(2.0) * stddev * scales
                found_scales = shrink_scales((terms[0] + terms[1]) * scales, noise, weights)
                scales = scales if found_scales is None else found_scales
            differ = spread > _APART * unit
        raise AssertionError("there is a last pass")

    def outcome(self, sample: Any, keys: Sequence[GroupKey]) -> GroupOutcome:
        made, found, breakdown = self.replay(sample, len(keys))
        if made is None:
            return nothing_selected(self.steps.split.columns, found, breakdown)
        estimates = made.estimates
        if self.rollup:
            estimates, keys = add_totals(estimates, keys, made.groups_per_user)
        weights = estimates.weights
        hidden = np.flatnonzero(weights.shown() == 0.0).tolist()
        far = np.flatnonzero(~estimates.reached()).tolist()
        return GroupOutcome(
            keys=keys,
            values=estimates.values(),
            parameters={**made.parameters(), **found.parameters()},
            intervals=estimates,
            denominators=estimates,
            refusals={**dict.fromkeys(far, _TOO_FAR), **dict.fromkeys(hidden, _TOO_SMALL)},
            mechanism="adaptive",
            budget_breakdown=breakdown,
            warnings=warn_of_small_groups(estimates),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Means:
    """The estimates, and what clipped them in the last pass of each column."""

    estimates: RowEstimates
    last: Sequence[Pass]
    weight_bound: float
    groups_per_user: float

    def parameters(self) -> dict[str, Any]:
        accounting = self.estimates.accounting
        return {
            "norm": accounting.norm,
            "norm_bound": per_column([float(one.bound * np.median(one.scales)) for one in self.last]),
            "users_beyond_bound": per_column([round(one.beyond) for one in self.last]),
            "weight_norm_bound": self.weight_bound,
        }


def nothing_selected(
    columns: int, found: AdaptiveEstimates, breakdown: tuple[BudgetEntry, ...]
) -> GroupOutcome:
    """Return the result of a release in which no group appears."""
    return GroupOutcome(
        keys=(),
        values=np.empty((0, columns)),
        parameters=found.parameters(),
        budget_breakdown=breakdown,
    )


def warn_of_small_groups(estimates: RowEstimates) -> tuple[str, ...]:
    """Return a warning where groups have values that are mostly those of the others."""
    groups, drawn = estimates.weights.groups, estimates.drawn()
    if not drawn:
        return ()
    small, values = ("1 is", "its value is") if drawn == 1 else (f"{drawn:,} are", "their values are")
    return (
        f"Of {groups:,} groups, {small} too small to see beside the noise and may be empty: {values} drawn toward "
        "those of the other groups. Look at the interval of a group before you use its value; a group that differs "
        "from all others may lie outside.",
    )


def select_rows(table: GroupTable, keys: Sequence[GroupKey]) -> UserRows:
    """Return the rows of all users over these groups; what a user holds in others is left out."""
    members, groups, owners = table.members, table.membership.groups, table.owners
    if keys is not table.keys:
        places = {key: place for place, key in enumerate(keys)}
        number = np.array([places.get(key, -1) for key in table.keys], dtype=np.int64)
        groups = number[groups] if len(number) else groups
        kept = np.flatnonzero(groups >= 0)
        members, groups, owners = members.take(kept), groups[kept], owners[kept]
    return UserRows(
        members=members, owners=owners, n_owners=table.n_owners, groups=groups, n_groups=len(keys)
    )
