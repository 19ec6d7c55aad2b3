"""How `winsorized` splits its budget between choosing intervals and adding noise, from public numbers alone.

Each of D coordinates selects an interval by an exponential mechanism and then receives noise. Three ways to account for
that are compared (proofs/winsorized.md, Theorem 1), each over a grid of shares for the first stage, by their predicted
error. The prediction affects accuracy only: every split keeps the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import THE_MEAN, BudgetEntry, Claim, break_down_budget
from hubermean.accounting.concentrated import concentrated_sigma, largest_rho
from hubermean.accounting.discrete import discrete_gaussian_sigma, laplace_scale
from hubermean.accounting.gaussian import gaussian_alpha
from hubermean.distributions.output import NoiseDistribution
from hubermean.errors import InputError, parameter

Accounting = Literal["pure", "gaussian", "concentrated"]

INTERVAL_CHOICE = "interval of user means"

# Never more than half for the first stage, the share of Levy et al. (2021): with more, every release would have more
# noise to make wrong intervals rarer still.
_SHARES = tuple(0.5 * 2.0 ** (-step / 4) for step in range(60))
# Assumptions of the prediction: by how much, as a share of all users, the cost of a distant bin, and of a bin next
# to the right one, exceeds the least cost. A distant bin has cost near n, the median's at most n/2.
_FAR_GAP = 0.5
_NEAR_GAP = 0.25
# Within these, a sensitivity of 2^14 grid units, which every grid has, is enough for `discrete_gaussian_sigma`.
_LEAST_GAUSSIAN_EPSILON = 1e-3
_LARGEST_GAUSSIAN_ALPHA = 8.0


@dataclass(frozen=True, kw_only=True)
class TwoStageProblem:
    """The public numbers that the split depends on. Widths are in any one unit.

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
class TwoStageSplit:
    """A split of the budget between selection and noise.

    Attributes:
        accounting: how losses are composed.
        selection_epsilon: of the exponential mechanism of each coordinate; 0 where there is one bin only.
        noise_budget: "pure": the epsilon of the Laplace noise of each coordinate; "gaussian": the epsilon of the
            Gaussian noise of all coordinates together; "concentrated": the rho of that noise.
        dimension: number of coordinates D.
    """

    accounting: Accounting
    selection_epsilon: float
    noise_budget: float
    dimension: int

    @property
    def rate(self) -> Fraction:
        """The rate of the exponential mechanism: half its epsilon (Lemma 2)."""
        return Fraction(self.selection_epsilon) / 2

    def break_down_budget(self, delta: float) -> tuple[BudgetEntry, ...]:
        """What was spent on each stage."""
        choice, rest = Fraction(self.selection_epsilon), Fraction(self.noise_budget)
        if self.accounting == "concentrated":
            step_costs = [(INTERVAL_CHOICE, self.dimension * choice**2 / 8), (THE_MEAN, rest)]
            return break_down_budget(step_costs, unit="rho")
        noise = self.dimension * rest if self.accounting == "pure" else rest
        return break_down_budget(
            [(INTERVAL_CHOICE, self.dimension * choice), (THE_MEAN, noise)], unit="epsilon", delta=delta
        )

    def claims(self, delta: float) -> tuple[Claim, Claim]:
        """What selection and noise of one coordinate cost."""
        choice, rest = Fraction(self.selection_epsilon), Fraction(self.noise_budget)
        match self.accounting:
            case "pure":
                return Claim(what=INTERVAL_CHOICE, epsilon=choice), Claim(what=THE_MEAN, epsilon=rest)
            case "gaussian":
                noise = Claim(what=THE_MEAN, epsilon=rest, delta=delta, among=self.dimension)
                return Claim(what=INTERVAL_CHOICE, epsilon=choice), noise
            case "concentrated":
                noise = Claim(what=THE_MEAN, rho=rest / self.dimension)
                return Claim(what=INTERVAL_CHOICE, rho=choice**2 / 8), noise

    def concentrated(self) -> Fraction | None:
        """The rho of both stages together, where they are accounted for in rho."""
        if self.accounting != "concentrated":
            return None
        return self.dimension * Fraction(self.selection_epsilon) ** 2 / 8 + Fraction(self.noise_budget)

    def noise_distribution(self, sensitivity: int, delta: float) -> NoiseDistribution:
        """The noise of one coordinate whose sum moves by at most `sensitivity` between neighbors."""
        squared = self.dimension * sensitivity**2
        match self.accounting:
            case "pure":
                return NoiseDistribution(kind="laplace", scale=laplace_scale(self.noise_budget, sensitivity))
            case "gaussian":
                sigma = discrete_gaussian_sigma(
                    self.noise_budget,
                    delta,
                    sensitivity=math.isqrt(squared - 1) + 1,
                    dimension=self.dimension,
                )
                return NoiseDistribution(kind="gaussian", scale=sigma)
            case "concentrated":
                return NoiseDistribution(
                    kind="gaussian", scale=concentrated_sigma(self.noise_budget, squared_sensitivity=squared)
                )

    def noise_ratio(self, delta: float) -> float:
        """The predicted standard deviation of the noise over the sensitivity of one coordinate."""
        match self.accounting:
            case "pure":
                return math.sqrt(2.0) / self.noise_budget
            case "gaussian":
                return math.sqrt(self.dimension) / gaussian_alpha(self.noise_budget, delta)
            case "concentrated":
                return math.sqrt(self.dimension / (2.0 * self.noise_budget))


@lru_cache(maxsize=256)
def choose_split(
    problem: TwoStageProblem, epsilon: float, delta: float, share: float | None = None
) -> TwoStageSplit:
    """The split of least predicted error; `share` fixes the part of the budget for the first stage."""
    if problem.bins == 1:
        shares: tuple[float, ...] = (0.0,)
    else:
        shares = _SHARES if share is None else (share,)
    splits = [
        split
        for one in shares
        for split in _candidate_splits(Fraction(one), epsilon, delta, problem.dimension)
        if split.noise_budget > 0
    ]
    if not splits:
        raise InputError(
            f"{parameter('epsilon')} is too small for so many columns; raise epsilon or release fewer columns"
        )
    return min(splits, key=lambda split: predicted_error(split, problem, delta))


def predicted_error(split: TwoStageSplit, problem: TwoStageProblem, delta: float) -> float:
    """Mean squared error that the split adds to a coordinate: noise, and wrong intervals.

    Wrong intervals count four times and with the worst error, a safeguard that costs little. `typical_error` omits it.
    """
    noise = split.noise_ratio(delta) * 4.0 * problem.half_width * problem.weight_share
    exponent = float(split.rate) * problem.n_users
    far = min(problem.bins * math.exp(-_FAR_GAP * exponent), 1.0) * (problem.bins * problem.half_width) ** 2
    near = min(2.0 * math.exp(-_NEAR_GAP * exponent), 1.0) * problem.half_width**2
    return noise**2 + (4.0 * (far + near) if problem.bins > 1 else 0.0)


def typical_error(split: TwoStageSplit, problem: TwoStageProblem, delta: float) -> float:
    """The mean squared error to expect, for comparison with other mechanisms: a wrong interval lies anywhere."""
    noise = split.noise_ratio(delta) * 4.0 * problem.half_width * problem.weight_share
    if problem.bins == 1:
        return noise**2
    exponent = float(split.rate) * problem.n_users
    far = problem.bins * math.exp(-_FAR_GAP * exponent)
    near = 2.0 * math.exp(-_NEAR_GAP * exponent)
    wrong_interval = far * (problem.bins * problem.half_width) ** 2 / 3.0 + near * problem.half_width**2
    return noise**2 + wrong_interval / (1.0 + far + near)


def _candidate_splits(
    share: Fraction, epsilon: float, delta: float, dimension: int
) -> Iterator[TwoStageSplit]:
    """Every way of accounting with this share for the first stage, rounded to the private side."""
    budget = Fraction(epsilon)
    choice = round_down(share * budget / dimension)
    left = budget - dimension * Fraction(choice)
    yield TwoStageSplit(
        accounting="pure",
        selection_epsilon=choice,
        noise_budget=round_down(left / dimension),
        dimension=dimension,
    )
    if delta == 0.0:
        return
    joint = round_down(left)
    if joint >= _LEAST_GAUSSIAN_EPSILON and gaussian_alpha(joint, delta) <= _LARGEST_GAUSSIAN_ALPHA:
        yield TwoStageSplit(
            accounting="gaussian", selection_epsilon=choice, noise_budget=joint, dimension=dimension
        )
    rho = Fraction(largest_rho(epsilon, delta))
    choice = math.sqrt(8 * share * rho / dimension)
    left = rho - dimension * Fraction(choice) ** 2 / 8
    if left > 0:
        yield TwoStageSplit(
            accounting="concentrated",
            selection_epsilon=choice,
            noise_budget=round_down(left),
            dimension=dimension,
        )
