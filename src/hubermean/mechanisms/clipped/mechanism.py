"""The mechanism `clipped`: public parameters, sums and noise, in integers from the first record on.

User means are rounded to a public grid and clamped to the bounds. Each user adds to a few integer sums (`moments`): its
value, its capped number of records, its squared value. Integer noise is added to all of them; the ratio of the
first two is the mean, and the squares give an interval (`estimates`). Proof: proofs/clipped.md.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from hubermean.accounting.arguments import is_real
from hubermean.accounting.budget import THE_MEAN, Claim
from hubermean.accounting.concentrated import concentrated_sigma, largest_rho
from hubermean.accounting.discrete import discrete_gaussian_sigmas, laplace_scale
from hubermean.data.arrays import FloatArray
from hubermean.data.fixed_point import round_means
from hubermean.data.group_table import Membership
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributed.queries import sum_over_partitions
from hubermean.distributions.output import NoiseDistribution, NoisySum
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.mechanisms.clipped.estimates import ClippedInterval, Estimates, estimate_mean
from hubermean.mechanisms.clipped.moments import Moments, Weights
from hubermean.mechanisms.contributions import (
    Grid,
    check_max_records,
    countable_records,
    expected_weight,
    find_weight_cap,
)
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.types.options import Bounds, PartialBounds, PublicParameters
from hubermean.types.request import PublicFacts, Request


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """The clipped mean.

    Args:
        bounds: (low, high) for all columns, or one pair per column, in units of the values; user means are clamped to
            them. Public.
        max_records: the contribution bound, the largest number of records a user counts for, with `per="record"`.
            Under `replace-values`, where counts are public, it may be left out.
        centered: whether the mean is known to lie near the middle of the bounds; affects accuracy alone.
        cut_off: for bounds that were estimated, one pair per column: how much clipping may remove in all at the low
            and at the high bound, in multiples of their distance from the middle, for the interval to cover it.
        changes: how many times one user can be added or removed: more than once where users are in several groups. The
            noise grows accordingly; see `hubermean.mechanisms.groups`.
        rho: a concentrated budget within (epsilon, delta), from a caller that composes releases. The noise is then
            Gaussian and the release rho-zCDP.

    Formal guarantees:
    - epsilon-DP for delta = 0 (discrete Laplace noise), (epsilon, delta)-DP otherwise, for the neighbor
      relation of the request (proofs/clipped.md, Theorem 1).

    | edge case | what happens |
    |---|---|
    | a user without usable records | weight zero; under `replace-values` it counts as the midpoint of the bounds |
    | no users | a value within the bounds, determined by noise alone |
    | a noisy weight of zero or less | the midpoint of the bounds |
    """

    bounds: PartialBounds | Sequence[PartialBounds]
    max_records: int | None = None
    centered: bool = False
    cut_off: tuple[tuple[float, float], ...] = ()
    changes: int = 1
    rho: float | None = None
    name = "clipped"

    def __post_init__(self) -> None:
        for low, high in self._pairs(None):
            if not (math.isfinite(low) and math.isfinite(high)):
                raise InputError(f"{parameter('bounds')} must be two finite numbers, low and high")
            if not low < high:
                raise InputError(
                    f"{parameter('bounds')} must be (low, high) with low < high, not ({low!r}, {high!r})"
                )

    def _pairs(self, dimension: int | None) -> list[Bounds]:
        """The bounds of each column."""
        given: Any = self.bounds
        try:
            if all(is_real(bound) for bound in given):
                low, high = given
                return [(float(low), float(high))] * (dimension or 1)
            pairs = [(float(low), float(high)) for low, high in given]
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{parameter('bounds')} must be (low, high), or one such pair per column"
            ) from None
        if not pairs or (dimension is not None and len(pairs) != dimension):
            raise InputError(
                f"there are {len(pairs)} pairs of bounds for {dimension} columns; give one per column"
            )
        return pairs

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> Clipped:
        known.check_only("bounds", "max_records", of=cls.name)
        if known.bounds is None:
            raise InputError(
                f"give {parameter('bounds')} (low, high), public limits that user means are clipped to"
            )
        return cls(bounds=known.bounds, max_records=known.max_records)

    def check(self, request: Request) -> None:
        self._pairs(len(request.columns))
        check_max_records(self.max_records, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedClipped:
        self.check(request)
        if self.rho is not None and (
            request.delta == 0.0 or self.rho > largest_rho(request.epsilon, request.delta)
        ):
            raise InputError("rho is larger than epsilon and delta allow; lower it or leave it out")
        cap = find_weight_cap(self.max_records, request, facts)
        pairs = self._pairs(len(request.columns))
        grids = tuple(
            Grid.choose(
                bounds,
                column,
                noise_factor=cap * len(request.columns) * self.changes / min(request.epsilon, 1.0),
            )
            for bounds, column in zip(pairs, facts.columns, strict=True)
        )
        moments, distributions = self._noise(grids, cap, request)
        total_weight = None
        if facts.record_counts is not None:
            total_weight = sum(np.minimum(facts.record_counts, cap).tolist())
        return PreparedClipped(
            request=request,
            cap=cap,
            grids=grids,
            moments=moments,
            distributions=distributions,
            centered=self.centered,
            cut_off=self.cut_off,
            n_users=facts.n_users,
            total_weight=total_weight,
            planned_weight=expected_weight(request, facts, cap),
            changes=self.changes,
            rho=self.rho,
        )

    def _weights(self, request: Request) -> Weights:
        return "equal" if request.per == "user" else "unequal"

    def _noise(
        self, grids: Sequence[Grid], cap: int, request: Request
    ) -> tuple[tuple[Moments, ...], tuple[NoiseDistribution, ...]]:
        """Sums and noise per column, all of the kind with the smaller public scales (proofs/clipped.md, Theorem 1)."""
        kinds: list[tuple[tuple[Moments, ...], tuple[NoiseDistribution, ...]]] = []
        for kind in self._kinds(request):
            moments = tuple(
                Moments.of(
                    request.neighbors,
                    kind,
                    half=grid.half,
                    cap=cap,
                    weights=self._weights(request),
                    centered=self.centered,
                )
                for grid in grids
            )
            # For an epsilon so large that Gaussian noise would be finer than the grid, Laplace noise is enough.
            with contextlib.suppress(InputError) if len(kinds) > 0 else contextlib.nullcontext():
                kinds.append((moments, self._distributions(moments, request)))
        chosen = min(kinds, key=lambda made: sum(_relative_noise(*pair) for pair in zip(*made, strict=True)))
        if max(distribution.scale for distribution in chosen[1]) > LARGEST_SCALE:
            raise InputError(
                f"{parameter('epsilon')} is too small for this {parameter('max_records')}; raise epsilon "
                f"or lower {parameter('max_records')}"
            )
        return chosen

    def _kinds(self, request: Request) -> tuple[Literal["laplace", "gaussian"], ...]:
        if self.rho is not None:
            return ("gaussian",)
        return ("laplace", "gaussian") if request.delta > 0.0 else ("laplace",)

    def _distributions(self, moments: Sequence[Moments], request: Request) -> tuple[NoiseDistribution, ...]:
        """The noise on each sum, column by column."""
        # In 1-norm changes add up; in Euclidean norm their squares do (proofs/groups.md, Lemma 2).
        columns = len(moments) * self.changes
        if moments[0].kind == "laplace":
            sensitivities = [columns * one.sensitivity() for one in moments]
            scales = [laplace_scale(request.epsilon, sensitivity=one) for one in sensitivities]
            return tuple(NoiseDistribution(kind="laplace", scale=scale) for scale in scales)
        squared = [columns * one.sensitivity() ** 2 for one in moments]
        if self.rho is not None:
            sigmas = [concentrated_sigma(self.rho, squared_sensitivity=one) for one in squared]
        else:
            sigmas = discrete_gaussian_sigmas(
                request.epsilon,
                request.delta,
                sensitivities=[math.isqrt(one - 1) + 1 for one in squared],
                dimension=columns * moments[0].terms,
            )
        return tuple(NoiseDistribution(kind="gaussian", scale=sigma) for sigma in sigmas)


def _relative_noise(moments: Moments, distribution: NoiseDistribution) -> float:
    return _noise_at(moments, distribution, 0.5) / moments.half


def _noise_at(moments: Moments, distribution: NoiseDistribution, share: float) -> float:
    """The standard deviation of the mean times the weight, at a share of the way to an end."""
    return math.sqrt(float(moments.noise_variance(distribution, np.array([share]))[0]))


@dataclass(frozen=True, kw_only=True)
class PreparedClipped(Prepared):
    """The clipped mean with grid, contribution bound, sums and noise decided.

    Attributes:
        cap: the largest weight of a user.
        total_weight: the public sum of weights, if any.
        planned_weight: the sum of weights to expect, for predictions alone.
        n_users: the public number of users, if any.
    """

    request: Request
    cap: int
    grids: tuple[Grid, ...]
    moments: tuple[Moments, ...]
    distributions: tuple[NoiseDistribution, ...]
    centered: bool
    cut_off: tuple[tuple[float, float], ...]
    n_users: int | None
    total_weight: int | None
    planned_weight: float
    changes: int = 1
    rho: float | None = None

    def concentrated(self) -> Fraction | None:
        """The rho of Gaussian noise, summed over coordinates (Canonne, Kamath & Steinke 2020, Thm. 14)."""
        if any(distribution.kind != "gaussian" for distribution in self.distributions):
            return None
        pairs = zip(self.moments, self.distributions, strict=True)
        return sum(
            (
                self.changes * one.sensitivity() ** 2 / (2 * Fraction(distribution.scale) ** 2)
                for one, distribution in pairs
            ),
            Fraction(0),
        )

    def predicted_noise(self) -> tuple[float, ...]:
        """Noise over the planned weight; never more than half the width of the bounds."""
        # A mean anywhere within the bounds has a squared share of 1/3 on average; one near the middle hardly any.
        share = 1.0 / 16.0 if self.centered else math.sqrt(1.0 / 3.0)
        return tuple(
            float(grid.spacing)
            * min(_noise_at(moments, distribution, share) / self.planned_weight, grid.half)
            for grid, moments, distribution in zip(self.grids, self.moments, self.distributions, strict=True)
        )

    def statistic(self, table: UserTable, membership: Membership | None = None) -> list[list[int]]:
        """The integers that noise is added to: by column and term, one per group or one in all."""
        sums: list[list[int]] = []
        weights = countable_records(table, self.request)
        for grid, moments, column in zip(self.grids, self.moments, table.sums, strict=True):
            position = round_means(column, table.counts, exponent=grid.exponent, low=grid.low, high=grid.high)
            position -= grid.middle
            # A user without usable records is put in the middle: with no weight, or with its public weight.
            if not table.counts.all():
                position[table.counts == 0] = 0
            sums += moments.sums(position, weights, membership)
        return sums

    def distribution(self, table: PrivateTable) -> NoisySum:
        return self.noisy(sum_over_partitions(table, self.statistic))

    def noisy(self, sums: Sequence[Sequence[int]]) -> NoisySum:
        """The output distribution for the sums of `statistic`, concatenated."""
        distributions = [
            distribution
            for moments, distribution in zip(self.moments, self.distributions, strict=True)
            for _ in range(moments.terms)
        ]
        noise = [distribution for distribution, term in zip(distributions, sums, strict=True) for _ in term]
        return NoisySum(position=[one for term in sums for one in term], noise=noise, claim=self.claim)

    @property
    def claim(self) -> Claim:
        """What the sums of all groups cost together."""
        if self.rho is not None:
            return Claim(what=THE_MEAN, rho=self.rho)
        return Claim(what=THE_MEAN, epsilon=self.request.epsilon, delta=self.request.delta)

    def outcome(self, sample: Sequence[int]) -> Outcome:
        """From noisy sums to values and intervals."""
        found = self.estimate(sample)
        values = tuple(found.values()[0].tolist())
        (denominator,) = found.denominators()
        return Outcome(
            values=values, parameters=self.parameters(), interval_rule=found, denominator=denominator
        )

    def estimate(self, sample: Sequence[int], groups: int = 1) -> ClippedInterval:
        """The estimates and intervals of every group, from concatenated noisy sums."""
        terms = [sample[start : start + groups] for start in range(0, len(sample), groups)] if groups else []
        estimates, start = [], 0
        for moments in self.moments:
            own = terms[start : start + moments.terms] if groups else [[]] * moments.terms
            estimates.append(estimate_mean(moments, own, self.total_weight))
            start += moments.terms
        return ClippedInterval(
            grids=self.grids,
            distributions=self.distributions,
            estimates=tuple(estimates),
            users=self._users(estimates[0]),
            cut_off=tuple((self.cap * below, self.cap * above) for below, above in self.cut_off),
        )

    def _users(self, estimates: Estimates) -> FloatArray | None:
        """The number of users behind the weight, if that is public or released."""
        if self.request.per == "user":
            return estimates.weight
        return None if self.n_users is None else np.full(len(estimates.weight), float(self.n_users))

    def parameters(self) -> dict[str, Any]:
        """Public numbers for the release."""
        bounds = [[float(grid.low * grid.spacing), float(grid.high * grid.spacing)] for grid in self.grids]
        scales = [
            distribution.scale * float(grid.spacing)
            for distribution, grid in zip(self.distributions, self.grids, strict=True)
        ]
        parameters: dict[str, Any] = {"bounds": bounds[0] if len(bounds) == 1 else bounds}
        if self.request.per == "record":
            parameters["max_records"] = self.cap
        parameters["noise"] = f"{self.distributions[0].name} on {self.moments[0].terms} sums"
        parameters["noise_scale_of_sum"] = scales[0] if len(scales) == 1 else scales
        return parameters
