"""`clipped` keeps its guarantee: the exact privacy loss of small datasets, every neighbor pair enumerated.

Noise is added to a vector of integers; with discrete Laplace noise of scale b per coordinate the loss of a
pair of data sets is exactly sum |difference| / b, and it is attained. The datasets hold every data set of at most
three users whose records come from a small set that includes both sides of the bounds, NaN and infinity.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from helpers.neighbors import Records, iterate_neighbors, table_of
from hubermean.errors import InputError
from hubermean.mechanisms.clipped.mechanism import Clipped, PreparedClipped
from hubermean.types.request import Neighbors, PublicFacts, Request

VALUES = (-50.0, 0.0, 0.3, 2.0, 50.0, float("nan"))
CONTENTS: list[Records] = [
    *((value,) for value in VALUES),
    *itertools.combinations_with_replacement((-50.0, 0.3, 50.0, float("inf")), 2),
    *((50.0,) * 5, (-50.0,) * 5),
]
Dataset = tuple[Records, ...]


def datasets(users: int) -> Iterator[Dataset]:
    return itertools.combinations_with_replacement(CONTENTS, users)


def prepared(
    dataset: Dataset, relation: Neighbors, per: str, epsilon: float, delta: float = 0.0
) -> PreparedClipped:
    cap = 3 if per == "record" else None
    request = Request(columns=("v",), epsilon=epsilon, delta=delta, neighbors=relation, per=per)  # type: ignore[arg-type]
    facts = PublicFacts.of(table_of(dataset), relation)
    return Clipped(bounds=(-1.0, 3.0), max_records=cap).prepare(request, facts)


@cache
def placed(
    dataset: Dataset, relation: Neighbors, per: str, epsilon: float, delta: float = 0.0
) -> tuple[PreparedClipped, list[int]]:
    """The public decisions about a dataset and its sums; a dataset is met in many pairs."""
    made = prepared(dataset, relation, per, epsilon, delta)
    return made, made.distribution(table_of(dataset)).position


def loss(dataset: Dataset, other: Dataset, relation: Neighbors, per: str, epsilon: float) -> Fraction:
    """The exact privacy loss of a pair; the public decisions must agree, or the pair is distinguished at once."""
    (mine, first), (theirs, second) = (placed(w, relation, per, epsilon) for w in (dataset, other))
    assert mine == theirs
    scale = Fraction(mine.distributions[0].scale)
    return sum((abs(a - b) / scale for a, b in zip(first, second, strict=True)), Fraction(0))


@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_no_pair_of_small_datasets_exceeds_epsilon(relation: Neighbors, per: str) -> None:
    epsilon = 0.7
    worst = max(
        loss(dataset, other, relation, per, epsilon)
        for users in (1, 2)
        for dataset in datasets(users)
        for other in iterate_neighbors(dataset, relation, CONTENTS)
        if other or relation is Neighbors.ADD_REMOVE
    )
    assert worst <= Fraction(epsilon)
    assert worst > Fraction(epsilon) * Fraction(999, 1000), "the noise is larger than it needs to be"


@pytest.mark.slow
@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_no_pair_of_three_users_exceeds_epsilon(relation: Neighbors, per: str) -> None:
    for dataset in datasets(3):
        for other in iterate_neighbors(dataset, relation, CONTENTS):
            assert loss(dataset, other, relation, per, 1.3) <= Fraction(1.3)


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 30.0])
def test_several_columns_share_the_budget(relation: Neighbors, epsilon: float) -> None:
    """Two columns at their worst together: the losses add up to epsilon, not more."""
    request = Request(columns=("a", "b"), epsilon=epsilon, delta=0.0, neighbors=relation, per="record")
    mechanism = Clipped(bounds=[(0.0, 1.0), (-3.0, 1e6)], max_records=4)
    from hubermean.data.user_table import UserTable

    def table(*users: tuple[float, float, int]) -> UserTable:
        counts = np.array([count for *_, count in users])
        return UserTable.from_means(np.array([means for *means, _ in users]).reshape(-1, 2), counts)

    plain = table((0.5, 7.0, 1), (1e9, 1e9, 9))
    other = {
        Neighbors.REPLACE_USER: table((0.5, 7.0, 1), (-1e9, -1e9, 9)),
        Neighbors.REPLACE_VALUES: table((0.5, 7.0, 1), (-1e9, -1e9, 9)),
        Neighbors.ADD_REMOVE: table((0.5, 7.0, 1)),
    }[relation]
    mine = mechanism.prepare(request, PublicFacts.of(plain, relation))
    assert mine == mechanism.prepare(request, PublicFacts.of(other, relation))
    first, second = mine.distribution(plain).position, mine.distribution(other).position
    per_column = len(first) // 2
    total = sum(
        (
            abs(a - b) / Fraction(mine.distributions[i // per_column].scale)
            for i, (a, b) in enumerate(zip(first, second, strict=True))
        ),
        Fraction(0),
    )
    assert Fraction(epsilon) * Fraction(999, 1000) < total <= Fraction(epsilon)


@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_gaussian_noise_keeps_delta_on_every_pair_of_small_datasets(relation: Neighbors, per: str) -> None:
    """With delta > 0 the noise is Gaussian where that is less; its delta on the worst pair is the exact one."""
    from hubermean.accounting.gaussian import gaussian_delta

    epsilon, delta = 0.7, 0.1
    worst = 0.0
    for dataset in datasets(2):
        for other in iterate_neighbors(dataset, relation, CONTENTS):
            (mine, first), (theirs, second) = (
                placed(w, relation, per, epsilon, delta) for w in (dataset, other)
            )
            assert mine == theirs
            worst = max(worst, float(np.linalg.norm(np.subtract(first, second, dtype=float))))
    assert mine.distributions[0].kind == "gaussian"
    attained = gaussian_delta(epsilon, alpha=worst / mine.distributions[0].scale)
    assert 0.99 * delta < attained <= delta


def test_a_concentrated_budget_is_within_the_guarantee() -> None:
    """A rho of one's own would give less noise than the epsilon and delta that the release states."""
    from hubermean.accounting.concentrated import largest_rho

    dataset: Dataset = ((0.3,), (0.0,))
    facts = PublicFacts.of(table_of(dataset), Neighbors.REPLACE_USER)
    asked = Request(columns=("v",), epsilon=1.0, delta=1e-6, neighbors=Neighbors.REPLACE_USER, per="user")
    allowed = largest_rho(1.0, 1e-6)
    assert Clipped(bounds=(0, 1), rho=allowed).prepare(asked, facts).distributions[0].kind == "gaussian"
    with pytest.raises(InputError, match="rho is larger"):
        Clipped(bounds=(0, 1), rho=1.01 * allowed).prepare(asked, facts)
    with pytest.raises(InputError, match="rho is larger"):
        Clipped(bounds=(0, 1), rho=1e-9).prepare(replace(asked, delta=0.0), facts)
