"""What releases by group cost: every change that one user can make, which groups appear, and what is sought."""

from __future__ import annotations

import decimal
import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.group_records import RELATIONS, records, request
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.partition_selection import PartitionSelection
from hubermean.types.request import Neighbors


@pytest.mark.parametrize(
    ("neighbors", "changes"), [("add-remove", 3), ("replace-user", 6), ("replace-values", 6)]
)
def test_the_budget_pays_for_every_change_that_one_user_can_make(neighbors: str, changes: int) -> None:
    group_split = GroupBudgetSplit.of(request(neighbors, delta=1e-6), max_groups=3, groups=5)
    assert group_split.changes == changes
    one = group_split.one_group()
    assert one.neighbors is Neighbors.ADD_REMOVE
    assert Fraction(one.epsilon) * changes <= 1
    if neighbors == "add-remove":
        assert one.delta * changes <= 1e-6
    else:
        assert changes / 2 * (1 + math.exp(one.epsilon)) * one.delta <= 1e-6
    private = GroupBudgetSplit.of(request(neighbors, delta=1e-6), max_groups=3, groups=None)
    assert private.selection is not None
    assert private.selection.epsilon * changes + Fraction(private.means.epsilon) <= 1
    assert private.selection.delta * changes + Fraction(private.means.delta) <= Fraction(1e-6)


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(1e-3, 50), delta=st.floats(1e-15, 0.4))
def test_chances_to_appear_satisfy_both_inequalities_exactly(epsilon: float, delta: float) -> None:
    """In whole numbers, with a rational number below e^epsilon from its series."""
    rule = PartitionSelection(epsilon=Fraction(epsilon), delta=Fraction(delta))
    whole, passes = 1 << rule.bits, rule.passes
    term = growth = Fraction(1)
    for power in range(1, 200):
        term = (term * Fraction(epsilon).limit_denominator(10**9) / power).limit_denominator(10**30)
        growth += term
    growth *= 1 + Fraction(1, 10**6)  # above e^epsilon: what the rule keeps for less, it keeps for this
    allowed = Fraction(delta) * whole
    assert passes[0] == 0
    assert passes[1] <= allowed
    for before, after in itertools.pairwise(passes):
        assert before <= after <= whole
        assert after <= growth * before + allowed
        assert whole - before <= growth * (whole - after) + allowed


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("max_groups", [1, 3])
def test_small_groups_hardly_ever_appear_and_large_ones_do(neighbors: str, max_groups: int) -> None:
    for delta in (1e-4, 1e-6, 1e-9):
        group_split = GroupBudgetSplit.of(request(neighbors, delta=delta), max_groups=max_groups, groups=None)
        assert group_split.selection is not None
        assert 0 < group_split.selection.probability(1) <= delta
        assert group_split.selection.probability(0) == 0
        assert group_split.selection.probability(1_000) > 0.99


def test_groups_appear_in_releases_as_often_as_they_should() -> None:
    """Groups of one user at delta = 0.3, of 15 and of 1,000 at epsilon = 1; chances as in the rule, at 1e-6."""
    from scipy import stats

    sizes = (
        {f"one {number}": 1 for number in range(40)}
        | {f"some {number}": 15 for number in range(40)}
        | {"many": 1_000}
    )
    names = [name for name, size in sizes.items() for _ in range(size)]
    data = pa.table({"user": np.arange(len(names)), "group": names, "value": np.ones(len(names))})
    asked = request("add-remove", delta=0.3)
    rule = GroupBudgetSplit.of(asked, max_groups=1, groups=None, delta_for="keys").selection
    assert rule is not None
    seen: Counter[str] = Counter()
    for _ in range(25):
        made = hm.count(data, user="user", by="group", epsilon=1, delta=0.3, max_groups=1)
        seen.update(key[0].split()[0] for key in made.keys)
    assert seen["many"] == 25
    for kind, size in (("one", 1), ("some", 15)):
        assert stats.binomtest(seen[kind], 1_000, rule.probability(size)).pvalue > 1e-6
    assert rule.probability(1) <= 0.3


def test_chances_keep_the_inequality_at_large_epsilon_too() -> None:
    """A float of epsilon is off by up to 2^-48 there; ratios are compared with e^epsilon in 60 digits."""
    with decimal.localcontext(prec=60):
        for epsilon in (164.35919268397632, 123.456, 199.99):
            rule = PartitionSelection(epsilon=Fraction(epsilon) / 5, delta=Fraction(1e-30))
            exact = (
                decimal.Decimal(rule.epsilon.numerator) / decimal.Decimal(rule.epsilon.denominator)
            ).exp()
            _, one, two, *_ = rule.passes
            assert two - one <= exact * one


@pytest.mark.usefixtures("seeded_releases")
def test_a_refusal_costs_what_choosing_the_groups_did_as_well() -> None:
    data = pa.table({"user": np.arange(3_000), "group": ["a"] * 3_000, "value": np.full(3_000, math.nan)})
    with pytest.raises(hm.NotReleased, match=r"of 2 and delta = 0\.0005 were spent") as refusal:
        hm.mean(data, user="user", value="value", by="group", epsilon=2, delta=1e-3, max_groups=1, per="user")
    # A fifth of epsilon and half of delta for the groups, and 6% of what is left for the number of users.
    assert refusal.value.epsilon == pytest.approx(0.4 + 0.06 * 1.6, abs=2e-6)
    assert refusal.value.delta == 5e-4
    with pytest.raises(hm.NotReleased, match=r"delta = 0\.001 were spent") as refusal:
        hm.mean(data, user="user", value="value", by="group", epsilon=2, delta=1e-3, per="user")
    assert 0.2 < refusal.value.epsilon < 2.0
    assert refusal.value.delta == 1e-3


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_what_is_sought_never_costs_more_than_there_is(neighbors: str, columns: int) -> None:
    """Over sizes and budgets, with the dearest answers: the account of a release adds up to what was asked for."""
    rng = np.random.default_rng(12)
    for n_users, epsilon in ((1_500, 3.0), (4_000, 1.0), (30_000, 0.3), (30_000, 4.0)):
        values = {f"v{number}": rng.standard_cauchy(n_users) for number in range(columns)}
        data = pa.table({"user": np.arange(n_users), "group": np.arange(n_users) % 3, **values})
        try:
            made = hm.mean(
                data,
                user="user",
                value=list(values),
                by="group",
                epsilon=epsilon,
                delta=1e-6,
                neighbors=neighbors,
            )
        except (hm.InputError, hm.NotReleased):
            continue
        assert sum(
            Fraction(one.amount) for one in made.budget_breakdown if one.unit == "epsilon"
        ) <= Fraction(epsilon)
        assert sum(Fraction(one.amount) for one in made.budget_breakdown if one.unit == "delta") <= Fraction(
            1e-6
        )


def test_nobody_is_in_more_groups_than_there_are() -> None:
    """So that a generous max_groups costs nothing where keys are public and few."""
    options: dict[str, Any] = {"user": "user", "value": "value", "by": "group", "keys": ["g0", "g1"]}
    few, many = (
        hm.mean(records(), epsilon=1, bounds=(0, 20), per="user", max_groups=most, **options)
        for most in (2, 1_000)
    )
    assert few.parameters == many.parameters
    assert many.max_groups == 2


def test_counts_spend_delta_on_nothing_but_keys() -> None:
    made = hm.count(records(2_000), user="user", by="group", epsilon=1, delta=1e-6, max_groups=3)
    assert [(one.what, one.unit) for one in made.budget_breakdown] == [
        ("which groups appear", "epsilon"),
        ("which groups appear", "delta"),
        ("the count", "epsilon"),
    ]
    assert sum(one.amount for one in made.budget_breakdown if one.unit == "delta") <= 1e-6
