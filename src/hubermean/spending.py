"""What a budget was spent on: public prices, one entry for each private question."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol, TypeVar

from hubermean.errors import InputError, is_real
from hubermean.readable import printable

Unit = Literal["epsilon", "rho", "delta"]
R = TypeVar("R")

THE_MEAN = "the mean"
THE_COUNT = "the count"
THE_GROUPS = "which groups appear"

_DIGITS = 3  # of an amount that is shown to people


@dataclass(frozen=True, kw_only=True)
class Spent:
    """One entry of the account of a release: what was asked of the data, and its price.

    Prices in rho are of a concentrated budget, which epsilon and delta together pay for. Every price follows from
    public and released numbers.
    """

    what: str
    amount: float
    unit: Unit


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a release is charged, from public numbers; `rho` where the law of its mechanism is concentrated."""

    epsilon: float
    delta: float
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        """A mechanism of the caller's own says what its rho is: none may add to a budget."""
        if self.rho is not None and not (isinstance(self.rho, Fraction) and self.rho >= 0):
            raise InputError("concentrated() of a mechanism must return a Fraction of 0 or more, or None")


class Payer(Protocol):
    """Whoever a release is charged to: work is begun once its price is paid, and what it returns is kept."""

    def pay(self, price: Price, work: Callable[[], R]) -> R: ...


class Unpaid:
    """A release that is charged to nobody: whoever makes it keeps count."""

    def pay(self, price: Price, work: Callable[[], R]) -> R:
        return work()


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What a ledger says of a release, in words.

    Attributes:
        again: it was recorded before, and cost nothing this time.
        recorded: the ledger keeps it; if not, asking again would be charged again.
    """

    dataset: str
    entry: int
    charged: str
    left: str
    again: bool = False
    recorded: bool = True

    def to_dict(self) -> dict[str, str | int | bool]:
        names = ("dataset", "entry", "charged", "left", "again", "recorded")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        paid = "asked before, so nothing was charged" if self.again else f"{self.charged} charged"
        if not self.recorded:
            paid += ", but this could not be recorded: keep it"
        return f"{printable(self.dataset)}, entry {self.entry}: {paid}; {self.left} left"


def checked_budget(epsilon: object, delta: object) -> tuple[float, float]:
    """What a release may ask for and a data set may have in all."""
    if not (is_real(epsilon) and 1e-9 <= epsilon <= 1e9):  # type: ignore[operator]
        raise InputError(f"epsilon must be a number from 1e-9 to 1e9, not {epsilon!r}")
    if not (is_real(delta) and (delta == 0 or 1e-100 <= delta < 1)):  # type: ignore[operator]
        raise InputError(f"delta must be 0, or at least 1e-100 and below 1, not {delta!r}")
    return float(epsilon), float(delta)  # type: ignore[arg-type]


def not_above(amount: float) -> float:
    """The largest float that is at most the decimal that people write for `amount`.

    A mechanism is tuned to it, so that the decimal, which ledgers add up and results state, is never exceeded: the
    float nearest to 0.1 is a little more than 0.1.

    >>> not_above(0.5), Fraction(not_above(0.1)) < Fraction("0.1") < Fraction(0.1)
    (0.5, True)
    """
    return math.nextafter(amount, 0.0) if Fraction(amount) > Fraction(repr(amount)) else amount


def whole_budget(epsilon: float, delta: float, *, what: str = THE_MEAN) -> tuple[Spent, ...]:
    """The account of a mechanism that spends everything at once."""
    entries = [Spent(what=what, amount=epsilon, unit="epsilon")]
    if delta > 0.0:
        entries.append(Spent(what=what, amount=delta, unit="delta"))
    return tuple(entries)


def has_stages(spent: Iterable[Spent]) -> bool:
    """Whether there is more to tell than that everything was spent on one thing."""
    return len({entry.what for entry in spent}) > 1


def shown_amounts(amounts: Sequence[float]) -> list[str]:
    """Amounts of one unit for people, in few digits, which never add up to more than the amounts do.

    The largest bears the rounding of the others.

    >>> shown_amounts([0.2 / 3, 0.2 / 3, 0.2 / 3, 0.8])
    ['0.0667', '0.0667', '0.0667', '0.7999']
    """
    if not amounts:
        return []
    largest = max(range(len(amounts)), key=amounts.__getitem__)
    texts = [f"{amount:.{_DIGITS}g}" for amount in amounts]
    rest = sum(map(Fraction, amounts), Fraction(0))
    rest -= sum(Fraction(text) for position, text in enumerate(texts) if position != largest)
    if rest > 0:
        texts[largest] = _digits_down(rest, _DIGITS + 1)
    return texts


def _digits_down(exact: Fraction, digits: int) -> str:
    """So many significant digits, rounded down; what floats lose in the last place does not count."""
    exact *= 1 + Fraction(1, 10**12)
    step = Fraction(10) ** (math.floor(math.log10(exact)) - digits + 1)
    return f"{float(math.floor(exact / step) * step):.{digits}g}"
