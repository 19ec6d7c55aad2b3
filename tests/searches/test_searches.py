"""The private searches of `tuning`: each finds what it should; what it costs is in test_adaptive_privacy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator

from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.searches.bounds import (
    MAX_RECORDS_GRID,
    ContributionBoundSearch,
    RankSearch,
    RecordHistogram,
    Sides,
    TailSearch,
    beyond_distances,
    expected_cut_off,
    public_contribution_bound,
    share_above,
)
from hubermean.searches.location import (
    LENGTHS,
    PER_OCTAVE,
    SHORTEST,
    CenterSearch,
    ScaleSearch,
    Windows,
    count_fullest,
)
from hubermean.searches.positions import SortedPositions

numbers = st.one_of(
    st.floats(-10, 10),
    st.integers(-3, 3).map(float),
    st.sampled_from([0.1, 0.2, 0.30000000000000004, 1e16, 1e16 + 2]),
)
CAP = 7


def weights_within(users: list[tuple[float, int]]) -> np.ndarray:
    values = np.array([value for value, _ in users])
    weights = np.array([weight for _, weight in users], dtype=np.int64)
    return count_fullest(SortedPositions(np.repeat(values, weights)), LENGTHS)


# --- spread -------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(numbers, st.integers(0, CAP)), max_size=12),
    st.tuples(numbers, st.integers(0, CAP)),
)
@settings(max_examples=400, deadline=None)
def test_one_user_changes_a_weight_inside_by_its_own(
    users: list[tuple[float, int]], more: tuple[float, int]
) -> None:
    fewer, with_one = weights_within(users), weights_within([*users, more])
    assert (fewer <= with_one).all()
    assert (with_one <= fewer + more[1]).all()
    assert (np.diff(fewer) >= 0).all()


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(0, CAP)), min_size=1, max_size=15),
    st.integers(-8, 6 * PER_OCTAVE),
)
@settings(max_examples=200, deadline=None)
def test_the_weight_inside_is_that_of_the_heaviest_interval(users: list[tuple[int, int]], power: int) -> None:
    """Of all that start at multiples of a 32nd part of the octave's length, or an eighth of the weight."""
    length = 2.0 ** (power / PER_OCTAVE)
    step = 2.0 ** (power // PER_OCTAVE - 5)
    starts = np.arange(-200.0, 51.0, step)
    values, weights = np.array(users).T
    holds = (starts[:, np.newaxis] <= values) & (values <= starts[:, np.newaxis] + length)
    heavy = max(int((holds @ weights).max()), int(weights.sum()) // 8)
    found = weights_within([(float(value), weight) for value, weight in users])
    assert found[np.searchsorted(LENGTHS, length * 0.999)] == heavy


@given(st.lists(st.tuples(numbers, st.integers(0, CAP)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_users_within_a_little_less_than_a_length_are_found_together(users: list[tuple[float, int]]) -> None:
    found = weights_within(users)
    for start, _ in users:
        for number in range(0, len(LENGTHS), 37):
            together = (
                weight for value, weight in users if start <= value <= start + LENGTHS[number] * 31 / 32
            )
            assert found[number] >= sum(together)


def population(family: str, rng: Generator, size: int) -> np.ndarray:
    return {
        "normal": lambda: rng.normal(size=size),
        "ties": lambda: rng.integers(-3, 4, size) * 0.25,
        "tails": lambda: rng.standard_cauchy(size) * 1e3,
        "two": lambda: rng.choice([-1.0, 1.0], size) * 50 + rng.normal(size=size) * 1e-3,
        "constant": lambda: np.full(size, 7.0),
        "few": lambda: rng.normal(size=rng.integers(0, 300)),
    }[family]()


FAMILIES = ["normal", "ties", "tails", "two", "constant", "few"]


@pytest.mark.parametrize("add_remove", [True, False])
@pytest.mark.parametrize("concentrated", [True, False])
def test_the_scale_holds_its_share(add_remove: bool, concentrated: bool) -> None:
    rng, noise = np.random.default_rng(8), InsecureSeededNoise(9)
    search = ScaleSearch.plan(2000, add_remove=add_remove, largest=0.3)
    assert search is not None
    assert search.share == 0.75
    for _ in range(20):
        size = 10.0 ** rng.uniform(-8, 8)
        positions = SortedPositions(rng.normal(size=2000) * size)
        length = LENGTHS[search.distribution(positions, concentrated=concentrated).sample(noise)] / size
        assert 0.75 * 2.3 < length < 1.4 * 2.3


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.6, 0.9, 1.0])
def test_a_tie_never_passes_for_a_scale(share: float) -> None:
    """It is found or said to be a tie: 300 searches each, none of them in between."""
    rng, noise = np.random.default_rng(21), InsecureSeededNoise(22)
    search = ScaleSearch.plan(1500, add_remove=True, largest=0.35)
    assert search is not None
    values = np.where(rng.random(1500) < share, 0.0, rng.normal(10.0, 1.0, 1500))
    distribution = search.distribution(SortedPositions(values), concentrated=False)
    for _ in range(300):
        number = distribution.sample(noise)
        assert number < SHORTEST or LENGTHS[number] > 0.5


def test_fewer_users_get_a_smaller_share_and_few_none() -> None:
    searches = [ScaleSearch.plan(n, add_remove=True, largest=0.33) for n in (50, 150, 300, 1000, 10**6)]
    assert searches[0] is None
    known = [search for search in searches if search is not None]
    assert [search.per_cent for search in known] == [65, 65, 75, 75]
    assert all(search.epsilon <= Fraction(0.33) for search in known)


# --- place --------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(-300, 300), st.integers(0, CAP)), max_size=12),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(0, 12),
    st.sampled_from([2, 8, 64, 1000]),
)
@settings(max_examples=300, deadline=None)
def test_windows_hold_what_lies_in_them(
    users: list[tuple[int, int]], step: int, steps: int, each_side: int, parts: int
) -> None:
    windows = Windows(exponent=0, step=step, length=steps * step, count=2 * each_side + 1)
    places = np.array([place for place, _ in users], dtype=np.int64)
    weights = np.array([weight for _, weight in users], dtype=np.int64)
    inside, sizes = windows.runs(SortedPositions(np.repeat(places, weights)), parts=parts)
    least = int(weights.sum()) // parts
    assert (sizes > 0).all()
    held = np.repeat(inside, sizes)
    assert len(held) == windows.count
    for number, weight in enumerate(held):
        start = (number - each_side) * step - windows.length // 2
        own = sum(w for place, w in users if start <= place <= start + windows.length)
        assert weight == max(own, least)
        assert windows.middle(number) == (number - each_side) * step


@pytest.mark.parametrize("place", [0.0, 1e3, -8e8, 9.9e8])
def test_users_are_found_wherever_they_are(place: float) -> None:
    rng, noise = np.random.default_rng(11), InsecureSeededNoise(12)
    windows = Windows.covering(1e9, step=0.5, steps=10)
    search = CenterSearch(windows=windows, epsilon=Fraction(1, 4), add_remove=False)
    for _ in range(40):
        values = ((place + rng.normal(size=400)) * 2.0**-windows.exponent).astype(np.int64)
        number = search.distribution(SortedPositions(values)).sample(noise)
        assert windows.middle(number) == pytest.approx(place, abs=2.5)


def test_the_base_measure_falls_with_the_distance_from_zero() -> None:
    """Without users, a window weighs 2^-k in the k-th ring around zero: the rings are alike, and so are both sides."""
    windows = Windows(exponent=0, step=4, length=40, count=2 * 1000 + 1)
    search = CenterSearch(windows=windows, epsilon=Fraction(1, 1000), add_remove=True)
    distribution = search.distribution(SortedPositions(np.zeros(0, dtype=np.int64)))
    costs = np.repeat(distribution.costs, distribution.sizes) * float(distribution.rate) / np.log(2.0)
    distances = np.abs(np.arange(windows.count) - 1000)
    assert np.abs(costs - np.floor(np.log2(distances + 1))).max() < 1e-2


def test_few_users_are_looked_for_near_zero_or_not_at_all() -> None:
    costs = [CenterSearch.cost(n, share=0.65, add_remove=True, largest=0.2) for n in (50, 150, 2_000)]
    assert costs[0] is None
    assert costs[1] == 0.2
    assert costs[2] is not None
    assert costs[2] < 0.03


# --- tails --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", ["both", "upper", "lower"])
def test_tails_are_found_at_their_rank(sides: Sides) -> None:
    rng, noise = np.random.default_rng(13), InsecureSeededNoise(14)
    search = TailSearch.plan(
        4000, epsilon=0.3, share=0.75, total=1.0, hostile=0.0, sides=sides, add_remove=True
    )
    assert search.rank > 0
    values = np.sort(rng.exponential(size=4000) - 0.7)
    distribution = search.distribution(*beyond_distances(values, 0.7), concentrated=False)
    for _ in range(50):
        below, above = (0.7 * one for one in search.found(distribution.sample(noise)))
        assert (above == 0.0) == (sides == "lower")
        assert (below == 0.0) == (sides == "upper")
        if above:
            assert (values > above).sum() < search.rank + 15.0 / 0.3
            assert (values > above / 2.0).sum() > search.rank
        if below:
            assert below < 3.0  # nobody lies further out than 0.7 on this side


@pytest.mark.parametrize("epsilon", [1.0, 100.0, 1e4])
def test_a_large_epsilon_finds_no_bounds_that_nobody_needs(epsilon: float) -> None:
    """The base measure is kept: nobody lies beyond two units, so 102 longer distances cost no user either."""
    above, below = beyond_distances(np.linspace(-2.0, 2.0, 2_000), 1.0)
    search = TailSearch(epsilon=Fraction(epsilon), rank=1, add_remove=True)
    for seed in range(40):
        number = search.distribution(above, below, concentrated=False).sample(InsecureSeededNoise(seed))
        assert max(search.found(number)) <= 16.0


def test_hostile_users_cannot_reach_the_rank() -> None:
    plain = TailSearch.plan(
        4000, epsilon=0.3, share=0.75, total=1.0, hostile=0.0, sides="both", add_remove=True
    )
    safe = TailSearch.plan(
        4000, epsilon=0.3, share=0.75, total=1.0, hostile=0.05, sides="both", add_remove=True
    )
    assert safe.rank == plain.rank + 200


def test_bounds_are_stretched_the_more_the_heavier_the_tail() -> None:
    search = TailSearch.plan(
        4000, epsilon=0.3, share=0.75, total=1.0, hostile=0.0, sides="both", add_remove=True
    )
    stretched = [search.stretched(one) / one for one in (1.0, 3.0, 10.0)]
    assert stretched == sorted(stretched)
    assert stretched[0] >= 1.0


def test_a_tail_is_expected_to_lose_more_the_longer_it_is_and_the_less_the_larger_the_budget() -> None:
    lost = [expected_cut_off(distance, total=1.0) for distance in (1.0, 2.0, 6.0, 1e6)]
    assert lost == sorted(lost)
    assert lost[0] == 0.0  # nobody lies further out than most
    assert lost[-1] < 2.0  # of a bound, however wild the distance that was found
    assert expected_cut_off(6.0, total=10.0) == pytest.approx(lost[2] / 10.0)


# --- cap ----------------------------------------------------------------------------------------------------------


def test_a_cap_by_rank_leaves_few_users_above() -> None:
    rng, noise = np.random.default_rng(15), InsecureSeededNoise(16)
    counts = rng.zipf(2.0, 5000).clip(max=10_000)
    search = RankSearch.plan(5000, epsilon=0.06)
    distribution = search.distribution(
        RecordHistogram.of(counts).above, MAX_RECORDS_GRID.astype(float), concentrated=False
    )
    above = [int((counts > MAX_RECORDS_GRID[distribution.sample(noise)]).sum()) for _ in range(60)]
    assert 0.3 * search.rank < np.median(above) < 2.0 * search.rank


@pytest.mark.parametrize("epsilon", [1.0, 30.0, 1000.0])
def test_a_large_epsilon_finds_no_cap_that_nobody_needs(epsilon: float) -> None:
    """A base measure in whole users was rounded away: one cap in ten was 2,000 times too large."""
    noise, above = InsecureSeededNoise(17), RecordHistogram.of(np.full(300, 20)).above
    distribution = RankSearch.plan(300, epsilon=epsilon).distribution(
        above, MAX_RECORDS_GRID.astype(float), concentrated=False
    )
    found = np.array([MAX_RECORDS_GRID[distribution.sample(noise)] for _ in range(200)])
    assert found.min() >= 20
    assert np.mean(found > 80) < 0.02


@pytest.mark.parametrize("cap", [1, 7, 100, 2**20])
def test_a_census_adds_up_capped_records(cap: int) -> None:
    counts = np.append(np.random.default_rng(17).integers(0, 300, 500), 2**40)
    histogram = RecordHistogram.together([RecordHistogram.of(counts[:200]), RecordHistogram.of(counts[200:])])
    nearest = int(np.searchsorted(MAX_RECORDS_GRID, cap))
    assert histogram.users == np.count_nonzero(counts)
    assert histogram.weights[nearest] == np.minimum(counts, MAX_RECORDS_GRID[nearest]).sum()
    assert histogram.above[nearest] == (counts > MAX_RECORDS_GRID[nearest]).sum()


def test_a_cap_is_what_most_users_stay_below() -> None:
    rng, noise = np.random.default_rng(14), InsecureSeededNoise(15)
    search = ContributionBoundSearch.plan(1000, largest=0.2)
    assert search is not None
    for records in (1, 2, 10, 16):
        drawn = [
            int(
                MAX_RECORDS_GRID[
                    search.distribution(RecordHistogram.of(np.full(1000, records))).sample(noise)
                ]
            )
            for _ in range(100)
        ]
        assert drawn.count(records) >= 98, "all users have as many records"
    zipf = np.maximum(40_000 // np.arange(1, 1001), 1)
    for _ in range(30):
        cap = int(
            MAX_RECORDS_GRID[search.distribution(RecordHistogram.of(rng.permutation(zipf))).sample(noise)]
        )
        assert 0.15 < (zipf > cap).mean() < 0.55
    assert ContributionBoundSearch.plan(200, largest=0.2) is None
    # A small epsilon asks for more users to be cut, not for many times more users.
    assert ContributionBoundSearch.plan(20_000, largest=0.02) is not None
    assert share_above(1e6) < share_above(1e4) < share_above(1e3) == 0.3


def test_a_cap_of_public_counts_needs_no_noise() -> None:
    assert public_contribution_bound(np.full(50, 10), 0.3) == 10
    assert public_contribution_bound(np.array([1] * 80 + [1000] * 20), 0.3) == 1
    assert public_contribution_bound(np.array([1] * 60 + [1000] * 40), 0.3) >= 1000
