"""The record cap: how many records a user counts for, such that not too many users have more.

A cap is a quantile of the users' numbers of records: few may have more, so that little is lost; but some must have as
many, or everybody would pay for noise that hides a user who is not there. Proof: proofs/adaptive.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubermean.laws import Choice, PermuteAndFlip, select
from hubermean.tuning.line import IntArray

LARGEST_TUNED_CAP = 2**20
CAPS: IntArray = np.unique(np.rint(np.exp2(np.arange(20 * 8 + 1) / 8)).astype(np.int64))
"""The public grid of caps: every whole number to begin with, then eight per octave."""

_LARGEST_SHARE = 0.3  # of users that may have more records than the cap
_SMALLEST_SHARE = 0.01
_DECAY = 0.5  # nats per octave by which larger caps weigh less
# A cap that is far too large, which drowns the answer in noise, is chosen about once in a hundred thousand releases;
# sixteen or so caps share that chance.
_FAR_TOO_LARGE = math.log(1e5) + math.log(17.0)
_PARTS = 100


def share_above(n_users: float) -> float:
    """How many users may have more records than the cap: the more users, the fewer need to be cut."""
    share = _LARGEST_SHARE * math.pow(1000.0 / max(n_users, 1.0), 0.7)
    return min(max(share, _SMALLEST_SHARE), _LARGEST_SHARE)


def public_cap(counts: IntArray, share: float) -> int:
    """The cap for counts that are public: the least of the grid above which there are no more users than the share."""
    above = len(counts) - np.searchsorted(np.sort(counts), CAPS, side="right")
    fits = np.flatnonzero(above <= share * len(counts))
    return int(CAPS[fits[0]]) if len(fits) else LARGEST_TUNED_CAP


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Census:
    """Users by their number of usable records; private.

    Attributes:
        users: how many have any.
        above: how many have more than each cap of the grid.
        weights: all records, of each user no more than the cap, for each cap of the grid.
    """

    users: int
    above: IntArray
    weights: IntArray

    @classmethod
    def of(cls, counts: IntArray) -> Census:
        """Of the counts of users, some of which may be zero."""
        if counts.max(initial=0) > LARGEST_TUNED_CAP:  # else nothing need be copied
            counts = np.minimum(counts, LARGEST_TUNED_CAP + 1)
        having = np.bincount(counts, minlength=2)
        having[0] = 0
        up_to, records = np.cumsum(having), np.cumsum(having * np.arange(len(having)))
        users, last = int(up_to[-1]), np.minimum(CAPS, len(up_to) - 1)
        above = users - up_to[last]
        return cls(users=users, above=above, weights=records[last] + above * CAPS)

    @classmethod
    def together(cls, parts: Sequence[Census]) -> Census:
        return cls(
            users=sum(part.users for part in parts),
            above=np.sum([part.above for part in parts], axis=0, dtype=np.int64),
            weights=np.sum([part.weights for part in parts], axis=0, dtype=np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class CapSearch:
    """What is sought: the least cap that no more than a share of the users exceed.

    Attributes:
        per_cent: the share of the users.
        epsilon: what the choice costs.
    """

    per_cent: int
    epsilon: Fraction

    @classmethod
    def plan(cls, n_users: float, *, largest: float) -> CapSearch | None:
        """The cheapest search for a share of the users; None where it would cost more epsilon than the largest."""
        # Where that would cost too much, more users are cut: half of what may be spent will do.
        cheap = 2.0 * _FAR_TOO_LARGE / (0.5 * largest * max(n_users, 1.0))
        share = min(max(share_above(n_users), cheap), _LARGEST_SHARE)
        per_cent = max(math.ceil(share * _PARTS - 1e-9), 1)
        part = 2.0 * _FAR_TOO_LARGE / (per_cent / _PARTS * max(n_users, 1.0))
        return cls(per_cent=per_cent, epsilon=Fraction(part)) if part <= largest else None

    def law(self, census: Census, *, concentrated: bool = False) -> Choice | PermuteAndFlip:
        """A cap, by number."""
        # By how much too many users lie above, in hundredths of a user: one user changes it by no more than a hundred.
        excess = _PARTS * census.above - self.per_cent * census.users
        costs = np.maximum(excess, 0)
        np.maximum(costs[1:], -excess[:-1], out=costs[1:])
        rate = self.epsilon / (2 * _PARTS)
        costs += np.rint(_DECAY * np.log2(CAPS) / float(rate)).astype(np.int64)
        return select(costs, rate, concentrated=concentrated)
