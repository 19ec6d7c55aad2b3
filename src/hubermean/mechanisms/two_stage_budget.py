"""How `winsorized` divides its budget between choosing intervals and adding noise, from public numbers alone.

D coordinates each choose an interval by an exponential mechanism and then receive noise. Three ways to
account for that are compared (proofs/winsorized.md, Theorem 1), each over a grid of shares for the first stage,
by the error they predict. The prediction affects accuracy only: every plan keeps the promise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from hubermean.errors import InputError
from hubermean.laws import Claim
from hubermean.mechanisms.account import account
from hubermean.noise import NoiseLaw
from hubermean.privacy import (
    concentrated_sigma,
    discrete_gaussian_sigma,
    float_down,
    gaussian_alpha,
    laplace_scale,
    largest_rho,
)
from hubermean.spending import THE_MEAN, Spent

Accounting = Literal["pure", "gaussian", "concentrated"]

CHOICE = "interval of user means"

# Never more than half for the first stage, the share of Levy et al. (2021): beyond, the prediction would pay for
# insurance against ever rarer misses with noise in every release.
_SHARES = tuple(0.5 * 2.0 ** (-step / 4) for step in range(60))
# Working assumptions of the prediction: how far, as a share of all users, the cost of a bin that is far off, and
# of one that is next to right, lies above the least cost. A far bin has cost near n, the median's at most n/2.
_FAR_GAP = 0.5
_NEAR_GAP = 0.25
# Within these, a sensitivity of 2^14 grid units, which every grid has, is enough for `discrete_gaussian_sigma`.
_LEAST_GAUSSIAN_EPSILON = 1e-3
_LARGEST_GAUSSIAN_ALPHA = 8.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the two stages have to do, in public numbers. Widths are in one unit, whichever.

    Attributes:
        dimension: number of coordinates D.
        n_users: number of users.
        bins: number of bins of each coordinate.
        half_width: half the width of a bin; means are clipped to twice that.
        weight_share: the largest weight of a user over the sum of weights.
    """

    dimension: int
    n_users: int
    bins: int
    half_width: float
    weight_share: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A division of the budget.

    Attributes:
        accounting: how losses are added up.
        choice: the epsilon of the exponential mechanism of each coordinate; 0 where there is one bin only.
        rest: "pure": the epsilon of the Laplace noise of each coordinate; "gaussian": the epsilon of the Gaussian
            noise of all coordinates together; "concentrated": the rho of that noise.
        dimension: number of coordinates D.
    """

    accounting: Accounting
    choice: float
    rest: float
    dimension: int

    @property
    def rate(self) -> Fraction:
        """The rate of the exponential mechanism: half its epsilon (Lemma 2)."""
        return Fraction(self.choice) / 2

    def account(self, delta: float) -> tuple[Spent, ...]:
        """What each stage is paid."""
        choice, rest = Fraction(self.choice), Fraction(self.rest)
        if self.accounting == "concentrated":
            prices = [(CHOICE, self.dimension * choice**2 / 8), (THE_MEAN, rest)]
            return account(prices, unit="rho")
        noise = self.dimension * rest if self.accounting == "pure" else rest
        return account([(CHOICE, self.dimension * choice), (THE_MEAN, noise)], unit="epsilon", delta=delta)

    def claims(self, delta: float) -> tuple[Claim, Claim]:
        """What the choice and the noise of one coordinate cost."""
        choice, rest = Fraction(self.choice), Fraction(self.rest)
        match self.accounting:
            case "pure":
                return Claim(what=CHOICE, epsilon=choice), Claim(what=THE_MEAN, epsilon=rest)
            case "gaussian":
                noise = Claim(what=THE_MEAN, epsilon=rest, delta=delta, among=self.dimension)
                return Claim(what=CHOICE, epsilon=choice), noise
            case "concentrated":
                noise = Claim(what=THE_MEAN, rho=rest / self.dimension)
                return Claim(what=CHOICE, rho=choice**2 / 8), noise

    def concentrated(self) -> Fraction | None:
        """The rho of both stages, where that is what they are accounted in."""
        if self.accounting != "concentrated":
            return None
        return self.dimension * Fraction(self.choice) ** 2 / 8 + Fraction(self.rest)

    def noise_law(self, sensitivity: int, delta: float) -> NoiseLaw:
        """The noise of one coordinate whose sum moves by at most `sensitivity` between neighbours."""
        squared = self.dimension * sensitivity**2
        match self.accounting:
            case "pure":
                return NoiseLaw(kind="laplace", scale=laplace_scale(self.rest, sensitivity))
            case "gaussian":
                sigma = discrete_gaussian_sigma(
                    self.rest, delta, sensitivity=math.isqrt(squared - 1) + 1, dimension=self.dimension
                )
                return NoiseLaw(kind="gaussian", scale=sigma)
            case "concentrated":
                return NoiseLaw(
                    kind="gaussian", scale=concentrated_sigma(self.rest, squared_sensitivity=squared)
                )

    def noise_ratio(self, delta: float) -> float:
        """The predicted standard deviation of the noise over the sensitivity of one coordinate."""
        match self.accounting:
            case "pure":
                return math.sqrt(2.0) / self.rest
            case "gaussian":
                return math.sqrt(self.dimension) / gaussian_alpha(self.rest, delta)
            case "concentrated":
                return math.sqrt(self.dimension / (2.0 * self.rest))


@lru_cache(maxsize=256)
def best_plan(task: Task, epsilon: float, delta: float, share: float | None = None) -> Plan:
    """The plan of least predicted error; `share` fixes the part of the budget that the first stage gets."""
    if task.bins == 1:
        shares: tuple[float, ...] = (0.0,)
    else:
        shares = _SHARES if share is None else (share,)
    plans = [
        plan
        for one in shares
        for plan in _plans(Fraction(one), epsilon, delta, task.dimension)
        if plan.rest > 0
    ]
    if not plans:
        raise InputError("epsilon is too small for so many columns; raise epsilon or release fewer columns")
    return min(plans, key=lambda plan: predicted_error(plan, task, delta))


def predicted_error(plan: Plan, task: Task, delta: float) -> float:
    """Mean squared error of a coordinate that the plan adds: noise, and intervals chosen wrongly.

    Wrong intervals count four times and with the worst error: insurance that costs little. `typical_error` has none.
    """
    noise = plan.noise_ratio(delta) * 4.0 * task.half_width * task.weight_share
    pull = float(plan.rate) * task.n_users
    far = min(task.bins * math.exp(-_FAR_GAP * pull), 1.0) * (task.bins * task.half_width) ** 2
    near = min(2.0 * math.exp(-_NEAR_GAP * pull), 1.0) * task.half_width**2
    return noise**2 + (4.0 * (far + near) if task.bins > 1 else 0.0)


def typical_error(plan: Plan, task: Task, delta: float) -> float:
    """The same as it may be expected, to compare `winsorized` with other mechanisms: a wrong interval is anywhere."""
    noise = plan.noise_ratio(delta) * 4.0 * task.half_width * task.weight_share
    if task.bins == 1:
        return noise**2
    pull = float(plan.rate) * task.n_users
    far = task.bins * math.exp(-_FAR_GAP * pull)
    near = 2.0 * math.exp(-_NEAR_GAP * pull)
    chosen_wrongly = far * (task.bins * task.half_width) ** 2 / 3.0 + near * task.half_width**2
    return noise**2 + chosen_wrongly / (1.0 + far + near)


def _plans(share: Fraction, epsilon: float, delta: float, dimension: int) -> Iterator[Plan]:
    """Each way of accounting with this share for the first stage, landing on the private side."""
    budget = Fraction(epsilon)
    choice = float_down(share * budget / dimension)
    left = budget - dimension * Fraction(choice)
    yield Plan(accounting="pure", choice=choice, rest=float_down(left / dimension), dimension=dimension)
    if delta == 0.0:
        return
    joint = float_down(left)
    if joint >= _LEAST_GAUSSIAN_EPSILON and gaussian_alpha(joint, delta) <= _LARGEST_GAUSSIAN_ALPHA:
        yield Plan(accounting="gaussian", choice=choice, rest=joint, dimension=dimension)
    rho = Fraction(largest_rho(epsilon, delta))
    choice = math.sqrt(8 * share * rho / dimension)
    left = rho - dimension * Fraction(choice) ** 2 / 8
    if left > 0:
        yield Plan(accounting="concentrated", choice=choice, rest=float_down(left), dimension=dimension)
