"""The account of a release: what each private question of a mechanism cost, from exact prices."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from hubermean.privacy import float_down
from hubermean.spending import THE_MEAN, Spent, Unit

WEIGHT = "weight of all users"


def account(
    prices: Iterable[tuple[str, Fraction]], *, unit: Unit, delta: float = 0.0, delta_for: str = THE_MEAN
) -> tuple[Spent, ...]:
    """Entries of prices; those of one name are added up, those of nothing left out.

    A concentrated budget, in rho, is bought with delta too, so there delta has no entry of its own.

    Formal guarantees: the amounts add up, exactly, to no more than the prices.

    >>> account([("spread", Fraction(1, 4)), ("the mean", Fraction(1, 2)), ("spread", Fraction(1, 4))], unit="rho")
    (Spent(what='spread', amount=0.5, unit='rho'), Spent(what='the mean', amount=0.5, unit='rho'))
    """
    totals: dict[str, Fraction] = {}
    for what, price in prices:
        totals[what] = totals.get(what, Fraction(0)) + price
    entries = [
        Spent(what=what, amount=float_down(price), unit=unit) for what, price in totals.items() if price > 0
    ]
    if delta > 0.0 and unit == "epsilon":
        entries.append(Spent(what=delta_for, amount=delta, unit="delta"))
    return tuple(entries)
