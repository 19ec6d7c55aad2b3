"""Passes shared out among threads: the same users, the same certificates, whatever the number of count_processors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hubermean.data.threads import map_row_ranges
from hubermean.errors import InputError
from hubermean.huber.geometry import Geometry
from hubermean.huber.passes import evaluate_gradient
from hubermean.huber.points import PointRows
from hubermean.huber.problem import HuberProblem
from hubermean.huber.solver import find_stationary_point, huber_location


@pytest.fixture
def three_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads for any number of rows."""
    monkeypatch.setattr("hubermean.data.threads.MIN_PARALLEL_ELEMENTS", 1)
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: 3)


@pytest.mark.usefixtures("three_processors")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 1000])
def test_every_row_is_in_one_range_and_in_order(n: int) -> None:
    ranges = map_row_ranges(lambda share: list(range(n)[share]), n, 1)
    assert [row for one in ranges for row in one] == list(range(n))
    assert len(ranges) == min(n, 3)


@pytest.mark.usefixtures("three_processors")
def test_work_is_done_in_several_threads_at_once() -> None:
    together = threading.Barrier(3, timeout=60)
    assert len(set(map_row_ranges(lambda _: (together.wait(), threading.get_ident())[1], 3, 1))) == 3


def test_little_work_stays_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: 3)
    assert map_row_ranges(lambda share: (share, threading.get_ident()), 1000, 10) == [
        (slice(0, 1000), threading.get_ident())
    ]


@pytest.mark.parametrize("d", [1, 3, 700])
@pytest.mark.parametrize("weighted", [False, True])
def test_threads_agree_with_one_thread_up_to_the_proved_error(
    d: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng([d, weighted])
    points = rng.standard_cauchy((900, d))
    weights = rng.integers(0, 9, 900).astype(float) if weighted else None
    thresholds = rng.uniform(1.0, 3.0, 900) * d**0.5
    problem, _ = HuberProblem.build(points, weights, thresholds)
    center = rng.normal(size=d)
    alone = evaluate_gradient(problem, center, hessian=d < 10)
    monkeypatch.setattr("hubermean.data.threads.MIN_PARALLEL_ELEMENTS", 1)
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: 3)
    together = evaluate_gradient(problem, center, hessian=d < 10)
    assert float(np.linalg.norm(alone.gradient - together.gradient)) <= 2.0 * alone.error
    assert together.error == pytest.approx(alone.error, rel=1e-12)
    assert together.robust_weight == pytest.approx(alone.robust_weight, rel=1e-12)
    if alone.hessian is not None:
        assert np.allclose(alone.hessian, together.hessian)
    found = huber_location(points, weights=weights, thresholds=thresholds)
    assert found.gradient_norm_bound <= 2e-10 * float(np.sum(thresholds)) * 9.0


@pytest.mark.parametrize("d", [1, 4])
def test_rows_are_clipped_identically_by_threads(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(d)
    array = rng.standard_cauchy((500, d)).astype(np.float32)
    some = np.flatnonzero(rng.random(500) < 0.9)
    alone = [np.asarray(PointRows.within_ball(array, 2.0, chosen=chosen)) for chosen in (None, some)]
    monkeypatch.setattr("hubermean.data.threads.MIN_PARALLEL_ELEMENTS", 1)
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: 3)
    for chosen, expected in zip((None, some), alone, strict=True):
        rows = PointRows.within_ball(array, 2.0, chosen=chosen)
        assert np.array_equal(np.asarray(rows), expected)
        assert np.array_equal(np.asarray(rows.part(slice(100, 200))), expected[100:200])


@pytest.mark.usefixtures("three_processors")
def test_non_finite_numbers_are_refused_from_any_thread() -> None:
    points = np.zeros((100, 2))
    points[-1] = np.nan
    with pytest.raises(InputError, match="must be finite"):
        huber_location(points, thresholds=1.0)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("d", [1, 2, 300])
def test_distances_are_those_from_the_point_that_is_returned(
    d: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubermean.data.threads.MIN_PARALLEL_ELEMENTS", 1)
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: threads)
    rng = np.random.default_rng(d)
    geometry = Geometry.choose(threshold=1.0, radius=100.0, dimension=d)
    for points in (rng.standard_cauchy((400, d)), rng.normal(size=(400, d)) * 1e-3, np.zeros((400, d))):
        rows = PointRows.within_ball(points, geometry.clamp)
        found = find_stationary_point(rows, thresholds=1.0, tolerance=1e-9)
        exact = np.sqrt(np.square(np.asarray(rows).astype(np.longdouble) - found.point).sum(axis=1))
        assert np.all(np.abs(found.distances.all - exact) <= 1e-13 * exact)
        located = geometry.locate(rows, None)
        assert np.allclose(located.depths, geometry.depths(rows, located.center), rtol=0.0, atol=1e-9)
