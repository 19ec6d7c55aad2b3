"""Slips planted in the adaptive mechanism, in thresholds, in groups and in counts: what an audit must find.

Each is a change of a rate, a sensitivity, a split of the budget or of what is booked. The audit knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hubermean.accounting.budget import PrivacyBudget
from hubermean.huber import level_sets
from hubermean.huber.geometry import Geometry
from hubermean.ingest.duckdb.queries import GroupQuery
from hubermean.mechanisms.adaptive import clipped_step as clipped_step
from hubermean.mechanisms.adaptive.budget_split import BudgetSplit
from hubermean.mechanisms.adaptive.clipped_step import ClippedSum, PreparedClippedStep
from hubermean.mechanisms.adaptive.mechanism import Adaptive, PreparedAdaptive
from hubermean.mechanisms.adaptive.steps import (
    ChooseCenters,
    ChooseInfluence,
    ChooseIntervals,
    ChooseIntervalsBeyondTies,
    ChooseTails,
    CountUsers,
    MeasureWeight,
    MeasureWeightAndHeavyUsers,
    MoveCenters,
)
from hubermean.mechanisms.counts import mechanism as counted
from hubermean.mechanisms.counts.mechanism import Count, PreparedCount
from hubermean.mechanisms.estimated_huber import PreparedEstimatedHuber
from hubermean.mechanisms.groups import row_means
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.noise_choice import UsersInMany
from hubermean.mechanisms.groups.partition_selection import PartitionSelection
from hubermean.mechanisms.groups.row_means import RowMechanism
from hubermean.mechanisms.groups.row_queries import Accounting, NormSearch, RowSums
from hubermean.mechanisms.groups.row_selection import RowSelection
from hubermean.mechanisms.groups.rows import UserRows
from hubermean.mechanisms.inverse_sensitivity.grid import LocationGrid
from hubermean.searches.bounds import ContributionBoundSearch, RankSearch, TailSearch
from hubermean.searches.location import CenterSearch, IntervalSearch

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A slip, and an audit that must find it; `pairs` where fewer than the default number find it already."""

    name: str
    broken: Break
    audit: dict[str, Any]
    pairs: int | None = None
    slow: bool = False


def law_of(search: type, patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change what a search, a step or a prepared mechanism makes of the data."""
    made = search.distribution  # type: ignore[attr-defined]
    patch.setattr(search, "distribution", lambda self, *given, **named: change(made(self, *given, **named)))


def faster(times: Fraction | int) -> Callable[[Any], Any]:
    return lambda distribution: (
        replace(distribution, rate=distribution.rate * times)
        if hasattr(distribution, "rate")
        else distribution
    )


def quieter(share: float) -> Callable[[Any], Any]:
    def change(distribution: Any) -> Any:
        return replace(
            distribution,
            noise=[replace(one, scale=one.scale * share) for one in distribution.distributions()],
        )

    return change


def rate_times(times: int, search: type) -> Break:
    return lambda patch: law_of(search, patch, faster(times))


def half_the_noise(step: type) -> Break:
    return lambda patch: law_of(step, patch, quieter(0.5))


def beside_a_small_bound(broken: Break) -> Break:
    """As where a given bound is so small that the weight is measured under it."""

    def both(patch: Patch) -> None:
        known = property(lambda self: self.start.cap is None and not self.caps_weights)
        patch.setattr(BudgetSplit, "seeks_rank_bound", known)
        broken(patch)

    return both


def free(step: type) -> Break:
    """The step is not booked."""

    def broken(patch: Patch) -> None:
        made = step.update  # type: ignore[attr-defined]
        patch.setattr(
            step, "update", lambda self, found, sample: replace(made(self, found, sample), spent=found.spent)
        )

    return broken


def priced_at(share: Fraction, method: str) -> Break:
    """The accounting asks for less than a step costs."""

    def broken(patch: Patch) -> None:
        made = getattr(PrivacyBudget, method)
        patch.setattr(PrivacyBudget, method, lambda self, epsilon: share * made(self, epsilon))

    return broken


def sensitivity_of_the_scale_halved(patch: Patch) -> None:
    """Half a user in place of the larger part of one."""
    patch.setattr(IntervalSearch, "sensitivity", property(lambda self: 50))


def one_way_whatever_the_relation(method: str) -> Break:
    """The rate of `add-remove` for costs that move one way, where users are replaced."""

    def broken(patch: Patch) -> None:
        made = getattr(BudgetSplit, method)
        patch.setattr(BudgetSplit, method, lambda self, *given: replace(made(self, *given), add_remove=True))

    return broken


def cap_ignored_in_the_weight(patch: Patch) -> None:
    """The weight adds up more records than the cap, the noise is for users who reach the cap."""
    made = MeasureWeight.distribution

    def distribution(self: MeasureWeight, table: Any, found: Any) -> Any:
        more = made(self, table, replace(found, cap=10 * found.cap))
        return replace(more, noise=self._noise(found))

    patch.setattr(MeasureWeight, "distribution", distribution)


def half_the_sensitivity_of_the_weight(patch: Patch) -> None:
    made = MeasureWeight._noise
    patch.setattr(
        MeasureWeight,
        "_noise",
        lambda self, found: replace(distribution := made(self, found), scale=distribution.scale / 2),
    )


def far_users_in_both_numbers(patch: Patch) -> None:
    """Users with far more records than the cap are counted, and their records are in the weight as well."""
    made = MeasureWeightAndHeavyUsers.distribution

    def distribution(self: MeasureWeightAndHeavyUsers, table: Any, found: Any) -> Any:
        right = made(self, table, found)
        weight, far = right.position
        return replace(right, position=[weight + far * found.cap, far])

    patch.setattr(MeasureWeightAndHeavyUsers, "distribution", distribution)


def one_side_for_a_replacement(patch: Patch) -> None:
    """The sensitivity of `add-remove`, where a user may go from one bound to the other."""
    patch.setattr(ClippedSum, "sensitivity", lambda self: max(self.high, -self.low))


def half_the_sensitivity_of_the_sum(patch: Patch) -> None:
    made = ClippedSum.sensitivity
    patch.setattr(ClippedSum, "sensitivity", lambda self: made(self) // 2)


def influence_not_clipped(patch: Patch) -> None:
    """Users add ten times as much as noise was made for."""
    made = ClippedSum.distances
    patch.setattr(
        ClippedSum,
        "distances",
        lambda self, part: made(replace(self, low=10 * self.low, high=10 * self.high), part),
    )


def last_noises(patch: Patch, change: Callable[..., Any]) -> None:
    made = clipped_step._noises
    patch.setattr(clipped_step, "_noises", lambda *given: change(made, *given))


def half_the_sensitivity_of_the_squares(patch: Patch) -> None:
    def change(made: Any, *given: Any) -> Any:
        first, *squares = made(*given)
        return (first, *(replace(distribution, scale=distribution.scale / 4) for distribution in squares))

    last_noises(patch, change)


def squares_for_free(patch: Patch) -> None:
    """The sum gets all that is left, and the squares their part once more."""

    def change(made: Any, split: Any, own: Any, budget: Fraction, users: float) -> Any:
        _, *squares = made(split, own, budget, users)
        return (clipped_step._noise(split, budget, own.sensitivity()), *squares)

    last_noises(patch, change)


def every_column_gets_all(patch: Patch) -> None:
    last_noises(
        patch, lambda made, split, own, budget, users: made(split, own, budget * split.columns, users)
    )


def everything_for_the_mean(patch: Patch) -> None:
    """The mean gets the whole budget, though steps took their part of it."""

    def last(self: PreparedAdaptive, found: Any) -> PreparedClippedStep:
        return PreparedClippedStep.prepare(self.split, replace(found, spent=Fraction(0)))

    patch.setattr(PreparedAdaptive, "clipped_step", last)


def a_refund(patch: Patch) -> None:
    """What the search for a scale cost is given back twice."""
    made = ChooseIntervals.update

    def update(self: ChooseIntervals, found: Any, sample: int) -> Any:
        after = made(self, found, sample)
        return replace(after, spent=after.spent - (after.spent - found.spent) * 2)

    patch.setattr(ChooseIntervals, "update", update)


def rho_without_delta(patch: Patch) -> None:
    """A concentrated budget that takes no notice of the conversion."""
    made = PrivacyBudget.concentrated.__func__  # type: ignore[attr-defined]

    def concentrated(cls: Any, epsilon: float, delta: float) -> PrivacyBudget:
        right: PrivacyBudget = made(cls, epsilon, delta)
        return replace(right, total=right.total * 2)

    patch.setattr(PrivacyBudget, "concentrated", classmethod(concentrated))


def choices_by_half_their_range(patch: Patch) -> None:
    """A choice costs eps^2/32 in rho, as if its range were half its epsilon."""
    priced_at(Fraction(1, 4), "cost_of_selection")(patch)


def flips_in_rho(patch: Patch) -> None:
    """Permute-and-flip, which has no bounded range, booked as if it had."""
    from hubermean.distributions.output import PermuteAndFlip
    from hubermean.searches import bounds

    patch.setattr(
        bounds,
        "choose_selection",
        lambda costs, rate, *, concentrated: PermuteAndFlip(costs=costs, rate=rate),
    )


def noise_of_the_count_halved(patch: Patch) -> None:
    law_of(PreparedCount, patch, quieter(0.5))


def cap_ignored_in_the_count(patch: Patch) -> None:
    made = PreparedCount.statistic
    patch.setattr(
        PreparedCount,
        "statistic",
        lambda self, table, membership=None: made(replace(self, cap=10**6), table, membership),
    )


def the_count_gets_everything(patch: Patch) -> None:
    """The search for a cap is not taken off the budget of the count."""
    patch.setattr(
        counted.PreparedAdaptiveCount,
        "count_with",
        lambda self, found: Count(max_records=found.cap).prepare(self.request, self.facts),
    )


def division_with(patch: Patch, change: Callable[[GroupBudgetSplit], GroupBudgetSplit]) -> None:
    made = GroupBudgetSplit.of.__func__  # type: ignore[attr-defined]
    patch.setattr(
        GroupBudgetSplit, "of", classmethod(lambda cls, *given, **named: change(made(cls, *given, **named)))
    )


def once_for_a_replacement(patch: Patch) -> None:
    """Whoever is replaced is taken for one change of each group, not for two."""
    division_with(patch, lambda right: replace(right, changes=right.max_groups))


def max_groups_not_paid_for(patch: Patch) -> None:
    division_with(patch, lambda right: replace(right, changes=right.changes // right.max_groups))


def max_groups_ignored(patch: Patch) -> None:
    from hubermean.ingest.duckdb import queries as rows

    patch.setattr(rows, "GroupQuery", lambda **given: GroupQuery(**{**given, "max_groups": None}))


def keys_for_free(patch: Patch) -> None:
    """What choosing the groups costs is not taken off the means."""

    def change(right: GroupBudgetSplit) -> GroupBudgetSplit:
        whole = right.whole.epsilon
        return replace(
            right,
            means=replace(right.means, epsilon=whole),
            estimation=replace(right.estimation, epsilon=whole),
        )

    division_with(patch, change)


def delta_twice(patch: Patch) -> None:
    """Keys and means each get all of delta."""

    def change(right: GroupBudgetSplit) -> GroupBudgetSplit:
        assert right.selection is not None
        selection = replace(right.selection, delta=right.selection.delta * 2)
        return replace(right, selection=selection, means=replace(right.means, delta=right.whole.delta))

    division_with(patch, change)


def lower_threshold_for_keys(patch: Patch) -> None:
    """A group appears as if it had one user more."""
    made = PartitionSelection.passes.func  # type: ignore[attr-defined]
    patch.setattr(PartitionSelection, "passes", property(lambda self: (0, *made(self)[2:])))


def keys_for_one_change(patch: Patch) -> None:
    """Every group is chosen with the whole of what keys may cost."""

    def change(right: GroupBudgetSplit) -> GroupBudgetSplit:
        assert right.selection is not None
        selection = right.selection
        return replace(right, selection=replace(selection, epsilon=selection.epsilon * right.changes))

    division_with(patch, change)


def rows_are_not_clipped(patch: Patch) -> None:
    patch.setattr(UserRows, "_factors", lambda self, parts, norm: np.ones(self.n_owners))


def every_entry_is_clipped_by_itself(patch: Patch) -> None:
    """A user in four groups moves each of them by a whole bound."""
    made = UserRows.clip

    def clip(self: UserRows, entries: Any, **given: Any) -> Any:
        count = len(entries)
        return made(replace(self, owners=np.arange(count), n_owners=count), entries, **given)

    patch.setattr(UserRows, "clip", clip)


def noise_for_one_bound(patch: Patch) -> None:
    """A replaced user takes a row away and adds another: not as if one of them were all."""
    made = Accounting.noise
    patch.setattr(
        Accounting,
        "noise",
        lambda self, cost, **given: made(replace(self, add_remove=True), cost, **given),
    )


def rows_lie_at_a_right_angle(patch: Patch) -> None:
    """The root of two is enough for rows without negative entries only."""
    made = Accounting.noise
    patch.setattr(Accounting, "noise", lambda self, cost, **_: made(self, cost, nonnegative=True))


def sums_of_rows_cost_half(patch: Patch) -> None:
    patch.setattr(RowSums, "cost", property(lambda self: (self.sums_cost + self.squares_cost) / 2))


def squares_are_free(patch: Patch) -> None:
    patch.setattr(RowSums, "cost", property(lambda self: self.sums_cost))


def norm_searches_are_free(patch: Patch) -> None:
    patch.setattr(NormSearch, "cost", property(lambda self: Fraction(0)))


def queries_get_what_the_steps_spent(patch: Patch) -> None:
    """What the steps before spent is not taken off what rows may cost."""
    made = RowMechanism.plan
    nothing = {"spent": Fraction(0), "epsilon": Fraction(0)}
    patch.setattr(
        RowMechanism,
        "plan",
        lambda self, found, groups: made(self, replace(found, **nothing), groups),
    )


def the_choice_of_noise_is_free(patch: Patch) -> None:
    """The count that decides takes nothing off what later queries may cost."""
    made = row_means.resolve_accounting

    def resolve(budget: PrivacyBudget, found: Any, **given: Any) -> Any:
        resolved = yield from made(budget, found, **given)
        pure = resolved.budget.accounting == "pure"
        assert budget.pure_total is not None
        total = budget.pure_total - found.epsilon if pure else budget.total - found.spent
        return replace(resolved, budget=replace(resolved.budget, total=total))

    patch.setattr(row_means, "resolve_accounting", resolve)


def laplace_noise_for_all_of_epsilon(patch: Patch) -> None:
    """What the steps before cost in rho is forgotten where later queries are pure."""
    made = row_means.resolve_accounting
    patch.setattr(
        row_means,
        "resolve_accounting",
        lambda budget, found, **given: made(budget, replace(found, epsilon=Fraction(0)), **given),
    )


def users_in_many_counted_by_group(patch: Patch) -> None:
    """One user moves the number by as many groups as it is in."""
    made = UsersInMany.distribution

    def distribution(self: UsersInMany, rows: UserRows) -> Any:
        return replace(made(self, rows), position=[len(rows.owners)])

    patch.setattr(UsersInMany, "distribution", distribution)


def a_whole_unit_in_every_group(patch: Patch) -> None:
    """Weights for partition selection are not shared by a user's groups."""
    made = RowSelection.distribution

    def distribution(self: RowSelection, table: Any) -> Any:
        count = len(table.owners)
        return made(self, replace(table, owners=np.arange(count), n_owners=count))

    patch.setattr(RowSelection, "distribution", distribution)


def a_threshold_for_half_of_the_users(patch: Patch) -> None:
    made = RowSelection.threshold.func  # type: ignore[attr-defined]
    patch.setattr(RowSelection, "threshold", property(lambda self: made(self) // 2))


def selection_of_rows_for_free(patch: Patch) -> None:
    """What choosing the groups costs is not taken off the means."""
    made = GroupBudgetSplit.row_budget.fget  # type: ignore[attr-defined]
    patch.setattr(GroupBudgetSplit, "row_budget", property(lambda self: (made(self)[0], Fraction(0))))


# With a large epsilon few users are enough for every step, and a pair is judged in a second.
ADAPTIVE: dict[str, Any] = {"mechanism": "adaptive", "epsilon": 20}
ONE_WAY: dict[str, Any] = {**ADAPTIVE, "neighbors": "add-remove"}
# So few that bounds are chosen by the total of users outside them.
FEW: dict[str, Any] = {"mechanism": Adaptive(scale=1.0, radius=100.0), "epsilon": 20, "users": 25}
KNOWN: dict[str, Any] = {**ADAPTIVE, "threshold": 2.0, "radius": 100.0}  # nothing is sought but the center
RECORDS: dict[str, Any] = {**ADAPTIVE, "per": "record"}
CAPPED: dict[str, Any] = {**RECORDS, "bounds": (0, 10), "max_records": 5}
# Accounted for in rho.
COLUMNS: dict[str, Any] = {**KNOWN, "epsilon": 5, "delta": 1e-5, "columns": 6, "users": 150}
GROUPS: dict[str, Any] = {**ADAPTIVE, "groups": 3, "max_groups": 1}
# Users count in all of their groups.
ROWS: dict[str, Any] = {**ADAPTIVE, "bounds": (0, 10), "groups": 3, "users": 60}
ROW_COUNTS: dict[str, Any] = {"mechanism": "count", "epsilon": 5, "groups": 4, "users": 60}
ROW_KEYS: dict[str, Any] = {**ROW_COUNTS, "private_keys": True, "delta": 1e-4}
# Laplace or Gaussian noise, as a count decides.
ROW_CHOICE: dict[str, Any] = {**ROW_COUNTS, "epsilon": 1, "delta": 1e-6, "groups": 5, "users": 300}
CLIPPED: dict[str, Any] = {"mechanism": "clipped", "bounds": (0, 10), "groups": 4, "max_groups": 1}
KEYS: dict[str, Any] = {**CLIPPED, "private_keys": True, "delta": 1e-4}
COUNT: dict[str, Any] = {"mechanism": "count"}

SHRINKING = {"per": "record", "threshold": 1, "radius": 100, "threshold_power": 0.5, "max_records": 400}
"""Thresholds that shrink with the root of the number of records."""
INFLUENCE = {**SHRINKING, "threshold_power": 1, "max_records": None}
CERTIFIED = {**SHRINKING, "delta": 1e-3, "epsilon": 3}
BY_NAME = {"mechanism": "inverse-sensitivity", "epsilon": 3}


def influence_of_one_record(patch: Patch) -> None:
    """The most that one user adds is taken to be what one with a single record does."""
    patch.setattr(LocationGrid, "influence", lambda self, weight: self.threshold)
    patch.setattr(Geometry, "influence", lambda self, weight: self.threshold)


def heavy_users_add_more(patch: Patch) -> None:
    """Users of many records add four times as much as the score allows for."""
    made = level_sets.influence_bounds

    def bounds(weights: Any, threshold: int, power: int) -> Any:
        return made(weights, threshold, power) * np.where(weights > 100, 4, 1)

    patch.setattr(level_sets, "influence_bounds", bounds)


def steps_for_free(patch: Patch) -> None:
    """The mechanism that follows the steps has the whole budget."""
    made = PreparedEstimatedHuber.last
    patch.setattr(
        PreparedEstimatedHuber, "last", lambda self, found: made(self, replace(found, spent=Fraction(0)))
    )


MUTANTS = [
    *(
        Mutant(
            name=f"influence of one record in {mechanism}",
            broken=influence_of_one_record,
            audit={"mechanism": mechanism, **given},
            pairs=120,
        )
        for mechanism, given in (
            ("inverse-sensitivity", SHRINKING),
            ("propose-test-release", CERTIFIED),
            ("smooth-sensitivity", {**CERTIFIED, "epsilon": 6, "delta": 0.05, "users": 200}),
        )
    ),
    Mutant(
        name="heavy users add more",
        broken=heavy_users_add_more,
        audit={"mechanism": "inverse-sensitivity", **INFLUENCE},
        pairs=40,
    ),
    Mutant(
        name="heavy users add more, add-remove",
        broken=heavy_users_add_more,
        audit={"mechanism": "inverse-sensitivity", **INFLUENCE, "neighbors": "add-remove"},
        pairs=40,
    ),
    Mutant(name="steps for free", broken=steps_for_free, audit=BY_NAME, pairs=2),
    Mutant(name="the interval is not booked, by name", broken=free(ChooseIntervals), audit=BY_NAME, pairs=2),
    # Rates and scales.
    Mutant(
        name="rate of the scale", broken=rate_times(2, IntervalSearch), audit=ADAPTIVE, pairs=12, slow=True
    ),
    Mutant(
        name="rate of the scale, add-remove",
        broken=rate_times(2, IntervalSearch),
        audit=ONE_WAY,
        pairs=30,
        slow=True,
    ),
    Mutant(name="rate of the center", broken=rate_times(2, CenterSearch), audit=KNOWN, pairs=12),
    Mutant(
        name="rate of the center, add-remove",
        broken=rate_times(2, CenterSearch),
        audit={**KNOWN, "neighbors": "add-remove"},
        pairs=12,
    ),
    Mutant(
        name="rate of the center, replace-values",
        broken=rate_times(2, CenterSearch),
        audit={**KNOWN, "neighbors": "replace-values"},
        pairs=12,
    ),
    Mutant(name="rate of the center in rho", broken=rate_times(2, CenterSearch), audit=COLUMNS, pairs=12),
    Mutant(name="rate of the cap", broken=rate_times(3, RankSearch), audit=RECORDS, pairs=20, slow=True),
    Mutant(
        name="rate beyond ties",
        broken=rate_times(3, ChooseIntervalsBeyondTies),
        audit=ADAPTIVE,
        pairs=16,
        slow=True,
    ),
    Mutant(
        name="rate of the bounds",
        broken=rate_times(3, TailSearch),
        audit=ADAPTIVE,
        pairs=16,
        slow=True,
    ),
    Mutant(name="rate of the bounds with few users", broken=rate_times(3, TailSearch), audit=FEW, pairs=12),
    Mutant(
        name="rate of the influence bound",
        broken=rate_times(3, RankSearch),
        audit=CAPPED,
        pairs=20,
        slow=True,
    ),
    Mutant(
        name="half the noise of the number of users", broken=half_the_noise(CountUsers), audit=KNOWN, pairs=12
    ),
    Mutant(
        name="half the noise of the weight",
        broken=beside_a_small_bound(half_the_noise(MeasureWeight)),
        audit=CAPPED,
        pairs=6,
    ),
    Mutant(
        name="half the noise of the first step",
        broken=beside_a_small_bound(half_the_noise(MoveCenters)),
        audit=CAPPED,
        pairs=24,
    ),
    # Sensitivities.
    Mutant(
        name="sensitivity of the scale halved",
        broken=sensitivity_of_the_scale_halved,
        audit=ADAPTIVE,
        pairs=16,
        slow=True,
    ),
    Mutant(
        name="center one way whatever the relation",
        broken=one_way_whatever_the_relation("center_search"),
        audit=KNOWN,
        pairs=12,
    ),
    Mutant(
        name="bounds by total one way whatever the relation",
        broken=one_way_whatever_the_relation("tail_search"),
        audit=FEW,
        pairs=26,
    ),
    Mutant(
        name="cap ignored in the weight",
        broken=beside_a_small_bound(cap_ignored_in_the_weight),
        audit=CAPPED,
        pairs=6,
    ),
    Mutant(
        name="far users in both numbers",
        broken=far_users_in_both_numbers,
        audit={**RECORDS, "neighbors": "add-remove"},
        pairs=12,
        slow=True,
    ),
    Mutant(
        name="half the noise of a weight apart",
        broken=half_the_noise(MeasureWeightAndHeavyUsers),
        audit=RECORDS,
        pairs=12,
        slow=True,
    ),
    Mutant(
        name="half the sensitivity of the weight",
        broken=beside_a_small_bound(half_the_sensitivity_of_the_weight),
        audit=CAPPED,
        pairs=6,
        slow=True,
    ),
    Mutant(
        name="one side of the sum for a replacement", broken=one_side_for_a_replacement, audit=KNOWN, pairs=12
    ),
    Mutant(
        name="half the sensitivity of the sum, add-remove",
        broken=half_the_sensitivity_of_the_sum,
        audit={**KNOWN, "neighbors": "add-remove"},
        pairs=12,
    ),
    Mutant(
        name="half the sensitivity of the sum in rho",
        broken=half_the_sensitivity_of_the_sum,
        audit=COLUMNS,
        pairs=12,
    ),
    Mutant(name="influence not clipped", broken=influence_not_clipped, audit=CAPPED, pairs=12, slow=True),
    Mutant(
        name="a quarter of the sensitivity of the squares",
        broken=half_the_sensitivity_of_the_squares,
        audit={**KNOWN, "neighbors": "add-remove"},
        pairs=12,
    ),
    # Splits, and what is booked.
    Mutant(
        name="squares for free", broken=squares_for_free, audit={**KNOWN, "neighbors": "add-remove"}, pairs=12
    ),
    Mutant(
        name="every column gets all", broken=every_column_gets_all, audit={**KNOWN, "columns": 2}, pairs=12
    ),
    Mutant(name="the scale is not booked", broken=free(ChooseIntervals), audit=ADAPTIVE, pairs=3, slow=True),
    Mutant(
        name="the search beyond ties is not booked",
        broken=free(ChooseIntervalsBeyondTies),
        audit=ADAPTIVE,
        pairs=16,
        slow=True,
    ),
    Mutant(name="the center is not booked", broken=free(ChooseCenters), audit=KNOWN, pairs=3),
    Mutant(name="the bounds are not booked", broken=free(ChooseTails), audit=FEW, pairs=3),
    Mutant(
        name="the influence bound is not booked",
        broken=free(ChooseInfluence),
        audit=CAPPED,
        pairs=3,
        slow=True,
    ),
    Mutant(name="the first step is not booked", broken=free(MoveCenters), audit=CAPPED, pairs=3, slow=True),
    Mutant(name="a refund", broken=a_refund, audit=ADAPTIVE, pairs=6, slow=True),
    Mutant(name="everything for the mean", broken=everything_for_the_mean, audit=KNOWN, pairs=12),
    Mutant(
        name="choices at half their cost",
        broken=priced_at(Fraction(1, 2), "cost_of_selection"),
        audit=KNOWN,
        pairs=12,
    ),
    Mutant(
        name="noise at half its cost",
        broken=priced_at(Fraction(1, 2), "cost_of_noise"),
        audit=KNOWN,
        pairs=12,
    ),
    Mutant(
        name="choices in rho by half their range", broken=choices_by_half_their_range, audit=COLUMNS, pairs=12
    ),
    Mutant(name="twice the rho", broken=rho_without_delta, audit=COLUMNS, pairs=12),
    Mutant(
        name="permute-and-flip in rho",
        broken=flips_in_rho,
        audit={**FEW, "epsilon": 5, "delta": 1e-5, "columns": 6, "users": 100},
        pairs=2,
        slow=True,
    ),
    # Counts.
    Mutant(
        name="half the noise of the count",
        broken=noise_of_the_count_halved,
        audit={**COUNT, "neighbors": "add-remove"},
        pairs=40,
    ),
    Mutant(
        name="cap ignored in the count",
        broken=cap_ignored_in_the_count,
        audit={**COUNT, "per": "record", "max_records": 3},
        pairs=40,
    ),
    Mutant(
        name="rate of the cap of a count",
        broken=rate_times(3, ContributionBoundSearch),
        audit={**COUNT, "per": "record"},
        pairs=30,
        slow=True,
    ),
    Mutant(
        name="the count gets everything",
        broken=the_count_gets_everything,
        audit={**COUNT, "per": "record"},
        pairs=30,
        slow=True,
    ),
    # Groups.
    Mutant(
        name="once for a replacement",
        broken=once_for_a_replacement,
        audit={**COUNT, "groups": 4, "max_groups": 2},
        pairs=20,
    ),
    Mutant(
        name="max_groups not paid for",
        broken=max_groups_not_paid_for,
        audit={**CLIPPED, "max_groups": 2},
        pairs=20,
    ),
    Mutant(
        name="max_groups ignored",
        broken=max_groups_ignored,
        audit={**COUNT, "groups": 4, "max_groups": 1},
        pairs=20,
    ),
    Mutant(name="keys for free", broken=keys_for_free, audit=KEYS, pairs=20, slow=True),
    Mutant(name="delta twice", broken=delta_twice, audit=KEYS, pairs=20),
    Mutant(name="lower threshold for keys", broken=lower_threshold_for_keys, audit=KEYS, pairs=30),
    Mutant(
        name="keys for one change",
        broken=keys_for_one_change,
        audit={**KEYS, "max_groups": 2},
        pairs=120,
        slow=True,
    ),
    # Rows.
    Mutant(name="rows are not clipped", broken=rows_are_not_clipped, audit=ROW_COUNTS, pairs=12),
    Mutant(
        name="every entry is clipped by itself",
        broken=every_entry_is_clipped_by_itself,
        audit=ROW_COUNTS,
        pairs=12,
    ),
    Mutant(
        name="noise for one bound",
        broken=noise_for_one_bound,
        audit={**ROW_COUNTS, "neighbors": "replace-user"},
        pairs=12,
    ),
    Mutant(
        name="rows lie at a right angle",
        broken=rows_lie_at_a_right_angle,
        audit={**ROWS, "delta": 1e-4, "private_keys": True},
        pairs=8,
        slow=True,
    ),
    Mutant(name="sums of rows cost half", broken=sums_of_rows_cost_half, audit=ROW_COUNTS, pairs=8),
    Mutant(name="squares are free", broken=squares_are_free, audit=ROWS, pairs=3, slow=True),
    Mutant(name="norm searches are free", broken=norm_searches_are_free, audit=ROWS, pairs=6),
    Mutant(
        name="queries get what the steps spent",
        broken=queries_get_what_the_steps_spent,
        audit=ROW_COUNTS,
        pairs=4,
    ),
    Mutant(name="the choice of noise is free", broken=the_choice_of_noise_is_free, audit=ROW_CHOICE, pairs=6),
    Mutant(
        name="Laplace noise for all of epsilon",
        broken=laplace_noise_for_all_of_epsilon,
        audit=ROW_CHOICE,
        pairs=6,
    ),
    Mutant(
        name="users in many counted by group",
        broken=users_in_many_counted_by_group,
        audit=ROW_CHOICE,
        pairs=12,
    ),
    Mutant(name="a whole unit in every group", broken=a_whole_unit_in_every_group, audit=ROW_KEYS, pairs=10),
    Mutant(
        name="a threshold for half of the users",
        broken=a_threshold_for_half_of_the_users,
        audit={**ROW_KEYS, "neighbors": "add-remove"},
        pairs=36,
    ),
    Mutant(name="selection of rows for free", broken=selection_of_rows_for_free, audit=ROW_KEYS, pairs=4),
    Mutant(
        name="interval for groups one way",
        broken=one_way_whatever_the_relation("interval_search"),
        audit=GROUPS,
        pairs=12,
        slow=True,
    ),
]
