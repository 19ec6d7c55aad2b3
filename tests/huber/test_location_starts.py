"""The start of a search affects the number of passes, never correctness; distances are from the returned point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hubermean.huber.descent as solver
from hubermean.huber.passes import weighted_mean
from hubermean.huber.points import PointRows
from hubermean.huber.problem import HuberProblem
from hubermean.huber.solver import find_stationary_point


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The centers from which a search looked."""
    centers: list[np.ndarray] = []
    plain = solver.evaluate_gradient

    def counted(problem: HuberProblem, center: np.ndarray, **more: Any) -> Any:
        centers.append(center)
        return plain(problem, center, **more)

    monkeypatch.setattr(solver, "evaluate_gradient", counted)
    return centers


def users(n: int, d: int, *, far: float, share: float, dtype: type = np.float64) -> np.ndarray:
    """Within 1 of their center, but for a share of them, so far away on one side."""
    points = np.random.default_rng(d).uniform(-1.0, 1.0, (n, d)) / d**0.5
    points[: int(share * n), 0] += far
    return points.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(1000, 1), (1000, 7), (40, 9000)])
def test_the_mean_of_users_within_the_threshold_is_the_center_at_once(
    n: int, d: int, weighted: bool, dtype: type, passes: list[np.ndarray]
) -> None:
    points = users(n, d, far=0.0, share=0.0)
    points = (10 * points).astype(dtype) if dtype is np.int16 else points.astype(dtype)
    weights = np.arange(1, n + 1) if weighted else None
    tolerance = 2.0**-34 * (n if weights is None else float(weights.sum()))
    found = find_stationary_point(points, weights=weights, thresholds=30.0, tolerance=tolerance)
    assert all(np.array_equal(center, found.point) for center in passes)
    assert 0.0 < found.norm_bound <= tolerance
    assert np.allclose(found.point, np.average(points.astype(float), axis=0, weights=weights), atol=1e-12)
    if weights is not None:  # of floats it is not known what they weigh together, to the last bit
        passes.clear()
        looked = find_stationary_point(
            points, weights=weights.astype(float), thresholds=30.0, tolerance=tolerance
        )
        assert len(passes) == 1
        assert np.array_equal(looked.point, found.point)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("far", [3.0, 100.0, 1e4, 1e9])
@pytest.mark.parametrize("d", [1, 3, 300])
def test_distant_users_cost_few_passes_and_distances_match_the_point(
    d: int, far: float, weighted: bool, passes: list[np.ndarray]
) -> None:
    points = users(2000, d, far=far, share=0.05)
    weights = np.arange(1.0, 2001.0)[::-1].copy() if weighted else None
    located = find_stationary_point(points, weights=weights, thresholds=2.0, tolerance=1e-9)
    found = passes[-1]
    assert np.array_equal(located.point, found)
    assert np.allclose(located.distances.all, np.linalg.norm(points - found, axis=1), rtol=1e-12)
    assert float(np.linalg.norm(found)) < 1.0  # pulled, not dragged along
    assert len(passes) <= 12


def test_the_mean_is_the_center_if_all_users_are_far_from_zero(
    passes: list[np.ndarray],
) -> None:
    """They push with little of their weight, as where the mean is a poor start, yet it is the end already."""
    corners = 50.0 * np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    points = np.repeat(corners, 300, axis=0)
    found = find_stationary_point(points, thresholds=1.0, tolerance=1e-6)
    assert float(np.linalg.norm(found.point)) < 1e-6
    assert np.allclose(found.distances.all, 50.0)
    assert len(passes) == 1


def test_clipped_rows_are_clipped_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubermean.huber.passes.block_rows", lambda _: 16)
    points = users(100, 5, far=1e6, share=0.03, dtype=np.float32)
    rows = PointRows.within_ball(points, 10.0)
    problem, _ = HuberProblem.build(rows, None, 1.0)
    assert np.allclose(weighted_mean(problem), rows[:].mean(axis=0), rtol=1e-12)
