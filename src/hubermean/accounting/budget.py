"""Privacy budgets: what a release costs, in which unit its steps are accounted for, and how it divides its budget.

    PrivacyCost     what a release is charged, or used: (epsilon, delta), and rho if its distribution is concentrated
    PrivacyBudget   the budget of several steps, in pure epsilon or in rho of concentrated privacy (zCDP)
    BudgetEntry     one line of a release's budget breakdown: a private step and its cost
    Claim           the cost that one step claims, for audits

Many small steps, and Gaussian noise, cost less in concentrated privacy; for one or two columns pure epsilon goes
further (proofs/adaptive.md, Theorem 1). All costs are exact fractions, computed from public and released numbers only.
A claim is made from the cost that is booked for a step, never from the rate or the scale of its sampler: an audit
computes the privacy loss of the step independently and compares, so that a mistake in either shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Literal

from hubermean.accounting.arguments import is_real, round_down
from hubermean.accounting.concentrated import epsilon_of_part, largest_rho
from hubermean.errors import InputError, parameter

Unit = Literal["epsilon", "rho", "delta"]
Amount = Fraction | float

THE_MEAN = "the mean"
THE_COUNT = "the count"
THE_GROUPS = "which groups appear"
WEIGHT = "weight of all users"

_DIGITS = 3  # of an amount in a text
_SIX_DIGITS_UP = Context(prec=6, rounding=ROUND_CEILING)


def checked_budget(epsilon: object, delta: object) -> tuple[float, float]:
    """Return epsilon and delta of a release, or of a data set in total; InputError if one is out of range."""
    if not (is_real(epsilon) and 1e-9 <= epsilon <= 1e9):  # type: ignore[operator]
        raise InputError(f"{parameter('epsilon')} must be a number from 1e-9 to 1e9, not {epsilon!r}")
    if not (is_real(delta) and (delta == 0 or 1e-100 <= delta < 1)):  # type: ignore[operator]
        raise InputError(f"{parameter('delta')} must be 0, or at least 1e-100 and below 1, not {delta!r}")
    return float(epsilon), float(delta)  # type: ignore[arg-type]


def not_above(amount: float) -> float:
    """Return the largest float that is at most the decimal that people write for `amount`.

    Mechanisms use this float, so that they never exceed the decimal that ledgers add up and results state: the float
    nearest to 0.1 is slightly more than 0.1.

    >>> not_above(0.5), Fraction(not_above(0.1)) < Fraction("0.1") < Fraction(0.1)
    (0.5, True)
    """
    return math.nextafter(amount, 0.0) if Fraction(amount) > Fraction(repr(amount)) else amount


def not_below(amount: Fraction) -> float:
    """Return a number rounded up to six digits, as the float that people write so.

    >>> not_below(Fraction(1, 3)), not_below(Fraction(1, 4))
    (0.333334, 0.25)
    """
    return float(_SIX_DIGITS_UP.divide(Decimal(amount.numerator), Decimal(amount.denominator)))


@dataclass(frozen=True, kw_only=True)
class PrivacyCost:
    """What a release is charged, from public numbers; `rho` if its output distribution is concentrated.

    With `rho_delta` above 0 it is concentrated up to an event of that probability (approximate zCDP).
    """

    epsilon: float
    delta: float
    rho: Fraction | None = None
    rho_delta: float = 0.0

    def __post_init__(self) -> None:
        """Check what a custom mechanism may state: a negative cost would increase a budget."""
        amounts = (self.epsilon, self.delta, self.rho_delta)
        if not all(is_real(one) and 0 <= one < math.inf for one in amounts):
            raise InputError("a cost must be a finite epsilon and delta of 0 or more")
        if self.rho is not None and not (isinstance(self.rho, Fraction) and self.rho >= 0):
            raise InputError("concentrated() of a mechanism must return a Fraction of 0 or more, or None")


@dataclass(frozen=True, kw_only=True)
class PrivacyBudget:
    """The budget of several steps: epsilon if "pure", rho if "concentrated".

    Attributes:
        pure_total: the epsilon that all steps together may cost instead of the total, where a private result decides
            between the two: later steps are then all pure, or all concentrated (proofs/groups.md, Lemma 7). None if
            the accounting is resolved.
    """

    accounting: Literal["pure", "concentrated"]
    total: Fraction
    pure_total: Fraction | None = None

    @classmethod
    def pure(cls, epsilon: float) -> PrivacyBudget:
        """Return a budget in pure epsilon."""
        return cls(accounting="pure", total=Fraction(epsilon))

    @classmethod
    def concentrated(cls, epsilon: float, delta: float) -> PrivacyBudget:
        """Return a budget in rho that implies (epsilon, delta)."""
        return cls(accounting="concentrated", total=Fraction(largest_rho(epsilon, delta)))

    def cost_of_selection(self, epsilon: Fraction) -> Fraction:
        """Return the cost of an exponential mechanism that is epsilon-DP, hence of bounded range epsilon."""
        return epsilon if self.accounting == "pure" else epsilon**2 / 8

    def cost_of_noise(self, epsilon: Fraction) -> Fraction:
        """Return the cost of Laplace noise that is epsilon-DP."""
        return epsilon if self.accounting == "pure" else epsilon**2 / 2

    def largest_selection(self, remaining: Fraction, part: float) -> float:
        """Return the epsilon of an exponential mechanism that costs a part of the remaining budget."""
        if self.accounting == "pure":
            return part * round_down(remaining)
        return math.sqrt(8.0 * part * max(float(remaining), 0.0))

    def largest_noise(self, part: float) -> float:
        """Return the epsilon of Laplace noise that costs a part of the total."""
        if self.accounting == "pure":
            return part * float(self.total)
        return math.sqrt(2.0 * part * float(self.total))

    def used_by(self, spent: Fraction, whole: PrivacyCost) -> PrivacyCost:
        """Return what steps that cost `spent` used of (epsilon, delta), when no further step is run.

        `whole` is the (epsilon, delta) that this budget implies. Delta is for the last step where the budget is pure,
        and for all steps together where it is concentrated (proofs/ledger.md, Lemmas 6 and 7).
        """
        if spent <= 0:
            return PrivacyCost(epsilon=0.0, delta=0.0, rho=Fraction(0))
        if self.accounting == "pure":
            return PrivacyCost(epsilon=min(not_below(spent), whole.epsilon), delta=0.0)
        used = not_below(epsilon_of_part(whole.epsilon, whole.delta, spent))
        return PrivacyCost(epsilon=min(used, whole.epsilon), delta=whole.delta, rho=spent)

    def claim(
        self, what: str, privacy_cost: Fraction, *, delta: float = 0.0, epsilon: Fraction | None = None
    ) -> Claim:
        """Return the claim that a step costs at most its cost; `delta` is added to pure epsilon only.

        `epsilon` is what it costs in pure epsilon; it is claimed beside rho where the accounting is not resolved.
        """
        if self.accounting == "pure":
            return Claim(what=what, epsilon=privacy_cost, delta=delta)
        return Claim(what=what, rho=privacy_cost, epsilon=None if self.pure_total is None else epsilon)

    def break_down_budget(
        self, step_costs: Iterable[tuple[str, Fraction]], delta: float
    ) -> tuple[BudgetEntry, ...]:
        """Return the budget breakdown of steps with these costs."""
        unit: Unit = "epsilon" if self.accounting == "pure" else "rho"
        return break_down_budget(step_costs, unit=unit, delta=delta)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The cost that one step claims: epsilon, epsilon and delta, or rho of concentrated privacy (zCDP).

    Attributes:
        what: the name of the step, as in the budget breakdown.
        epsilon, delta: a cost in (epsilon, delta); for an exponential mechanism also a bound on its range.
        rho: a concentrated cost, in place of epsilon, or beside it for a step that costs at most either.
        among: by which the squares of Gaussian samples' shifts are multiplied for the full cost: the number of samples
            that share it in equal parts, or one over the part of one of them.
    """

    what: str
    epsilon: Amount | None = None
    delta: Amount = 0.0
    rho: Amount | None = None
    among: int | Fraction = 1

    def __post_init__(self) -> None:
        if self.epsilon is None and self.rho is None:
            raise ValueError("a claim needs epsilon or rho")


@dataclass(frozen=True, kw_only=True)
class BudgetEntry:
    """One line of a budget breakdown: a private step and its cost.

    A cost in rho is part of a concentrated budget, which epsilon and delta pay for together.
    """

    what: str
    amount: float
    unit: Unit


def break_down_budget(
    step_costs: Iterable[tuple[str, Fraction]], *, unit: Unit, delta: float = 0.0, delta_for: str = THE_MEAN
) -> tuple[BudgetEntry, ...]:
    """Return the budget breakdown of steps; costs of the same name are added, and zeros omitted.

    A concentrated budget, in rho, is paid for with delta as well, so delta has no entry there.

    Formal guarantees: the amounts add up, exactly, to at most the costs.

    >>> costs = [("scale", Fraction(1, 4)), ("the mean", Fraction(1, 2)), ("scale", Fraction(1, 4))]
    >>> break_down_budget(costs, unit="rho")
    (BudgetEntry(what='scale', amount=0.5, unit='rho'), BudgetEntry(what='the mean', amount=0.5, unit='rho'))
    """
    totals: dict[str, Fraction] = {}
    for what, privacy_cost in step_costs:
        totals[what] = totals.get(what, Fraction(0)) + privacy_cost
    entries = [
        BudgetEntry(what=what, amount=round_down(privacy_cost), unit=unit)
        for what, privacy_cost in totals.items()
        if privacy_cost > 0
    ]
    if delta > 0.0 and unit == "epsilon":
        entries.append(BudgetEntry(what=delta_for, amount=delta, unit="delta"))
    return tuple(entries)


def whole_budget(epsilon: float, delta: float, *, what: str = THE_MEAN) -> tuple[BudgetEntry, ...]:
    """Return the budget breakdown of a mechanism with a single step."""
    entries = [BudgetEntry(what=what, amount=epsilon, unit="epsilon")]
    if delta > 0.0:
        entries.append(BudgetEntry(what=what, amount=delta, unit="delta"))
    return tuple(entries)


def has_stages(breakdown: Iterable[BudgetEntry]) -> bool:
    """Whether the budget was spent on more than one step."""
    return len({entry.what for entry in breakdown}) > 1


def format_amounts(amounts: Sequence[float]) -> list[str]:
    """Return amounts of one unit as text with few digits; the texts never add up to more than the amounts.

    The largest amount absorbs the rounding of the others.

    >>> format_amounts([0.2 / 3, 0.2 / 3, 0.2 / 3, 0.8])
    ['0.0667', '0.0667', '0.0667', '0.7999']
    """
    if not amounts:
        return []
    largest = max(range(len(amounts)), key=amounts.__getitem__)
    texts = [f"{amount:.{_DIGITS}g}" for amount in amounts]
    remainder = sum(map(Fraction, amounts), Fraction(0))
    remainder -= sum(Fraction(text) for position, text in enumerate(texts) if position != largest)
    if remainder > 0:
        texts[largest] = _round_digits_down(remainder, _DIGITS + 1)
    return texts


def _round_digits_down(exact: Fraction, digits: int) -> str:
    """Return a number rounded down to significant digits, tolerating a float error in the last place."""
    exact *= 1 + Fraction(1, 10**12)
    step = Fraction(10) ** (math.floor(math.log10(exact)) - digits + 1)
    return f"{float(math.floor(exact / step) * step):.{digits}g}"
