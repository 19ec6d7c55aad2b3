"""The adaptive threshold: it follows a part of a private quantile of clients' distances (Andrew et al. 2021).

By default it is a quarter of the median. So most updates count with the same length, whatever their own: averages then
have the most signal for their noise, and a hostile client counts no more than an honest one. The median itself is the
quantile that hostile clients move least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubermean.accounting.arguments import check_positive, check_probability, is_real
from hubermean.errors import InputError, parameter

LARGEST_STEP = 20.0  # of the logarithm of the threshold, in one round
LARGEST_FACTOR = 2.0**100  # of the threshold, either way from the initial one


@dataclass(frozen=True, kw_only=True)
class AdaptiveThreshold:
    """A threshold that follows a quantile of the clients' distances from the center.

    The threshold is `fraction` times a length. After each round, both are multiplied by exp(-rate * (noisy share of
    clients within the length - target)). They shrink where more clients than `target` lie within, and grow where fewer
    do.

    Args:
        initial: threshold of the first round, in units of the update's Euclidean norm. A small one is safe: noise is
            proportional to the threshold, so a threshold that is too small makes small steps, not noisy ones.
        target: the share of clients that should lie within the length.
        fraction: the threshold, as a part of the length; 1 follows the quantile itself.
        learning_rate: how far one round moves the logarithm of the threshold, at the end.
        first_rate: the same in round 1; in round t the rate is the larger of `learning_rate` and `first_rate / t`.
        count_share: part of the privacy budget (of the squared shift of a round) for the noisy count; None for as
            much as makes the noise of the share about 0.05, between 0.001 and 0.1.

    **Formal guarantees**
    - The next threshold is a function of the noisy count and of public numbers, so it costs what the count costs.

    >>> rule = AdaptiveThreshold(initial=1.0)
    >>> [round(rule.next_threshold(1.0, round=20, above_target=above), 2) for above in (0.5, -0.5)]
    [0.86, 1.16]
    >>> rule.length(1.0)
    4.0
    """

    initial: float = 0.025
    target: float = 0.5
    fraction: float = 0.25
    learning_rate: float = 0.3
    first_rate: float = 4.0
    count_share: float | None = None

    def __post_init__(self) -> None:
        check_probability("target", self.target)
        for name in (
            "initial",
            "target",
            "fraction",
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
        if not 0.01 <= self.fraction <= 1.0:
            raise InputError(f"{parameter('fraction')} must lie between 0.01 and 1, not {self.fraction!r}")
        if self.count_share is not None and not (
            is_real(self.count_share) and 1e-6 <= self.count_share <= 0.9
        ):
            raise InputError(
                f"{parameter('count_share')} must lie between 1e-6 and 0.9, not {self.count_share!r}"
            )
        if self.count_share is not None:
            object.__setattr__(self, "count_share", float(self.count_share))

    def length(self, threshold: float) -> float:
        """Return the length of a typical update that a threshold says: clients within it are counted."""
        return threshold / self.fraction

    def next_threshold(self, threshold: float, *, round: int, above_target: float) -> float:
        """Return the threshold of the next round.

        Args:
            threshold: that of this round.
            round: this round's number, from 1.
            above_target: the noisy share of clients within the length, minus the target.
        """
        rate = max(self.learning_rate, self.first_rate / round)
        above = min(max(above_target, -1.0), 1.0)  # a share beyond [0, 1] is all noise
        step = min(max(-rate * above, -LARGEST_STEP), LARGEST_STEP)
        low, high = self.initial / LARGEST_FACTOR, self.initial * LARGEST_FACTOR
        return min(max(threshold * math.exp(step), low), high)
