"""The samplers follow their stated laws.

Each test draws n integers and compares cell counts with the exact law by Pearson's chi-square. Significance
1e-6 per test; with n = 20,000 and 20 cells the power against 30% too little or too much noise is above 0.999,
which the last test shows by feeding it such noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from hubermean.distributions.output import NoiseDistribution
from hubermean.noise.batch import LARGEST_SCALE, Kind
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.noise.system import BATCH_SIZE, SystemNoise

N = 20_000
SIGNIFICANCE = 1e-6
Pmf = Callable[[int], float]


def laplace_pmf(scale: float) -> Pmf:
    ratio = math.exp(-1 / scale)
    return lambda k: (1 - ratio) / (1 + ratio) * ratio ** abs(k)


def gaussian_pmf(stddev: float) -> Pmf:
    total = sum(math.exp(-(k**2) / (2 * stddev**2)) for k in range(-200, 201))
    return lambda k: math.exp(-(k**2) / (2 * stddev**2)) / total


def p_value(draws: list[int], pmf: Pmf, reach: int) -> float:
    """Chi-square over the integers -reach..reach and the rest."""
    cells = range(-reach, reach + 1)
    expected = [pmf(k) * len(draws) for k in cells]
    observed = [draws.count(k) for k in cells]
    expected.append(len(draws) - sum(expected))
    observed.append(len(draws) - sum(observed))
    return float(stats.chisquare(observed, expected).pvalue)


class FewAtATime(SystemNoise):
    """Draws that are asked for in small numbers, which another sampler makes."""

    def _draw(self, kind: Kind, scale: float, size: int) -> list[int]:
        few = BATCH_SIZE - 1
        draw = super()._draw
        return [k for start in range(0, size, few) for k in draw(kind, scale, min(few, size - start))]


SOURCES = pytest.mark.parametrize(
    "source",
    [SystemNoise(), FewAtATime(), InsecureSeededNoise(7)],
    ids=["system", "few at a time", "seeded"],
)


@SOURCES
def test_small_scales_follow_the_discrete_law(source: SystemNoise | InsecureSeededNoise) -> None:
    assert p_value(source.discrete_laplace(2.5, N), laplace_pmf(2.5), 8) > SIGNIFICANCE
    if source.secure:  # the seeded one rounds a continuous Gaussian: right for the large scales it is used at
        assert p_value(source.discrete_gaussian(2.5, N), gaussian_pmf(2.5), 6) > SIGNIFICANCE


@SOURCES
def test_large_scales_follow_the_continuous_law(source: SystemNoise | InsecureSeededNoise) -> None:
    scale = 2.0**40
    for draws, distribution in (
        (source.discrete_laplace(scale, N), stats.laplace(scale=scale)),
        (source.discrete_gaussian(scale, N), stats.norm(scale=scale)),
    ):
        assert stats.kstest(np.array(draws, dtype=float), distribution.cdf).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_the_test_rejects_thirty_per_cent_too_little_or_too_much(factor: float) -> None:
    noise = SystemNoise()
    assert p_value(noise.discrete_laplace(2.5 * factor, N), laplace_pmf(2.5), 8) < SIGNIFICANCE
    assert p_value(noise.discrete_gaussian(2.5 * factor, N), gaussian_pmf(2.5), 6) < SIGNIFICANCE


def test_system_noise_is_fresh_and_seeded_noise_repeats() -> None:
    assert SystemNoise().discrete_laplace(1e9, 8) != SystemNoise().discrete_laplace(1e9, 8)
    assert InsecureSeededNoise(1).discrete_laplace(1e9, 8) == InsecureSeededNoise(1).discrete_laplace(1e9, 8)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2 * LARGEST_SCALE])
def test_scales_that_could_saturate_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="noise scale"):
        SystemNoise().discrete_laplace(scale, 1)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_bounds_hold_at_their_level(kind: str) -> None:
    distribution = NoiseDistribution(kind=kind, scale=1e6)  # type: ignore[arg-type]
    draws = np.abs(distribution.sample(SystemNoise(), N))
    for level in (0.5, 0.9, 0.99):
        inside = float((draws <= distribution.bound(tail=1 - level)).mean())
        assert level - 5 * math.sqrt(level * (1 - level) / N) < inside < level + 5 * math.sqrt(level / N)
