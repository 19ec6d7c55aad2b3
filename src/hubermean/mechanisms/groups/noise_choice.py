"""Which noise sums over rows get, where epsilon and delta allow either: decided by how many groups users are in.

Laplace noise grows with the 1-norm of a row, Gaussian noise with its Euclidean norm. For users in one group these are
equal and Laplace noise is smaller; for users in many groups Gaussian noise is. Nobody knows beforehand, so a small part
of the budget counts the users in more than a few groups. Steps before that cost little in either accounting. What
follows is all pure or all concentrated, and either way the release as a whole is (epsilon, delta)-DP
(proofs/groups.md, Lemma 7).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import PrivacyBudget
from hubermean.accounting.discrete import laplace_scale
from hubermean.data.arrays import IntArray
from hubermean.distributions.output import NoiseDistribution, NoisySum
from hubermean.errors import InputError
from hubermean.mechanisms.adaptive.parameters import AdaptiveEstimates
from hubermean.mechanisms.groups.row_queries import Accounting, Query
from hubermean.mechanisms.groups.rows import UserRows
from hubermean.noise.batch import LARGEST_SCALE

_PART = 0.03  # of what is left, in either accounting
_EXACT = 150.0  # over the users: an epsilon with which noise is no more than a hundredth of them
_SHARE = 1.0 / 3.0  # of the users: with fewer in many groups, Laplace noise is smaller
_LEAST_LEFT = 0.5  # of epsilon: with less left Laplace noise would be no smaller
# The noise of all passes over rows, in bounds: times the root of the groups per user, over epsilon; squared, over rho.
_LAPLACE_NOISE, _GAUSSIAN_NOISE = 4.0, 1.5
_SURE = 2.0  # standard deviations of noise
_FEW = 0.6  # of the number of groups at which noises would be equal, if all users were in so many


@dataclass(frozen=True, kw_only=True, eq=False)
class UsersInMany:
    """The number of users in more than `few` groups. It costs at most its epsilon, and at most its cost in rho.

    Attributes:
        among: the groups that count, by number; None for all.
    """

    few: int
    epsilon: Fraction
    budget: PrivacyBudget
    among: IntArray | None = None
    what = "groups per user"

    def __post_init__(self) -> None:
        """Refuse noise that cannot be sampled here, where public numbers decide, not where data are at hand."""
        if self.noise.scale > LARGEST_SCALE:
            raise InputError("epsilon is too small for this number of steps; raise it")

    @classmethod
    def of_budget(cls, budget: PrivacyBudget, among: IntArray) -> UsersInMany:
        """Return the number of users in any of these groups, for a small part of a budget."""
        return cls(few=0, epsilon=Fraction(budget.largest_noise(_PART)), budget=budget, among=among)

    @property
    def cost(self) -> Fraction:
        return self.budget.cost_of_noise(self.epsilon)

    @property
    def noise(self) -> NoiseDistribution:
        # One user who comes, goes or changes moves the number by at most one.
        return NoiseDistribution(kind="laplace", scale=laplace_scale(round_down(self.epsilon), sensitivity=1))

    def shows(self, number: int) -> bool:
        """Return whether a sample is larger than noise alone would usually be."""
        return number > _SURE * self.noise.stddev

    def distribution(self, rows: UserRows) -> NoisySum:
        owners = rows.owners if self.among is None else rows.owners[np.isin(rows.groups, self.among)]
        in_groups = np.bincount(owners, minlength=rows.n_owners)
        return NoisySum(
            position=[int((in_groups > self.few).sum())],
            noise=self.noise,
            claim=self.budget.claim(self.what, self.cost, epsilon=self.epsilon),
        )


def equal_groups(epsilon: float, rho: Fraction) -> float:
    """Return for how many groups per user Laplace and Gaussian noise are about equal."""
    return _GAUSSIAN_NOISE / float(rho) * (epsilon / _LAPLACE_NOISE) ** 2 if rho > 0 else math.inf


def few_groups(epsilon: float, rho: Fraction) -> int:
    """Return the number of groups of a user up to which Laplace noise is smaller; 0 if it never is."""
    return math.floor(_FEW * equal_groups(epsilon, rho))


def resolve_accounting(
    budget: PrivacyBudget, found: AdaptiveEstimates, *, few: int, add_remove: bool
) -> Generator[Query, Any, Accounting]:
    """Yield the query that decides, if the accounting is not resolved; return that of all later queries."""
    gaussian = Accounting(
        budget=replace(budget, total=budget.total - found.spent, pure_total=None), add_remove=add_remove
    )
    if budget.pure_total is None:
        return gaussian
    left = budget.pure_total - found.epsilon
    if left < budget.pure_total * Fraction(_LEAST_LEFT):
        return gaussian
    users = max(found.users or 0.0, 1.0)
    most = min(_PART * float(left), math.sqrt(2.0 * _PART * float(gaussian.budget.total)))
    query = UsersInMany(few=few, epsilon=Fraction(min(most, _EXACT / users)), budget=budget)
    (number,) = yield query
    if number < _SHARE * users:
        pure = PrivacyBudget(accounting="pure", total=left - query.epsilon)
        return Accounting(budget=pure, add_remove=add_remove)
    rest = replace(gaussian.budget, total=gaussian.budget.total - query.cost)
    return replace(gaussian, budget=rest)
