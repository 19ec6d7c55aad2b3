"""A bound that few users exceed: on their records, or on what they add to a sum.

Every user beyond a bound costs, but for a few who may lie there, and a base measure keeps bounds low. Nothing is asked
of the users below, so costs move in one direction whatever one user does, which makes the search twice as exact as one
that would also punish bounds that nobody exceeds. Proof: proofs/adaptive.md, Lemma 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.laws import Choice, PermuteAndFlip, select

_NATS = 3.5  # a rank of so many over epsilon
_NATS_BEYOND = 1.15  # so many more users lie beyond what is found, on average
_POWER = 5.0  # of the bound, in the base measure
_KNEE = math.log(16384.0)  # beyond which it falls half as fast: many users far away must not be outweighed
_GOOD_RANK, _LARGEST_RANK = 0.045, 0.2  # of the users: with fewer of them more is spent
_PARTS = 10_000
_SERVING_NATS = 70.0  # for all users: with less the base measure outweighs those in a long tail


@dataclass(frozen=True, kw_only=True)
class RankSearch:
    """How a bound on a user is sought, on a public grid.

    Attributes:
        epsilon: what the choice costs.
        rank: how many users may lie beyond the bound at no cost.
    """

    epsilon: Fraction
    rank: int

    @classmethod
    def plan(cls, users: float, *, epsilon: float, hostile: float = 0.0) -> RankSearch:
        rank = math.floor(min(_NATS / epsilon, _LARGEST_RANK * users))
        return cls(epsilon=Fraction(epsilon), rank=max(rank, 1) + math.ceil(hostile * users))

    @staticmethod
    def least_epsilon(users: float) -> float:
        """With less, too many users would lie beyond the rank."""
        return _NATS / (_GOOD_RANK * max(users, 1.0))

    @staticmethod
    def serves(users: float, *, epsilon: float) -> bool:
        """Whether so many users are enough for a bound that most of them do not exceed."""
        return users * epsilon >= _SERVING_NATS

    def law(
        self, beyond: NDArray[np.int64], bounds: NDArray[np.float64], *, concentrated: bool
    ) -> Choice | PermuteAndFlip:
        """A bound of the grid, by number, from the users beyond each; the grid begins at about 1."""
        logs = np.log(bounds)
        bent = np.where(logs > _KNEE, (_KNEE + logs) / 2.0, logs)
        # In parts of a user: a large epsilon would leave nothing of a base measure in whole ones.
        rate = self.epsilon / _PARTS
        costs = _PARTS * np.maximum(beyond - self.rank, 0)
        costs += np.rint(_POWER * bent / float(rate)).astype(np.int64)
        # A user who comes, goes or changes moves all costs in one direction, by at most one user.
        return select(costs, rate, concentrated=concentrated)

    @property
    def expected_beyond(self) -> float:
        """About how many users lie beyond a bound that is found."""
        return self.rank + _NATS_BEYOND / float(self.epsilon)
