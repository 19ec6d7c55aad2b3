"""Other methods on the same user means: OpenDP with given bounds, CoinPress and unbounded quantiles.

CoinPress and unbounded quantiles are reimplementations of the published methods, not checked against the authors' code.
Their noise comes from a seeded generator: they are measured here, never released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from realdata.releases import root_mean_square
from realdata.tables import Floats, UserSums

Generator = np.random.Generator
Method = Callable[[Generator, Floats, int], Floats]

DELTA = 1e-6
"""CoinPress is private in the concentrated sense: it is converted at this delta."""
BETA = 0.01
RANGE = 10.0
"""CoinPress is given (-r, r), r so many times the largest absolute user mean, and the true standard deviation."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """RMSE of one method on the user means of a table, in units of the plain mean's absolute value."""

    table: str
    method: str
    rmse: float


def right_bounds(means: Floats, times: float) -> tuple[float, float]:
    """Smallest and largest user mean, stretched around their middle."""
    low, high = float(means.min()), float(means.max())
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    return middle - times * half, middle + times * half


def opendp_mean(_: Generator, means: Floats, runs: int, *, epsilon: float, times: float) -> Floats:
    """Clamp, mean of a vector of public size, Laplace noise; replacing one user is distance 2 in OpenDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(means)), dp.symmetric_distance()
    clipped_mean = space >> dp.t.then_clamp(right_bounds(means, times)) >> dp.t.then_mean()
    noise = clipped_mean.output_space >> dp.m.then_laplace(clipped_mean.map(2) / epsilon)
    # The measurement is `clipped_mean >> noise`; its first half is the same for all releases.
    exact = clipped_mean(means)
    return np.array([noise(exact) for _ in range(runs)])


def concentrated(epsilon: float, delta: float) -> float:
    """The rho with rho + 2 sqrt(rho ln(1/delta)) = epsilon: Bun & Steinke (2016), Proposition 1.3."""
    log = math.log(1.0 / delta)
    return (math.sqrt(epsilon + log) - math.sqrt(log)) ** 2


def coinpress(
    generator: Generator, means: Floats, runs: int, *, epsilon: float, steps: int, delta: float = DELTA
) -> Floats:
    """Univariate CoinPress: Biswas, Dong, Kamath & Ullman (2020). Replace-user, public n.

    Every step clips to the interval believed to hold the mean, widened by a normal tail bound, adds Gaussian noise and
    narrows the interval. The first steps share a quarter of rho, the last has the rest.
    """
    deviation = float(means.std())
    reach = RANGE * float(np.abs(means).max())
    rho = concentrated(epsilon, delta)
    shares = [rho / 4.0 / (steps - 1)] * (steps - 1) + [3.0 * rho / 4.0] if steps > 1 else [rho]
    failures = [BETA / 4.0 / (steps - 1)] * (steps - 1) + [BETA / 4.0] if steps > 1 else [BETA]
    found = np.empty(runs)
    for run in range(runs):
        low, high = -reach, reach
        for share, failure in zip(shares, failures, strict=True):
            tail = deviation * math.sqrt(2.0 * math.log(2.0 * len(means) / failure))
            noise = (high - low + 2.0 * tail) / len(means) / math.sqrt(2.0 * share)
            center = np.clip(means, low - tail, high + tail).mean() + generator.normal(scale=noise)
            half = math.sqrt(2.0 * (deviation**2 / len(means) + noise**2) * math.log(2.0 / failure))
            low, high = center - half, center + half
        found[run] = (low + high) / 2.0
    return found


def unbounded_quantile(
    generator: Generator, ordered: Floats, rank: float, epsilon: float, *, base: float = 1.01
) -> float:
    """A quantile of non-negative values without an upper bound: Durfee (2023), on AboveThreshold.

    Candidates are base^i - 1 for i = 0, 1, 2, ...; the first below which about `rank` values lie is released. Counts
    only rise when a user is added, so half of epsilon for the threshold and half for the counts add up to epsilon.
    Exponential noise on both.
    """
    threshold = rank + generator.exponential(2.0 / epsilon)
    first, block = 0, 1024
    while True:
        candidates = base ** np.arange(first, first + block) - 1.0
        counts = np.searchsorted(ordered, candidates, side="right") + generator.exponential(
            2.0 / epsilon, block
        )
        above = np.flatnonzero(counts >= threshold)
        if len(above):
            return float(candidates[above[0]])
        first += block


def durfee_mean(generator: Generator, means: Floats, runs: int, *, epsilon: float, quantile: float) -> Floats:
    """Unbounded quantiles of both signs as bounds, then a clipped mean. Add-remove.

    A tenth of epsilon counts users, two tenths find each bound, half is noise on the sum around the bounds' middle.
    """
    above, below = np.sort(np.maximum(means, 0.0)), np.sort(np.maximum(-means, 0.0))
    found = np.empty(runs)
    for run in range(runs):
        users = max(len(means) + generator.laplace(scale=10.0 / epsilon), 1.0)
        high = unbounded_quantile(generator, above, quantile * users, 0.2 * epsilon)
        low = -unbounded_quantile(generator, below, quantile * users, 0.2 * epsilon)
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        total = (np.clip(means, low, high) - middle).sum() + generator.laplace(scale=half / (0.5 * epsilon))
        found[run] = middle + total / users
    return found


QUANTILES, STEPS = (0.9, 0.95, 0.99), (2, 4, 10)


def methods(epsilon: float) -> dict[str, Method]:
    return {
        **{
            f"OpenDP, bounds x {times:g}": partial(opendp_mean, epsilon=epsilon, times=times)
            for times in (1.0, 3.0, 10.0)
        },
        **{f"CoinPress, {steps} steps": partial(coinpress, epsilon=epsilon, steps=steps) for steps in STEPS},
        **{
            f"Durfee, q = {quantile:g}": partial(durfee_mean, epsilon=epsilon, quantile=quantile)
            for quantile in QUANTILES
        },
    }


def compare(table: UserSums, runs: int, seed: int, epsilon: float = 1.0) -> list[Compared]:
    means, truth = table.means, table.plain_mean("user")
    return [
        Compared(
            table=table.name,
            method=name,
            rmse=root_mean_square(method(np.random.default_rng(seed), means, runs) - truth)[0] / abs(truth),
        )
        for name, method in methods(epsilon).items()
    ]
