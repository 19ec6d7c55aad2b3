"""Huber location: independent oracles, limit cases, and certificates that must hold on hostile data."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.robust import norms

from helpers.location_oracles import contaminated, distance, exact_minimizers, precise_minimizer
from hubermean.errors import InputError
from hubermean.huber.certificate import certify
from hubermean.huber.descent import NEWTON_DIMENSION
from hubermean.huber.integer import integer_huber_location
from hubermean.huber.passes import evaluate_gradient
from hubermean.huber.problem import HuberProblem, bound_attainable_gradient
from hubermean.huber.solver import huber_location

# --- one column against independent solvers -------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45])
def test_agrees_with_statsmodels_in_one_column(share):
    values = contaminated(1, 400, 1, share)[:, 0]
    norm = norms.HuberT(t=1.5)
    reference = float(norms.estimate_location(values, 1.0, norm, maxiter=10_000, tol=1e-14))
    found = huber_location(values, thresholds=1.5)
    assert isinstance(found.point, float)
    assert found.point == pytest.approx(reference, abs=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.49])
@pytest.mark.parametrize("tail", ["normal", "cauchy"])
@pytest.mark.parametrize("offset", [0.0, 1e6, 1e12])
def test_one_column_bound_holds_exactly(share, tail, offset):
    rng = np.random.default_rng(7)
    values = contaminated(2, 60, 1, share, tail)[:, 0] + offset
    weights = rng.integers(0, 4, size=60) + rng.random(60) * (rng.random(60) < 0.5)
    thresholds = 0.5 + rng.random(60)
    found = huber_location(values, weights=weights, thresholds=thresholds)
    first, last = exact_minimizers(values, weights, thresholds)
    worst = max(abs(Fraction(found.point) - first), abs(Fraction(found.point) - last))
    assert worst <= Fraction(found.error_bound)
    assert found.quadratic_mass > 0
    assert found.error_bound <= 1e-12 + 16 * np.spacing(offset)


@given(
    st.lists(
        st.tuples(
            st.integers(-40, 40), st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([0.25, 1.0, 2.5])
        ),
        min_size=1,
        max_size=12,
    ).filter(lambda users: any(a > 0 for _, a, _ in users)),
    st.sampled_from([1.0, 0.1, 1e-7, 2.0**30]),
)
@settings(max_examples=300, deadline=None)
def test_bound_holds_with_ties_duplicates_and_flat_parts(users, unit):
    values = np.array([y for y, _, _ in users]) * unit
    weights = np.array([a for _, a, _ in users])
    thresholds = np.array([t for _, _, t in users]) * unit
    found = huber_location(values, weights=weights, thresholds=thresholds)
    first, last = exact_minimizers(values, weights, thresholds)
    worst = max(abs(Fraction(found.point) - first), abs(Fraction(found.point) - last))
    assert worst <= Fraction(found.error_bound)
    # The bound is also useful: never beyond four times the truth plus rounding.
    assert found.error_bound <= 4 * float(last - first) + 1e-9 * unit or found.quadratic_mass == 0


# --- several columns ------------------------------------------------------------------------------


def smooth_huber(points, weights, thresholds):
    def value(s):
        r = np.linalg.norm(points - s, axis=1)
        return np.sum(weights * np.where(r <= thresholds, r * r / 2, thresholds * (r - thresholds / 2)))

    def gradient(s):
        r = np.linalg.norm(points - s, axis=1)
        return (weights * np.minimum(1, thresholds / np.maximum(r, 1e-300))) @ (s - points)

    def hessian(s):
        u = s - points
        r = np.linalg.norm(u, axis=1)
        influence = weights * np.minimum(1, thresholds / np.maximum(r, 1e-300))
        tilt = np.where(r > thresholds, influence / np.maximum(r, 1e-300) ** 2, 0)
        return np.sum(influence) * np.eye(points.shape[1]) - (u * tilt[:, None]).T @ u

    return value, gradient, hessian


@pytest.mark.parametrize("d", [2, 3, 10])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_agrees_with_scipy_in_several_columns(d, share):
    rng = np.random.default_rng(d)
    points = contaminated(3, 500, d, share)
    weights, thresholds = rng.random(500) + 0.1, math.sqrt(d) * (1 + rng.random(500))
    value, gradient, hessian = smooth_huber(points, weights, thresholds)
    rough = scipy.optimize.minimize(
        value, np.zeros(d), jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-7}
    )
    reference = scipy.optimize.root(gradient, rough.x, jac=hessian, options={"xtol": 1e-15}).x
    found = huber_location(points, weights=weights, thresholds=thresholds)
    np.testing.assert_allclose(found.point, reference, rtol=0, atol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.49])
@pytest.mark.parametrize("tail", ["normal", "cauchy"])
@pytest.mark.parametrize("offset", [0.0, 1e12])
def test_bound_holds_in_several_columns(share, tail, offset):
    points = contaminated(5, 40, 3, share, tail) + offset
    weights = np.random.default_rng(0).integers(1, 5, size=40).astype(float)
    found = huber_location(points, weights=weights, thresholds=2.5)
    truth = precise_minimizer(points, found.point, weights, 2.5)
    assert distance(found.point, truth) <= found.error_bound
    assert found.quadratic_mass > 0
    assert found.error_bound <= 1e-11 + 64 * np.spacing(offset)


@pytest.mark.parametrize("seed", range(12))
def test_bound_holds_for_a_geometric_median(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(9, 2)) * rng.choice([1.0, 30.0], size=(9, 1))
    found = huber_location(points, thresholds=1e-5)
    truth = precise_minimizer(points, found.point, np.ones(9), 1e-5)
    assert distance(found.point, truth) <= found.error_bound < math.inf


@pytest.mark.parametrize("at", [(0.0, 0.0), (0.5, 0.0), (1.0, 2.0), (40.0, -3.0)])
@pytest.mark.parametrize("d", [1, 2])
def test_bounds_hold_at_points_that_are_not_minimizers(at, d):
    """certify() must be right anywhere, not only where the solver stops."""
    points = contaminated(11, 40, d, 0.3)
    problem, _ = HuberProblem.build(points, None, 1.5)
    certificate = certify(problem, evaluate_gradient(problem, np.array(at[:d]), hessian=False))
    truth = precise_minimizer(points, huber_location(points, thresholds=1.5).point, np.ones(40), 1.5)
    assert distance(at[:d], truth) <= certificate.error_bound


@pytest.mark.parametrize("d", [1, 2])
def test_many_users_about_to_leave_their_quadratic_zone_certify_nothing(d):
    """At 0 the gradient is 35 and 100 users are quadratic, yet the minimizer is 99 away, not 0.35.

    A thousand far users on both sides, who cancel, make the first radius that is tried a short one.
    """
    points = np.zeros((1205, d))
    points[:100, 0], points[100:205, 0], points[205:705, 0], points[705:, 0] = 0.7, -100.0, -1e3, 1e3
    problem, _ = HuberProblem.build(points, None, 1.0)
    certificate = certify(problem, evaluate_gradient(problem, np.zeros(d), hessian=False))
    truth = precise_minimizer(points, [-100.0 + 100 / 105] + [0.0] * (d - 1), np.ones(1205), 1.0)
    assert certificate.mass == 0
    assert 99 <= distance([0.0] * d, truth) <= certificate.error_bound


def test_gradient_error_does_not_grow_with_the_number_of_blocks(monkeypatch):
    monkeypatch.setattr("hubermean.huber.numerics.BLOCK_ELEMENTS", 1)
    values = np.full(80_000, 2.0**-61)  # also a whole strip of them is lost beside 1
    values[0] = 1.0
    problem, _ = HuberProblem.build(values, None, 10.0)
    found = evaluate_gradient(problem, np.zeros(1), hessian=False)
    exact = -sum(map(Fraction, values.tolist()))
    assert abs(Fraction(float(found.gradient[0])) - exact) <= Fraction(found.error) < Fraction(2, 10**14)


@pytest.mark.parametrize(
    "propose",
    [
        lambda self, here: None,
        lambda self, here: -1e9 * here.gradient,
        lambda self, here: -1e-9 * here.gradient,
        lambda self, here: here.gradient.copy(),
        lambda self, here: np.cross(here.gradient, [1.0, 0.0, 0.0]) - 1e-3 * here.gradient,
    ],
    ids=["none", "far too long", "far too short", "uphill", "nearly orthogonal"],
)
def test_converges_whatever_the_directions(monkeypatch, propose):
    """The safeguards alone guarantee progress (proof 2.4): the loss falls or the gradient record halves."""
    points = contaminated(15, 300, 3, 0.4)
    reference = huber_location(points, thresholds=2.0)
    passes = []

    def counted(*args, **options):
        passes.append(1)
        assert len(passes) < 4000
        return evaluate_gradient(*args, **options)

    monkeypatch.setattr("hubermean.huber.descent.Directions.propose", propose)
    monkeypatch.setattr("hubermean.huber.descent.evaluate_gradient", counted)
    found = huber_location(points, thresholds=2.0)
    assert found.error_bound < 1e-11
    assert np.linalg.norm(found.point - reference.point) <= found.error_bound + reference.error_bound


def test_two_far_clusters_are_not_certified():
    points = np.concatenate([np.zeros((50, 2)), np.full((50, 2), 100.0)])
    found = huber_location(points, thresholds=1.0)
    truth_low, truth_high = np.full(2, math.sqrt(0.5)), 100.0 - np.full(2, math.sqrt(0.5))
    assert found.quadratic_mass == 0
    assert max(np.linalg.norm(found.point - end) for end in (truth_low, truth_high)) <= found.error_bound
    column = huber_location(points[:, 0], thresholds=1.0)
    assert max(column.point - 1.0, 99.0 - column.point) <= column.error_bound <= 400


@pytest.mark.parametrize("n", [1, 7, 500, 20_000])
@pytest.mark.parametrize("d", [1, 4])
def test_gradient_error_bound_holds(n, d):
    rng = np.random.default_rng(n)
    points = 1e3 + rng.standard_cauchy(size=(n, d))
    weights, thresholds = rng.random(n) + 0.5, rng.random(n) + 0.5
    problem, _ = HuberProblem.build(points, weights, thresholds)
    center = np.full(d, 1e3 + 0.1)
    found = evaluate_gradient(problem, center, hessian=False)
    longs = points.astype(np.longdouble) - center.astype(np.longdouble)
    r = np.sqrt(np.sum(longs * longs, axis=1))
    influences = weights * np.minimum(1, thresholds / r)
    exact = -(influences[:, None] * longs).sum(axis=0)
    # Extended precision is 2^-11 of float64's rounding: close enough to the truth to judge a bound.
    assert float(np.linalg.norm(found.gradient - exact)) <= found.error
    assert found.error <= 400 * 2.0**-53 * float(np.sum(influences * r)) + 1e-150 or d == 1


# --- limit cases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 5, NEWTON_DIMENSION + 8])
def test_huge_threshold_is_the_weighted_mean_at_once(d):
    rng = np.random.default_rng(4)
    points, weights = 3.0 + rng.normal(size=(3000, d)), rng.random(3000)
    found = huber_location(points, weights=weights, thresholds=1e6)
    np.testing.assert_allclose(found.point, np.average(points, axis=0, weights=weights), rtol=0, atol=1e-13)
    assert found.iterations <= 1


def test_tiny_threshold_is_the_weighted_geometric_median():
    rng = np.random.default_rng(8)
    points, weights = rng.normal(size=(80, 3)), rng.random(80) + 0.2
    center = points.mean(axis=0)
    for _ in range(20_000):
        influence = weights / np.linalg.norm(points - center, axis=1)
        center = influence @ points / influence.sum()
    found = huber_location(points, weights=weights, thresholds=1e-9)
    np.testing.assert_allclose(found.point, center, rtol=0, atol=1e-7)


def test_one_and_two_users():
    single = huber_location(np.array([[3.0, -4.0]]), thresholds=0.1)
    np.testing.assert_array_equal(single.point, [3.0, -4.0])
    assert single.error_bound < 1e-14
    assert huber_location([7.25], thresholds=1.0).point == 7.25
    pair = huber_location([0.0, 1.0], weights=[3.0, 1.0], thresholds=1.0)
    assert pair.point == pytest.approx(0.25, abs=1e-15)


def test_a_dominating_weight_decides():
    points = contaminated(6, 10_000, 2, 0.5)
    weights = np.ones(10_000)
    weights[4321] = 1e9
    found = huber_location(points, weights=weights, thresholds=1.0)
    assert np.linalg.norm(found.point - points[4321]) <= 1.1e-5
    assert found.iterations <= 5


def test_zero_weights_never_matter():
    points = contaminated(6, 300, 2, 0.3)
    weights = np.where(np.arange(300) < 90, 0.0, 1.0)
    part = huber_location(points[90:], thresholds=1.0)
    whole = huber_location(points, weights=weights, thresholds=1.0)
    assert np.linalg.norm(whole.point - part.point) <= whole.error_bound + part.error_bound
    assert whole.error_bound < 1e-12


@pytest.mark.parametrize("d", [1, 3, NEWTON_DIMENSION + 8])
def test_few_outliers_cost_few_iterations(d):
    points = contaminated(10, 2000, d, 0.2)
    found = huber_location(points, thresholds=2.0 * math.sqrt(d))
    assert found.iterations <= (8 if d <= NEWTON_DIMENSION else 25)
    assert found.error_bound < 1e-9


def test_equivariance():
    rng = np.random.default_rng(12)
    points = contaminated(12, 400, 3, 0.25)
    base = huber_location(points, thresholds=1.5)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    shift = np.array([10.0, -3.0, 0.5])
    cases: list[tuple[np.ndarray, float, Callable[[np.ndarray], np.ndarray]]] = [
        (points + shift, 1.5, lambda p: p + shift),
        (points * 8.0, 12.0, lambda p: p * 8.0),
        (points @ rotation.T, 1.5, lambda p: p @ rotation.T),
        (points[rng.permutation(400)], 1.5, lambda p: p),
    ]
    for moved, threshold, image in cases:
        found = huber_location(moved, thresholds=threshold)
        np.testing.assert_allclose(found.point, image(base.point), rtol=0, atol=2e-12)
    again = huber_location(points.copy(), thresholds=1.5)
    np.testing.assert_array_equal(again.point, base.point)


def test_tolerance_is_reached_and_the_bound_says_so():
    points = contaminated(13, 5000, 2, 0.4)
    rough = huber_location(points, thresholds=1.0, tolerance=10.0)
    fine = huber_location(points, thresholds=1.0)
    assert rough.gradient_norm_bound <= 10.0
    assert rough.iterations <= fine.iterations
    assert np.linalg.norm(rough.point - fine.point) <= rough.error_bound + fine.error_bound


@pytest.mark.parametrize("d", [1, 3, NEWTON_DIMENSION + 8])
@pytest.mark.parametrize("radius", [1.0, 1e3, 1e9])
def test_attainable_gradient_is_attained(d, radius):
    rng = np.random.default_rng(d)
    n = 3000
    for scale in (1.0, radius / 10):
        points = rng.standard_cauchy(size=(n, d)) * scale
        points *= np.minimum(1, radius / np.linalg.norm(points, axis=1))[:, None]
        found = huber_location(points, thresholds=0.5)
        public = bound_attainable_gradient(
            n_users=n, dimension=d, total_weight=n, total_influence=0.5 * n, radius=radius
        )
        assert found.gradient_norm_bound <= public


# --- the case in which a careless solver breaks privacy -------------------------------------------


def test_hostile_neighbors_of_theory_section_4():
    rng = np.random.default_rng(0)
    unit = 2**20
    near = rng.integers(-unit // 100, unit // 100, size=200)
    base = np.concatenate([np.full(49_900, 3 * unit // 2), np.full(49_900, -3 * unit // 2), near])
    shift = []
    for side in (-1, 1):
        values = np.append(base, side * 100_000 * unit)
        exact = integer_huber_location(values, thresholds=unit).point / unit
        found = huber_location(values / unit, thresholds=1.0)
        assert abs(Fraction(found.point) - exact) <= Fraction(found.error_bound)
        assert found.error_bound <= 1e-9
        assert found.quadratic_mass > 199
        # The whole point: the gradient error is far below the influence of one user, 2 q = 2.
        assert found.gradient_norm_bound <= 1e-7
        shift.append(found.point)
    assert shift[1] - shift[0] == pytest.approx(2 / 200, rel=1e-6)


@pytest.mark.slow
def test_bound_holds_on_many_random_problems():
    for seed in range(60):
        rng = np.random.default_rng(1000 + seed)
        d, n = int(rng.integers(1, 4)), int(rng.integers(2, 40))
        points = contaminated(seed, n, d, rng.choice([0, 0.3, 0.49]), rng.choice(["normal", "cauchy"]))
        threshold = float(rng.choice([0.3, 1.0, 3.0]))
        found = huber_location(points, thresholds=threshold)
        if found.quadratic_mass > 0:
            truth = precise_minimizer(points, found.point, np.ones(n), threshold)
            assert distance(found.point, truth) <= found.error_bound


# --- input ----------------------------------------------------------------------------------------


def test_memory_map_and_other_types_give_the_same_point(tmp_path):
    points = np.round(contaminated(14, 9000, 8, 0.2))
    np.save(tmp_path / "points.npy", points)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    base = huber_location(points, thresholds=3.0).point
    for other in (mapped, np.asfortranarray(points), points.astype(np.int64), points.astype(np.float32)):
        np.testing.assert_array_equal(huber_location(other, thresholds=3.0).point, base)


@pytest.mark.parametrize(
    ("points", "options"),
    [
        ([1.0, 2.0], {"thresholds": 0.0}),
        ([1.0, 2.0], {"thresholds": [1.0, -1.0]}),
        ([1.0, 2.0], {"thresholds": math.nan}),
        ([1.0, 2.0], {"thresholds": [1.0, 1.0, 1.0]}),
        ([1.0, 2.0], {"thresholds": 1.0, "weights": [0.0, 0.0]}),
        ([1.0, 2.0], {"thresholds": 1.0, "weights": 0.0}),
        ([1.0, 2.0], {"thresholds": 1.0, "weights": [1.0, -1.0]}),
        ([1.0, 2.0], {"thresholds": 1.0, "weights": [1.0, math.nan]}),
        ([1.0, 2.0], {"thresholds": 1.0, "tolerance": -1.0}),
        ([1.0, 2.0], {"thresholds": 1.0, "tolerance": math.nan}),
        ([1.0, math.nan], {"thresholds": 1.0}),
        ([math.inf, 1.0], {"thresholds": 1.0}),
        ([math.nan], {"thresholds": 1.0}),
        ([1e300, 0.0], {"thresholds": 1.0}),
        ([], {"thresholds": 1.0}),
        ([[[1.0]]], {"thresholds": 1.0}),
        (["a"], {"thresholds": 1.0}),
        ([1 + 2j], {"thresholds": 1.0}),
    ],
)
def test_bad_input_is_refused(points, options):
    with pytest.raises(InputError):
        huber_location(points, **options)


def test_results_do_not_show_private_numbers():
    assert repr(huber_location([1.5, 2.5], thresholds=3.0)) == "HuberLocation()"
    assert repr(integer_huber_location([1, 2], thresholds=3)) == "IntegerHuberLocation()"


@pytest.mark.parametrize(
    ("points", "weights", "thresholds"),
    [
        ([0.0, 0.0, 3e-70], 1e-96, 1.0),
        ([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 1e-90, 1e-90),
        ([0.0, 0.0, 1e95], 1e96, 1e96),
        ([[0.0, 0.0], [1e90, 0.0], [0.0, 1e90]], 1e90, 1e90),
    ],
)
def test_squares_out_of_range_do_not_spoil_the_certificate(
    points: object, weights: float, thresholds: float
) -> None:
    """Gradients below 1e-162 or above 1e154 have no float square; the norm must not need one."""
    found = huber_location(points, weights=weights, thresholds=thresholds)
    array = np.asarray(points)
    scale = float(np.abs(array).max())
    small = huber_location(array / scale, thresholds=thresholds / scale)
    distance = np.linalg.norm(np.atleast_1d(np.asarray(found.point) / scale - small.point))
    assert distance <= 2 * (found.error_bound / scale + small.error_bound) + 1e-12


def test_nearly_collinear_users_and_straight_runs_end() -> None:
    """Two shapes on which a search that trusts rounding noise, or a stale model, repeats tiny steps for ever."""
    h = 1.0471285480508214e-07
    assert huber_location([[0, h], [1, -h], [2, -h], [3, h]], thresholds=0.1).iterations < 1000
    points = np.zeros((3, 193))
    points[:, 0] = [-1e5, -31, -5]
    found = huber_location(points, weights=[3, 3, 2], thresholds=[1e-3, 2e-9, 0.036])
    assert found.iterations < 1000
