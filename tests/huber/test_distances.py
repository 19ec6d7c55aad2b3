"""Distances that are known within bounds until somebody asks: the bounds hold, and every answer is that of the
distances as computed, whatever was asked before."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import pytest

import hubermean.huber.distances as module
from hubermean.data.arrays import squared_row_norms
from hubermean.huber.distances import Distances, compute_distances
from hubermean.huber.geometry import Geometry
from hubermean.huber.points import PointRows

Floats = np.ndarray[Any, np.dtype[np.float64]]
SIZES = [1e-42, 1e-30, 1.0, 1e15, 1e36]  # squares are lost in single precision, or too large for it


def rows_of(points: np.ndarray[Any, Any], *, radius: float = 1e300, known: bool = True) -> PointRows:
    squares = squared_row_norms(points, np.empty(len(points))) if known else None
    return PointRows.within_ball(points, radius, squares=squares)


def random_points(
    rng: np.random.Generator, n: int, d: int, dtype: type, *, size: float, offset: float
) -> Any:
    """Users around a place that is `offset` times their spread away from 0, some of them much nearer or farther."""
    points = rng.standard_normal((n, d)) * 10.0 ** rng.choice([0.0, 0.0, -2.0, 1.0], (n, 1))
    points += offset * rng.standard_normal(d)
    most = 0.9 * float(np.finfo(dtype).max)
    return np.clip(size * points, -most, most).astype(dtype)


def exact_distances(rows: PointRows, center: Floats) -> list[Fraction]:
    """Rounded down to one part in 2^64."""
    found = []
    for row in np.asarray(rows).tolist():
        square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(row, center.tolist(), strict=True))
        scale = 2**128 * square.denominator
        found.append(
            Fraction(isqrt(square.numerator * scale * 2**600), isqrt(square.denominator * scale * 2**600))
        )
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", [0.0, 1.0, 1e6])
def test_bounds_hold_before_and_after_single_precision(
    dtype: type, size: float, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_BATCH", 3)
    rng = np.random.default_rng(SIZES.index(size))
    for d in (16, 50):
        rows = rows_of(random_points(rng, 24, d, dtype, size=size, offset=offset))
        center = np.asarray(rows).mean(axis=0)
        for place in (center, np.zeros(d), -3.0 * center, np.asarray(rows)[5]):
            exact = exact_distances(rows, place)
            computed = compute_distances(rows, place)
            distances = Distances.bounded(rows, place)
            for looked in (np.arange(0), np.arange(24)):
                distances._refine_in_single_precision(looked)
                least, most = distances._lower, distances._upper
                assert (least <= computed).all()
                assert (computed <= most).all()
                for low, true, high in zip(least.tolist(), exact, most.tolist(), strict=True):
                    assert Fraction(low) <= true * (1 + Fraction(1, 2**60))
                    assert high == np.inf or true <= Fraction(high)


def test_bounds_hold_where_roundings_of_single_precision_add_up() -> None:
    """Rows of one number: every addition of its square rounds to the same side for a while."""
    d = 2**13
    numbers = np.linspace(1.0, 2.0, 400, dtype=np.float32)
    rows = rows_of(np.repeat(numbers[:, np.newaxis], d, axis=1))
    distances = Distances.bounded(rows, np.zeros(d))
    exact = numbers.astype(np.longdouble) * np.sqrt(np.longdouble(d))
    for looked in (np.arange(0), np.arange(400)):
        distances._refine_in_single_precision(looked)
        assert (distances._lower <= exact).all()
        assert (exact <= distances._upper).all()


def test_single_precision_bounds_are_tighter_than_norm_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_BATCH", 3)
    rows = rows_of(random_points(np.random.default_rng(1), 100, 400, np.float32, size=1.0, offset=100.0))
    center = np.asarray(rows).mean(axis=0)
    distances = Distances.bounded(rows, center)
    before = distances._upper - distances._lower
    distances._refine_in_single_precision(np.arange(100))
    assert ((distances._upper - distances._lower) < 0.02 * before).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("radius", [1e300, 40.0])
@pytest.mark.parametrize("d", [1, 3, 16, 300])
def test_results_equal_those_of_computed_distances_in_any_order(
    d: int, radius: float, known: bool, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with rows that are shrunk into the ball, which must not be seen as they are stored."""
    monkeypatch.setattr(module, "_MIN_BATCH", 5)
    rng = np.random.default_rng([d, known])
    rows = rows_of(random_points(rng, 200, d, dtype, size=1.0, offset=1.0), radius=radius, known=known)
    if radius < 1e300 and d > 3:
        assert not rows.are_unscaled(slice(None))
    center = np.asarray(rows).mean(axis=0)
    computed = compute_distances(rows, center)
    some = rng.choice(computed, 12)
    limits = np.concatenate((some, np.nextafter(some, 0.0), np.nextafter(some, np.inf), [0.0, np.inf]))
    for order in range(3):
        rng.shuffle(limits)
        distances = Distances.bounded(rows, center)
        for limit in limits.tolist():
            near = distances.where(lambda them, limit=limit: them <= limit)  # type: ignore[misc]
            assert np.array_equal(near, computed <= limit), order
    assert np.array_equal(distances.all, computed)


def test_distances_are_computed_only_where_bounds_do_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    plain = module.compute_distances

    def counted(rows: PointRows, center: Floats) -> Floats:
        looked.append(len(rows))
        return plain(rows, center)

    monkeypatch.setattr(module, "compute_distances", counted)
    points = np.random.default_rng(0).standard_normal((1000, 100)).astype(np.float32)
    points[:7] *= 3.0  # 30 away from the center, give or take 2; the others are 10 away
    distances = Distances.bounded(rows_of(points), points.mean(axis=0, dtype=np.float64))
    assert distances.where(lambda them: them <= 20.0).sum() == 993
    assert distances.are_within(40.0).all()
    assert not looked
    limit = float(np.linalg.norm(points[3].astype(float) - points.mean(axis=0, dtype=np.float64)))
    distances.where(lambda them: them <= limit)
    assert 1 <= sum(looked) <= 7
    assert not distances.are_within(25.0)[:7].any()
    assert sum(looked) <= 14


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [2, 30])
def test_no_user_beyond_the_threshold_counts_as_within(d: int, dtype: type) -> None:
    """Against exact arithmetic, with thresholds that are the distance of the farthest user to the last bits."""
    rng = np.random.default_rng(d)
    within = 0
    for _ in range(20):
        rows = rows_of(random_points(rng, 90, d, dtype, size=1.0, offset=2.0))
        center = np.asarray(rows).mean(axis=0)
        farthest = max(exact_distances(rows, center))
        for bits in range(40, 60):
            for sign in (-1, 1):
                threshold = float(farthest * (1 + sign * Fraction(1, 2**bits)))
                if Distances.bounded(rows, center).are_within(threshold).all():
                    within += 1
                    assert farthest <= Fraction(threshold)
    assert within > 100  # it does say so where there is a little room


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_the_weight_beyond_every_depth_is_that_of_computed_depths(offset: float, dtype: type) -> None:
    rng = np.random.default_rng(7)
    points = random_points(rng, 400, 100, dtype, size=1.0, offset=offset)
    geometry = Geometry.choose(threshold=150.0, radius=1e4, dimension=100)
    weights = rng.integers(1, 9, 400)
    for masses in (None, weights):
        located = geometry.locate(rows_of(points, radius=geometry.clamp), masses)
        depths = geometry.depths(rows_of(points, radius=geometry.clamp), located.center)
        assert located.certified
        for depth in rng.permutation(np.concatenate((depths[::7], np.linspace(0.0, 150.0, 20)))).tolist():
            expected = np.count_nonzero(depths >= depth) if masses is None else masses[depths >= depth].sum()
            assert located.weight_beyond(depth) == expected
        assert np.array_equal(located.depths, depths)
