"""Exact choices: the exponential mechanism, its coins and its uniform integers follow their laws.

Pearson's chi-square at significance 1e-6 per test. With N = 6,000 draws the power against a rate that is 30% off
is above 0.999, which `test_the_test_rejects_a_rate_thirty_per_cent_off` shows by feeding it such choices.
"""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hubermean.noise import exponential_mechanism as selection
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.noise.source import NoiseSource
from hubermean.noise.system import SystemNoise

N = 6_000
SIGNIFICANCE = 1e-6
SOURCES = [pytest.param(SystemNoise(), id="system"), pytest.param(InsecureSeededNoise(3), id="seeded")]


def integers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def p_value(draws: list[int], costs: np.ndarray, sizes: np.ndarray, rate: float) -> float:
    """Chi-square of candidates against exp(-rate * cost), rare candidates pooled."""
    weights = np.repeat(np.exp(-rate * (costs - costs.min())), sizes)
    expected = weights / weights.sum() * len(draws)
    observed = np.bincount(draws, minlength=len(weights)).astype(float)
    rare = expected < 10
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    return float(stats.chisquare(observed, expected).pvalue)


CASES = [
    (integers(3, 1, 0, 2, 7), integers(1, 4, 1, 2, 3), Fraction(1, 3)),
    (integers(10, 9, 12), integers(2, 1, 9), Fraction(5, 4)),  # several shells, most of them rare
    (integers(5, 5), integers(3, 4), Fraction(2)),
    (integers(4, 0, 9), integers(2, 2, 2), Fraction(0)),
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("costs", "sizes", "rate"), CASES)
def test_choices_follow_the_exponential_law(
    source: NoiseSource, costs: np.ndarray, sizes: np.ndarray, rate: Fraction
) -> None:
    draws = [source.choose(costs, sizes, rate) for _ in range(N)]
    assert p_value(draws, costs, sizes, float(rate)) > SIGNIFICANCE


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_the_test_rejects_a_rate_thirty_per_cent_off(factor: float) -> None:
    costs, sizes, rate = CASES[0]
    draws = [SystemNoise().choose(costs, sizes, rate * Fraction(factor)) for _ in range(N)]
    assert p_value(draws, costs, sizes, float(rate)) < SIGNIFICANCE


@pytest.mark.parametrize("bits", [0, 2])
def test_the_law_does_not_depend_on_how_finely_proposals_are_rounded(
    monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """With weights rounded up to whole numbers at scale 1 the second coin decides most of the law."""
    selection._upper_weight.cache_clear()
    monkeypatch.setattr(selection, "_SCALE_BITS", bits)
    try:
        costs, sizes, rate = integers(0, 1, 2, 3), integers(2, 1, 3, 4), Fraction(1)
        assert selection._upper_weight(3) == 1
        draws = [SystemNoise().choose(costs, sizes, rate) for _ in range(N)]
        assert p_value(draws, costs, sizes, 1.0) > SIGNIFICANCE
    finally:
        selection._upper_weight.cache_clear()


def test_the_bounds_on_e_enclose_it() -> None:
    from mpmath import mp, mpf

    with mp.workprec(2000):
        for shell in (0, 1, 7, 64):
            for terms in (10, 40, 80):
                low, high = selection._exp_bounds(shell, terms)
                exact = mp.exp(-shell)
                assert mpf(low.numerator) / low.denominator <= exact <= mpf(high.numerator) / high.denominator
            assert 0 <= selection._upper_weight(shell) - exact * 2**128 < 2


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_coins_come_up_as_often_as_they_should(exponent: Fraction) -> None:
    heads = sum(selection.bernoulli_exp(SystemNoiseBytes, exponent) for _ in range(N))
    assert stats.binomtest(heads, N, math.exp(-exponent)).pvalue > SIGNIFICANCE


def SystemNoiseBytes(size: int) -> bytes:
    import os

    return os.urandom(size)


@pytest.mark.parametrize("limit", [1, 2, 5, 255, 257])
@pytest.mark.parametrize("source", SOURCES)
def test_integers_are_uniform(source: NoiseSource, limit: int) -> None:
    observed = np.bincount([source.below(limit) for _ in range(N)], minlength=limit)
    assert len(observed) == limit
    assert limit == 1 or stats.chisquare(observed).pvalue > SIGNIFICANCE


def test_a_billion_candidates_cost_no_more_than_their_runs() -> None:
    """One good candidate beside 10^9 bad ones: found at once, and never lost among them."""
    costs, sizes = integers(1000, 0, 1000), integers(10**9, 1, 10**9)
    start = time.perf_counter()
    assert {SystemNoise().choose(costs, sizes, Fraction(1, 10)) for _ in range(100)} == {10**9}
    assert time.perf_counter() - start < 2.0


def test_a_huge_gap_and_a_tiny_rate_stay_exact() -> None:
    costs, sizes = integers(0, 2**40), integers(1, 1)
    draws = [SystemNoise().choose(costs, sizes, Fraction(1, 2**40)) for _ in range(N)]
    assert stats.binomtest(sum(draws), N, 1 / (1 + math.e)).pvalue > SIGNIFICANCE


def test_what_is_no_choice_is_refused() -> None:
    for costs, sizes, rate in (
        (integers(), integers(), Fraction(1)),
        (integers(1), integers(0), Fraction(1)),
        (integers(1, 2), integers(1), Fraction(1)),
        (integers(1), integers(1), Fraction(-1)),
    ):
        with pytest.raises(ValueError, match="the exponential mechanism needs"):
            SystemNoise().choose(costs, sizes, rate)
    with pytest.raises(ValueError, match="limit"):
        SystemNoise().below(0)
