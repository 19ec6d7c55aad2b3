"""Distributions of records, unequal users, and the baseline as printed: each beside an independent computation."""

from fractions import Fraction

import numpy as np
import pytest

from hubermean_experiments.figures.data import measure_span, non_private_variance, simulate_data_sets
from hubermean_experiments.figures.panels import (
    FAIR,
    PANELS,
    PAPER,
    SETTINGS,
    SYNTHETIC,
    PanelPoint,
    imbalanced_counts,
    select_panels,
)
from hubermean_experiments.figures.records import EmpiricalDistribution
from hubermean_experiments.paper.two_stage import two_stage_moments


@pytest.mark.parametrize("distribution", SYNTHETIC.values(), ids=SYNTHETIC)
@pytest.mark.parametrize("counts", [[1] * 40_000, [9] * 8_000, [1, 2, 30, 5] * 1_500])
def test_user_means_have_the_deviation_that_is_stated(distribution, counts):
    counts = np.array(counts)
    means = distribution.draw_user_means(np.random.default_rng(3), counts)
    scaled = means / np.sqrt(distribution.mean_variances(counts))
    # Of n independent draws the mean scatters by 1/sqrt(n); Lomax(4) has no fourth moment, hence the wide bound.
    assert abs(scaled.mean()) < 5.0 / np.sqrt(len(counts))
    assert abs(scaled.std() - 1.0) < 0.08
    assert means.min() >= distribution.lowest


def test_sampled_records_are_those_of_the_data():
    values = np.array([1.0, 5.0, 5.0, 100.0])
    distribution = EmpiricalDistribution("four", values)
    means = (
        distribution.draw_user_means(np.random.default_rng(1), np.ones(20_000, dtype=np.int64))
        + distribution.mean
    )
    found, often = np.unique(np.round(means, 9), return_counts=True)
    assert found.tolist() == [1.0, 5.0, 100.0]
    assert often / 20_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.02)
    assert distribution.unit == 100.0


@pytest.mark.parametrize("counts", [[1] * 30_000, [7] * 30_000, [1, 2, 50] * 8_000])
def test_whole_users_differ_and_their_records_are_still_uniform(counts):
    sizes = np.array([1, 3, 4])
    values = np.array([10.0, 1.0, 2.0, 3.0, 7.0, 7.0, 8.0, 9.0])
    distribution = EmpiricalDistribution("users", values, sizes, whole_users=True)
    counts = np.array(counts)
    means = distribution.draw_user_means(np.random.default_rng(5), counts)
    scaled = means / np.sqrt(distribution.mean_variances(counts))
    assert abs(scaled.mean()) < 5.0 / np.sqrt(len(counts))
    assert abs(scaled.std() - 1.0) < 0.03
    # With ever more records a user's mean is that of the real user it stands for.
    many = distribution.draw_user_means(np.random.default_rng(6), np.full(60, 200_000)) + distribution.mean
    assert all(min(abs(one - of) for of in (10.0, 2.0, 7.75)) < 0.05 for one in many)


@pytest.mark.parametrize(
    ("users", "records", "gamma"), [(1_000, 10_000, 1), (1_000, 10_000, 10), (37, 370, 3)]
)
def test_unequal_users_are_the_paper_s(users, records, gamma):
    ends = [-(-Fraction(records) * Fraction(i, users) ** gamma // 1) for i in range(users + 1)]
    counts = imbalanced_counts(users, records, gamma)
    assert counts.tolist() == [int(ends[i] - ends[i - 1]) for i in range(1, users + 1)]
    assert counts.sum() == records


def test_both_settings_hold_the_same_deviations():
    point = PanelPoint(panel=PANELS["1f"], users=200, x=3)
    distribution = SYNTHETIC["Lomax(4)"]
    sets = list(simulate_data_sets(point, distribution, SETTINGS, seed=7, purpose="tuning", first=0, size=3))
    for one in sets:
        paper, fair = one[PAPER.name], one[FAIR.name]
        assert paper.truth == pytest.approx([1 / 3] * 3)
        np.testing.assert_allclose(paper.means - paper.truth, fair.means - fair.truth, atol=1e-12)
        assert np.all(np.abs(fair.truth) <= 5.0)
    assert len({tuple(one[FAIR.name].truth) for one in sets}) == 3
    low, high = measure_span(one[FAIR.name] for one in sets)
    assert -1 / 3 <= low < 0 < high
    # Other numbers, and other purposes, are other data.
    again = next(simulate_data_sets(point, distribution, SETTINGS, seed=7, purpose="tuning", first=1, size=1))
    assert np.array_equal(again["fair"].means, sets[1]["fair"].means)
    other = next(
        simulate_data_sets(point, distribution, SETTINGS, seed=7, purpose="evaluation", first=1, size=1)
    )
    assert not np.array_equal(other["fair"].means, sets[1]["fair"].means)


@pytest.mark.parametrize(("panel", "x"), [("1d", 4), ("2c", 5)])
def test_the_non_private_error_has_the_variance_of_the_formula(panel, x):
    point = PanelPoint(panel=PANELS[panel], users=300, x=x)
    distribution = SYNTHETIC[point.panel.distribution]
    found = [
        one["fair"].non_private_error
        for one in simulate_data_sets(
            point, distribution, SETTINGS, seed=1, purpose="tuning", first=0, size=600
        )
    ]
    # The relative standard error of 600 squared errors is below sqrt(2/600).
    assert np.mean(found) == pytest.approx(
        non_private_variance(point, distribution), rel=4.5 * np.sqrt(2 / 600)
    )


def test_panels_are_chosen_by_name_or_figure():
    assert [panel.name for panel in select_panels(["2", "1c"])] == ["1c", "2a", "2b", "2c", "2d"]
    assert len(select_panels([])) == 12


def _drawn_two_stage(means, shares, tau, radius, epsilon, rng):
    """Levy et al. (2021), Algorithms 1 and 2, drawn: one coordinate."""
    bins = int(np.ceil(radius / tau))
    middles = [(2 * j + 1 - bins) * tau for j in range(bins)]
    nearest = [min(range(bins), key=lambda j: abs(middles[j] - y)) for y in means]
    costs = np.array(
        [max(sum(b < j for b in nearest), sum(b > j for b in nearest)) for j in range(bins)], dtype=float
    )
    chances = np.exp(-epsilon / 4 * (costs - costs.min()))
    middle = middles[rng.choice(bins, p=chances / chances.sum())]
    clipped = np.clip(means, middle - 2 * tau, middle + 2 * tau)
    return shares @ clipped + rng.laplace(scale=8 * tau * shares.max() / epsilon)


@pytest.mark.parametrize("unequal", [False, True])
def test_the_moments_of_the_two_stage_baseline(unequal):
    rng = np.random.default_rng(4)
    means = rng.normal(2.0, 1.0, 40)
    counts = rng.integers(1, 6, 40) if unequal else None
    shares = np.full(40, 1 / 40) if counts is None else counts / counts.sum()
    # A small epsilon, so that several bins are likely.
    drawn = np.array([_drawn_two_stage(means, shares, 0.7, 5.0, 0.4, rng) for _ in range(3_000)])
    distribution = two_stage_moments(
        means[:, None], counts, threshold=0.7, radius=5.0, epsilon=0.4, delta=0.0
    )
    assert drawn.mean() == pytest.approx(distribution.expectation[0], abs=4.5 * drawn.std() / np.sqrt(3_000))
    # The variance scatters by sqrt(5/3000) at most. Most of it is of bins; the noise alone is pinned by the doctest.
    assert drawn.var() == pytest.approx(distribution.variance[0], rel=4.5 * np.sqrt(5 / 3_000))


def test_the_rotated_baseline_is_the_one_of_every_coordinate():
    rng = np.random.default_rng(8)
    means = rng.normal(0.5, 0.3, (200, 3))
    signs = np.array([1.0, -1.0, 1.0, 1.0])
    distribution = two_stage_moments(means, threshold=0.5, radius=2.0, epsilon=30.0, delta=1e-5, signs=signs)
    rotation = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2.0 * signs
    padded = np.column_stack([means, np.zeros(200)]) @ rotation.T
    part = 30.0 / np.sqrt(8 * 4 * np.log(1e5))
    each = [
        two_stage_moments(padded[:, [axis]], threshold=0.5, radius=4.0, epsilon=part, delta=0.0)
        for axis in range(4)
    ]
    back = rotation.T[:3]
    np.testing.assert_allclose(distribution.expectation, back @ [one.expectation[0] for one in each])
    np.testing.assert_allclose(distribution.variance, back**2 @ [one.variance[0] for one in each])
    np.testing.assert_allclose(distribution.expectation, means.mean(axis=0), atol=0.05)
