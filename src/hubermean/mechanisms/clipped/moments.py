"""The public grid of a column, and the integer sums that `clipped` adds noise to.

Every user adds to two or three sums: of clamped values, of weights and of squared values, all in one unit. They are
released together, because together they cost little or nothing more than the first alone: a user that moves the sum of
values as far as one user can, from one end to the other, leaves weights and squares as they were. Proof:
proofs/clipped.md, Lemmas 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.fixed_point import BLOCK
from hubermean.data.group_table import Membership, Totals
from hubermean.distributions.output import NoiseDistribution
from hubermean.types.request import Neighbors

Basis = Literal["signed", "sides", "public"]

Weights = Literal["equal", "unequal"]
"""Weights are 0 or the cap, or anything between."""


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
        centered: bool,
    ) -> Moments:
        """The parts of least expected error; `centered` says that means lie near the middle of the bounds."""
        basis = _BASES[neighbors]
        weight, square = Fraction(0), Fraction(1, 2)
        if basis == "sides":
            square = Fraction(1, 2)
            if kind == "laplace":  # here squares cost budget
                square = Fraction(1, 4) if centered else Fraction(1, 8)
        elif kind == "gaussian":
            weight, square = Fraction(basis == "signed"), Fraction(1)
        elif basis == "signed":
            # The nearer the mean is to the middle, the less weights matter. The remainder is for squares (Lemma 2).
            weight = Fraction(1, 2) if centered else Fraction(3, 4)
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
        """How far neighbors' sums lie apart at most: in 1-norm for Laplace noise, in Euclidean for Gaussian."""
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
        """The integers that noise is added to: each term's total per group, or over all users."""
        value, total, squares = Totals(membership), Totals(membership), Totals(membership)
        block = BLOCK if membership is None else membership.block
        for start in range(0, len(positions), block):
            weight = np.minimum(weights[start : start + block], self.cap)
            total.add(weight, start)
            # Below 2^46, since grids coarsen as the cap grows: so a block of 2^15 fits 64 bits.
            weight *= positions[start : start + block]
            value.add(weight, start)
            # Rounded user by user, so that no user's square depends on another's.
            square = weight.astype(np.float64)
            square *= square / (self.cap * self.half) * float(self.square_part)
            squares.add(square.astype(np.int64), start)
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

    def noise_variance(self, distribution: NoiseDistribution, share: FloatArray) -> FloatArray:
        """The variance of the mean times the weight squared, where the mean lies a share of the way to an end."""
        match self.basis:
            case "signed":
                return distribution.stddev**2 * (1.0 + (share / float(self.weight_part)) ** 2)
            case "sides":
                return distribution.stddev**2 * (1.0 + share**2) / 2.0
            case "public":
                return distribution.stddev**2 * np.ones_like(share)

    def weight_stddev(self, distribution: NoiseDistribution) -> float:
        """The standard deviation of the weight, in records."""
        match self.basis:
            case "signed":
                return distribution.stddev / self.weight_unit
            case "sides":
                return distribution.stddev / (math.sqrt(2.0) * self.half)
            case "public":
                return 0.0
