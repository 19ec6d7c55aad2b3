"""Many draws at once follow the law exactly: the parts of the proof (proofs/noise.md) one by one, then the whole.

Pearson's chi-square as in test_noise.py: significance 1e-6, 20,000 draws.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from hubermean.noise import batch as many
from hubermean.noise.batch import Kind, sample_many
from hubermean.noise.exponentials import exponential_bounds

N = 20_000
SIGNIFICANCE = 1e-6
KINDS: tuple[Kind, ...] = ("laplace", "gaussian")
SCALES = (0.02, 0.7, 3.999, 4.0, 7.9, 8.0, 9.7, 1000.3, 2.0**40 + 0.1, 2.0**50)


def seeded(seed: int) -> many.RandomBytes:
    return np.random.default_rng(seed).bytes


def potential(kind: Kind, scale: float, k: int) -> mpmath.mpf:
    quotient = mpmath.mpf(abs(k)) / mpmath.mpf(scale)
    return quotient if kind == "laplace" else quotient**2 / 2


def p_value(draws: np.ndarray, kind: Kind, scale: float, low: int, high: int) -> float:
    """Of the cells low, ..., high and the rest, against the law on all integers."""
    reach = 60 * math.ceil(scale + 1)
    masses = {k: float(mpmath.exp(-potential(kind, scale, k))) for k in range(-reach, reach + 1)}
    total = sum(masses.values())
    expected = [masses[k] / total * len(draws) for k in range(low, high + 1)]
    observed = [int(np.count_nonzero(draws == k)) for k in range(low, high + 1)]
    expected.append(len(draws) - sum(expected))
    observed.append(len(draws) - sum(observed))
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("bits", [64, 192, 1000])
@pytest.mark.parametrize("exponent", ["0", "1/3", "1", "44", "5000", "7/2", "1/1000000000000000000000000"])
def test_bounds_on_exponentials_are_tight_and_on_their_sides(exponent: str, bits: int) -> None:
    exact = Fraction(exponent)
    low, high = exponential_bounds(exact, bits)
    with mpmath.workprec(bits + 9000):
        true = mpmath.exp(-mpmath.mpf(exact.numerator) / exact.denominator) * mpmath.mpf(2) ** bits
        assert low <= true <= high
    assert high - low <= 2


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_chance_exceeds_one_and_floats_are_near_it(kind: Kind, scale: float) -> None:
    bins = many._ProposalBins.of(kind, scale)
    tail = len(bins.ends) - 1
    assert int(bins.ends[-1]) <= 2**62
    assert potential(kind, scale, tail << bins.bits) >= 44 > potential(kind, scale, (tail - 1) << bins.bits)
    with mpmath.workprec(300):
        for shell in {*range(0, tail, max(tail // 25, 1)), tail - 1}:
            inside = np.unique(np.array([0, 1, (1 << bins.bits) // 3, (1 << bins.bits) - 1]))
            inside = inside[inside < 1 << bins.bits]
            found = bins._chances(np.full(inside.size, shell), inside)
            for place, chance in zip(inside.tolist(), found.tolist(), strict=True):
                k = (shell << bins.bits) + place
                true = bins.multiple * mpmath.exp(-potential(kind, scale, k)) / bins.weights[shell]
                assert true <= 1
                assert abs(true - chance) < 2**-37
        width = many._TAIL_BINS << bins.bits
        for stretch in range(4):  # the first number of a stretch is the likeliest
            k = (tail << bins.bits) + stretch * width
            assert bins.multiple * mpmath.exp(-potential(kind, scale, k)) * 2**stretch <= bins.weights[-1]


@pytest.mark.parametrize("scale", [0.7, 9.7, 1000.3, 2.0**50])
@pytest.mark.parametrize("kind", KINDS)
def test_floats_decide_as_integers_do(kind: Kind, scale: float) -> None:
    by_floats = sample_many(seeded(1), kind, scale, 3000)
    assert np.array_equal(by_floats, sample_many(seeded(1), kind, scale, 3000, doubt=2.0))


@pytest.mark.parametrize("scale", [0.3, 2.5, 9.7, 40.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_law_of_small_scales(kind: Kind, scale: float) -> None:
    draws = sample_many(seeded(2), kind, scale, N)
    reach = min(math.ceil(2.5 * scale), 12)
    assert p_value(draws, kind, scale, -reach, reach) > SIGNIFICANCE
    if scale > 1:  # and the test can tell
        wrong = sample_many(seeded(2), kind, 1.3 * scale, N)
        assert p_value(wrong, kind, scale, -reach, reach) < SIGNIFICANCE


@pytest.mark.parametrize("scale", [1000.3, 2.0**33 + 0.7, 2.0**50])
@pytest.mark.parametrize("kind", KINDS)
def test_the_law_of_large_scales(kind: Kind, scale: float) -> None:
    draws = sample_many(seeded(3), kind, scale, N).astype(float)
    # Jittered over its cell, a draw is as good as continuous.
    draws += np.random.default_rng(4).uniform(-0.5, 0.5, N)
    distribution = stats.laplace(scale=scale) if kind == "laplace" else stats.norm(scale=scale)
    assert stats.kstest(draws, distribution.cdf).pvalue > SIGNIFICANCE
    assert stats.kstest(draws / 1.3, distribution.cdf).pvalue < SIGNIFICANCE


@pytest.fixture
def early_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table so short that the tail is drawn from often; the proof holds of it, too."""
    monkeypatch.setattr(many, "_LAST_EXPONENT", 1)


@pytest.mark.usefixtures("early_tail")
@pytest.mark.parametrize("scale", [0.3, 2.5, 9.7])
@pytest.mark.parametrize("kind", KINDS)
def test_table_and_tail_are_one_law(kind: Kind, scale: float) -> None:
    bins = many._ProposalBins.of(kind, scale)
    draws = sample_many(seeded(5), kind, scale, N // 4)  # the tail is drawn one by one
    beyond = (len(bins.ends) - 1) << bins.bits
    if scale > 1:
        assert np.count_nonzero(np.abs(draws) >= beyond) > 0.05 * len(draws)
    reach = math.ceil(2.5 * scale)
    assert p_value(draws, kind, scale, -reach, reach) > SIGNIFICANCE
    assert p_value(draws, kind, scale, beyond, beyond + 3) > SIGNIFICANCE


def test_a_coin_that_is_undecided_is_tossed_on() -> None:
    """Of all first 64 bits of a coin, one value alone leaves open on which side of the threshold it lies."""
    bins = many._ProposalBins.of("gaussian", 1000.3)
    generator = np.random.default_rng(6)
    asked: list[int] = []

    def more(size: int) -> bytes:
        asked.append(size)
        return generator.bytes(size)

    k, weight = 3 << bins.bits, Fraction(bins.weights[3])
    below, above = 0, 2**64 - 1
    while not asked:
        assert above - below > 1  # else the threshold, which is irrational, would be a multiple of 2^-64
        middle = (below + above) // 2
        if bins._accepts(more, middle, k, weight):
            below = middle
        else:
            above = middle
    # How often it is accepted then: as often as the rest of the coin lies below the rest of the threshold.
    with mpmath.workprec(300):
        threshold = bins.multiple * mpmath.exp(-potential("gaussian", 1000.3, k)) / weight.numerator
        rest = float(threshold * 2**64 - middle)
    accepted = sum(bins._accepts(more, middle, k, weight) for _ in range(4000))
    assert 0 < rest < 1
    assert stats.binomtest(accepted, 4000, rest).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2.0**50 + 1])
def test_other_scales_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="noise scale"):
        sample_many(seeded(7), "laplace", scale, 10)


def test_other_laws_are_refused() -> None:
    with pytest.raises(ValueError, match="laplace"):
        sample_many(seeded(7), "Laplace", 1.0, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [5e-324, 1e-200, 2.0**50])
def test_the_ends_of_the_range(kind: Kind, scale: float) -> None:
    with np.errstate(all="raise"):
        draws = sample_many(seeded(8), kind, scale, np.int16(30_000))
    assert draws.dtype == np.int64
    assert len(draws) == 30_000
    assert (draws == 0).all() == (scale < 1)
    assert sample_many(seeded(8), kind, scale, 0).size == 0


def test_a_scale_is_not_shown() -> None:
    assert "1000.3" not in repr(many._ProposalBins.of("gaussian", 1000.3))
    assert "scale=" not in repr(many._ProposalBins.of("gaussian", 1000.3))
