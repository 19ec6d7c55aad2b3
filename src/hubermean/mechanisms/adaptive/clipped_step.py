"""The mean itself: one clipped step from the center, with an interval that covers noise, sampling and clipping.

User i contributes z_i = a_i (y_i - c), its weight times the distance of its mean from the center, clipped to
[-below, above]. This bounds its influence, however many records it has. The mean is c plus the noisy sum over the total
weight; a second noisy sum, of squares clipped nearer to the center, measures the sampling error.
Proof: proofs/adaptive.md, Lemmas 6 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import Claim
from hubermean.accounting.concentrated import concentrated_sigma
from hubermean.accounting.discrete import laplace_scale
from hubermean.data.arrays import IntArray
from hubermean.data.fixed_point import round_means
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.queries import sum_over_partitions
from hubermean.distributions.output import NoiseDistribution, NoisySum
from hubermean.mechanisms.adaptive.budget_split import BudgetSplit
from hubermean.mechanisms.adaptive.parameters import AdaptiveEstimates, InfeasibleError, Tail, per_column
from hubermean.mechanisms.base import Outcome
from hubermean.mechanisms.contributions import Grid, countable_records
from hubermean.mechanisms.intervals import NOISE_SAMPLING_AND_CLIPPING, half_widths, noise_width
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.searches.bounds import expected_cut_off
from hubermean.types.release import DEFAULT_LEVEL, Denominator, Interval
from hubermean.types.request import Request

CUT_OFF, CUT_OFF_FEW = 3.5, 15.0
"""What clipping may remove in all, in distances of the bound from the center, for the interval to cover it.

The first is for many users; with fewer, up to 4.5 more. The second is for so few users that a search by rank may miss.
"""

ASSUMPTION = (
    "The interval covers clipping as long as what was cut off at a bound adds up to no more than {:.3g} times that "
    "bound's distance from the center."
)
HEAVY = (
    "A few users carry a large part of the total. The true mean may lie further away than the interval says; consider "
    "reporting a median, or the share of users above a limit, instead."
)
FEW_HOLD_MANY = (
    "A few users hold a large part of the records. If their values differ from those of the others, the true mean over "
    "records may lie outside the interval; consider the mean of user means (per user) instead."
)
FEW_USERS = (
    "So few users show little of how skewed their values are. If they are, the true mean may lie outside the interval; "
    "give bounds if you know any, or a larger epsilon."
)
_MOST_UNITS = 2**62  # grid units of a bound
_AT_THE_END, _SURELY_NOISE = 0.005, 4.0  # of the width of the bounds, and of the noise's deviation
_HEAVY_INDEX, _HEAVY_SLOPE = 0.93, 1.4  # of the tail beyond three quarters of the users, and more beyond more
_HEAVY_CUT_OFF = (
    2.0  # so many times more than of other tails is expected to be cut off, with a thousand users or fewer
)
_HEAVY_SHARE = 0.2  # of the variance, that so many users at a bound would make up as noise hides
_SQUARES_PART, _SQUARES_NATS = 0.1, {"user": 150.0, "record": 47.0}
_SQUARES_CONCENTRATED = 0.05
_BEYOND = 2.0  # over epsilon: how many users noise hides
# Thousands of users times epsilon: below the first two, squares are not measured and intervals are wider; below the
# last, a long tail is hardly seen and the release warns.
_VERY_FEW, _FEW_USERS = 0.3, 0.9
_ROUGH = {"user": 0.22, "record": 1.0}
# Of a power of the users beyond a bound: the more there are, the less is known of how far they lie.
_CUT_OFF_BEYOND = 0.16
# The skew of the numbers of records to warn of, and how many times as much may be cut off with any.
_FEW_HOLD_MANY, _MOST_FOR_SKEW = 1.35, 8.0
# The standard deviation where it is not measured, as a part of the farther bound and of the scale.
_FEW, _FEW_SCALE = 1.1 / 2.8, 1.1 / 0.93


@dataclass(frozen=True, kw_only=True)
class ClippedSum:
    """The clipped sum of one column, as an aggregate query that partitions answer.

    Attributes:
        grid: on which means are rounded; its middle is the center.
        low, high: to what a user's weighted distance is clipped, in grid units.
        value_low, value_high: to what its mean is clamped before, in grid units from the center.
        cap: the largest weight of a user; None for none.
        squares: to what distances are clipped before they are squared; None where squares are not asked for.
    """

    request: Request
    column: int
    grid: Grid
    low: int
    high: int
    value_low: int
    value_high: int
    cap: int | None
    squares: int | None = None

    def __call__(self, part: UserTable) -> list[list[int]]:
        distances = self.distances(part)
        sums = [[_sum_exactly(distances, max(-self.low, self.high))]]
        if self.squares is not None:
            near = np.clip(distances, -self.squares, self.squares, out=distances).astype(np.float64)
            near *= near
            near /= self.squares
            # Rounded user by user, and never above the limit: nobody's square depends on another's.
            squared = near.astype(np.int64)
            sums.append([_sum_exactly(np.minimum(squared, self.squares, out=squared), self.squares)])
        return sums

    def distances(self, part: UserTable) -> IntArray:
        """Each user's clipped distance from the center times its weight; 0 without usable records."""
        middle = self.grid.middle
        positions = round_means(
            part.sums[self.column],
            part.counts,
            exponent=self.grid.exponent,
            low=middle + self.value_low,
            high=middle + self.value_high,
        )
        positions -= middle
        if self.request.per == "record":
            weights = countable_records(part, self.request)
            if self.cap is not None:
                weights = np.minimum(weights, self.cap)
            largest = max(-self.value_low, self.value_high) * int(weights.max(initial=0))
            if largest < _MOST_UNITS:
                positions *= weights
            else:  # a product of up to 73 bits: from 2^62 on it reaches every bound
                # In integers: rounded up to 2^62, what a user adds would depend on the weights of others.
                far = np.abs(positions) >= -(-_MOST_UNITS // np.maximum(weights, 1))
                positions = np.where(far, np.sign(positions) << 62, positions * np.where(far, 0, weights))
        np.clip(positions, self.low, self.high, out=positions)
        if not part.counts.all():
            positions[part.counts == 0] = 0
        return positions

    def sensitivity(self) -> int:
        """How far one user moves the sum."""
        if self.request.neighbors.value == "add-remove":
            return max(self.high, -self.low)
        return self.high - self.low


def _sum_exactly(numbers: IntArray, largest: int) -> int:
    """Their sum, however large: bounds on the influence of users with many records may leave few bits to spare."""
    if largest * len(numbers) < 2**63:
        return int(numbers.sum())
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def plan_clipped_sum(
    split: BudgetSplit,
    found: AdaptiveEstimates,
    column: int,
    *,
    center: float,
    tail: Tail,
    squares: float | None,
) -> ClippedSum:
    """InputError where numbers of this size cannot be distinguished; `squares` is the distance they are clipped at."""
    facts = split.facts.columns[column]
    reach = min(max(tail.below, tail.above), float(facts.limit) / 16.0)
    grid = Grid.choose(
        (center - reach, center + reach),
        facts,
        noise_factor=split.columns / min(float(split.request.epsilon), 1.0),
    )
    unit = float(grid.spacing)
    low_bound, high_bound = split.clamp(column, found)
    middle = float(grid.middle * grid.spacing)
    value_low = -grid.half if low_bound is None else math.floor(_clamped((low_bound - middle) / unit, grid))
    value_high = grid.half if high_bound is None else math.ceil(_clamped((high_bound - middle) / unit, grid))
    return ClippedSum(
        request=split.request,
        column=column,
        grid=grid,
        low=-_units(tail.below / unit),
        high=_units(tail.above / unit),
        value_low=min(value_low, value_high),
        value_high=value_high,
        cap=split.weight_cap(found),
        squares=None if squares is None else _units(squares / unit),
    )


def _clamped(position: float, grid: Grid) -> float:
    """Within the grid, also where public bounds are so far away that the position is no finite number."""
    return min(max(position, -grid.half), grid.half)


def _units(distance: float) -> int:
    """At least one grid unit, and no more than integers of 64 bits have room for (`ClippedSum.distances`)."""
    return max(math.ceil(min(distance, _MOST_UNITS)), 1)


@dataclass(frozen=True, kw_only=True)
class PreparedClippedStep:
    """Every column's sum and noise decided, from what was found."""

    request: Request
    found: AdaptiveEstimates
    sums: tuple[ClippedSum, ...]
    tails: tuple[Tail, ...]
    centers: tuple[float, ...]
    units: tuple[float, ...]
    noises: tuple[tuple[NoiseDistribution, ...], ...]
    public: tuple[tuple[float | None, float | None], ...]
    noise_epsilon: float
    size: float
    hostile: float

    @classmethod
    def prepare(cls, split: BudgetSplit, found: AdaptiveEstimates) -> PreparedClippedStep:
        """InputError or InfeasibleError where nothing can be released."""
        rest = split.privacy_budget.total - found.spent
        if rest <= 0 or found.weight <= 0.0:
            raise InfeasibleError("the budget is spent before the mean")
        tails, sums, noises, centers = [], [], [], []
        for column in range(split.columns):  # many end at the first column, without those of all others
            tail = split.tail_of(column, found)
            tails.append(tail)
            center = split.shifted_center(column, found)
            shift = center - split.center(column, found)
            moved = replace(tail, below=tail.below + shift, above=tail.above - shift)
            few = split.seeks_tails and split.size(found) < _FEW_USERS
            squares = None if few else max(tail.seen, abs(shift))
            own = plan_clipped_sum(split, found, column, center=center, tail=moved, squares=squares)
            sums.append(own)
            centers.append(float(own.grid.middle * own.grid.spacing))
            noises.append(_noises(split, own, rest / split.columns, found.users or 1.0))
        if any(distribution.scale > LARGEST_SCALE for own in noises for distribution in own):
            raise InfeasibleError("epsilon is too small for a release")
        return cls(
            request=split.request,
            found=found,
            sums=tuple(sums),
            tails=tuple(tails),
            centers=tuple(centers),
            units=tuple(split.unit(column, found) for column in range(split.columns)),
            noises=tuple(noises),
            public=tuple(split.known.pair(column) for column in range(split.columns)),
            noise_epsilon=split.noise_epsilon,
            size=split.size(found),
            hostile=split.known.hostile,
        )

    def distribution(self, table: PrivateTable, claim: Claim | None = None) -> NoisySum:
        terms = sum_over_partitions(table, ColumnSums(self.sums))
        distributions = [distribution for own in self.noises for distribution in own]
        return NoisySum(position=[one for term in terms for one in term], noise=distributions, claim=claim)

    @property
    def cut_off(self) -> float:
        if self.request.per == "record":
            # As if users fell with the square of the distance, from the rank that was found to the bound.
            tail, hostile = self.tails[0], self.hostile * (self.found.users or 0.0)
            beyond = (tail.rank - hostile) * (tail.seen / tail.above) ** 2
            cut_off = max(CUT_OFF, _CUT_OFF_BEYOND * math.pow(max(beyond, 0.0), 1.5))
            return cut_off * min(max(self.found.skew, 1.0) ** 3, _MOST_FOR_SKEW)
        if self.size < _FEW_USERS:
            return CUT_OFF_FEW * max(_VERY_FEW / self.size, 1.0)
        return CUT_OFF + 4.5 * min(max(math.log10(10.0 / self.size), 0.0), 1.0)

    def outcome(self, sample: Sequence[int]) -> Outcome:
        """From noisy sums to values, intervals and warnings."""
        estimates, start = [], 0
        for column, own in enumerate(self.noises):
            estimates.append(self._estimate(column, list(sample[start : start + len(own)])))
            start += len(own)
        return Outcome(
            values=tuple(estimate.value for estimate in estimates),
            parameters=self.parameters(),
            interval_rule=MeanInterval(estimates=tuple(estimates), cut_off=self.cut_off),
            denominator=self._denominator(),
            warnings=self._warnings(estimates),
        )

    def _warnings(self, estimates: Sequence[Estimate]) -> tuple[str, ...]:
        warnings = [HEAVY] if any(estimate.heavy for estimate in estimates) else []
        add_remove = self.request.neighbors.value == "add-remove"
        if self.found.shares and self.size < _ROUGH[self.request.per] * (1.0 if add_remove else 2.0):
            warnings.append(FEW_USERS)
        if self.found.skew > _FEW_HOLD_MANY:
            warnings.append(FEW_HOLD_MANY)
        return tuple(warnings)

    def is_at_bound(self, sample: Sequence[int]) -> bool:
        """Whether all users seem to lie beyond one bound of some column: then its center was missed."""
        if self.request.per != "user" or any(end is not None for pair in self.public for end in pair):
            return False
        start = 0
        for own, distributions in zip(self.sums, self.noises, strict=True):
            place = sample[start] / self.found.weight
            margin = min(
                _AT_THE_END * (own.high - own.low),
                _SURELY_NOISE * distributions[0].stddev / self.found.weight,
            )
            if not own.low + margin < place < own.high - margin:
                return True
            start += len(distributions)
        return False

    def _estimate(self, column: int, noisy: list[int]) -> Estimate:
        own, tail, distributions, found = (
            self.sums[column],
            self.tails[column],
            self.noises[column],
            self.found,
        )
        unit, center, weight = float(own.grid.spacing), self.centers[column], found.weight
        low, high = self._ends(column)
        clipped = min(max(center + noisy[0] * unit / weight, low), high)
        off = clipped - center
        noise = (distributions[0].stddev * unit) ** 2 + (off * found.weight_stddev) ** 2
        squares = self._squares(column, noisy, off)
        open_low, open_high = (end is None for end in self.public[column])
        heavy = (open_low or open_high) and self._is_heavy(column, squares)
        return Estimate(
            clipped=clipped,
            value=clipped + self._cut_off(column, heavy=heavy),
            kind=distributions[0].kind,
            noise_variance=noise / weight**2,
            sampling_variance=squares / weight**2,
            cut_below=self.cut_off * tail.below / weight if open_low else 0.0,
            cut_above=self.cut_off * tail.above / weight if open_high else 0.0,
            low=low if not open_low else -math.inf,
            high=high if not open_high else math.inf,
            heavy=heavy,
        )

    def _cut_off(self, column: int, *, heavy: bool) -> float:
        """What the mean is expected to have lost at the bounds, more of it on the side of the longer tail."""
        tail, unit = self.tails[column], self.units[column]
        if self.request.per == "record" or tail.rank == 0:
            return 0.0
        open_low, open_high = (end is None for end in self.public[column])
        above = tail.above * expected_cut_off(tail.seen_above / unit, total=self.noise_epsilon) * open_high
        below = tail.below * expected_cut_off(tail.seen_below / unit, total=self.noise_epsilon) * open_low
        further = _HEAVY_CUT_OFF / max(self.size, 1.0) if heavy else 0.0
        return (1.0 + further) * (above - below) / self.found.weight

    def _is_heavy(self, column: int, squares: float) -> bool:
        """Whether a few users beyond what could be seen may decide the mean."""
        tail, found = self.tails[column], self.found
        if self.request.per == "record":
            beyond = max(_BEYOND / self.noise_epsilon, 1.0) * max(tail.below, tail.above) ** 2
            return beyond > _HEAVY_SHARE * squares
        distance = tail.seen / self.units[column]
        if not found.shares or tail.rank == 0 or distance <= 1.0:
            return False
        # The power with which the number of users falls between the scale and the rank that was found.
        share = found.shares[column]
        users = (1.0 - share) * (found.users or 0.0) / tail.rank
        index = _HEAVY_INDEX + _HEAVY_SLOPE * max(share - 0.75, 0.0)
        return users > 2.0 and math.log(users) < index * math.log(distance)

    def _ends(self, column: int) -> tuple[float, float]:
        """Between which the mean lies: a mean of clipped user means lies within the bounds."""
        if self.request.per == "user":
            own = self.sums[column]
            unit = float(own.grid.spacing)
            return self.centers[column] + own.low * unit, self.centers[column] + own.high * unit
        low, high = self.public[column]
        return -math.inf if low is None else low, math.inf if high is None else high

    def _squares(self, column: int, noisy: list[int], off: float) -> float:
        """The sum of squared distances from the mean, rather too large than too small."""
        own, tail, distributions = self.sums[column], self.tails[column], self.noises[column]
        users, unit = max(self.found.users or 1.0, 1.0), float(own.grid.spacing)
        if own.squares is None:
            deviation = max(_FEW_SCALE * self.units[column], _FEW * max(tail.below, tail.above))
            return users * deviation**2
        limit = own.squares * unit * unit
        squares = max(noisy[1], 0) * limit + distributions[1].stddev * limit
        if self.request.per == "user":
            squares -= users * off * off
        squares = max(squares, distributions[1].stddev * limit)
        return squares + tail.rank * _excess(tail, own.squares * unit, max(_BEYOND / self.noise_epsilon, 0.1))

    def _denominator(self) -> Denominator:
        found = self.found
        width = noise_width(DEFAULT_LEVEL, kind="laplace", stddev=found.weight_stddev)
        return Denominator(
            value=found.weight,
            low=max(found.weight - width, 0.0),
            high=found.weight + width,
            exact=found.weight_stddev == 0.0,
        )

    def parameters(self) -> dict[str, Any]:
        """Public and released numbers for the release."""
        pairs, scales, shifts = [], [], []
        for own, center, distributions in zip(self.sums, self.centers, self.noises, strict=True):
            unit = float(own.grid.spacing)
            if self.request.per == "user":
                pairs.append([center + own.low * unit, center + own.high * unit])
            else:
                pairs.append([own.low * unit, own.high * unit])
            scales.append(distributions[0].scale * unit)
            shifts.append((own.high - own.low) * unit / self.found.weight)
        name = "bounds" if self.request.per == "user" else "influence_bounds"
        parameters: dict[str, Any] = {name: per_column(pairs), "center": per_column(self.centers)}
        if self.sums[0].cap is not None:
            parameters["max_records"] = self.sums[0].cap
        parameters["noise"] = self.noises[0][0].name
        parameters["noise_scale_of_sum"] = per_column(scales)
        parameters["largest_shift_by_a_user"] = per_column(shifts)
        if self.hostile > 0.0:
            users = self.hostile * (self.found.users or 0.0)
            parameters["hostile"] = self.hostile
            parameters["largest_shift_by_hostile_users"] = per_column([users * shift for shift in shifts])
        return parameters


def _noises(
    split: BudgetSplit, own: ClippedSum, budget: Fraction, users: float
) -> tuple[NoiseDistribution, ...]:
    """Of the sum, and of the squares where they are asked for; together they cost the budget (Lemma 6)."""
    if own.squares is None:
        return (_noise(split, budget, own.sensitivity()),)
    part = Fraction(_SQUARES_CONCENTRATED)
    if not split.concentrated:
        wanted = _SQUARES_NATS[split.request.per] / max(users * float(budget), 1e-9)
        part = Fraction(min(max(wanted, 0.01), _SQUARES_PART))
    return (
        _noise(split, budget * (1 - part), own.sensitivity()),
        _noise(split, budget * part, own.squares),
    )


def _noise(split: BudgetSplit, budget: Fraction, sensitivity: int) -> NoiseDistribution:
    amount = round_down(budget)
    if amount <= 0.0:
        raise InfeasibleError("the budget is spent before the mean")
    if split.concentrated:
        sigma = concentrated_sigma(amount, squared_sensitivity=sensitivity**2)
        return NoiseDistribution(kind="gaussian", scale=sigma)
    return NoiseDistribution(kind="laplace", scale=laplace_scale(amount, sensitivity=sensitivity))


def choose_step_noise(epsilon: float, own: ClippedSum) -> NoiseDistribution:
    """Laplace noise for a step before the last; InfeasibleError where it would be too wide to be drawn."""
    scale = laplace_scale(epsilon, sensitivity=own.sensitivity())
    if scale > LARGEST_SCALE:
        raise InfeasibleError("epsilon is too small for a release")
    return NoiseDistribution(kind="laplace", scale=scale)


def _excess(tail: Tail, limit: float, beyond: float) -> float:
    """What the squares of a user beyond the rank have above their limit on average, along the tail up to the bound."""
    bound, rank = max(tail.below, tail.above), max(tail.rank, 1.0)
    if rank <= beyond or bound <= limit:
        return 0.0
    power = math.log(bound / limit) / math.log(rank / beyond)
    last, bend = beyond / rank, 1.0 - 2.0 * power
    mean = -math.log(last) if abs(bend) < 1e-6 else (1.0 - last**bend) / bend
    excess: float = max(mean + last**bend - 1.0, 0.0) * limit * limit
    return excess


@dataclass(frozen=True)
class ColumnSums:
    """The sums of every column, in one pass."""

    sums: tuple[ClippedSum, ...]

    def __call__(self, part: UserTable) -> list[list[int]]:
        return [term for own in self.sums for term in own(part)]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What was released of a column: the mean, its variances, and what clipping may have taken off on either side.

    `clipped` is the mean of what clipping left, around which the interval lies; `value` makes up for what it is
    expected to have taken off.
    """

    value: float
    clipped: float
    kind: Any
    noise_variance: float
    sampling_variance: float
    cut_below: float
    cut_above: float
    low: float
    high: float
    heavy: bool

    def ends(self, level: float) -> tuple[float, float]:
        half: float = half_widths(
            level,
            kind=self.kind,
            noise_variance=np.array([self.noise_variance]),
            sampling_variance=np.array([self.sampling_variance]),
        ).item(0)
        low, high = self.clipped - half - self.cut_below, self.clipped + half + self.cut_above
        return max(low, self.low), min(high, self.high)


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """Intervals of a release, from released numbers; the level holds for each column, not for all together."""

    estimates: tuple[Estimate, ...]
    cut_off: float
    covers = NOISE_SAMPLING_AND_CLIPPING

    def at(self, level: float) -> Interval:
        low, high = zip(*(estimate.ends(level) for estimate in self.estimates), strict=True)
        return Interval(
            level=level, low=low, high=high, covers=self.covers, assumption=ASSUMPTION.format(self.cut_off)
        )
