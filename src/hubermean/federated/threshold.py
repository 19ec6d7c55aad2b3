"""The adaptive threshold: it follows a private quantile of the clients' distances (Andrew et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubermean.accounting.arguments import check_positive, check_probability, is_real
from hubermean.errors import InputError, parameter

LARGEST_STEP = 20.0  # of the logarithm of the threshold, in one round
LARGEST_FACTOR = 2.0**100  # of the threshold, either way from the initial one


@dataclass(frozen=True, kw_only=True)
class AdaptiveThreshold:
    """A threshold that moves toward a quantile of the clients' distances from the center.

    After each round, threshold *= exp(-rate * (noisy fraction of clients within the threshold - target)). It shrinks
    where more clients than `target` lie within it, and grows where fewer do.

    Args:
        initial: threshold of the first round, in units of the update's Euclidean norm. A small one is safe: noise is
            proportional to the threshold, so a threshold that is too small makes small steps, not noisy ones.
        target: the fraction of clients that should lie within the threshold.
        learning_rate: how far one round moves the logarithm of the threshold, at the end.
        first_rate: the same in round 1; in round t the rate is the larger of `learning_rate` and `first_rate / t`.
        count_share: part of the privacy budget (of the squared shift of a round) for the noisy count; None for as
            much as makes the noise of the fraction about 0.05, between 0.001 and 0.1.

    **Formal guarantees**
    - The next threshold is a function of the noisy count and of public numbers, so it costs what the count costs.

    >>> rule = AdaptiveThreshold(initial=1.0)
    >>> [round(rule.next_threshold(1.0, round=10, above_target=above), 2) for above in (0.5, -0.5)]
    [0.86, 1.16]
    """

    initial: float = 0.1
    target: float = 0.5
    learning_rate: float = 0.3
    first_rate: float = 2.0
    count_share: float | None = None

    def __post_init__(self) -> None:
        check_probability("target", self.target)
        for name in (
            "initial",
            "target",
            "learning_rate",
            "first_rate",
        ):  # equal parameters are equal as text
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if not 2.0**-300 <= self.initial <= 2.0**300:
            raise InputError(
                f"{parameter('initial')} must be a number above 0 and below 1e90, not {self.initial!r}"
            )
        if not 0.01 <= self.target <= 0.99:
            raise InputError(f"{parameter('target')} must lie between 0.01 and 0.99, not {self.target!r}")
        if self.count_share is not None and not (
            is_real(self.count_share) and 1e-6 <= self.count_share <= 0.9
        ):
            raise InputError(
                f"{parameter('count_share')} must lie between 1e-6 and 0.9, not {self.count_share!r}"
            )
        if self.count_share is not None:
            object.__setattr__(self, "count_share", float(self.count_share))

    def next_threshold(self, threshold: float, *, round: int, above_target: float) -> float:
        """Return the threshold of the next round.

        Args:
            threshold: that of this round.
            round: this round's number, from 1.
            above_target: the noisy fraction of clients within the threshold, minus the target.
        """
        rate = max(self.learning_rate, self.first_rate / round)
        above = min(max(above_target, -1.0), 1.0)  # a fraction beyond [0, 1] is all noise
        step = min(max(-rate * above, -LARGEST_STEP), LARGEST_STEP)
        low, high = self.initial / LARGEST_FACTOR, self.initial * LARGEST_FACTOR
        return min(max(threshold * math.exp(step), low), high)
