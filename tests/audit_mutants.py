"""Slips planted in the adaptive mechanism, in groups and in counts, one at a time: what an audit must find.

Each is a change of a rate, a sensitivity, a split of the budget or of what is booked. The audit is told nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hubermean.groups.tuned import LookFurther
from hubermean.mechanisms.tuned import PreparedTuned
from hubermean.mechanisms.tuning_steps import ChooseSpread, CountUsers, LookBeyondTies, MeasureWeight

from hubermean.groups import Division, prepare
from hubermean.groups import tuned as tuned_groups
from hubermean.groups.selection import KeySelection
from hubermean.ingest.group_query import GroupQuery
from hubermean.mechanisms import counted, tuning_steps
from hubermean.mechanisms.counted import Count, PreparedCount
from hubermean.mechanisms.moments import Moments
from hubermean.mechanisms.purse import Purse
from hubermean.tuning import CapSearch, PlaceSearch, SpreadSearch

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
    made = search.law  # type: ignore[attr-defined]
    patch.setattr(search, "law", lambda self, *given, **named: change(made(self, *given, **named)))


def faster(times: Fraction | int) -> Callable[[Any], Any]:
    return lambda law: replace(law, rate=law.rate * times) if hasattr(law, "rate") else law


def quieter(share: float) -> Callable[[Any], Any]:
    def change(law: Any) -> Any:
        return replace(law, noise=[replace(one, scale=one.scale * share) for one in law.laws()])

    return change


def twice_the_rate(search: type) -> Break:
    return lambda patch: law_of(search, patch, faster(2))


def half_the_noise(step: type) -> Break:
    return lambda patch: law_of(step, patch, quieter(0.5))


def free(step: type) -> Break:
    """The step is not booked."""

    def broken(patch: Patch) -> None:
        made = step.learn  # type: ignore[attr-defined]
        patch.setattr(
            step, "learn", lambda self, found, draw: replace(made(self, found, draw), spent=found.spent)
        )

    return broken


def priced_at(share: Fraction, method: str) -> Break:
    """The purse asks for less than a step costs."""

    def broken(patch: Patch) -> None:
        made = getattr(Purse, method)
        patch.setattr(Purse, method, lambda self, epsilon: share * made(self, epsilon))

    return broken


def one_way_whatever_the_relation(patch: Patch) -> None:
    """The discount of `add-remove` for scores that move one way, where users are replaced."""
    made = PlaceSearch.plan.__func__  # type: ignore[attr-defined]
    broken = classmethod(lambda cls, *given, **named: made(cls, *given, **{**named, "one_way": True}))
    patch.setattr(PlaceSearch, "plan", broken)


def cap_forgotten_in_the_spread(patch: Patch) -> None:
    """A user weighs up to the cap; the rate is that of users who weigh one."""
    made = SpreadSearch.law
    patch.setattr(
        SpreadSearch,
        "law",
        lambda self, line, *, cap: replace(law := made(self, line, cap=cap), rate=law.rate * cap),
    )


def cap_forgotten_in_the_place(patch: Patch) -> None:
    made = PlaceSearch.law
    patch.setattr(PlaceSearch, "law", lambda self, line, *, cap: made(self, line, cap=1))


def cap_ignored_in_the_weight(patch: Patch) -> None:
    """The weight adds up all records, the noise is for users who reach the cap."""
    made = tuning_steps.Weighing
    patch.setattr(tuning_steps, "Weighing", lambda request, cap: made(request, 10 * cap))


def half_the_sensitivity_of_the_weight(patch: Patch) -> None:
    made = MeasureWeight._noise
    patch.setattr(
        MeasureWeight, "_noise", lambda self, found: replace(law := made(self, found), scale=law.scale / 2)
    )


def everything_for_the_mean(patch: Patch) -> None:
    """The mean gets the whole budget, though steps took their part of it."""

    def clipped(self: PreparedTuned, found: Any) -> Any:
        return self.planner.clipped(replace(found, spent=Fraction(0))).prepare(self.request, self.facts)

    patch.setattr(PreparedTuned, "clipped", clipped)


def a_refund(patch: Patch) -> None:
    """What the search for a spread did not need of its part is given back twice."""
    made = ChooseSpread.learn

    def learn(self: ChooseSpread, found: Any, draw: int) -> Any:
        after = made(self, found, draw)
        return replace(after, spent=after.spent - (after.spent - found.spent) * 2)

    patch.setattr(ChooseSpread, "learn", learn)


def rho_without_delta(patch: Patch) -> None:
    """A concentrated budget that takes no notice of the conversion."""
    made = Purse.concentrated.__func__  # type: ignore[attr-defined]

    def concentrated(cls: Any, epsilon: float, delta: float) -> Purse:
        right: Purse = made(cls, epsilon, delta)
        return replace(right, total=right.total * 2)

    patch.setattr(Purse, "concentrated", classmethod(concentrated))
    patch.setattr("hubermean.mechanisms.clipped.largest_rho", lambda epsilon, delta: 10.0)


def choices_by_their_epsilon(patch: Patch) -> None:
    """A choice is priced eps^2/32 in rho, as if its range were half its epsilon."""
    priced_at(Fraction(1, 4), "of_choice")(patch)


def sums_of_half_the_sensitivity(patch: Patch) -> None:
    made = Moments.sensitivity
    patch.setattr(Moments, "sensitivity", lambda self: made(self) // 2)


def stretched_beyond_the_cap(patch: Patch) -> None:
    """Users of few records are clamped as if each of them weighed one."""
    from hubermean.mechanisms.clipped import PreparedClipped

    made = PreparedClipped._stretched
    patch.setattr(
        PreparedClipped,
        "_stretched",
        lambda self, half, records: np.maximum(made(self, half, records), 2 * half),
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
        counted.PreparedTunedCount,
        "counted",
        lambda self, found: Count(record_cap=found.cap).prepare(self.request, self.facts),
    )


def division_with(patch: Patch, change: Callable[[Division], Division]) -> None:
    made = Division.of.__func__  # type: ignore[attr-defined]
    patch.setattr(
        Division, "of", classmethod(lambda cls, *given, **named: change(made(cls, *given, **named)))
    )


def once_for_a_replacement(patch: Patch) -> None:
    """Whoever is replaced is taken for one change of each group, not for two."""
    division_with(patch, lambda right: replace(right, changes=right.max_groups))


def max_groups_not_paid_for(patch: Patch) -> None:
    division_with(patch, lambda right: replace(right, changes=right.changes // right.max_groups))


def max_groups_ignored(patch: Patch) -> None:
    from hubermean.ingest import rows

    patch.setattr(rows, "GroupQuery", lambda **given: GroupQuery(**{**given, "max_groups": None}))


def keys_for_free(patch: Patch) -> None:
    """What choosing the groups costs is not taken off the means."""

    def change(right: Division) -> Division:
        whole = right.whole.epsilon
        return replace(
            right,
            means=replace(right.means, epsilon=whole),
            tuning=replace(right.tuning, epsilon=whole),
        )

    division_with(patch, change)


def delta_twice(patch: Patch) -> None:
    """Keys and means each get all of delta."""

    def change(right: Division) -> Division:
        assert right.selection is not None
        selection = replace(right.selection, delta=right.selection.delta * 2)
        return replace(right, selection=selection, means=replace(right.means, delta=right.whole.delta))

    division_with(patch, change)


def lower_threshold_for_keys(patch: Patch) -> None:
    """A group appears as if it had one user more."""
    made = KeySelection.passes.func  # type: ignore[attr-defined]
    patch.setattr(KeySelection, "passes", property(lambda self: (0, *made(self)[2:])))


def keys_for_one_change(patch: Patch) -> None:
    """Every group is chosen with the whole of what keys may cost."""

    def change(right: Division) -> Division:
        assert right.selection is not None
        selection = right.selection
        return replace(right, selection=replace(selection, epsilon=selection.epsilon * right.changes))

    division_with(patch, change)


def groups_get_the_whole_rest(patch: Patch) -> None:
    """What the steps spent is not taken off the means of the groups."""
    patch.setattr(tuned_groups, "remaining", lambda steps, found, request: request)


def no_changes_in_the_clipped_means(patch: Patch) -> None:
    """The bounds that steps found are used as for one group."""
    made = tuned_groups.clipped_for_groups
    patch.setattr(
        prepare,
        "clipped_for_groups",
        lambda steps, division, facts: made(steps, replace(division, changes=1), facts),
    )


TUNED: dict[str, Any] = {"mechanism": "tuned"}
SMALL: dict[str, Any] = {**TUNED, "users": 450}  # too few to search beyond ties, and so faster
RECORDS: dict[str, Any] = {**TUNED, "per": "record"}
COLUMNS: dict[str, Any] = {**TUNED, "delta": 1e-5, "columns": 3}
GROUPS: dict[str, Any] = {**TUNED, "groups": 3}
CLIPPED: dict[str, Any] = {"mechanism": "clipped", "bounds": (0, 10), "groups": 4}
KEYS: dict[str, Any] = {**CLIPPED, "private_keys": True, "delta": 1e-4}
COUNT: dict[str, Any] = {"mechanism": "count"}

MUTANTS = [
    # Rates and scales.
    Mutant(name="twice the rate of the spread", broken=twice_the_rate(SpreadSearch), audit=SMALL, pairs=12),
    Mutant(
        name="twice the rate of the spread, add-remove",
        broken=twice_the_rate(SpreadSearch),
        audit={**TUNED, "neighbors": "add-remove"},
        pairs=60,
        slow=True,
    ),
    Mutant(name="twice the rate of the place", broken=twice_the_rate(PlaceSearch), audit=SMALL, pairs=12),
    Mutant(
        name="twice the rate of the cap", broken=twice_the_rate(CapSearch), audit=RECORDS, pairs=20, slow=True
    ),
    Mutant(name="twice the rate beyond ties", broken=twice_the_rate(LookBeyondTies), audit=TUNED, pairs=16),
    Mutant(
        name="twice the rate of the spread for all groups",
        broken=twice_the_rate(LookFurther),
        audit=GROUPS,
        pairs=40,
        slow=True,
    ),
    Mutant(
        name="half the noise of the number of users",
        broken=half_the_noise(CountUsers),
        audit={**RECORDS, "neighbors": "add-remove"},
        pairs=12,
    ),
    Mutant(name="half the noise of the weight", broken=half_the_noise(MeasureWeight), audit=SMALL, pairs=12),
    Mutant(
        name="twice the rate of the place, in rho",
        broken=twice_the_rate(PlaceSearch),
        audit=COLUMNS,
        pairs=20,
        slow=True,
    ),
    # Sensitivities.
    Mutant(
        name="one way whatever the relation",
        broken=one_way_whatever_the_relation,
        audit=SMALL,
        pairs=20,
        slow=True,
    ),
    Mutant(
        name="cap forgotten in the spread",
        broken=cap_forgotten_in_the_spread,
        audit={**RECORDS, "record_cap": 5},
        pairs=20,
        slow=True,
    ),
    Mutant(
        name="cap forgotten in the place",
        broken=cap_forgotten_in_the_place,
        audit={**RECORDS, "record_cap": 5},
        pairs=20,
        slow=True,
    ),
    Mutant(
        name="cap ignored in the weight",
        broken=cap_ignored_in_the_weight,
        audit={**RECORDS, "record_cap": 5},
        pairs=12,
        slow=True,
    ),
    Mutant(
        name="half the sensitivity of the weight",
        broken=half_the_sensitivity_of_the_weight,
        audit={**RECORDS, "record_cap": 5},
        pairs=12,
        slow=True,
    ),
    Mutant(
        name="sums of half the sensitivity",
        broken=sums_of_half_the_sensitivity,
        audit=SMALL,
        pairs=12,
        slow=True,
    ),
    Mutant(
        name="few records stretched too far",
        broken=stretched_beyond_the_cap,
        audit={**RECORDS, "record_cap": 5},
        pairs=20,
        slow=True,
    ),
    # Splits, and what is booked.
    Mutant(name="the spread is not booked", broken=free(ChooseSpread), audit=SMALL, pairs=12),
    Mutant(name="the search beyond ties is not booked", broken=free(LookBeyondTies), audit=TUNED, pairs=16),
    Mutant(
        name="the spread for all groups is not booked",
        broken=free(LookFurther),
        audit=GROUPS,
        pairs=40,
        slow=True,
    ),
    Mutant(name="a refund", broken=a_refund, audit=TUNED, pairs=12, slow=True),
    Mutant(name="everything for the mean", broken=everything_for_the_mean, audit=SMALL, pairs=20, slow=True),
    Mutant(
        name="choices at half their price",
        broken=priced_at(Fraction(1, 2), "of_choice"),
        audit=SMALL,
        pairs=12,
        slow=True,
    ),
    Mutant(
        name="noise at half its price",
        broken=priced_at(Fraction(1, 2), "of_noise"),
        audit=TUNED,
        pairs=12,
        slow=True,
    ),
    Mutant(
        name="choices in rho by half their range",
        broken=choices_by_their_epsilon,
        audit=COLUMNS,
        pairs=20,
        slow=True,
    ),
    Mutant(name="twice the rho", broken=rho_without_delta, audit=COLUMNS, pairs=12, slow=True),
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
        audit={**COUNT, "per": "record", "record_cap": 3},
        pairs=40,
    ),
    Mutant(
        name="twice the rate of the cap of a count",
        broken=twice_the_rate(CapSearch),
        audit={**COUNT, "per": "record"},
        pairs=30,
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
    Mutant(name="max_groups ignored", broken=max_groups_ignored, audit={**COUNT, "groups": 4}, pairs=20),
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
    Mutant(
        name="groups get the whole rest", broken=groups_get_the_whole_rest, audit=GROUPS, pairs=30, slow=True
    ),
    Mutant(
        name="no changes in the clipped means",
        broken=no_changes_in_the_clipped_means,
        audit=GROUPS,
        pairs=30,
        slow=True,
    ),
]
