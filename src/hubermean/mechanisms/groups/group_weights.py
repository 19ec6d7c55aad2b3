"""The noisy weights of groups, which groups they show, and what they may be: post-processing of released numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hubermean.data.arrays import FloatArray
from hubermean.mechanisms.groups.row_queries import Accounting
from hubermean.mechanisms.intervals import noise_width
from hubermean.types.release import DEFAULT_LEVEL, Denominator

NoiseKind = Literal["laplace", "gaussian"]
SEEN = 2.0
"""Standard deviations of the noise in a group's weight that it must exceed for the group to stand for itself."""
_FALSELY_SEEN = 0.05  # of the groups that are seen: noise alone may show so many, where groups are many
_LEAST_SEEN = 3  # groups that show what the others are like


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupWeights:
    """The noisy weight of each group.

    Attributes:
        values: one per group, then one per total; records, or users.
        stddev: of the noise in a group.
        missed: about how much weight clipping took off a group of average size.
        noise: the standard deviation of the noise in each value.
        groups: how many of the values are of groups.
        kind: of the noise.
        inhabited: whether users are known to be in groups that are not seen.
    """

    values: FloatArray
    stddev: float
    missed: float
    noise: FloatArray
    groups: int
    kind: NoiseKind
    inhabited: bool = False

    @classmethod
    def of_groups(
        cls,
        values: FloatArray,
        *,
        stddev: float,
        missed: float,
        kind: NoiseKind = "gaussian",
        inhabited: bool = False,
    ) -> GroupWeights:
        return cls(
            values=values,
            stddev=stddev,
            missed=missed,
            noise=np.full(len(values), stddev),
            groups=len(values),
            kind=kind,
            inhabited=inhabited,
        )

    @property
    def positive(self) -> FloatArray:
        """The weights to divide by: at least as large as the noise."""
        return np.maximum(self.values, self.stddev)

    @property
    def total(self) -> float:
        return max(float(self.values[: self.groups].sum()), self.stddev, 1.0)

    @property
    def shares(self) -> FloatArray:
        """The size of each group beside the average, for what users beyond a bound take off; at least 1."""
        return np.maximum(self.positive * self.groups / self.total, 1.0)

    def blur(self, shift: FloatArray) -> FloatArray:
        """Return the standard deviation of a mean so far from where sums were centered, for noise in the weight."""
        return np.abs(shift) * self.stddev / self.positive

    def seen(self) -> FloatArray:
        """Return whether each group has more weight than noise alone would usually show, as 0 or 1."""
        return (self.values > SEEN * self.noise).astype(np.float64)

    def surely_seen(self) -> FloatArray:
        """Return whether each group has more weight than noise would show of any of so many, as 0 or 1.

        Among many groups noise alone shows some: the limit is raised until no more than `_FALSELY_SEEN` of those beyond
        it are expected to be such (Benjamini & Hochberg 1995).
        """
        standard = self.values / self.noise
        by_size = np.sort(standard[: self.groups])[::-1]
        by_chance = self.groups * _tail(by_size, self.kind)
        fits = np.flatnonzero(by_chance <= _FALSELY_SEEN * np.arange(1, self.groups + 1))
        least = by_size[fits[-1]] if len(fits) else math.inf
        return ((standard > SEEN) & (standard >= least)).astype(np.float64)

    def shown(self) -> FloatArray:
        """Return which groups have a value, as 0 or 1.

        Those that are seen; and the others, if enough are seen to go by, or if they are seen all together.
        """
        seen = self.surely_seen()
        others = self.values[: self.groups][seen[: self.groups] == 0.0]
        together = float(others.sum()) > SEEN * self.stddev * math.sqrt(len(others))
        enough = seen[: self.groups].sum() >= _LEAST_SEEN or (len(others) > 1 and together) or self.inhabited
        return np.ones_like(seen) if enough else seen


def describe_weights(
    weights: GroupWeights, accounting: Accounting, level: float = DEFAULT_LEVEL
) -> list[Denominator]:
    """Return the weight of each group with its interval; clipping can only have made it smaller."""
    kind = "gaussian" if accounting.concentrated else "laplace"
    width = noise_width(level, kind=kind, stddev=1.0)  # type: ignore[arg-type]
    missed = weights.missed * weights.shares
    return [
        Denominator(
            value=max(value, 0.0),
            low=max(value - width * stddev, 0.0),
            high=max(value + width * stddev + more, 0.0),
            exact=False,
        )
        for value, stddev, more in zip(
            weights.values.tolist(), weights.noise.tolist(), missed.tolist(), strict=True
        )
    ]


def _tail(standard: FloatArray, kind: NoiseKind) -> FloatArray:
    """Return the probability that noise exceeds so many of its standard deviations."""
    if kind == "laplace":
        upper: FloatArray = 0.5 * np.exp(-math.sqrt(2.0) * np.maximum(standard, 0.0))
    else:
        upper = 0.5 * np.array([math.erfc(one / math.sqrt(2.0)) for one in standard.tolist()])
    return upper
