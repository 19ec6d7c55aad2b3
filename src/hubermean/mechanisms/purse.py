"""The unit in which `adaptive` accounts for its steps: pure epsilon, or concentrated privacy where many steps add up.

Losses of many small steps add up more slowly in concentrated privacy, and Gaussian noise is paid for in it; for one
column or two pure epsilon goes further. Proof: proofs/adaptive.md, Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from hubermean.laws import Claim
from hubermean.mechanisms.account import account
from hubermean.privacy import float_down, largest_rho
from hubermean.spending import Spent


@dataclass(frozen=True, kw_only=True)
class Purse:
    """A budget: epsilon for "pure", rho for "concentrated"."""

    accounting: Literal["pure", "concentrated"]
    total: Fraction

    @classmethod
    def pure(cls, epsilon: float) -> Purse:
        return cls(accounting="pure", total=Fraction(epsilon))

    @classmethod
    def concentrated(cls, epsilon: float, delta: float) -> Purse:
        return cls(accounting="concentrated", total=Fraction(largest_rho(epsilon, delta)))

    def of_choice(self, epsilon: Fraction) -> Fraction:
        """The price of an exponential mechanism that is epsilon-DP, and of bounded range epsilon."""
        return epsilon if self.accounting == "pure" else epsilon**2 / 8

    def of_noise(self, epsilon: Fraction) -> Fraction:
        """The price of Laplace noise that is epsilon-DP."""
        return epsilon if self.accounting == "pure" else epsilon**2 / 2

    def largest_choice(self, money: Fraction, part: float) -> float:
        """The epsilon of a choice that costs a part of the money."""
        if self.accounting == "pure":
            return part * float_down(money)
        return math.sqrt(8.0 * part * max(float(money), 0.0))

    def largest_noise(self, part: float) -> float:
        """The epsilon of Laplace noise that costs a part of all there is."""
        if self.accounting == "pure":
            return part * float(self.total)
        return math.sqrt(2.0 * part * float(self.total))

    def claim(self, what: str, price: Fraction, *, delta: float = 0.0) -> Claim:
        """That a step costs no more than its price; `delta` is what pure epsilon has beside it."""
        if self.accounting == "pure":
            return Claim(what=what, epsilon=price, delta=delta)
        return Claim(what=what, rho=price)

    def account(self, prices: Iterable[tuple[str, Fraction]], delta: float) -> tuple[Spent, ...]:
        """What the prices paid for."""
        return account(prices, unit="epsilon" if self.accounting == "pure" else "rho", delta=delta)
