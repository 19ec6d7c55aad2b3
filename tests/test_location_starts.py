"""Where a search starts costs passes, never correctness; and distances are those from the point that is returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hubermean.location.descent as solver
from hubermean.location import Rows, small_gradient
from hubermean.location.blocks import Problem
from hubermean.location.start import mean


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The centres from which a search looked."""
    centres: list[np.ndarray] = []
    plain = solver.sweep

    def counted(problem: Problem, centre: np.ndarray, **more: Any) -> Any:
        centres.append(centre)
        return plain(problem, centre, **more)

    monkeypatch.setattr(solver, "sweep", counted)
    return centres


def users(n: int, d: int, *, far: float, share: float, dtype: type = np.float64) -> np.ndarray:
    """Within 1 of their centre, but for a share of them, so far away on one side."""
    points = np.random.default_rng(d).uniform(-1.0, 1.0, (n, d)) / d**0.5
    points[: int(share * n), 0] += far
    return points.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(1000, 1), (1000, 7), (40, 9000)])
def test_users_within_the_threshold_have_their_mean_as_centre_at_once(
    n: int, d: int, weighted: bool, dtype: type, passes: list[np.ndarray]
) -> None:
    points = users(n, d, far=0.0, share=0.0)
    points = (10 * points).astype(dtype) if dtype is np.int16 else points.astype(dtype)
    weights = np.arange(1, n + 1) if weighted else None
    tolerance = 2.0**-34 * (n if weights is None else float(weights.sum()))
    found = small_gradient(points, weights=weights, thresholds=30.0, tolerance=tolerance)
    assert all(np.array_equal(centre, found.point) for centre in passes)
    assert 0.0 < found.norm_bound <= tolerance
    assert np.allclose(found.point, np.average(points.astype(float), axis=0, weights=weights), atol=1e-12)
    if weights is not None:  # of floats it is not known what they weigh together, to the last bit
        passes.clear()
        looked = small_gradient(points, weights=weights.astype(float), thresholds=30.0, tolerance=tolerance)
        assert len(passes) == 1
        assert np.array_equal(looked.point, found.point)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("far", [3.0, 100.0, 1e4, 1e9])
@pytest.mark.parametrize("d", [1, 3, 300])
def test_far_users_cost_few_passes_and_distances_are_of_the_point(
    d: int, far: float, weighted: bool, passes: list[np.ndarray]
) -> None:
    points = users(2000, d, far=far, share=0.05)
    weights = np.arange(1.0, 2001.0)[::-1].copy() if weighted else None
    located = small_gradient(points, weights=weights, thresholds=2.0, tolerance=1e-9)
    found = passes[-1]
    assert np.array_equal(located.point, found)
    assert np.allclose(located.distances.all, np.linalg.norm(points - found, axis=1), rtol=1e-12)
    assert float(np.linalg.norm(found)) < 1.0  # pulled, not dragged along
    assert len(passes) <= 12


def test_the_mean_is_kept_where_it_is_the_centre_of_users_who_are_all_far_away(
    passes: list[np.ndarray],
) -> None:
    """They pull with little of their weight, as where the mean is a poor start, yet it is the end already."""
    corners = 50.0 * np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    points = np.repeat(corners, 300, axis=0)
    found = small_gradient(points, thresholds=1.0, tolerance=1e-6)
    assert float(np.linalg.norm(found.point)) < 1e-6
    assert np.allclose(found.distances.all, 50.0)
    assert len(passes) == 1


def test_rows_that_are_shrunk_are_shrunk_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubermean.location.start.block_rows", lambda _: 16)
    points = users(100, 5, far=1e6, share=0.03, dtype=np.float32)
    rows = Rows.within_ball(points, 10.0)
    problem, _ = Problem.build(rows, None, 1.0)
    assert np.allclose(mean(problem), rows[:].mean(axis=0), rtol=1e-12)
