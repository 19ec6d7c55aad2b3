"""The test and the noise of propose-test-release, calibrated together: pass probabilities as a function of the margin.

A mechanism has an integer kappa(D) >= 0, the distance to instability of its data. Neighbors differ by at most one in
kappa, and if either has kappa >= 1, their answers are close. The mechanism passes its test with probability p_kappa
and then releases its answer with Gaussian noise of a fixed scale; otherwise it releases nothing. This module computes
sequences p_0, p_1, ... for which the whole mechanism is (epsilon, delta)-DP (proofs/propose-test-release.md, Lemmas 3
and 4).

Propose-test-release (Dwork & Lei 2009) adds Laplace noise to kappa and spends epsilon_1 on the test and epsilon -
epsilon_1 on the noise. Here both are accounted for together. A small probability may grow fast, since it also scales
down the failure of the noise. A probability near 1 may grow fast, since only the rare refusal reveals anything.
Compared with epsilon_1 = `reserve`, the same noise needs a tenth of the margin at epsilon = 1, and a third at large
reserves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hubermean.accounting.arguments import check_positive, check_positive_integer, check_probability
from hubermean.accounting.gaussian import gaussian_delta
from hubermean.accounting.smooth_sensitivity import calibrate_smooth_noise
from hubermean.errors import InputError, parameter

LONGEST_TEST = 2**17
# Losses at which the noise curve is evaluated: quadratically denser towards epsilon, where the probability is near 1.
_CURVE_POINTS = 128
_LEAST_LOSS = 2.0**-9  # of epsilon: far above what discreteness costs
_DOWN = 1.0 - 1e-11
_UP = 1.0 + 1e-11
_LARGEST_EXPONENT = 700.0  # exp of it and of its negative are normal floats


@dataclass(frozen=True, kw_only=True)
class ProposeTestReleaseNoise:
    """A test and the noise of the release behind it.

    Attributes:
        alpha: answers of neighbors may be alpha * sigma apart.
        smallest_sigma: the smallest sigma, in grid units, for which this holds.
        passes: p_0, p_1, ... as integer multiples of 2^-bits, up to the first that is 1; it stays 1 beyond.
        bits: see `passes`.
        reserve: the part of epsilon that the noise leaves to the test.
    """

    alpha: float
    smallest_sigma: float
    passes: tuple[int, ...]
    bits: int
    reserve: float

    @property
    def margin(self) -> int:
        """The margin from which on the test always passes."""
        return len(self.passes) - 1


def calibrate_propose_test_release(
    epsilon: float, delta: float, *, reserve: float, dimension: int
) -> ProposeTestReleaseNoise:
    """Return the fastest-growing test that noise of (epsilon - reserve, delta) allows.

    Args:
        epsilon: above 0.
        delta: strictly between 0 and 1.
        reserve: above 0 and at most 0.9 epsilon. A larger reserve means more noise and a test that needs a smaller
            margin.
        dimension: number of coordinates d.

    **Formal guarantees** (proofs/propose-test-release.md, Lemma 4)
    - Passing with probability passes[min(kappa, margin)] / 2^bits and then releasing an integer answer in Z^d with
      discrete Gaussian noise of parameter sigma >= smallest_sigma is (epsilon, delta)-DP, if kappa differs by at most
      one between neighbors and their answers by at most alpha * sigma wherever either kappa is positive.
    - Every p_k is computed from the returned p_{k-1} and rounded down.

    Raises:
        InputError: the test would need a margin of more than 2^17.

    >>> test = calibrate_propose_test_release(1.0, 1e-5, reserve=0.03, dimension=3)
    >>> test.margin, round(test.alpha, 4), test.passes[0] / 2**test.bits <= 1e-5
    (57, 0.2607, True)
    """
    return _noise_after_test(
        check_positive("epsilon", epsilon),
        check_probability("delta", delta),
        check_positive("reserve", reserve),
        check_positive_integer("dimension", dimension),
    )


@lru_cache(maxsize=64)  # a long test takes some megabytes
def _noise_after_test(eps: float, target: float, reserve: float, dimension: int) -> ProposeTestReleaseNoise:
    if not reserve <= 0.9 * eps:
        raise InputError(f"reserve must be at most nine tenths of epsilon, not {reserve!r}")
    noise = calibrate_smooth_noise(eps - reserve, target, beta=0.0, dimension=dimension)
    curve = _Curve.of(noise.alpha, noise.smallest_sigma, eps, target, reserve, dimension)
    bits = 62 + math.ceil(-math.log2(target))
    whole = 1 << bits
    passes = [_floor(target * _DOWN, bits)]
    while passes[-1] < whole:
        if len(passes) > LONGEST_TEST:
            raise InputError(
                f"{parameter('epsilon')} is too small for mechanism 'propose-test-release'; raise "
                "epsilon or delta"
            )
        passes.append(curve.next_pass(passes[-1], bits))
    return ProposeTestReleaseNoise(
        alpha=noise.alpha,
        smallest_sigma=noise.smallest_sigma,
        passes=tuple(passes),
        bits=bits,
        reserve=reserve,
    )


@lru_cache(maxsize=64)
def concentrated_cost(test: ProposeTestReleaseNoise, delta: float) -> Fraction:
    """Return a rho for which test and noise together are delta-approximately rho-zCDP.

    Two outcomes, a refusal and an answer, have at most the probabilities `passes` and 1 - `passes` of data sets whose
    margins differ by one; the answers are at most alpha sigma apart. Of the first distribution, an event of probability
    delta is left aside, either of refusing or of answering.

    **Formal guarantees** (proofs/propose-test-release.md, Lemma 6)
    - With the event left aside, E[(P / Q)^order] <= exp((order - 1) order rho) for all orders above 1, both ways. A
      ledger adds up such rho, and delta (proofs/ledger.md, Lemma 3).
    - rho >= alpha^2 / 2, what the noise alone costs.

    >>> test = calibrate_propose_test_release(1.0, 1e-5, reserve=0.03, dimension=3)
    >>> test.alpha**2 / 2 <= concentrated_cost(test, 1e-5) <= 0.08 < 1.0**2 / 2
    True
    """
    whole = 1 << test.bits
    passing = np.array([float(Fraction(one, whole)) for one in test.passes])
    refusing = np.array([float(Fraction(whole - one, whole)) for one in test.passes])
    low, high = slice(None, -1), slice(1, None)
    rho = test.alpha * test.alpha / 2.0
    for one, other in ((low, high), (high, low)):
        pairs = _Adjacent(
            refuse=refusing[one],
            answer=passing[one],
            refuse_other=refusing[other],
            answer_other=passing[other],
            noise=test.alpha * test.alpha / 2.0,
        )
        rho = max(rho, pairs.largest_rho(delta))
    return Fraction(rho * (1.0 + 1e-9))


# Orders less one, on a grid so fine that the bound between two of them is within a percent.
_COARSE_ORDERS = np.exp(np.arange(math.log(1e-4), math.log(1e6), 0.05))
_FINE_ORDERS = np.exp(np.arange(math.log(1e-4), math.log(1e6), 0.004))
_AT_A_TIME = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class _Adjacent:
    """Probabilities to refuse and to answer of pairs of data sets whose margins differ by one; one entry per pair."""

    refuse: np.ndarray
    answer: np.ndarray
    refuse_other: np.ndarray
    answer_other: np.ndarray
    noise: float

    def largest_rho(self, delta: float) -> float:
        """Return the largest rho that a pair needs, whatever of it is best left aside."""
        doubtful, pruned, needed = np.arange(len(self.answer)), 0.0, np.zeros(0)
        for orders in (_COARSE_ORDERS, _FINE_ORDERS):
            parts = np.array_split(doubtful, -(-len(doubtful) // _AT_A_TIME))
            needed = np.concatenate([self._take(part)._needed_rho(delta, orders) for part in parts])
            # A finer grid lowers a bound by less than a fifth.
            keep = needed >= needed.max() / 1.25
            if orders is _COARSE_ORDERS:
                pruned = float(needed[~keep].max(initial=0.0))
                doubtful = doubtful[keep]
        return max(float(needed.max()), pruned)

    def _take(self, which: np.ndarray) -> _Adjacent:
        return _Adjacent(
            refuse=self.refuse[which],
            answer=self.answer[which],
            refuse_other=self.refuse_other[which],
            answer_other=self.answer_other[which],
            noise=self.noise,
        )

    def _needed_rho(self, delta: float, orders: np.ndarray) -> np.ndarray:
        less = delta * _DOWN
        without_refusals = self._rho(np.maximum(self.refuse - less, 0.0), self.answer, orders)
        without_answers = self._rho(self.refuse, np.maximum(self.answer - less, 0.0), orders)
        found: np.ndarray = np.minimum(without_refusals, without_answers)
        return found

    def _rho(self, refuse: np.ndarray, answer: np.ndarray, orders: np.ndarray) -> np.ndarray:
        """Bound ln E[(P / Q)^order] / ((order - 1) order) over all orders.

        The logarithm is convex in the order, so that between two orders of the grid it is at most the larger value.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = [np.log(one) for one in (refuse, answer, self.refuse_other, self.answer_other)]
            refused, answered = (
                np.where(one == -math.inf, -math.inf, one - other)
                for one, other in ((logs[0], logs[2]), (logs[1], logs[3]))
            )
            moments = np.logaddexp(
                logs[0][:, np.newaxis] + np.multiply.outer(refused, orders),
                logs[1][:, np.newaxis]
                + np.multiply.outer(answered, orders)
                + self.noise * orders * (1.0 + orders),
            )
        between = np.maximum(moments[:, :-1], moments[:, 1:]) / (orders[:-1] * (1.0 + orders[:-1]))
        below = moments[:, 0] / orders[0]
        beyond = self.noise + np.maximum(np.maximum(refused, answered), 0.0) / orders[-1]
        found: np.ndarray = np.maximum(np.maximum(between.max(axis=1), below), beyond)
        return np.where(np.isnan(found), math.inf, found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Curve:
    """Upper bounds on the noise's delta at several losses, and the resulting limits on the pass probability."""

    epsilon: float
    delta: float
    allowed: np.ndarray  # delta / D(x): upper bound on a probability that grew by epsilon - x
    growth: np.ndarray  # exp(epsilon - x)
    spare: float  # delta - D(epsilon), the part of delta that the noise leaves unused

    @classmethod
    def of(
        cls, alpha: float, sigma: float, eps: float, target: float, reserve: float, dimension: int
    ) -> _Curve:
        steps = np.linspace(0.0, math.sqrt(1.0 - _LEAST_LOSS), _CURVE_POINTS)
        # epsilon - reserve is on the grid: D <= delta there, so the probability grows by at least exp(reserve).
        losses = np.append(eps * (1.0 - steps * steps), eps - reserve)
        bounds = np.array([_noise_delta(x, alpha, sigma, target, dimension) for x in losses.tolist()])
        return cls(
            epsilon=eps,
            delta=target,
            allowed=target / bounds * _DOWN,
            growth=np.exp(np.minimum(eps - losses, _LARGEST_EXPONENT)) * _DOWN,
            spare=target - float(bounds[0]) * _UP,
        )

    def next_pass(self, before: int, bits: int) -> int:
        """Return the largest probability, up to rounding, for one more step of margin."""
        whole = 1 << bits
        share = before / whole
        # Lemma 3, one more: p D(x) <= delta for the largest x with p <= p_before exp(epsilon - x).
        more = float(np.max(np.minimum(self.allowed, share * self.growth)))
        rising = whole if more >= 1.0 else _floor(more, bits)
        # Lemma 3, one less: refusals may fall by a factor e^epsilon, and by what the noise leaves of delta.
        # No factor below e^-700: it would underflow, and a refusal with a chance of exactly 0 gives all away.
        least = math.exp(-min(self.epsilon, _LARGEST_EXPONENT)) * _UP
        refused = max((whole - before) / whole * _UP - self.spare * _DOWN, 0.0) * least
        falling = whole - _ceil(refused, bits)
        return max(before, min(rising, falling, whole))


def _noise_delta(loss: float, alpha: float, sigma: float, target: float, dimension: int) -> float:
    """Bound the hockey-stick divergence at `loss` of discrete Gaussians alpha sigma apart.

    Lemma 7 of proofs/gaussian-calibration.md with the tail 2^-20 delta.
    """
    tail = 2.0**-20 * target
    log_tail = -math.log(tail)
    radius = math.sqrt(dimension + 2.0 * math.sqrt(dimension * log_tail) + 2.0 * log_tail) + alpha
    slack = 1.0 + 2.0**-20
    pointwise = slack * dimension / (24.0 * sigma * sigma)
    in_ball = slack * radius * radius / (8.0 * sigma * sigma)
    continuous = gaussian_delta(loss - slack * (pointwise + in_ball), alpha=alpha)
    return min(slack * tail + math.exp(pointwise) * continuous * _UP, 1.0)


def _floor(share: float, bits: int) -> int:
    """Return `share` as a multiple of 2^-bits, rounded down; exact, since a float is a ratio of integers."""
    numerator, denominator = share.as_integer_ratio()
    return (numerator << bits) // denominator


def _ceil(share: float, bits: int) -> int:
    numerator, denominator = share.as_integer_ratio()
    return -(-(numerator << bits) // denominator)
