"""Delta of the paper: exact in one column, bounded in several, and 1-Lipschitz between neighbors.

Against linear programs over every set of users, which share nothing with the code under test.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from hubermean_experiments.paper.constants import printed_constants
from hubermean_experiments.paper.literal import unsafe_paper_literal_diagnostics
from hubermean_experiments.paper.outliers import (
    imbalanced_outliers,
    imbalanced_outliers_printed,
    outliers_bound,
    outliers_exact,
)
from hubermean_experiments.paper.users import PaperUsers

CLAIM: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}


def feasible(
    objective_size: int, rows: list[list[float]], limits: list[float], equal: list[float], level: float
) -> bool:
    """Whether rows . x + slack <= limits has a solution with slack > 0, the last variable being the slack."""
    from scipy.optimize import linprog

    solution = linprog(
        [0.0] * (objective_size - 1) + [-1.0],
        A_ub=rows,
        b_ub=limits,
        A_eq=[equal],
        b_eq=[level],
        bounds=[(None, None)] * (objective_size - 1) + [(None, 1.0)],
        method="highs",
    )
    assert solution.status == 0
    return bool(-solution.fun > 1e-7)


def brute_delta(
    values: list[float], weights: list[float], thresholds: list[float], heavy: set[int] | None
) -> int:
    """Delta by a linear program for every set of replaced users; `heavy` None: eq. delta, else eq. deltaunb.

    Variables: the users of D* (n), its mean c, distances z_i >= |y_i* - c| (n), slack.
    """
    n = len(values)
    size = 2 * n + 2
    light = sum(weights) - sum(weights[i] for i in heavy or ())
    for k in range(n + 1):
        for replaced in itertools.combinations(range(n), k):
            rows, limits = [], []
            for i in range(n):
                for sign in (1.0, -1.0):
                    row = [0.0] * size
                    row[i], row[n], row[n + 1 + i] = sign, -sign, -1.0
                    rows.append(row)
                    limits.append(0.0)
                    if i not in replaced:
                        row = [0.0] * size
                        row[i] = sign
                        rows.append(row)
                        limits.append(sign * values[i])
                row = [0.0] * size
                row[n + 1 + i] = row[-1] = 1.0
                limit = thresholds[i] / 2 if heavy is None else thresholds[i]
                for j in heavy or ():  # h(D*, k_0) + z_i < T_i
                    row[n + 1 + j] += weights[j] / light
                    limit -= weights[j] * thresholds[j] / light
                rows.append(row)
                limits.append(limit)
            equal = [*weights, -sum(weights)] + [0.0] * (n + 1)
            if feasible(size, rows, limits, equal, 0.0):
                return k
    return -1


def check_exact(seed: int, datasets: int) -> set[int]:
    generator = np.random.default_rng(seed)
    seen = set()
    for _ in range(datasets):
        n = int(generator.integers(1, 7))
        values = generator.integers(0, int(generator.integers(2, 25)), n).astype(float)
        threshold = float(generator.integers(1, 8))
        if generator.random() < 0.5:  # most users at one point: here the mean decides, not the range
            values = np.where(generator.random(n) < 0.75, 0.0, generator.choice([-4.0, 4.0]))
            threshold = float(generator.choice([4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5]))
        expected = brute_delta(values.tolist(), [1.0] * n, [threshold] * n, None)
        assert outliers_exact(values[:, None], threshold) == expected, (values, threshold)
        seen.add(expected)
    return seen


def test_delta_of_one_column_is_exact() -> None:
    assert check_exact(1, 120) >= {0, 1, 2, 3}


@pytest.mark.slow
def test_delta_of_one_column_is_exact_on_many_data_sets() -> None:
    check_exact(2, 3000)


def test_delta_decides_ties_exactly() -> None:
    """Z(D*) < T/2 strictly: two users T apart cannot both stay, whatever their size or the rounding of sums."""
    for side in (4.0, -4.0):  # the mean is 1 away from three users and 3 from the fourth
        values = np.array([[0.0], [0.0], [0.0], [side]])
        assert [outliers_exact(values, threshold) for threshold in (5.9, 6.0, 6.1)] == [1, 1, 0]
    for unit in (1.0, 0.1, 1e-300, 1e200):
        pair = np.array([[0.0], [unit]])
        assert outliers_exact(pair, unit) == 1
        assert outliers_exact(pair, float(np.nextafter(unit, np.inf))) == 0
    # Ten users at 0 and one at 1: the farthest is 10/11 from the mean, so T = 20/11 is the edge.
    values = np.array([[0.0]] * 10 + [[1.0]])
    edge = 20.0 / 11.0
    assert outliers_exact(values, float(np.nextafter(edge, 2.0))) == 0
    assert outliers_exact(values, float(np.nextafter(edge, 0.0))) == 1
    assert outliers_exact(values + 2.0**40, float(np.nextafter(edge, 2.0))) == 0


def bound_arguments(users: PaperUsers) -> dict[str, Any]:
    return {"weights": users.weights, "radii": users.thresholds / 2, "horizon": users.n_users // 4}


def test_the_bound_is_never_below_delta_for_equal_users() -> None:
    generator = np.random.default_rng(5)
    gaps = []
    for _ in range(300):
        n = int(generator.integers(4, 120))
        values = generator.normal(0, generator.uniform(0.01, 0.5), n)
        values[: int(generator.integers(0, n // 3 + 1))] += generator.choice([-1, 1]) * generator.uniform(
            0.2, 3
        )
        users = PaperUsers.balanced(n, 1.0)
        bound = outliers_bound(values[:, None], **bound_arguments(users))
        truth = min(outliers_exact(values[:, None], 1.0), n // 4)
        assert truth <= bound <= n // 4
        # The same line, turned into three dimensions: the bound does not depend on the axes.
        turned = values[:, None] * np.array([[2.0, -1.0, 2.0]]) / 3.0 + 5.0
        assert abs(outliers_bound(turned, **bound_arguments(users)) - bound) <= 1
        gaps.append(bound - truth)
    assert min(gaps) == 0


def check_imbalanced_bound(seed: int, datasets: int) -> list[int]:
    generator = np.random.default_rng(seed)
    gaps = []
    for _ in range(datasets):
        n = int(generator.integers(3, 7))
        k_0 = int(generator.integers(1, 3))
        counts = np.sort(generator.integers(1, 5, n))
        users = PaperUsers.imbalanced(counts, float(generator.integers(2, 9)), gamma=None, k_0=k_0)
        values = generator.integers(0, 4, n).astype(float) * generator.choice([0.1, 1.0])
        truth = brute_delta(
            values.tolist(), users.weights.tolist(), users.thresholds.tolist(), set(users.heaviest.tolist())
        )
        bound = imbalanced_outliers(users, values[:, None])
        assert (bound is None) == (truth < 0)
        if bound is not None:
            assert min(truth, k_0) <= bound <= k_0
            gaps.append(bound - min(truth, k_0))
    return gaps


def test_the_bound_is_never_below_delta_for_unequal_users() -> None:
    assert min(check_imbalanced_bound(7, 50)) == 0


def test_the_bound_leaves_room_for_h() -> None:
    """Half of 80 users at each of +-0.95 T, k_0 = 10: h >= T/7 in any D*, so no 9 changes are enough."""
    users = PaperUsers.imbalanced(np.ones(80), 1.0, gamma=None, k_0=None)
    values = np.array([[0.95], [-0.95]] * 40)
    assert users.k_0 == 10
    assert imbalanced_outliers(users, values) == 10
    assert imbalanced_outliers(users, 0.5 * values) == 0


@pytest.mark.slow
def test_the_bound_is_never_below_delta_for_unequal_users_on_many_data_sets() -> None:
    check_imbalanced_bound(8, 2000)


def neighbor_pairs(seed: int, pairs: int, dimension: int) -> Any:
    """Users near a threshold of 1, a share of them far out, and one user changed to where it hurts."""
    generator = np.random.default_rng(seed)
    for _ in range(pairs):
        n = int(generator.integers(8, 80))
        direction = generator.normal(size=dimension)
        direction /= np.linalg.norm(direction)
        points = generator.normal(0, generator.uniform(0.001, 0.4), (n, dimension)) + 3.0
        out = int(generator.integers(0, n // 3 + 1))
        signs = generator.choice([-1.0, 1.0], (out, 1)) if generator.random() < 0.5 else 1.0
        points[:out] = 3.0 + signs * direction * generator.choice([0.3, 0.5, 1.0, 100.0])
        other = points.copy()
        who = int(generator.integers(0, n))
        other[who] = 3.0 + generator.choice([-1.0, 1.0]) * direction * generator.choice([0.0, 0.4, 1.0, 1e4])
        yield generator, points, other


def check_lipschitz(seed: int, pairs: int) -> int:
    moves = 0
    for dimension in (1, 2, 3):
        for generator, points, other in neighbor_pairs(seed + dimension, pairs, dimension):
            n = len(points)
            users = PaperUsers.balanced(n, 1.0)
            if dimension == 1:
                assert abs(outliers_exact(points, 1.0) - outliers_exact(other, 1.0)) <= 1
            bounds = [outliers_bound(data, **bound_arguments(users)) for data in (points, other)]
            assert abs(bounds[0] - bounds[1]) <= 1
            moves += bounds[0] != bounds[1]
            counts = generator.integers(1, 30, n)
            users = PaperUsers.imbalanced(counts, float(generator.uniform(1, 6)), gamma=None, k_0=None)
            unequal = [imbalanced_outliers(users, data) for data in (points, other)]
            if unequal[0] is None or unequal[1] is None:
                assert unequal[0] is unequal[1]
            else:
                assert abs(unequal[0] - unequal[1]) <= 1
                moves += unequal[0] != unequal[1]
    return moves


def test_delta_changes_by_at_most_one_between_neighbors() -> None:
    assert check_lipschitz(11, 300) > 100


@pytest.mark.slow
def test_delta_changes_by_at_most_one_between_many_neighbors() -> None:
    check_lipschitz(12, 4_000)


def test_s_is_smooth_and_covers_the_shift_between_neighbors() -> None:
    """Lemma 8: |ln S - ln S'| <= beta and shift <= S; for unequal users, after its slip, shift <= e^beta S."""
    for dimension in (1, 2):
        beta = printed_constants(1.0, 1e-5, dimension=dimension).beta
        for generator, points, other in neighbor_pairs(21 + dimension, 100, dimension):
            counts = generator.integers(1, 30, len(points))
            for of_users, excess in ((None, 1.0), (counts, math.exp(beta))):
                one, two = (
                    unsafe_paper_literal_diagnostics(data, of_users, threshold=2.0, radius=10.0, **CLAIM)
                    for data in (points, other)
                )
                assert abs(math.log(one.S / two.S)) <= beta * (1 + 1e-9)
                shift = np.linalg.norm(np.atleast_1d(one.clipped) - np.atleast_1d(two.clipped))
                assert shift <= excess * min(one.S, two.S) * (1 + 1e-9)


def test_delta_to_the_letter_on_unequal_users() -> None:
    users = PaperUsers.imbalanced(np.ones(10), 1.0, gamma=None, k_0=3)
    # budget = 0.7 (1 - 0.5) - 0.3 = 0.05; each heavy user adds 0.05: all three must go, and one light one.
    assert imbalanced_outliers_printed(users, np.full(10, 0.5)) == 4
    assert imbalanced_outliers_printed(users, np.full(10, 0.2)) == 0
    assert imbalanced_outliers_printed(users, np.full(10, 0.6)) is None
