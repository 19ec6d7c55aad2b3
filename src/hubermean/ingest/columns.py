"""From a column's declared type to its encoding; the type alone decides, never the content nor the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from hubermean.errors import InputError
from hubermean.exact import BINARY, Encoding
from hubermean.exact.encoding import whole_numbers, wide_decimal

_INTEGERS = {"tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"}
_WIDE_INTEGERS = {"ubigint", "hugeint", "uhugeint"}
_FLOATS = {"float", "double"}
_TEXT = {"varchar", "json"}
_KEYS = (
    _INTEGERS
    | _WIDE_INTEGERS
    | _FLOATS
    | {"varchar", "uuid", "blob", "boolean", "decimal", "enum", "date", "time", "timestamp", "timestamp_s"}
    | {"timestamp_ms", "timestamp_ns", "timestamp with time zone", "bit"}
)
# No floats, whose equal values can look different, and no points in time, which hardly two records share.
_GROUPS = _INTEGERS | _WIDE_INTEGERS | {"varchar", "uuid", "boolean", "decimal", "enum", "date"}


LARGEST_STEPS = 9.2e18
"""So many steps a float is clamped to, which leaves room in 64 bits for the rounding of the range."""


@dataclass(frozen=True)
class Part:
    """A part of an integer: an expression of an engine's, and the number of units that one of it stands for."""

    expression: str
    factor: int = 1


class Dialect(Protocol):
    """How an engine writes the few expressions that reading takes.

    The integer that a value becomes comes in one part, or in several where an engine has no integers wide enough: it
    is the sum of the parts times their factors. All parts are null where a value is unusable, and none fails, whatever
    the value.
    """

    def identifier(self, name: str) -> str: ...

    def has_key(self, column: str, *, floating: bool) -> str:
        """The condition under which a column identifies somebody; NaN does not."""

    def parsed(self, column: str) -> str:
        """Text as a double; null where it is no number."""

    def number(self, column: str, kind: str) -> str:
        """A value as a double; a duration in seconds."""

    def times(self, number: str, factor: float) -> str: ...

    def binary(self, number: str, *, clamp_infinities: bool) -> tuple[Part, ...]:
        """The rule of `exact.encoding.encode_binary`."""

    def in_steps(
        self, number: str, step: Fraction, *, inverse: int | None, clamp_infinities: bool
    ) -> tuple[Part, ...]:
        """A float as a number of steps, rounded half to even and clamped to 64 bits.

        `inverse` is how many steps make one, where that is what the number is to be multiplied by.
        """

    def whole(self, column: str, kind: str) -> tuple[Part, ...]:
        """Integers as they are, those of more than 64 bits clamped; true as one."""

    def decimal(self, column: str, *, width: int, scale: int, limit: int | None) -> tuple[Part, ...]:
        """Decimals in units of their last digit, clamped to a limit if they have one."""


@dataclass(frozen=True, kw_only=True)
class ColumnType:
    """A declared type, by DuckDB's names; DuckDB's own types have the same attributes."""

    id: str
    name: str
    children: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class ValueColumn:
    """How a value column is read.

    Attributes:
        encoding: what its integers mean.
        parts: how an engine makes these integers (`Dialect`).
        number: that of the value itself, in the unit of the mean.
        floats: whether these are what `encode_binary` makes of that number, and nothing of what is not finite.
    """

    name: str
    number: str
    encoding: Encoding
    parts: tuple[Part, ...]
    floats: bool = False


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Names and declared types of a source's columns.

    `text_values`: a text column may hold numbers (formats without types). `byte_text`: text may hold letters that stand
    for bytes (`text_bytes`). `units`: columns that hold a
    duration as an integer multiple of the given number of seconds.
    """

    types: Mapping[str, Any]
    dialect: Dialect
    text_values: bool = False
    byte_text: bool = False
    units: Mapping[str, Fraction] | None = None

    def require(self, name: str) -> Any:
        """The type of a column that must exist."""
        if name not in self.types:
            raise InputError(missing_column(name, list(self.types)))
        return self.types[name]

    def key(self, name: str) -> str:
        """The condition under which a record has a user, for one of the columns that identify it."""
        kind = self.require(name).id
        if kind not in _KEYS:
            raise InputError(
                f"column {name!r} has type {_readable(self.types[name])} and cannot identify users; "
                "use an integer, text or UUID column"
            )
        # Data frames write a missing integer id as NaN.
        return self.dialect.has_key(self.dialect.identifier(name), floating=kind in _FLOATS)

    def group(self, name: str) -> None:
        """Refuse a column that cannot tell groups apart."""
        if self.require(name).id not in _GROUPS:
            raise InputError(
                f"column {name!r} has type {_readable(self.types[name])} and cannot name groups; "
                "use a column of integers, text, booleans or dates"
            )

    def value(self, name: str, *, resolution: Fraction | None, clamp_infinities: bool) -> ValueColumn:
        """How to read a value column, decided by its declared type."""
        declared = self.require(name)
        kind = declared.id
        write = self.dialect
        column = write.identifier(name)
        if self.text_values and kind in _TEXT:
            kind, column = "double", write.parsed(column)
        if kind not in _INTEGERS | _WIDE_INTEGERS | _FLOATS | {"boolean", "decimal", "interval"}:
            raise InputError(
                f"column {name!r} has type {_readable(declared)}, which has no mean; "
                "use a column of integers, floats, decimals, booleans or durations"
            )
        unit = (self.units or {}).get(name)
        number = write.number(column, kind)
        if unit is not None:
            number = write.times(number, float(unit))
        if resolution is not None:
            encoding = whole_numbers(resolution)
            parts = write.in_steps(number, resolution, inverse=None, clamp_infinities=clamp_infinities)
        elif unit is not None:
            encoding, parts = whole_numbers(unit), write.whole(column, "bigint")
        elif kind in _FLOATS:
            encoding, parts = BINARY, write.binary(number, clamp_infinities=clamp_infinities)
        elif kind == "interval":
            micro = Fraction(1, 10**6)
            encoding = whole_numbers(micro)
            parts = write.in_steps(number, micro, inverse=10**6, clamp_infinities=clamp_infinities)
        elif kind == "decimal":
            encoding, parts = self._decimal(column, number, dict(declared.children))
        else:
            encoding, parts = whole_numbers(), write.whole(column, kind)
        floats = encoding == BINARY and kind in _FLOATS and not clamp_infinities
        return ValueColumn(name=name, number=number, encoding=encoding, parts=parts, floats=floats)

    def _decimal(
        self, column: str, number: str, shape: Mapping[str, int]
    ) -> tuple[Encoding, tuple[Part, ...]]:
        width, scale = shape["precision"], shape["scale"]
        if width <= 18:
            return whole_numbers(Fraction(1, 10**scale)), self.dialect.decimal(
                column, width=width, scale=scale, limit=None
            )
        if scale > 18:
            return BINARY, self.dialect.binary(number, clamp_infinities=False)
        encoding = wide_decimal(scale)
        limit = int(encoding.limit / encoding.unit)
        return encoding, self.dialect.decimal(column, width=width, scale=scale, limit=limit)


def missing_column(name: str, existing: Sequence[str]) -> str:
    """What to say of a column that is not there; a first line that holds numbers is no header and is not shown."""
    if any(map(_is_number, existing)):
        return f"there is no column {name!r}, and the first line does not look like a header; add one"
    return f"there is no column {name!r}; the columns are: {', '.join(existing[:40])}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _readable(kind: Any) -> str:
    text = str(kind)
    return text if len(text) <= 40 else text[:37] + "..."
