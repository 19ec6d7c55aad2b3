"""Exact choices from uniform random bytes: uniform integers, coins, the exponential mechanism, permute-and-flip.

No law here passes through a float. What follows a law follows it exactly; only the running time is random.
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
"""A function that returns so many independent uniform bytes."""

_LAST_SHELL = 64  # e^-64: what lies beyond is proposed less than once in 10^18 for up to 10^9 candidates
_SCALE_BITS = 128
_FIRST_TERMS = 40  # of the series for e: more than 150 bits
_COIN_ERROR = 2.0**-40  # relative, of a float exp(-x) for x up to 64: x itself is off by a few parts in 2^53


def uniform_below(random_bytes: RandomBytes, limit: int) -> int:
    """A uniform integer in [0, limit): enough bits, drawn again while they spell a number that is too large."""
    if limit < 1:
        raise ValueError("a uniform integer needs a limit of at least 1")
    bits = (limit - 1).bit_length()
    size = -(-bits // 8)
    while True:
        drawn = int.from_bytes(random_bytes(size), "big") >> (8 * size - bits)
        if drawn < limit:
            return drawn


def bernoulli_exp(random_bytes: RandomBytes, exponent: Fraction) -> bool:
    """True with probability exp(-exponent), exponent >= 0 (Canonne, Kamath & Steinke 2020, Alg. 1).

    For x <= 1 the coins x/1, x/2, x/3, ... are tossed until one fails, at position K; P(K > k) = x^k / k!, so K is
    odd with probability 1 - x + x^2/2! - ... = exp(-x). A larger x is a sum of ones and a rest; exp(-x) is the
    product, and the first failure ends the matter.
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


def exponential_choice(random_bytes: RandomBytes, costs: IntArray, sizes: IntArray, rate: Fraction) -> int:
    """A candidate drawn with probability proportional to exp(-rate * cost).

    Candidates are numbered from 0 and come in runs of equal cost: run i holds the next `sizes[i] >= 1` candidates,
    each of cost `costs[i]`. Time and memory grow with the number of runs, not of candidates.

    Formal guarantees:
    - The law is exact, by rejection. Let g >= 0 be a candidate's cost above the least cost, x = rate * g and
      k = min(floor(x), 64), its shell. Candidates are proposed in proportion to the integer u_k >= 2^128 e^-k
      and accepted with probability exp(-(x - k)) times 2^128 e^-k / u_k, both at most 1 and both exact coins;
      the product of the three is 2^128 exp(-x).
    - The expected number of proposals is below e + 10^-9 for up to 10^18 candidates: a candidate of the shells
      below 64 is accepted with probability at least 1/e (up to 2^-100), and the last shell has weight at most
      10^18 e^-64 beside the weight of the best candidate, which is one.
    - Nothing that was rejected is remembered; the time taken is not constant (see `bernoulli_exp`).
    """
    if len(costs) == 0 or len(costs) != len(sizes) or int(sizes.min()) < 1 or rate < 0:
        raise ValueError("a choice needs runs of at least one candidate each and a rate of at least 0")
    gaps = costs - int(costs.min())
    shells = np.searchsorted(_shell_starts(rate), gaps, side="right")
    numbers = np.unique(shells).tolist()
    members = [np.flatnonzero(shells == number) for number in numbers]
    held = [sum(sizes[of_shell].tolist()) for of_shell in members]
    bounds = [_upper_weight(number) for number in numbers]
    while True:
        drawn = uniform_below(
            random_bytes, sum(size * bound for size, bound in zip(held, bounds, strict=True))
        )
        position = 0
        while drawn >= held[position] * bounds[position]:
            drawn -= held[position] * bounds[position]
            position += 1
        place = drawn // bounds[position]  # uniform among the candidates of the shell
        ends = np.cumsum(sizes[members[position]])
        inside = int(np.searchsorted(ends, place, side="right"))
        run = int(members[position][inside])
        offset = place - (int(ends[inside]) - int(sizes[run]))
        shell = numbers[position]
        if bernoulli_exp(random_bytes, rate * int(gaps[run]) - shell) and _accept_rounding(
            random_bytes, shell
        ):
            return int(sizes[:run].sum()) + offset


def permute_and_flip(random_bytes: RandomBytes, costs: IntArray, rate: Fraction) -> int:
    """A candidate by permute-and-flip with acceptance probabilities exp(-rate * (cost - least cost)).

    McKenna & Sheldon (2020, Alg. 1) go through the candidates in random order and take the first whose coin shows
    heads. The coins do not depend on the order, so that is a candidate drawn uniformly from all whose coins show heads;
    the cheapest candidate's coin always does. All coins are tossed at once.

    Formal guarantees:
    - The output distribution is exact. A coin is a uniform number U, known by its first 64 bits, that shows heads
      where U < exp(-x). Floats decide only where their error cannot matter; else more bits are drawn until exact
      bounds on exp(-x) decide.
    - epsilon-DP for rate = epsilon / (2 * sensitivity), and for rate = epsilon / sensitivity where costs only rise or
      only fall between neighbours (McKenna & Sheldon 2020, Thm. 1 and Prop. 1).
    """
    if len(costs) == 0 or rate < 0:
        raise ValueError("a choice needs at least one candidate and a rate of at least 0")
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
    """Whether a uniform number, known by its first 64 bits, is below exp(-exponent); more bits are drawn if needed."""
    if exponent == 0:
        return True
    bits, terms = 64, _FIRST_TERMS
    while True:
        # exp(-x) < 2^-x: bounds on the exponential of a huge x would take longer than anybody waits.
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
    """Rationals around exp(-exponent): a power of e times a series that alternates."""
    whole, rest = divmod(exponent.numerator, exponent.denominator)
    part = Fraction(rest, exponent.denominator)
    term, total = Fraction(1), Fraction(1)
    for number in range(1, 2 * terms):
        term = -term * part / number
        total += term
    # An odd number of further terms: the sum lies below, and adding the size of the last one lies above.
    low, high = _exp_bounds(whole, terms)
    return low * total, high * (total - term)


@lru_cache(maxsize=128)
def _shell_starts(rate: Fraction) -> IntArray:
    """The least gap of each shell from 1 on: rate * gap >= k exactly where gap >= ceil(k / rate)."""
    if rate == 0:
        return np.empty(0, dtype=np.int64)
    starts = [min(math.ceil(k / rate), 2**63 - 1) for k in range(1, _LAST_SHELL + 1)]
    return np.array(starts, dtype=np.int64)


def _e_bounds(terms: int) -> tuple[Fraction, Fraction]:
    """Rationals around e: a partial sum of the series, and that plus a bound on its tail."""
    low = sum((Fraction(1, math.factorial(j)) for j in range(terms + 1)), Fraction(0))
    return low, low + Fraction(1, math.factorial(terms) * terms)


@lru_cache(maxsize=1024)
def _exp_bounds(shell: int, terms: int) -> tuple[Fraction, Fraction]:
    """Rationals around e^-shell."""
    low, high = _e_bounds(terms)
    return 1 / high**shell, 1 / low**shell


@lru_cache(maxsize=128)
def _upper_weight(shell: int) -> int:
    """u_k: the least integer that is at least the upper bound of 2^128 e^-k."""
    _, high = _exp_bounds(shell, _FIRST_TERMS)
    return math.ceil(high * (1 << _SCALE_BITS))


def _accept_rounding(random_bytes: RandomBytes, shell: int) -> bool:
    """True with probability 2^128 e^-k / u_k, exactly.

    A uniform number is compared with that ratio; more of its bits are drawn, and tighter bounds on e taken,
    until the comparison is decided. The ratio is irrational for k > 0, so it is, with probability one.
    """
    if shell == 0:
        return True
    bits, terms, drawn = 0, _FIRST_TERMS, 0
    while True:
        drawn = (drawn << 64) | uniform_below(random_bytes, 2**64)
        bits += 64
        low, high = _exp_bounds(shell, terms)
        unit = Fraction(_upper_weight(shell), 2 ** (bits + _SCALE_BITS))
        if (drawn + 1) * unit <= low:
            return True
        if drawn * unit >= high:
            return False
        terms *= 2
