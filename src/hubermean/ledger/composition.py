"""Composition: how the costs of releases add up, and what a total allows.

basic          Epsilons and deltas are added. This holds for adaptively chosen releases (Rogers, Roth, Ullman & Vadhan
               2016; proofs/ledger.md, Lemma 1).
concentrated   Costs are converted to rho of zero-concentrated privacy and added; deltas of mechanisms that are not
               concentrated are added separately. This holds for adaptively chosen parameters, too: the filter of
               approximate zCDP (Whitehouse, Ramdas, Rogers & Wu 2023; Lemma 3), for a rho and a delta that are fixed
               beforehand. One half of the total delta pays for the conversion to epsilon, the other for added deltas.

Privacy loss distributions give a tighter bound for a fixed list of releases. It is not known to hold when analysts
choose releases and their costs after seeing earlier results, as they do with a ledger.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import PrivacyCost, not_above
from hubermean.accounting.concentrated import largest_rho
from hubermean.errors import InputError, parameter
from hubermean.ledger.amounts import (
    NOTHING,
    Cost,
    as_written,
    exponential,
    half_of,
    product,
    total_of,
    upward,
)
from hubermean.types.clients import ClientNeighbors, Relation
from hubermean.types.formatting import one_sided
from hubermean.types.request import Neighbors


class Composition(ABC):
    """A rule by which costs add up; `unit` is the unit of losses."""

    name: str
    unit: str

    @abstractmethod
    def limit(self, epsilon: float, delta: float) -> Cost:
        """Return the largest total of all costs."""

    def gives(self, limit: Cost, epsilon: float, delta: float) -> bool:
        """Whether a recorded limit is that of a total."""
        return limit == self.limit(epsilon, delta)

    @abstractmethod
    def cost(self, privacy_cost: PrivacyCost, changes: int) -> Cost:
        """Return the cost of a release whose neighbors are `changes` steps from those of the data set."""

    def cost_of_part(self, whole: PrivacyCost, part: PrivacyCost, changes: int) -> Cost:
        """Return what a release that was charged the whole costs if only a part of it was used; never more.

        In the unit of the charge, and with the delta of the changes at the epsilon of the whole
        (proofs/ledger.md, Lemma 8).
        """
        charged = self.cost(whole, changes)
        if not (part.epsilon or part.delta or part.rho):
            return NOTHING
        if not self._in_one_unit(whole, part):
            return charged
        loss, delta = (
            self.cost(part, changes).loss,
            self.cost(replace(whole, delta=part.delta), changes).delta,
        )
        return Cost(loss=min(loss, charged.loss), delta=min(delta, charged.delta))

    def _in_one_unit(self, whole: PrivacyCost, part: PrivacyCost) -> bool:
        """Whether the part is stated in the unit that the whole was charged in."""
        return True

    @abstractmethod
    def epsilon_left(self, left: Cost) -> Decimal:
        """Return the largest pure epsilon that still fits, rounded down."""

    @abstractmethod
    def as_epsilon(self, spent: Cost, limit: Cost) -> tuple[Decimal, Decimal]:
        """Convert costs to (epsilon, delta), rounded up."""

    def format_cost(self, cost: Cost, *, up: bool = True) -> str:
        """Return a cost as text."""
        parts = [f"{self.unit} = {one_sided(cost.loss, up=up)}"]
        if cost.delta > 0:
            parts.append(f"delta = {one_sided(cost.delta, up=up)}")
        return ", ".join(parts)


class Basic(Composition):
    """Adds epsilons and deltas."""

    name = "basic"
    unit = "epsilon"

    def limit(self, epsilon: float, delta: float) -> Cost:
        return Cost(loss=as_written(epsilon), delta=as_written(delta))

    def cost(self, privacy_cost: PrivacyCost, changes: int) -> Cost:
        epsilon, delta = as_written(privacy_cost.epsilon), as_written(privacy_cost.delta)
        return Cost(loss=product(epsilon, changes), delta=_delta_of_changes(epsilon, delta, changes))

    def epsilon_left(self, left: Cost) -> Decimal:
        return left.loss

    def as_epsilon(self, spent: Cost, limit: Cost) -> tuple[Decimal, Decimal]:
        return spent.loss, spent.delta


class Concentrated(Composition):
    """Adds rho of zero-concentrated privacy."""

    name = "concentrated"
    unit = "rho"

    def limit(self, epsilon: float, delta: float) -> Cost:
        if delta == 0.0:
            raise InputError(f"concentrated composition needs a total delta > 0; give {parameter('delta')}")
        half = half_of(as_written(delta))
        rho = largest_rho(not_above(epsilon), round_down(Fraction(half)))
        if rho == 0.0:
            raise InputError(
                "this total is too small for concentrated composition; use "
                f"{parameter('composition', 'basic')}"
            )
        return Cost(loss=Decimal.from_float(rho), delta=half)

    def gives(self, limit: Cost, epsilon: float, delta: float) -> bool:
        """Compare up to the last digits of rho, in which machines differ because their logarithms do."""
        here = self.limit(epsilon, delta)
        apart = abs(Fraction(limit.loss) - Fraction(here.loss))
        return limit.delta == here.delta and apart <= Fraction(here.loss) / 10**9

    def cost(self, privacy_cost: PrivacyCost, changes: int) -> Cost:
        if privacy_cost.rho is not None:  # the divergence grows with the square of the changes
            return Cost(loss=upward(privacy_cost.rho * changes**2), delta=Decimal(0))
        epsilon, delta = product(as_written(privacy_cost.epsilon), changes), as_written(privacy_cost.delta)
        # epsilon-DP is epsilon^2/2-zCDP (Bun & Steinke 2016), and no divergence is above epsilon.
        rho = min(upward(Fraction(epsilon) ** 2 / 2), epsilon)
        return Cost(loss=rho, delta=_delta_of_changes(as_written(privacy_cost.epsilon), delta, changes))

    def _in_one_unit(self, whole: PrivacyCost, part: PrivacyCost) -> bool:
        return (whole.rho is None) == (part.rho is None)

    def epsilon_left(self, left: Cost) -> Decimal:
        root = math.sqrt(2.0 * float(left.loss)) * (1.0 - 1e-12)
        return max(Decimal.from_float(root), left.loss)

    def as_epsilon(self, spent: Cost, limit: Cost) -> tuple[Decimal, Decimal]:
        """Use dp-accounting's Renyi accountant, which searches the orders; delta includes the half for conversion."""
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
    """Return the composition of a name; InputError if there is none."""
    if not isinstance(name, str) or name not in COMPOSITIONS:
        known = " or ".join(repr(one) for one in COMPOSITIONS)
        raise InputError(f"{parameter('composition')} must be {known}, not {name!r}")
    return COMPOSITIONS[name]


def changes_between(release: Relation, dataset: Relation) -> int:
    """Return how many changes under the release's relation make up one change under the data set's relation.

    Replacing a user is removing one and adding one, or throwing its replies away and putting others in: two changes.
    Replacing values is a special case of replacing users. Throwing away what a client sent leaves what it would have
    left by not being there, but for the number of clients, which only `add-remove` hides.

    Raises:
        InputError: the release does not protect against the change that the total is about.
    """
    if release is dataset:
        return 1
    if dataset is Neighbors.REPLACE_VALUES and release is Neighbors.REPLACE_USER:
        return 1
    if release is Neighbors.ADD_REMOVE:
        return 1 if dataset is ClientNeighbors.ZERO_OUT else 2
    if release is ClientNeighbors.ZERO_OUT and dataset is not Neighbors.ADD_REMOVE:
        return 2
    raise InputError(
        f"{parameter('neighbors', release.value)} does not protect what the budget of this data set is about; "
        f"use {parameter('neighbors', dataset.value)}"
    )


def _delta_of_changes(epsilon: Decimal, delta: Decimal, changes: int) -> Decimal:
    """Return the delta of group privacy, delta (1 + e^epsilon + ...), rounded up and at most 1."""
    if changes == 1 or delta == 0:
        return delta
    if product(epsilon, changes - 1) > 700:
        return Decimal(1)
    factors = total_of(Decimal(1), *(exponential(product(epsilon, step)) for step in range(1, changes)))
    return min(upward(product(delta, factors)), Decimal(1))
