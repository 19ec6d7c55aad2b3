"""An axis with ticks at round numbers, in exact arithmetic, so that no size of values upsets it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

_MARGIN = Fraction(1, 16)  # of the span, at either end
_MOST_TICKS, _FEWEST_TICKS = 7, 2
_GAP = 3  # characters between two labels
_ROOM = 64  # characters that labels may take in all where there is room
_NARROW_ROOM = 30  # and on a phone
_PLAIN_BELOW, _PLAIN_ABOVE = 15, -7  # powers of ten between which labels have no exponent


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A round number; `spare` is a label that a narrow screen has no room for."""

    value: Fraction
    label: str
    spare: bool


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From `low` to `high`."""

    low: Fraction
    high: Fraction
    ticks: tuple[Tick, ...]

    @classmethod
    def covering(cls, numbers: Iterable[float]) -> Axis:
        """An axis that shows all finite numbers, with a margin.

        >>> [tick.label for tick in Axis.covering([1.9, 3.2]).ticks]
        ['2.0', '2.2', '2.4', '2.6', '2.8', '3.0', '3.2']
        """
        exact = [Fraction(number) for number in numbers if math.isfinite(number)] or [Fraction(0)]
        low, high = min(exact), max(exact)
        if low == high:
            around = abs(low) / 10 or Fraction(1)
            low, high = low - around, high + around
        margin = (high - low) * _MARGIN
        low, high = low - margin, high + margin
        return cls(low=low, high=high, ticks=_ticks(low, high))

    def position(self, value: float | Fraction) -> float:
        """How far along the axis, in percent; what is not on it is at an end."""
        if isinstance(value, float) and not math.isfinite(value):
            return 100.0 if value > 0 else 0.0
        along = (Fraction(value) - self.low) / (self.high - self.low)
        return 100.0 * float(min(max(along, Fraction(0)), Fraction(1)))

    def holds(self, value: float) -> bool:
        """Whether a number is on the axis."""
        return math.isfinite(value) and self.low <= value <= self.high

    @property
    def zero(self) -> float | None:
        """Where zero is, if on the axis."""
        return self.position(0.0) if self.low < 0 < self.high else None


def _ticks(low: Fraction, high: Fraction) -> tuple[Tick, ...]:
    """As many as there is room for."""
    made: list[tuple[Fraction, str]] = []
    for exponent, step in _steps((high - low) / _MOST_TICKS):
        multiples = range(math.ceil(low / step), math.floor(high / step) + 1)
        if len(multiples) > _MOST_TICKS + 1:
            continue
        if len(multiples) < _FEWEST_TICKS and made:
            break
        made = [(number * step, label(number * step, exponent)) for number in multiples]
        if _length(text for _, text in made) <= _ROOM:
            break
    every = next(
        (
            number
            for number in range(1, len(made))
            if _length(text for _, text in made[::number]) <= _NARROW_ROOM
        ),
        len(made) or 1,
    )
    return tuple(
        Tick(value=value, label=text, spare=number % every > 0) for number, (value, text) in enumerate(made)
    )


def _steps(least: Fraction) -> Iterator[tuple[int, Fraction]]:
    """(exponent, step): 1, 2 and 5 times powers of ten, in order, from about `least` on."""
    exponent = _log10(least)
    while True:
        for factor in (1, 2, 5):
            yield exponent, factor * Fraction(10) ** exponent
        exponent += 1


def _log10(number: Fraction) -> int:
    """The largest exponent whose power of ten is not above the number, or one less; floats would overflow."""
    return len(str(number.numerator)) - len(str(number.denominator)) - 1


def label(value: Fraction, exponent: int) -> str:
    """A multiple of 10^exponent, with just the decimals that takes.

    >>> label(Fraction(1234567, 10), -1), label(Fraction(-3), 0), label(Fraction(25) * 10**20, 20)
    ('123,456.7', '-3', '2.5e+21')
    """
    if value == 0:
        return "0"
    size = _log10(abs(value)) + 1
    if exponent > _PLAIN_ABOVE and size <= _PLAIN_BELOW:
        decimals = max(-exponent, 0)
        whole, part = divmod(int(abs(value) * 10**decimals), 10**decimals)
        return f"{'-' if value < 0 else ''}{whole:,}" + (f".{part:0{decimals}d}" if decimals else "")
    digits = str(abs(int(value / Fraction(10) ** exponent)))
    power = len(digits) - 1 + exponent
    mantissa = f"{digits[0]}.{digits[1:]}".rstrip("0").rstrip(".")
    return f"{'-' if value < 0 else ''}{mantissa}e{power:+03d}"


def _length(labels: Iterable[str]) -> int:
    return sum(len(text) + _GAP for text in labels)
