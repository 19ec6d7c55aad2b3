"""What a step of a release claims to cost: the amount that is booked for it in the account of the release.

A claim is made from what is booked, never from the rate of a choice or the scale of noise, so that a slip in either
shows: an audit computes what the step gives away by itself and compares it with the claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

Amount = Fraction | float


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The budget of one step: epsilon, epsilon and delta, or rho of concentrated privacy (zCDP).

    Attributes:
        what: the name of the step, as in the account of the release.
        epsilon, delta: a budget in (epsilon, delta); for an exponential mechanism also a bound on its range.
        rho: a concentrated budget, in place of epsilon.
        among: for Gaussian noise that several draws share a budget for: how many of them have equal parts of it.
    """

    what: str
    epsilon: Amount | None = None
    delta: Amount = 0.0
    rho: Amount | None = None
    among: int = 1

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise ValueError("a claim is made in epsilon or in rho")
