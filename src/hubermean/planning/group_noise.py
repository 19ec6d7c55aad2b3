"""The noise that a release by group is expected to have, from public numbers alone.

A user's row over its groups counts as a whole: its norm is bounded, whatever the number of its groups, and every group
gets noise in proportion to that bound. With Gaussian noise the norm is that of L2, with Laplace
noise that of L1. All of this is a prediction: what a release adds is decided in `hubermean.mechanisms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

from hubermean.accounting.gaussian import gaussian_alpha
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.groups.partition_selection import PartitionSelection
from hubermean.types.request import Neighbors

_SELECTION_PART = Fraction(1, 5)  # of epsilon, and half of delta, where keys are private
_MEANS_PART = 0.55  # of the rest: bounds and numbers of users are estimated with what is left
_SUMS_PART = 0.8  # of that, for sums; the other part is for the numbers of users
_FAR = 2.0  # the norm of a row of k standard normal values is below sqrt(k) + 2 in all but a few percent
_FAR_IN_L1 = 2.2  # the same for its sum of absolute values: 0.8 k + 2.2 sqrt(k), as large where k = 1
_MEAN_ABSOLUTE = math.sqrt(2.0 / math.pi)
_OFF_CENTER = 0.5  # scales between the mean of a group and the common center


@dataclass(frozen=True, kw_only=True)
class GroupNoise:
    """What a release by group adds.

    Attributes:
        kind: "Gaussian" or "Laplace".
        sums: the standard deviation of the noise in the sum over a group's users, in standard deviations of user means.
        users: the standard deviation of the noise in the number of a group's users.
        appears: the probability that a group of so many users appears; None where keys are public.
    """

    kind: str
    sums: float
    users: float
    appears: Callable[[int], float] | None = None

    def of_mean(self, users: float) -> float:
        """Return the standard deviation of the noise in the mean of a group, in standard deviations of user means."""
        return math.hypot(self.sums, _OFF_CENTER * self.users) / users


def predict_group_noise(
    *,
    n_users: int,
    groups: int,
    groups_per_user: int,
    epsilon: float,
    delta: float,
    neighbors: Neighbors,
    public_keys: bool,
) -> GroupNoise:
    """Predict the noise of a release by group.

    Args:
        n_users, groups, groups_per_user: how many users there are, in how many groups, and how many each user is in.
        epsilon, delta: the budget of the whole release.
        neighbors: under a relation other than add-remove, a user's row may change twice as much.
        public_keys: whether the caller gives the groups; otherwise a fifth of epsilon and half of delta select them.

    Raises:
        InputError: private keys without delta.
    """
    twice = 1 if neighbors is Neighbors.ADD_REMOVE else 2
    appears = None
    if not public_keys:
        if delta == 0.0:
            raise InputError(
                f"selecting groups privately needs delta > 0; give {parameter('delta')}, or leave out "
                f"{parameter('private_keys', True)}"
            )
        appears = _selection(
            float(Fraction(epsilon) * _SELECTION_PART), delta / 2.0, twice, min(groups_per_user, groups)
        )
        epsilon, delta = epsilon * (1.0 - float(_SELECTION_PART)), delta / 2.0
    row = min(groups_per_user, groups)
    own = _MEANS_PART * epsilon
    least = _laplace(own, twice, row)
    if delta > 0.0:
        gaussian = _gaussian(own, delta, twice, row)
        least = min(least, gaussian, key=lambda noise: noise.of_mean(max(n_users * row / groups, 1.0)))
    return GroupNoise(kind=least.kind, sums=least.sums, users=least.users, appears=appears)


def _gaussian(epsilon: float, delta: float, twice: int, row: int) -> GroupNoise:
    """Noise of standard deviation bound / alpha, of which sums and numbers of users have their parts."""
    alpha = gaussian_alpha(epsilon, delta) / twice
    return GroupNoise(
        kind="Gaussian",
        sums=(math.sqrt(row) + _FAR) / (alpha * math.sqrt(_SUMS_PART)),
        users=math.sqrt(row) / (alpha * math.sqrt(1.0 - _SUMS_PART)),
    )


def _laplace(epsilon: float, twice: int, row: int) -> GroupNoise:
    bound = _MEAN_ABSOLUTE * row + _FAR_IN_L1 * math.sqrt(row)
    return GroupNoise(
        kind="Laplace",
        sums=math.sqrt(2.0) * twice * bound / (_SUMS_PART * epsilon),
        users=math.sqrt(2.0) * twice * row / ((1.0 - _SUMS_PART) * epsilon),
    )


def _selection(epsilon: float, delta: float, twice: int, row: int) -> Callable[[int], float]:
    """Return the probability that a group appears: of the two rules below, the one that needs fewer users.

    Either each of a user's groups has its part of the budget (`PartitionSelection`), or a user's weight of one is
    spread over its groups, 1 / sqrt(k) each, and groups appear whose noisy weight is above a threshold that a group of
    one user passes with probability delta (differentially private set union).
    """
    changes = twice * row
    optimal = PartitionSelection(epsilon=Fraction(epsilon) / changes, delta=Fraction(delta) / changes)
    if row == 1:
        return optimal.probability
    normal, share = NormalDist(), 1.0 / math.sqrt(row)
    sigma = twice / gaussian_alpha(epsilon, delta / 2.0)
    threshold = share + sigma * -normal.inv_cdf(delta / (2.0 * row))
    if optimal.usual_users * share <= threshold:
        return optimal.probability
    return lambda users: normal.cdf((users * share - threshold) / sigma)


def users_to_appear(appears: Callable[[int], float]) -> int:
    """Return the smallest number of users with which a group appears more often than not.

    >>> users_to_appear(lambda users: users / 100)
    50
    """
    high = 1
    while appears(high) < 0.5 and high < 2**40:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if appears(middle) < 0.5 else (low, middle)
    return high
