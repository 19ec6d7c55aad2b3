"""What is not known, found for all groups at once; then `clipped` for each.

Groups are too small to search in each of them. The steps of `tuned` work on a table of one group of each user, under
the relation that was asked for, and what they leave of the budget pays for the means of all groups. Bounds that serve
all groups follow from the spread of everybody. Proof: proofs/groups.md, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hubermean.group_table import GroupTable, Key
from hubermean.groups.division import Division
from hubermean.groups.grouped import Additive, GroupOutcome, Groups, Together
from hubermean.laws import Law
from hubermean.mechanisms.clipped import Clipped, PreparedClipped
from hubermean.mechanisms.counted import Count
from hubermean.mechanisms.protocol import PublicFacts, Request
from hubermean.mechanisms.tuned import PreparedTuned
from hubermean.mechanisms.tuning_plan import TOO_FEW, Found, UnfitError, fitting_deviations
from hubermean.privacy import float_down

Finish = Callable[[Found, int], Additive]


@dataclass(frozen=True, kw_only=True)
class TunedGroups(Groups):
    """Steps on one group of each user, then all groups together.

    `finish` makes the last mechanism of what was found and of how many groups there are.
    """

    steps: PreparedTuned
    finish: Finish
    mechanism: str
    what: str

    def law(self, table: GroupTable, keys: Sequence[Key]) -> Law:
        assert table.pool is not None

        def last(found: Found) -> Law:
            return self._together(found, keys).law(table, keys)

        return self.steps.after_steps(table.pool, last)

    def outcome(self, draw: Any, keys: Sequence[Key]) -> GroupOutcome:
        learned = self.steps.learned(draw, lambda found: self._together(found, keys))
        made = learned.made.outcome(learned.draw, keys)
        return replace(
            made,
            parameters={**made.parameters, **learned.found.parameters()},
            spent=self.steps.account(learned, what=self.what),
        )

    def _together(self, found: Found, keys: Sequence[Key]) -> Together:
        return Together(prepared=self.finish(found, len(keys)), mechanism=self.mechanism)


def remaining(steps: PreparedTuned, found: Found, request: Request) -> Request:
    """The request with what the steps left of its budget."""
    rest = float_down(steps.planner.purse.total - found.spent)
    if rest <= 0.0:
        raise UnfitError(TOO_FEW)
    return replace(request, epsilon=rest)


def clipped_for_groups(steps: PreparedTuned, division: Division, facts: PublicFacts) -> Finish:
    """The clipped mean of every group, with bounds that suit groups of the size to be expected."""

    def finish(found: Found, groups: int) -> PreparedClipped:
        request = remaining(steps, found, division.means)
        if found.division is not None:
            deviations = _deviations(found, groups, request, division.changes, facts)
            found = replace(found, division=replace(found.division, deviations=deviations))
        clipped = replace(steps.planner.clipped(found), changes=division.changes)
        return clipped.prepare(request, facts)

    return finish


def count_for_groups(steps: PreparedTuned, division: Division, facts: PublicFacts) -> Finish:
    """The records of every group, up to the cap that was found."""

    def finish(found: Found, groups: int) -> Additive:
        request = remaining(steps, found, division.means)
        return Count(record_cap=found.cap, changes=division.changes).prepare(request, facts)

    return finish


def _deviations(found: Found, groups: int, request: Request, changes: int, facts: PublicFacts) -> float:
    """How far bounds should lie from the place, for groups of the average weight."""
    unit = replace(facts, columns=tuple(replace(one, limit=one.limit + 2) for one in facts.columns))
    cap = None if request.per == "user" else found.cap
    prepared = Clipped(bounds=(-1.0, 1.0), record_cap=cap, centred=True, changes=changes).prepare(
        request, unit
    )
    noise = prepared.sum_noise() / prepared.cap
    return fitting_deviations(found.weight / max(groups, 1), noise)
