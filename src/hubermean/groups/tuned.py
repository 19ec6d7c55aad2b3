"""What is not known, found for all groups at once; then `clipped` for each.

Groups are too small to search in each of them. The steps of `tuned` work on a table of one group of each user, under
the relation that was asked for, and what they leave of the budget pays for the means of all groups. Bounds that serve
all groups follow from the spread of everybody. Proof: proofs/groups.md, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hubermean.group_table import GroupTable, Key
from hubermean.groups.division import Division
from hubermean.groups.grouped import Additive, GroupOutcome, Groups, Together
from hubermean.laws import Law, Uniform
from hubermean.mechanisms.clipped import Clipped, PreparedClipped
from hubermean.mechanisms.counted import Count
from hubermean.mechanisms.protocol import PublicFacts, Request
from hubermean.mechanisms.tuned import PreparedTuned
from hubermean.mechanisms.tuning_plan import TOO_FEW, Found, Planner, UnfitError, fitting_deviations
from hubermean.mechanisms.tuning_steps import MeansOnLine
from hubermean.privacy import float_down
from hubermean.tuning import LENGTHS, SHORTEST, SpreadSearch, line_of
from hubermean.user_table import PrivateTable

_NOISE_IN_USERS = (
    2.25  # what the noise of a sum weighs, in users at the bounds, for one change and epsilon = 1
)
_FURTHER_PART = 0.2  # of what is left for a column
_WIDEST = 4.0  # times the usual bounds: so much noise may hostile users cause

Finish = Callable[[Found, int], Additive]


@dataclass(frozen=True, kw_only=True)
class TunedGroups(Groups):
    """Steps on one group of each user, then all groups together.

    `finish` makes the last mechanism of what was found and of how many groups there are.
    """

    steps: PreparedTuned
    finish: Finish
    mechanism: str
    division: Division

    def law(self, table: GroupTable, keys: Sequence[Key]) -> Law:
        assert table.pool is not None

        def last(found: Found) -> Law:
            return self._together(found, keys).law(table, keys)

        return self._steps(keys).after_steps(table.pool, last)

    def _steps(self, keys: Sequence[Key]) -> PreparedTuned:
        """The steps, and a longer look where they seek a spread."""
        planner = self.steps.planner
        if not planner.seeks_spread:
            return self.steps
        columns = range(planner.columns)
        further = (
            LookFurther(planner, column, groups=len(keys), division=self.division) for column in columns
        )
        return replace(self.steps, steps=(*self.steps.steps, *further))

    def outcome(self, draw: Any, keys: Sequence[Key]) -> GroupOutcome:
        learned = self._steps(keys).learned(draw, lambda found: self._together(found, keys))
        made = learned.made.outcome(learned.draw, keys)
        return replace(
            made,
            parameters={**made.parameters, **learned.found.parameters()},
            spent=self.steps.account(learned),
        )

    def _together(self, found: Found, keys: Sequence[Key]) -> Together:
        return Together(prepared=self.finish(found, len(keys)), mechanism=self.mechanism)


def remaining(steps: PreparedTuned, found: Found, request: Request) -> Request:
    """The request with what the steps left of its budget."""
    rest = float_down(steps.planner.purse.total - found.spent)
    if rest <= 0.0:
        raise UnfitError(TOO_FEW)
    return replace(request, epsilon=rest)


@dataclass(frozen=True)
class LookFurther:
    """A longer interval for a larger share of everybody: groups differ, and bounds should suit the outer ones too.

    How large a share pays: of a group of average size about as many users should lie beyond its bounds as the noise of
    its sum weighs (Amin et al. 2019, "Bounding user contributions").
    """

    planner: Planner
    column: int
    groups: int
    division: Division
    what = "spread for all groups"

    def search(self, found: Found) -> SpreadSearch | None:
        assert found.division is not None
        left = self.planner.purse.total - found.spent
        beyond = _NOISE_IN_USERS * self.division.changes / max(float(left), 1e-9)
        share = 1.0 - beyond / max(self.division.expected_weight(found.weight, self.groups), 1.0)
        # Of what is left, not of what there was: so that all columns together never spend what is not there.
        largest = self.planner.purse.largest_choice(left / self.planner.columns, _FURTHER_PART)
        return SpreadSearch.beyond(found.weight, share=share, largest=largest)

    def ready(self, found: Found) -> None:
        """Always: where users are too few nothing is sought."""

    def price(self, found: Found) -> Fraction:
        search = self.search(found)
        return Fraction(0) if search is None else self.planner.purse.of_choice(search.epsilon)

    def law(self, table: PrivateTable, found: Found) -> Law:
        search = self.search(found)
        if search is None:
            return Uniform(limit=1)
        assert found.cap is not None
        means = MeansOnLine(self.planner.request, self.column, found.cap)
        return search.law(line_of(table, means), cap=found.cap)

    def learn(self, found: Found, draw: int) -> Found:
        if self.search(found) is None:
            return replace(found, reaches=(*found.reaches, 0.0))
        reach = float(LENGTHS[draw]) if draw >= SHORTEST else 0.0
        return replace(found, spent=found.spent + self.price(found), reaches=(*found.reaches, reach))


def clipped_for_groups(steps: PreparedTuned, division: Division, facts: PublicFacts) -> Finish:
    """The clipped mean of every group, with bounds that suit groups of the size to be expected."""

    def finish(found: Found, groups: int) -> PreparedClipped:
        request = remaining(steps, found, division.means)
        if found.division is not None:
            deviations = _deviations(found, groups, request, division, facts)
            found = replace(found, division=replace(found.division, deviations=deviations))
        clipped = replace(steps.planner.clipped(found), changes=division.changes)
        if found.reaches:
            clipped = replace(clipped, bounds=_widened(steps.planner, found))
        return clipped.prepare(request, facts)

    return finish


def _widened(planner: Planner, found: Found) -> list[tuple[float, float]]:
    """Bounds that hold the larger share too, wherever beside the place it lies; wider by a few times at most."""
    bounds = []
    for column, (place, reach) in enumerate(zip(found.places, found.reaches, strict=True)):
        threshold = planner.threshold(column, found)
        further = reach - float(LENGTHS[found.spreads[column]]) / 2.0
        threshold = min(max(threshold, further), _WIDEST * threshold)
        bounds.append((place - threshold, place + threshold))
    return bounds


def count_for_groups(steps: PreparedTuned, division: Division, facts: PublicFacts) -> Finish:
    """The records of every group, up to the cap that was found."""

    def finish(found: Found, groups: int) -> Additive:
        request = remaining(steps, found, division.means)
        return Count(record_cap=found.cap, changes=division.changes).prepare(request, facts)

    return finish


def _deviations(found: Found, groups: int, request: Request, division: Division, facts: PublicFacts) -> float:
    """How far bounds should lie from the place, for groups of the average weight."""
    unit = replace(facts, columns=tuple(one._replace(limit=one.limit + 2) for one in facts.columns))
    cap = None if request.per == "user" else found.cap
    mechanism = Clipped(bounds=(-1.0, 1.0), record_cap=cap, centred=True, changes=division.changes)
    prepared = mechanism.prepare(request, unit)
    noise = prepared.sum_noise() / prepared.cap
    return fitting_deviations(division.expected_weight(found.weight, groups), noise)
