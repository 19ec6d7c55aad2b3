"""From a column's declared type to its encoding; the type alone decides, never the content nor the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
JSON_TOKEN = "json token"
"""The kind of a JSON value as it is written: text in quotation marks, numbers without."""
_NULL = "null"  # a column without any value
# No points in time, which hardly two records share, and some of which an engine fails to read.
_GROUPS = (
    _INTEGERS | _WIDE_INTEGERS | {"varchar", "uuid", "boolean", "decimal", "enum", "date", JSON_TOKEN, _NULL}
)
# As groups no floats, whose equal values can look different, and no bytes, which nobody can read.
_USERS = _GROUPS | _FLOATS | {"blob"}


# How identities of some types are written.
_WRITTEN = {
    "integer": r"-?[0-9]+",
    "decimal": r"-?[0-9]+(\.[0-9]+)?",
    "boolean": "true|false",
    "date": r"[0-9-]+( \(BC\))?",
    "uuid": "[0-9a-f-]{36}",
}


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

    def identity(self, column: str, kind: str, *, scale: int) -> str:
        """The text that a value identifies a user or a group by: the rule of `ingest.identity`.

        `scale` is that of a decimal. Equal texts come from equal values of the column, so that records may be grouped
        by the column itself.
        """

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
class KeyColumn:
    """How a column that identifies users or groups is read.

    Attributes:
        expression: what records are grouped by; equal where identities are.
        present: the condition under which that, under whatever name it was selected, is an identity.
        identity: the text that it identifies by.
    """

    expression: str
    present: Callable[[str], str]
    identity: Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Names and declared types of a source's columns.

    `text_values`: a text column may hold numbers (formats without types). `names_declared`: names of columns come from
    a schema and may be shown; else they may be the first record of somebody. `units`: columns that hold a duration as
    an integer multiple of the given number of seconds.
    """

    types: Mapping[str, Any]
    dialect: Dialect
    text_values: bool = False
    names_declared: bool = False
    units: Mapping[str, Fraction] | None = None

    def require(self, name: str) -> Any:
        """The type of a column that must exist."""
        if name not in self.types:
            raise InputError(missing_column(name, list(self.types) if self.names_declared else ()))
        return self.types[name]

    def check_user(self, name: str) -> None:
        """Refuse a column that cannot identify users."""
        if self.require(name).id not in _USERS:
            raise InputError(
                f"column {name!r} has type {kind_of(self.types[name])} and cannot identify users; "
                "use an integer, text or UUID column"
            )

    def check_group(self, name: str) -> None:
        """Refuse a column that cannot tell groups apart."""
        if self.require(name).id not in _GROUPS:
            raise InputError(
                f"column {name!r} has type {kind_of(self.types[name])} and cannot name groups; "
                "use a column of integers, text, booleans or dates"
            )

    def check_key(self, name: str, text: str, number: int) -> None:
        """Refuse the text of a public group, of some number, that no value of the declared type has.

        It is not quoted: public groups may come from a file, and that may be the wrong one.
        """
        kind = self.require(name).id
        pattern = _WRITTEN.get("integer" if kind in _INTEGERS | _WIDE_INTEGERS else kind)
        if pattern is not None and not re.fullmatch(pattern, text, re.ASCII):
            raise InputError(
                f"group {number} of keys is no value of column {name!r}, whose type is {kind_of(self.types[name])}; "
                "write keys as they stand in the data"
            )

    def key(self, name: str) -> KeyColumn:
        """How to read a column that identifies users or groups."""
        declared, write = self.require(name), self.dialect
        column, kind = write.identifier(name), declared.id
        scale = dict(declared.children)["scale"] if kind == "decimal" else 0
        expression = write.identity(column, kind, scale=scale) if kind == JSON_TOKEN else column
        kind = "varchar" if kind == JSON_TOKEN else kind
        return KeyColumn(
            expression=expression,
            # Data frames write a missing integer id as NaN.
            present=lambda selected: write.has_key(selected, floating=kind in _FLOATS),
            identity=lambda selected: write.identity(selected, kind, scale=scale),
        )

    def value(self, name: str, *, resolution: Fraction | None, clamp_infinities: bool) -> ValueColumn:
        """How to read a value column, decided by its declared type."""
        declared = self.require(name)
        kind = declared.id
        write = self.dialect
        column = write.identifier(name)
        if self.text_values and kind in _TEXT:
            kind, column = "double", write.parsed(column)
        if kind == _NULL:
            kind = "double"
        if kind not in _INTEGERS | _WIDE_INTEGERS | _FLOATS | {"boolean", "decimal", "interval"}:
            raise InputError(
                f"column {name!r} has type {kind_of(declared)}, which has no mean; "
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


def missing_column(name: str, declared: Sequence[str] = ()) -> str:
    """What to say of a column that is not there, with the names of those that are, where a schema declares them.

    The first line of a file without a header, and what a data frame made its names of, are records of people.
    """
    if declared:
        return f"there is no column {name!r}; the columns are: {', '.join(declared[:40])}"
    return f"there is no column {name!r}; check its spelling, and that the data have a header"


def kind_of(declared: Any) -> str:
    """The kind of a type, without its members: those of an ENUM are values of people."""
    return re.split(r"[(<]", str(declared), maxsplit=1)[0]
