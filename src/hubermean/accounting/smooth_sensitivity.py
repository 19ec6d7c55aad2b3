"""Integer Gaussian noise scaled by a smooth sensitivity bound, and the public choice of its smoothness beta.

`discrete.py` covers one public scale. Here the scales of two neighbors may differ by a factor e^beta
(proofs/smooth-sensitivity.md, Lemma 6, which extends Lemma 7 of proofs/gaussian-calibration.md).

The bound is S(D) = max_k e^(-beta k) min(2 R_c, B_k(D)). A larger beta lets S fall to its minimum B_0 but lowers
alpha, because the scale itself then reveals more. The best trade-off depends on the growth of B_k, which is predicted
from public numbers. Nothing here sees data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hubermean.accounting.arguments import (
    check_non_negative,
    check_positive,
    check_positive_integer,
    check_probability,
)
from hubermean.accounting.discrete import SMALLEST_DISCRETE_SIGMA
from hubermean.accounting.gaussian import gaussian_alpha, largest_alpha
from hubermean.errors import InputError

# Share of delta spent on the tail, and the relative margin for float rounding of the terms.
_TAIL_SHARE = 2.0**-20
# Share of epsilon that discreteness may cost; it determines the smallest scale.
_DISCRETENESS_SHARE = 2.0**-10


@dataclass(frozen=True, kw_only=True)
class SmoothNoise:
    """Conditions on the noise: shift <= alpha * min(sigma, sigma') and sigma >= smallest_sigma."""

    alpha: float
    smallest_sigma: float


def calibrate_smooth_noise(epsilon: float, delta: float, *, beta: float, dimension: int) -> SmoothNoise:
    """Calibrate a discrete Gaussian on Z^d whose scale depends on the data.

    Args:
        epsilon: above 0.
        delta: strictly between 0 and 1.
        beta: bound on |ln sigma - ln sigma'| for neighbors.
        dimension: number of coordinates d.

    **Formal guarantees**
    - Discrete Gaussian noise of parameter sigma on D and sigma' on D', added to integer answers at most alpha *
      min(sigma, sigma') apart, is (epsilon, delta)-DP if both are at least `smallest_sigma` and within a factor
      e^beta of each other (proofs/smooth-sensitivity.md, Lemma 6).
    - Discreteness costs at most one part in 1,024 of min(epsilon, 1), and one part in 2^18 of delta.

    Raises:
        InputError: no amount of noise reaches delta with this beta and dimension.

    >>> noise = calibrate_smooth_noise(1.0, 1e-5, beta=0.01644, dimension=3)
    >>> round(noise.alpha, 3), noise.smallest_sigma
    (0.206, 1024.0)
    """
    eps = check_positive("epsilon", epsilon)
    target = check_probability("delta", delta)
    b = check_non_negative("beta", beta)
    d = check_positive_integer("dimension", dimension)

    continuous = gaussian_alpha(eps, target, beta=b, dimension=d)
    log_tail = -math.log(_TAIL_SHARE * target)
    # On the tail's ball |x - shift| <= (sqrt(R) e^beta + alpha) sigma': the scales differ (Lemma 6).
    radius = math.sqrt(d + 2.0 * math.sqrt(d * log_tail) + 2.0 * log_tail) * math.exp(b) + continuous
    slack = 1.0 + _TAIL_SHARE
    cost = slack * (d / 24.0 + radius * radius / 8.0)  # times 1 / sigma^2
    least = math.sqrt(cost / (_DISCRETENESS_SHARE * min(eps, 1.0)))
    sigma = max(SMALLEST_DISCRETE_SIGMA, 2.0 ** math.ceil(math.log2(least)))
    square = sigma * sigma
    remaining = target * (1.0 - 2.0 * _TAIL_SHARE) * (1.0 - slack * d / (24.0 * square))
    alpha = gaussian_alpha(eps - slack * cost / square, remaining, beta=b, dimension=d)
    return SmoothNoise(alpha=min(alpha, continuous), smallest_sigma=sigma)


_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
_STEPS = 24


@dataclass(frozen=True, kw_only=True)
class BetaChoice:
    """A smoothness beta and its predicted effect. Every field is public.

    `sensitivity` and `noise_stddev` are predictions for data of the expected shape. The noise of an actual release
    depends on its data and is private.
    """

    beta: float
    alpha: float
    sensitivity: float
    noise_stddev: float


def choose_beta(
    *,
    total_weight: float,
    weight_cap: float,
    influence_cap: float,
    radius: float,
    epsilon: float,
    delta: float,
    dimension: int = 1,
    factor: float = 2.0,
    share: float = 0.2,
) -> BetaChoice:
    """The beta that minimises the predicted noise S/alpha(beta) of the smooth-sensitivity mechanism.

    Args:
        total_weight: W, the public sum of the users' weights (n for equal weights of 1).
        weight_cap: w, the public cap on one user's weight.
        influence_cap: q, the public cap on one user's weight times threshold.
        radius: R_c, the center is clipped to a ball of this radius.
        epsilon: above 0.
        delta: strictly between 0 and 1.
        dimension: number of coordinates d.
        factor: 2 for the replace relations (2q), 1 for add-remove (q).
        share: the share of W/w users whose change the data is expected to withstand, B_k staying near
            factor q / (W - (k+1) w) up to there and 2 R_c beyond; between 0 and 1.

    Formal guarantees:
        - beta is a function of the arguments alone; if they are public, so is beta, and every beta is valid.
        - `alpha` is `gaussian_alpha(epsilon, delta, beta=beta, dimension=dimension)`.
        - No privacy rests on `share` or on the search: they decide about accuracy only.

    Raises:
        InputError: an argument is out of range. There is always a choice: beta = 0 has the sensitivity 2 R_c.

    >>> choice = choose_beta(
    ...     total_weight=10_000, weight_cap=1, influence_cap=1, radius=10, epsilon=1, delta=1e-5, dimension=3
    ... )
    >>> 0.003 < choice.beta < 0.006, choice.noise_stddev < 0.001
    (True, True)
    """
    expected = _Expected.of(total_weight, weight_cap, influence_cap, radius, factor, share)
    eps = check_positive("epsilon", epsilon)
    target = check_probability("delta", delta)
    d = check_positive_integer("dimension", dimension)

    def noise(beta: float) -> float:
        alpha = largest_alpha(eps, target, beta, d)
        return math.inf if alpha is None else expected.sensitivity(beta) / alpha

    ceiling = expected.largest_useful_beta()
    candidates = [0.0, ceiling, _golden_section(noise, ceiling)] if ceiling > 0.0 else [0.0]
    beta = min(candidates, key=noise)
    alpha = gaussian_alpha(eps, target, beta=beta, dimension=d)
    predicted = expected.sensitivity(beta)
    return BetaChoice(beta=beta, alpha=alpha, sensitivity=predicted, noise_stddev=predicted / alpha)


def predict_sensitivity(
    beta: float,
    *,
    total_weight: float,
    weight_cap: float,
    influence_cap: float,
    radius: float,
    factor: float = 2.0,
    share: float = 0.2,
) -> float:
    """Return the smooth bound S to expect at this beta; the other arguments are those of `choose_beta`."""
    expected = _Expected.of(total_weight, weight_cap, influence_cap, radius, factor, share)
    return expected.sensitivity(check_non_negative("beta", beta))


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """Predicted B_k: `first` at k = 0, `last` at k = reach - 1, and the full diameter beyond."""

    reach: int
    first: float
    last: float
    diameter: float

    @classmethod
    def of(
        cls,
        total_weight: float,
        weight_cap: float,
        influence_cap: float,
        radius: float,
        factor: float,
        share: float,
    ) -> _Expected:
        W = check_positive("total_weight", total_weight)
        w = check_positive("weight_cap", weight_cap)
        q = check_positive("influence_cap", influence_cap)
        diameter = 2.0 * check_positive("radius", radius)
        step = check_positive("factor", factor) * q
        if check_non_negative("share", share) >= 1.0:
            raise InputError(f"share must be below 1, not {share!r}")
        # Certified distances are k = 0 ... reach - 1; W - reach w > 0 keeps every predicted B_k finite.
        reach = min(math.floor(share * W / w), math.ceil(W / w) - 1)
        return cls(
            reach=reach,
            first=min(diameter, step / (W - w)) if reach >= 1 else diameter,
            last=min(diameter, step / (W - reach * w)) if reach >= 1 else diameter,
            diameter=diameter,
        )

    def sensitivity(self, beta: float) -> float:
        # e^(-beta k) / (W - (k+1) w) is log-convex in k: its maximum is at k = 0 or k = reach - 1.
        near = max(self.first, self.last * math.exp(-beta * max(self.reach - 1, 0)))
        return max(near, self.diameter * math.exp(-beta * self.reach))

    def largest_useful_beta(self) -> float:
        """From this beta on S is at its minimum B_0 while alpha keeps falling."""
        if self.first >= self.diameter:
            return 0.0
        ceiling = math.log(self.diameter / self.first) / self.reach
        if self.reach >= 2:
            ceiling = max(ceiling, math.log(self.last / self.first) / (self.reach - 1))
        return ceiling


def _golden_section(function: Callable[[float], float], high: float) -> float:
    """Return a minimizer on [0, high] to 1e-5 of its length; ties, such as two infinities, go to the left."""
    low = 0.0
    left, right = high - _GOLDEN * high, _GOLDEN * high
    at_left, at_right = function(left), function(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return left if at_left <= at_right else right
