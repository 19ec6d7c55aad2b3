"""Rows of users over groups are clipped exactly, and each by itself."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.rows import make_entries
from hubermean.mechanisms.groups import rows as module
from hubermean.mechanisms.groups.rows import NORM_GRID, ROW_UNITS, Norm, UserRows

NORMS: tuple[Norm, ...] = ("L1", "L2")
ODD = [0.0, -0.0, 5e-324, 1e-300, 1.0, 1 + 2**-52, 1 - 2**-53, 1023.9, 1024.0, 1e6, 1e300, math.inf, math.nan]
NUMBERS = st.one_of(st.floats(-4, 4), st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(ODD))
USERS = st.lists(st.lists(NUMBERS, min_size=0, max_size=6), min_size=1, max_size=5)


def flat(users: list[list[float]]) -> tuple[UserRows, np.ndarray]:
    owners = [owner for owner, row in enumerate(users) for _ in row]
    return make_entries(owners), np.array([entry for row in users for entry in row], dtype=np.float64)


def size(numbers: np.ndarray, norm: Norm) -> Fraction:
    """The norm, squared if Euclidean, in exact arithmetic."""
    return Fraction(sum(abs(int(one)) ** (2 if norm == "L2" else 1) for one in numbers))


@pytest.mark.parametrize("norm", NORMS)
@given(users=USERS, bound=st.sampled_from([1.0, 0.3, 1e-9, 1e9, 7.0]))
def test_no_row_is_longer_than_the_bound(norm: Norm, users: list[list[float]], bound: float) -> None:
    rows, entries = flat(users)
    clipped = rows.clip(entries, bound=bound, norm=norm)
    for owner in range(len(users)):
        own = clipped[rows.owners == owner]
        assert size(own, norm) <= ROW_UNITS ** (2 if norm == "L2" else 1)
        assert sum(int(one) ** 2 // ROW_UNITS for one in own) <= ROW_UNITS


@pytest.mark.parametrize("norm", NORMS)
@given(users=USERS, seed=st.integers(0, 2**32 - 1))
def test_a_row_follows_from_its_own_entries_in_any_order(
    norm: Norm, users: list[list[float]], seed: int
) -> None:
    """Nothing changes where others are left out or all entries are shuffled: to the last bit."""
    rows, entries = flat(users)
    clipped = rows.clip(entries, bound=0.7, norm=norm)
    order = np.random.default_rng(seed).permutation(len(entries))
    shuffled = make_entries([int(rows.owners[place]) for place in order]).clip(
        entries[order], bound=0.7, norm=norm
    )
    assert (shuffled == clipped[order]).all()
    for owner, row in enumerate(users):
        alone, own = flat([row])
        if len(own):
            assert (alone.clip(own, bound=0.7, norm=norm) == clipped[rows.owners == owner]).all()


@pytest.mark.parametrize("norm", NORMS)
def test_short_rows_are_taken_as_they_are(norm: Norm) -> None:
    rows, entries = flat([[0.25, -0.5], [1.0], []])
    assert rows.clip(entries, bound=1.0, norm=norm).tolist() == [ROW_UNITS // 4, -ROW_UNITS // 2, ROW_UNITS]


@pytest.mark.parametrize("norm", NORMS)
def test_long_rows_keep_their_direction(norm: Norm) -> None:
    rows, entries = flat([[3.0, -4.0], [0.1]])
    length = 5.0 if norm == "L2" else 7.0
    clipped = rows.clip(entries, bound=1.0, norm=norm) / ROW_UNITS
    assert clipped[:2] == pytest.approx(np.array([3.0, -4.0]) / length, rel=1e-5)
    assert clipped[2] == pytest.approx(0.1, rel=1e-8)


def test_entries_that_are_no_numbers_count_as_nothing() -> None:
    rows, entries = flat([[math.nan, 0.5], [math.inf, 1.0]])
    clipped = rows.clip(entries, bound=1.0, norm="L2")
    assert clipped[:2].tolist() == [0, ROW_UNITS // 2]
    assert clipped[2] == pytest.approx(ROW_UNITS, rel=1e-4)


def test_a_row_of_too_many_entries_counts_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond this number its sum of squares might not be exact."""
    monkeypatch.setattr(module, "_MOST_ENTRIES", 2)
    rows, entries = flat([[0.1, 0.1, 0.1], [0.1, 0.1]])
    assert (rows.clip(entries, bound=1.0, norm="L2") != 0).tolist() == [False] * 3 + [True] * 2


@pytest.mark.parametrize("norm", NORMS)
@given(users=USERS, unit=st.sampled_from([1.0, 0.01, 3.7]))
def test_rows_beyond_each_distance_are_counted(norm: Norm, users: list[list[float]], unit: float) -> None:
    """Against exact arithmetic on entries rounded up to sixteenths of a unit."""
    rows, entries = flat(users)
    longer = rows.count_longer(entries, unit=unit, norm=norm)
    power = 2 if norm == "L2" else 1
    for place, distance in enumerate(NORM_GRID.tolist()):
        expected = 0
        for row in users:
            parts = [
                min(math.ceil(abs(one) * (16.0 / unit)) if math.isfinite(one * 16.0 / unit) else 2**26, 2**26)
                for one in row
                if not math.isnan(one)
            ]
            expected += sum(part**power for part in parts) > Fraction((distance * 16.0) ** power)
        assert longer[place] == expected, (place, distance)


@pytest.mark.parametrize("norm", NORMS)
def test_counts_of_long_rows_do_not_depend_on_the_order_of_entries(norm: Norm) -> None:
    """Sums beyond 2^53 are no longer exact, but never fall back into the grid."""
    rng = np.random.default_rng(1)
    values = np.concatenate([np.full(4000, 2.0**22), rng.uniform(0, 1e3, 4000)])
    found = set()
    for _ in range(5):
        order = rng.permutation(len(values))
        rows = make_entries([0] * len(values))
        found.add(tuple(rows.count_longer(values[order], unit=1.0, norm=norm).tolist()))
    assert len(found) == 1


def test_totals_are_exact_sums_by_group() -> None:
    rows = make_entries([0, 0, 1])
    rows = UserRows(
        members=rows.members, owners=rows.owners, n_owners=2, groups=np.array([1, 0, 1]), n_groups=3
    )
    assert rows.totals(np.array([2**30, -5, -(2**29)])) == [-5, 2**29, 0]
