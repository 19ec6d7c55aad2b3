"""`tuned` on users in parts: each step has the law of the same users in one table, and the release takes few passes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from helpers.partitioned import POPULATIONS, PartedTable, plain, populations, record_counts
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import Staged, max_cost_difference
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.base import Prepared
from hubermean.mechanisms.counts.mechanism import AdaptiveCount
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.searches.location import IntervalSearch
from hubermean.searches.positions import SortedPositions, UserPositions, locate_users
from hubermean.types.request import PublicFacts, Request

RELATIONS = ("replace-user", "add-remove")
PERS = ("user", "record")


def prepared_for(
    table: UserTable, neighbors: str, per: str, mechanism: Any = None, *, delta: float = 0.0
) -> Prepared:
    request = Request.checked(table.columns, epsilon=1.0, delta=delta, per=per, neighbors=neighbors)
    return (mechanism or Adaptive()).prepare(request, PublicFacts.of(table, request.neighbors))


def stages(distribution: Any, seed: int) -> list[Any]:
    """What every stage of a law holds, for the draws of one seed."""
    noise, found = InsecureSeededNoise(seed), []
    while isinstance(distribution, Staged):
        found.append(plain(distribution))
        distribution = distribution.then(distribution.first.sample(noise))
    return [*found, plain(distribution)]


@pytest.mark.fair_sample(0.25)
@pytest.mark.parametrize("number", [1, 2, 7, 50])
@pytest.mark.parametrize("per", PERS)
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("population", POPULATIONS)
def test_every_step_on_parts_has_the_law_of_one_table(
    population: str, neighbors: str, per: str, number: int
) -> None:
    rng = np.random.default_rng(number)
    table = UserTable.from_means(populations(3_000, rng)[population], record_counts(3_000, rng))
    prepared = prepared_for(table, neighbors, per)
    parts = PartedTable.of(table, number, rng)
    assert stages(prepared.distribution(parts), seed=number) == stages(
        prepared.distribution(table), seed=number
    )
    assert parts.passes <= 12


def test_the_steps_are_compared_to_the_end() -> None:
    """Normal users go through all of them: users, scale, ties, center, cap, weight, influence bound and two steps."""
    rng = np.random.default_rng(2)
    table = UserTable.from_means(rng.normal(size=3_000), record_counts(3_000, rng))
    assert len(stages(prepared_for(table, "add-remove", "record").distribution(table), seed=1)) == 8


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("population", ["normal", "heavy tails", "most tie", "two far clusters", "uniform"])
def test_passes_and_answers_stay_small_however_many_users_there_are(population: str, neighbors: str) -> None:
    rng = np.random.default_rng(3)
    for size, number in ((2_000, 2), (200_000, 60)):
        table = UserTable.from_means(populations(size, rng)[population], record_counts(size, rng))
        prepared = prepared_for(table, neighbors, "record")
        parts = PartedTable.of(table, number, rng)
        assert stages(prepared.distribution(parts), seed=size) == stages(
            prepared.distribution(table), seed=size
        )
        assert parts.passes <= 12
        assert parts.largest_answer < 2**20
        assert parts.largest_question < 2 * 2**20


@pytest.mark.parametrize("mechanism", [Adaptive(), AdaptiveCount()])
def test_the_same_noise_makes_the_same_release_of_parts(mechanism: Any) -> None:
    rng = np.random.default_rng(4)
    table = UserTable.from_means(rng.normal(size=(4_000, 2)) * [1.0, 50.0], record_counts(4_000, rng))
    if isinstance(mechanism, AdaptiveCount):
        table = UserTable.from_means(rng.normal(size=4_000), record_counts(4_000, rng))
    prepared = prepared_for(table, "add-remove", "record", mechanism, delta=1e-6)
    for held in (table, table.take(np.arange(4_000))):  # means as they were given, and exact sums
        released = prepared.run(held, InsecureSeededNoise(5))
        in_parts = prepared.run(PartedTable.of(held, 7, rng), InsecureSeededNoise(5))
        assert (in_parts.values, in_parts.parameters) == (released.values, released.parameters)


def lines(
    values: NDArray[Any], weights: NDArray[np.int64], rng: Generator
) -> tuple[UserPositions, UserPositions]:
    """The same users on a line, in one table and in parts."""
    table = UserTable.from_means(values, weights)
    return SortedPositions(np.repeat(values, weights)), locate_users(PartedTable.of(table, 9, rng), _on_line)


def _on_line(part: UserTable) -> SortedPositions:
    return SortedPositions(np.repeat(part.means, part.counts))


@pytest.mark.parametrize("population", POPULATIONS)
def test_marks_leave_little_weight_between_them(population: str) -> None:
    rng = np.random.default_rng(6)
    for size in (1, 5, 4_000):
        values, weights = populations(size, rng)[population], rng.integers(1, 50, size)
        for positions in lines(values, weights, rng):
            for fineness in (1, 8, 64):
                quantiles = positions.quantiles(fineness)
                assert quantiles.total == weights.sum()
                assert len(quantiles.marks) <= 2 * fineness + 1
                edges = np.concatenate([[-np.inf], quantiles.marks, [np.inf]])
                gaps = [
                    weights[(low < values) & (values < high)].sum() for low, high in itertools.pairwise(edges)
                ]
                assert max(gaps) * fineness <= quantiles.total


@pytest.mark.parametrize("population", POPULATIONS)
def test_partitions_have_the_interval_search_of_one_table(population: str) -> None:
    rng = np.random.default_rng(7)
    search = IntervalSearch(per_cent=75, epsilon=Fraction(1, 8), add_remove=True, radius=7e12)
    for size in (0, 1, 6, 2_000):
        held, partitioned = lines(populations(size, rng)[population], rng.integers(1, 50, size), rng)
        assert max_cost_difference(search.distribution(held), search.distribution(partitioned)) == 0
