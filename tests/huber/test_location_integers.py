"""The Huber location in integers: exact, against brute force and the float solver."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.location_oracles import exact_minimizers
from hubermean.errors import InputError
from hubermean.huber.integer import integer_gradient, integer_huber_location
from hubermean.huber.solver import huber_location

USERS = st.lists(
    st.tuples(st.integers(-30, 30), st.integers(0, 4), st.integers(1, 12)), min_size=1, max_size=12
).filter(lambda users: any(a > 0 for _, a, _ in users))


def brute_gradient(users, s: int) -> int:
    return sum(a * min(max(s - y, -t), t) for y, a, t in users)


@given(USERS)
@settings(max_examples=500, deadline=None)
def test_integer_solver_matches_brute_force(users):
    y, a, t = (np.array(column) for column in zip(*users, strict=True))
    found = integer_huber_location(y, weights=a, thresholds=t)
    grid = range(-45, 46)
    assert found.lower == min(s for s in grid if brute_gradient(users, s) >= 0)
    assert found.upper == max(s for s in grid if brute_gradient(users, s) <= 0)
    first, last = exact_minimizers(y, a, t)
    assert (found.first, found.last, found.point) == (first, last, (first + last) / 2)
    for s in (-45, 0, 13):
        assert integer_gradient(y, s, weights=a, thresholds=t) == brute_gradient(users, s)


@given(
    st.lists(
        st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**40), st.integers(1, 2**62 - 1)),
        min_size=1,
        max_size=9,
    ).filter(lambda users: any(a > 0 for _, a, _ in users))
)
@settings(max_examples=300, deadline=None)
def test_integer_solver_does_not_overflow(users):
    y, a, t = (np.array(column) for column in zip(*users, strict=True))
    found = integer_huber_location(y, weights=a, thresholds=t)
    low, up = found.lower, found.upper
    assert brute_gradient(users, low) >= 0 > brute_gradient(users, low - 1)
    assert brute_gradient(users, up) <= 0 < brute_gradient(users, up + 1)
    assert low <= up + 1
    # G is linear between the corners around a zero, so it vanishes exactly at both ends.
    assert brute_gradient(users, found.first) == 0 == brute_gradient(users, found.last)
    assert integer_gradient(y, low, weights=a, thresholds=t) == brute_gradient(users, low)


def test_integer_sums_beyond_64_bits_over_many_blocks():
    n = 150_001
    y = np.where(np.arange(n) % 2 == 0, 2**62, -(2**62))
    found = integer_huber_location(y, weights=np.full(n, 2**40), thresholds=2**62 - 1)
    # One more user above: the flat part between the clusters is tilted by 2^40 (2^62 - 1) towards +2^62.
    more, fewer, t = n // 2 + 1, n // 2, 2**62 - 1
    assert found.point == 2**62 - Fraction(fewer * t, more)
    total = integer_gradient(y, 2**62, weights=np.full(n, 2**40), thresholds=t)
    assert total == 2**40 * fewer * t


def test_integer_and_float_solvers_agree():
    rng = np.random.default_rng(3)
    values = np.round(rng.standard_cauchy(30_000) * 1000).astype(np.int64)
    weights, thresholds = rng.integers(0, 5, 30_000), rng.integers(1, 3000, 30_000)
    exact = integer_huber_location(values, weights=weights, thresholds=thresholds)
    found = huber_location(values, weights=weights, thresholds=thresholds)
    assert abs(Fraction(found.point) - exact.point) <= Fraction(found.error_bound)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([1.0], {"thresholds": 1}),
        ([1], {"thresholds": 0}),
        ([1], {"thresholds": 2**62}),
        ([1], {"thresholds": 1.5}),
        ([2**62 + 1], {"thresholds": 1}),
        ([2**64], {"thresholds": 1}),
        ([1], {"thresholds": 1, "weights": [0]}),
        ([1, 2], {"thresholds": 1, "weights": [1, -1]}),
        ([1, 2], {"thresholds": [1, 1, 1]}),
        (np.zeros(0, dtype=np.int64), {"thresholds": 1}),
    ],
)
def test_bad_integer_input_is_refused(values, options):
    with pytest.raises(InputError):
        integer_huber_location(values, **options)
