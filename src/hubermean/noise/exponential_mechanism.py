"""Exact sampling from uniform random bytes: uniform integers, coins, the exponential mechanism, permute-and-flip.

All output distributions are exact: no probability is rounded to a float. Only the running time is random.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
RandomBytes = Callable[[int], bytes]
"""A function that returns the given number of independent uniform bytes."""

_LAST_LEVEL = 64  # e^-64: candidates beyond are proposed less than once in 10^18 for up to 10^9 candidates
_SCALE_BITS = 128
_FIRST_TERMS = 40  # of the series for e: more than 150 bits
_COIN_ERROR = 2.0**-40  # relative, of a float exp(-x) for x up to 64: x itself is off by a few parts in 2^53


def uniform_below(random_bytes: RandomBytes, limit: int) -> int:
    """Return a uniform integer in [0, limit): enough random bits, redrawn while the number is too large."""
    if limit < 1:
        raise ValueError("a uniform integer needs a limit of at least 1")
    bits = (limit - 1).bit_length()
    size = -(-bits // 8)
    while True:
        drawn = int.from_bytes(random_bytes(size), "big") >> (8 * size - bits)
        if drawn < limit:
            return drawn


def bernoulli_exp(random_bytes: RandomBytes, exponent: Fraction) -> bool:
    """Return True with probability exp(-exponent), exponent >= 0 (Canonne, Kamath & Steinke 2020, Alg. 1).

    For x <= 1 coins of probability x/1, x/2, x/3, ... are tossed until one fails, at position K. P(K > k) = x^k /
    k!, so K is odd with probability 1 - x + x^2/2! - ... = exp(-x). A larger x is split into ones and a remainder;
    exp(-x) is the product, and the first failure ends the loop.
    """
    if exponent < 0:
        raise ValueError("exp(-exponent) must be a probability")
    whole, rest = divmod(exponent.numerator, exponent.denominator)
    for _ in range(whole):
        if not _bernoulli_exp_below_one(random_bytes, 1, 1):
            return False
    return _bernoulli_exp_below_one(random_bytes, rest, exponent.denominator)


def _bernoulli_exp_below_one(random_bytes: RandomBytes, numerator: int, denominator: int) -> bool:
    position = 1
    while uniform_below(random_bytes, denominator * position) < numerator:
        position += 1
    return position % 2 == 1


def sample_exponential_mechanism(
    random_bytes: RandomBytes, costs: IntArray, sizes: IntArray, rate: Fraction
) -> int:
    """Return a candidate sampled with probability proportional to exp(-rate * cost).

    Candidates are numbered from 0 and come in runs of equal cost: run i holds the next `sizes[i] >= 1` candidates,
    each of cost `costs[i]`. Time and memory grow with the number of runs, not of candidates.

    **Formal guarantees**
    - The output distribution is exact, by rejection. Let g >= 0 be a candidate's cost above the minimum, x = rate * g
      and k = min(floor(x), 64) its level. Candidates are proposed in proportion to the integer u_k >= 2^128 e^-k and
      accepted with probability exp(-(x - k)) times 2^128 e^-k / u_k, both at most 1 and both exact coins; the product
      of the three is 2^128 exp(-x).
    - The expected number of proposals is below e + 10^-9 for up to 10^18 candidates: a candidate of a level below 64
      is accepted with probability at least 1/e (up to 2^-100), and the last level has weight at most 10^18 e^-64
      relative to the best candidate.
    - No information about rejected proposals is kept. The running time is not constant (see `bernoulli_exp`).
    """
    if len(costs) == 0 or len(costs) != len(sizes) or int(sizes.min()) < 1 or rate < 0:
        raise ValueError(
            "the exponential mechanism needs runs of at least one candidate each and a rate of at least 0"
        )
    gaps = costs - int(costs.min())
    levels = np.searchsorted(_level_starts(rate), gaps, side="right")
    numbers = np.flatnonzero(np.bincount(levels)).tolist()
    members = [np.flatnonzero(levels == number) for number in numbers]
    totals = [sum(sizes[of_level].tolist()) for of_level in members]
    bounds = [_upper_weight(number) for number in numbers]
    while True:
        drawn = uniform_below(
            random_bytes, sum(size * bound for size, bound in zip(totals, bounds, strict=True))
        )
        position = 0
        while drawn >= totals[position] * bounds[position]:
            drawn -= totals[position] * bounds[position]
            position += 1
        place = drawn // bounds[position]  # uniform among the candidates of the level
        ends = np.cumsum(sizes[members[position]])
        inside = int(np.searchsorted(ends, place, side="right"))
        run = int(members[position][inside])
        offset = place - (int(ends[inside]) - int(sizes[run]))
        level = numbers[position]
        if bernoulli_exp(random_bytes, rate * int(gaps[run]) - level) and _accept_rounding(
            random_bytes, level
        ):
            return int(sizes[:run].sum()) + offset


def permute_and_flip(random_bytes: RandomBytes, costs: IntArray, rate: Fraction) -> int:
    """Return a candidate by permute-and-flip with acceptance probabilities exp(-rate * (cost - minimum cost)).

    McKenna & Sheldon (2020, Alg. 1) go through the candidates in random order and take the first whose coin shows
    heads. The coins do not depend on the order, so the result is uniform among all candidates whose coins show heads.
    The coin of the cheapest candidate always does. All coins are tossed at once.

    **Formal guarantees**
    - The output distribution is exact. A coin is a uniform number U, known by its first 64 bits, that shows heads if
      U < exp(-x). Floats decide only where their error cannot matter; otherwise more bits are drawn until exact
      bounds on exp(-x) decide.
    - epsilon-DP for rate = epsilon / (2 * sensitivity), and for rate = epsilon / sensitivity if costs only rise or
      only fall between neighbors (McKenna & Sheldon 2020, Thm. 1 and Prop. 1).
    """
    if len(costs) == 0 or rate < 0:
        raise ValueError("permute-and-flip needs at least one candidate and a rate of at least 0")
    gaps = costs - int(costs.min())
    chances = np.exp(-float(rate) * gaps.astype(np.float64))
    drawn = np.frombuffer(random_bytes(8 * len(gaps)), dtype=">u8").astype(np.uint64)
    # The float of the first 53 bits is exact; a chance is off by far less than 2^-40 of itself where it is above 2^-60.
    first = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    heads = first + 2.0**-53 <= chances * (1.0 - _COIN_ERROR)
    unsure = ~heads & (first <= chances * (1.0 + _COIN_ERROR) + 2.0**-60)
    for candidate in np.flatnonzero(unsure).tolist():
        heads[candidate] = _below_exp(random_bytes, int(drawn[candidate]), rate * int(gaps[candidate]))
    accepted = np.flatnonzero(heads)
    return int(accepted[uniform_below(random_bytes, len(accepted))])


def _below_exp(random_bytes: RandomBytes, drawn: int, exponent: Fraction) -> bool:
    """Return whether a uniform number, known by its first 64 bits, is below exp(-exponent); draw more if needed."""
    if exponent == 0:
        return True
    bits, terms = 64, _FIRST_TERMS
    while True:
        # exp(-x) < 2^-x: for a huge x, bounds on the exponential would take far too long.
        if drawn and exponent >= bits:
            return False
        if exponent < bits:
            low, high = _exp_of(exponent, terms)
            if Fraction(drawn + 1, 1 << bits) <= low:
                return True
            if Fraction(drawn, 1 << bits) >= high:
                return False
        drawn = (drawn << 64) | uniform_below(random_bytes, 2**64)
        bits, terms = bits + 64, 2 * terms


def _exp_of(exponent: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds on exp(-exponent): a power of e times an alternating series."""
    whole, rest = divmod(exponent.numerator, exponent.denominator)
    part = Fraction(rest, exponent.denominator)
    term, total = Fraction(1), Fraction(1)
    for number in range(1, 2 * terms):
        term = -term * part / number
        total += term
    # After an odd number of further terms the sum is a lower bound; adding the size of the last term gives an upper
    # bound.
    low, high = _exp_bounds(whole, terms)
    return low * total, high * (total - term)


@lru_cache(maxsize=128)
def _level_starts(rate: Fraction) -> IntArray:
    """The least gap of each level from 1 on: rate * gap >= k exactly where gap >= ceil(k / rate)."""
    if rate == 0:
        return np.empty(0, dtype=np.int64)
    starts = [min(math.ceil(k / rate), 2**63 - 1) for k in range(1, _LAST_LEVEL + 1)]
    return np.array(starts, dtype=np.int64)


def _e_bounds(terms: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds on e: a partial sum of the series, and that plus a bound on its tail."""
    low = sum((Fraction(1, math.factorial(j)) for j in range(terms + 1)), Fraction(0))
    return low, low + Fraction(1, math.factorial(terms) * terms)


@lru_cache(maxsize=1024)
def _exp_bounds(level: int, terms: int) -> tuple[Fraction, Fraction]:
    """Rationals around e^-level."""
    low, high = _e_bounds(terms)
    return 1 / high**level, 1 / low**level


@lru_cache(maxsize=128)
def _upper_weight(level: int) -> int:
    """u_k: the least integer that is at least the upper bound of 2^128 e^-k."""
    _, high = _exp_bounds(level, _FIRST_TERMS)
    return math.ceil(high * (1 << _SCALE_BITS))


def _accept_rounding(random_bytes: RandomBytes, level: int) -> bool:
    """Return True with probability 2^128 e^-k / u_k, exactly.

    A uniform number is compared with that ratio. More bits and tighter bounds on e are used until the comparison is
    decided. For k > 0 the ratio is irrational, so this happens with probability one.
    """
    if level == 0:
        return True
    bits, terms, drawn = 0, _FIRST_TERMS, 0
    while True:
        drawn = (drawn << 64) | uniform_below(random_bytes, 2**64)
        bits += 64
        low, high = _exp_bounds(level, terms)
        unit = Fraction(_upper_weight(level), 2 ** (bits + _SCALE_BITS))
        if (drawn + 1) * unit <= low:
            return True
        if drawn * unit >= high:
            return False
        terms *= 2
