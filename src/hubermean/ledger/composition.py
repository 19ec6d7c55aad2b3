"""How the costs of releases add up, and what a total allows.

basic          Losses and deltas are added. Holds however analysts choose what to ask next (Rogers, Roth, Ullman &
               Vadhan 2016).
concentrated   Losses are booked as rho of zero-concentrated privacy and added; deltas of mechanisms that are not
               concentrated are added beside. Holds for adaptively chosen parameters, too: the filter of approximate
               zCDP (Whitehouse, Ramdas, Rogers & Wu 2023), for a rho and a delta that are fixed beforehand. Of the
               total delta one half pays for the conversion back, the other for deltas that are added.

A tighter number could be had for one fixed list of releases (privacy loss distributions), but it is not known to hold
when analysts choose what to ask, and how much to pay, after seeing answers. That is what a ledger is for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from decimal import Decimal
from fractions import Fraction

from hubermean.errors import InputError
from hubermean.ledger.amounts import Cost, as_written, exponential, half_of, product, total_of, upward
from hubermean.privacy import float_down, largest_rho
from hubermean.readable import one_sided
from hubermean.relations import Neighbors
from hubermean.spending import Price, not_above


class Composition(ABC):
    """A way of adding up; `unit` is what losses are counted in."""

    name: str
    unit: str

    @abstractmethod
    def limit(self, epsilon: float, delta: float) -> Cost:
        """The most that all costs may add up to."""

    def gives(self, limit: Cost, epsilon: float, delta: float) -> bool:
        """Whether a limit that was written down is that of a total."""
        return limit == self.limit(epsilon, delta)

    @abstractmethod
    def cost(self, price: Price, changes: int) -> Cost:
        """What a release costs whose price is for one change, where the data set's neighbours are so many apart."""

    @abstractmethod
    def epsilon_left(self, left: Cost) -> Decimal:
        """The largest epsilon that a pure release may still ask for, rounded down."""

    @abstractmethod
    def as_epsilon(self, spent: Cost, limit: Cost) -> tuple[Decimal, Decimal]:
        """The (epsilon, delta) that costs come to, rounded up."""

    def worded(self, cost: Cost, *, up: bool = True) -> str:
        """A cost for people."""
        parts = [f"{self.unit} = {one_sided(cost.loss, up=up)}"]
        if cost.delta > 0:
            parts.append(f"delta = {one_sided(cost.delta, up=up)}")
        return ", ".join(parts)


class Basic(Composition):
    """Epsilons and deltas, added."""

    name = "basic"
    unit = "epsilon"

    def limit(self, epsilon: float, delta: float) -> Cost:
        return Cost(loss=as_written(epsilon), delta=as_written(delta))

    def cost(self, price: Price, changes: int) -> Cost:
        epsilon, delta = as_written(price.epsilon), as_written(price.delta)
        return Cost(loss=product(epsilon, changes), delta=_delta_of_changes(epsilon, delta, changes))

    def epsilon_left(self, left: Cost) -> Decimal:
        return left.loss

    def as_epsilon(self, spent: Cost, limit: Cost) -> tuple[Decimal, Decimal]:
        return spent.loss, spent.delta


class Concentrated(Composition):
    """Rho of zero-concentrated privacy, added."""

    name = "concentrated"
    unit = "rho"

    def limit(self, epsilon: float, delta: float) -> Cost:
        if delta == 0.0:
            raise InputError("concentrated composition takes a total delta > 0; give delta=")
        half = half_of(as_written(delta))
        rho = largest_rho(not_above(epsilon), float_down(Fraction(half)))
        if rho == 0.0:
            raise InputError("this total is too small for concentrated composition; use composition='basic'")
        return Cost(loss=Decimal.from_float(rho), delta=half)

    def gives(self, limit: Cost, epsilon: float, delta: float) -> bool:
        """Up to the last digits of rho, in which machines differ: logarithms are not the same everywhere."""
        here = self.limit(epsilon, delta)
        apart = abs(Fraction(limit.loss) - Fraction(here.loss))
        return limit.delta == here.delta and apart <= Fraction(here.loss) / 10**9

    def cost(self, price: Price, changes: int) -> Cost:
        if price.rho is not None:  # the divergence of so many changes grows as their square
            return Cost(loss=upward(price.rho * changes**2), delta=Decimal(0))
        epsilon, delta = product(as_written(price.epsilon), changes), as_written(price.delta)
        # epsilon-DP is epsilon^2/2-zCDP (Bun & Steinke 2016), and no divergence is above epsilon.
        rho = min(upward(Fraction(epsilon) ** 2 / 2), epsilon)
        return Cost(loss=rho, delta=_delta_of_changes(as_written(price.epsilon), delta, changes))

    def epsilon_left(self, left: Cost) -> Decimal:
        root = math.sqrt(2.0 * float(left.loss)) * (1.0 - 1e-12)
        return max(Decimal.from_float(root), left.loss)

    def as_epsilon(self, spent: Cost, limit: Cost) -> tuple[Decimal, Decimal]:
        """By dp-accounting's Renyi accountant, which searches the orders; the half of delta that converts counts."""
        from dp_accounting import dp_event
        from dp_accounting.rdp import RdpAccountant

        half = limit.delta  # the other half, see `limit`
        if spent.loss == 0:
            return Decimal(0), spent.delta
        accountant = RdpAccountant()
        accountant.compose(dp_event.ZCDpEvent(rho=float(spent.loss) * (1.0 + 1e-12)))
        epsilon = float(accountant.get_epsilon(float(half))) * (1.0 + 1e-9)
        return upward(Decimal.from_float(epsilon)), upward(total_of(spent.delta, half))


COMPOSITIONS: dict[str, Composition] = {one.name: one for one in (Basic(), Concentrated())}


def composition_named(name: object) -> Composition:
    if not isinstance(name, str) or name not in COMPOSITIONS:
        known = " or ".join(repr(one) for one in COMPOSITIONS)
        raise InputError(f"composition must be {known}, not {name!r}")
    return COMPOSITIONS[name]


def changes_between(release: Neighbors, dataset: Neighbors) -> int:
    """How many changes that a release hides make one change that the data set's total is about.

    A user who is replaced is removed and added: two changes. Values alone are part of what a user is.

    Raises:
        InputError: the release hides something else than the total promises.
    """
    if release is dataset:
        return 1
    if dataset is Neighbors.REPLACE_VALUES and release is Neighbors.REPLACE_USER:
        return 1
    if release is Neighbors.ADD_REMOVE:
        return 2
    raise InputError(
        f"neighbors={release.value!r} does not hide what the budget of this data set is for; "
        f"use neighbors={dataset.value!r}"
    )


def _delta_of_changes(epsilon: Decimal, delta: Decimal, changes: int) -> Decimal:
    """Group privacy: delta (1 + e^epsilon + ...), rounded up; of no use above 1."""
    if changes == 1 or delta == 0:
        return delta
    if product(epsilon, changes - 1) > 700:
        return Decimal(1)
    factors = total_of(Decimal(1), *(exponential(product(epsilon, step)) for step in range(1, changes)))
    return min(upward(product(delta, factors)), Decimal(1))
