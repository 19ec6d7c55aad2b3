"""Rounded means are exact: against rational arithmetic, at every magnitude."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hubermean.data.encoding import BINARY, Encoding, encode_binary, whole_numbers, wide_decimal
from hubermean.data.fixed_point import ExactIntegers, ExactSums, round_means
from hubermean.data.user_table import UserTable

BIG = 2**62 - 1


def expected(sums: ExactSums, count: int, position: int, exponent: int, low: int, high: int) -> int:
    if count == 0:
        return low
    ratio = sums.fraction(position) / count / Fraction(2) ** exponent
    return min(max(math.floor(ratio + Fraction(1, 2)), low), high)


def check(sums: ExactSums, counts: list[int], exponent: int, low: int, high: int) -> None:
    result = round_means(sums, np.array(counts, dtype=np.int64), exponent=exponent, low=low, high=high)
    wanted = [expected(sums, count, i, exponent, low, high) for i, count in enumerate(counts)]
    assert result.tolist() == wanted


clamps = st.tuples(st.integers(-BIG, BIG), st.integers(-BIG, BIG)).map(sorted)
small_clamps = st.tuples(st.integers(-(2**33), 2**33), st.integers(-(2**33), 2**33)).map(sorted)
counts = st.one_of(st.integers(0, 60), st.integers(0, 2**23), st.integers(0, 2**40))


@given(
    users=st.lists(st.tuples(st.integers(-(2**80), 2**80), st.integers(-(2**62), 2**62), counts), max_size=8),
    exponent=st.integers(-60, 45),
    clamp=st.one_of(clamps, small_clamps),
)
@example(users=[(0, 2**39, 1), (0, -(2**39), 1), (1, 0, 3)], exponent=-21, clamp=[-10, 10])
@settings(max_examples=400, deadline=None)
def test_two_part_means_are_exactly_rounded(
    users: list[tuple[int, int, int]], exponent: int, clamp: list[int]
) -> None:
    # Keep to what records can add up to: |high| <= count * 8e12 * 2^20 and |low| <= count * 2^39.
    high_limit, low_limit = 8 * 10**12 * 2**20, 2**39
    users = [
        (max(min(h, c * high_limit), -c * high_limit), max(min(lo, c * low_limit), -c * low_limit), c)
        for h, lo, c in users
    ]
    sums = ExactSums(
        encoding=BINARY,
        high=ExactIntegers.from_integers([h for h, _, _ in users]),
        low=ExactIntegers.from_integers([lo for _, lo, _ in users]),
    )
    check(sums, [c for _, _, c in users], exponent, *clamp)


@given(
    users=st.lists(st.tuples(st.integers(-(2**90), 2**90), counts), max_size=8),
    encoding=st.sampled_from(
        [whole_numbers(), whole_numbers(Fraction(1, 100)), whole_numbers(Fraction(3, 7)), wide_decimal(10)]
    ),
    exponent=st.integers(-50, 50),
    clamp=st.one_of(clamps, small_clamps),
)
@settings(max_examples=400, deadline=None)
def test_one_part_means_are_exactly_rounded(
    users: list[tuple[int, int]], encoding: Encoding, exponent: int, clamp: list[int]
) -> None:
    values = ExactIntegers.from_integers([value for value, _ in users])
    high = ExactIntegers.from_integers([value // 3 for value, _ in users]) if encoding.radix > 1 else None
    check(ExactSums(encoding=encoding, low=values, high=high), [c for _, c in users], exponent, *clamp)


@given(
    halves=st.lists(st.tuples(st.integers(-(2**61), 2**61), st.integers(-1, 1)), min_size=1, max_size=8),
    count=st.sampled_from([1, 3, 7, 2**20 + 1]),
    exponent=st.integers(1, 12),
)
@settings(max_examples=200, deadline=None)
def test_means_a_hair_from_the_half_are_exactly_rounded(
    halves: list[tuple[int, int]], count: int, exponent: int
) -> None:
    """At the half, or the least that a sum can be from it: often less than floats can tell."""
    odd = [(2 * (half // (count << exponent)) + 1, off) for half, off in halves]
    values = [number * (count << (exponent - 1)) + off for number, off in odd]
    check(
        ExactSums(encoding=whole_numbers(), low=ExactIntegers.from_integers(values)),
        [count] * len(values),
        exponent,
        -BIG,
        BIG,
    )


@pytest.mark.parametrize("end", [2**61 - 1, 2**61 + 1, 2**60 + 129, 2**53 + 1])
def test_ends_of_a_clamp_that_are_no_floats_are_kept(end: int) -> None:
    values = ExactIntegers.from_integers([end + off for off in (-900, -2, -1, 0, 1, 2, 900)])
    sums = ExactSums(encoding=whole_numbers(), low=values)
    check(sums, [1] * 7, 0, end, BIG)
    check(sums, [1] * 7, 0, -BIG, end)


def test_parts_that_cancel_beyond_floats_are_exactly_rounded() -> None:
    """Many records whose upper parts take away what their lower parts add, but for one unit and a half of each."""
    count = 2**22 + 2
    units = [3 * count // 2 + off for off in range(-3, 4)]
    low = [2**61 - 2**40 * 7 + unit for unit in units]
    high = [-(2**21) + 7] * len(units)
    sums = ExactSums(
        encoding=BINARY, high=ExactIntegers.from_integers(high), low=ExactIntegers.from_integers(low)
    )
    check(sums, [count] * len(units), -60, -100, 100)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_encoding_stays_within_half_a_unit(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    high, low = encode_binary(array)
    for value, h, lo in zip(values, high.tolist(), low.tolist(), strict=True):
        clamped = max(min(Fraction(value), BINARY.limit), -BINARY.limit)
        assert abs((h * BINARY.radix + lo) * BINARY.unit - clamped) <= BINARY.unit / 2


@given(st.lists(st.integers(-(2**127), 2**127 - 1), max_size=10))
def test_words_round_trip(values: list[int]) -> None:
    low = np.array([((v & (2**64 - 1)) ^ 2**63) - 2**63 for v in values], dtype=np.int64)
    high = np.array([v >> 64 for v in values], dtype=np.int64)
    integers = ExactIntegers.from_words([(low[:3], high[:3]), (low[3:], high[3:])])
    assert [integers[i] for i in range(len(values))] == values
    binary = ExactSums.from_binary_words([(low[:3], high[:3]), (low[3:], high[3:])])
    assert [binary.integer(i) for i in range(len(values))] == values


def test_products_beyond_64_bits_are_exact() -> None:
    left, right = np.array([2**62, -(2**62), 3]), np.array([2**40, 2**40, -5])
    product = ExactIntegers.products(left, right)
    assert [product[i] for i in range(3)] == [2**102, -(2**102), -15]


EDGES = [sign * (2**power + near) for power in (61, 62, 63) for near in (-1, 0, 1) for sign in (-1, 1)]


def test_two_sums_of_parts_are_one_sum_up_to_the_ends_of_64_bits() -> None:
    """Also at -2^63, whose magnitude is no number of 64 bits."""
    pairs = [(high, low) for high in (0, *EDGES) for low in (-1, 0, 1, -(2**62), 2**62, -(2**63), 2**63 - 1)]
    highs, lows = (ExactIntegers.from_integers(part) for part in zip(*pairs, strict=True))
    whole = [high * 2**40 + low for high, low in pairs]
    found = ExactSums.from_parts(BINARY, highs, lows)
    assert found.high is not None
    assert [found.high[place] * 2**40 + found.low[place] for place in range(len(pairs))] == whole
    assert all(0 <= found.low[place] < 2**40 for place in range(len(pairs)))
    fits = [total for total in whole if -(2**127) <= total < 2**127]
    words = [(total & (2**64 - 1), total >> 64) for total in fits]
    low_words = np.array([low for low, _ in words], dtype=np.uint64).view(np.int64)
    one = ExactSums.from_binary_words([(low_words, np.array([high for _, high in words]))])
    assert one.high is not None
    assert [one.high[place] * 2**40 + one.low[place] for place in range(len(fits))] == fits


def test_a_clamp_beyond_62_bits_is_refused() -> None:
    sums = ExactSums(encoding=whole_numbers(), low=ExactIntegers.from_integers([1]))
    with pytest.raises(ValueError, match="62 bits"):
        round_means(sums, np.array([1]), exponent=0, low=0, high=2**63)


@pytest.mark.parametrize("at_a_time", [1, 7, 100])
def test_sums_behind_means_do_not_depend_on_blocks(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond 64 bits and users without records among them."""
    rng = np.random.default_rng(at_a_time)
    means = rng.normal(size=100) * 10.0 ** rng.integers(-20, 13, 100)
    means[::9] = np.nan
    counts = rng.integers(1, 2 ** rng.integers(1, 40, 100))
    monkeypatch.setattr("hubermean.data.user_table.USERS_PER_BLOCK", at_a_time)
    (sums,) = UserTable.from_means(means, counts).sums
    assert sums.beyond_64_bits()
    assert [len(one) for one in UserTable.from_means(np.empty((0, 2))).sums] == [0, 0]
    for position, (mean, count) in enumerate(zip(means.tolist(), counts.tolist(), strict=True)):
        high, low = encode_binary(np.array([0.0 if np.isnan(mean) else mean]))
        assert sums.integer(position) == (int(high[0]) * 2**40 + int(low[0])) * count
