"""From the noisy sums of `clipped` to means, intervals and the total weight: post-processing of released numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.distributions.output import NoiseDistribution
from hubermean.mechanisms.clipped.moments import Moments
from hubermean.mechanisms.contributions import Grid
from hubermean.mechanisms.intervals import (
    NOISE_AND_SAMPLING,
    NOISE_SAMPLING_AND_CLIPPING,
    half_widths,
    noise_width,
)
from hubermean.types.release import DEFAULT_LEVEL, Denominator, Interval


def estimate_mean(moments: Moments, noisy: Sequence[Sequence[int]], public_weight: int | None) -> Estimates:
    """Estimates from the noisy sums of a column, term by term, of one group or of many."""
    rows = [np.array(term, dtype=np.float64) for term in noisy]
    match moments.basis:
        case "signed":
            value, weight = rows[0], rows[1] / moments.weight_unit
        case "sides":
            value, weight = (rows[0] - rows[1]) / 2.0, (rows[0] + rows[1]) / (2.0 * moments.half)
        case "public":
            value, weight = rows[0], np.full(len(rows[0]), float(public_weight or 0))
    share = np.zeros(len(value))
    np.divide(value, weight * moments.half, out=share, where=weight > 0.0)
    square_unit = float(moments.square_part / (moments.cap * moments.half))
    return Estimates(
        moments=moments, share=np.clip(share, -1.0, 1.0), weight=weight, squares=rows[-1] / square_unit
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """The released numbers of a column, one entry per group; a single entry where there are no groups.

    Attributes:
        share: where the mean lies, from -1 at the low end to 1 at the high end; 0 if the noisy weight is not positive.
        weight: the sum of weights, in records.
        squares: the sum of squared weights times squared positions.
    """

    moments: Moments
    share: FloatArray
    weight: FloatArray
    squares: FloatArray

    def mean_variance(
        self, distribution: NoiseDistribution, users: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """(of noise, of sampling): variances of the mean in squared grid units; infinite where noise exceeds the
        weight.

        Sampling is over- rather than underestimated: squares are taken one standard deviation of their noise high, and
        the weight two standard deviations low. `users` is the number of users behind the weight, if that is known.
        """
        moments = self.moments
        weight = self.weight - 2.0 * moments.weight_stddev(distribution)
        position = self.share * moments.half
        # Around the mean instead of the middle; squared weights sum to at least weight^2 / users.
        squared_weights = (
            np.zeros_like(weight)
            if users is None
            else np.minimum(self.weight**2 / np.maximum(users, 1.0), moments.cap * self.weight)
        )
        unit = moments.cap * moments.half / float(moments.square_part)
        squares = np.maximum(self.squares - position**2 * squared_weights, 0.0) + distribution.stddev * unit
        noise = moments.noise_variance(distribution, self.share)
        enough = weight > 0.0
        divisor = np.where(enough, weight, 1.0) ** 2
        return np.where(enough, noise / divisor, np.inf), np.where(enough, squares / divisor, np.inf)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ClippedInterval:
    """Values and their intervals for the mean of the population, from the noisy sums and the public noise.

    Intervals cover noise and sampling, as if user means were normal on average, and as much of the clipping as
    `cut_off` says, in users at the bounds. The level holds for each column of each group, not for all together.
    """

    grids: tuple[Grid, ...]
    distributions: tuple[NoiseDistribution, ...]
    estimates: tuple[Estimates, ...]
    users: FloatArray | None
    cut_off: tuple[tuple[float, float], ...] = ()

    @property
    def covers(self) -> str:
        return NOISE_SAMPLING_AND_CLIPPING if self.cut_off else NOISE_AND_SAMPLING

    def values(self) -> FloatArray:
        """Shape (groups, columns)."""
        columns = [grid.values(found.share) for grid, found in zip(self.grids, self.estimates, strict=True)]
        return np.stack(columns, axis=1)

    def shares(self) -> FloatArray:
        """Where the means lie within the bounds, from -1 at the low end to 1 at the high end; shape (groups,
        columns).
        """
        return np.stack([found.share for found in self.estimates], axis=1)

    def at(self, level: float) -> Interval:
        low, high = self.ends(level)
        return Interval(
            level=level, low=tuple(low[0].tolist()), high=tuple(high[0].tolist()), covers=self.covers
        )

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        """(low, high) of every group and column, shape (groups, columns); never beyond the bounds."""
        lows, highs = [], []
        cuts = self.cut_off or ((0.0, 0.0),) * len(self.grids)
        for grid, distribution, found, cut in zip(
            self.grids, self.distributions, self.estimates, cuts, strict=True
        ):
            noise, sampling = found.mean_variance(distribution, self.users)
            half = half_widths(
                level, kind=distribution.kind, noise_variance=noise, sampling_variance=sampling
            )
            below, above = (
                half / grid.half + side / np.maximum(found.weight, max(side, 1.0)) for side in cut
            )
            lows.append(grid.values(np.maximum(found.share - below, -1.0)))
            highs.append(grid.values(np.minimum(found.share + above, 1.0)))
        return np.stack(lows, axis=1), np.stack(highs, axis=1)

    def denominators(self, level: float = DEFAULT_LEVEL) -> list[Denominator]:
        """The total weight of every group, in records or users."""
        distribution, found = self.distributions[0], self.estimates[0]
        width = noise_width(level, kind=distribution.kind, stddev=found.moments.weight_stddev(distribution))
        return [
            Denominator(
                value=max(weight, 0.0),
                low=max(weight - width, 0.0),
                high=max(weight + width, 0.0),
                exact=found.moments.basis == "public",
            )
            for weight in found.weight.tolist()
        ]
