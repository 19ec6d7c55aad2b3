"""The private searches of `tuning`: each choice costs what it says, and finds what it should."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator

from hubermean.auditing.compare import compare
from hubermean.laws import Choice
from hubermean.noise.insecure import InsecureSeededNoise
from hubermean.tuning import (
    CAPS,
    LENGTHS,
    PER_OCTAVE,
    CapSearch,
    Census,
    HeldLine,
    PlaceSearch,
    SpreadSearch,
    Windows,
    heaviest,
    public_cap,
    share_above,
)

numbers = st.one_of(
    st.floats(-10, 10),
    st.integers(-3, 3).map(float),
    st.sampled_from([0.1, 0.2, 0.30000000000000004, 1e16, 1e16 + 2]),
)
CAP = 7


def weights_within(users: list[tuple[float, int]]) -> np.ndarray:
    values = np.array([value for value, _ in users])
    weights = np.array([weight for _, weight in users], dtype=np.int64)
    return heaviest(HeldLine(values, weights), LENGTHS)


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


def crowd(family: str, rng: Generator, size: int) -> np.ndarray:
    return {
        "normal": lambda: rng.normal(size=size),
        "ties": lambda: rng.integers(-3, 4, size) * 0.25,
        "tails": lambda: rng.standard_cauchy(size) * 1e3,
        "two": lambda: rng.choice([-1.0, 1.0], size) * 50 + rng.normal(size=size) * 1e-3,
        "constant": lambda: np.full(size, 7.0),
        "few": lambda: rng.normal(size=rng.integers(0, 300)),
    }[family]()


FAMILIES = ["normal", "ties", "tails", "two", "constant", "few"]


def losses(laws: list[Choice]) -> float:
    """The largest loss of the first law against the others, either way."""
    return max(max(compare(laws[0], other).largest, compare(other, laws[0]).largest) for other in laws[1:])


@pytest.mark.parametrize("cap", [1, CAP])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_spread_costs_no_more_than_it_says(family: str, cap: int) -> None:
    """One user is replaced, reweighed or gone; costs beyond the cap are found by bisection, which this checks too."""
    rng = np.random.default_rng(5)
    search = SpreadSearch.plan(1200, largest=0.3)
    assert search is not None
    for _ in range(10):
        values = crowd(family, rng, 1199)
        weights = rng.integers(0, cap + 1, len(values))
        places, heavy = rng.choice([0.0, 1e9, -1e9, 0.3, 7.0], 2), rng.integers(0, cap + 1, 2)
        laws = [
            search.law(HeldLine(np.append(values, place), np.append(weights, weight)), cap=cap)
            for place, weight in zip(places, heavy, strict=True)
        ]
        laws += [
            search.law(HeldLine(values, weights), cap=cap),
            search.law(HeldLine(np.append(values, 5.0), np.append(weights, cap)), cap=cap),
        ]
        assert losses(laws) <= float(search.epsilon) * (1 + 1e-9)


def test_too_small_a_sensitivity_of_the_spread_would_be_seen() -> None:
    """The same test with a cap that is too small for the weights finds the loss too large."""
    search = SpreadSearch.plan(1200, largest=0.3)
    assert search is not None
    values, weights = np.random.default_rng(6).normal(size=1199), np.full(1199, 4)
    laws = [
        search.law(HeldLine(np.append(values, place), np.append(weights, 4)), cap=2)
        for place in (float(np.median(values)), 1e9)
    ]
    assert losses(laws) > float(search.epsilon) * 1.1


@pytest.mark.parametrize("cap", [1, 50])
def test_the_spread_holds_its_share(cap: int) -> None:
    rng, noise = np.random.default_rng(8), InsecureSeededNoise(9)
    search = SpreadSearch.plan(2000, largest=0.3)
    assert search is not None
    assert search.share == 0.85
    for _ in range(20):
        size = 10.0 ** rng.uniform(-8, 8)
        values = rng.normal(size=2000) * size
        length = LENGTHS[search.law(HeldLine(values, np.full(2000, cap)), cap=cap).draw(noise)] / size
        assert 0.75 * 2.88 < length < 1.35 * 2.88


def test_fewer_users_get_a_smaller_share_and_few_none() -> None:
    shares = [SpreadSearch.plan(n, largest=0.3) for n in (200, 280, 400, 1000, 10**6)]
    assert shares[0] is None
    known = [search for search in shares if search is not None]
    assert [search.per_cent for search in known] == sorted(search.per_cent for search in known)
    assert known[-1].per_cent == 85
    assert all(search.epsilon <= 0.3 for search in known)
    assert float(known[-1].epsilon) < 1e-3


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
    inside, sizes = windows.runs(HeldLine(places, weights), parts=parts)
    least = int(weights.sum()) // parts
    assert (sizes > 0).all()
    held = np.repeat(inside, sizes)
    assert len(held) == windows.count
    for number, weight in enumerate(held):
        start = (number - each_side) * step - windows.length // 2
        own = sum(w for place, w in users if start <= place <= start + windows.length)
        assert weight == max(own, least)
        assert windows.middle(number) == (number - each_side) * step


@pytest.mark.parametrize("one_way", [True, False])
@pytest.mark.parametrize("cap", [1, CAP])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_place_costs_no_more_than_it_says(family: str, cap: int, one_way: bool) -> None:
    """Where neighbours only add or only remove a user, half the noise does."""
    rng = np.random.default_rng(10)
    windows = Windows.covering(1e9, step=0.5, steps=10)
    search = PlaceSearch.plan(windows, weight=500.0, share=0.85, one_way=one_way)
    assert search is not None
    for _ in range(10):
        values = crowd(family, rng, 499)
        weights = rng.integers(0, cap + 1, len(values))
        scaled = np.clip(values * 2.0**-windows.exponent, -windows.reach, windows.reach).astype(np.int64)

        def law(
            place: float, weight: int, scaled: np.ndarray = scaled, weights: np.ndarray = weights
        ) -> Choice:
            where = int(np.clip(place * 2.0**-windows.exponent, -windows.reach, windows.reach))
            return search.law(HeldLine(np.append(scaled, where), np.append(weights, weight)), cap=cap)

        gone, here, there = law(0.0, 0), law(float(rng.choice([0.0, 7.0, 1e9])), cap), law(-1e9, cap)
        assert losses([gone, here, there] if one_way else [here, gone, there]) <= float(search.epsilon) * (
            1 + 1e-9
        )


@pytest.mark.parametrize("place", [0.0, 1e3, -8e8, 9.9e8])
def test_users_are_found_wherever_they_are(place: float) -> None:
    rng, noise = np.random.default_rng(11), InsecureSeededNoise(12)
    windows = Windows.covering(1e9, step=0.5, steps=10)
    search = PlaceSearch.plan(windows, weight=400.0, share=0.85, one_way=False)
    assert search is not None
    for _ in range(40):
        values = ((place + rng.normal(size=400)) * 2.0**-windows.exponent).astype(np.int64)
        number = search.law(HeldLine(values, None), cap=1).draw(noise)
        assert windows.middle(number) == pytest.approx(place, abs=2.5)


def test_a_place_is_found_less_surely_before_it_is_not_sought() -> None:
    windows = Windows.covering(1e9, step=0.5, steps=10)
    full = PlaceSearch.plan(windows, weight=400.0, share=0.85, one_way=False)
    assert full is not None
    for part, found in ((1.1, full.epsilon), (0.9, Fraction(0.9 * float(full.epsilon))), (0.7, None)):
        largest = part * float(full.epsilon)
        search = PlaceSearch.plan(
            windows, weight=400.0, share=0.85, one_way=False, largest=largest, surely=False
        )
        assert (search and search.epsilon) == found
        surely = PlaceSearch.plan(windows, weight=400.0, share=0.85, one_way=False, largest=largest)
        assert (surely is None) == (part < 1.0)


# --- cap ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["one", "equal", "few", "zipf", "two"])
def test_a_cap_costs_no_more_than_it_says(family: str) -> None:
    """A user's count goes from 1 to 10,000, or the user comes or goes."""
    rng = np.random.default_rng(13)
    search = CapSearch.plan(900, largest=0.2)
    assert search is not None
    counts = {
        "one": np.ones(899, dtype=np.int64),
        "equal": np.full(899, 10),
        "few": rng.integers(1, 20, 899),
        "zipf": np.maximum(40_000 // np.arange(1, 900), 1),
        "two": np.where(rng.random(899) < 0.3, 1000, 1),
    }[family]
    laws = [search.law(Census.of(np.append(counts, count))) for count in (1, 10_000, 2**40, 10, 9, 11)]
    laws.append(search.law(Census.of(counts)))
    for number in range(len(laws)):
        assert losses(laws[number:] + laws[:number]) <= float(search.epsilon) * (1 + 1e-9)


def test_a_cap_is_what_most_users_stay_below() -> None:
    rng, noise = np.random.default_rng(14), InsecureSeededNoise(15)
    search = CapSearch.plan(1000, largest=0.2)
    assert search is not None
    for records in (1, 2, 10, 16):
        drawn = [int(CAPS[search.law(Census.of(np.full(1000, records))).draw(noise)]) for _ in range(100)]
        assert drawn.count(records) >= 98, "all users have as many records"
    zipf = np.maximum(40_000 // np.arange(1, 1001), 1)
    for _ in range(30):
        cap = int(CAPS[search.law(Census.of(rng.permutation(zipf))).draw(noise)])
        assert 0.15 < (zipf > cap).mean() < 0.55
    assert CapSearch.plan(200, largest=0.2) is None
    # A small epsilon asks for more users to be cut, not for many times more users.
    assert CapSearch.plan(20_000, largest=0.02) is not None
    assert share_above(1e6) < share_above(1e4) < share_above(1e3) == 0.3


def test_a_cap_of_public_counts_needs_no_noise() -> None:
    assert public_cap(np.full(50, 10), 0.3) == 10
    assert public_cap(np.array([1] * 80 + [1000] * 20), 0.3) == 1
    assert public_cap(np.array([1] * 60 + [1000] * 40), 0.3) >= 1000
