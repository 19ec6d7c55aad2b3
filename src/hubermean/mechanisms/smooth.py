"""`smooth`: the Huber location with noise scaled to a certified smooth sensitivity, in any dimension.

The computed location is clipped to a ball, rounded to a public grid, and gets integer Gaussian noise whose
scale follows from how many changed users this very data set withstands. That scale is private: it shows in
nothing that is released. Proof: proofs/smooth.md.

Deviation from Zhao et al. (2024), Definition G: their bound has no algorithm in d > 1 and is too small for unequal
users (Lemma unbcommon); the one here is computed, larger than theirs where theirs holds, and proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubermean.errors import InputError
from hubermean.laws import Claim, NoisySum
from hubermean.location import Rows
from hubermean.location.floats import SLACK, UNIT
from hubermean.mechanisms.certified_bounds import (
    LARGEST_WEIGHT,
    Caps,
    Floats,
    Integers,
    certified_bounds,
    smooth_maximum,
)
from hubermean.mechanisms.geometry import UP, Frame, Geometry, check_lengths
from hubermean.mechanisms.protocol import Known, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.thresholds import WHOLE, check_power_use, checked_power
from hubermean.mechanisms.weights import check_cap, planned_weight, weight_cap
from hubermean.noise import LARGEST_SCALE, NoiseLaw
from hubermean.privacy import choose_beta, expected_sensitivity, smooth_noise
from hubermean.relations import Neighbors
from hubermean.spending import THE_MEAN
from hubermean.user_table import PrivateTable, UserTable

_BETA_ROUNDING = 2.0**-40  # what floats may add to |ln sigma - ln sigma'| (Lemma 5)
_LONGEST_REACH = 2**20
# The share of users whose change typical data is expected to withstand. Users withstand more where the threshold is
# wide beside their spread, up to 1/3 or 1/2; expecting too much costs a factor of hundreds, too little a few percent.
_WITHSTOOD = {Neighbors.REPLACE_USER: 0.1, Neighbors.REPLACE_VALUES: 0.1, Neighbors.ADD_REMOVE: 0.15}
# The share that Gaussian users with a threshold of three deviations do withstand, measured; for predictions only.
_TYPICALLY_WITHSTOOD = {
    Neighbors.REPLACE_USER: 0.18,
    Neighbors.REPLACE_VALUES: 0.18,
    Neighbors.ADD_REMOVE: 0.29,
}


@dataclass(frozen=True, kw_only=True)
class Smooth:
    """Huber location with certified smooth sensitivity.

    Args:
        threshold: T, how far a user mean may lie from the centre before its pull stops growing. Public.
        radius: R_c, the mean is known to lie within this distance of 0 (all columns together). Public.
        record_cap: the largest number of records a user counts for; for `per="record"`. Under
            `replace-values`, where counts are public, it may be left out.
        threshold_power: a user with a records has the threshold `threshold * a ** -threshold_power`, for
            `per="record"`: noise depends on what the heaviest user can do, so that with 1 lighter users reach further
            at no cost. Public.
        frame: a center and a unit for each column, in which threshold and radius are measured. Public or released.
        users: a public guess of the number of users, for `add-remove` only, where the true number is private; it
            tunes beta and nothing else. `protocol.PLANNED_USERS` when left out.

    Formal guarantees:
    - (epsilon, delta)-DP for the neighbour relation of the request, delta > 0 (proofs/smooth.md, Theorem 7);
      solver error, float error and rounding included.
    - The noise scale depends on the data and is private; no interval is offered because it would show it.
    - A user without usable records pulls at nothing and counts for nothing, also where its weight is public.
    - Data without any usable record is answered like any other: 0 plus noise of the largest scale.
    """

    threshold: float
    radius: float
    record_cap: int | None = None
    users: int | None = None
    threshold_power: float | None = None
    frame: Frame | None = None
    name = "smooth"

    def __post_init__(self) -> None:
        check_lengths(threshold=self.threshold, radius=self.radius)
        checked_power(self.threshold_power)
        if self.users is not None:
            whole = isinstance(self.users, int) and not isinstance(self.users, bool)
            if not whole or not 1 <= self.users <= 2**40:
                raise InputError(f"users must be a whole number from 1 to 2^40, not {self.users!r}")

    @classmethod
    def from_known(cls, known: Known) -> Smooth:
        threshold, radius = known.spread("threshold_power", "n_users", of=cls.name)
        return cls(
            threshold=threshold,
            radius=radius,
            record_cap=known.record_cap,
            users=known.n_users,
            threshold_power=known.threshold_power,
        )

    def check(self, request: Request) -> None:
        if request.delta == 0.0:
            raise InputError("mechanism 'smooth' needs delta > 0; give delta=, for example 1e-6")
        check_power_use(self.threshold_power, request)
        check_cap(self.record_cap, request)
        if self.users is not None and request.neighbors.users_are_public:
            raise InputError(
                f"users is for 'add-remove'; with {request.neighbors.value!r} the number of users is public, "
                "so leave it out"
            )

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedSmooth:
        self.check(request)
        cap = weight_cap(self.record_cap, request, facts)
        if cap > LARGEST_WEIGHT:
            raise InputError(
                "mechanism 'smooth' takes at most 2^22 records per user; give a lower record_cap="
            )
        threshold, radius, dimension = float(self.threshold), float(self.radius), len(request.columns)
        factor = 1.0 if request.neighbors is Neighbors.ADD_REMOVE else 2.0
        geometry = Geometry.choose(
            threshold=threshold,
            radius=radius,
            dimension=dimension,
            power=checked_power(self.threshold_power),
            weight_cap=cap,
            frame=self.frame,
        )
        influence = geometry.influence(cap)
        if self.users is not None:
            facts = replace(facts, planned_users=self.users)
        weight = planned_weight(request, facts, cap)
        beta = choose_beta(
            total_weight=weight,
            weight_cap=cap,
            pull_cap=influence,
            radius=radius,
            epsilon=request.epsilon,
            delta=request.delta,
            dimension=dimension,
            factor=factor,
            share=_WITHSTOOD[request.neighbors],
        ).beta
        noise = smooth_noise(request.epsilon, request.delta, beta=beta + _BETA_ROUNDING, dimension=dimension)
        exponent = _grid_exponent(radius, noise.alpha)
        spacing = 2.0**exponent
        # Two answers move apart by rounding to the grid and by the rounding of the clip (Lemma 5).
        rounding = math.sqrt(dimension) * spacing + (dimension + 12.0) * UNIT * SLACK * radius
        if rounding > radius * 2.0**-10 or noise.smallest_sigma > LARGEST_SCALE:
            raise InputError(
                "epsilon and delta are too small for this many columns; raise them or release fewer columns"
            )
        return PreparedSmooth(
            request=request,
            cap=cap,
            threshold=threshold,
            radius=radius,
            beta=beta,
            alpha=noise.alpha,
            smallest_sigma=noise.smallest_sigma,
            exponent=exponent,
            rounding=rounding,
            reach=_reach(beta, 2.0 * radius / (noise.alpha * noise.smallest_sigma * spacing), facts),
            geometry=geometry,
            caps=Caps(
                weight=cap,
                pull=factor * influence * UP,
                gradient_rate=geometry.gradient_rate,
                depth_step=geometry.depth_step,
            ),
            typical_sensitivity=expected_sensitivity(
                beta,
                total_weight=weight,
                weight_cap=cap,
                pull_cap=influence,
                radius=radius,
                factor=factor,
                share=_TYPICALLY_WITHSTOOD[request.neighbors],
            ),
        )


@dataclass(frozen=True, kw_only=True)
class PreparedSmooth(Prepared):
    """The mechanism with every public decision made; none of its fields depends on private data.

    `exponent` is the grid's: answers are multiples of 2^exponent. `reach` is how many changes are looked at.
    `typical_sensitivity` is what the smooth bound may be expected to be: a guess, for `predicted_noise` alone.
    """

    request: Request
    cap: int
    threshold: float
    radius: float
    beta: float
    alpha: float
    smallest_sigma: float
    exponent: int
    rounding: float
    reach: int
    geometry: Geometry
    caps: Caps
    typical_sensitivity: float

    def predicted_noise(self) -> tuple[float, ...]:
        """For data that withstands what Gaussian users do; the true scale depends on the data and is private."""
        noise = self.typical_sensitivity / self.alpha
        # Answers are brought back to the ball, so no error is much above its radius.
        return (min(noise, self.radius),) * len(self.request.columns)

    def law(self, table: PrivateTable) -> NoisySum:
        # Its bound is a maximum over the depths of all users, sorted: on one machine.
        position, sigma = self.statistic(table.collected())
        claim = Claim(what=THE_MEAN, epsilon=self.request.epsilon, delta=self.request.delta)
        return NoisySum(position=position, noise=NoiseLaw(kind="gaussian", scale=sigma), claim=claim)

    def claims(self, law: NoisySum, neighbour: NoisySum) -> dict[str, float]:
        """The answer moves by at most alpha sigma, and sigma by at most e^beta (proofs/smooth.md, Lemma 5)."""
        sigma, other = (one.laws()[0].scale for one in (law, neighbour))
        return {
            "the answer moves by at most alpha sigma": law.distance(neighbour)
            / (self.alpha * min(sigma, other)),
            "sigma changes by at most e^beta": abs(math.log(sigma / other)) / (self.beta + _BETA_ROUNDING),
        }

    def outcome(self, draw: Sequence[int]) -> Outcome:
        # The nearest float to each point of the grid: scaling by a power of two is exact.
        noisy = [math.ldexp(place, self.exponent) for place in draw]
        # The mean is known to lie in the ball, so bringing the answer back into it can only help; it costs nothing.
        shrink = min(1.0, self.radius / max(math.hypot(*noisy), self.radius))
        frame = self.geometry.frame
        values = tuple(frame.value(column, shrink * seen) for column, seen in enumerate(noisy))
        parameters: dict[str, Any] = {"threshold": self.threshold, "radius": self.radius}
        if self.geometry.power:
            parameters["threshold_power"] = self.geometry.power / WHOLE
        if self.request.per == "record":
            parameters["record_cap"] = self.cap
        parameters["beta"] = self.beta
        parameters["noise"] = "discrete Gaussian; its scale depends on the data and stays private"
        return Outcome(values=values, parameters=parameters, interval_rule=None)

    def statistic(self, table: UserTable) -> tuple[list[int], float]:
        """The answer in grid units and the noise's sigma in grid units; both private."""
        points, weights = self.users(table)
        centre, sensitivity = self.centre_and_sensitivity(points, weights)
        spacing = 2.0**self.exponent
        position = [int(place) for place in np.rint(self.clipped(centre) / spacing)]
        shift = (sensitivity * UP + self.rounding) / spacing
        return position, max(math.nextafter(shift / self.alpha, math.inf), self.smallest_sigma)

    def users(self, table: UserTable) -> tuple[Rows, Integers | None]:
        """Means, clamped, and weights of the users with a usable record."""
        return self.geometry.users(table, self.request, self.cap)

    def centre_and_sensitivity(self, points: Rows, weights: Integers | None) -> tuple[Floats, float]:
        """The computed Huber location, and the smooth bound on how far its clip moves (Lemmas 2 to 4)."""
        diameter = 2.0 * self.radius
        found = self.geometry.locate(points, weights)
        if self.reach == 0 or not found.certified:
            # No users, or no smoothness asked for: the diameter always bounds.
            return found.centre, diameter
        bounds = certified_bounds(found.depths, weights, caps=self.caps, reach=self.reach)
        return found.centre, smooth_maximum(bounds, diameter=diameter, decay=math.exp(-self.beta))

    def clipped(self, centre: Floats) -> Floats:
        """The nearest point of the ball of radius R_c, up to the rounding that Lemma 5 counts."""
        norm = math.sqrt(float(np.sum(centre * centre)))
        return centre if norm <= self.radius else centre * (self.radius / norm)


def _grid_exponent(radius: float, alpha: float) -> int:
    """The finest grid on which the largest noise, 2 R_c / alpha, stays within the sampler's limit."""
    coarsest = max(2.0 * radius * (1.0 + 2.0**-9) / (alpha * LARGEST_SCALE), radius * 2.0**-60)
    return math.frexp(coarsest)[1]


def _reach(beta: float, largest_over_smallest: float, facts: PublicFacts) -> int:
    """How many changes to look at: beyond, e^(-beta k) 2 R_c is below the smallest noise anyway.

    More than n changes cannot be certified, so n is enough where it is public.
    """
    if beta == 0.0 or largest_over_smallest <= 1.0:
        return 0
    enough = math.ceil(min(math.log(largest_over_smallest) / beta, float(_LONGEST_REACH)))
    return enough if facts.n_users is None else min(enough, facts.n_users)
