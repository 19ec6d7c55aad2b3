"""Columns: their roles, their declared types, and how each is read as an identity or as integers.

The declared type alone decides how a column is read, never its content nor the engine. `Schema` makes that decision and
`Dialect` writes it in the SQL of an engine.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from hubermean.data.encoding import BINARY, Encoding, whole_numbers, wide_decimal
from hubermean.errors import InputError

_INTEGERS = {"tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"}
_WIDE_INTEGERS = {"ubigint", "hugeint", "uhugeint"}
_FLOATS = {"float", "double"}
_TEXT = {"varchar", "json"}
JSON_TOKEN = "json token"
"""The type of a JSON value in its written form: text in quotation marks, numbers without."""
_NULL = "null"  # a column without any value
# No timestamps: hardly two records share one, and engines fail to read some of them.
_GROUPS = (
    _INTEGERS | _WIDE_INTEGERS | {"varchar", "uuid", "boolean", "decimal", "enum", "date", JSON_TOKEN, _NULL}
)
# Not for groups: floats, whose equal values can be written differently, and bytes, which cannot be displayed.
_USERS = _GROUPS | _FLOATS | {"blob"}

# How identities of some types are written; see `Schema.check_group_key`.
_IDENTITY_PATTERNS = {
    "integer": r"-?[0-9]+",
    "decimal": r"-?[0-9]+(\.[0-9]+)?",
    "boolean": "true|false",
    "date": r"[0-9-]+( \(BC\))?",
    "uuid": "[0-9a-f-]{36}",
}

MAX_UNITS = 9.2e18
"""Floats are clamped to this many fixed-point units, which leaves room in 64 bits for rounding at the limit."""


@dataclass(frozen=True, kw_only=True)
class ColumnRoles:
    """The columns that identify users, hold values and name groups."""

    users: Sequence[str]
    values: Sequence[str] = ()
    groups: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        """All columns of the three roles."""
        return [*self.users, *self.values, *self.groups]

    def check_distinct(self) -> None:
        """Raise InputError if a column has two roles."""
        seen: dict[str, str] = {}
        for role, names in (("user", self.users), ("value", self.values), ("by", self.groups)):
            for name in names:
                if name in seen:
                    raise InputError(
                        f"column {name!r} is both {seen[name]} and {role}; name two different columns"
                    )
                seen[name] = role


@dataclass(frozen=True)
class Part:
    """One part of an integer: a SQL expression, and the number of units that 1 of it stands for."""

    expression: str
    factor: int = 1


class Dialect(Protocol):
    """The SQL expressions of an engine that reading needs.

    The integer that encodes a value has one part, or several where an engine has no integers wide enough: it is the sum
    of the parts times their factors. All parts are null for an unusable value, and no expression fails for any value.
    """

    def quote(self, name: str) -> str:
        """The name of a column, quoted."""

    def has_key(self, column: str, *, floating: bool) -> str:
        """The condition that a cell identifies a user or a group; null and NaN do not."""

    def identity(self, column: str, kind: str, *, scale: int) -> str:
        """The text that a cell identifies a user or a group by: the rule of `ingest.identity`.

        `scale` is that of a decimal. Equal texts come from equal cells of the column, so records may be grouped by the
        column itself.
        """

    def parse_number(self, column: str) -> str:
        """Text as a double; null if it is no number."""

    def to_double(self, column: str, kind: str) -> str:
        """A value as a double; a duration in seconds."""

    def multiply(self, number: str, factor: float) -> str: ...

    def encode_binary(self, number: str, *, clamp_infinities: bool) -> tuple[Part, ...]:
        """A double by the rule of `data.encoding.encode_binary`."""

    def encode_units(
        self, number: str, unit: Fraction, *, inverse: int | None, clamp_infinities: bool
    ) -> tuple[Part, ...]:
        """A double in whole units, rounded half to even and clamped to 64 bits.

        The number is multiplied by `inverse`, the number of units in 1, if that is given; else it is divided by `unit`.
        """

    def encode_integer(self, column: str, kind: str) -> tuple[Part, ...]:
        """Integers, those of more than 64 bits clamped; true as 1."""

    def encode_decimal(self, column: str, *, width: int, scale: int, limit: int | None) -> tuple[Part, ...]:
        """Decimals in units of their last digit, clamped to the limit if there is one."""


@dataclass(frozen=True, kw_only=True)
class ColumnType:
    """A declared type, under DuckDB's names; the type objects of DuckDB have the same attributes."""

    id: str
    name: str
    children: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class ValueColumn:
    """How a value column is read.

    Attributes:
        number: SQL of the value itself, in the unit of the mean.
        encoding: what the integers mean.
        parts: SQL of these integers; see `Dialect`.
        floats: whether the integers are `encode_binary` of that number, and null where it is not finite.
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
        expression: SQL to group records by; equal where identities are equal.
        present: the condition that this expression, under the name it was selected as, is an identity.
        identity: the text that it identifies by.
    """

    expression: str
    present: Callable[[str], str]
    identity: Callable[[str], str]


def require_keys(columns: Sequence[KeyColumn]) -> str:
    """Return the condition that a record has an identity in each of the columns."""
    return " AND ".join(column.present(column.expression) for column in columns)


def alias_keys(columns: Sequence[KeyColumn], prefix: str) -> tuple[list[str], list[str]]:
    """Return expressions that select the columns under numbered names, and these names."""
    names = [f"{prefix}_{number}" for number in range(len(columns))]
    return [f"{column.expression} AS {name}" for column, name in zip(columns, names, strict=True)], names


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Names and declared types of the columns of a source.

    Attributes:
        types: declared type of each column.
        dialect: the SQL of the engine.
        text_values: text columns may hold numbers (formats without types).
        names_declared: names come from a schema and may be shown. Otherwise they may be somebody's record: the first
            line of a file without a header, or what a data frame took its names from.
        units: durations that are stored as integers, and the seconds that 1 stands for.
    """

    types: Mapping[str, Any]
    dialect: Dialect
    text_values: bool = False
    names_declared: bool = False
    units: Mapping[str, Fraction] | None = None

    def require_column(self, name: str) -> Any:
        """Return the type of a column; raise InputError if there is no such column."""
        if name not in self.types:
            raise InputError(missing_column_message(name, list(self.types) if self.names_declared else ()))
        return self.types[name]

    def check_user(self, name: str) -> None:
        """Raise InputError for a column that cannot identify users."""
        if self.require_column(name).id not in _USERS:
            raise InputError(
                f"column {name!r} has type {type_name(self.types[name])} and cannot identify users; "
                "use an integer, text or UUID column"
            )

    def check_group(self, name: str) -> None:
        """Raise InputError for a column that cannot name groups."""
        if self.require_column(name).id not in _GROUPS:
            raise InputError(
                f"column {name!r} has type {type_name(self.types[name])} and cannot name groups; "
                "use a column of integers, text, booleans or dates"
            )

    def check_group_key(self, name: str, text: str, number: int) -> None:
        """Raise InputError if no value of the declared type is written like the text of public group `number`.

        The message does not quote the text: public groups may come from a file, which may be the wrong one.
        """
        kind = self.require_column(name).id
        pattern = _IDENTITY_PATTERNS.get("integer" if kind in _INTEGERS | _WIDE_INTEGERS else kind)
        if pattern is not None and not re.fullmatch(pattern, text, re.ASCII):
            raise InputError(
                f"group {number} of keys cannot be a value of column {name!r}, whose type is "
                f"{type_name(self.types[name])}; write keys as they are written in the data"
            )

    def key_column(self, name: str) -> KeyColumn:
        """Decide how to read a column that identifies users or groups."""
        declared, write = self.require_column(name), self.dialect
        column, kind = write.quote(name), declared.id
        scale = dict(declared.children)["scale"] if kind == "decimal" else 0
        expression = write.identity(column, kind, scale=scale) if kind == JSON_TOKEN else column
        kind = "varchar" if kind == JSON_TOKEN else kind
        return KeyColumn(
            expression=expression,
            # Data frames write a missing integer id as NaN.
            present=lambda selected: write.has_key(selected, floating=kind in _FLOATS),
            identity=lambda selected: write.identity(selected, kind, scale=scale),
        )

    def value_column(self, name: str, *, resolution: Fraction | None, clamp_infinities: bool) -> ValueColumn:
        """Decide how to read a value column."""
        declared = self.require_column(name)
        kind = declared.id
        write = self.dialect
        column = write.quote(name)
        if self.text_values and kind in _TEXT:
            kind, column = "double", write.parse_number(column)
        if kind == _NULL:
            kind = "double"
        if kind not in _INTEGERS | _WIDE_INTEGERS | _FLOATS | {"boolean", "decimal", "interval"}:
            raise InputError(
                f"column {name!r} has type {type_name(declared)}, which has no mean; "
                "use a column of integers, floats, decimals, booleans or durations"
            )
        unit = (self.units or {}).get(name)
        number = write.to_double(column, kind)
        if unit is not None:
            number = write.multiply(number, float(unit))
        if resolution is not None:
            encoding = whole_numbers(resolution)
            parts = write.encode_units(number, resolution, inverse=None, clamp_infinities=clamp_infinities)
        elif unit is not None:
            encoding, parts = whole_numbers(unit), write.encode_integer(column, "bigint")
        elif kind in _FLOATS:
            encoding, parts = BINARY, write.encode_binary(number, clamp_infinities=clamp_infinities)
        elif kind == "interval":
            micro = Fraction(1, 10**6)
            encoding = whole_numbers(micro)
            parts = write.encode_units(number, micro, inverse=10**6, clamp_infinities=clamp_infinities)
        elif kind == "decimal":
            encoding, parts = self._decimal(column, number, dict(declared.children))
        else:
            encoding, parts = whole_numbers(), write.encode_integer(column, kind)
        floats = encoding == BINARY and kind in _FLOATS and not clamp_infinities
        return ValueColumn(name=name, number=number, encoding=encoding, parts=parts, floats=floats)

    def _decimal(
        self, column: str, number: str, shape: Mapping[str, int]
    ) -> tuple[Encoding, tuple[Part, ...]]:
        width, scale = shape["precision"], shape["scale"]
        if width <= 18:
            return whole_numbers(Fraction(1, 10**scale)), self.dialect.encode_decimal(
                column, width=width, scale=scale, limit=None
            )
        if scale > 18:
            return BINARY, self.dialect.encode_binary(number, clamp_infinities=False)
        encoding = wide_decimal(scale)
        limit = int(encoding.limit / encoding.unit)
        return encoding, self.dialect.encode_decimal(column, width=width, scale=scale, limit=limit)


def missing_column_message(name: str, declared: Sequence[str] = ()) -> str:
    """Return the error message for a missing column; it lists the columns only if a schema declares their names."""
    if declared:
        if "," in name and {part.strip() for part in name.split(",")} <= set(declared):
            return f"there is no column {name!r}; name each column by itself"
        near = difflib.get_close_matches(name, declared, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        return f"there is no column {name!r}; {meant}the columns are: {', '.join(declared[:40])}"
    return f"there is no column {name!r}; check its spelling, and that the data have a header"


def type_name(declared: Any) -> str:
    """Return the name of a declared type without its members: the members of an ENUM are values of users."""
    return re.split(r"[(<]", str(declared), maxsplit=1)[0]
