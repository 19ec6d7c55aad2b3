"""`inverse-sensitivity` keeps its guarantee on small datasets, enumerated completely and compared in integers.

For every setting below, relation and number of users, *every* dataset is scored by the mechanism and *every* pair of
neighbors is compared at every point of the grid; nothing is sampled (`small_datasets` says how). By default that is
22,694 datasets and 220,868 pairs, with up to five users; the slow suite goes to six and has
390,865 datasets and 5,909,181 pairs. `COUNTS` has them one by one, and some are gone through at several depths.

A score that changes by at most one is enough for every epsilon; the loss itself is computed for three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.small_datasets import Setting, enumerate_datasets
from hubermean.data.arrays import IntArray
from hubermean.distributed import level_sets
from hubermean.huber import level_sets as level_set_kernel
from hubermean.huber import thresholds
from hubermean.huber.level_sets import SortedUsers, add_remove_level_set_ends
from hubermean.mechanisms.inverse_sensitivity.grid import LocationGrid
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, PreparedInverseSensitivity
from hubermean.types.request import Neighbors, PublicFacts, Request

REPLACE_USER, REPLACE_VALUES, ADD_REMOVE = Neighbors
ODDS = (Fraction(1, 2), Fraction(2, 3), Fraction(9, 10))  # x = exp(-epsilon / 2)

# A value of 9 is beyond radius and threshold, so these settings also go through the clamp.
SETTINGS = {
    "equal": Setting(radius=3, threshold=2, values=tuple(range(-5, 6)), records=None),
    "unequal": Setting(radius=2, threshold=1, values=(-9, -1, 0, 1, 9), records=(1, 2, 3)),
    "every value": Setting(radius=2, threshold=1, values=tuple(range(-3, 4)), records=(1, 3)),
    "few": Setting(radius=4, threshold=1, values=(-9, 0, 9), records=(1, 3)),
    # Thresholds that shrink with the number of records, to less than a point of the grid for the heaviest users.
    "by the root": Setting(radius=3, threshold=2, values=(-9, -1, 0, 2, 9), records=(1, 3, 10), power=0.5),
    "by influence": Setting(
        radius=3, threshold=3, values=(-9, -1, 0, 2, 9), records=(1, 2, 10_000), power=1.0
    ),
    "by influence, no cap": Setting(
        radius=3, threshold=3, values=(-9, -1, 0, 2, 9), records=(1, 2, 10_000), power=1.0, capped=False
    ),
    "long": Setting(radius=12, threshold=1, values=tuple(range(-13, 14)), records=None),
}
COUNTS: dict[tuple[str, int], dict[Neighbors, tuple[int, int]]] = {
    ("equal", 4): {
        REPLACE_USER: (1_819, 30_030),
        REPLACE_VALUES: (1_819, 30_030),
        ADD_REMOVE: (1_820, 5_460),
    },
    ("unequal", 3): {REPLACE_USER: (968, 18_360), REPLACE_VALUES: (1_329, 8_550), ADD_REMOVE: (969, 2_448)},
    **{
        (name, 3): {REPLACE_USER: (968, 18_360), REPLACE_VALUES: (1_329, 8_550), ADD_REMOVE: (969, 2_448)}
        for name in ("by the root", "by influence", "by influence, no cap")
    },
    ("few", 5): {REPLACE_USER: (791, 6_930), REPLACE_VALUES: (1_286, 5_940), ADD_REMOVE: (792, 2_310)},
    ("long", 2): {REPLACE_USER: (434, 10_962), REPLACE_VALUES: (434, 10_962), ADD_REMOVE: (435, 812)},
    ("equal", 5): {
        REPLACE_USER: (6_187, 120_120),
        REPLACE_VALUES: (6_187, 120_120),
        ADD_REMOVE: (6_188, 21_840),
    },
    ("equal", 6): {
        REPLACE_USER: (18_563, 408_408),
        REPLACE_VALUES: (18_563, 408_408),
        ADD_REMOVE: (18_564, 74_256),
    },
    ("unequal", 6): {
        REPLACE_USER: (74_612, 2_441_880),
        REPLACE_VALUES: (134_595, 1_514_205),
        ADD_REMOVE: (74_613, 325_584),
    },
    ("every value", 5): {
        REPLACE_USER: (15_503, 406_980),
        REPLACE_VALUES: (20_348, 271_320),
        ADD_REMOVE: (15_504, 58_140),
    },
}


def slow(*case: object) -> Any:
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize(
    ("name", "most_users", "n_levels"),
    [
        ("equal", 4, None),
        ("equal", 4, 1),
        ("unequal", 3, None),
        ("by the root", 3, None),
        ("by influence", 3, None),
        ("by influence", 3, 2),
        ("by influence, no cap", 3, None),
        ("few", 5, None),
        ("few", 5, 1),
        ("few", 5, 2),
        slow("equal", 6, None),
        slow("equal", 5, 2),
        slow("unequal", 6, None),
        slow("every value", 5, None),
        slow("every value", 5, 2),
    ],
)
def test_no_pair_of_all_small_datasets_exceeds_epsilon(
    name: str, most_users: int, n_levels: int | None, relation: Neighbors
) -> None:
    """A public n_levels below the largest score must keep the guarantee too; it also makes the kernel drop users."""
    found = enumerate_datasets(SETTINGS[name], relation, most_users, odds=ODDS, n_levels=n_levels)
    assert (found.datasets, found.pairs) == COUNTS[name, most_users][relation]
    assert found.misread == 0
    assert found.broken == []
    assert found.difference == 1
    assert found.both_ways, "no pair has scores that rise and fall: the search is blind"
    assert found.worst > 0.65


@pytest.mark.parametrize("relation", list(Neighbors))
def test_the_guarantee_is_nearly_used_up(relation: Neighbors) -> None:
    """On a longer grid one point can become likelier while nearly all others become less likely."""
    found = enumerate_datasets(SETTINGS["long"], relation, 2, odds=ODDS)
    assert (found.datasets, found.pairs) == COUNTS["long", 2][relation]
    assert found.misread == 0
    assert found.broken == []
    assert found.worst > 0.95


# What follows shows that the enumeration sees faults: the mechanism is spoiled, and some pair must break the guarantee.

Fault = Callable[[pytest.MonkeyPatch], None]


def twice_the_rate(patch: pytest.MonkeyPatch) -> None:
    real = InverseSensitivity.prepare

    def prepare(self: InverseSensitivity, request: Request, facts: PublicFacts) -> PreparedInverseSensitivity:
        prepared = real(self, request, facts)
        return replace(prepared, rate=2 * prepared.rate)

    patch.setattr(InverseSensitivity, "prepare", prepare)


def build_users_with(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Fault:
    def spoil(patch: pytest.MonkeyPatch) -> None:
        real = SortedUsers.build
        patch.setattr(
            SortedUsers, "build", lambda *users, **known: real(*users, **{**known, **change(known)})
        )

    return spoil


def no_cap_on_influences(patch: pytest.MonkeyPatch) -> None:
    def ends(users: SortedUsers, *, influence_cap: int, **known: int) -> tuple[IntArray, IntArray]:
        return add_remove_level_set_ends(users, influence_cap=users.threshold, **known)

    patch.setattr(level_sets, "add_remove_level_set_ends", ends)


def influence_of_one_record(patch: pytest.MonkeyPatch) -> None:
    """The most that one user adds is taken to be what one with a single record does."""
    patch.setattr(LocationGrid, "influence", lambda self, weight: self.threshold)


def thresholds_of_at_least_one(patch: pytest.MonkeyPatch) -> None:
    """A threshold rounded up to a point of the grid: a user of 10,000 records has 10,000 times the influence."""

    def bounds(weights: IntArray, threshold: int, power: int) -> IntArray:
        real = thresholds.influence_bounds(weights, threshold, power)
        return weights * np.maximum(real // np.maximum(weights, 1), 1)

    patch.setattr(level_set_kernel, "influence_bounds", bounds)


def move_ends(levels: slice, by: int) -> Fault:
    def spoil(patch: pytest.MonkeyPatch) -> None:
        for name in ("level_set_ends", "add_remove_level_set_ends"):
            patch.setattr(level_sets, name, moved(getattr(level_sets, name)))

    def moved(real: Callable[..., tuple[IntArray, IntArray]]) -> Callable[..., tuple[IntArray, IntArray]]:
        def ends(users: SortedUsers, *, radius: int, **known: int) -> tuple[IntArray, IntArray]:
            first, last = real(users, radius=radius, **known)
            last[levels] = np.minimum(last[levels] + by, radius)
            return first, np.maximum.accumulate(last)  # level sets stay nested

        return ends

    return spoil


FAULTS: dict[str, Fault] = {
    "twice the rate": twice_the_rate,
    "own weight as reach": build_users_with(lambda known: {"max_influence": None}),
    "no inactive users": build_users_with(lambda known: {"inactive": known["inactive"][:0]}),
    "inactive users of weight one": build_users_with(
        lambda known: {"inactive": np.full_like(known["inactive"], known["threshold"])}
    ),
    "no cap on influences": no_cap_on_influences,
    "innermost shell too wide": move_ends(slice(0, 1), 1),
    "second shell too narrow": move_ends(slice(1, 2), -1),
    "all level sets shifted": move_ends(slice(None), 1),
}


@pytest.mark.parametrize(
    ("fault", "relation"),
    [
        *(("twice the rate", relation) for relation in Neighbors),
        ("own weight as reach", REPLACE_USER),
        ("no inactive users", REPLACE_VALUES),
        ("inactive users of weight one", REPLACE_VALUES),
        ("no cap on influences", ADD_REMOVE),
        *(("innermost shell too wide", relation) for relation in Neighbors),
        *(("second shell too narrow", relation) for relation in Neighbors),
    ],
)
def test_a_spoiled_mechanism_breaks_the_guarantee(
    fault: str, relation: Neighbors, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[fault](monkeypatch)
    found = enumerate_datasets(SETTINGS["few"], relation, 4, odds=ODDS[:1])
    assert found.broken
    assert found.worst > 1
    assert found.difference > 1 or fault == "twice the rate"


@pytest.mark.parametrize("relation", [REPLACE_USER, ADD_REMOVE])
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (influence_of_one_record, "by the root"),
        (thresholds_of_at_least_one, "by influence"),
        (thresholds_of_at_least_one, "by influence, no cap"),
    ],
)
def test_a_spoiled_influence_bound_breaks_the_guarantee(
    fault: Fault, name: str, relation: Neighbors, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = enumerate_datasets(SETTINGS[name], relation, 3, odds=ODDS[:1])
    assert found.broken
    assert found.difference > 1


@pytest.mark.parametrize("relation", list(Neighbors))
def test_shifted_level_sets_are_seen_by_the_definition_alone(
    relation: Neighbors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score that is wrong by the same shift everywhere is private; only the definition can tell."""
    FAULTS["all level sets shifted"](monkeypatch)
    found = enumerate_datasets(SETTINGS["few"], relation, 3, odds=ODDS[:1])
    assert found.misread
    assert found.broken == []


def test_inactive_users_never_matter_under_replace_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users whose gradient has the wrong sign are changed first; once all are, the sum has crossed zero."""
    FAULTS["no inactive users"](monkeypatch)
    assert enumerate_datasets(SETTINGS["few"], REPLACE_USER, 5, odds=ODDS[:1]).misread == 0
