"""The mechanism `smooth-sensitivity`: public parameters, output distribution and release.

The computed location is clipped to a ball and rounded to a public grid. It gets integer Gaussian noise whose scale
follows from the certified bounds of this data set. Proof: proofs/smooth-sensitivity.md.

Deviation from Zhao et al. (2024), Definition G: their bound has no algorithm in d > 1 and is too small for unequal
users (Lemma unbcommon); the bound here is computed, larger than theirs where theirs holds, and proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubermean.accounting.budget import THE_MEAN, Claim
from hubermean.accounting.smooth_sensitivity import calibrate_smooth_noise, choose_beta, predict_sensitivity
from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributions.output import NoiseDistribution, NoisySum
from hubermean.errors import InputError, parameter
from hubermean.huber.geometry import UP, Geometry, Standardization
from hubermean.huber.local_sensitivity import (
    LARGEST_WEIGHT,
    InfluenceLimits,
    bound_local_sensitivity,
    bound_smooth_sensitivity,
)
from hubermean.huber.numerics import SLACK, UNIT
from hubermean.huber.points import PointRows
from hubermean.huber.thresholds import WHOLE
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.mechanisms.contributions import (
    UserPoints,
    check_lengths,
    check_max_records,
    check_threshold_power,
    expected_weight,
    find_weight_cap,
    parse_threshold_power,
)
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

_BETA_ROUNDING = 2.0**-40  # what floats may add to |ln sigma - ln sigma'| (Lemma 5)
_MOST_CHANGES = 2**20
# The share of users whose change typical data is expected to withstand. Users withstand more where the threshold is
# wide beside their scale, up to 1/3 or 1/2. Expecting too much costs a factor of hundreds, too little a few percent.
_WITHSTOOD = {Neighbors.REPLACE_USER: 0.1, Neighbors.REPLACE_VALUES: 0.1, Neighbors.ADD_REMOVE: 0.15}
# The measured share for Gaussian users with a threshold of three deviations; for predictions only.
_TYPICALLY_WITHSTOOD = {
    Neighbors.REPLACE_USER: 0.18,
    Neighbors.REPLACE_VALUES: 0.18,
    Neighbors.ADD_REMOVE: 0.29,
}


@dataclass(frozen=True, kw_only=True)
class SmoothSensitivity:
    """The Huber location with certified smooth sensitivity.

    Args:
        threshold: T, how far a user mean may lie from the center before its influence stops growing. Public.
        radius: R_c, the mean is known to lie within this distance of 0 (all columns together). Public.
        max_records: the contribution bound, the largest number of records a user counts for, with `per="record"`.
            Under `replace-values`, where counts are public, it may be left out.
        users: a public guess of the number of users, for `add-remove` only, where the true number is private. It tunes
            beta and nothing else. Default `types.request.PLANNED_USERS`.
        threshold_power: a user with a records has the threshold `threshold * a ** -threshold_power`, for
            `per="record"`. The noise depends on the influence of the heaviest user, so with 1 lighter users get a
            larger threshold at no cost. Public.
        standardization: a center and a unit for each column, in which threshold and radius are measured. Public or
            released.

    Formal guarantees:
    - (epsilon, delta)-DP for the neighbor relation of the request, delta > 0 (proofs/smooth-sensitivity.md,
      Theorem 7); solver error, float error and rounding included.
    - The noise scale depends on the data and is private. No interval is offered, because it would reveal the scale.

    | edge case | what happens |
    |---|---|
    | a user without usable records | no influence and no weight, even where its weight is public |
    | no usable record at all | released like any other data: 0 plus noise of the largest scale |
    | a center beyond the radius | clipped to the ball; so is the released point |
    """

    threshold: float
    radius: float
    max_records: int | None = None
    users: int | None = None
    threshold_power: float | None = None
    standardization: Standardization | None = None
    name = "smooth-sensitivity"

    def __post_init__(self) -> None:
        check_lengths(threshold=self.threshold, radius=self.radius)
        parse_threshold_power(self.threshold_power)
        if self.users is not None:
            whole = isinstance(self.users, int) and not isinstance(self.users, bool)
            if not whole or not 1 <= self.users <= 2**40:
                raise InputError(
                    f"{parameter('n_users')} must be a whole number from 1 to 2^40, not {self.users!r}"
                )

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> SmoothSensitivity:
        threshold, radius = known.threshold_and_radius("threshold_power", "n_users", of=cls.name)
        return cls(
            threshold=threshold,
            radius=radius,
            max_records=known.max_records,
            users=known.n_users,
            threshold_power=known.threshold_power,
        )

    def check(self, request: Request) -> None:
        if request.delta == 0.0:
            raise InputError(
                f"mechanism 'smooth-sensitivity' needs delta > 0; give {parameter('delta')}, for example 1e-6"
            )
        check_threshold_power(self.threshold_power, request)
        check_max_records(self.max_records, request)
        if self.users is not None and request.neighbors.users_are_public:
            raise InputError(
                f"{parameter('n_users')} is for 'add-remove'; with {request.neighbors.value!r} the number "
                "of users is public, "
                "so leave it out"
            )

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedSmoothSensitivity:
        self.check(request)
        cap = find_weight_cap(self.max_records, request, facts)
        if cap > LARGEST_WEIGHT:
            raise InputError(
                "mechanism 'smooth-sensitivity' takes at most 2^22 records per user; give a lower "
                f"{parameter('max_records')}"
            )
        threshold, radius, dimension = float(self.threshold), float(self.radius), len(request.columns)
        factor = 1.0 if request.neighbors is Neighbors.ADD_REMOVE else 2.0
        geometry = Geometry.choose(
            threshold=threshold,
            radius=radius,
            dimension=dimension,
            power=parse_threshold_power(self.threshold_power),
            weight_cap=cap,
            standardization=self.standardization,
        )
        influence = geometry.influence(cap)
        if self.users is not None:
            facts = replace(facts, planned_users=self.users)
        weight = expected_weight(request, facts, cap)
        beta = choose_beta(
            total_weight=weight,
            weight_cap=cap,
            influence_cap=influence,
            radius=radius,
            epsilon=request.epsilon,
            delta=request.delta,
            dimension=dimension,
            factor=factor,
            share=_WITHSTOOD[request.neighbors],
        ).beta
        noise = calibrate_smooth_noise(
            request.epsilon, request.delta, beta=beta + _BETA_ROUNDING, dimension=dimension
        )
        exponent = _grid_exponent(radius, noise.alpha)
        spacing = 2.0**exponent
        # Two answers move apart by rounding to the grid and by the rounding of the clip (Lemma 5).
        rounding = math.sqrt(dimension) * spacing + (dimension + 12.0) * UNIT * SLACK * radius
        if rounding > radius * 2.0**-10 or noise.smallest_sigma > LARGEST_SCALE:
            raise InputError(
                f"{parameter('epsilon')} and delta are too small for this many columns; raise them or "
                "release fewer columns"
            )
        return PreparedSmoothSensitivity(
            request=request,
            cap=cap,
            threshold=threshold,
            radius=radius,
            beta=beta,
            alpha=noise.alpha,
            smallest_sigma=noise.smallest_sigma,
            exponent=exponent,
            rounding=rounding,
            max_changes=_max_changes(
                beta, 2.0 * radius / (noise.alpha * noise.smallest_sigma * spacing), facts
            ),
            geometry=geometry,
            caps=InfluenceLimits(
                weight=cap,
                influence=factor * influence * UP,
                gradient_rate=geometry.gradient_rate,
                depth_step=geometry.depth_step,
            ),
            typical_sensitivity=predict_sensitivity(
                beta,
                total_weight=weight,
                weight_cap=cap,
                influence_cap=influence,
                radius=radius,
                factor=factor,
                share=_TYPICALLY_WITHSTOOD[request.neighbors],
            ),
        )


@dataclass(frozen=True, kw_only=True)
class PreparedSmoothSensitivity(Prepared):
    """The mechanism with every public decision made; none of its fields depends on private data.

    Attributes:
        cap: the largest weight of a user.
        exponent: answers are multiples of 2^exponent.
        rounding: how far rounding and clipping may move two answers apart.
        max_changes: how many changes the smooth bound takes into account.
        caps: public limits of the certified bounds.
        typical_sensitivity: what the smooth bound is expected to be: a guess, for `predicted_noise` alone.
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
    max_changes: int
    geometry: Geometry
    caps: InfluenceLimits
    typical_sensitivity: float

    def predicted_noise(self) -> tuple[float, ...]:
        """For data as stable as Gaussian users; the true scale depends on the data and is private."""
        noise = self.typical_sensitivity / self.alpha
        # Answers are moved into the ball, so no error is much above its radius.
        return (min(noise, self.radius),) * len(self.request.columns)

    def distribution(self, table: PrivateTable) -> NoisySum:
        # The smooth bound needs the sorted depths of all users, so they are collected on one machine.
        position, sigma = self.statistic(table.collect())
        claim = Claim(what=THE_MEAN, epsilon=self.request.epsilon, delta=self.request.delta)
        return NoisySum(position=position, noise=NoiseDistribution(kind="gaussian", scale=sigma), claim=claim)

    def claims(self, distribution: NoisySum, neighbor: NoisySum) -> dict[str, float]:
        """The answer moves by at most alpha sigma, and sigma by at most e^beta (proofs/smooth-sensitivity.md, Lemma
        5).
        """
        sigma, other = (one.distributions()[0].scale for one in (distribution, neighbor))
        return {
            "the answer moves by at most alpha sigma": distribution.distance(neighbor)
            / (self.alpha * min(sigma, other)),
            "sigma changes by at most e^beta": abs(math.log(sigma / other)) / (self.beta + _BETA_ROUNDING),
        }

    def outcome(self, sample: Sequence[int]) -> Outcome:
        # The nearest float to each point of the grid: scaling by a power of two is exact.
        noisy = [math.ldexp(number, self.exponent) for number in sample]
        # The mean is known to lie in the ball, so moving the answer into it can only help and costs nothing.
        shrink = min(1.0, self.radius / max(math.hypot(*noisy), self.radius))
        standardization = self.geometry.standardization
        values = tuple(standardization.invert(column, shrink * one) for column, one in enumerate(noisy))
        parameters: dict[str, Any] = {"threshold": self.threshold, "radius": self.radius}
        if self.geometry.power:
            parameters["threshold_power"] = self.geometry.power / WHOLE
        if self.request.per == "record":
            parameters["max_records"] = self.cap
        parameters["beta"] = self.beta
        parameters["noise"] = "discrete Gaussian; its scale depends on the data and stays private"
        return Outcome(values=values, parameters=parameters, interval_rule=None)

    def statistic(self, table: UserTable) -> tuple[list[int], float]:
        """The answer in grid units and the noise's sigma in grid units; both private."""
        points, weights = self.users(table)
        center, sensitivity = self.center_and_sensitivity(points, weights)
        spacing = 2.0**self.exponent
        position = [int(number) for number in np.rint(self.clipped(center) / spacing)]
        shift = (sensitivity * UP + self.rounding) / spacing
        return position, max(math.nextafter(shift / self.alpha, math.inf), self.smallest_sigma)

    def users(self, table: UserTable) -> tuple[PointRows, IntArray | None]:
        """Means, clamped, and weights of the users with a usable record."""
        return UserPoints(geometry=self.geometry, request=self.request, cap=self.cap).read(table)

    def center_and_sensitivity(self, points: PointRows, weights: IntArray | None) -> tuple[FloatArray, float]:
        """The computed Huber location, and the smooth bound on how far its clip moves (Lemmas 2 to 4)."""
        diameter = 2.0 * self.radius
        found = self.geometry.locate(points, weights)
        if self.max_changes == 0 or not found.certified:
            # Without users, or without smoothness, the diameter is the bound.
            return found.center, diameter
        bounds = bound_local_sensitivity(found.depths, weights, caps=self.caps, reach=self.max_changes)
        return found.center, bound_smooth_sensitivity(bounds, diameter=diameter, decay=math.exp(-self.beta))

    def clipped(self, center: FloatArray) -> FloatArray:
        """The nearest point of the ball of radius R_c, up to the rounding that Lemma 5 counts."""
        norm = math.sqrt(float(np.sum(center * center)))
        return center if norm <= self.radius else center * (self.radius / norm)


def _grid_exponent(radius: float, alpha: float) -> int:
    """The finest grid on which the largest noise, 2 R_c / alpha, stays within the sampler's limit."""
    coarsest = max(2.0 * radius * (1.0 + 2.0**-9) / (alpha * LARGEST_SCALE), radius * 2.0**-60)
    return math.frexp(coarsest)[1]


def _max_changes(beta: float, largest_over_smallest: float, facts: PublicFacts) -> int:
    """How many changes k matter: for larger k, e^(-beta k) 2 R_c is below the smallest noise anyway.

    More than n changes cannot be certified, so n is enough where it is public.
    """
    if beta == 0.0 or largest_over_smallest <= 1.0:
        return 0
    enough = math.ceil(min(math.log(largest_over_smallest) / beta, float(_MOST_CHANGES)))
    return enough if facts.n_users is None else min(enough, facts.n_users)
