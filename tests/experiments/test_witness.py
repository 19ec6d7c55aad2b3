"""Delta from a witness: never below the exact one where that is known, and a data set stands behind it."""

import numpy as np
import pytest

from hubermean import InputError
from hubermean_experiments.figures.panels import imbalanced_counts
from hubermean_experiments.paper.literal import paper_literal, unsafe_paper_literal_diagnostics
from hubermean_experiments.paper.outliers import balanced_outliers, outliers_exact, witnessed_outliers
from hubermean_experiments.paper.users import PaperUsers

LAWS = {
    "uniform": lambda g, size: g.uniform(-1, 1, size),
    "Gaussian": lambda g, size: g.normal(size=size),
    "Lomax": lambda g, size: g.pareto(4, size),
    "Cauchy": lambda g, size: g.standard_cauchy(size),
}


@pytest.mark.parametrize("distribution", LAWS)
@pytest.mark.parametrize("threshold", [0.5, 2.0, 4.0, 8.0])
def test_never_below_the_exact_number_and_close_to_it(distribution, threshold):
    generator = np.random.default_rng(1)
    for _ in range(10):
        points = LAWS[distribution](generator, (400, 1))
        exact = outliers_exact(points, threshold)
        found = witnessed_outliers(PaperUsers.balanced(400, threshold), points)
        # From n/4 on all numbers mean the same.
        assert min(exact, 100) <= found <= 100
        assert found <= 1.6 * exact + 4


@pytest.mark.parametrize("distribution", LAWS)
def test_with_several_columns_it_is_closer_than_the_lipschitz_bound(distribution):
    points = LAWS[distribution](np.random.default_rng(2), (2_000, 3))
    for threshold in (3.0, 5.0, 8.0):
        found = witnessed_outliers(PaperUsers.balanced(2_000, threshold), points)
        assert found <= balanced_outliers(points, threshold)
        distances = np.linalg.norm(points - points.mean(axis=0), axis=1)
        if distances.max() < threshold / 2:
            assert found == 0


@pytest.mark.parametrize("gamma", [1, 2, 5])
@pytest.mark.parametrize("scale", [3.0, 4.0, 6.0])
def test_unequal_users(gamma, scale):
    counts = imbalanced_counts(2_000, 20_000, gamma)
    counts = counts[counts > 0]
    generator = np.random.default_rng(3)
    means = (generator.standard_normal(len(counts)) / np.sqrt(counts))[:, None]
    users = PaperUsers.imbalanced(counts, scale, gamma=None, k_0=None)
    found = witnessed_outliers(users, means)
    assert found is not None
    if found == 0:
        center = users.weights @ means[:, 0]
        off = np.abs(means[:, 0] - center)
        heavy = np.argsort(counts, kind="stable")[len(counts) - users.k_0 :]
        light = np.delete(np.arange(len(counts)), heavy)
        influence = np.sum((users.weights * (users.thresholds + off))[heavy]) / users.weights[light].sum()
        assert influence < np.min(users.thresholds - off)
    # Users that are far away can be replaced, and must be.
    means[:5] = 1e6
    assert found < witnessed_outliers(users, means) <= found + 6


def test_the_literal_paper_takes_either():
    points = np.random.default_rng(4).normal(size=(3_000, 3))
    asked = {"threshold": 6.0, "radius": 10.0, "epsilon": 1.0, "delta": 1e-5}
    loose = unsafe_paper_literal_diagnostics(points, **asked)
    close = unsafe_paper_literal_diagnostics(points, **asked, outliers="witness")
    assert close.Delta < loose.Delta
    assert close.S <= loose.S
    assert np.array_equal(close.c, loose.c)
    one = points[:, 0]
    for outliers in ("lipschitz", "witness"):  # known exactly
        assert unsafe_paper_literal_diagnostics(one, **asked, outliers=outliers).Delta == outliers_exact(
            points[:, :1], 6.0
        )
    with pytest.raises(InputError, match="outliers must be 'lipschitz' or 'witness'"):
        paper_literal(points, **asked, outliers="none")
