"""`clipped`: the mean with bounds given by the caller, exact from the first record on.

User means are rounded to a public grid and clamped to the bounds; each user adds to a few integer sums (`moments`): its
value, its capped number of records, its squared value. Integer noise is added to all of them; their ratio gives the
mean, the squares an interval. Proof: proofs/clipped.md.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError, is_real
from hubermean.exact import rounded_means
from hubermean.exact.adding import Membership
from hubermean.laws import Claim, NoisySum
from hubermean.mechanisms.adding_parts import added_up
from hubermean.mechanisms.interval import (
    NOISE_AND_SAMPLING,
    NOISE_SAMPLING_AND_CLIPPING,
    half_widths,
    noise_width,
)
from hubermean.mechanisms.moments import HALF_MULTIPLE, Estimates, Moments, Weights
from hubermean.mechanisms.protocol import (
    Bounds,
    Column,
    Known,
    OneOrTwoBounds,
    Outcome,
    Prepared,
    PublicFacts,
    Request,
)
from hubermean.mechanisms.weights import check_cap, planned_weight, weighing_counts, weight_cap
from hubermean.noise import LARGEST_SCALE, NoiseLaw
from hubermean.privacy import concentrated_sigma, discrete_gaussian_sigmas, laplace_scale, largest_rho
from hubermean.release import DEFAULT_LEVEL, Denominator, Interval
from hubermean.spending import THE_MEAN
from hubermean.user_table import PrivateTable, UserTable

Floats = NDArray[np.float64]

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
        centred: whether the mean is known to lie near the middle of the bounds; affects accuracy alone.
        cut_off: for bounds that were found and not given, one pair per column: how many times their distance from the
            middle may be cut off at the low and at the high one in all, for the interval to cover it.
        changes: how many times one user may be added or removed, if not once: users who are in several groups, or move
            from one to another. Noise follows; see `hubermean.groups`.
        rho: a concentrated budget within (epsilon, delta), from a caller that composes: then noise is Gaussian and the
            release is rho-zCDP.

    Formal guarantees:
    - epsilon-DP for delta = 0 (discrete Laplace noise), (epsilon, delta)-DP otherwise, for the neighbour
      relation of the request (proofs/clipped.md, Theorem 1);
    - a user without usable records has weight zero where counts are private; under `replace-values`, where
      weights are public, it stands at the midpoint of the bounds.
    """

    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds]
    record_cap: int | None = None
    centred: bool = False
    cut_off: tuple[tuple[float, float], ...] = ()
    changes: int = 1
    rho: float | None = None
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
        if self.rho is not None and (
            request.delta == 0.0 or self.rho > largest_rho(request.epsilon, request.delta)
        ):
            raise InputError("rho buys more than epsilon and delta promise; lower it or leave it out")
        cap = weight_cap(self.record_cap, request, facts)
        pairs = self._pairs(len(request.columns))
        grids = tuple(
            Grid.choose(
                bounds,
                column,
                noise_factor=cap * len(request.columns) * self.changes / min(request.epsilon, 1.0),
            )
            for bounds, column in zip(pairs, facts.columns, strict=True)
        )
        moments, laws = self._noise(grids, cap, request)
        total_weight = None
        if facts.record_counts is not None:
            total_weight = sum(np.minimum(facts.record_counts, cap).tolist())
        return PreparedClipped(
            request=request,
            cap=cap,
            grids=grids,
            moments=moments,
            laws=laws,
            centred=self.centred,
            cut_off=self.cut_off,
            n_users=facts.n_users,
            total_weight=total_weight,
            planned_weight=planned_weight(request, facts, cap),
            changes=self.changes,
            rho=self.rho,
        )

    def _weights(self, request: Request) -> Weights:
        return "equal" if request.per == "user" else "unequal"

    def _noise(
        self, grids: Sequence[Grid], cap: int, request: Request
    ) -> tuple[tuple[Moments, ...], tuple[NoiseLaw, ...]]:
        """Sums and a law per column, all of the less noisy kind by public scales (proofs/clipped.md, Theorem 1)."""
        kinds: list[tuple[tuple[Moments, ...], tuple[NoiseLaw, ...]]] = []
        for kind in self._kinds(request):
            moments = tuple(
                Moments.of(
                    request.neighbors,
                    kind,
                    half=grid.half,
                    cap=cap,
                    weights=self._weights(request),
                    centred=self.centred,
                )
                for grid in grids
            )
            # So large an epsilon that Gaussian noise would be finer than the grid needs no Gaussian.
            with contextlib.suppress(InputError) if len(kinds) > 0 else contextlib.nullcontext():
                kinds.append((moments, self._laws(moments, request)))
        chosen = min(kinds, key=lambda made: sum(_relative_noise(*pair) for pair in zip(*made, strict=True)))
        if max(law.scale for law in chosen[1]) > LARGEST_SCALE:
            raise InputError("epsilon is too small for this record_cap; raise epsilon or lower record_cap")
        return chosen

    def _kinds(self, request: Request) -> tuple[Literal["laplace", "gaussian"], ...]:
        if self.rho is not None:
            return ("gaussian",)
        return ("laplace", "gaussian") if request.delta > 0.0 else ("laplace",)

    def _laws(self, moments: Sequence[Moments], request: Request) -> tuple[NoiseLaw, ...]:
        """The noise on each sum, column by column."""
        # In 1-norm changes add up; in Euclidean norm their squares do (proofs/groups.md, Lemma 2).
        columns = len(moments) * self.changes
        if moments[0].kind == "laplace":
            sensitivities = [columns * one.sensitivity() for one in moments]
            scales = [laplace_scale(request.epsilon, sensitivity=one) for one in sensitivities]
            return tuple(NoiseLaw(kind="laplace", scale=scale) for scale in scales)
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
        return tuple(NoiseLaw(kind="gaussian", scale=sigma) for sigma in sigmas)


def _relative_noise(moments: Moments, law: NoiseLaw) -> float:
    return _noise_at(moments, law, 0.5) / moments.half


def _noise_at(moments: Moments, law: NoiseLaw, share: float) -> float:
    """The standard deviation of the mean times the weight."""
    return math.sqrt(float(moments.noise_variance(law, np.array([share]))[0]))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The public grid of a column: multiples of 2^exponent, from middle - half to middle + half of them."""

    exponent: int
    middle: int
    half: int

    @property
    def low(self) -> int:
        return self.middle - self.half

    @property
    def high(self) -> int:
        return self.middle + self.half

    @property
    def spacing(self) -> Fraction:
        return Fraction(2) ** self.exponent

    def values(self, shares: Floats) -> Floats:
        """The values at shares of the way from the middle to the high end."""
        return float(self.middle * self.spacing) + shares * float(self.half * self.spacing)

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
        first, last = math.floor(low / spacing), math.ceil(high / spacing)
        if last - first < 2**_COARSEST_GRID_BITS:
            raise InputError(f"bounds of {column.name!r} are too close together for their size; widen them")
        middle = (first + last) // 2
        half = -(-max(last - middle, middle - first) // HALF_MULTIPLE) * HALF_MULTIPLE
        return cls(exponent=exponent, middle=middle, half=half)


@dataclass(frozen=True, kw_only=True)
class PreparedClipped(Prepared):
    """The clipped mean with grid, cap, sums and noise decided.

    `total_weight` is the public sum of weights, if any; `planned_weight` the sum to expect, for predictions alone;
    `n_users` the public number of users, if any.
    """

    request: Request
    cap: int
    grids: tuple[Grid, ...]
    moments: tuple[Moments, ...]
    laws: tuple[NoiseLaw, ...]
    centred: bool
    cut_off: tuple[tuple[float, float], ...]
    n_users: int | None
    total_weight: int | None
    planned_weight: float
    changes: int = 1
    rho: float | None = None

    def concentrated(self) -> Fraction | None:
        """Of Gaussian noise, coordinate by coordinate (Canonne, Kamath & Steinke 2020, Thm. 14)."""
        if any(law.kind != "gaussian" for law in self.laws):
            return None
        pairs = zip(self.moments, self.laws, strict=True)
        return sum(
            (self.changes * one.sensitivity() ** 2 / (2 * Fraction(law.scale) ** 2) for one, law in pairs),
            Fraction(0),
        )

    def predicted_noise(self) -> tuple[float, ...]:
        """Noise over the planned weight; never more than half the width of the bounds."""
        # A mean anywhere within the bounds has a squared share of 1/3 on average; one near the middle hardly any.
        share = 1.0 / 16.0 if self.centred else math.sqrt(1.0 / 3.0)
        return tuple(
            float(grid.spacing) * min(_noise_at(moments, law, share) / self.planned_weight, grid.half)
            for grid, moments, law in zip(self.grids, self.moments, self.laws, strict=True)
        )

    def statistic(self, table: UserTable, membership: Membership | None = None) -> list[list[int]]:
        """The integers that noise is added to: column by column and term by term, one per group or one in all."""
        sums: list[list[int]] = []
        weights = weighing_counts(table, self.request)
        for grid, moments, column in zip(self.grids, self.moments, table.sums, strict=True):
            position = rounded_means(
                column, table.counts, exponent=grid.exponent, low=grid.low, high=grid.high
            )
            position -= grid.middle
            # A user without usable records is in the middle: of no weight, or, where weights are public, of its own.
            if not table.counts.all():
                position[table.counts == 0] = 0
            sums += moments.sums(position, weights, membership)
        return sums

    def law(self, table: PrivateTable) -> NoisySum:
        return self.noisy(added_up(table, self.statistic))

    def noisy(self, sums: Sequence[Sequence[int]]) -> NoisySum:
        """The law of sums as `statistic` makes them, laid end to end."""
        laws = [
            law for moments, law in zip(self.moments, self.laws, strict=True) for _ in range(moments.terms)
        ]
        noise = [law for law, term in zip(laws, sums, strict=True) for _ in term]
        return NoisySum(position=[one for term in sums for one in term], noise=noise, claim=self.claim)

    @property
    def claim(self) -> Claim:
        """What the sums of all groups cost together."""
        if self.rho is not None:
            return Claim(what=THE_MEAN, rho=self.rho)
        return Claim(what=THE_MEAN, epsilon=self.request.epsilon, delta=self.request.delta)

    def outcome(self, draw: Sequence[int]) -> Outcome:
        """From noisy sums to values and intervals."""
        found = self.found(draw)
        values = tuple(found.values()[0].tolist())
        (denominator,) = found.denominators()
        return Outcome(
            values=values, parameters=self.parameters(), interval_rule=found, denominator=denominator
        )

    def found(self, draw: Sequence[int], groups: int = 1) -> ClippedInterval:
        """What noisy sums, laid end to end, say of every group."""
        terms = [draw[start : start + groups] for start in range(0, len(draw), groups)] if groups else []
        estimates, start = [], 0
        for moments in self.moments:
            own = terms[start : start + moments.terms] if groups else [[]] * moments.terms
            estimates.append(moments.estimates(own, self.total_weight))
            start += moments.terms
        return ClippedInterval(
            grids=self.grids,
            laws=self.laws,
            estimates=tuple(estimates),
            users=self._users(estimates[0]),
            cut_off=tuple((self.cap * below, self.cap * above) for below, above in self.cut_off),
        )

    def _users(self, estimates: Estimates) -> Floats | None:
        """How many users stand behind the weight, if that is public or released."""
        if self.request.per == "user":
            return estimates.weight
        return None if self.n_users is None else np.full(len(estimates.weight), float(self.n_users))

    def parameters(self) -> dict[str, Any]:
        """Public numbers for the release."""
        bounds = [[float(grid.low * grid.spacing), float(grid.high * grid.spacing)] for grid in self.grids]
        scales = [law.scale * float(grid.spacing) for law, grid in zip(self.laws, self.grids, strict=True)]
        parameters: dict[str, Any] = {"bounds": bounds[0] if len(bounds) == 1 else bounds}
        if self.request.per == "record":
            parameters["record_cap"] = self.cap
        parameters["noise"] = f"{self.laws[0].name} on {self.moments[0].terms} sums"
        parameters["noise_scale_of_sum"] = scales[0] if len(scales) == 1 else scales
        return parameters


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ClippedInterval:
    """Values and their intervals for the mean of the population, from the noisy sums and the public noise law.

    They cover noise and sampling, as if user means were normal on average, and so much of what clamping cuts off as
    `cut_off` says, in users at the bounds. The level holds for each column of each group, not for all together.
    """

    grids: tuple[Grid, ...]
    laws: tuple[NoiseLaw, ...]
    estimates: tuple[Estimates, ...]
    users: Floats | None
    cut_off: tuple[tuple[float, float], ...] = ()

    @property
    def covers(self) -> str:
        return NOISE_SAMPLING_AND_CLIPPING if self.cut_off else NOISE_AND_SAMPLING

    def values(self) -> Floats:
        """Shape (groups, columns)."""
        columns = [grid.values(found.share) for grid, found in zip(self.grids, self.estimates, strict=True)]
        return np.stack(columns, axis=1)

    def shares(self) -> Floats:
        """Where the means lie within the bounds, from -1 at the low end to 1 at the high end; (groups, columns)."""
        return np.stack([found.share for found in self.estimates], axis=1)

    def at(self, level: float) -> Interval:
        low, high = self.ends(level)
        return Interval(
            level=level, low=tuple(low[0].tolist()), high=tuple(high[0].tolist()), covers=self.covers
        )

    def ends(self, level: float) -> tuple[Floats, Floats]:
        """Of every group and column, shape (groups, columns); never beyond the bounds."""
        lows, highs = [], []
        cuts = self.cut_off or ((0.0, 0.0),) * len(self.grids)
        for grid, law, found, cut in zip(self.grids, self.laws, self.estimates, cuts, strict=True):
            noise, sampling = found.mean_variance(law, self.users)
            half = half_widths(level, kind=law.kind, noise_variance=noise, sampling_variance=sampling)
            below, above = (
                half / grid.half + side / np.maximum(found.weight, max(side, 1.0)) for side in cut
            )
            lows.append(grid.values(np.maximum(found.share - below, -1.0)))
            highs.append(grid.values(np.minimum(found.share + above, 1.0)))
        return np.stack(lows, axis=1), np.stack(highs, axis=1)

    def denominators(self, level: float = DEFAULT_LEVEL) -> list[Denominator]:
        """The total weight of every group, in records or users."""
        law, found = self.laws[0], self.estimates[0]
        width = noise_width(level, kind=law.kind, stddev=found.moments.weight_stddev(law))
        return [
            Denominator(
                value=max(weight, 0.0),
                low=max(weight - width, 0.0),
                high=max(weight + width, 0.0),
                exact=found.moments.basis == "public",
            )
            for weight in found.weight.tolist()
        ]
