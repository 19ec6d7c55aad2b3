"""The search around a core finds the same center as a search over all users, with a gradient within its bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hubermean.huber.descent as solver
from hubermean.data.arrays import squared_row_norms
from hubermean.errors import InputError
from hubermean.huber.core import CoreSolution, search_around_core
from hubermean.huber.passes import weighted_mean
from hubermean.huber.points import PointRows
from hubermean.huber.problem import HuberProblem
from hubermean.huber.solver import find_stationary_point

Floats = np.ndarray[Any, np.dtype[np.float64]]
RATE = 2.0**-34  # of the threshold, for each unit of weight: what `propose-test-release` asks for


def rows_of(points: Any, *, radius: float = 1e300) -> PointRows:
    squares = squared_row_norms(points, np.empty(len(points))) if points.dtype.kind == "f" else None
    return PointRows.within_ball(points, radius, squares=squares)


def exact_gradient(points: np.ndarray[Any, Any], weights: Any, center: Floats) -> Fraction:
    """The square of the norm of the gradient of the sum of squares."""
    total = Fraction(0)
    for column, place in zip(points.T.tolist(), center.tolist(), strict=True):
        influence = sum(
            int(a) * (Fraction(place) - Fraction(y)) for a, y in zip(weights.tolist(), column, strict=True)
        )
        total += influence * influence
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 3.0, 1e4])
@pytest.mark.parametrize("size", [1e-90, 1.0, 1e60])
def test_the_gradient_at_a_confirmed_mean_is_within_its_bound(
    size: float, offset: float, weighted: bool, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype is np.float32 and size != 1.0:
        size = 1e-40 if size < 1.0 else 1e30
    monkeypatch.setattr("hubermean.huber.passes.block_rows", lambda _: 16)
    rng = np.random.default_rng(4)
    points = (size * (rng.uniform(-1.0, 1.0, (333, 3)) + offset)).astype(dtype)
    weights = rng.integers(1, 2**22, 333) if weighted else np.ones(333, dtype=np.int64)
    problem, _ = HuberProblem.build(rows_of(points), weights if weighted else None, 4.0 * size)
    _, found = search_around_core(problem, np.inf)
    assert found is not None
    assert np.array_equal(found.point, weighted_mean(problem))
    assert exact_gradient(points, weights, found.point) <= Fraction(found.norm_bound) ** 2
    # And it is no wild bound: some hundred roundings of numbers as large as these.
    assert (
        found.norm_bound
        <= 400 * 2.0**-53 * float(weights.sum()) * size * (4.0 + 2.0 * (offset + 1.0)) + 1e-300
    )


def test_the_mean_is_not_confirmed_if_the_bound_exceeds_the_tolerance_or_weights_are_inexact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = np.random.default_rng(5).uniform(-1.0, 1.0, (100, 4))

    def asked(tolerance: float, weights: Any = None, thresholds: Any = 10.0) -> bool:
        problem, _ = HuberProblem.build(points, weights, thresholds)
        return search_around_core(problem, tolerance)[1] is not None

    assert asked(1e-6)
    with monkeypatch.context() as nobody:
        nobody.setattr("hubermean.huber.core.Distances", None)  # it is known before anybody is looked at
        assert not asked(0.0)
        assert not asked(1e-15)
    assert asked(1e-6, weights=np.full(100, 2))
    assert not asked(1e-6, weights=np.full(100, 2.0))
    assert not asked(1e9, weights=np.full(100, 2**50))  # their sum is not exact in floats
    assert not asked(1e-6, thresholds=np.full(100, 10.0))
    assert not asked(1e-6, thresholds=0.5)  # some are beyond


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [2, 40])
def test_one_user_just_beyond_the_threshold_triggers_a_search(d: int, dtype: type) -> None:
    """Which then finds another center than the mean."""
    rng = np.random.default_rng(6)
    points = rng.standard_normal((500, d)).astype(dtype)
    points[17] *= 4.0
    tolerance = 2.0**-34 * 500
    center = points.mean(axis=0, dtype=np.float64)
    farthest = float(np.linalg.norm(points.astype(float) - center, axis=1).max())
    inside = find_stationary_point(rows_of(points), thresholds=1.001 * farthest, tolerance=tolerance)
    outside = find_stationary_point(rows_of(points), thresholds=0.999 * farthest, tolerance=tolerance)
    assert np.allclose(inside.point, center, rtol=0.0, atol=1e-14)
    assert float(np.linalg.norm(outside.point - center)) > 1e-8
    assert outside.norm_bound <= max(tolerance, 1e-9)


def huber_gradient(points: PointRows, weights: Any, threshold: float, center: Floats) -> float:
    """The norm of the gradient in extended precision."""
    offsets = np.asarray(points).astype(np.longdouble) - center.astype(np.longdouble)
    lengths = np.sqrt((offsets * offsets).sum(axis=1))
    influences = np.minimum(1.0, threshold / np.maximum(lengths, threshold)) * weights
    force = (offsets * influences[:, np.newaxis]).sum(axis=0)
    return float(np.sqrt((force * force).sum()))


def users_with_outliers(rng: np.random.Generator, n: int, d: int, *, far: float, share: float) -> Floats:
    """Users about sqrt(d) away from a center that is not 0, some of them `far` times as far on one side."""
    points = rng.standard_normal((n, d))
    points[: int(share * n)] *= 1.5
    points[: int(share * n), 0] += far * d**0.5
    return points + 0.3 * rng.standard_normal(d)


@pytest.fixture
def evaluated_users(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many users each pass of a search looked at."""
    seen: list[int] = []
    plain = solver.evaluate_gradient

    def counted(problem: HuberProblem, center: Floats, **more: Any) -> Any:
        seen.append(problem.n_users)
        return plain(problem, center, **more)

    monkeypatch.setattr(solver, "evaluate_gradient", counted)
    return seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("far", "share"), [(3.0, 0.08), (50.0, 0.05), (1e4, 0.02), (1e9, 0.001)])
@pytest.mark.parametrize("d", [1, 3, 40, 300])
def test_the_search_reads_only_hostile_users(
    d: int, far: float, share: float, weighted: bool, dtype: type, evaluated_users: list[int]
) -> None:
    rng = np.random.default_rng(d)
    n, threshold = 3000, 2.0 * d**0.5 + 3.0
    points = rows_of(users_with_outliers(rng, n, d, far=far, share=share).astype(dtype), radius=1e6 * d**0.5)
    weights = rng.integers(1, 5, n) if weighted else None
    masses = np.ones(n) if weights is None else weights
    tolerance = RATE * threshold * float(masses.sum())
    found = find_stationary_point(points, weights=weights, thresholds=threshold, tolerance=tolerance)
    gradient = huber_gradient(points, masses, threshold, found.point)
    assert gradient <= found.norm_bound * (1.0 + 1e-6)
    assert found.norm_bound <= tolerance
    assert np.allclose(
        found.distances.all, np.linalg.norm(np.asarray(points) - found.point, axis=1), rtol=1e-12
    )
    if d >= 16 or far * share <= 0.5:  # else the mean is dragged away, and everybody must be looked at
        assert evaluated_users
        assert max(evaluated_users) <= 0.125 * n


def test_the_center_equals_that_of_a_search_over_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    points = rows_of(users_with_outliers(rng, 2000, 50, far=20.0, share=0.1))
    wanted = {"thresholds": 20.0, "tolerance": 1e-9}
    quick = find_stationary_point(points, **wanted)  # type: ignore[arg-type]
    monkeypatch.setattr(
        "hubermean.huber.solver.search_around_core", lambda problem, _: (weighted_mean(problem), None)
    )
    plain = find_stationary_point(points, **wanted)  # type: ignore[arg-type]
    assert np.allclose(quick.point, plain.point, rtol=0.0, atol=1e-11)
    assert np.allclose(quick.distances.all, plain.distances.all, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [2, 40])
def test_core_users_beyond_the_threshold_after_a_search_are_searched_again(
    d: int, dtype: type, evaluated_users: list[int]
) -> None:
    """Many users just within the threshold of the mean, on the side to which it is dragged: the center is not."""
    rng = np.random.default_rng(d)
    points = 0.1 * rng.standard_normal((4000, d)) / d**0.5
    points[:300, 0] += 5.0
    edge = points[300:420]
    edge[:, 0] = 1.6 + 0.3 + 0.02 * rng.random(120)
    points[:, 1] += 5.0  # so that no row is much longer than most
    rows = rows_of(points.astype(dtype))
    found = find_stationary_point(rows, thresholds=1.6, tolerance=RATE * 4000)
    gradient = huber_gradient(rows, np.ones(4000), 1.6, found.point)
    assert gradient <= found.norm_bound * (1.0 + 1e-6) <= RATE * 4000 * (1.0 + 1e-6)
    start = np.asarray(rows).mean(axis=0)
    assert (np.linalg.norm(edge - start, axis=1) < 1.6).all()
    assert (found.distances.all[300:420] > 1.6).all()
    assert set(evaluated_users) == {300, 420}


def test_roundings_in_one_direction_are_within_the_bound() -> None:
    """A sum of equal numbers: its error is a share of what the bound allows, and many times that of the last step."""
    points = np.full((60_000, 2), 0.1)
    problem, _ = HuberProblem.build(points, None, 1.0)
    _, found = search_around_core(problem, 1.0)
    assert found is not None
    weights = np.ones(len(points), dtype=np.int64)
    gradient = exact_gradient(points[:, :1], weights, found.point[:1])
    assert (1e-4 * Fraction(found.norm_bound)) ** 2 < 2 * gradient <= Fraction(found.norm_bound) ** 2


@pytest.mark.parametrize("d", [2, 40])
def test_distant_users_on_both_sides_do_not_inflate_the_bound(d: int) -> None:
    """The mean stays where it is, but so large numbers in its sum leave little of the precision that is asked for."""
    points = np.random.default_rng(d).standard_normal((3000, d))
    threshold, tolerance = 2.0 * d**0.5 + 3.0, RATE * 3000 * d**0.5
    rows = PointRows(array=points)
    reached = set()
    for far in 10.0 ** np.arange(1.0, 14.0, 0.25):
        points[:2, 0] = far, -far
        problem, _ = HuberProblem.build(rows, None, threshold)
        reached.add(search_around_core(problem, tolerance)[1] is not None)
        found = find_stationary_point(rows, thresholds=threshold, tolerance=tolerance)
        assert huber_gradient(rows, np.ones(3000), threshold, found.point) <= found.norm_bound <= tolerance
    assert reached == {False, True}


def test_long_rows_within_the_threshold_count_in_the_mean(evaluated_users: list[int]) -> None:
    """They are left out of the first mean, which they might have dragged away."""
    points = np.random.default_rng(11).standard_normal((1000, 50)) * (2.0 / 50**0.5)
    points[:, 0] += 1.0
    points[::20] = 10.5 * np.eye(50)[0]
    found = find_stationary_point(rows_of(points), thresholds=10.0, tolerance=RATE * 1e4)
    assert np.allclose(found.point, points.mean(axis=0), rtol=0.0, atol=1e-9)
    assert set(evaluated_users) == {50}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", ["half are zero", "lengths of all sizes"])
def test_users_within_the_threshold_need_no_search_for_any_row_norms(
    shape: str, weighted: bool, evaluated_users: list[int]
) -> None:
    rng = np.random.default_rng(13)
    points = rng.standard_normal((999, 40)) / 40**0.5
    points *= (np.arange(999) % 2 if shape == "half are zero" else rng.gamma(0.2, size=999))[:, np.newaxis]
    weights = rng.integers(1, 9, 999) if weighted else None
    tolerance = RATE * 30.0 * (999 if weights is None else float(weights.sum()))
    found = find_stationary_point(rows_of(points), weights=weights, thresholds=30.0, tolerance=tolerance)
    assert np.allclose(found.point, np.average(points, axis=0, weights=weights), rtol=0.0, atol=1e-12)
    assert set(evaluated_users) == {8}


@pytest.mark.parametrize("d", [3, 40])
def test_one_user_beyond_the_threshold_costs_the_same_passes_as_none(
    d: int, evaluated_users: list[int]
) -> None:
    """Among as many users, in about as many steps."""
    points = np.random.default_rng(d).standard_normal((3000, d))
    counts = []
    for far in (0.0, 1e3):
        points[7] = far
        find_stationary_point(rows_of(points), thresholds=5.0 * d**0.5, tolerance=RATE * 3000)
        counts.append(list(evaluated_users))
        evaluated_users.clear()
    assert set(counts[0]) == set(counts[1]) == {8}
    assert len(counts[0]) == len(counts[1]) == 4


@pytest.mark.parametrize("place", ["middle", "rim"])
def test_a_heavy_user_within_the_threshold_does_not_trigger_a_full_search(
    place: str, evaluated_users: list[int]
) -> None:
    """Though it may be the farthest, and too heavy to be searched among."""
    points = np.random.default_rng(16).standard_normal((2000, 40))
    points[7] = 0.0 if place == "middle" else 2.5
    weights = np.where(np.arange(2000) == 7, 400, 1)
    tolerance = RATE * 20.0 * 2400.0
    found = find_stationary_point(rows_of(points), weights=weights, thresholds=20.0, tolerance=tolerance)
    assert huber_gradient(rows_of(points), weights, 20.0, found.point) <= found.norm_bound <= tolerance
    assert max(evaluated_users) <= 8


def test_heavy_users_beyond_the_threshold_trigger_a_full_search(evaluated_users: list[int]) -> None:
    points = users_with_outliers(np.random.default_rng(14), 2000, 40, far=100.0, share=0.05)
    weights = np.where(np.arange(2000) < 100, 2**15, 1)
    tolerance = RATE * 16.0 * float(weights.sum())
    found = find_stationary_point(rows_of(points), weights=weights, thresholds=16.0, tolerance=tolerance)
    assert huber_gradient(rows_of(points), weights, 16.0, found.point) <= found.norm_bound <= tolerance
    assert set(evaluated_users) == {2000}


def test_more_than_a_few_users_outside_trigger_a_full_search(evaluated_users: list[int]) -> None:
    points = np.random.default_rng(12).standard_normal((2000, 3))
    points[np.arange(2000) % 20 < 3, 0] += np.where(np.arange(300) % 2, 20.0, -20.0)  # so that the mean stays
    find_stationary_point(points, thresholds=5.0, tolerance=RATE * 1e4)
    assert set(evaluated_users) == {2000}


def test_many_users_outside_trigger_a_full_search(evaluated_users: list[int]) -> None:
    rng = np.random.default_rng(8)
    points = rng.standard_cauchy((2000, 3))
    found = find_stationary_point(points, thresholds=0.5, tolerance=RATE * 2000)
    assert 2000 in evaluated_users
    assert huber_gradient(rows_of(points), np.ones(2000), 0.5, found.point) <= found.norm_bound <= RATE * 2000


def test_users_of_weight_zero_and_nan_change_nothing() -> None:
    points = np.random.default_rng(9).standard_normal((300, 20))
    points[:200] = 1e5
    weights = np.where(np.arange(300) < 200, 0, 3)
    found = find_stationary_point(rows_of(points), weights=weights, thresholds=30.0, tolerance=1e-7)
    assert np.allclose(found.point, points[200:].mean(axis=0), atol=1e-9)
    points[250, 3] = np.nan
    with pytest.raises(InputError, match="must be finite"):
        find_stationary_point(points, weights=weights, thresholds=30.0, tolerance=1e-7)


def test_the_solution_repr_shows_nothing() -> None:
    points = rows_of(np.random.default_rng(10).standard_normal((300, 20)))
    problem, _ = HuberProblem.build(points, None, 30.0)
    _, found = search_around_core(problem, 1e-6)
    assert isinstance(found, CoreSolution)
    assert "0." not in repr(found) + repr(found.distances)


def test_a_search_that_ends_above_the_tolerance_returns_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubermean.huber.core.descend", lambda _, here, __: (here, 0))
    points = users_with_outliers(np.random.default_rng(15), 2000, 40, far=100.0, share=0.05)
    problem, _ = HuberProblem.build(rows_of(points), None, 16.0)
    assert search_around_core(problem, RATE * 32_000.0)[1] is None
