"""What is not known, found for all groups at once; then `clipped` for each.

Groups are too small to search in each of them. The steps of `adaptive` work on a table of one group of each user, under
the relation that was asked for, and what they leave of the budget pays for the means of all groups. Bounds serve all
groups: so many users of all groups may lie beyond them as noise hides in each. Proof: proofs/groups.md, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hubermean.group_table import GroupTable, Key
from hubermean.groups.division import Division
from hubermean.groups.grouped import Additive, GroupOutcome, Groups, Together
from hubermean.laws import Law
from hubermean.mechanisms.adaptive import TOO_FEW, Adaptive, Found, PreparedSteps, UnfitError
from hubermean.mechanisms.adaptive.last_step import CUT_OFF
from hubermean.mechanisms.adaptive.split import Tail
from hubermean.mechanisms.clipped import Clipped
from hubermean.mechanisms.counted import AdaptiveCount, Count
from hubermean.mechanisms.protocol import PublicFacts, Request
from hubermean.privacy import float_down
from hubermean.spending import THE_COUNT

StepsFor = Callable[[int], PreparedSteps]
Finish = Callable[[PreparedSteps, Found], Additive]


@dataclass(frozen=True, kw_only=True)
class AdaptiveGroups(Groups):
    """Steps on one group of each user, then all groups together.

    `steps` makes the steps for so many groups, `finish` the last mechanism of what they found.
    """

    steps: StepsFor
    finish: Finish
    mechanism: str

    def law(self, table: GroupTable, keys: Sequence[Key]) -> Law:
        assert table.pool is not None
        steps = self.steps(len(keys))

        def last(found: Found) -> Law:
            return self._together(steps, found).law(table, keys)

        return steps.after_steps(table.pool, last)

    def outcome(self, draw: Any, keys: Sequence[Key]) -> GroupOutcome:
        steps = self.steps(len(keys))
        learned = steps.learned(draw, lambda found: self._together(steps, found))
        made = learned.made.outcome(learned.draw, keys)
        return replace(
            made,
            parameters={**made.parameters, **learned.found.parameters()},
            spent=steps.account(learned),
        )

    def _together(self, steps: PreparedSteps, found: Found) -> Together:
        return Together(prepared=self.finish(steps, found), mechanism=self.mechanism)


def adaptive_groups(
    mechanism: Adaptive | AdaptiveCount, division: Division, facts: PublicFacts, pool_facts: PublicFacts
) -> AdaptiveGroups:
    """Public decisions are made here once, so that what cannot be released is refused before anything is spent."""

    def steps(groups: int) -> PreparedSteps:
        if isinstance(mechanism, Adaptive):
            made = mechanism.steps(
                division.tuning, pool_facts, "groups", groups=max(groups, 1), changes=division.changes
            )
        else:
            made = replace(mechanism.steps(division.tuning, pool_facts), leads_to=THE_COUNT)
        return replace(made, charged=division.whole)

    steps(1)

    def means(steps: PreparedSteps, found: Found) -> Additive:
        request, split = _remaining(steps, found, division.means), steps.split
        columns = range(split.columns)
        tails, centers = split.tails(found), [split.center(column, found) for column in columns]
        bounds = [
            (center - tail.below, center + tail.above) for center, tail in zip(centers, tails, strict=True)
        ]
        clipped = Clipped(
            bounds=bounds,
            record_cap=found.cap if request.per == "record" else None,
            changes=division.changes,
            cut_off=()
            if split.bounds_known
            else tuple(_cut_off(tail, split.changes / split.groups) for tail in tails),
        )
        return clipped.prepare(request, facts)

    def counts(steps: PreparedSteps, found: Found) -> Additive:
        request = _remaining(steps, found, division.means)
        return Count(record_cap=found.cap, changes=division.changes).prepare(request, facts)

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


def _remaining(steps: PreparedSteps, found: Found, request: Request) -> Request:
    """The request with what the steps left of its budget."""
    rest = float_down(steps.split.purse.total - found.spent)
    if rest <= 0.0:
        raise UnfitError(TOO_FEW)
    return replace(request, epsilon=rest)
