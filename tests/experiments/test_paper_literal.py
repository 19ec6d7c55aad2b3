"""The paper as printed: what its constants are worth. Its Delta: test_paper_delta.py.

Numbers that come from nowhere in the code under test: hockey-stick divergences by their closed form, thresholds by
hand.
"""

from __future__ import annotations

import json
import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean.accounting.gaussian import gaussian_alpha
from hubermean.huber.solver import huber_location
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean_experiments.paper.constants import (
    bounded_threshold,
    bounded_users_suffice,
    heavy_tail_threshold,
    heavy_tail_users_suffice,
    imbalanced_scale,
    imbalanced_thresholds,
    imbalanced_users_suffice,
    printed_constants,
)
from hubermean_experiments.paper.literal import paper_literal, unsafe_paper_literal_diagnostics
from hubermean_experiments.paper.outliers import distances_to_mean, h
from hubermean_experiments.paper.users import PaperUsers, imbalance_gamma

CLAIM: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
PHI = NormalDist().cdf


def equal_scale_delta(epsilon: float, shift: float) -> float:
    """Hockey-stick divergence of N(0, 1) and N(shift, 1): Balle & Wang (2018), Thm 8."""
    return PHI(shift / 2 - epsilon / shift) - math.exp(epsilon) * PHI(-shift / 2 - epsilon / shift)


# --- the constants


def test_printed_constants_of_one_column_give_128_times_the_claimed_delta() -> None:
    run = paper_literal(np.zeros(50), threshold=1.0, radius=10.0, **CLAIM)
    assert run.claimed_delta == 1e-5
    assert run.actual_delta == pytest.approx(1.28e-3, rel=0.01)


def test_a_real_pair_of_neighbors_breaks_the_claim() -> None:
    """n - 1 users at 0 and one at +10T or -10T: equal scale, shift exactly S."""
    inner = [
        unsafe_paper_literal_diagnostics([0.0] * 999 + [last], threshold=1.0, radius=10.0, **CLAIM)
        for last in (10.0, -10.0)
    ]
    shift = abs(inner[0].clipped - inner[1].clipped)
    assert inner[0].S == inner[1].S == pytest.approx(2.0 / 999.0, rel=1e-12)
    assert shift == pytest.approx(inner[0].S, rel=1e-12)
    assert inner[0].Delta == inner[1].Delta == 1
    exact = equal_scale_delta(1.0, shift / inner[0].stddev)
    assert exact == pytest.approx(4.284e-5, rel=1e-3)
    assert exact > 4 * CLAIM["delta"]


def wide_against_narrow(epsilon: float, wide: NormalDist, narrow: NormalDist) -> float:
    """Hockey-stick divergence of two normal laws of different scale: the log-ratio is a quadratic."""
    a = (1 / narrow.variance - 1 / wide.variance) / 2
    b = wide.mean / wide.variance - narrow.mean / narrow.variance
    c = (narrow.mean**2 / narrow.variance - wide.mean**2 / wide.variance) / 2
    c += math.log(narrow.stdev / wide.stdev) - epsilon
    root = math.sqrt(b * b - 4 * a * c)
    low, high = (-b - root) / (2 * a), (-b + root) / (2 * a)

    def outside(distribution: NormalDist) -> float:
        return distribution.cdf(low) + NormalDist(-distribution.mean, distribution.stdev).cdf(-high)

    return outside(wide) - math.exp(epsilon) * outside(narrow)


@pytest.mark.parametrize(("n", "expected"), [(1000, 1.2255e-3), (10_000, 1.2734e-3), (100_000, 1.2782e-3)])
def test_real_neighbors_reach_the_actual_delta(n: int, expected: float) -> None:
    """n - 1 users at 0, one at -z against +10T, z such that (T + Z)/(n-1) = e^-beta 2T/(n-2).

    Then D gets S = the shift, by (a) at k = 0 and (b) at k = 1 alike, and D' gets S' = 2T/(n-1), e^beta as much
    up to 1/n: both limits of the framework at once, so its delta is attained as n grows.
    """
    beta = printed_constants(1.0, 1e-5, dimension=1).beta
    z = (2 * math.exp(-beta) * (n - 1) / (n - 2) - 1) * n / (n - 1)
    calm, upset = (
        unsafe_paper_literal_diagnostics([0.0] * (n - 1) + [last], threshold=1.0, radius=10.0, **CLAIM)
        for last in (-z, 10.0)
    )
    assert upset.clipped - calm.clipped == pytest.approx(calm.S, rel=1e-9)
    assert beta - 2 / n < math.log(upset.S / calm.S) < beta
    reached = wide_against_narrow(
        1.0, NormalDist(upset.clipped, upset.stddev), NormalDist(calm.clipped, calm.stddev)
    )
    assert reached == pytest.approx(expected, rel=1e-3)
    assert reached < paper_literal([0.0], threshold=1.0, radius=10.0, **CLAIM).actual_delta


def test_printed_constants_of_three_columns_hold_with_far_too_much_noise() -> None:
    run = paper_literal(np.zeros((50, 3)), threshold=1.0, radius=10.0, **CLAIM)
    assert run.actual_delta == pytest.approx(1.459e-12, rel=1e-3)  # 6.9 million times below the claim
    constants = printed_constants(1.0, 1e-5, dimension=3)
    exact = gaussian_alpha(1.0, 1e-5, beta=constants.beta, dimension=3)
    assert exact / constants.alpha == pytest.approx(5.08, rel=0.01)
    assert gaussian_alpha(1.0, 1e-5) / constants.alpha == pytest.approx(6.62, rel=0.01)


# --- the sensitivity


def test_h_misses_the_user_that_matters() -> None:
    """Lemma unbcommon as stated: n = 11, T = 1, ten users at +-0.5, the last at 0."""
    values = np.array([0.5, -0.5] * 5 + [0.0])
    users = PaperUsers.imbalanced(np.ones(11), 1.0, gamma=None, k_0=None)
    stated = h(users, distances_to_mean(values[:, None], users.weights), 1)
    assert stated == pytest.approx(0.1)
    assert stated <= 1.0 - 0.5  # its condition, h <= min(T_i - Z_i), holds
    changed = values.copy()
    changed[0] = -100.0
    shift = abs(huber_location(values, thresholds=1.0).point - huber_location(changed, thresholds=1.0).point)
    assert shift == pytest.approx(0.15)
    inner = unsafe_paper_literal_diagnostics(values, np.ones(11), threshold=1.0, radius=10.0, **CLAIM)
    assert inner.G[0] == pytest.approx(0.1)


def test_the_condition_of_lemma_unbcommon_is_not_enough() -> None:
    """Five users at each of +-0.89, the last at 0: h = 0.1 satisfies it, and half of the users leave the quadratic."""
    values = np.array([0.89, -0.89] * 5 + [0.0])
    users = PaperUsers.imbalanced(np.ones(11), 1.0, gamma=None, k_0=None)
    assert h(users, distances_to_mean(values[:, None], users.weights), 1) == pytest.approx(0.1)
    changed = values.copy()
    changed[0] = -100.0
    shift = abs(huber_location(values, thresholds=1.0).point - huber_location(changed, thresholds=1.0).point)
    # Gradient -1.89 at 0; slope 10 up to -0.11, where those at 0.89 saturate, then 6.
    assert shift == pytest.approx(0.11 + (1.89 - 1.1) / 6)


def test_definition_g_case_by_case() -> None:
    values = np.array([0.3, -0.3] * 20)  # (a) at k = 0, then (b) with Delta = 0, then (c)
    inner = unsafe_paper_literal_diagnostics(values, threshold=1.0, radius=10.0, **CLAIM)
    assert inner.Delta == 0
    expected = [1.3 / 39] + [2.0 / (40 - k) for k in range(1, 10)] + [20.0]
    assert pytest.approx(expected) == inner.G
    beta = printed_constants(1.0, 1e-5, dimension=1).beta
    assert pytest.approx(max(math.exp(-beta * k) * g for k, g in enumerate(expected))) == inner.S
    values[0] = 1e6  # one outlier: (b) from k = 0 with Delta = 1
    inner = unsafe_paper_literal_diagnostics(values, threshold=1.0, radius=10.0, **CLAIM)
    assert inner.Delta == 1
    assert pytest.approx([2.0 / (39 - k) for k in range(9)] + [20.0]) == inner.G
    values[:20] = np.linspace(100, 2000, 20)  # (c) throughout
    inner = unsafe_paper_literal_diagnostics(values, threshold=1.0, radius=10.0, **CLAIM)
    assert pytest.approx([20.0]) == inner.G
    assert inner.S == 20.0
    three = unsafe_paper_literal_diagnostics([0.0, 0.0, 0.0], threshold=1.0, radius=10.0, **CLAIM)
    assert pytest.approx([0.5, 20.0]) == three.G  # (a), and (c) at once: no k satisfies k <= n/4 - 1


def test_definition_gunb_case_by_case() -> None:
    counts = np.array([1] * 16 + [4] * 16)  # N = 80, n = 32, gamma = 1.6: m_c = 4
    inner = unsafe_paper_literal_diagnostics(np.zeros(32), counts, threshold=2.0, radius=7.0, k_0=3, **CLAIM)
    assert imbalance_gamma(counts) == pytest.approx(1.6)
    weights = counts / 80
    first = weights[-1] * 1.0 / (1 - weights[-1])  # T_n = 2 / sqrt(4) = 1
    few = [2 * (4 / 80) / weights[: 32 - k - 1].sum() for k in range(3)]
    assert inner.Delta == 0
    assert pytest.approx([first, *few[1:], 14.0]) == inner.G


def test_equation_deltaunb_to_the_letter_lets_one_outlier_break_everything() -> None:
    """With Z_i(D) in place of Z_i(D*) one far user makes S jump from about 2T/n to 2 R_c: delta near 1."""
    values, counts = np.zeros(5000), np.ones(5000)
    moved = values.copy()
    moved[0] = 50.0
    arguments: dict[str, Any] = {"threshold": 1.0, "radius": 10.0, "reading": "printed", **CLAIM}
    calm = unsafe_paper_literal_diagnostics(values, counts, **arguments)
    upset = unsafe_paper_literal_diagnostics(moved, counts, **arguments)
    assert (calm.Delta, upset.Delta, upset.S) == (0, None, 20.0)
    edge = 10 * calm.stddev
    far = 2 * (
        1 - PHI((edge + abs(upset.c)) / upset.stddev)
    )  # P(|output| > edge), at least, with the outlier
    assert far - math.e * 2 * (1 - PHI((edge - abs(calm.c)) / calm.stddev)) > 0.999
    mended = [
        unsafe_paper_literal_diagnostics(data, counts, **(arguments | {"reading": "lemma"}))
        for data in (values, moved)
    ]
    beta = printed_constants(1.0, 1e-5, dimension=1).beta
    assert abs(math.log(mended[0].S / mended[1].S)) <= beta * (1 + 1e-9)


# --- gamma and thresholds


def test_gamma_of_the_papers_examples() -> None:
    assert imbalance_gamma([5] * 17) == 1
    assert float(imbalance_gamma(3 * np.arange(1, 100_001))) == pytest.approx(math.sqrt(2), rel=1e-4)
    n, total = 1000, 100_000
    for gamma in (1.0, 1.5, 2.0, 4.0):
        ends = np.ceil(total * (np.arange(n + 1) / n) ** gamma)  # section 7
        counts = np.diff(ends)
        assert counts.sum() == total
        counts = counts[counts > 0]  # for large gamma rounding leaves some users with nothing
        share = counts[counts > gamma * total / n].sum() / total
        assert share <= 0.5  # Assumption unbalance with gamma, on all n users
        assert imbalance_gamma(counts) <= gamma


def test_gamma_is_the_smallest() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        counts = generator.integers(1, 12, int(generator.integers(1, 12)))
        n, total, gamma = len(counts), int(counts.sum()), imbalance_gamma(counts)

        def holds(candidate: Any, counts: Any = counts, n: int = n, total: int = total) -> bool:
            return 2 * sum(int(m) for m in counts if m * n > candidate * total) <= total

        assert gamma >= 1
        assert holds(gamma)
        assert gamma == 1 or not holds(gamma - gamma / 10**9)


def test_thresholds_by_hand() -> None:
    # 16 sqrt(2/3) = 13.063945; ln(100 * 10^9 * 2) = 26.021575; / sqrt(100)
    assert bounded_threshold(bound=2.0, records=100, n_users=1000) == pytest.approx(67.988866, rel=1e-6)
    # nu = 1/1000, ln 6000 = 8.699515; the tail term wins: 8 * 2 * 3^-0.75 * 1000^0.25 * 8.699515
    tail = {"moment_order": 4.0, "n_users": 1000, "epsilon": 1.0}
    assert heavy_tail_threshold(moment=1.0, records=1, **tail) == pytest.approx(343.380, rel=1e-5)
    # m = 10^6: the Gaussian term wins: 8 * 16^(1/4) * sqrt(8.699515 / 10^6) = 0.0471919
    assert heavy_tail_threshold(moment=16.0, records=10**6, **tail) == pytest.approx(0.0471919, rel=1e-5)
    # ln(10^4 * 10^4 * 2) = 19.113828, square root 4.371936
    assert imbalanced_scale(bound=1.0, total_records=10_000, n_users=100) == pytest.approx(57.11473, rel=1e-6)
    # Counts 1, 1, 1, 97: gamma = 97/25, m_c = 97. A = 13.063945 sqrt(ln 3200) = 13.063945 * 2.840934
    thresholds = imbalanced_thresholds([1, 1, 1, 97], bound=1.0)
    assert thresholds == pytest.approx([37.11381] * 3 + [3.768336], rel=1e-6)


def test_large_users_are_capped() -> None:
    """Counts 1 (10 users), 2 (10 users), 10: gamma = 2 * 21/40, m_c = 2, so the largest counts for 2."""
    counts = [1] * 10 + [2] * 10 + [10]
    users = PaperUsers.imbalanced(counts, 3.0, gamma=None, k_0=None)
    assert float(imbalance_gamma(counts)) == 1.05
    assert users.weights == pytest.approx([1 / 32] * 10 + [2 / 32] * 11)
    assert users.thresholds == pytest.approx([3.0] * 10 + [3 / math.sqrt(2)] * 11)
    thresholds = imbalanced_thresholds(counts, bound=1.0)
    assert thresholds[-1] == thresholds[-2]
    wide = PaperUsers.imbalanced(counts, 3.0, gamma=5.25, k_0=None)  # m_c = 10
    assert wide.weights[-1] == pytest.approx(10 / 40)
    assert wide.k_0 == 0


def test_conditions_on_the_number_of_users() -> None:
    assert not bounded_users_suffice(500, radius=10.0, threshold=1.0, beta=0.0434)  # 785 needed at n = 500
    assert bounded_users_suffice(1000, radius=10.0, threshold=1.0, beta=0.0434)
    assert not heavy_tail_users_suffice(1000, threshold=1.0, beta=0.0434)  # 1,153 needed
    assert heavy_tail_users_suffice(2000, threshold=1.0, beta=0.0434)
    assert not imbalanced_users_suffice(1500, total_records=150_000, gamma=1.0, beta=0.0434)  # 1,781 needed
    assert imbalanced_users_suffice(2500, total_records=250_000, gamma=1.0, beta=0.0434)


# --- the release


def test_the_noise_is_the_printed_one() -> None:
    """2,000 seeded runs: sample variance within 5 standard errors (16%) of (S/alpha)^2, mean of Clip(c)."""
    values = np.linspace(-0.4, 0.4, 1001) + 3.0
    arguments: dict[str, Any] = {"threshold": 1.0, "radius": 2.0, **CLAIM}
    inner = unsafe_paper_literal_diagnostics(values, **arguments)
    assert inner.clipped == pytest.approx(2.0)
    source = InsecureSeededNoise(4)
    runs = np.array([paper_literal(values, noise=source, **arguments).value for _ in range(2000)])
    assert np.mean(runs) == pytest.approx(2.0, abs=5 * inner.stddev / math.sqrt(2000))
    assert np.var(runs) / inner.stddev**2 == pytest.approx(1.0, abs=5 * math.sqrt(2 / 2000))


def test_system_noise_and_several_columns() -> None:
    run = paper_literal(np.zeros((200, 2)), np.arange(1, 201), threshold=1.0, radius=1.0, **CLAIM)
    assert isinstance(run.value, list)
    assert len(run.value) == 2
    assert run.secure_noise
    assert run.to_dict()["parameters"]["k_0"] == 17


def test_nothing_private_is_shown() -> None:
    """All but the value is the same for neighbors whose S differs; no field speaks of the noise scale."""

    def shown(last: float) -> tuple[dict[str, Any], str]:
        run = paper_literal(
            [0.0] * 99 + [last], [2] * 100, threshold=1.0, radius=10.0, noise=InsecureSeededNoise(1), **CLAIM
        )
        content = json.loads(run.to_json())
        text = repr(run).replace(str(run.value), "")
        del content["value"]
        return content, text

    assert shown(0.0) == shown(50.0)
    content, text = shown(0.0)
    inner = unsafe_paper_literal_diagnostics([0.0] * 100, [2] * 100, threshold=1.0, radius=10.0, **CLAIM)
    for private in (inner.S, inner.stddev):
        assert f"{private:.4g}" not in text
    for word in ("sigma", "stddev", "sensitivity_", "S(D)"):
        assert word not in text
        assert word not in json.dumps(content)
    assert "S=" not in repr(inner)
    assert repr(inner) == "UnsafePaperLiteral()"


def test_the_first_line_says_what_it_is() -> None:
    one = paper_literal(np.zeros(50), threshold=1.0, radius=10.0, **CLAIM)
    assert (
        repr(one).splitlines()[0] == "The paper as printed, for research: not private at the claimed delta."
    )
    several = paper_literal(np.zeros((50, 3)), threshold=1.0, radius=10.0, **CLAIM)
    assert "not a private release" in repr(several).splitlines()[0]
    unequal = paper_literal(np.zeros((50, 3)), np.ones(50), threshold=1.0, radius=10.0, **CLAIM)
    assert "not private at the claimed delta" in repr(unequal).splitlines()[0]
    assert "lower bound" in unequal.actual_delta_note


@pytest.mark.parametrize("name", ["paper-literal", "paper_literal", "literal"])
def test_it_cannot_be_reached_by_accident(name: str) -> None:
    with pytest.raises(hm.InputError, match="mechanism must be one of"):
        hm.mean_of_user_means([1.0, 2.0], epsilon=1.0, delta=1e-5, mechanism=name)
    with pytest.raises(hm.InputError, match="mechanism must be one of"):
        hm.mean("absent.csv", user="u", value="v", epsilon=1.0, delta=1e-5, mechanism=name)
    assert not hasattr(hm, "paper_literal")


@pytest.mark.parametrize(
    "wrong",
    [
        {"means": [1.0, math.nan]},
        {"means": []},
        {"means": ["a"]},
        {"threshold": 0.0},
        {"radius": math.inf},
        {"epsilon": 0.0},
        {"delta": 0.0},
        {"gamma": 2.0},
        {"k_0": 1},
        {"counts": [1]},
        {"counts": [0, 1]},
        {"counts": [1, 1.5]},
        {"counts": [1, 1], "gamma": 0.5},
        {"counts": [1, 1], "k_0": 2},
        {"counts": [1, 1], "reading": "mine"},
        {"radius": 1e30},
    ],
)
def test_bad_arguments_are_refused(wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"means": [1.0, 2.0], "threshold": 1.0, "radius": 10.0, **CLAIM} | wrong
    with pytest.raises(hm.InputError):
        paper_literal(arguments.pop("means"), arguments.pop("counts", None), **arguments)
