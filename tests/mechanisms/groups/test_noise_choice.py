"""Laplace or Gaussian noise, decided by a private count: neither branch costs more than the whole guarantee."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from helpers.rows import Row, make_rows
from hubermean.accounting.budget import Claim, PrivacyBudget
from hubermean.accounting.concentrated import largest_rho
from hubermean.auditing.claims import ADDS_UP, measure_claims
from hubermean.distributions.output import NoiseDistribution, NoisySum, Staged
from hubermean.mechanisms.adaptive.parameters import AdaptiveEstimates
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.noise_choice import (
    UsersInMany,
    equal_groups,
    few_groups,
    resolve_accounting,
)
from hubermean.types.request import Request

EPSILON, DELTA = 1.0, 1e-6
RHO = Fraction(largest_rho(EPSILON, DELTA))
UNRESOLVED = PrivacyBudget(accounting="concentrated", total=RHO, pure_total=Fraction(1))
GROUPS = 5
ONE: Row = [(0, 1.0, 1)]
MANY: Row = [(group, 1.0, 1) for group in range(GROUPS)]


def resolve(found: AdaptiveEstimates, number: float, budget: PrivacyBudget = UNRESOLVED) -> tuple[Any, Any]:
    """The query, if there is one, and the accounting that this sample of it leads to."""
    chain = resolve_accounting(budget, found, few=2, add_remove=True)
    try:
        query = next(chain)
        chain.send([number])
    except StopIteration as end:
        return locals().get("query"), end.value
    raise AssertionError("there is one query")


SPENT = AdaptiveEstimates(users=1000.0, spent=RHO / 10, epsilon=Fraction(3, 20))


@pytest.mark.parametrize(("number", "kind"), [(0, "pure"), (300, "pure"), (400, "concentrated")])
def test_users_in_many_groups_have_gaussian_noise(number: int, kind: str) -> None:
    query, accounting = resolve(SPENT, number)
    assert accounting.budget.accounting == kind
    whole, before = (1, SPENT.epsilon + query.epsilon) if kind == "pure" else (RHO, SPENT.spent + query.cost)
    assert accounting.budget.total == whole - before, (
        "what earlier steps cost in this accounting is taken off"
    )
    assert accounting.budget.pure_total is None, "nothing is left to resolve"


def test_a_prefix_that_costs_most_of_epsilon_leaves_nothing_to_decide() -> None:
    query, accounting = resolve(replace(SPENT, epsilon=Fraction(6, 10)), 0)
    assert query is None
    assert accounting.budget == PrivacyBudget(accounting="concentrated", total=RHO - SPENT.spent)
    resolved = replace(UNRESOLVED, pure_total=None)
    assert resolve(SPENT, 0, resolved) == (None, accounting)


@pytest.mark.parametrize(
    ("before", "after"), [([ONE], [MANY]), ([], [MANY]), ([MANY], []), ([ONE], [])], ids=str
)
@pytest.mark.parametrize("among", [None, np.array([1, 2])])
def test_one_user_moves_the_count_by_at_most_one(before: list[Row], after: list[Row], among: Any) -> None:
    """In pure epsilon and in rho: the count is claimed in both."""
    query = UsersInMany(few=0, epsilon=Fraction(1, 32), budget=UNRESOLVED, among=among)
    first, second = (query.distribution(make_rows([ONE, MANY, *own], GROUPS)) for own in (before, after))
    assert first.claim is not None
    assert (first.claim.epsilon, first.claim.rho) == (Fraction(1, 32), Fraction(1, 2048))
    shift = abs(first.position[0] - second.position[0])
    assert shift <= 1
    used = measure_claims(first, second, Claim(what="all", epsilon=1.0, delta=DELTA))
    assert used[query.what] == pytest.approx(float(shift), rel=1e-9)


def test_users_in_many_groups_are_counted() -> None:
    rows = make_rows([ONE, MANY, [], [(1, 2.0, 1), (3, 2.0, 1)]], GROUPS)
    counts = [
        UsersInMany(few=few, epsilon=Fraction(1), budget=UNRESOLVED).distribution(rows).position
        for few in (0, 1, 2, 4, 5)
    ]
    assert counts == [[3], [2], [1], [1], [0]]


def branching(*, pure: bool, later: Fraction, both: bool = True) -> tuple[Staged, Staged]:
    """A count, then sums in pure epsilon or in rho; all of it at the edge of its claim."""
    early = Fraction(1, 8)

    def made(place: int) -> Staged:
        claim = Claim(what="count", epsilon=early if both else None, rho=early**2 / 2)
        first = NoisySum(
            position=[place], noise=NoiseDistribution(kind="laplace", scale=float(1 / early)), claim=claim
        )

        def then(sample: Any) -> NoisySum:
            if pure:
                noise = NoiseDistribution(kind="laplace", scale=float(1 / later))
                return NoisySum(position=[place], noise=noise, claim=Claim(what="sums", epsilon=later))
            noise = NoiseDistribution(kind="gaussian", scale=float(1 / (2 * later)) ** 0.5)
            return NoisySum(position=[place], noise=noise, claim=Claim(what="sums", rho=later))

        return Staged(first=first, then=then)

    return made(3), made(4)


def test_each_branch_adds_up_in_its_own_accounting() -> None:
    """Claims in epsilon after claims in rho add up only if the first hold in epsilon as well."""
    guarantee = Claim(what="all", epsilon=1.0, delta=DELTA)
    rho = RHO - Fraction(1, 128)
    for fits in (branching(pure=True, later=Fraction(7, 8)), branching(pure=False, later=rho)):
        assert measure_claims(*fits, guarantee)[ADDS_UP] == pytest.approx(1.0, rel=1e-6)
    for broken in (
        branching(pure=True, later=Fraction(15, 16)),
        branching(pure=False, later=RHO),
        branching(pure=True, later=Fraction(7, 8), both=False),
    ):
        assert measure_claims(*broken, guarantee)[ADDS_UP] > 1.01


def test_the_two_noises_are_equal_for_some_number_of_groups() -> None:
    assert 3.0 < equal_groups(EPSILON, RHO) < 5.0
    assert few_groups(EPSILON, RHO) == 2
    assert equal_groups(EPSILON, Fraction(0)) == np.inf
    assert few_groups(EPSILON, RHO * 100) == 0, "Gaussian noise is smaller even in one group"


@pytest.mark.parametrize(
    ("max_groups", "keys", "pure_total"), [(None, 40, 1), (8, 40, 1), (None, None, None), (1, 40, None)]
)
def test_what_is_left_to_decide(max_groups: int | None, keys: int | None, pure_total: int | None) -> None:
    """Nothing with private keys and no bound on groups, whose selection costs rho, nor with a bound of one."""
    request = Request.checked(("value",), epsilon=1, delta=DELTA, per="user", neighbors="add-remove")
    budget, _ = GroupBudgetSplit.of(request, max_groups=max_groups, groups=keys).row_budget
    assert budget.pure_total == pure_total


def groups_of(per_user: int, n_users: int = 3000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), per_user)
    return {
        "user": users,
        "group": (users + np.tile(np.arange(per_user), n_users)) % 8,
        "value": 10.0 + rng.standard_normal(len(users)),
    }


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-user"])
@pytest.mark.parametrize(("per_user", "unit"), [(1, "epsilon"), (6, "rho")])
def test_the_breakdown_is_in_the_accounting_that_was_chosen(per_user: int, unit: str, neighbors: str) -> None:
    import pandas as pd

    made = hm.mean(
        pd.DataFrame(groups_of(per_user)),
        user="user",
        value="value",
        by="group",
        keys=range(8),
        epsilon=EPSILON,
        delta=DELTA,
        neighbors=neighbors,
    )
    assert made.parameters["norm"] == ("L1" if unit == "epsilon" else "L2")
    entries = [one for one in made.budget_breakdown if one.unit != "delta"]
    assert {one.unit for one in entries} == {unit}
    total = sum(Fraction(one.amount) for one in entries)
    assert total <= (1 if unit == "epsilon" else RHO)
    assert float(total) == pytest.approx(1.0 if unit == "epsilon" else float(RHO), rel=1e-9)
    assert "groups per user" in {one.what for one in entries}
    assert made.values[:, 0] == pytest.approx(np.full(8, 10.0), abs=1.0)


@pytest.mark.usefixtures("seeded_releases")
def test_a_refusal_in_the_pure_branch_spends_delta_in_full() -> None:
    """What one end of a release saves of delta would be missing at another (proofs/groups.md, Lemma 7)."""
    import pandas as pd

    frame = pd.DataFrame(groups_of(1)).assign(group=lambda one: one["group"] + 100)
    with pytest.raises(hm.NotReleased, match="too few users in these groups") as refused:
        hm.mean(
            frame,
            user="user",
            value="value",
            by="group",
            keys=range(40),
            epsilon=EPSILON,
            delta=DELTA,
            bounds=(0, 20),
        )
    assert 0.0 < refused.value.epsilon < 0.7
    assert refused.value.delta == DELTA
