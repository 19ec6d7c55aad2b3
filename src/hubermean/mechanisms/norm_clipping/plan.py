"""What `norm-clipping` decides from public and released numbers: the budget split, thresholds and noise.

The constants were chosen on Gaussian users and judged on others: docs/evidence/vectors.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from hubermean.accounting.arguments import round_down
from hubermean.accounting.discrete import discrete_gaussian_sigma
from hubermean.distributions.output import NoiseDistribution
from hubermean.errors import InputError, parameter

UNIT = 2**25
"""Grid units of a full threshold: what a user adds to the sum of vectors has this length at most, up to `_ROUNDED`."""

MOST_ROUNDS = 3
"""How often the center may be moved: so many searches are paid for."""

HOSTILE = 0.05
"""The share of users that may be malicious, where the caller states none."""

_ROUNDED = 1.0 + 2.0**-9  # of a user's vector on the grid (proofs/norm-clipping.md, Lemma 2)
# Of epsilon: number of users, contribution bound. A number of users that is off by more than searches forgive is less
# likely than a wild radius.
_COUNT_SHARE, _CAP_SHARE = 0.04, 0.03
_LARGEST_SHARE = 0.06  # of epsilon, the most for a search
_DECAY = (
    0.2  # nats per distance by which longer ones weigh less, where users outweigh that over the whole grid
)
_WILD = 8  # times the largest distance of honest users
# The chance of a wild radius, hostile users included: less than 1e-6 for all rounds, whatever number of users is
# measured.
_RARE = 3e-7 / MOST_ROUNDS
_RARE_REACH = 1e-3  # a reach is limited by the radius, so one that is far too long only adds noise
_PRECISE_NATS = 270.0  # for a reach, which decides what the step along the direction cuts off
_LEAST_USERS = 50
_SURE = 3.0  # deviations by which the weight of a first round should be above what is refused
_LEFT = 0.45  # of the weights of users, after clipping to a short threshold
_ROUND_SHARE = 0.2  # of the noise budget that is left, for a sum that may only move the center
_LEAST_ALONG, _MOST_ALONG = 0.01, 0.2  # of the noise budget, for the step along the direction
_LEAST_WEIGHT, _MOST_WEIGHT = 0.1, 0.3  # of a user's full influence in a round, for its weight
FEW = 4.0  # times the noise of a weight: a smaller one is too small to divide by
DISTANCES = 361
"""How many distances the public grid has."""

_WEIGHT_ALONG = 0.5  # of a user's full influence in that step, for its weight
# Where noise would be this part of a threshold or more, all users are clipped: noise falls with the threshold, what
# clipping takes off shows in the released weights. With less noise the tail of honest users matters more.
_NOISY = 0.006
_MEDIAN, _SHORT = 50, 0.5  # per cent of users, part of their distance
_BEYOND = 260.0  # per cent of users for each hostile share of one that may lie beyond a distance: honest ones as well


@dataclass(frozen=True, kw_only=True)
class Quantile:
    """How many of the users, in per cent, should lie within a distance, and what the search for it costs.

    `decay` is in nats per distance of the grid, by which longer ones weigh less: beyond honest users all distances up
    to those of hostile ones cost the same.
    """

    per_cent: int
    epsilon: Fraction
    decay: float = 0.0

    def sensitivity(self, *, add_remove: bool) -> int:
        """Return the sensitivity of costs in hundredths of a user (proofs/norm-clipping.md, Lemma 3)."""
        return max(self.per_cent, 100 - self.per_cent) if add_remove else 100


@dataclass(frozen=True, kw_only=True)
class VectorPlan:
    """The public parameters of a release, and the number of users once it is public or measured.

    Attributes:
        epsilon, delta: the whole budget.
        dimension: number of columns.
        add_remove: whether neighbors differ by one user more or less.
        hostile: the share of users that may be malicious.
        threshold: that of the caller; None to search for one.
        measures_users, measures_cap: whether the number of users, and a contribution bound, are found privately.
        users: what is known of their number.
    """

    epsilon: float
    delta: float
    dimension: int
    add_remove: bool
    hostile: float
    threshold: float | None
    measures_users: bool
    measures_cap: bool
    users: float | None = None

    def with_users(self, users: float) -> VectorPlan:
        return replace(self, users=max(users, 1.0))

    @cached_property
    def least_users(self) -> int:
        """The least number of users with which a release can be expected, and is never wild (proofs, Lemma 5)."""
        least = [float(_LEAST_USERS), self._weighty_users(_MOST_WEIGHT)]
        if self.threshold is None:
            least.append(self._least_nats(_MEDIAN, _RARE)[0] / (_LARGEST_SHARE * self.epsilon))
        return math.ceil(max(least))

    def _weighty_users(self, weight_share: float) -> float:
        """Users whose weights in a first round, at this share of their influence, are not lost in noise."""
        deviation = self.changes * math.hypot(1.0, weight_share) * self._rough_multiplier
        deviation /= math.sqrt(_ROUND_SHARE * (1 - self.part_along))
        return (FEW + _SURE) * deviation / (_LEFT * weight_share)

    @property
    def changes(self) -> int:
        """By how many full influences a sum changes between neighbors."""
        return 1 if self.add_remove else 2

    # --- costs -----------------------------------------------------------------------------------------------------

    @property
    def count_epsilon(self) -> Fraction:
        return Fraction(_COUNT_SHARE * self.epsilon) if self.measures_users else Fraction(0)

    @property
    def cap_epsilon(self) -> Fraction:
        return Fraction(_CAP_SHARE * self.epsilon) if self.measures_cap else Fraction(0)

    @cached_property
    def radius(self) -> Quantile:
        """The search for the distance from a center that decides the threshold."""
        if self.threshold is not None:
            return Quantile(per_cent=_MEDIAN, epsilon=Fraction(0))
        return self._search(_MEDIAN if self.is_noisy else self._far_per_cent, _RARE)

    @cached_property
    def reach(self) -> Quantile:
        """The search for how far users lie from the mean along the direction that was found."""
        return self._search(self._far_per_cent, _RARE_REACH, precise=_PRECISE_NATS)

    def _search(self, per_cent: int, rare: float, *, precise: float = 0.0) -> Quantile:
        """Return the search for so many users, or as many of them as it can be sure of at the largest cost.

        It gets `precise` nats, epsilon times users, where they cost no more than that.
        """
        users, largest = max(self.users or 1.0, 1.0), _LARGEST_SHARE * self.epsilon
        while True:
            nats, decay = self._least_nats(per_cent, rare)
            if per_cent == _MEDIAN or nats <= largest * users:
                epsilon = Fraction(min(max(nats, precise) / users, largest))
                return Quantile(per_cent=per_cent, epsilon=epsilon, decay=decay)
            per_cent -= 1

    def _least_nats(self, per_cent: int, rare: float) -> tuple[float, float]:
        """Return what a search costs, epsilon times users, whose wild results are so rare, and its decay (Lemma 5)."""
        range_ = 2 * Quantile(per_cent=per_cent, epsilon=Fraction(0)).sensitivity(add_remove=self.add_remove)
        beyond, within = 100 - per_cent - 100 * self.hostile, per_cent - 100 * self.hostile
        uniform = math.log(DISTANCES / rare) * range_ / min(beyond, within)
        # Without decay every distance counts alike. With it long ones hardly do, but short ones gain.
        steps = 4 * math.log2(_WILD)
        few = math.exp(-_DECAY * steps) / -math.expm1(-_DECAY)
        low = math.log(1.0 / rare / -math.expm1(-_DECAY)) + _DECAY * DISTANCES
        decaying = max(math.log(max(few, 1.0) / rare) / beyond, low / within) * range_
        return (decaying, _DECAY) if decaying < uniform else (uniform, 0.0)

    @property
    def _far_per_cent(self) -> int:
        """As many hostile users as may be, and somewhat more honest ones, may lie beyond."""
        return min(max(100 - math.ceil(_BEYOND * self.hostile), _MEDIAN), 98)

    @property
    def is_noisy(self) -> bool:
        """Whether noise, not the tail of the users, decides the best threshold."""
        users = max(self.users or 1.0, 1.0)
        rough = _noise_multiplier(0.9 * self.epsilon, self.delta, self._samples)
        return math.sqrt(self.dimension) * self.changes * rough > _NOISY * users

    @property
    def _rough_multiplier(self) -> float:
        """The largest noise multiplier, whatever searches cost."""
        left = 1.0 - _COUNT_SHARE - _CAP_SHARE - (MOST_ROUNDS + 1) * _LARGEST_SHARE
        return _noise_multiplier(left * self.epsilon, self.delta, self._samples)

    @property
    def pure_epsilon(self) -> Fraction:
        """The cost of all steps without delta."""
        searches = MOST_ROUNDS * self.radius.epsilon + self.reach.epsilon
        return self.count_epsilon + self.cap_epsilon + searches

    @property
    def noise_epsilon(self) -> float:
        """What is left for noisy sums, which share it and delta."""
        return round_down(Fraction(self.epsilon) - self.pure_epsilon)

    @property
    def concentrated(self) -> Fraction:
        """The rho for which the whole release is rho-zCDP, whatever number of users is measured (Theorem 2)."""
        if self.users is not None:
            pure, search, reach = self.pure_epsilon, self.radius.epsilon, self.reach.epsilon
        else:  # noise for the cheapest searches, and the dearest ones beside it
            pure = self.count_epsilon + self.cap_epsilon
            reach = Fraction(_LARGEST_SHARE * self.epsilon)
            search = Fraction(0) if self.threshold is not None else reach
        left = round_down(Fraction(self.epsilon) - pure)
        multiplier = _noise_multiplier(left, self.delta, self._samples)
        selections = self.cap_epsilon**2 + MOST_ROUNDS * search**2 + reach**2
        return self.count_epsilon**2 / 2 + selections / 8 + 1 / (2 * Fraction(multiplier) ** 2)

    # --- noise -----------------------------------------------------------------------------------------------------

    @property
    def _samples(self) -> int:
        """How many numbers get Gaussian noise, at most."""
        return MOST_ROUNDS * (self.dimension + 1) + 2

    @property
    def noise_multiplier(self) -> float:
        """The noise of a sum that gets the whole noise budget, over its sensitivity."""
        return _noise_multiplier(self.noise_epsilon, self.delta, self._samples)

    def sensitivity(self, weight_share: float) -> int:
        """Return that of sums and the weight beside them, in grid units (proofs/norm-clipping.md, Lemma 2)."""
        return self.changes * math.ceil(UNIT * _ROUNDED * math.hypot(1.0, weight_share) + 1.0)

    @property
    def weight_share(self) -> float:
        """Of a user's full influence on a round, for its weight: its noise should not matter beside the vector's."""
        share = max(3.0 / math.sqrt(self.dimension), _LEAST_WEIGHT)
        needed = self._weighty_users(1.0) / math.sqrt(2.0) / max(self.users or 1.0, 1.0)
        return min(max(share, needed), _MOST_WEIGHT)

    @property
    def weight_share_along(self) -> float:
        return _WEIGHT_ALONG

    def noise_of_round(self, part: Fraction) -> NoiseDistribution:
        """Return the noise of sums that get a part of the noise budget."""
        return self._noise(self.sensitivity(self.weight_share), part)

    def noise_along(self) -> NoiseDistribution:
        return self._noise(self.sensitivity(self.weight_share_along), self.part_along)

    def _noise(self, sensitivity: int, part: Fraction) -> NoiseDistribution:
        # sigma^2 >= (sensitivity * multiplier)^2 / part, exactly.
        square = (sensitivity * Fraction(self.noise_multiplier)) ** 2 / part
        sigma = math.sqrt(square)
        while Fraction(sigma) ** 2 < square:
            sigma = math.nextafter(sigma, math.inf)
        return NoiseDistribution(kind="gaussian", scale=sigma)

    @property
    def part_along(self) -> Fraction:
        return Fraction(min(max(2.0 / self.dimension, _LEAST_ALONG), _MOST_ALONG)).limit_denominator(10_000)

    def part_of_round(self, left: Fraction, *, last: bool) -> Fraction:
        """Return the part of the noise budget for the next sums; `left` is what earlier ones left."""
        return left if last else (left * Fraction(_ROUND_SHARE)).limit_denominator(10_000)

    # --- thresholds ------------------------------------------------------------------------------------------------

    def threshold_for(self, radius: float) -> float:
        """Return the threshold for the distance that was found."""
        if self.threshold is not None:
            return self.threshold
        return (_SHORT if self.is_noisy else 1.0) * radius


@lru_cache(maxsize=256)
def _noise_multiplier(epsilon: float, delta: float, dimension: int) -> float:
    """Return the noise of sums over their sensitivity, rounded up (proofs/gaussian-calibration.md, Lemma 7)."""
    if epsilon <= 0.0:
        raise InputError(f"{parameter('epsilon')} is too small; raise it")
    sigma = discrete_gaussian_sigma(epsilon, delta, sensitivity=UNIT, dimension=dimension)
    return math.nextafter(sigma / UNIT, math.inf)
