"""What one user can change of sums over rows, against the noise that is booked for it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.rows import Row, make_rows
from hubermean.accounting.budget import PrivacyBudget
from hubermean.distributions.output import NoisySum
from hubermean.errors import InputError
from hubermean.mechanisms.adaptive.parameters import InfeasibleError
from hubermean.mechanisms.groups.row_queries import (
    Accounting,
    ChainRefusedError,
    Deviations,
    NormSearch,
    RowSums,
    Terms,
    Weights,
    chain_queries,
    replay_queries,
)
from hubermean.mechanisms.groups.rows import ROW_UNITS
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.searches.bounds import RankSearch

GROUPS = 4
COST, SQUARES = Fraction(1, 4), Fraction(1, 8)
BUDGETS = {
    "pure": PrivacyBudget.pure(1.0),
    "concentrated": PrivacyBudget(accounting="concentrated", total=Fraction(1)),
}
OTHERS: list[Row] = [[(0, 1.0, 2), (2, -1.0, 1)], [(1, 0.5, 3)], []]
CHANGED: dict[str, Row] = {
    "one group": [(0, 9.0, 1)],
    "one group below": [(0, -9.0, 1)],
    "all groups": [(group, 9.0, 1) for group in range(GROUPS)],
    "all groups below": [(group, -9.0, 1) for group in range(GROUPS)],
    "either side": [(0, 9.0, 5), (1, -9.0, 5), (3, 0.2, 1)],
    "many records": [(2, 0.3, 10_000)],
    "no usable record": [(2, math.nan, 3)],
    "short": [(1, 0.01, 1)],
}


def account(kind: str, *, add_remove: bool) -> Accounting:
    return Accounting(budget=BUDGETS[kind], add_remove=add_remove)


def make_sums(accounting: Accounting, terms: Terms, *, squares: bool = False) -> RowSums:
    weights = Weights(cap=None)
    entries: Any = weights
    if terms != "nonnegative":
        entries = Deviations(column=0, weights=weights, centers=np.zeros(GROUPS), scales=np.ones(GROUPS))
    return RowSums(
        what="sums",
        entries=entries,
        bound=2.0,
        terms=terms,
        sums_cost=COST,
        squares_cost=SQUARES if squares else Fraction(0),
        accounting=accounting,
    )


def used(first: NoisySum, second: NoisySum, kind: str) -> float:
    """What telling the two apart costs: the sum of shifts over scales, or of half their squares."""
    shifts = [
        abs(one - two) / noise.scale
        for one, two, noise in zip(first.position, second.position, first.distributions(), strict=True)
    ]
    return math.fsum(shifts) if kind == "pure" else math.fsum(shift**2 for shift in shifts) / 2.0


def neighbors(*, add_remove: bool) -> list[tuple[Row | None, Row | None]]:
    if add_remove:
        return [(None, row) for row in CHANGED.values()]
    return [(one, two) for one in CHANGED.values() for two in CHANGED.values()]


@pytest.mark.parametrize("add_remove", [True, False])
@pytest.mark.parametrize("kind", ["pure", "concentrated"])
@pytest.mark.parametrize("terms", ["signed", "sides", "nonnegative"])
@pytest.mark.parametrize("squares", [False, True])
def test_no_user_changes_the_sums_by_more_than_is_booked(
    add_remove: bool, kind: str, terms: Terms, squares: bool
) -> None:
    """And some user by nearly all of it: a smaller noise would be too small."""
    sums = make_sums(account(kind, add_remove=add_remove), terms, squares=squares)
    found = []
    for before, after in neighbors(add_remove=add_remove):
        pair = [
            sums.distribution(make_rows([*OTHERS, *([] if own is None else [own])], GROUPS))
            for own in (before, after)
        ]
        found.append(used(pair[0], pair[1], kind))
    assert max(found) <= float(sums.cost) * (1 + 1e-12)
    # A row and its mirror image have the same squares.
    assert max(found) >= float(sums.sums_cost) * 0.999


@pytest.mark.parametrize("kind", ["pure", "concentrated"])
def test_a_user_in_all_groups_moves_them_together_no_more_than_one_group(kind: str) -> None:
    sums = make_sums(account(kind, add_remove=True), "signed")
    empty, one, every = (
        sums.distribution(make_rows([*OTHERS, *more], GROUPS))
        for more in ([], [CHANGED["one group"]], [CHANGED["all groups"]])
    )
    assert used(empty, every, kind) == pytest.approx(used(empty, one, kind), rel=1e-6)


@pytest.mark.parametrize("kind", ["pure", "concentrated"])
def test_bounds_are_found_by_counts_that_one_user_moves_by_one(kind: str) -> None:
    entries = Deviations(
        column=0, weights=Weights(cap=None), centers=np.zeros(GROUPS), scales=np.ones(GROUPS)
    )
    search = NormSearch(
        entries=entries,
        unit=1 / 16,
        search=RankSearch(epsilon=Fraction(1, 2), rank=1),
        accounting=account(kind, add_remove=True),
    )
    base: Any = search.distribution(make_rows(OTHERS, GROUPS))
    for row in CHANGED.values():
        more: Any = search.distribution(make_rows([*OTHERS, row], GROUPS))
        steps = (more.costs - base.costs) / 10_000  # the costs of `RankSearch` are in parts of a user
        assert ((steps >= 0) & (steps <= 1)).all()
        assert more.rate == base.rate == Fraction(1, 2) / 10_000


def test_means_beyond_public_bounds_count_as_these() -> None:
    rows = make_rows([[(0, 1e9, 1), (1, -1e9, 2)]], GROUPS)
    entries = Deviations(
        column=0,
        weights=Weights(cap=None),
        centers=np.array([1.0, 2.0, 0.0, 0.0]),
        scales=np.array([1.0, 0.5, 1.0, 1.0]),
        low=0.0,
        high=10.0,
    )
    assert entries(rows).tolist() == [9.0, -8.0]
    assert Weights(cap=1)(rows).tolist() == [1.0, 1.0]


def chain_of(stop: bool = False) -> Any:
    def chain() -> Any:
        accounting = account("concentrated", add_remove=True)
        search = NormSearch(
            entries=Weights(cap=None),
            unit=1.0,
            search=RankSearch(epsilon=Fraction(1, 2), rank=1),
            accounting=accounting,
        )
        number = yield search
        if stop:
            raise InfeasibleError("enough")
        sums = RowSums(
            what="sums",
            entries=Weights(cap=None),
            bound=search.found(number),
            terms="nonnegative",
            sums_cost=COST,
            accounting=accounting,
        )
        (found,) = sums.found((yield sums), GROUPS)
        return number, found

    return chain


def test_estimates_of_a_sample_are_those_of_the_queries_that_made_it() -> None:
    sample = chain_queries(chain_of(), make_rows(OTHERS, GROUPS)).sample(InsecureSeededNoise(3))
    (number, found), queries = replay_queries(chain_of(), sample)
    first, (second, end) = sample
    assert (number, end) == (first, 0)
    assert found.tolist() == (np.array(second) / ROW_UNITS * (2.0 ** (number / 4))).tolist()
    assert [query.what for query in queries] == ["norm bounds", "sums"]
    assert queries[0].cost == Fraction(1, 32)


def test_a_chain_that_ends_early_states_what_was_spent() -> None:
    sample = chain_queries(chain_of(stop=True), make_rows(OTHERS, GROUPS)).sample(InsecureSeededNoise(3))
    with pytest.raises(ChainRefusedError, match="enough") as refused:
        replay_queries(chain_of(stop=True), sample)
    assert [query.cost for query in refused.value.queries] == [Fraction(1, 32)]


def test_noise_beyond_its_sampler_is_refused_where_public_numbers_decide() -> None:
    with pytest.raises(InputError, match="epsilon is too small"):
        RowSums(
            what="sums",
            entries=Weights(cap=None),
            bound=1.0,
            terms="nonnegative",
            sums_cost=Fraction(1, 2**30),
            accounting=account("pure", add_remove=True),
        )
