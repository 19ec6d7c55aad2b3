"""The kernel of smooth sensitivity: its lemmas with visible errors, and its definition in rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.smooth_sensitivity_pairs import FAMILIES, T, gradient, iterate_neighbors, make_dataset
from hubermean.huber.local_sensitivity import (
    InfluenceLimits,
    bound_local_sensitivity,
    bound_smooth_sensitivity,
)
from hubermean.huber.solver import huber_location
from hubermean.types.request import Neighbors


def pushed(points: Any, weights: Any, center: Any, direction: Any, limit: float) -> Any:
    """The farthest point along `direction` at which the gradient's norm is still within `limit`."""
    low, high = 0.0, 4.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        norm = float(np.linalg.norm(gradient(points, weights, center + middle * direction)))
        low, high = (middle, high) if norm <= limit else (low, middle)
    return center + low * direction


def kernel_pair_holds(
    rng: np.random.Generator,
    relation: Neighbors,
    tamper: Callable[[InfluenceLimits], InfluenceLimits] = lambda caps: caps,
) -> bool:
    """Lemmas 2 and 3 with a sloppy solver and sloppy distances, both as bad as the caps allow."""
    d, n, cap = int(rng.integers(1, 4)), int(rng.integers(2, 50)), int(rng.choice([1, 5]))
    family = FAMILIES[rng.integers(len(FAMILIES))]
    dataset = make_dataset(rng, family, n, d, cap=cap)
    rate, h = float(rng.choice([0.0, 0.001, 0.02])), float(rng.choice([0.0, 0.01, 0.1]))
    factor = 1.0 if relation is Neighbors.ADD_REMOVE else 2.0
    exact = InfluenceLimits(
        weight=cap, influence=factor * cap * T * (1 + 1e-9), gradient_rate=rate, depth_step=2 * h + 1e-9
    )
    caps = tamper(exact)
    for other in iterate_neighbors(dataset, relation, rng, cap):
        sides = []
        for one in (dataset, other):
            usable = np.isfinite(one.means).all(axis=1)
            if not usable.any():
                break
            points = np.clip(one.means[usable], -100.0, 100.0)
            weights = np.minimum(one.counts[usable], cap)
            sides.append(
                (points, weights, np.asarray(huber_location(points, weights=weights, thresholds=T).point))
            )
        if len(sides) < 2:
            continue
        apart = sides[0][2] - sides[1][2]
        length = float(np.linalg.norm(apart))
        direction = apart / length if length > 0 else np.eye(d)[0]
        centers, bounds = [], []
        for sign, (points, weights, center) in zip((1.0, -1.0), sides, strict=True):
            moved = pushed(points, weights, center, sign * direction, rate * float(weights.sum()))
            depths = T - np.linalg.norm(points - moved, axis=1) - sign * h
            centers.append(moved)
            bounds.append(bound_local_sensitivity(depths, weights, caps=caps, reach=n + 1))
        shift = float(np.linalg.norm(centers[0] - centers[1])) * (1 - 1e-9)
        for mine, theirs in (bounds, bounds[::-1]):
            if shift > mine[0] or not (mine[:-1] <= theirs[1:]).all():
                return False
    return True


@pytest.mark.parametrize("relation", list(Neighbors))
def test_the_lemmas_hold_with_inaccurate_solver_and_distances(relation: Neighbors) -> None:
    rng = np.random.default_rng(5)
    assert all(kernel_pair_holds(rng, relation) for _ in range(25))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("relation", list(Neighbors))
def test_the_lemmas_hold_for_many_inaccurate_pairs(relation: Neighbors, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert all(kernel_pair_holds(rng, relation) for _ in range(200))


@pytest.mark.parametrize("dropped", ["gradient_rate", "depth_step"])
def test_dropping_an_error_term_is_caught(dropped: str) -> None:
    rng = np.random.default_rng(6)

    def without(caps: InfluenceLimits) -> InfluenceLimits:
        return replace(caps, **{dropped: 0.0})

    assert not all(kernel_pair_holds(rng, relation, without) for _ in range(150) for relation in Neighbors)


def bounds_by_definition(depths: Any, weights: Any, caps: InfluenceLimits, reach: int) -> list[float]:
    """r_k as the least r with (M(r) - k w)(r - k e) >= k Q_k, in fractions, over the pieces of M."""
    total = int(sum(weights))
    found = []
    for k in range(1, reach + 1):
        influence = Fraction(caps.influence) + 2 * Fraction(caps.gradient_rate) * (total + k * caps.weight)
        best = None
        for edge in sorted(set(depths[depths > 0])):
            mass = int(sum(weights[depths >= edge])) - k * caps.weight
            if mass <= 0:
                continue
            least = k * influence / mass + k * Fraction(caps.depth_step)
            if least <= Fraction(float(edge)):
                best = mass
                break
        found.append(math.inf if best is None else float(influence / best))
    return found


def test_the_kernel_agrees_with_the_definition() -> None:
    rng = np.random.default_rng(8)
    for _ in range(40):
        n, cap = int(rng.integers(0, 40)), int(rng.choice([1, 7]))
        depths = 1.0 - np.abs(rng.choice([rng.normal(size=n) * 0.5, rng.integers(0, 5, n) / 4.0]))
        weights = rng.integers(1, cap + 1, n)
        caps = InfluenceLimits(weight=cap, influence=2.0 * cap, gradient_rate=1e-3, depth_step=1e-3)
        given = None if cap == 1 else weights
        mine = bound_local_sensitivity(depths, given, caps=caps, reach=n + 2)
        assert mine == pytest.approx(bounds_by_definition(depths, weights, caps, n + 2), rel=1e-12)


def test_smooth_sensitivity_bound() -> None:
    bounds = np.array([0.1, 0.5, math.inf])
    assert bound_smooth_sensitivity(bounds, diameter=10.0, decay=1.0) == 10.0
    assert bound_smooth_sensitivity(bounds, diameter=10.0, decay=0.5) == 2.5
    assert bound_smooth_sensitivity(bounds, diameter=10.0, decay=1e-9) == 0.1
    assert bound_smooth_sensitivity(np.empty(0), diameter=10.0, decay=0.5) == 10.0
