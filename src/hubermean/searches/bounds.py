"""Private bounds on users: on their distance from the center, on their influence, on their number of records.

The error of a clipped mean is least where a few users over epsilon lie beyond a bound, which no private search can
find. `TailSearch` finds a pair of distances, one per side, beyond which no more than k users lie: every further user
costs, and a base measure keeps distances short. From there the bounds are stretched to where few enough users should
lie beyond, along the tail seen since the scale. `RankSearch` is the same for one bound. Unless a replaced user may
change sides, costs move in one direction whatever one user does, so these searches are twice as exact as one that also
penalizes bounds that nobody exceeds.

`ContributionBoundSearch` finds a quantile of the users' numbers of records: few may have more, so that little is lost;
but some must have as many, or everybody would pay for noise that hides a user who is not there.
Proof: proofs/adaptive.md, Lemma 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributions.output import ExponentialMechanism, PermuteAndFlip, choose_selection
from hubermean.searches.positions import MeanPositions

Sides = Literal["both", "upper", "lower"]

STEPS = 104
"""Distances on the grid of a side, four to an octave."""

_PER_OCTAVE = 4
DISTANCES: FloatArray = np.exp2(np.arange(STEPS) / _PER_OCTAVE)
"""The public grid of distances from the center, in units of the scale."""

# Tuned on the distributions and tables that docs/evidence/realdata.md names as such, 300 to 10,000 users.
_NATS_PER_RANK, _FEW_POWER = 6.0, 0.4  # fewer for fewer than 1,000 users per unit of epsilon
_NATS_FOR_ONE = 6.0  # with less, one user may always lie beyond a bound at no cost
_LARGEST_RANK, _LARGEST_TAIL = 0.06, 0.3  # of the users, and of those beyond the scale
_NATS_BEYOND = 1.5  # so many more users lie beyond what is found, on average
_LONGER_POWER, _POWER = 3.9, 2.4  # of the longer distance, and of both, in the base measure
# With fewer nats for all users together it falls more slowly, to this part.
_STEEP_NATS, _LEAST_STEEP = 66.0, 0.8
_PARTS = 100_000  # of a user: in whole ones a large epsilon would leave nothing of the base measure
_TAIL_KNEE = 64.0  # beyond which the base measure falls more slowly
_BENT, _LEAST_NATS, _HEAVIEST = 0.345, 1.75, 128.0  # real tails bend: a part of what a Pareto tail would take
# Times the share beyond three quarters: the further out a tail is seen, the less it bends from there.
_LESS_BENT = 0.5
_BEYOND = 3.8  # over epsilon: how many users should lie beyond a bound
_EXCESS, _LARGEST_EXCESS = 0.028, 0.3  # by how much such a user lies further out, per scale, and at most


@dataclass(frozen=True, kw_only=True)
class TailSearch:
    """How bounds are searched for on both sides of the center, or on one where the other is public.

    Attributes:
        epsilon: what the choice costs.
        rank: how many users may lie beyond each bound at no cost.
        sides: which bounds are searched for.
        add_remove: whether neighbors differ by one user more or less, as under `add-remove`.
        power: of the distance that is found, by which it is stretched.
        steepness: of the base measure; less with few users, who could not outweigh it.
    """

    epsilon: Fraction
    rank: int
    sides: Sides = "both"
    add_remove: bool
    power: float = 0.0
    steepness: float = 1.0

    @classmethod
    def plan(
        cls,
        users: float,
        *,
        epsilon: float,
        share: float,
        total: float,
        hostile: float,
        sides: Sides,
        add_remove: bool,
    ) -> TailSearch:
        """`epsilon` is what the choice may cost, `total` what all of the release does, `hostile` a share of the users.

        `share` of the users lie within the scale, so that ranks beyond it are ranks in the tail.
        """
        few = min(users * total / 1000.0, 1.0) ** _FEW_POWER
        largest = min(_LARGEST_RANK, _LARGEST_TAIL * (1.0 - share)) * users
        rank = math.floor(min(_NATS_PER_RANK * few / epsilon, largest))
        rank = max(rank, _least_rank(epsilon)) + math.ceil(hostile * users)
        beyond = rank + _NATS_BEYOND / epsilon
        # A Pareto tail through the scale and what is found would go on with the whole of this.
        seen = math.log(max((1.0 - share) * users / beyond, 1.0))
        bent = _BENT + _LESS_BENT * max(share - 0.75, 0.0)
        power = bent * math.log(max(beyond * total / _BEYOND, 1.0)) / max(seen, _LEAST_NATS)
        search = cls(epsilon=Fraction(epsilon), rank=rank, sides=sides, add_remove=add_remove, power=power)
        steepness = min(max(float(search.rate) * users / _STEEP_NATS, _LEAST_STEEP), 1.0)
        return replace(search, steepness=steepness)

    @property
    def rate(self) -> Fraction:
        """Of a user: only one who changes sides moves some costs up and some down."""
        return self.epsilon / (1 if self.add_remove or self.sides != "both" else 2)

    def distribution(
        self, above: IntArray, below: IntArray, *, concentrated: bool
    ) -> ExponentialMechanism | PermuteAndFlip:
        """A pair of distances, by number, from the users beyond each distance on either side."""
        upper, lower = self._side(above, "upper"), self._side(below, "lower")
        costs = np.add.outer(np.maximum(upper - self.rank, 0), np.maximum(lower - self.rank, 0))
        logs = _bent_logs()
        high, low = logs[: len(upper), np.newaxis], logs[np.newaxis, : len(lower)]
        nats = self.steepness * (_LONGER_POWER * np.maximum(high, low) + _POWER * (high + low))
        rate = self.rate / _PARTS
        costs = _PARTS * costs + np.rint(nats / float(rate)).astype(np.int64)
        return choose_selection(costs.ravel(), rate, concentrated=concentrated)

    def _side(self, beyond: IntArray, side: Sides) -> IntArray:
        """Nothing but the first distance is there to choose from on a side that is not searched for."""
        return beyond if self.sides in ("both", side) else np.zeros(1, dtype=np.int64)

    def found(self, number: int) -> tuple[float, float]:
        """(below, above): the distances chosen, in units of the scale; 0 on a side that was not searched for."""
        lower = STEPS if self.sides in ("both", "lower") else 1
        upper_step, lower_step = divmod(number, lower)
        return (
            float(DISTANCES[lower_step]) if self.sides in ("both", "lower") else 0.0,
            float(DISTANCES[upper_step]) if self.sides in ("both", "upper") else 0.0,
        )

    def stretched(self, distance: float) -> float:
        """From the distance that was found to a bound, both in units of the scale."""
        return float(distance * min(distance, _HEAVIEST) ** self.power)

    @property
    def expected_beyond(self) -> float:
        """About how many users lie beyond a distance that is found."""
        return self.rank + _NATS_BEYOND / float(self.epsilon)


def _least_rank(epsilon: float) -> int:
    """Only where the choice may cost much does a user who is alone beyond a bound stand out from chance."""
    return 0 if epsilon > _NATS_FOR_ONE else 1


def expected_cut_off(distance: float, *, total: float) -> float:
    """What clipping is expected to take off beyond a bound in all, in multiples of the bound.

    The longer the tail up to the distance that was found, in units of the scale, the further out users beyond lie; an
    estimate from public and released numbers, which an answer may add (Johansson 2003 does so with a Pareto tail).
    """
    return min(_EXCESS * max(distance - 1.0, 0.0), _LARGEST_EXCESS) * _BEYOND / total


def _bent_logs() -> FloatArray:
    """Logarithms of the distances, half as steep beyond the knee: many users far away must not be outweighed."""
    logs, bend = np.log(DISTANCES), math.log(_TAIL_KNEE)
    bent: FloatArray = np.where(logs > bend, bend + (logs - bend) / 2.0, logs)
    return bent


def beyond_distances(deviations: FloatArray, unit: float) -> tuple[IntArray, IntArray]:
    """(above, below): how many of the deviations from a center lie further out than each distance on either side.

    Deviations are numbers in ascending order: a sort takes less time than to look for each one's place on the grid.
    """
    grid = unit * DISTANCES
    above = len(deviations) - np.searchsorted(deviations, grid, side="right")
    return above, np.searchsorted(deviations, -grid, side="left")


_RANK_NATS = 3.5  # a rank of so many over epsilon
_RANK_NATS_BEYOND = 1.15  # so many more users lie beyond what is found, on average
_NATS_FOR_RANK = 6.0  # where the rank is given: what is spent for each user up to it
_RANK_POWER = 5.0  # of the bound, in the base measure
# Beyond which the base measure falls half as fast: many users far away must not be outweighed.
_RANK_KNEE = math.log(16384.0)
_GOOD_RANK, _LARGEST_RANK_SHARE = 0.045, 0.2  # of the users: with fewer of them more is spent
_RANK_PARTS = 10_000
_SERVING_NATS = 70.0  # for all users: with less the base measure outweighs those in a long tail


@dataclass(frozen=True, kw_only=True)
class RankSearch:
    """How a bound on a user is searched for, on a public grid.

    Attributes:
        epsilon: what the choice costs.
        rank: how many users may lie beyond the bound at no cost.
        steepness: of the base measure; less with few users, who could not outweigh it.
    """

    epsilon: Fraction
    rank: int
    steepness: float = 1.0

    @classmethod
    def plan(cls, users: float, *, epsilon: float, hostile: float = 0.0) -> RankSearch:
        rank = math.floor(min(_RANK_NATS / epsilon, _LARGEST_RANK_SHARE * users))
        rank = max(rank, _least_rank(epsilon)) + math.ceil(hostile * users)
        return cls(epsilon=Fraction(epsilon), rank=rank)

    @staticmethod
    def least_epsilon(users: float) -> float:
        """With less, too many users would lie beyond the rank."""
        return _RANK_NATS / (_GOOD_RANK * max(users, 1.0))

    @staticmethod
    def serves(users: float, *, epsilon: float) -> bool:
        """Whether so many users are enough for a bound that most of them do not exceed."""
        return users * epsilon >= _SERVING_NATS

    @classmethod
    def plan_for_rank(
        cls,
        users: float,
        *,
        rank: float,
        least: float,
        most: float,
        hostile: float,
        nats: float = _SERVING_NATS,
    ) -> RankSearch:
        """A search for a bound that about `rank` users exceed, as cheap as that allows.

        `nats` for all users together outweigh the base measure; fewer do where the grid begins near the bound. `least`
        and `most` limit what it costs. The rank is raised where that is not enough to find it, and kept below a share
        of the users.
        """
        users = max(users, 1.0)
        epsilon = min(max(_NATS_FOR_RANK / max(rank, 1.0), nats / users, least), most)
        rank = min(max(rank, _NATS_FOR_RANK / epsilon), _LARGEST_RANK_SHARE * users)
        return cls(
            epsilon=Fraction(epsilon),
            rank=math.floor(rank) + math.ceil(hostile * users),
            steepness=min(users * epsilon / nats, 1.0),
        )

    def distribution(
        self, beyond: NDArray[np.int64], bounds: NDArray[np.float64], *, concentrated: bool
    ) -> ExponentialMechanism | PermuteAndFlip:
        """A bound of the grid, by number, from the users beyond each; the grid begins at about 1."""
        logs = np.log(bounds)
        bent = np.where(logs > _RANK_KNEE, (_RANK_KNEE + logs) / 2.0, logs)
        # In parts of a user: a large epsilon would leave nothing of a base measure in whole ones.
        rate = self.epsilon / _RANK_PARTS
        costs = _RANK_PARTS * np.maximum(beyond - self.rank, 0)
        costs += np.rint(self.steepness * _RANK_POWER * bent / float(rate)).astype(np.int64)
        # A user who comes, goes or changes moves all costs in one direction, by at most one user.
        return choose_selection(costs, rate, concentrated=concentrated)

    @property
    def expected_beyond(self) -> float:
        """About how many users lie beyond a bound that is found."""
        return self.rank + _RANK_NATS_BEYOND / float(self.epsilon)


LARGEST_MAX_RECORDS = 2**20
MAX_RECORDS_GRID: IntArray = np.unique(np.rint(np.exp2(np.arange(20 * 8 + 1) / 8)).astype(np.int64))
"""The public grid of caps: every whole number to begin with, then eight per octave."""

_LARGEST_SHARE = 0.3  # of users that may have more records than the cap
_SMALLEST_SHARE = 0.01
_DECAY = 0.5  # nats per octave by which larger caps weigh less
# A cap that is far too large, which drowns the answer in noise, is chosen about once in a hundred thousand releases;
# sixteen or so caps share that chance.
_FAR_TOO_LARGE = math.log(1e5) + math.log(17.0)
_CAP_PARTS = 100


def share_above(n_users: float) -> float:
    """How many users may have more records than the cap: the more users, the fewer need to be cut."""
    share = _LARGEST_SHARE * math.pow(1000.0 / max(n_users, 1.0), 0.7)
    return min(max(share, _SMALLEST_SHARE), _LARGEST_SHARE)


def public_contribution_bound(counts: IntArray, share: float) -> int:
    """The cap for counts that are public: the least of the grid above which there are no more users than the share."""
    above = len(counts) - np.searchsorted(np.sort(counts), MAX_RECORDS_GRID, side="right")
    fits = np.flatnonzero(above <= share * len(counts))
    return int(MAX_RECORDS_GRID[fits[0]]) if len(fits) else LARGEST_MAX_RECORDS


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordHistogram:
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
    def of(cls, counts: IntArray) -> RecordHistogram:
        """Of the counts of users, some of which may be zero."""
        if counts.max(initial=0) > LARGEST_MAX_RECORDS:  # else nothing need be copied
            counts = np.minimum(counts, LARGEST_MAX_RECORDS + 1)
        having = np.bincount(counts, minlength=2)
        having[0] = 0
        up_to, records = np.cumsum(having), np.cumsum(having * np.arange(len(having)))
        users, last = int(up_to[-1]), np.minimum(MAX_RECORDS_GRID, len(up_to) - 1)
        above = users - up_to[last]
        return cls(users=users, above=above, weights=records[last] + above * MAX_RECORDS_GRID)

    @classmethod
    def together(cls, parts: Sequence[RecordHistogram]) -> RecordHistogram:
        return cls(
            users=sum(part.users for part in parts),
            above=np.sum([part.above for part in parts], axis=0, dtype=np.int64),
            weights=np.sum([part.weights for part in parts], axis=0, dtype=np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class ContributionBoundSearch:
    """What is searched for: the least cap that no more than a share of the users exceed.

    Attributes:
        per_cent: the share of the users.
        epsilon: what the choice costs.
    """

    per_cent: int
    epsilon: Fraction

    @classmethod
    def plan(cls, n_users: float, *, largest: float) -> ContributionBoundSearch | None:
        """The cheapest search for a share of the users; None where it would cost more epsilon than the largest."""
        # Where that would cost too much, more users are cut: half of what may be spent will do.
        cheap = 2.0 * _FAR_TOO_LARGE / (0.5 * largest * max(n_users, 1.0))
        share = min(max(share_above(n_users), cheap), _LARGEST_SHARE)
        per_cent = max(math.ceil(share * _CAP_PARTS - 1e-9), 1)
        part = 2.0 * _FAR_TOO_LARGE / (per_cent / _CAP_PARTS * max(n_users, 1.0))
        return cls(per_cent=per_cent, epsilon=Fraction(part)) if part <= largest else None

    def distribution(
        self, histogram: RecordHistogram, *, concentrated: bool = False
    ) -> ExponentialMechanism | PermuteAndFlip:
        """A cap, by number."""
        # By how much too many users lie above, in hundredths of a user: one user changes it by no more than a hundred.
        excess = _CAP_PARTS * histogram.above - self.per_cent * histogram.users
        costs = np.maximum(excess, 0)
        np.maximum(costs[1:], -excess[:-1], out=costs[1:])
        rate = self.epsilon / (2 * _CAP_PARTS)
        costs += np.rint(_DECAY * np.log2(MAX_RECORDS_GRID) / float(rate)).astype(np.int64)
        return choose_selection(costs, rate, concentrated=concentrated)


def count_records(table: PrivateTable) -> RecordHistogram:
    """How many records users have."""

    def made() -> RecordHistogram:
        return RecordHistogram.together(table.map_partitions(_count_records))

    return table.cached("census", made) if isinstance(table, UserTable) else made()


def _count_records(part: UserTable) -> RecordHistogram:
    return RecordHistogram.of(part.counts)


def count_beyond(table: PrivateTable, query: Callable[[UserTable], Any]) -> tuple[Any, Any]:
    parts = table.map_partitions(query)
    above, below = zip(*parts, strict=True)
    return np.sum(above, axis=0, dtype=np.int64), np.sum(below, axis=0, dtype=np.int64)


@dataclass(frozen=True)
class CappedRecords:
    """The records of all users, of each no more than the cap."""

    cap: int

    def __call__(self, part: UserTable) -> list[list[int]]:
        # Each is at most 2^32, so that the sum of a thousand million fits.
        return [[int(np.minimum(part.counts, self.cap).sum())]]


@dataclass(frozen=True)
class MeansBeyond:
    """How many user means lie beyond each distance from the center."""

    column: int
    center: float
    unit: float

    def __call__(self, part: UserTable) -> tuple[Any, Any]:
        # A difference keeps the order, whatever it rounds.
        return beyond_distances(MeanPositions(self.column)(part).ascending - self.center, self.unit)
