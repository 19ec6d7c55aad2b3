"""The private steps of `norm-clipping`: each has an output distribution, and an estimate that its sample leads to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from hubermean.accounting.budget import Claim
from hubermean.accounting.discrete import laplace_scale
from hubermean.data.arrays import IntArray
from hubermean.distributions.output import (
    ExponentialMechanism,
    NoiseDistribution,
    NoisySum,
    OutputDistribution,
)
from hubermean.mechanisms.norm_clipping.estimate import NoScaleError, TooFewUsersError, VectorEstimate
from hubermean.mechanisms.norm_clipping.plan import Quantile, VectorPlan
from hubermean.mechanisms.norm_clipping.users import RADII, SinglePrecision, VectorUsers, View
from hubermean.searches.bounds import MAX_RECORDS_GRID, RankSearch, count_records
from hubermean.types.request import Request

USERS, CAP, THRESHOLD, SUM, LENGTH = (
    "number of users",
    "contribution bound",
    "threshold",
    "the mean",
    "length of the mean",
)


class Step(Protocol):
    """A private step; what it costs is fixed before it runs."""

    what: str

    def cost(self, found: VectorEstimate) -> Fraction:
        """Return the epsilon of a step without delta; 0 for one that shares the noise budget."""

    def distribution(self, users: VectorUsers, found: VectorEstimate) -> OutputDistribution: ...

    def update(self, found: VectorEstimate, sample: Any) -> VectorEstimate: ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What steps know beside the estimate; public."""

    request: Request
    scales: SinglePrecision | None

    def view(self, found: VectorEstimate, *, along: bool = False) -> View:
        center = None if found.is_centered_at_zero else found.center.astype(np.float32)
        view = View(request=self.request, cap=found.cap, center=center, scales=self.scales)
        return replace(view, direction=found.direction, origin=found.origin) if along else view


@dataclass(frozen=True, kw_only=True)
class CountUsers:
    """The number of users with usable records, where it is private."""

    setting: Setting
    what = USERS

    def cost(self, found: VectorEstimate) -> Fraction:
        return found.plan.count_epsilon

    def _noise(self, found: VectorEstimate) -> NoiseDistribution:
        scale = laplace_scale(float(self.cost(found)), sensitivity=1)
        return NoiseDistribution(kind="laplace", scale=scale)

    def distribution(self, users: VectorUsers, found: VectorEstimate) -> NoisySum:
        claim = Claim(what=self.what, epsilon=self.cost(found))
        return NoisySum(position=[count_records(users.table).users], noise=self._noise(found), claim=claim)

    def update(self, found: VectorEstimate, sample: Sequence[int]) -> VectorEstimate:
        users = max(sample[0], 0)
        if users < found.plan.least_users:
            raise TooFewUsersError
        rho = found.rho + self.cost(found) ** 2 / 2
        return replace(found, plan=found.plan.with_users(users), measured=users, rho=rho)


@dataclass(frozen=True, kw_only=True)
class ChooseCap:
    """The largest weight of a user, which few exceed, where records are private."""

    setting: Setting
    what = CAP

    def cost(self, found: VectorEstimate) -> Fraction:
        return found.plan.cap_epsilon

    def distribution(self, users: VectorUsers, found: VectorEstimate) -> OutputDistribution:
        epsilon = self.cost(found)
        search = RankSearch.plan(found.plan.users or 1.0, epsilon=float(epsilon))
        above = count_records(users.table).above
        made = search.distribution(above, MAX_RECORDS_GRID.astype(np.float64), concentrated=True)
        return replace(made, claim=Claim(what=self.what, epsilon=epsilon))

    def update(self, found: VectorEstimate, sample: int) -> VectorEstimate:
        rho = found.rho + self.cost(found) ** 2 / 8
        return replace(found, cap=int(MAX_RECORDS_GRID[sample]), rho=rho)


def search_distance(
    within: IntArray, users: int, quantile: Quantile, plan: VectorPlan, what: str
) -> ExponentialMechanism:
    """Return the private choice of a radius by number, from the users within each.

    Formal guarantees: bounded range `quantile.epsilon` (proofs/norm-clipping.md, Lemma 3).
    """
    wanted = quantile.per_cent * users
    costs = np.maximum(wanted - 100 * within, 0)
    np.maximum(costs[1:], 100 * within[:-1] - wanted, out=costs[1:])
    rate = quantile.epsilon / (2 * quantile.sensitivity(add_remove=plan.add_remove))
    costs += np.rint(quantile.decay * np.arange(len(costs)) / float(rate)).astype(np.int64)
    claim = Claim(what=what, epsilon=quantile.epsilon)
    return ExponentialMechanism(costs=costs, sizes=np.ones_like(costs), rate=rate, claim=claim)


@dataclass(frozen=True, kw_only=True)
class ChooseRadius:
    """The distance from the center within which a part of the users lies."""

    setting: Setting
    what = THRESHOLD

    def cost(self, found: VectorEstimate) -> Fraction:
        return found.plan.radius.epsilon

    def distribution(self, users: VectorUsers, found: VectorEstimate) -> OutputDistribution:
        within, total = users.count_within(self.setting.view(found))
        return search_distance(within, total, found.plan.radius, found.plan, self.what)

    def update(self, found: VectorEstimate, sample: int) -> VectorEstimate:
        if sample == 0:
            raise NoScaleError
        return replace(found, radius=float(RADII[sample]), rho=found.rho + self.cost(found) ** 2 / 8)


@dataclass(frozen=True, kw_only=True)
class SumVectors:
    """The sum of clipped vectors, and of the weights that clipping left."""

    setting: Setting
    what = SUM

    def cost(self, found: VectorEstimate) -> Fraction:
        return Fraction(0)

    def distribution(self, users: VectorUsers, found: VectorEstimate) -> NoisySum:
        plan = found.plan
        sums = users.sum_clipped(self.setting.view(found), found.threshold, plan.weight_share)
        claim = share_of_noise_budget(plan, found.part, self.what)
        return NoisySum(position=sums, noise=plan.noise_of_round(found.part), claim=claim)

    def update(self, found: VectorEstimate, sample: Sequence[int]) -> VectorEstimate:
        return found.after_round(np.array(sample, dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class ChooseReach:
    """How far users lie from the mean that was found, along its direction."""

    setting: Setting
    what = LENGTH

    def cost(self, found: VectorEstimate) -> Fraction:
        return found.plan.reach.epsilon

    def distribution(self, users: VectorUsers, found: VectorEstimate) -> OutputDistribution:
        within, total = users.count_within(self.setting.view(found, along=True))
        short = within[: max(int(np.searchsorted(RADII, found.farthest, side="right")), 1)]
        return search_distance(short, total, found.plan.reach, found.plan, self.what)

    def update(self, found: VectorEstimate, sample: int) -> VectorEstimate:
        return replace(found, reach=float(RADII[sample]), rho=found.rho + self.cost(found) ** 2 / 8)


@dataclass(frozen=True, kw_only=True)
class SumAlongDirection:
    """The sum of clipped lengths along the direction."""

    setting: Setting
    what = LENGTH

    def cost(self, found: VectorEstimate) -> Fraction:
        return Fraction(0)

    def distribution(self, users: VectorUsers, found: VectorEstimate) -> NoisySum:
        plan = found.plan
        assert found.reach is not None
        view = self.setting.view(found, along=True)
        sums = users.sum_along(view, found.reach, plan.weight_share_along)
        claim = share_of_noise_budget(plan, plan.part_along, self.what)
        return NoisySum(position=sums, noise=plan.noise_along(), claim=claim)

    def update(self, found: VectorEstimate, sample: Sequence[int]) -> VectorEstimate:
        return found.after_step(np.array(sample, dtype=np.int64))


def share_of_noise_budget(plan: VectorPlan, part: Fraction, what: str) -> Claim:
    """Return the claim of sums that get a part of the noise budget."""
    return Claim(what=what, epsilon=plan.noise_epsilon, delta=plan.delta, among=1 / part)


def next_step(setting: Setting, found: VectorEstimate) -> Step | None:
    """Return the step that follows, from public and released numbers alone; None after the last."""
    plan = found.plan
    if plan.users is None:
        return CountUsers(setting=setting)
    if found.cap == 0:
        return ChooseCap(setting=setting)
    if not found.finished or found.left > 0:
        if found.radius is None and plan.threshold is None:
            return ChooseRadius(setting=setting)
        return SumVectors(setting=setting)
    if found.reach is None:
        return ChooseReach(setting=setting)
    return SumAlongDirection(setting=setting) if found.total_weight == 0.0 else None
