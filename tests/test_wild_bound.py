"""Wild values: the bound of proofs/tuning.md, Theorem 2, added up for laws of users from their quantile functions.

A release further than 20 standard errors from the truth, of which 6 are left to the plain mean itself, needs 14 from
clamping and noise together. The shorter the length that was found, the more is cut off; the longer, the more noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import pytest
from scipy import integrate

from hubermean.mechanisms import PublicFacts, Request, Tuned
from hubermean.mechanisms.tuning_plan import Found, Planner
from hubermean.relations import Neighbors
from hubermean.tuning import LENGTHS
from hubermean.user_table import UserTable

Quantile = Callable[[float], float]
_NORMAL = NormalDist()
# Quantile function, mean and standard deviation of a user's mean.
LAWS: dict[str, tuple[Quantile, float, float]] = {
    "uniform": (lambda u: u, 0.5, 12**-0.5),
    "Gaussian": (_NORMAL.inv_cdf, 0.0, 1.0),
    "Lomax(4)": (lambda u: (1.0 - u) ** -0.25 - 1.0, 1 / 3, (2 / 9) ** 0.5),
    "log-normal(1)": (
        lambda u: math.exp(_NORMAL.inv_cdf(u)),
        math.exp(0.5),
        math.sqrt((math.e - 1.0) * math.e),
    ),
}
_ALLOWED, _PLAIN = 20.0, 6.0


@lru_cache
def shortest(quantile: Quantile, share: float) -> tuple[float, float]:
    """The shortest interval that holds the share: where it starts, and its length."""
    starts = np.linspace(1e-9, 1.0 - share - 1e-9, 400)
    lengths = [quantile(start + share) - quantile(start) for start in starts]
    best = int(np.argmin(lengths))
    return quantile(float(starts[best])), lengths[best]


@lru_cache
def cut_off(quantile: Quantile, mean: float, place: float, threshold: float) -> float:
    """How far clamping to the bounds moves the mean."""
    clamped, _ = integrate.quad(
        lambda u: min(max(quantile(u), place - threshold), place + threshold), 1e-12, 1 - 1e-12, limit=400
    )
    return abs(clamped - mean)


def planner_for(n: int) -> Planner:
    table = UserTable.from_means(np.zeros(n))
    request = Request.checked(table.columns, epsilon=1, delta=0, per="user", neighbors="replace-user")
    return Tuned().prepare(request, PublicFacts.of(table, Neighbors.REPLACE_USER)).planner


def wild(law: str, n: int) -> float:
    """At most this is the probability of a release more than 14 standard errors off by clamping and noise.

    The weight of all users is measured first: the more it is overrated, the less is spent on the searches. By scales of
    its noise, each with its chance.
    """
    planner = planner_for(n)
    scale = 1.0 / planner.counting(float(n))
    total = 0.5 * math.exp(-12.0)
    for scales in range(-2, 12):
        chance = 0.5 * (math.exp(-scales) - math.exp(-scales - 1)) if scales >= 0 else 0.5
        total += chance * wild_at(planner, *LAWS[law], n, weight=n + scales * scale)
    return total


def wild_at(
    planner: Planner, quantile: Quantile, mean: float, deviation: float, n: int, *, weight: float
) -> float:
    """The same, where so much was planned for: one scale less than was measured."""
    spent = planner.price_of_counting(float(n))
    division = planner.division(weight, spent)
    search = division.spread
    assert search is not None
    p = search.share
    nats = float(search.epsilon) * n / 2.0
    error = deviation / math.sqrt(n)
    number = int(np.searchsorted(LENGTHS, 1.0))
    found = Found(spent=spent, cap=1, weight=weight, division=division, spreads=(number,), shares=(p,))
    place = planner.place_search(0, found)
    rest = 1.0 - float(spent + search.epsilon + place.epsilon)
    rungs = [0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, p, 0.9, 0.95, 0.98, 1.0 - 0.5 / n]
    total = 0.0
    for low, high in itertools.pairwise(rungs):
        # The length lies between r(low) and 2^(2/8) 32/31 r(high): how likely that is, by Theorem 2 (a) and (b).
        likely = 1.0
        if high < p:
            likely = min(1.0, math.exp(15.0 - min(nats * (p - high), 54.0)))
        if low > p:
            likely = min(1.0, 80.0 * math.exp(-min(nats * (low - p), 54.0)))
        start, length = shortest(quantile, low)
        longest = 2.0**0.25 * 32.0 / 31.0 * shortest(quantile, high)[1]
        per_length = division.deviations / (2.0 * _NORMAL.inv_cdf((1.0 + p) / 2.0))
        # The window may lie anywhere that it holds the interval; at the side away from the longer tail most is cut.
        middles = [start + length * shift for shift in (0.375, 0.5, 0.625)]
        cut = max(cut_off(quantile, mean, middle, per_length * length) for middle in middles)
        scale = 2.0 * per_length * longest * (1.0 + 0.7**2) / (rest * n)  # of the noise, weights included
        left = (_ALLOWED - _PLAIN) * error - cut
        strays = math.exp(-left / scale) if left > 0.0 else 1.0
        # A window beside all users has them all at one end of the bounds, and is withheld unless noise hides that.
        empty = min(1.0, place.windows.count * math.exp(-float(place.epsilon) * n / 2.0 * (low - 1.0 / 64.0)))
        hidden = math.exp(-0.1 * rest * n / 2.0)
        total += likely * (strays + empty * hidden)
    total += math.exp(15.0 - min(nats * (p - rungs[0]), 54.0))
    return total + 80.0 * math.exp(-min(nats * (1.0 - p), 54.0))


@pytest.mark.parametrize("n", [1_000, 10_000])
@pytest.mark.parametrize("law", LAWS)
def test_wild_values_are_rarer_than_one_in_ten_thousand(law: str, n: int) -> None:
    assert wild(law, n) < 1e-4
