"""Amounts of privacy loss as exact decimals: sums are exact, and every rounding is upward."""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hubermean.errors import LedgerDamaged

# Enough digits for sums of any amounts that requests may have, from 1e9 down to the last digit of 1e-100 and its
# multiples; a sum that needs more is an error, never a rounded number.
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

    def __sub__(self, other: Cost) -> Cost:
        """The exact difference; LedgerDamaged where an amount would be negative."""
        if not other.within(self):
            raise LedgerDamaged("more is given back than was charged")
        return other.left_of(self)

    def within(self, limit: Cost) -> bool:
        """Whether neither amount exceeds a limit."""
        return self.loss <= limit.loss and self.delta <= limit.delta

    def left_of(self, limit: Cost) -> Cost:
        """Return what a limit leaves after this cost; at least zero."""
        return Cost(
            loss=max(total_of(limit.loss, self.loss.copy_negate()), Decimal(0)),
            delta=max(total_of(limit.delta, self.delta.copy_negate()), Decimal(0)),
        )

    def to_dict(self) -> dict[str, str]:
        """Return the amounts as texts with all digits."""
        return {"loss": plain(self.loss), "delta": plain(self.delta)}

    @classmethod
    def read(cls, written: object) -> Cost:
        """Return the cost that `to_dict` wrote; LedgerDamaged if it is not one."""
        if not isinstance(written, dict) or set(written) != {"loss", "delta"}:
            raise LedgerDamaged("an amount cannot be read")
        return cls(loss=parse_amount(written["loss"]), delta=parse_amount(written["delta"]))


def product(amount: Decimal, factor: Decimal | int) -> Decimal:
    """Return the exact product, whatever decimal context the caller has set."""
    return _EXACT.multiply(amount, factor)


def half_of(amount: Decimal) -> Decimal:
    """Return the exact half."""
    return _EXACT.divide(amount, 2)


def total_of(*amounts: Decimal) -> Decimal:
    """Return the exact sum; LedgerDamaged if it has more digits than amounts of requests can lead to."""
    total = Decimal(0)
    try:
        for amount in amounts:
            total = _EXACT.add(total, amount)
    except decimal.Inexact:
        raise LedgerDamaged("an amount has too many digits") from None
    return total


NOTHING = Cost(loss=Decimal(0), delta=Decimal(0))


def as_written(amount: float) -> Decimal:
    """Return a float as the decimal that people write for it, so that ten times 0.1 is 1.

    >>> as_written(0.1) * 10 == 1
    True
    """
    return Decimal(repr(float(amount)))


def float_within(amount: Decimal) -> float:
    """Return the largest float whose decimal, as people write it, is at most the amount.

    >>> float_within(Decimal("0.29999999999999999999"))
    0.29999999999999993
    """
    near = float(amount)
    while near > 0 and as_written(near) > amount:
        near = math.nextafter(near, 0.0)
    return near


def upward(exact: Fraction | Decimal) -> Decimal:
    """Return a non-negative number rounded up to twenty digits.

    >>> upward(Fraction(1, 3))
    Decimal('0.33333333333333333334')
    """
    if isinstance(exact, Decimal):
        return _UPWARD.plus(exact)
    return _UPWARD.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def exponential(power: Decimal) -> Decimal:
    """Return e to a power of at most 700, rounded up."""
    if power > 700:
        raise ValueError("the power must be at most 700")
    # exp is correctly rounded to the nearest, so the next number is above.
    return _UPWARD.next_plus(power.exp(_UPWARD))


def plain(amount: Decimal) -> str:
    """Return all digits of an amount, the same text for equal amounts.

    >>> plain(Decimal("1E+2")), plain(Decimal("0.50")), plain(Decimal("0.00"))
    ('100', '0.5', '0')
    """
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def parse_amount(text: object) -> Decimal:
    """Return the amount that `plain` wrote; LedgerDamaged if it is not one."""
    if isinstance(text, str) and len(text) <= _LONGEST and text.isascii():
        try:
            amount = Decimal(text)
        except decimal.InvalidOperation:
            amount = Decimal("NaN")
        if amount.is_finite() and amount >= 0 and plain(amount) == text:
            return amount
    raise LedgerDamaged("an amount cannot be read")
