"""Lines of many users: sorted and shared out among threads they give the same answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from hubermean.data.user_table import UserTable
from hubermean.distributions.output import max_cost_difference
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.counts.mechanism import AdaptiveCount
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.searches.bounds import DISTANCES, beyond_distances
from hubermean.searches.location import CenterSearch, IntervalSearch, Windows
from hubermean.searches.positions import (
    PartitionedPositions,
    SortedPositions,
    UserPositions,
    target_ranks,
)
from hubermean.types.request import PublicFacts, Request

SIZE = 6_000
MANY_USERS = 2**15
Population = Callable[[Generator], NDArray[Any]]

POPULATIONS: dict[str, Population] = {
    "normal": lambda rng: rng.normal(size=SIZE),
    "heavy tails": lambda rng: rng.standard_cauchy(SIZE) * 10.0 ** rng.integers(-9, 12, SIZE),
    "one place": lambda rng: np.full(SIZE, -0.0),
    "two places": lambda rng: rng.choice([1.0, np.nextafter(1.0, 2.0)], SIZE),
    "few kinds": lambda rng: rng.integers(-3, 4, SIZE) / 3.0,
    "most tie": lambda rng: np.where(rng.random(SIZE) < 0.999, 7.0, rng.normal(size=SIZE)),
    "far from zero": lambda rng: 1e15 + rng.integers(0, 40, SIZE) / 8.0,
    "as far as floats go": lambda rng: rng.choice([-1.7e308, -1.0, 5e-324, 0.0, 2.0, 1.7e308], SIZE),
    "tiny": lambda rng: rng.normal(size=SIZE) * 1e-310,
    "whole numbers": lambda rng: rng.integers(-(2**20), 2**20, SIZE),
    "huge whole numbers": lambda rng: rng.integers(-(2**61), 2**61, SIZE),
}


def weights_of(rng: Generator) -> NDArray[np.int64]:
    return rng.integers(0, 60, SIZE)


def ends_among(values: NDArray[Any], rng: Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ends at users, right beside them, between them and beyond them all."""
    at = rng.choice(values, 60)
    if values.dtype.kind == "f":
        beside = np.concatenate([np.nextafter(at, np.inf), np.nextafter(at, -np.inf)])
        ends = np.concatenate(
            [at, beside, at / 2.0 + rng.choice(values, 60) / 2.0, [-np.inf, np.inf, -1.5e308]]
        )
    else:
        ends = np.concatenate([at, at + 1, at - 1, [-(2**61) - 5, 2**61 + 5]])
    return rng.permutation(ends), rng.permutation(ends)


def lines(values: NDArray[Any], weights: NDArray[np.int64], rng: Generator) -> dict[str, UserPositions]:
    cut = int(rng.integers(2_000, SIZE - 2_000))
    halves = [repeated(values[half], weights[half]) for half in (slice(0, cut), slice(cut, SIZE))]
    return {
        "sorted": repeated(values, weights),
        "joint": PartitionedPositions(lambda question: [question(half) for half in halves]),
    }


def repeated(values: NDArray[Any], weights: NDArray[np.int64]) -> SortedPositions:
    """So many users at each place as its weight says."""
    return SortedPositions(np.repeat(values, weights))


@pytest.mark.parametrize("population", POPULATIONS)
def test_the_weight_of_an_interval_is_that_of_its_users(population: str) -> None:
    rng = np.random.default_rng(1)
    values, weights = POPULATIONS[population](rng), weights_of(rng)
    lows, highs = ends_among(values, rng)
    inside = [
        weights[(values >= low) & (values <= high)].sum() for low, high in zip(lows, highs, strict=True)
    ]
    for positions in lines(values, weights, rng).values():
        assert positions.within(lows, highs).tolist() == inside


@pytest.mark.parametrize("population", POPULATIONS)
def test_marks_are_users_and_leave_little_weight_between_them(population: str) -> None:
    rng = np.random.default_rng(2)
    values, weights = POPULATIONS[population](rng), weights_of(rng)
    for positions, fineness in itertools.product(lines(values, weights, rng).values(), (1, 8, 64)):
        quantiles = positions.quantiles(fineness)
        assert quantiles.total == weights.sum()
        assert len(quantiles.marks) <= 2 * fineness + 1
        assert np.isin(quantiles.marks, values).all()
        edges = [None, *quantiles.marks.tolist(), None]
        for low, high in itertools.pairwise(edges):
            after = np.full(SIZE, True) if low is None else values > low
            before = np.full(SIZE, True) if high is None else values < high
            assert weights[after & before].sum() * fineness <= quantiles.total


@pytest.mark.parametrize("population", POPULATIONS)
def test_places_and_parts_of_a_line_are_those_of_its_users(population: str) -> None:
    rng = np.random.default_rng(3)
    values, weights = POPULATIONS[population](rng), weights_of(rng)
    low, high = np.sort(rng.choice(values, 2))
    some = (values >= low) & (values <= high) & (weights > 0)
    expected = {place: int(weights[some & (values == place)].sum()) for place in np.unique(values[some])}
    for positions in lines(values, weights, rng).values():
        places, held = positions.between(low, high).places()
        assert dict(zip(places.tolist(), held.tolist(), strict=True)) == expected


SEARCHES: dict[str, IntervalSearch | CenterSearch] = {
    "interval": IntervalSearch(per_cent=75, epsilon=Fraction(1, 5), add_remove=True, radius=7e12),
    "interval, everything distinguished": IntervalSearch(
        per_cent=65, epsilon=Fraction(1, 1000), add_remove=False, radius=7e12
    ),
    "interval of few": IntervalSearch(
        per_cent=65, epsilon=Fraction(1, 5), add_remove=True, radius=7e12, tied=60
    ),
    "interval of very few": IntervalSearch(
        per_cent=50, epsilon=Fraction(1, 20), add_remove=True, radius=7e12, tied=100, ring_nats=1.4
    ),
    "center": CenterSearch(
        windows=Windows(lengths=(1.25,), radius=1e9), epsilon=Fraction(1, 50), add_remove=True
    ),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "population", [name for name in POPULATIONS if "whole" not in name and "as far" not in name]
)
def test_a_search_has_one_distribution_however_users_are_partitioned(population: str, search: str) -> None:
    rng = np.random.default_rng(4)
    values, weights = np.clip(POPULATIONS[population](rng), -8e12, 8e12), weights_of(rng)
    held, *others = lines(values, weights, rng).values()
    expected = SEARCHES[search].distribution(held)
    for positions in others:
        found = SEARCHES[search].distribution(positions)
        assert max_cost_difference(found, expected) == 0
        assert found.rate == expected.rate


@pytest.mark.parametrize("name", ["interval", "interval of few", "interval of very few"])
@pytest.mark.parametrize("population", ["normal", "heavy tails", "few kinds"])
def test_what_is_not_counted_changes_no_cost(
    population: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths that cannot be selected are left out: counting them all gives the same costs."""
    rng = np.random.default_rng(6)
    positions = SortedPositions(np.clip(POPULATIONS[population](rng), -8e12, 8e12))
    search = SEARCHES[name]
    expected = search.distribution(positions)
    made = Windows.bound

    def bound(self: Windows, users: Any, marks: Any) -> Any:
        atom, outer, inner = made(self, users, marks)
        return atom, np.full_like(outer, SIZE), np.zeros_like(inner)

    monkeypatch.setattr(Windows, "bound", bound)
    assert max_cost_difference(search.distribution(positions), expected) == 0


def test_users_beyond_distances_are_counted_on_their_side() -> None:
    rng = np.random.default_rng(12)
    deviations = np.sort(np.concatenate([rng.standard_cauchy(500) * 30.0, 0.7 * DISTANCES, -0.7 * DISTANCES]))
    above, below = beyond_distances(deviations, 0.7)
    assert above.tolist() == [(deviations > 0.7 * distance).sum() for distance in DISTANCES]
    assert below.tolist() == [(deviations < -0.7 * distance).sum() for distance in DISTANCES]


def released(mechanism: Mechanism, table: UserTable, per: str) -> tuple[Any, ...]:
    request = Request.checked(table.columns, epsilon=1.0, delta=0.0, per=per, neighbors="add-remove")
    prepared = mechanism.prepare(request, PublicFacts.of(table, request.neighbors))
    outcome = prepared.run(table, InsecureSeededNoise(8))
    return outcome.values, outcome.parameters


@pytest.mark.parametrize(
    ("mechanism", "per"),
    [
        (Adaptive(), "record"),
        (Adaptive(), "user"),
        (Clipped(bounds=(-3.0, 9.0), max_records=40), "record"),
        (Clipped(bounds=(-3.0, 9.0)), "user"),
        (AdaptiveCount(), "record"),
    ],
)
@pytest.mark.parametrize("unusable", [0, 1])
def test_threads_change_nothing_that_is_released(
    mechanism: Mechanism, per: str, unusable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(9)
    means = rng.normal(size=3 * MANY_USERS) * 4.0
    means[::7_000] = 7.9e12  # with many records such sums go beyond 64 bits
    records = rng.poisson(15, len(means)) + 1
    records[::7_000] = 2**30
    records[: 500 * unusable : 5] = 0  # they stand nowhere
    held = UserTable.from_means(means, records)
    summed = held.take(rng.permutation(len(means)))
    alone = [released(mechanism, table, per) for table in (held, summed)]
    monkeypatch.setattr("hubermean.data.user_table.USERS_PER_BLOCK", 10_000)
    monkeypatch.setattr("hubermean.data.threads.MIN_PARALLEL_ELEMENTS", 1)
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: 3)
    assert len(held.map_partitions(lambda part: part.n_users)) == 3
    assert [released(mechanism, table, per) for table in (held, summed)] == alone
    assert alone[0] == alone[1]


def totals(table: UserTable) -> list[int]:
    sums = table.sums[0]
    return [sums.integer(user) for user in range(table.n_users)]


def test_every_user_is_in_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubermean.data.user_table.USERS_PER_BLOCK", 30_000)
    rng = np.random.default_rng(10)
    means = rng.normal(size=2 * MANY_USERS + 5)
    means[::100] = np.nan  # these have records, and no usable ones
    table = UserTable.from_means(means, rng.integers(0, 9, len(means)))
    for whole in (table, table.take(np.arange(table.n_users)), table.take(np.arange(3))):
        blocks = list(whole.blocks())
        assert np.concatenate([block.counts for block in blocks]).tolist() == whole.counts.tolist()
        assert np.concatenate([block.records for block in blocks]).tolist() == whole.records.tolist()
        assert [total for block in blocks for total in totals(block)] == totals(whole)
    assert len(list(table.blocks())) > 1


@pytest.mark.parametrize("total", [1, 7, 31, 32, 33, 10**6 + 3, 2**62, 2**63 - 1])
def test_the_weights_that_are_aimed_at_are_whole_shares_however_large(total: int) -> None:
    for resolution in (1, 4, 32, 256):
        exact = sorted({-(-number * total // resolution) for number in range(1, resolution + 1)})
        assert target_ranks(total, resolution).tolist() == exact
