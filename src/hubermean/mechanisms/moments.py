"""What users add to the sums of `clipped`: clamped values, weights and squared values, all in one unit.

The three are released together, because together they cost little or nothing more than the first alone: a user that
moves a sum of values as far as one user can, from one end to the other, leaves weights and squares as they were.
Proof: proofs/clipped.md, Lemmas 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hubermean.exact.adding import Membership, Totals
from hubermean.exact.sums import BLOCK
from hubermean.noise import NoiseLaw
from hubermean.relations import Neighbors

IntArray = NDArray[np.int64]
Floats = NDArray[np.float64]
Basis = Literal["signed", "sides", "public"]

Weights = Literal["equal", "unequal"]
"""Weights are 0 or the cap; or anything between."""

HALF_MULTIPLE = 16
"""Half widths are multiples of this, so that every part of one is a whole number."""

_BASES: dict[Neighbors, Basis] = {
    Neighbors.REPLACE_USER: "signed",
    Neighbors.ADD_REMOVE: "sides",
    Neighbors.REPLACE_VALUES: "public",
}
_ROUNDING = 4  # grid units by which rounded positions and squares of two users may be off


@dataclass(frozen=True, kw_only=True)
class Moments:
    """How one column's users are summed, in public numbers.

    A user has a weight a in [0, cap] and a position x in [-half, half]. By basis:

    - "signed" (`replace-user`): a x, a `weight_unit`, and the square;
    - "sides" (`add-remove`): a (half + x), a (half - x), and the square;
    - "public" (`replace-values`, where weights are public): a x and the square.

    The square is `square_part` (a x)^2 / (cap half), rounded down.
    """

    basis: Basis
    kind: Literal["laplace", "gaussian"]
    half: int
    cap: int
    weight_part: Fraction
    square_part: Fraction

    @classmethod
    def of(
        cls,
        neighbors: Neighbors,
        kind: Literal["laplace", "gaussian"],
        *,
        half: int,
        cap: int,
        weights: Weights,
        centred: bool,
    ) -> Moments:
        """The parts that serve best; `centred` says that means lie near 0."""
        basis = _BASES[neighbors]
        weight, square = Fraction(0), Fraction(1, 2)
        if basis == "sides":
            square = Fraction(1, 2)
            if kind == "laplace":  # here squares have a price
                square = Fraction(1, 4) if centred else Fraction(1, 8)
        elif kind == "gaussian":
            weight, square = Fraction(basis == "signed"), Fraction(1)
        elif basis == "signed":
            # Weights matter the less, the nearer the mean is to the middle. What is left for squares: Lemma 2.
            weight = Fraction(1, 2) if centred else Fraction(3, 4)
            square = (1 - weight) / (1 if weights == "equal" else 2)
        return cls(basis=basis, kind=kind, half=half, cap=cap, weight_part=weight, square_part=square)

    @property
    def weight_unit(self) -> int:
        """What one record adds to the sum of weights."""
        return int(self.weight_part * self.half)

    @property
    def terms(self) -> int:
        """How many sums there are."""
        return 2 if self.basis == "public" else 3

    def sensitivity(self) -> int:
        """How far neighbours' sums lie apart at most: in 1-norm for Laplace noise, in Euclidean for Gaussian."""
        full = self.cap * self.half
        if self.basis != "sides":
            return 2 * full + _ROUNDING
        if self.kind == "laplace":
            return int((2 + self.square_part) * full) + _ROUNDING
        squared = (4 + self.square_part**2) * full**2
        return math.isqrt(math.ceil(squared)) + 1 + _ROUNDING

    def sums(
        self, positions: IntArray, weights: IntArray, membership: Membership | None = None
    ) -> list[list[int]]:
        """The integers that noise is added to: for each term its total in every group, or in all together."""
        value, total, squares = Totals(membership), Totals(membership), Totals(membership)
        block = BLOCK if membership is None else membership.block
        for start in range(0, len(positions), block):
            weight = np.minimum(weights[start : start + block], self.cap)
            total.add(weight, start)
            # Below 2^46, since grids coarsen as the cap grows: so a block of 2^15 fits 64 bits.
            weight *= positions[start : start + block]
            value.add(weight, start)
            # Rounded user by user, so that nobody's square depends on another's.
            pull = weight.astype(np.float64)
            pull *= pull / (self.cap * self.half) * float(self.square_part)
            squares.add(pull.astype(np.int64), start)
        values, totals = value.integers(), total.integers()
        match self.basis:
            case "signed":
                return [values, [self.weight_unit * one for one in totals], squares.integers()]
            case "sides":
                pairs = list(zip(totals, values, strict=True))
                upper = [self.half * total + value for total, value in pairs]
                lower = [self.half * total - value for total, value in pairs]
                return [upper, lower, squares.integers()]
            case "public":
                return [values, squares.integers()]

    def estimates(self, noisy: Sequence[Sequence[int]], public_weight: int | None) -> Estimates:
        """What noisy sums say, term by term, of one group or of many."""
        rows = [np.array(term, dtype=np.float64) for term in noisy]
        match self.basis:
            case "signed":
                value, weight = rows[0], rows[1] / self.weight_unit
            case "sides":
                value, weight = (rows[0] - rows[1]) / 2.0, (rows[0] + rows[1]) / (2.0 * self.half)
            case "public":
                value, weight = rows[0], np.full(len(rows[0]), float(public_weight or 0))
        share = np.zeros(len(value))
        np.divide(value, weight * self.half, out=share, where=weight > 0.0)
        square_unit = float(self.square_part / (self.cap * self.half))
        return Estimates(
            moments=self, share=np.clip(share, -1.0, 1.0), weight=weight, squares=rows[-1] / square_unit
        )

    def noise_variance(self, law: NoiseLaw, share: Floats) -> Floats:
        """The variance of the mean times the weight squared, where the mean lies a share of the way to an end."""
        match self.basis:
            case "signed":
                return law.stddev**2 * (1.0 + (share / float(self.weight_part)) ** 2)
            case "sides":
                return law.stddev**2 * (1.0 + share**2) / 2.0
            case "public":
                return law.stddev**2 * np.ones_like(share)

    def weight_stddev(self, law: NoiseLaw) -> float:
        """The standard deviation of the weight, in records."""
        match self.basis:
            case "signed":
                return law.stddev / self.weight_unit
            case "sides":
                return law.stddev / (math.sqrt(2.0) * self.half)
            case "public":
                return 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """What was released of a column, one entry per group; one alone where there are no groups.

    Attributes:
        share: where the mean lies, from -1 at the low end to 1 at the high end; 0 if noise drowned the weight.
        weight: the sum of weights, in records.
        squares: the sum of squared weights times squared positions.
    """

    moments: Moments
    share: Floats
    weight: Floats
    squares: Floats

    def mean_variance(self, law: NoiseLaw, users: Floats | None) -> tuple[Floats, Floats]:
        """(of noise, of sampling): variances of the mean in squared grid units; infinite where noise drowned all.

        Sampling is rather over- than underestimated: squares are taken one standard deviation of their noise high,
        and the weight two standard deviations low. `users` is how many stand behind the weight, if that is known.
        """
        moments = self.moments
        weight = self.weight - 2.0 * moments.weight_stddev(law)
        position = self.share * moments.half
        # Around the mean in place of the middle; squared weights sum to at least weight^2 / users.
        squared_weights = (
            np.zeros_like(weight)
            if users is None
            else np.minimum(self.weight**2 / np.maximum(users, 1.0), moments.cap * self.weight)
        )
        unit = moments.cap * moments.half / float(moments.square_part)
        squares = np.maximum(self.squares - position**2 * squared_weights, 0.0) + law.stddev * unit
        noise = moments.noise_variance(law, self.share)
        enough = weight > 0.0
        divisor = np.where(enough, weight, 1.0) ** 2
        return np.where(enough, noise / divisor, np.inf), np.where(enough, squares / divisor, np.inf)
