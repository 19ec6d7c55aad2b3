"""From the noisy sums of clipped rows to means by group and their intervals: post-processing of released numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray
from hubermean.mechanisms.groups.group_weights import GroupWeights, describe_weights
from hubermean.mechanisms.groups.row_queries import Accounting
from hubermean.mechanisms.intervals import NOISE_SAMPLING_AND_CLIPPING, half_widths
from hubermean.types.options import PartialBounds
from hubermean.types.release import DEFAULT_LEVEL, Denominator

# Scales of groups: what they differ by, on a log scale, at most and at least to be used.
_LARGEST_RATIO, _LEAST_RATIO, _LEAST_SPREAD = 5.0, 0.3, 0.04
_FLOOR = 0.1
# By how much the last pass may move a group: of what it moves one whose rows are all beyond the bound, and on top of
# so many standard deviations of noise.
_MOVED, _SURE = 0.25, 4.0
# Times the deviation of groups from each other, for the interval of one that is not seen; and beside it, that of users.
_BETWEEN, _APART = 1.5, 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """The noisy sums of one pass over the rows of a column.

    Attributes:
        centers, scales: per group, of the entries.
        bound: on the norm of a row, in scales.
        sums: per group, in scales.
        stddev: of their noise.
        beyond: about how many rows exceed the bound.
        missed: about how much clipping took off the sum of a group of average size, in scales.
    """

    centers: FloatArray
    scales: FloatArray
    bound: float
    sums: FloatArray
    stddev: float
    beyond: float
    missed: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Combined:
    """All passes of a column together, by the inverse of their variances.

    Attributes:
        means, variance: per group, the variance for noise alone.
        center: of each group, on the average of passes.
        missed: about how much clipping took off each sum, in units of the values.
        apart: how far the mean of a pass lies from that of all, where noise does not explain it: then clipping took
            more off the others, or off this one, than was to be expected.
    """

    means: FloatArray
    variance: FloatArray
    center: FloatArray
    missed: FloatArray
    apart: FloatArray

    @classmethod
    def of(cls, passes: Sequence[Pass], weights: GroupWeights) -> Combined:
        divisor = weights.positive
        precision = [(divisor / (one.scales * one.stddev)) ** 2 for one in passes]
        total = np.sum(precision, axis=0)

        def average(numbers: Sequence[FloatArray]) -> FloatArray:
            found: FloatArray = (
                np.sum([one * share for one, share in zip(numbers, precision, strict=True)], axis=0) / total
            )
            return found

        own = [one.centers + one.scales * one.sums / divisor for one in passes]
        means = average(own)
        blurs = [weights.blur(mean - one.centers) for mean, one in zip(own, passes, strict=True)]
        distances = [np.abs(one - means) for one in own]
        apart = [
            np.where(distance > _SURE * np.sqrt(1.0 / one + blur**2), distance, 0.0)
            for distance, one, blur in zip(distances, precision, blurs, strict=True)
        ]
        return cls(
            means=means,
            variance=1.0 / total,
            center=average([one.centers for one in passes]),
            missed=average([one.scales * one.missed for one in passes]),
            apart=np.max(apart, axis=0),
        )

    def pooled(self) -> tuple[FloatArray, float]:
        """Return centers for a next pass, shrunk toward each other as far as noise explains their distances.

        Also how far apart they are, as a standard deviation (DerSimonian & Laird 1986, Eq 8, with fixed weights).
        """
        precision = 1.0 / self.variance
        middle = float((self.means * precision).sum() / precision.sum())
        excess = float((precision * (self.means - middle) ** 2).sum()) - (len(self.means) - 1)
        between = max(excess / float(precision.sum()), 0.0)
        kept = between / (between + self.variance)
        return middle + (self.means - middle) * kept, float(np.sqrt(between))


def shrink_scales(magnitudes: FloatArray, stddev: FloatArray, weights: GroupWeights) -> FloatArray | None:
    """Return the scale of each group: its mean distance from the center, shrunk on a log scale toward the pooled one.

    None if what the groups differ by may be noise.

    Args:
        magnitudes: per group, the noisy sum of distances.
        stddev: of the noise in these.
        weights: what they are divided by.
    """
    pooled = float(magnitudes.sum()) / weights.total
    if pooled <= 0.0:
        return None
    ratios = np.clip(magnitudes / weights.positive / pooled, 1.0 / _LARGEST_RATIO, _LARGEST_RATIO)
    noise = (stddev / weights.positive / pooled / np.maximum(ratios, _LEAST_RATIO)) ** 2
    logs, trust = np.log(ratios), 1.0 / (noise + _FLOOR)
    spread = float(np.average(logs**2 - noise, weights=trust))
    spread -= 2.0 * float(np.sqrt(2.0 * ((trust * noise) ** 2).sum()) / trust.sum())
    if spread <= _LEAST_SPREAD:
        return None
    scales: FloatArray = pooled * np.exp(logs * spread / (spread + noise))
    return scales


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnEstimates:
    """One column of the result, per group: means, the variances of noise and sampling, what clipping may take off.

    Attributes:
        reached: whether the passes came as far as the values of the group; otherwise its mean is unknown.
        drawn: whether the mean is drawn toward those of other groups, since noise hides how far from them it is.
    """

    means: FloatArray
    noise_variance: FloatArray
    sampling_variance: FloatArray
    clipping: FloatArray
    reached: NDArray[np.bool_]
    drawn: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        passes: Sequence[Pass],
        squares: FloatArray,
        squares_stddev: float,
        weights: GroupWeights,
        *,
        usual: float,
        unit: float,
    ) -> ColumnEstimates:
        """`squares`: noisy sums of squared entries of the last pass, in squared scales; `usual`: see `_are_reached`;
        `unit`: the scale of users.
        """
        combined = Combined.of(passes, weights)
        # What the weight may be less than measured matters most where it is hardly seen.
        divisor = np.maximum(weights.values - weights.stddev, weights.stddev)
        wider = (weights.positive / divisor) ** 2
        shift = np.abs(combined.means - combined.center)
        spread, shares = _spread(squares, squares_stddev, weights)
        made = cls(
            means=combined.means,
            # The weight matters as far as the mean lies from where sums were centered.
            noise_variance=combined.variance * wider + (shift * weights.stddev / divisor) ** 2,
            sampling_variance=spread * passes[-1].scales ** 2 / divisor**2,
            clipping=np.maximum(
                (
                    combined.missed * np.maximum(shares, weights.shares)
                    + shift * weights.missed * weights.shares
                )
                / divisor,
                combined.apart,
            ),
            reached=_are_reached(passes, weights, usual),
            drawn=np.zeros(len(squares), dtype=np.bool_),
        )
        return made._pool(combined, weights, unit)

    def _pool(self, combined: Combined, weights: GroupWeights, unit: float) -> ColumnEstimates:
        """Draw the means of groups that are not seen toward the others, as far as noise explains their distance.

        Such a group may be further from the others than they are from each other; the interval allows for more. With
        few groups to go by it is taken to be as far from them as users are from each other. So is a group whose noise
        exceeds that.
        """
        surely = (weights.surely_seen() > 0.0) & (combined.variance <= unit**2)
        if surely.all() or not weights.shown().all():
            return self
        means, between = combined.pooled()
        variance = combined.variance
        precision = 1.0 / variance
        middle = float((self.means * precision).sum() / precision.sum())
        # The deviation of few groups, or of noisy ones, is itself uncertain.
        known = max(float(surely.sum()), 1.0)
        unsure = math.sqrt(2.0 / max(len(precision) - 1, 1)) / float(precision.mean())
        apart = _BETWEEN**2 * (between**2 + min(unsure, unit**2))
        apart += (_APART * unit) ** 2 / known + 1.0 / float(precision.sum())
        means = np.where(surely, self.means, means)
        wide = surely if surely.any() else np.ones_like(surely)
        usual = float(np.average(self.clipping[wide], weights=weights.positive[wide]))
        return ColumnEstimates(
            means=means,
            noise_variance=np.where(surely, self.noise_variance, apart),
            sampling_variance=self.sampling_variance,
            clipping=np.where(surely, self.clipping, usual + np.abs(means - middle)),
            reached=self.reached,
            drawn=~surely,
        )


def _are_reached(passes: Sequence[Pass], weights: GroupWeights, usual: float) -> NDArray[np.bool_]:
    """Return whether the last pass left each group about where those before it had seen it.

    Rows that lie far beyond the bound move their group by the bound in every pass, however much further they lie: what
    clipping takes off is then no small part, and no interval around what was found would hold the mean. `usual` is the
    norm of a usual row whose entries lie one scale from the centers.
    """
    last, divisor = passes[-1], weights.positive
    before = Combined.of(passes[:-1], weights)
    blur = weights.blur(before.means - before.center)
    variance = (last.stddev / divisor) ** 2 + (before.variance + blur**2) / last.scales**2
    moved = np.abs(last.sums) / divisor - _SURE * np.sqrt(variance)
    reached: NDArray[np.bool_] = moved <= _MOVED * last.bound / usual
    return reached


def _spread(squares: FloatArray, stddev: float, weights: GroupWeights) -> tuple[FloatArray, FloatArray]:
    """Return (sums of squares, how much larger than usual they are), from noisy ones with this noise in each.

    Squares are shrunk toward what the weight of a group lets expect, as far as noise explains that they differ from it,
    and taken one standard deviation of what noise is left high: the sampling error is rather over- than underestimated.
    """
    groups = len(squares)
    total = max(float(squares.sum()), stddev * math.sqrt(groups))
    usual = total * weights.positive / float(weights.positive.sum())
    between = max(float(((squares - usual) ** 2).mean()) - stddev**2, 0.0)
    kept = between / (between + stddev**2)
    shrunk = usual + kept * (squares - usual)
    error = stddev * (math.sqrt(kept) + usual / total * math.sqrt(groups))
    return np.maximum(shrunk, 0.0) + error, shrunk * groups / total


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowEstimates:
    """Means by group with their intervals, from released numbers.

    Attributes:
        weights: None for weights that are the statistic itself.
        bounds: public bounds of each column, to which means and intervals are confined.
    """

    columns: Sequence[ColumnEstimates]
    weights: GroupWeights
    accounting: Accounting
    bounds: Sequence[PartialBounds]

    @property
    def covers(self) -> str:
        return NOISE_SAMPLING_AND_CLIPPING

    def reached(self) -> NDArray[np.bool_]:
        """Return whether the passes came as far as each group, in all columns."""
        found: NDArray[np.bool_] = np.all([column.reached for column in self.columns], axis=0)
        return found

    def drawn(self) -> int:
        """Return how many groups have a mean, in some column, that is drawn toward those of other groups."""
        found = np.any([column.drawn for column in self.columns], axis=0)
        return int(found[: self.weights.groups].sum())

    def values(self) -> FloatArray:
        """Shape (groups, columns); NaN for groups without a value."""
        return self._confined([column.means for column in self.columns])

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        lows, highs = [], []
        for column in self.columns:
            width = column.clipping + half_widths(
                level,
                kind="gaussian" if self.accounting.concentrated else "laplace",
                noise_variance=column.noise_variance,
                sampling_variance=column.sampling_variance,
            )
            lows.append(column.means - width)
            highs.append(column.means + width)
        return self._confined(lows), self._confined(highs)

    def _confined(self, columns: Sequence[FloatArray]) -> FloatArray:
        confined = [
            np.clip(
                column,
                -np.inf if low is None else low,
                np.inf if high is None else high,
            )
            for column, (low, high) in zip(columns, self.bounds, strict=True)
        ]
        values = np.stack(confined, axis=1)
        values[(self.weights.shown() == 0.0) | ~self.reached()] = np.nan
        return values

    def denominators(self, level: float = DEFAULT_LEVEL) -> list[Denominator]:
        return describe_weights(self.weights, self.accounting, level)
