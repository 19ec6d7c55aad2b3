"""The Gaussian calibration against an independent oracle, its known values, its limits and its rounding."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from fractions import Fraction

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.divergence_oracle import scale_pair
from hubermean.accounting import discrete as discrete_module
from hubermean.accounting.discrete import SMALLEST_DISCRETE_SIGMA, discrete_gaussian_sigma, laplace_scale
from hubermean.accounting.gaussian import gaussian_alpha, gaussian_delta, rounding_margin
from hubermean.accounting.hockey_stick import log_divergence_wide_first
from hubermean.accounting.smooth_sensitivity import choose_beta
from hubermean.errors import InputError


def workable_beta(fraction: float, epsilon: float, delta: float, dimension: int) -> float:
    """A beta at which an alpha exists: a fraction of the one that uses up epsilon by the scales alone."""
    tail = 2.0 * math.log(1.0 / delta)
    return fraction * epsilon / (math.sqrt(dimension * tail) + tail)


ORACLE_CASES = [
    (dimension, epsilon, delta, fraction)
    for index, dimension in enumerate((1, 2, 3, 10, 51, 52, 100, 1_000, 10_000))
    for step, (epsilon, delta) in enumerate(((0.01, 1e-12), (0.1, 1e-9), (1.0, 1e-5), (10.0, 1e-2)))
    for turn, fraction in enumerate((1e-7, 0.05, 0.3))
    if dimension == 1 or (index + step + turn) % 6 == 0
]


# --- against the oracle -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dimension", "epsilon", "delta", "fraction"), ORACLE_CASES)
def test_delta_and_alpha_agree_with_the_oracle_on_the_safe_side(dimension, epsilon, delta, fraction):
    beta = workable_beta(fraction, epsilon, delta, dimension)
    alpha = gaussian_alpha(epsilon, delta, beta=beta, dimension=dimension)
    claimed = gaussian_delta(epsilon, alpha=alpha, beta=beta, dimension=dimension)
    lambdas = (-beta, 0.0, beta) if dimension == 1 else (-beta,)
    true = max(scale_pair(epsilon, alpha, value, dimension) for value in lambdas)
    # Red if the outward rounding is dropped or turned round: half of the margin must really be there.
    assert claimed >= true * (1 + mp.mpf(rounding_margin(dimension)) / 2)
    assert claimed <= true * (1 + 2 * mp.mpf(rounding_margin(dimension)))
    assert true <= delta
    assert true >= delta * (1 - 1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2, 0.4])
def test_equal_scales_are_the_analytic_gaussian_mechanism(epsilon, delta):
    alpha = gaussian_alpha(epsilon, delta)
    assert alpha * dp_accounting.get_sigma_gaussian(epsilon, delta) == pytest.approx(1.0, rel=1e-7)
    true = scale_pair(epsilon, alpha, 0.0, 1)
    assert true < delta
    assert true > delta * (1 - 1e-7)
    assert gaussian_alpha(epsilon, delta, dimension=500) == alpha


# The last two have alpha^2 > 2 epsilon, where lambda = -beta need not be the worst case.
@pytest.mark.parametrize(
    ("dimension", "epsilon", "alpha", "beta"),
    [
        (1, 1.0, 0.3, 0.05),
        (1, 0.5, 0.2, 1.0),
        (2, 1.0, 0.5, 0.1),
        (10, 0.3, 0.1, 0.05),
        (1, 0.05, 1.5, 0.2),
        (3, 0.05, 1.5, 0.02),
    ],
)
def test_no_scale_ratio_inside_the_interval_is_worse(dimension, epsilon, alpha, beta):
    """Lemmas 4 and 5: the claimed delta is the maximum over lambda, attained at -beta, 0 or beta."""
    claimed = gaussian_delta(epsilon, alpha=alpha, beta=beta, dimension=dimension)
    steps = 24 if dimension == 1 else 4
    grid = [beta * i / steps for i in range(-steps, steps + 1)]
    values = [scale_pair(epsilon, alpha, value, dimension) for value in grid]
    assert max(values) <= claimed
    assert max(values) >= claimed * (1 - 1e-8)


def test_wide_law_first_is_the_worse_direction_from_two_dimensions_on():
    """Lemma 5 on pairs of either direction, small and large ratios."""
    for dimension, epsilon, alpha, ratio in [(2, 0.2, 0.1, 0.3), (2, 1.0, 1.2, 0.4), (5, 0.1, 0.8, 0.05)]:
        assert scale_pair(epsilon, alpha, ratio, dimension) < scale_pair(epsilon, alpha, -ratio, dimension)


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 100, 1_000])
def test_bessel_ratio_inequality_of_lemma_4(dimension):
    """A / (eta A') < (1 + A^2) / (1 - A^2) for A = I_{d/2} / I_{d/2-1}."""
    with mp.workdps(150):  # 1 - A^2 falls to 1e-40 in one dimension
        for exponent in range(-6, 6):
            eta = mp.mpf(10) ** (mp.mpf(exponent) / 3) * dimension
            half = mp.mpf(dimension) / 2
            A = mp.besseli(half, eta) / mp.besseli(half - 1, eta)
            slope = 1 - A**2 - (dimension - 1) * A / eta
            assert eta * slope * (1 + A**2) > A * (1 - A**2)


@pytest.mark.slow
def test_random_sweep_against_the_oracle():
    """200 draws over five decades of each argument: the kernel stays within a tenth of its error budget."""
    draw = random.Random(20240607)
    tested = 0
    while tested < 200:
        dimension = draw.choice([1, 1, 2, 3, 4, 7, 20, 51, 52, 200, 1_000, 10_000])
        epsilon, alpha = 10 ** draw.uniform(-3, 2), 10 ** draw.uniform(-4, 1.7)
        beta = 10 ** draw.uniform(-9, 1) / draw.choice([1, dimension])
        log_value = log_divergence_wide_first(epsilon, alpha, beta, dimension)
        if log_value < -60.0:
            continue
        tested += 1
        true = scale_pair(epsilon, alpha, -beta, dimension)
        assert abs(mp.exp(log_value) / true - 1) < rounding_margin(dimension) / 10


# --- known values -------------------------------------------------------------------------------------------


def test_printed_constants_of_the_one_dimensional_mechanism_miss_their_claim():
    """Zhao et al. (2024), d = 1: alpha = eps / sqrt(ln 1/delta), beta = eps / (2 ln 1/delta)."""
    log_term = math.log(1e5)
    alpha, beta = 1.0 / math.sqrt(log_term), 1.0 / (2.0 * log_term)
    assert gaussian_delta(1.0, alpha=alpha, beta=beta) == pytest.approx(1.279e-3, rel=1e-3)
    assert gaussian_delta(1.0, alpha=alpha) == pytest.approx(4.284e-5, rel=1e-3)


def test_alpha_in_three_dimensions():
    assert gaussian_alpha(1.0, 1e-5, beta=0.01644, dimension=3) == pytest.approx(0.2057, abs=5e-5)
    assert gaussian_alpha(1.0, 1e-5, dimension=3) == pytest.approx(0.26805, abs=5e-6)


# --- round trip, order, limits ------------------------------------------------------------------------------

EPSILONS = st.floats(0.01, 10.0)
DELTAS = st.floats(-12.0, -2.0).map(lambda exponent: 10.0**exponent)
FRACTIONS = st.one_of(st.just(0.0), st.floats(1e-6, 0.4))
DIMENSIONS = st.sampled_from([1, 2, 3, 8, 51, 52, 300, 10_000])


@settings(max_examples=60, deadline=None)
@given(EPSILONS, DELTAS, FRACTIONS, DIMENSIONS)
def test_round_trip(epsilon, delta, fraction, dimension):
    beta = workable_beta(fraction, epsilon, delta, dimension)
    alpha = gaussian_alpha(epsilon, delta, beta=beta, dimension=dimension)
    reached = gaussian_delta(epsilon, alpha=alpha, beta=beta, dimension=dimension)
    assert delta * (1 - 1e-8) <= reached <= delta
    again = gaussian_alpha(epsilon, reached, beta=beta, dimension=dimension)
    assert again == pytest.approx(alpha, rel=1e-7)


@settings(max_examples=60, deadline=None)
@given(EPSILONS, DELTAS, FRACTIONS, DIMENSIONS, st.floats(1.001, 2.0))
def test_delta_is_monotone(epsilon, delta, fraction, dimension, factor):
    beta = workable_beta(fraction, epsilon, delta, dimension)
    alpha = gaussian_alpha(epsilon, delta, beta=beta, dimension=dimension)
    base = gaussian_delta(epsilon, alpha=alpha, beta=beta, dimension=dimension)
    assert gaussian_delta(epsilon, alpha=alpha * factor, beta=beta, dimension=dimension) > base
    assert gaussian_delta(epsilon * factor, alpha=alpha, beta=beta, dimension=dimension) < base
    assert gaussian_delta(epsilon, alpha=alpha, beta=beta * factor, dimension=dimension) >= base
    if beta > 0:
        larger = math.ceil(dimension * factor)
        assert gaussian_delta(epsilon, alpha=alpha, beta=beta, dimension=larger) > base


@pytest.mark.parametrize("dimension", [1, 2, 10, 52, 10_000])
def test_vanishing_beta_meets_the_equal_scale_formula(dimension):
    """No jump where the ball's center runs away: beta = 1e-13 and 1e-300 against beta = 0."""
    exact = gaussian_delta(1.0, alpha=0.2)
    for beta in (1e-13, 1e-300):
        assert gaussian_delta(1.0, alpha=0.2, beta=beta, dimension=dimension) == pytest.approx(
            exact, rel=1e-8
        )


@pytest.mark.parametrize("dimension", [2, 10, 52, 1_000])
def test_vanishing_alpha_meets_two_chi_square_laws(dimension):
    """alpha -> 0: only the scales differ, and both probabilities are central chi-square tails."""
    epsilon, beta = 0.5, 0.4 / math.sqrt(dimension)
    with mp.workdps(50):
        ratio = mp.exp(2 * mp.mpf(beta))
        edge = 2 * (mp.mpf(epsilon) + dimension * mp.mpf(beta)) / (1 - 1 / ratio)
        half = mp.mpf(dimension) / 2
        wide = mp.gammainc(half, edge / ratio / 2, regularized=True)
        narrow = mp.gammainc(half, edge / 2, regularized=True)
        true = wide - mp.exp(epsilon) * narrow
    claimed = gaussian_delta(epsilon, alpha=1e-8, beta=beta, dimension=dimension)
    assert true <= claimed <= true * (1 + 1e-8)


def test_no_alpha_exists_for_many_dimensions_and_a_large_beta():
    with pytest.raises(InputError, match="choose a smaller beta"):
        gaussian_alpha(1.0, 1e-5, beta=0.1, dimension=1_000)
    with pytest.raises(InputError, match="choose a larger epsilon or delta"):
        gaussian_alpha(1e-300, 1e-12)


@pytest.mark.parametrize("beta", [0.0, 1e-300, 1e-3, 50.0, 1e300])
@pytest.mark.parametrize("alpha", [1e-300, 1.0, 1e7, 1e300])
@pytest.mark.parametrize("epsilon", [1e-300, 1.0, 1e300])
def test_extreme_arguments_stay_between_the_smallest_float_and_one(epsilon, alpha, beta):
    for dimension in (1, 2, 60):
        assert 0.0 < gaussian_delta(epsilon, alpha=alpha, beta=beta, dimension=dimension) <= 1.0


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: gaussian_delta(0.0, alpha=1.0), "epsilon"),
        (lambda: gaussian_delta(math.inf, alpha=1.0), "epsilon"),
        (lambda: gaussian_delta(math.nan, alpha=1.0), "epsilon"),
        (lambda: gaussian_delta("1", alpha=1.0), "epsilon"),
        (lambda: gaussian_delta(True, alpha=1.0), "epsilon"),
        (lambda: gaussian_delta(1.0, alpha=0.0), "alpha"),
        (lambda: gaussian_delta(1.0, alpha=1.0, beta=-1e-9), "beta"),
        (lambda: gaussian_delta(1.0, alpha=1.0, dimension=0), "dimension"),
        (lambda: gaussian_delta(1.0, alpha=1.0, dimension=2.0), "dimension"),
        (lambda: gaussian_alpha(1.0, 0.0), "delta"),
        (lambda: gaussian_alpha(1.0, 1.0), "delta"),
        (lambda: laplace_scale(1.0, 0), "sensitivity"),
        (lambda: laplace_scale(1e-300, 1e300), "sensitivity"),
        (lambda: laplace_scale(1.0, math.inf), "sensitivity"),
        (lambda: laplace_scale(-1.0, 1), "epsilon"),
        (lambda: discrete_gaussian_sigma(1.0, 1e-5, sensitivity=math.nan), "sensitivity"),
    ],
)
def test_bad_arguments_are_named(call, word):
    with pytest.raises(InputError, match=word):
        call()


def test_importing_the_package_does_not_import_scipy():
    code = "import sys, hubermean.accounting; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- noise on the integers ----------------------------------------------------------------------------------


def discrete_delta(epsilon: float, sigma: float, shift: tuple[int, ...]) -> float:
    """Exact delta of discrete Gaussian noise by summing over the lattice, one or two coordinates.

    ln of the likelihood ratio is (|shift|^2 - 2 x.shift) / (2 sigma^2) exactly; with equal coordinates of
    the shift only the sum of the coordinates of x matters.
    """
    reach = int(12 * sigma)
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-0.5 * (x / sigma) ** 2)
    mass /= mass.sum()
    if len(shift) == 2:
        assert shift[0] == shift[1]
        mass = np.convolve(mass, mass)
        x = np.arange(-2 * reach, 2 * reach + 1)
    loss = (sum(s * s for s in shift) - 2.0 * shift[0] * x) / (2.0 * sigma**2)
    return float(np.sum(mass * np.maximum(-np.expm1(epsilon - loss), 0.0)))


@pytest.mark.parametrize(
    ("epsilon", "delta", "shift"),
    [(1.0, 1e-5, (300,)), (0.1, 1e-8, (40,)), (3.0, 1e-3, (1500,)), (1.0, 1e-5, (200, 200))],
)
def test_discrete_gaussian_sigma_reaches_delta_exactly(epsilon, delta, shift):
    sensitivity = math.nextafter(math.hypot(*shift), math.inf) if len(shift) > 1 else shift[0]
    sigma = discrete_gaussian_sigma(epsilon, delta, sensitivity=sensitivity, dimension=len(shift))
    assert 1024 <= sigma < 4096
    assert 0.998 * delta <= discrete_delta(epsilon, sigma, shift) <= delta
    if len(shift) == 1:
        assert discrete_delta(epsilon, sigma * 0.999, shift) > delta


@pytest.mark.parametrize("sigma", [1.5, 10, 1024])
def test_rounded_and_discrete_gaussians_differ_by_the_factors_of_lemma_7(sigma):
    with mp.workdps(60):
        total = mp.jtheta(3, 0, mp.exp(-1 / (2 * mp.mpf(sigma) ** 2)))
        assert total >= sigma * mp.sqrt(2 * mp.pi) * (1 - mp.mpf(10) ** -50)
        for multiple in (0, 0.3, 1, 2, 4, 8):
            x = round(multiple * sigma)
            a, b = (mp.mpf(x) - 0.5) / sigma, (mp.mpf(x) + 0.5) / sigma
            rounded = (mp.erfc(a / mp.sqrt(2)) - mp.erfc(b / mp.sqrt(2))) / 2
            unnormalised = mp.exp(-(mp.mpf(x) ** 2) / (2 * mp.mpf(sigma) ** 2))
            ratio = rounded * sigma * mp.sqrt(2 * mp.pi) / unnormalised
            assert mp.exp(-1 / (24 * mp.mpf(sigma) ** 2)) <= ratio
            assert ratio <= mp.exp(mp.mpf(x) ** 2 / (8 * mp.mpf(sigma) ** 4))


def test_discreteness_costs_noise_and_vanishes_on_a_fine_grid():
    alpha = gaussian_alpha(1.0, 1e-5)
    coarse, fine = (
        s / discrete_gaussian_sigma(1.0, 1e-5, sensitivity=s, dimension=100) for s in (300, 2**40)
    )
    assert coarse < fine < alpha
    assert fine == pytest.approx(alpha, rel=1e-6)


def test_discrete_sigma_rounds_up_for_any_integer():
    shift = 10**30 + 1
    sigma = discrete_gaussian_sigma(1.0, 1e-5, sensitivity=shift)
    assert Fraction(sigma) * Fraction(gaussian_alpha(1.0, 1e-5)) >= shift


def test_discrete_sigma_refuses_a_coarse_grid():
    with pytest.raises(InputError, match="finer grid"):
        discrete_gaussian_sigma(1.0, 1e-5, sensitivity=1)
    with pytest.raises(InputError, match="discreteness alone"):
        discrete_gaussian_sigma(0.001, 1e-5, sensitivity=1, dimension=10_000)
    assert SMALLEST_DISCRETE_SIGMA == 1024


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-6, 1e3), st.integers(1, 10**40))
def test_laplace_scale_is_the_smallest_valid_float(epsilon, sensitivity):
    scale = laplace_scale(epsilon, sensitivity)
    assert sensitivity <= Fraction(epsilon) * Fraction(scale)
    assert sensitivity > Fraction(epsilon) * Fraction(math.nextafter(scale, 0.0))


def test_quotient_never_underflows_to_zero():
    assert discrete_module.laplace_scale(1e300, Fraction(1, 10**300)) > 0.0


# --- the choice of beta -------------------------------------------------------------------------------------

PUBLIC = {"weight_cap": 1.0, "influence_cap": 1.0, "radius": 10.0, "epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize(("users", "dimension"), [(100, 1), (1_000, 3), (1_000, 100), (10_000, 1_000)])
def test_chosen_beta_beats_a_grid(users, dimension):
    choice = choose_beta(total_weight=users, dimension=dimension, **PUBLIC)
    assert choice.alpha == gaussian_alpha(1.0, 1e-5, beta=choice.beta, dimension=dimension)
    assert choice.noise_stddev == choice.sensitivity / choice.alpha
    reach = users // 5
    for beta in np.geomspace(1e-6, 1.0, 60):
        # The prediction of the docstring, distance by distance.
        bounds = [2.0 / (users - (k + 1)) if k < reach else 20.0 for k in range(reach + 1)]
        sensitivity = max(math.exp(-beta * k) * min(20.0, bound) for k, bound in enumerate(bounds))
        try:
            noise = sensitivity / gaussian_alpha(1.0, 1e-5, beta=beta, dimension=dimension)
        except InputError:
            continue
        assert choice.noise_stddev <= noise * (1 + 1e-6)


def test_chosen_beta_knows_its_limits():
    alone = choose_beta(total_weight=1, **PUBLIC)
    assert (alone.beta, alone.sensitivity) == (0.0, 20.0)
    replace = choose_beta(total_weight=10_000, factor=2.0, **PUBLIC)
    add_remove = choose_beta(total_weight=10_000, factor=1.0, **PUBLIC)
    assert add_remove.noise_stddev < 0.6 * replace.noise_stddev
    with pytest.raises(InputError, match="share"):
        choose_beta(total_weight=10, share=1.0, **PUBLIC)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.float32, np.float64])
def test_numpy_numbers_give_the_same_noise_as_pythons(kind: type) -> None:
    """A numpy integer inside a fraction would wrap around at 64 bits and leave almost no noise."""
    assert laplace_scale(0.1, kind(100)) == laplace_scale(0.1, 100)
    if kind is not np.uint8:
        wide = discrete_gaussian_sigma(1.0, 1e-5, sensitivity=kind(123456))
        assert wide == discrete_gaussian_sigma(1.0, 1e-5, sensitivity=123456)


@pytest.mark.parametrize("value", ["1/3", "2", None, True, float("nan"), float("inf")])
def test_a_sensitivity_must_be_a_number(value: object) -> None:
    with pytest.raises(InputError, match="sensitivity"):
        laplace_scale(1.0, value)  # type: ignore[arg-type]


def test_a_delta_that_is_flat_in_alpha_ends_the_search() -> None:
    for beta, dimension in ((1.0, 1), (0.5, 2)):
        delta = math.nextafter(gaussian_delta(1.0, alpha=1e-9, beta=beta, dimension=dimension), 0.0)
        with pytest.raises(InputError):
            gaussian_alpha(1.0, delta, beta=beta, dimension=dimension)


def test_absurd_arguments_are_safe() -> None:
    assert gaussian_delta(1.0, alpha=1.0, beta=0.1, dimension=10**33) == 1.0
    assert gaussian_alpha(1.0, 5e-324) > 0
    assert gaussian_alpha(5e-324, 1e-5) > 0


def test_groups_of_coordinates_share_the_alpha_of_the_finest_noise() -> None:
    """Discreteness costs most there; the alpha of the coarse noise would guarantee more than the proof has."""
    from hubermean.accounting.discrete import discrete_gaussian_sigma, discrete_gaussian_sigmas

    sensitivities = [2**40, 20_000, 3 * 2**30]
    sigmas = discrete_gaussian_sigmas(20.0, 1e-6, sensitivities=sensitivities, dimension=60)
    finest = discrete_gaussian_sigma(20.0, 1e-6, sensitivity=20_000, dimension=60)
    assert sigmas[1] == finest
    for sensitivity, sigma in zip(sensitivities, sigmas, strict=True):
        assert Fraction(sensitivity) / Fraction(sigma) <= Fraction(20_000) / Fraction(finest)
