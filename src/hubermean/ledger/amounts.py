"""Amounts of privacy as exact decimals: what was written is what is added up, and every rounding is upward."""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hubermean.errors import LedgerDamaged

# Room for the sum of any amounts that a request may have, from 1e9 down to the last digit of 1e-100 and its multiples;
# a sum that would not fit is an error, never a rounded number.
_EXACT = decimal.Context(prec=1000, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow])
_UPWARD = decimal.Context(prec=20, rounding=decimal.ROUND_CEILING)
_LONGEST = 1000  # digits of an amount that is read back


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A loss, in the unit of the data set's composition, and a delta."""

    loss: Decimal
    delta: Decimal

    def __add__(self, other: Cost) -> Cost:
        return Cost(loss=total_of(self.loss, other.loss), delta=total_of(self.delta, other.delta))

    def within(self, limit: Cost) -> bool:
        return self.loss <= limit.loss and self.delta <= limit.delta

    def left_of(self, limit: Cost) -> Cost:
        """What a limit leaves after this; never below nothing."""
        return Cost(
            loss=max(total_of(limit.loss, self.loss.copy_negate()), Decimal(0)),
            delta=max(total_of(limit.delta, self.delta.copy_negate()), Decimal(0)),
        )

    def to_dict(self) -> dict[str, str]:
        return {"loss": plain(self.loss), "delta": plain(self.delta)}

    @classmethod
    def read(cls, written: object) -> Cost:
        """From `to_dict`; LedgerDamaged where it is none."""
        if not isinstance(written, dict) or set(written) != {"loss", "delta"}:
            raise LedgerDamaged("an amount cannot be read")
        return cls(loss=parsed(written["loss"]), delta=parsed(written["delta"]))


def product(amount: Decimal, factor: Decimal | int) -> Decimal:
    """Exact, like every sum here: never in the context of the caller, whose precision may be any."""
    return _EXACT.multiply(amount, factor)


def half_of(amount: Decimal) -> Decimal:
    return _EXACT.divide(amount, 2)


def total_of(*amounts: Decimal) -> Decimal:
    """LedgerDamaged where the amounts of no request could lead there."""
    total = Decimal(0)
    try:
        for amount in amounts:
            total = _EXACT.add(total, amount)
    except decimal.Inexact:
        raise LedgerDamaged("an amount has more digits than any can have") from None
    return total


NOTHING = Cost(loss=Decimal(0), delta=Decimal(0))


def as_written(amount: float) -> Decimal:
    """A float as the decimal that people write for it, so that ten times 0.1 is 1.

    >>> as_written(0.1) * 10 == 1
    True
    """
    return Decimal(repr(float(amount)))


def float_within(amount: Decimal) -> float:
    """The largest float whose decimal, as people write it, is at most the amount.

    >>> float_within(Decimal("0.29999999999999999999"))
    0.29999999999999993
    """
    near = float(amount)
    while near > 0 and as_written(near) > amount:
        near = math.nextafter(near, 0.0)
    return near


def upward(exact: Fraction | Decimal) -> Decimal:
    """Twenty digits of a number that is not negative, rounded up.

    >>> upward(Fraction(1, 3))
    Decimal('0.33333333333333333334')
    """
    if isinstance(exact, Decimal):
        return _UPWARD.plus(exact)
    return _UPWARD.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def exponential(power: Decimal) -> Decimal:
    """e to a power of at most 700, rounded up."""
    if power > 700:
        raise ValueError("the power must be at most 700")
    # Correctly rounded to the nearest, and one step further is above.
    return _UPWARD.next_plus(power.exp(_UPWARD))


def plain(amount: Decimal) -> str:
    """All digits, the same text for equal amounts.

    >>> plain(Decimal("1E+2")), plain(Decimal("0.50")), plain(Decimal("0.00"))
    ('100', '0.5', '0')
    """
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def parsed(text: object) -> Decimal:
    """From `plain`; LedgerDamaged where it is none."""
    if isinstance(text, str) and len(text) <= _LONGEST and text.isascii():
        try:
            amount = Decimal(text)
        except decimal.InvalidOperation:
            amount = Decimal("NaN")
        if amount.is_finite() and amount >= 0 and plain(amount) == text:
            return amount
    raise LedgerDamaged("an amount cannot be read")
