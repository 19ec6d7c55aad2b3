"""The mechanism `winsorized`: a privately selected interval, then a clipped mean within it.

The winsorized mean estimator of Levy et al. (2021), Alg. 1 (one column) and Alg. 2 (several). User means are
rounded to a public grid; several columns are rotated in whole numbers; each coordinate selects a bin (`bins`);
means are clipped to an interval twice as wide around its midpoint and summed as integers; integer noise is added.
Proof: proofs/winsorized.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hubermean.accounting.arguments import check_positive
from hubermean.data.arrays import IntArray
from hubermean.data.fixed_point import BLOCK, round_means
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.queries import run_batched, sum_over_partitions
from hubermean.distributions.output import Independent, NoiseDistribution, NoisySum, Staged, with_claim
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.mechanisms.contributions import check_max_records, find_weight_cap, user_weights
from hubermean.mechanisms.winsorized.bins import Bins
from hubermean.mechanisms.winsorized.budget_split import (
    TwoStageProblem,
    TwoStageSplit,
    choose_split,
    typical_error,
)
from hubermean.mechanisms.winsorized.rotation import Rotation, padded_dimension
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.searches.positions import SortedPositions, UserPositions, locate_users
from hubermean.types.options import PublicParameters
from hubermean.types.release import Interval
from hubermean.types.request import PublicFacts, Request

MOST_BINS = 10**9
_FINEST_GRID_BITS = 30
_COARSEST_GRID_BITS = 12
_NOISE_BITS = 44  # the grid is chosen so that the noise scale stays below 2^46 grid units
_COORDINATE_BITS = 60  # rotated coordinates stay below 2^61 grid units


@dataclass(frozen=True, kw_only=True)
class Winsorized:
    """The winsorized mean.

    Args:
        threshold: tau, such that most user means lie within tau of the true mean (in Euclidean distance, for
            several columns).
        radius: B, such that the true mean of every column lies in [-B, B].
        max_records: the contribution bound, the largest number of records a user counts for, with `per="record"`; may
            be left out.
        selection_share: the share of the budget for selecting the interval. By default it follows from the public n,
            tau and B (`budget_split`); 0.5 is Levy et al. (2021).

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, under `replace-user` and `replace-values`
      (proofs/winsorized.md, Theorem 1), whatever the data; tau and B affect accuracy only.
    - The sum of weights is public: with `per="user"` every user weighs one; with `per="record"` weights are capped
      public counts, hence `replace-values` only. A user without usable records counts as the selected midpoint.

    Deviations from Levy et al. (2021), all from public numbers: the budget is not halved but split by predicted error;
    noise is Gaussian where that is less; the coordinates of a rotation are composed tightly, instead of
    epsilon / sqrt(8 d ln(1/delta)); the rotated threshold is that of `rotated_factor`, instead of
    10 tau sqrt(ln(d n / gamma) / d); averages are clamped to the interval they must lie in.
    """

    threshold: float
    radius: float
    max_records: int | None = None
    selection_share: float | None = None
    name = "winsorized"

    def __post_init__(self) -> None:
        for name in ("threshold", "radius"):
            if not 1e-60 <= check_positive(name, getattr(self, name)) <= 1e60:
                raise InputError(
                    f"{parameter(name)} must be a number from 1e-60 to 1e60, not {getattr(self, name)!r}"
                )
        if Fraction(self.radius) > MOST_BINS * Fraction(self.threshold):
            raise InputError(
                f"{parameter('radius')} may be at most 1e9 times threshold; raise threshold or lower radius"
            )
        if (
            self.selection_share is not None
            and not 0.0 < check_positive("selection_share", self.selection_share) < 1.0
        ):
            raise InputError(
                f"selection_share must lie strictly between 0 and 1, not {self.selection_share!r}"
            )

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> Winsorized:
        threshold, radius = known.threshold_and_radius(of=cls.name)
        return cls(threshold=threshold, radius=radius, max_records=known.max_records)

    def check(self, request: Request) -> None:
        if not request.neighbors.users_are_public:
            raise InputError(
                "'winsorized' divides by the number of users, which 'add-remove' keeps private; "
                f"use {parameter('neighbors', 'replace-user')} or another mechanism"
            )
        if request.per == "record" and not request.neighbors.counts_are_public:
            raise InputError(
                f"'winsorized' with {parameter('per', 'record')} divides by the number of records, which "
                f"{request.neighbors.value!r} "
                f"keeps private; use {parameter('per', 'user')} or "
                f"{parameter('neighbors', 'replace-values')}"
            )
        check_max_records(self.max_records, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedWinsorized:
        self.check(request)
        if facts.n_users is None:
            raise InputError("'winsorized' needs a public number of users")
        cap, total_weight = 1, facts.n_users
        if request.per == "record" and facts.record_counts is not None:
            # Counts are public here, so no weight can exceed the largest of them.
            cap = min(
                find_weight_cap(self.max_records, request, facts), int(facts.record_counts.max(initial=0))
            )
            total_weight = sum(np.minimum(facts.record_counts, cap).tolist())
            if total_weight == 0:
                raise InputError("no user has a record; give counts= of at least one for some user")
        for column in facts.columns:
            if Fraction(self.radius) > column.limit:
                raise InputError(
                    f"radius reaches beyond {float(column.limit):g}, the largest value that numbers of "
                    f"{column.name!r} are read with; give {parameter('resolution')} (a coarser step) or a "
                    "smaller radius"
                )
        dimension = len(request.columns)
        padded = padded_dimension(dimension)
        half_width = self.threshold * rotated_factor(dimension, facts.n_users)
        problem = TwoStageProblem(
            dimension=padded,
            n_users=facts.n_users,
            bins=math.ceil(dimension * self.radius / half_width),
            half_width=half_width,
            weight_share=cap / total_weight,
        )
        split = choose_split(problem, request.epsilon, request.delta, self.selection_share)
        reach = dimension * Fraction(self.radius)
        exponent = _grid_exponent(
            half_width,
            extent=float(reach + 2 * dimension * Fraction(self.threshold)) / half_width,
            noise_factor=cap * max(split.noise_ratio(request.delta), 1.0),
        )
        spacing = Fraction(2) ** exponent
        bins = Bins.covering(reach / spacing, math.ceil(Fraction(half_width) / spacing))
        distribution = split.noise_distribution(4 * bins.half_width * cap, request.delta)
        if distribution.scale > LARGEST_SCALE:
            raise InputError(
                f"{parameter('epsilon')} is too small for noise of a usable size; raise epsilon or lower "
                f"{parameter('max_records')}"
            )
        return PreparedWinsorized(
            request=request,
            threshold=self.threshold,
            radius=self.radius,
            cap=cap,
            total_weight=total_weight,
            exponent=exponent,
            clamp=math.ceil((Fraction(self.radius) + 2 * Fraction(self.threshold)) / spacing),
            bins=bins,
            split=split,
            noise=distribution,
            typical_error=typical_error(split, problem, request.delta),
        )


def rotated_factor(dimension: int, n_users: int) -> float:
    """By how much the coordinates of a rotated vector of length tau exceed tau, before dividing by sqrt(D).

    A coordinate is a sum of d terms with random signs: never above sqrt(d) tau (Cauchy-Schwarz), and beyond
    t tau with probability at most 2 exp(-t^2 / 2) (Hoeffding): at this t one in n D coordinates, so that of all
    users' coordinates one is expected to be clipped.
    """
    return math.sqrt(min(dimension, 2.0 * math.log(2 * n_users * padded_dimension(dimension))))


def _grid_exponent(half_width: float, *, extent: float, noise_factor: float) -> int:
    """A grid on which half a bin is 2^12 to 2^31 units: fine beside the noise, and nothing overflows."""
    bits = min(
        _FINEST_GRID_BITS,
        _NOISE_BITS - 2 - math.ceil(math.log2(noise_factor)),
        _COORDINATE_BITS - math.ceil(math.log2(extent)),
    )
    exponent = math.floor(math.log2(half_width)) - max(bits, _COARSEST_GRID_BITS)
    if exponent < -60:  # no grid is finer than what ingest keeps
        exponent = -60
        if half_width < 2.0 ** (exponent + _COARSEST_GRID_BITS):
            raise InputError(
                f"{parameter('threshold')} is too small: numbers are kept in steps of 2^-60, and it must "
                "be at least "
                f"{2.0 ** (exponent + _COARSEST_GRID_BITS):.1e}; measure the values in a smaller unit"
            )
    return exponent


@dataclass(frozen=True, kw_only=True)
class PreparedWinsorized(Prepared):
    """The winsorized mean with grid, bins, budget and noise decided.

    Attributes:
        cap: the largest weight of a user.
        total_weight: the public sum of weights.
        exponent: the grid holds the multiples of 2^exponent.
        clamp: means are clamped to this many grid units before they are rotated.
        bins: the bins of every coordinate.
        split: of the budget.
        noise: the noise on the sum of every coordinate.
        typical_error: the mean squared error of a coordinate to expect from noise and wrong intervals.
    """

    request: Request
    threshold: float
    radius: float
    cap: int
    total_weight: int
    exponent: int
    clamp: int
    bins: Bins
    split: TwoStageSplit
    noise: NoiseDistribution
    typical_error: float

    def predicted_noise(self) -> tuple[float, ...]:
        """Noise and the error of wrong intervals."""
        columns = len(self.request.columns)
        # Undoing the rotation averages the errors of D coordinates, which it had stretched by sqrt(D).
        return (math.sqrt(self.typical_error / padded_dimension(columns)),) * columns

    def concentrated(self) -> Fraction | None:
        return self.split.concentrated()

    def coordinates(self, table: UserTable, rotation: Rotation) -> IntArray:
        """Every user's rotated mean on the grid, shape (D, n); meaningless where a count is zero."""
        return rotation.apply(
            [
                round_means(sums, table.counts, exponent=self.exponent, low=-self.clamp, high=self.clamp)
                for sums in table.sums
            ]
        )

    def clipped_sum(self, table: UserTable, coordinate: IntArray, midpoint: int) -> int:
        """The integer that noise is added to: the weighted distances of users from the low end of the interval.

        Formal guarantees: moves by at most 4 * half_width * cap between neighbors (Lemma 3).
        """
        reach = 2 * self.bins.half_width
        position = np.clip(coordinate, midpoint - reach, midpoint + reach)
        position -= midpoint - reach
        position[table.counts == 0] = reach  # at the midpoint, which has been released
        if self.request.per == "record":
            position *= user_weights(table, self.request, self.cap)
        # A term is at most 2^47: for large caps the grid stops at its coarsest, where half a bin is at most 2^13
        # units, and a weight is at most 2^32. So a block of 2^15 fits 64 bits.
        return sum(int(position[start : start + BLOCK].sum()) for start in range(0, len(position), BLOCK))

    def distribution(self, table: PrivateTable) -> Staged:
        """A fresh rotation; per coordinate a bin, then a noisy sum around its midpoint."""

        def rotated(number: int) -> Independent:
            rotation = Rotation.numbered(number, len(self.request.columns))
            if isinstance(table, UserTable):  # all coordinates are rotated at once
                return Independent(parts=map(partial(self._local, table), self.coordinates(table, rotation)))
            rows = [
                partial(self._partitioned, rotation=rotation, row=row) for row in range(len(rotation.signs))
            ]
            return Independent(parts=run_batched(table, rows))

        return Staged(first=Rotation.distribution(len(self.request.columns)), then=rotated)

    def _local(self, table: UserTable, coordinate: IntArray) -> Staged:
        """The distribution of one coordinate, for users on one machine."""
        positions = self.bins.positions(coordinate[table.counts > 0])
        return self._two_stages(positions, partial(self.clipped_sum, table, coordinate))

    def _partitioned(self, table: PrivateTable, rotation: Rotation, row: int) -> Staged:
        """The distribution of one coordinate, for users in partitions."""

        def clipped_sum(midpoint: int) -> int:
            ((total,),) = sum_over_partitions(table, ClippedSumQuery(self, rotation, row, midpoint))
            return total

        return self._two_stages(locate_users(table, BinsQuery(self, rotation, row)), clipped_sum)

    def _two_stages(self, positions: UserPositions, clipped_sum: Callable[[int], int]) -> Staged:
        """A bin, then the noisy clipped sum around its midpoint."""
        selection, noise = self.split.claims(self.request.delta)

        def around(bin_: int) -> NoisySum:
            return NoisySum(position=[clipped_sum(self.bins.midpoint(bin_))], noise=self.noise, claim=noise)

        return Staged(
            first=with_claim(self.bins.distribution(positions, self.split.rate), selection), then=around
        )

    def outcome(self, sample: tuple[int, Sequence[tuple[int, Sequence[int]]]]) -> Outcome:
        """From the rotation, the selected bins and the noisy sums to values."""
        number, coordinates = sample
        rotation = Rotation.numbered(number, len(self.request.columns))
        midpoints = [self.bins.midpoint(bin_) for bin_, _ in coordinates]
        noisy = [total for _, (total,) in coordinates]
        averages = [
            self.weighted_average(midpoint, total) for midpoint, total in zip(midpoints, noisy, strict=True)
        ]
        unit = Fraction(2) ** self.exponent / (self.total_weight * len(rotation.signs))
        back = rotation.undo(averages)[: len(self.request.columns)]
        rule = None
        if len(averages) == 1:
            rule = WinsorizedInterval(prepared=self, midpoint=midpoints[0], noisy=noisy[0])
        return Outcome(
            values=tuple(float(one * unit) for one in back),
            parameters=self._parameters(len(rotation.signs)),
            interval_rule=rule,
            budget_breakdown=self.split.break_down_budget(self.request.delta),
        )

    def weighted_average(self, midpoint: int, total: int) -> int:
        """`total_weight` times the average, clamped to the interval, where the average without noise lies."""
        reach = 2 * self.bins.half_width
        inside = min(max(total, 0), 2 * reach * self.total_weight)
        return self.total_weight * (midpoint - reach) + inside

    def _parameters(self, padded: int) -> dict[str, Any]:
        spacing = 2.0**self.exponent
        parameters: dict[str, Any] = {
            "threshold": self.threshold,
            "radius": self.radius,
            "bins": self.bins.count,
        }
        if self.request.per == "record":
            parameters["max_records"] = self.cap
        if padded > 1:
            parameters["rotated_threshold"] = self.bins.half_width * spacing / math.sqrt(padded)
        parameters |= {
            "accounting": self.split.accounting,
            "epsilon_of_each_interval": self.split.selection_epsilon,
            "noise": f"{self.noise.name} on the clipped sum",
            # Undoing the rotation averages the noise of D coordinates.
            "noise_stddev": self.noise.stddev * spacing / (self.total_weight * math.sqrt(padded)),
        }
        return parameters


@dataclass(frozen=True)
class BinsQuery:
    """The users of a partition with usable records at the indices of their bins, in one coordinate."""

    prepared: PreparedWinsorized
    rotation: Rotation
    row: int

    def __call__(self, part: UserTable) -> SortedPositions:
        coordinate = self.prepared.coordinates(part, self.rotation)[self.row]
        return self.prepared.bins.positions(coordinate[part.counts > 0])


@dataclass(frozen=True)
class ClippedSumQuery:
    """The clipped sum of a partition's users, in one coordinate."""

    prepared: PreparedWinsorized
    rotation: Rotation
    row: int
    midpoint: int

    def __call__(self, part: UserTable) -> list[list[int]]:
        coordinate = self.prepared.coordinates(part, self.rotation)[self.row]
        return [[self.prepared.clipped_sum(part, coordinate, self.midpoint)]]


@dataclass(frozen=True, kw_only=True, repr=False)
class WinsorizedInterval:
    """An interval for the mean of the clipped data, from the noisy sum and the public noise.

    With probability at least `level` the noise stays within its bound. Clipping and sampling are not covered.
    """

    prepared: PreparedWinsorized
    midpoint: int
    noisy: int

    def at(self, level: float) -> Interval:
        bound = math.ceil(self.prepared.noise.bound(tail=1.0 - level))
        unit = Fraction(2) ** self.prepared.exponent / self.prepared.total_weight
        low, high = (
            float(self.prepared.weighted_average(self.midpoint, self.noisy + shift) * unit)
            for shift in (-bound, bound)
        )
        return Interval(level=level, low=(low,), high=(high,), covers="noise only")
