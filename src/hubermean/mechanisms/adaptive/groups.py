"""What is not known, found for all groups at once; then `clipped` for each.

Groups are too small to search in each of them. The steps of `adaptive` work on a table of users, each with its totals
over its groups, under the relation that was asked for, and what they leave of the budget pays for the means of all
groups. Bounds serve all
groups: so many users of all groups may lie beyond them as noise hides in each. Proof: proofs/groups.md, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import THE_COUNT
from hubermean.data.group_table import GroupKey, GroupTable
from hubermean.distributions.output import OutputDistribution
from hubermean.mechanisms.adaptive.clipped_step import CUT_OFF
from hubermean.mechanisms.adaptive.mechanism import Adaptive, PreparedSteps
from hubermean.mechanisms.adaptive.parameters import TOO_FEW, AdaptiveEstimates, InfeasibleError, Tail
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.counts.mechanism import AdaptiveCount, Count
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.grouped import AdditiveMechanism, GroupMechanism, GroupOutcome, SummedGroups
from hubermean.types.dry_run import Prospect
from hubermean.types.request import PublicFacts, Request

StepsFor = Callable[[int], PreparedSteps]
Finish = Callable[[PreparedSteps, AdaptiveEstimates], AdditiveMechanism]


@dataclass(frozen=True, kw_only=True)
class AdaptiveGroups(GroupMechanism):
    """Steps on the totals of each user, then all groups together.

    `steps` makes the steps for so many groups, `finish` the last mechanism of what they found.
    """

    steps: StepsFor
    finish: Finish
    mechanism: str

    def distribution(self, table: GroupTable, keys: Sequence[GroupKey]) -> OutputDistribution:
        steps = self.steps(len(keys))

        def last(found: AdaptiveEstimates) -> OutputDistribution:
            return self._together(steps, found).distribution(table, keys)

        return steps.chain_steps(table.users(), last)

    def outcome(self, sample: Any, keys: Sequence[GroupKey]) -> GroupOutcome:
        steps = self.steps(len(keys))
        results = steps.replay(sample, lambda found: self._together(steps, found))
        made = results.made.outcome(results.sample, keys)
        return replace(
            made,
            parameters={**made.parameters, **results.found.parameters()},
            budget_breakdown=steps.break_down_budget(results),
        )

    def prospect(self) -> Prospect:
        return replace(self.steps(1).prospect(), mechanism=self.mechanism)

    def _together(self, steps: PreparedSteps, found: AdaptiveEstimates) -> SummedGroups:
        return SummedGroups(prepared=self.finish(steps, found), mechanism=self.mechanism)


def adaptive_groups(
    mechanism: Adaptive | AdaptiveCount,
    group_split: GroupBudgetSplit,
    facts: PublicFacts,
    pool_facts: PublicFacts,
) -> AdaptiveGroups:
    """Public decisions are made here once, so that what cannot be released is refused before anything is spent."""

    def steps(groups: int) -> PreparedSteps:
        if isinstance(mechanism, Adaptive):
            made = mechanism.steps(
                group_split.estimation,
                pool_facts,
                "groups",
                groups=max(groups, 1),
                changes=group_split.changes,
            )
        else:
            made = replace(mechanism.steps(group_split.estimation, pool_facts), final_step=THE_COUNT)
        return replace(made, charged=group_split.whole, before=group_split.selection_cost)

    steps(1)

    def means(steps: PreparedSteps, found: AdaptiveEstimates) -> AdditiveMechanism:
        request, split = _remaining(steps, found, group_split.means), steps.split
        columns = range(split.columns)
        tails, centers = split.tails(found), [split.center(column, found) for column in columns]
        bounds = [
            (center - tail.below, center + tail.above) for center, tail in zip(centers, tails, strict=True)
        ]
        clipped = Clipped(
            bounds=bounds,
            max_records=found.cap if request.per == "record" else None,
            changes=group_split.changes,
            cut_off=()
            if split.bounds_known
            else tuple(_cut_off(tail, split.changes / split.groups) for tail in tails),
        )
        return clipped.prepare(request, facts)

    def counts(steps: PreparedSteps, found: AdaptiveEstimates) -> AdditiveMechanism:
        request = _remaining(steps, found, group_split.means)
        return Count(max_records=found.cap, changes=group_split.changes).prepare(request, facts)

    finish = means if isinstance(mechanism, Adaptive) else counts
    return AdaptiveGroups(steps=steps, finish=finish, mechanism=mechanism.name)


def _cut_off(tail: Tail, share: float) -> tuple[float, float]:
    """(below, above): how many users at a bound a group may lose there, for its interval to cover it.

    The bounds are common: `share` of the users beyond them for each group, as far beyond as the bound is from the
    center. Their number falls with the square of the distance from the rank that was found, and more of them are on the
    side of the longer tail.
    """
    width = tail.below + tail.above
    below, above = (
        CUT_OFF + share * tail.rank * (seen / bound) ** 2 * bound / width
        for seen, bound in ((tail.seen_below, tail.below), (tail.seen_above, tail.above))
    )
    return below, above


def _remaining(steps: PreparedSteps, found: AdaptiveEstimates, request: Request) -> Request:
    """The request with what the steps left of its budget."""
    rest = round_down(steps.split.privacy_budget.total - found.spent)
    if rest <= 0.0:
        raise InfeasibleError(TOO_FEW)
    return replace(request, epsilon=rest)
