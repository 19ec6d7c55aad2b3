"""`winsorized`: the two-stage baseline, an interval chosen privately and a clipped mean within it.

The winsorized mean estimator of Levy et al. (2021), Alg. 1 (one column) and Alg. 2 (several). User means are
rounded to a public grid; for several columns they are rotated in whole numbers; each coordinate chooses a bin
(`interval_choice`); means are clipped to an interval twice as wide around its midpoint and summed as integers;
integer noise is added. Proof: proofs/winsorized.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hubermean.errors import InputError
from hubermean.exact import rounded_means
from hubermean.exact.sums import BLOCK
from hubermean.laws import Independent, NoisySum, Staged, claiming
from hubermean.mechanisms.adding_parts import added_up
from hubermean.mechanisms.interval_choice import Bins
from hubermean.mechanisms.protocol import Known, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.rotation import Rotation, padded_dimension
from hubermean.mechanisms.side_by_side import side_by_side
from hubermean.mechanisms.two_stage_budget import Plan, Task, best_plan, typical_error
from hubermean.mechanisms.weights import check_cap, user_weights, weight_cap
from hubermean.noise import LARGEST_SCALE, NoiseLaw
from hubermean.privacy.arguments import positive
from hubermean.release import Interval
from hubermean.tuning import HeldLine, line_of
from hubermean.user_table import IntArray, PrivateTable, UserTable

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
        record_cap: the largest number of records a user counts for; for `per="record"`, where it may be left out.
        choice_share: the share of the budget that chooses the interval. By default it follows from the public
            n, tau and B (`two_stage_budget`); 0.5 is Levy et al. (2021).

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, under `replace-user` and `replace-values`
      (proofs/winsorized.md, Theorem 1), whatever the data; tau and B affect accuracy only;
    - the sum of weights is public: with `per="user"` every user weighs one, and a user without usable records
      stands at the chosen midpoint; with `per="record"` weights are capped public counts, hence
      `replace-values` only.

    Deviations from Levy et al. (2021), all from public numbers: the budget is not halved but split by predicted
    error; noise is Gaussian where that is less; the coordinates of a rotation are composed tightly, in place of
    epsilon / sqrt(8 d ln(1/delta)); the rotated threshold is that of `rotated_factor`, in place of
    10 tau sqrt(ln(d n / gamma) / d); averages are clamped to the interval they must lie in.
    """

    threshold: float
    radius: float
    record_cap: int | None = None
    choice_share: float | None = None
    name = "winsorized"

    def __post_init__(self) -> None:
        for name in ("threshold", "radius"):
            if not 1e-60 <= positive(name, getattr(self, name)) <= 1e60:
                raise InputError(f"{name} must be a number from 1e-60 to 1e60, not {getattr(self, name)!r}")
        if Fraction(self.radius) > MOST_BINS * Fraction(self.threshold):
            raise InputError("radius may be at most 1e9 times threshold; raise threshold or lower radius")
        if self.choice_share is not None and not 0.0 < positive("choice_share", self.choice_share) < 1.0:
            raise InputError(f"choice_share must lie strictly between 0 and 1, not {self.choice_share!r}")

    @classmethod
    def from_known(cls, known: Known) -> Winsorized:
        threshold, radius = known.spread(of=cls.name)
        return cls(threshold=threshold, radius=radius, record_cap=known.record_cap)

    def check(self, request: Request) -> None:
        if not request.neighbors.users_are_public:
            raise InputError(
                "'winsorized' divides by the number of users, which 'add-remove' keeps private; "
                "use neighbors='replace-user' or another mechanism"
            )
        if request.per == "record" and not request.neighbors.counts_are_public:
            raise InputError(
                f"'winsorized' with per='record' divides by the number of records, which {request.neighbors.value!r} "
                "keeps private; use per='user' or neighbors='replace-values'"
            )
        check_cap(self.record_cap, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedWinsorized:
        self.check(request)
        if facts.n_users is None:
            raise InputError("'winsorized' needs a public number of users")
        cap, total_weight = 1, facts.n_users
        if request.per == "record" and facts.record_counts is not None:
            # Counts are public here, so no user can ever weigh more than the largest of them.
            cap = min(weight_cap(self.record_cap, request, facts), int(facts.record_counts.max(initial=0)))
            total_weight = sum(np.minimum(facts.record_counts, cap).tolist())
            if total_weight == 0:
                raise InputError("no user has a record; give counts= of at least one for some user")
        for column in facts.columns:
            if Fraction(self.radius) > column.limit:
                raise InputError(
                    f"radius reaches beyond {float(column.limit):g}, the largest value that numbers of "
                    f"{column.name!r} are read with; give resolution= (a coarser step) or a smaller radius"
                )
        dimension = len(request.columns)
        padded = padded_dimension(dimension)
        half_width = self.threshold * rotated_factor(dimension, facts.n_users)
        task = Task(
            dimension=padded,
            n_users=facts.n_users,
            bins=math.ceil(dimension * self.radius / half_width),
            half_width=half_width,
            weight_share=cap / total_weight,
        )
        plan = best_plan(task, request.epsilon, request.delta, self.choice_share)
        reach = dimension * Fraction(self.radius)
        exponent = _grid_exponent(
            half_width,
            extent=float(reach + 2 * dimension * Fraction(self.threshold)) / half_width,
            noise_factor=cap * max(plan.noise_ratio(request.delta), 1.0),
        )
        spacing = Fraction(2) ** exponent
        bins = Bins.covering(reach / spacing, math.ceil(Fraction(half_width) / spacing))
        law = plan.noise_law(4 * bins.half_width * cap, request.delta)
        if law.scale > LARGEST_SCALE:
            raise InputError(
                "epsilon is too small for noise of a usable size; raise epsilon or lower record_cap"
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
            plan=plan,
            noise=law,
            typical_error=typical_error(plan, task, request.delta),
        )


def rotated_factor(dimension: int, n_users: int) -> float:
    """How much wider than tau the coordinates of a rotated vector of length tau lie, before dividing by sqrt(D).

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
    if exponent < -60:  # nothing is finer than what ingest keeps
        exponent = -60
        if half_width < 2.0 ** (exponent + _COARSEST_GRID_BITS):
            raise InputError(
                f"threshold is too small: numbers are kept in steps of 2^-60, and it must be at least "
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
        plan: how the budget is divided.
        noise: the noise on the sum of every coordinate.
        typical_error: the mean squared error of a coordinate that noise and wrong intervals may be expected to add.
    """

    request: Request
    threshold: float
    radius: float
    cap: int
    total_weight: int
    exponent: int
    clamp: int
    bins: Bins
    plan: Plan
    noise: NoiseLaw
    typical_error: float

    def predicted_noise(self) -> tuple[float, ...]:
        """Noise and the error of intervals that are chosen wrongly."""
        columns = len(self.request.columns)
        # Undoing the rotation averages the errors of D coordinates, which it had stretched by sqrt(D).
        return (math.sqrt(self.typical_error / padded_dimension(columns)),) * columns

    def concentrated(self) -> Fraction | None:
        return self.plan.concentrated()

    def coordinates(self, table: UserTable, rotation: Rotation) -> IntArray:
        """Every user's rotated mean on the grid, shape (D, n); of no meaning where a count is zero."""
        return rotation.apply(
            [
                rounded_means(sums, table.counts, exponent=self.exponent, low=-self.clamp, high=self.clamp)
                for sums in table.sums
            ]
        )

    def clipped_sum(self, table: UserTable, coordinate: IntArray, midpoint: int) -> int:
        """The integer that noise is added to: how far above the low end of the interval users lie, weighted.

        Formal guarantees: moves by at most 4 * half_width * cap between neighbours (Lemma 3).
        """
        reach = 2 * self.bins.half_width
        position = np.clip(coordinate, midpoint - reach, midpoint + reach)
        position -= midpoint - reach
        position[table.counts == 0] = reach  # at the midpoint, which is public by now
        if self.request.per == "record":
            position *= user_weights(table, self.request, self.cap)
        # A term is at most 2^47: for large caps the grid stops at its coarsest, where half a bin is at most 2^13
        # units, and a weight is at most 2^32. So a block of 2^15 fits 64 bits.
        return sum(int(position[start : start + BLOCK].sum()) for start in range(0, len(position), BLOCK))

    def law(self, table: PrivateTable) -> Staged:
        """A rotation drawn afresh; per coordinate a bin, then a noisy sum around its midpoint."""

        def rotated(number: int) -> Independent:
            rotation = Rotation.numbered(number, len(self.request.columns))
            if not isinstance(table, UserTable):
                laws = [
                    partial(self._law_in_parts, rotation=rotation, row=row)
                    for row in range(len(rotation.signs))
                ]
                return Independent(parts=side_by_side(table, laws))
            return Independent(parts=map(partial(self._law, table), self.coordinates(table, rotation)))

        return Staged(first=Rotation.law(len(self.request.columns)), then=rotated)

    def _law(self, table: UserTable, coordinate: IntArray) -> Staged:
        """Of one coordinate."""
        choice, noise = self.plan.claims(self.request.delta)

        def around(bin_: int) -> NoisySum:
            total = self.clipped_sum(table, coordinate, self.bins.midpoint(bin_))
            return NoisySum(position=[total], noise=self.noise, claim=noise)

        line = self.bins.line(coordinate[table.counts > 0])
        return Staged(first=claiming(self.bins.law(line, self.plan.rate), choice), then=around)

    def _law_in_parts(self, table: PrivateTable, rotation: Rotation, row: int) -> Staged:
        """The same, of users in parts."""
        choice, noise = self.plan.claims(self.request.delta)

        def around(bin_: int) -> NoisySum:
            ((total,),) = added_up(table, ClippedSum(self, rotation, row, self.bins.midpoint(bin_)))
            return NoisySum(position=[total], noise=self.noise, claim=noise)

        line = line_of(table, BinsOnLine(self, rotation, row))
        return Staged(first=claiming(self.bins.law(line, self.plan.rate), choice), then=around)

    def outcome(self, draw: tuple[int, Sequence[tuple[int, Sequence[int]]]]) -> Outcome:
        """From the rotation, the chosen bins and the noisy sums to values."""
        number, coordinates = draw
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
            rule = NoiseInterval(prepared=self, midpoint=midpoints[0], noisy=noisy[0])
        return Outcome(
            values=tuple(float(one * unit) for one in back),
            parameters=self._parameters(len(rotation.signs)),
            interval_rule=rule,
            spent=self.plan.account(self.request.delta),
        )

    def weighted_average(self, midpoint: int, total: int) -> int:
        """`total_weight` times the average; within the interval, as the average without noise is."""
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
            parameters["record_cap"] = self.cap
        if padded > 1:
            parameters["rotated_threshold"] = self.bins.half_width * spacing / math.sqrt(padded)
        parameters |= {
            "accounting": self.plan.accounting,
            "epsilon_of_each_interval": self.plan.choice,
            "noise": f"{self.noise.name} on the clipped sum",
            # Undoing the rotation averages the noise of D coordinates.
            "noise_stddev": self.noise.stddev * spacing / (self.total_weight * math.sqrt(padded)),
        }
        return parameters


@dataclass(frozen=True)
class BinsOnLine:
    """The users of a part with usable records at the numbers of their bins, in one coordinate."""

    prepared: PreparedWinsorized
    rotation: Rotation
    row: int

    def __call__(self, part: UserTable) -> HeldLine:
        coordinate = self.prepared.coordinates(part, self.rotation)[self.row]
        return self.prepared.bins.line(coordinate[part.counts > 0])


@dataclass(frozen=True)
class ClippedSum:
    """The clipped sum of a part's users, in one coordinate."""

    prepared: PreparedWinsorized
    rotation: Rotation
    row: int
    midpoint: int

    def __call__(self, part: UserTable) -> list[list[int]]:
        coordinate = self.prepared.coordinates(part, self.rotation)[self.row]
        return [[self.prepared.clipped_sum(part, coordinate, self.midpoint)]]


@dataclass(frozen=True, kw_only=True, repr=False)
class NoiseInterval:
    """An interval for the mean of the clipped data, from the noisy sum and the public noise law.

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
