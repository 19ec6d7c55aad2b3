"""`clipped`: the mean with bounds given by the caller, exact from the first record on.

User means are rounded to a public grid and clamped to the bounds; each user adds to two integer sums, "how
far above the low bound" and "how far below the high bound", weighted by its capped number of records; integer
noise is added to both; the ratio gives the mean. Proof: proofs/clipped.md.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError, is_real
from hubermean.exact import rounded_means
from hubermean.exact.sums import BLOCK
from hubermean.laws import NoisySum
from hubermean.mechanisms.protocol import Bounds, Column, Known, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.weights import check_cap, planned_weight, weighing_counts, weight_cap
from hubermean.noise import LARGEST_SCALE, NoiseLaw
from hubermean.privacy import discrete_gaussian_sigma, laplace_scale
from hubermean.relations import Neighbors
from hubermean.release import Interval
from hubermean.user_table import UserTable

_FINEST_GRID_BITS = 32
_COARSEST_GRID_BITS = 12
_NOISE_BITS = 44  # the grid is chosen so that the noise scale stays below 2^46 grid units


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """The clipped mean.

    Args:
        bounds: (low, high) for all columns, or one pair per column; user means are clamped to them.
        record_cap: the largest number of records a user counts for; for `per="record"`. Under
            `replace-values`, where counts are public, it may be left out.

    Formal guarantees:
    - epsilon-DP for delta = 0 (discrete Laplace noise), (epsilon, delta)-DP otherwise, for the neighbour
      relation of the request (proofs/clipped.md, Theorem 1);
    - a user without usable records has weight zero where counts are private; under `replace-values`, where
      weights are public, it stands at the midpoint of the bounds.
    """

    bounds: Bounds | Sequence[Bounds]
    record_cap: int | None = None
    name = "clipped"

    def __post_init__(self) -> None:
        for low, high in self._pairs(None):
            if not (math.isfinite(low) and math.isfinite(high)):
                raise InputError("bounds must be two finite numbers, low and high")
            if not low < high:
                raise InputError(f"bounds must be (low, high) with low < high, not ({low!r}, {high!r})")

    def _pairs(self, dimension: int | None) -> list[Bounds]:
        """The bounds of each column."""
        given: Any = self.bounds
        try:
            if all(is_real(bound) for bound in given):
                low, high = given
                return [(float(low), float(high))] * (dimension or 1)
            pairs = [(float(low), float(high)) for low, high in given]
        except (TypeError, ValueError, OverflowError):
            raise InputError("bounds must be (low, high), or one such pair per column") from None
        if not pairs or (dimension is not None and len(pairs) != dimension):
            raise InputError(
                f"there are {len(pairs)} pairs of bounds for {dimension} columns; give one per column"
            )
        return pairs

    @classmethod
    def from_known(cls, known: Known) -> Clipped:
        known.only("bounds", "record_cap", of=cls.name)
        if known.bounds is None:
            raise InputError("give bounds=(low, high), public limits that user means are clamped to")
        return cls(bounds=known.bounds, record_cap=known.record_cap)

    def check(self, request: Request) -> None:
        self._pairs(len(request.columns))
        check_cap(self.record_cap, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedClipped:
        self.check(request)
        cap = weight_cap(self.record_cap, request, facts)
        pairs = self._pairs(len(request.columns))
        grids = tuple(
            Grid.choose(bounds, column, noise_factor=_noise_factor(cap, request))
            for bounds, column in zip(pairs, facts.columns, strict=True)
        )
        laws = _noise_laws([grid.levels for grid in grids], cap, request)
        total_weight = None
        if facts.record_counts is not None:
            total_weight = _weighted_sum(None, facts.record_counts, cap)
        return PreparedClipped(
            request=request,
            cap=cap,
            grids=grids,
            laws=laws,
            total_weight=total_weight,
            planned_weight=planned_weight(request, facts, cap),
        )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The public grid of a column: multiples of 2^exponent from low to high, which are whole numbers."""

    exponent: int
    low: int
    high: int

    @property
    def levels(self) -> int:
        return self.high - self.low

    @property
    def spacing(self) -> Fraction:
        return Fraction(2) ** self.exponent

    def value(self, share: Fraction) -> float:
        """The value at a share of the way from low to high."""
        return float((self.low + share * self.levels) * self.spacing)

    @classmethod
    def choose(cls, bounds: Bounds, column: Column, *, noise_factor: float) -> Grid:
        """Bounds snapped outward to a grid fine enough not to matter beside the noise."""
        low, high = Fraction(bounds[0]), Fraction(bounds[1])
        if max(abs(low), abs(high)) > column.limit:
            raise InputError(
                f"bounds of {column.name!r} reach beyond {float(column.limit):g}, the largest value its numbers are "
                "read with; give resolution= (a coarser step) or narrower bounds"
            )
        bits = min(
            max(_NOISE_BITS - math.ceil(math.log2(noise_factor)), _COARSEST_GRID_BITS), _FINEST_GRID_BITS
        )
        exponent = math.floor(math.log2(high - low)) - bits
        # Grid numbers stay within 61 bits, and nothing is finer than what ingest keeps.
        exponent = max(exponent, math.ceil(math.log2(max(abs(low), abs(high)))) - 60, -60)
        spacing = Fraction(2) ** exponent
        grid = cls(exponent=exponent, low=math.floor(low / spacing), high=math.ceil(high / spacing))
        if grid.levels < 2**_COARSEST_GRID_BITS:
            raise InputError(f"bounds of {column.name!r} are too close together for their size; widen them")
        return grid


@dataclass(frozen=True, kw_only=True)
class PreparedClipped(Prepared):
    """The clipped mean with grid, cap and noise decided.

    `total_weight` is the public sum of weights, if any; `planned_weight` the sum to expect, for predictions alone.
    """

    request: Request
    cap: int
    grids: tuple[Grid, ...]
    laws: tuple[NoiseLaw, ...]
    total_weight: int | None
    planned_weight: float

    def predicted_noise(self) -> tuple[float, ...]:
        """Noise of the sums over the planned weight; never more than half the width of the bounds."""
        # A share of two noisy sums: with a mean at share p of the way, the variance is p^2 + (1 - p)^2 times that of
        # one sum; on average over p that is 2/3.
        terms = 1.0 if self.total_weight is not None else 2.0 / 3.0
        return tuple(
            float(grid.spacing) * min(law.stddev * math.sqrt(terms) / self.planned_weight, grid.levels / 2.0)
            for grid, law in zip(self.grids, self.laws, strict=True)
        )

    def statistic(self, table: UserTable) -> list[int]:
        """The integers that noise is added to: per column one sum, or two where weights are private."""
        sums: list[int] = []
        for grid, column in zip(self.grids, table.sums, strict=True):
            position = rounded_means(
                column, table.counts, exponent=grid.exponent, low=grid.low, high=grid.high
            )
            position -= grid.low
            counts = weighing_counts(table, self.request)
            if self.total_weight is not None:
                position[table.counts == 0] = grid.levels // 2
                sums.append(_weighted_sum(position, counts, self.cap))
            else:
                above = _weighted_sum(position, counts, self.cap)
                sums += [above, _weighted_sum(None, counts, self.cap) * grid.levels - above]
        return sums

    def law(self, table: UserTable) -> NoisySum:
        exact = self.statistic(table)
        per_column = len(exact) // len(self.grids)
        return NoisySum(position=exact, noise=[law for law in self.laws for _ in range(per_column)])

    def outcome(self, draw: Sequence[int]) -> Outcome:
        """From noisy sums to values and intervals."""
        per_column = len(draw) // len(self.grids)
        noisy = tuple(tuple(draw[start : start + per_column]) for start in range(0, len(draw), per_column))
        rule = NoiseInterval(grids=self.grids, laws=self.laws, noisy=noisy, weight=self.total_weight)
        values = tuple(rule.share_to_value(position, 0.0, 0.0) for position in range(len(self.grids)))
        return Outcome(values=values, parameters=self._parameters(), interval_rule=rule)

    def _parameters(self) -> dict[str, Any]:
        bounds = [(float(grid.low * grid.spacing), float(grid.high * grid.spacing)) for grid in self.grids]
        scales = [law.scale * float(grid.spacing) for law, grid in zip(self.laws, self.grids, strict=True)]
        parameters: dict[str, Any] = {
            "bounds": list(bounds[0]) if len(bounds) == 1 else [list(b) for b in bounds]
        }
        if self.request.per == "record":
            parameters["record_cap"] = self.cap
        parameters["noise"] = (
            f"{self.laws[0].name} on {'the sum' if self.total_weight is not None else 'two sums'}"
        )
        parameters["noise_scale_of_sum"] = scales[0] if len(scales) == 1 else scales
        return parameters


@dataclass(frozen=True, kw_only=True)
class NoiseInterval:
    """An interval for the mean of the clamped data, from the noisy sums and the public noise law.

    With probability at least `level` every noise term of a column stays within its bound; the mean rises with
    the sum above and falls with the sum below, so the corners of that box bound it. Clamping and sampling
    are not covered.
    """

    grids: tuple[Grid, ...]
    laws: tuple[NoiseLaw, ...]
    noisy: tuple[tuple[int, ...], ...]
    weight: int | None

    def at(self, level: float) -> Interval:
        low, high = [], []
        for position, law in enumerate(self.laws):
            # All terms stay within a bound that each exceeds with probability 1 - level^(1 / terms).
            bound = law.bound(tail=-math.expm1(math.log(level) / len(self.noisy[position])))
            low.append(self.share_to_value(position, -bound, bound))
            high.append(self.share_to_value(position, bound, -bound))
        return Interval(level=level, low=tuple(low), high=tuple(high), covers="noise only")

    def share_to_value(self, position: int, shift_above: float, shift_below: float) -> float:
        """The mean after moving the noisy sums; the midpoint where noise drowned the total weight."""
        grid = self.grids[position]
        above = max(Fraction(self.noisy[position][0]) + Fraction(shift_above), Fraction(0))
        if self.weight is not None:
            total = Fraction(self.weight * grid.levels)
        else:
            below = max(Fraction(self.noisy[position][1]) + Fraction(shift_below), Fraction(0))
            total = above + below
        share = above / total if total > 0 else Fraction(1, 2)
        return grid.value(min(share, Fraction(1)))


def _sensitivity_factor(neighbors: Neighbors) -> int:
    """How many full user contributions differ between neighbours (proofs/clipped.md, Lemma 2)."""
    return 2 if neighbors is Neighbors.REPLACE_USER else 1


def _noise_factor(cap: int, request: Request) -> float:
    return _sensitivity_factor(request.neighbors) * cap * len(request.columns) / min(request.epsilon, 1.0)


def _noise_laws(levels: Sequence[int], cap: int, request: Request) -> tuple[NoiseLaw, ...]:
    """A law per column, all of one kind: the less noisy by public scales (proofs/clipped.md, Theorem 1)."""
    laplace = tuple(_laplace(width, cap, request) for width in levels)
    kinds = [laplace]
    if request.delta > 0.0:
        # So large an epsilon that Gaussian noise would be finer than the grid needs no Gaussian.
        with contextlib.suppress(InputError):
            kinds.append(tuple(_gaussian(width, cap, request) for width in levels))
    chosen = min(
        kinds, key=lambda laws: sum(law.stddev / width for law, width in zip(laws, levels, strict=True))
    )
    if max(law.scale for law in chosen) > LARGEST_SCALE:
        raise InputError("epsilon is too small for this record_cap; raise epsilon or lower record_cap")
    return chosen


def _laplace(levels: int, cap: int, request: Request) -> NoiseLaw:
    sensitivity = _sensitivity_factor(request.neighbors) * cap * levels * len(request.columns)
    return NoiseLaw(kind="laplace", scale=laplace_scale(request.epsilon, sensitivity=sensitivity))


def _gaussian(levels: int, cap: int, request: Request) -> NoiseLaw:
    dimension = len(request.columns)
    squared = _sensitivity_factor(request.neighbors) * dimension * (cap * levels) ** 2
    sigma = discrete_gaussian_sigma(
        request.epsilon,
        request.delta,
        sensitivity=math.isqrt(squared - 1) + 1,
        dimension=dimension if request.neighbors.counts_are_public else 2 * dimension,
    )
    return NoiseLaw(kind="gaussian", scale=sigma)


def _weighted_sum(position: NDArray[np.int64] | None, counts: NDArray[np.int64], cap: int) -> int:
    """sum(min(counts, cap) * position) as a Python integer; without positions, the sum of weights.

    A product is below 2^46, since the grid coarsens as the cap grows, so a block of 2^15 fits 64 bits.
    """
    total = 0
    for start in range(0, len(counts), BLOCK):
        weights = np.minimum(counts[start : start + BLOCK], cap)
        if position is not None:
            weights *= position[start : start + BLOCK]
        total += int(weights.sum())
    return total
