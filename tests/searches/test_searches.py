"""The private searches of `tuning`: each finds what it should; what it costs is in test_adaptive_privacy."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubermean.distributions.output import ExponentialMechanism
from hubermean.errors import InputError
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
from hubermean.searches.location import LENGTHS, CenterSearch, IntervalSearch, Windows
from hubermean.searches.positions import FullPlaces, SortedPositions

numbers = st.one_of(
    st.floats(-10, 10),
    st.integers(-3, 3).map(float),
    st.sampled_from([0.1, 0.2, 0.30000000000000004, 1e16, 1e16 + 2]),
)
RADIUS = 2.0**40


def cost_of(distribution: ExponentialMechanism, number: int) -> int:
    """Of one candidate, by number."""
    run = np.searchsorted(np.cumsum(distribution.sizes), number, side="right")
    return int(distribution.costs[run])


def chances(distribution: ExponentialMechanism) -> np.ndarray:
    """Of each run of candidates."""
    logs = -float(distribution.rate) * distribution.costs + np.log(distribution.sizes)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


# --- windows ------------------------------------------------------------------------------------------------------


def test_windows_are_public_intervals_in_order() -> None:
    lengths = (0.3, 1.0, 2.0**20)
    windows = Windows(lengths=lengths, radius=100.0)
    numbers = np.arange(int(windows.ends[-1]))
    which, offsets = windows.find(numbers)
    assert windows.number(which, offsets).tolist() == numbers.tolist()
    starts = windows.starts(which, offsets)
    for number, length in enumerate(lengths):
        own = starts[which == number]
        step = float(windows.steps[number])
        assert length / 32.0 < step <= length / 16.0
        assert (np.diff(own) == step).all()
        middles = own + length / 2.0
        assert abs(middles[len(own) // 2]) <= step / 2.0
        assert np.abs(middles).max() <= max(100.0, step) + step
    assert windows.middle(int(numbers[-1])) == (2, pytest.approx(0.0, abs=2.0**15))


@given(st.integers(0, 3), st.floats(0.01, 1e6), st.floats(0.0, 1e9))
@settings(max_examples=60, deadline=None)
def test_rings_follow_from_the_number_of_a_window(which: int, length: float, radius: float) -> None:
    """The base measure of a window depends on its place alone, whatever else is cut where."""
    windows = Windows(lengths=tuple(length * 1.3**power for power in range(4)), radius=radius)
    rng = np.random.default_rng(which)
    numbers = np.unique(rng.integers(0, windows.ends[-1], 50))
    own = rng.integers(0, 5, len(numbers))
    costs, sizes = windows.in_runs(numbers, own, np.array([10, 20, 30, 40]), nats=100.0)
    assert int(sizes.sum()) == int(windows.ends[-1])
    assert (sizes > 0).all()
    asked = np.unique(np.concatenate([numbers, rng.integers(0, windows.ends[-1], 200), [0]]))
    lengths, offsets = windows.find(asked)
    found = costs[np.searchsorted(np.cumsum(sizes), asked, side="right")]
    expected = np.array([10, 20, 30, 40])[lengths]
    expected[np.searchsorted(asked, numbers)] = own
    rings = np.array([(int(abs(offset) + 1).bit_length() - 1) // 2 for offset in offsets])
    assert (found == expected + 100 * rings).all()


# --- interval -----------------------------------------------------------------------------------------------------


def users_in(windows: Windows, values: np.ndarray, which: int, offset: int) -> np.ndarray:
    """By hand, in the numbers of the definition."""
    length = windows.lengths[which]
    start = (offset - round(length / float(windows.steps[which]) / 2.0)) * float(windows.steps[which])
    return values[(values >= start) & (values <= start + length)]


def most_at_a_place(values: np.ndarray) -> int:
    return max(Counter(values.tolist()).values(), default=0)


def fullest(windows: Windows, values: np.ndarray, which: int) -> int:
    """Of all windows of a length that hold anybody, one by one."""
    step, reach = float(windows.steps[which]), int(windows.each_side[which])
    half = round(windows.lengths[which] / step / 2.0)
    offsets = {
        int(np.floor(value / step)) - back + half for value in values.tolist() for back in range(-1, 36)
    }
    return max(
        (len(users_in(windows, values, which, offset)) for offset in offsets if abs(offset) <= reach),
        default=0,
    )


@given(
    st.lists(numbers, max_size=14),
    st.sampled_from([(65, None), (75, None), (98, None), (50, 1), (50, 2), (65, 1), (65, 3)]),
    st.booleans(),
    st.lists(st.integers(380, 640), min_size=3, max_size=3),
    st.integers(0, 2**20),
)
@settings(max_examples=200, deadline=None)
def test_the_cost_of_a_window_is_the_one_of_the_definition(
    users: list[float], aim: tuple[int, int | None], add_remove: bool, which: list[int], seed: int
) -> None:
    """For windows around users and windows anywhere; budgets so small that no cost is cut off."""
    values, rng = np.array(users), np.random.default_rng(seed)
    per_cent, tied = aim
    search = IntervalSearch(
        per_cent=per_cent, epsilon=Fraction(1, 50), add_remove=add_remove, radius=RADIUS, tied=tied
    )
    windows = search.windows
    distribution = search.distribution(SortedPositions(values))
    total = len(values)
    least, aim_at = total // (8 if tied is None else 32), per_cent * total
    weight = max(per_cent, 100 - per_cent) if add_remove else 50

    def half_missed(held: np.ndarray) -> int:
        """What a window lacks of half of those who do not tie."""
        if tied is None:
            return 0
        beside = len(held) - max(most_at_a_place(held) - tied, 0)
        return weight * (total - max(most_at_a_place(values) - tied, 0) - 2 * beside)

    atom = max(most_at_a_place(values), least)
    alone = np.zeros(atom if tied is None else min(atom, tied))
    rate = float(distribution.rate)
    nothing = aim_at - 100 * least if per_cent == 50 else aim_at // 3
    assert cost_of(distribution, 1) == nothing - round(search.nothing_nats / rate)
    tie = max(aim_at - 100 * atom, 0 if tied is None else half_missed(alone), 0)
    assert distribution.costs[0] == tie - round(search.tie_nats / rate)
    for length in which:
        shorter = max(fullest(windows, values, length - (8 if per_cent == 50 else 2)), least)
        anywhere = rng.integers(-windows.each_side[length], windows.each_side[length] + 1, 5).tolist()
        near = [
            int(np.floor(value / windows.steps[length])) + int(rng.integers(-18, 19)) for value in users[:6]
        ]
        for offset in [*anywhere, *near]:
            if abs(offset) > windows.each_side[length]:
                continue
            held = users_in(windows, values, length, offset)
            lacks = min(max(aim_at - 100 * len(held), half_missed(held)), aim_at - 100 * least)
            number = int(windows.number(np.array([length]), np.array([offset]))[0])
            assert cost_of(distribution, 2 + number) == max(lacks, 100 * shorter - aim_at, 0)


@given(st.lists(st.integers(-4, 4), max_size=30), st.integers(0, 4))
def test_full_places_are_those_that_more_users_share(users: list[int], most: int) -> None:
    places, counts = np.unique(np.array(users, dtype=float), return_counts=True)
    full = FullPlaces.of(places, counts, most)
    excess = {place: max(users.count(place) - most, 0) for place in range(-5, 6)}
    assert full.largest == max(excess.values())
    lows, highs = np.meshgrid(np.arange(-5.0, 6.0), np.arange(-5.0, 6.0))
    found = full.most(lows.ravel(), highs.ravel())
    for low, high, most_found in zip(lows.ravel(), highs.ravel(), found, strict=True):
        inside = [excess[place] for place in range(int(low), int(high) + 1)]
        assert most_found == max(inside, default=0)


@pytest.mark.parametrize("place", [0.0, 1e3, -8e8])
@pytest.mark.parametrize("add_remove", [True, False])
def test_the_interval_holds_its_share_wherever_users_are(add_remove: bool, place: float) -> None:
    rng, noise = np.random.default_rng(8), InsecureSeededNoise(9)
    search = IntervalSearch.plan(2000, add_remove=add_remove, largest=0.3, radius=RADIUS)
    assert search is not None
    assert search.share == 0.75
    for _ in range(20):
        size = 10.0 ** rng.uniform(0, 2) if place else 10.0 ** rng.uniform(-8, 8)
        values = rng.normal(size=2000) * size + place
        interval = search.found(search.distribution(SortedPositions(values)).sample(noise))
        assert interval is not None
        length, middle = interval
        assert 0.75 * 2.3 < LENGTHS[length] / size < 1.4 * 2.3
        assert abs(middle - place) < 0.8 * size


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.6, 0.65, 0.7, 0.9, 1.0])
def test_a_tie_hardly_ever_passes_for_a_scale(share: float) -> None:
    """It is found or said to be a tie: less than once in 5,000 releases something in between, whatever the share."""
    rng = np.random.default_rng(21)
    search = IntervalSearch.plan(1500, add_remove=True, largest=0.35, radius=RADIUS)
    assert search is not None
    values = np.where(rng.random(1500) < share, 0.0, rng.normal(10.0, 1.0, 1500))
    distribution = search.distribution(SortedPositions(values))
    firsts = np.cumsum(distribution.sizes) - distribution.sizes - 2
    which, _ = search.windows.find(np.maximum(firsts, 0))
    assert chances(distribution)[(LENGTHS[which] < 0.5) & (firsts >= 0)].sum() < 2e-4


@pytest.mark.parametrize(("radius", "spread"), [(1e3, 1.0), (RADIUS, 1e-7)])
def test_users_beyond_all_windows_of_their_size_get_a_longer_one(radius: float, spread: float) -> None:
    """Beyond the radius, or further from zero than 10^9 times their scale."""
    rng, noise = np.random.default_rng(3), InsecureSeededNoise(23)
    search = IntervalSearch.plan(2000, add_remove=True, largest=0.3, radius=radius)
    assert search is not None
    distribution = search.distribution(SortedPositions(rng.normal(1e6, spread, 2000)))
    for _ in range(30):
        interval = search.found(distribution.sample(noise))
        assert interval is not None
        length, middle = interval
        assert abs(middle) <= radius + LENGTHS[length]
        assert abs(middle - 1e6) <= LENGTHS[length] / 2.0


@pytest.mark.parametrize(
    ("values", "users"),
    [
        *(("everywhere", users) for users in (1_000, 5_000, 20_000, 300_000)),
        *(("zeros and far apart", users) for users in (1_000, 5_000, 20_000, 300_000)),
        *(("two far clusters", users) for users in (20_000, 300_000)),
    ],
)
def test_where_no_window_holds_most_users_this_is_said(values: str, users: int) -> None:
    """Beyond the longest windows, where a window of a few users would pass for center and scale."""
    rng = np.random.default_rng(24)
    far = rng.choice([-1e16, 1e16], users)
    places = {
        "everywhere": rng.normal(0.0, 1e16, users),
        "two far clusters": far + rng.normal(size=users),
        "zeros and far apart": np.where(rng.random(users) < 0.4, 0.0, far * rng.random(users)),
    }[values]
    search = IntervalSearch.plan(users, add_remove=True, largest=0.3, radius=1e18)
    assert search is not None
    found = chances(search.distribution(SortedPositions(places)))
    assert found[2:].sum() < 1e-3
    assert values.startswith("zeros") or found[1] > 0.99


def test_fewer_users_get_a_smaller_share_and_few_none() -> None:
    searches = [
        IntervalSearch.plan(n, add_remove=True, largest=0.33, radius=RADIUS)
        for n in (30, 150, 240, 300, 1200, 10**6)
    ]
    assert searches[0] is None
    known = [search for search in searches if search is not None]
    assert [search.per_cent for search in known] == [50, 50, 65, 75, 90]
    assert [search.tied is None for search in known] == [False, False, False, True, True]
    assert all(search.epsilon <= Fraction(0.36) for search in known)


FEW_USERS = {
    "normal": lambda rng, n: rng.normal(20.0, 1.0, n),
    "exponential": lambda rng, n: rng.exponential(size=n) - 30.0,
    "a third ties": lambda rng, n: rng.exponential(size=n) * (rng.random(n) > 1 / 3),
    "most tie": lambda rng, n: rng.exponential(size=n) * (rng.random(n) > 0.8),
    "constant": lambda rng, n: np.full(n, 3.0),
    "flags": lambda rng, n: (rng.random(n) < 0.3).astype(float),
    "far apart": lambda rng, n: rng.normal(0.0, 1e16, n),
    "all sizes": lambda rng, n: 10.0 ** rng.uniform(-15.0, 12.0, n),
}


@pytest.mark.parametrize("users", [40, 80, 120, 150, 220])
@pytest.mark.parametrize("values", FEW_USERS)
def test_very_few_users_have_a_window_that_holds_them_or_none(values: str, users: int) -> None:
    """However few there are and however many were measured: the search says itself that users are too few."""
    rng = np.random.default_rng(31)
    for measured in (60, 150, 220):
        search = IntervalSearch.plan(measured, add_remove=True, largest=0.33, radius=RADIUS)
        assert search is not None
        assert search.per_cent == 50
        for _ in range(2):
            means = FEW_USERS[values](rng, users)
            distribution = search.distribution(SortedPositions(means))
            found, firsts = chances(distribution), np.cumsum(distribution.sizes) - distribution.sizes - 2
            which, offsets = search.windows.find(np.maximum(firsts, 0))
            lows = search.windows.starts(which, offsets)
            held = SortedPositions(means).within(lows, lows + LENGTHS[which])
            of_one_place = SortedPositions(np.unique(means)).within(lows, lows + LENGTHS[which]) <= 1
            too_long = LENGTHS[which] > 40.0 * np.ptp(means)
            wild = (held < users / 8) | of_one_place | too_long
            assert found[(firsts >= 0) & wild].sum() < 3e-4
            if values in ("normal", "exponential") and users >= 150 == measured:
                assert found[:2].sum() < 0.1


# --- center -------------------------------------------------------------------------------------------------------


def center_search(length: float, radius: float, *, add_remove: bool = True) -> CenterSearch:
    return CenterSearch(
        windows=Windows(lengths=(length,), radius=radius), epsilon=Fraction(1, 4), add_remove=add_remove
    )


@given(st.lists(numbers, max_size=12), st.floats(0.05, 20.0), st.floats(0.5, 40.0))
@settings(max_examples=200, deadline=None)
def test_centers_cost_what_their_windows_lack(users: list[float], length: float, radius: float) -> None:
    """The outermost windows count everybody beyond them as well."""
    values = np.array(users)
    search = center_search(length, radius)
    distribution = search.distribution(SortedPositions(values))
    windows, rate = search.windows, float(distribution.rate)
    side = int(windows.each_side[0])
    held = []
    for offset in range(-side, side + 1):
        start = (offset - round(length / float(windows.steps[0]) / 2.0)) * float(windows.steps[0])
        low = -np.inf if offset == -side else start
        high = np.inf if offset == side else start + length
        held.append(max(int(((values >= low) & (values <= high)).sum()), len(values) // 64))
    costs = np.repeat(distribution.costs, distribution.sizes)
    assert len(costs) == len(held)
    rings = [(int(abs(offset) + 1).bit_length() - 1) // 2 for offset in range(-side, side + 1)]
    base = np.rint(np.array(rings) * np.log(2.0) / rate).astype(int)
    differences = costs - base + np.array(held)
    assert (differences == differences[0]).all()


@pytest.mark.parametrize("place", [0.0, 1e3, -8e8, 9.9e8])
def test_users_are_found_wherever_they_are(place: float) -> None:
    rng, noise = np.random.default_rng(11), InsecureSeededNoise(12)
    search = center_search(5.0, 1e9, add_remove=False)
    for _ in range(40):
        values = place + rng.normal(size=400)
        number = search.distribution(SortedPositions(values)).sample(noise)
        assert search.windows.middle(number)[1] == pytest.approx(place, abs=2.5)


def test_few_users_are_looked_for_near_zero_or_not_at_all() -> None:
    searches = [
        CenterSearch.plan(5.0, radius=100.0, users=n, share=0.65, add_remove=True, largest=0.2)
        for n in (50, 150, 2_000)
    ]
    assert searches[0] is None
    assert searches[1] is not None
    assert searches[1].epsilon == Fraction(0.2)
    assert searches[2] is not None
    assert searches[2].epsilon < 0.03
    with pytest.raises(InputError, match="radius"):
        CenterSearch.plan(1.0, radius=1e12, users=1e4, share=0.65, add_remove=True, largest=0.2)


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


@pytest.mark.parametrize("users", [100, 150, 200, 300])
def test_few_users_hardly_ever_have_bounds_that_drown_the_mean(users: int) -> None:
    """Six times as far as anybody lies: noise would be as wide."""
    search = TailSearch.plan(
        users, epsilon=0.233, share=0.58, total=1.0, hostile=0.0, sides="both", add_remove=True
    )
    above, below = beyond_distances(np.sort(np.random.default_rng(32).exponential(size=users) - 0.5), 0.5)
    found = chances(search.distribution(above, below, concentrated=True))  # type: ignore[arg-type]
    far = [max(search.found(number)) > 60.0 for number in range(len(found))]
    assert found[far].sum() < 2e-6


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
