"""Which bound a pass takes, from public and released numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hubermean.accounting.budget import PrivacyBudget
from hubermean.mechanisms.groups.row_plan import RowPlan
from hubermean.mechanisms.groups.row_queries import Accounting


def plan(kind: str = "pure", groups: int = 6, users: float = 6000.0) -> RowPlan:
    budget = PrivacyBudget(accounting=kind, total=Fraction(1))  # type: ignore[arg-type]
    return RowPlan(
        accounting=Accounting(budget=budget, add_remove=True),
        groups=groups,
        users=users,
        columns=1,
        hostile=0.0,
        per="user",
    )


@pytest.mark.parametrize("kind", ["pure", "concentrated"])
def test_a_bound_is_stretched_to_the_rank_that_a_search_cannot_afford(kind: str) -> None:
    """Further the heavier the tail is that was seen, never to less than was found, and fewer rows are beyond."""
    made = plan(kind)
    search = made.search(1, Fraction(1), 1.0)
    beyond = search.expected_beyond
    same = made.stretch(10.0, search, rank=2 * beyond, usual=1.0)
    assert same == (10.0, beyond), "the search was as good as it needs to be"
    light, heavy = (made.stretch(found, search, rank=5.0, usual=1.0) for found in (2.0, 50.0))
    assert 1.0 < light[0] / 2.0 < heavy[0] / 50.0
    assert 5.0 < light[1] == heavy[1] < beyond
    assert made.stretch(0.5, search, rank=5.0, usual=1.0)[0] == 0.5, (
        "shorter than a usual row: there is no tail"
    )


@pytest.mark.parametrize(("kind", "longest"), [("pure", 9.0), ("concentrated", 3.0)])
def test_no_row_of_weights_is_longer_than_all_groups(kind: str, longest: float) -> None:
    assert longest <= plan(kind, groups=9).longest_row <= longest * (1 + 1e-12)


def test_searches_for_few_users_still_outweigh_their_base_measure() -> None:
    few, many = (plan(users=users).search(1, Fraction(1), 20.0) for users in (300.0, 10_000.0))
    assert few.steepness < many.steepness == 1.0
    assert few.epsilon >= many.epsilon
