"""A public choice of the smoothness beta for noise scaled by a smooth sensitivity bound.

The bound is S(D) = max_k e^(-beta k) min(2 R_c, B_k(D)). A large beta lets S fall to its floor B_0, but costs
alpha, for the scale itself then tells more. The best trade depends on how fast B_k grows, which for data of
the expected shape follows from public numbers; nothing here ever sees data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hubermean.errors import InputError
from hubermean.privacy.arguments import non_negative, positive, probability, whole_positive
from hubermean.privacy.gaussian import gaussian_alpha, largest_alpha

_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
_STEPS = 24


@dataclass(frozen=True, kw_only=True)
class BetaChoice:
    """A smoothness and what it is expected to lead to; every field is public.

    `sensitivity` and `noise_stddev` are predictions for data of the expected shape. The noise that a release
    really adds follows from its data and is private.
    """

    beta: float
    alpha: float
    sensitivity: float
    noise_stddev: float


def choose_beta(
    *,
    total_weight: float,
    weight_cap: float,
    pull_cap: float,
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
        pull_cap: q, the public cap on one user's weight times threshold.
        radius: R_c, the centre is clipped to a ball of this radius.
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
    ...     total_weight=10_000, weight_cap=1, pull_cap=1, radius=10, epsilon=1, delta=1e-5, dimension=3
    ... )
    >>> 0.003 < choice.beta < 0.006, choice.noise_stddev < 0.001
    (True, True)
    """
    expected = _Expected.of(total_weight, weight_cap, pull_cap, radius, factor, share)
    eps = positive("epsilon", epsilon)
    target = probability("delta", delta)
    d = whole_positive("dimension", dimension)

    def noise(beta: float) -> float:
        alpha = largest_alpha(eps, target, beta, d)
        return math.inf if alpha is None else expected.sensitivity(beta) / alpha

    ceiling = expected.largest_useful_beta()
    candidates = [0.0, ceiling, _golden_section(noise, ceiling)] if ceiling > 0.0 else [0.0]
    beta = min(candidates, key=noise)
    alpha = gaussian_alpha(eps, target, beta=beta, dimension=d)
    predicted = expected.sensitivity(beta)
    return BetaChoice(beta=beta, alpha=alpha, sensitivity=predicted, noise_stddev=predicted / alpha)


def expected_sensitivity(
    beta: float,
    *,
    total_weight: float,
    weight_cap: float,
    pull_cap: float,
    radius: float,
    factor: float = 2.0,
    share: float = 0.2,
) -> float:
    """The smooth bound S to expect at this beta; the other arguments are those of `choose_beta`."""
    expected = _Expected.of(total_weight, weight_cap, pull_cap, radius, factor, share)
    return expected.sensitivity(non_negative("beta", beta))


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """B_k as expected: near `first` at k = 0, `last` at k = reach - 1, and the whole diameter beyond."""

    reach: int
    first: float
    last: float
    diameter: float

    @classmethod
    def of(
        cls,
        total_weight: float,
        weight_cap: float,
        pull_cap: float,
        radius: float,
        factor: float,
        share: float,
    ) -> _Expected:
        W = positive("total_weight", total_weight)
        w = positive("weight_cap", weight_cap)
        q = positive("pull_cap", pull_cap)
        diameter = 2.0 * positive("radius", radius)
        step = positive("factor", factor) * q
        if non_negative("share", share) >= 1.0:
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
        """From this beta on S sits at its floor B_0 while alpha keeps falling."""
        if self.first >= self.diameter:
            return 0.0
        ceiling = math.log(self.diameter / self.first) / self.reach
        if self.reach >= 2:
            ceiling = max(ceiling, math.log(self.last / self.first) / (self.reach - 1))
        return ceiling


def _golden_section(function: Callable[[float], float], high: float) -> float:
    """A minimiser on [0, high] to 1e-5 of its length; ties, such as two infinities, go to the left."""
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
