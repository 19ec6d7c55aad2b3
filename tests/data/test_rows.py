"""What a row becomes depends on that row alone, bit for bit, and sums of rows are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hubermean.data.arrays import find_finite_rows
from hubermean.data.rows import NORM_ERROR, Rows

LENGTHS = (1, 7, 64, 1000, 8191, 8192, 20_003)


def made(length: int, dtype: type, *, seed: int = 0, users: int = 9) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([length, seed])
    array = rng.standard_normal((users, length)) * np.exp(rng.normal(size=(users, 1)) * 8.0)
    return array.astype(dtype)


def looked_at(array: np.ndarray[Any, Any], *, shifted: bool) -> tuple[Rows, np.ndarray[Any, Any]]:
    d = array.shape[1]
    rng = np.random.default_rng(d)
    direction = rng.normal(size=d).astype(np.float32)
    kind = np.float64 if array.dtype == np.float64 else np.float32
    center, scales = (rng.normal(size=d).astype(np.float32).astype(kind) for _ in range(2))
    usable = np.ones(len(array), dtype=bool)
    if shifted:
        return Rows(array=array, precision=kind, usable=usable, center=center, scales=scales), direction
    return Rows(array=array, precision=kind, usable=usable), direction


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_row_counts_by_itself(length: int, dtype: type, shifted: bool) -> None:
    """Wherever a row lies in memory and whatever stands before it, its norm, product and integers are the same."""
    array = np.clip(made(length, np.float64), -1e4, 1e4).astype(dtype)
    rows, direction = looked_at(array, shifted=shifted)
    distances, products = rows.distances(), rows.along(direction)
    factors = 2.0**20 / np.maximum(distances, 1e-3)
    for start in range(3):  # rows at other places of a block, and of memory
        for offset in range(5):
            spare = np.empty((len(array) - start) * length + offset, dtype=dtype)
            moved = spare[offset:].reshape(-1, length)
            moved[...] = array[start:]
            other, _ = looked_at(moved, shifted=shifted)
            assert (other.distances() == distances[start:]).all()
            assert (other.along(direction) == products[start:]).all()
    alone = [looked_at(array[[number]], shifted=shifted)[0] for number in range(len(array))]
    apart = [one.weighted_sum(factors[[number]]) for number, one in enumerate(alone)]
    assert (rows.weighted_sum(factors) == np.sum(apart, axis=0)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_norms_are_within_their_error(length: int, dtype: type) -> None:
    rows, direction = looked_at(made(length, dtype), shifted=False)
    exact = np.linalg.norm(rows.array.astype(np.float64), axis=1)
    assert (np.abs(rows.distances() / exact - 1.0) <= NORM_ERROR).all()
    expected = rows.array.astype(np.float64) @ direction.astype(np.float64)
    assert np.abs(rows.along(direction) - expected).max() <= 1e-4 * exact.max() * np.linalg.norm(direction)


@pytest.mark.parametrize("length", [5, 9000])
def test_rows_that_do_not_count_add_nothing(length: int) -> None:
    array = np.ones((5, length), dtype=np.float32)
    array[1], array[2, 0], array[3] = np.nan, np.inf, 3e38
    rows = Rows(array=array, precision=np.float32, usable=np.array([True, False, False, True, True]))
    distances = rows.distances()
    assert np.isinf(distances[1:4]).all()  # the square of the fourth overflows
    assert (rows.along(np.ones(length, dtype=np.float32))[[1, 2]] == 0.0).all()
    factors = np.where(np.isfinite(distances), 8.0, 0.0)
    assert (rows.weighted_sum(factors) == 16).all()
    assert "1." not in repr(rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [8192, 16_000, 100_000])
def test_norms_from_the_first_pass_are_the_same_bits(length: int, dtype: type) -> None:
    """Rows of an aligned array, taken a few at a time, and each alone in a buffer of its own."""
    array = np.empty((7 * length + 64,), dtype=dtype)
    first = -array.ctypes.data % 64 // array.itemsize
    array = array[first : first + 7 * length].reshape(7, length)
    array[...] = made(length, dtype, users=7)
    _, squares = find_finite_rows(array)
    usable = np.ones(7, dtype=bool)
    spare = np.empty(7 * length + 1, dtype=dtype)[1:].reshape(7, length)
    spare[...] = array
    alone = Rows(array=spare, precision=dtype, usable=usable).distances()
    assert (Rows(array=array, precision=dtype, usable=usable, squares=squares).distances() == alone).all()
    assert (Rows(array=array, precision=dtype, usable=usable).distances() == alone).all()
