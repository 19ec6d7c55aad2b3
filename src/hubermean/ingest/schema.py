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
from hubermean.ingest.periods import PERIODS, TEXT_KINDS, TIME_KINDS, GroupColumn
from hubermean.ingest.text_format import NumberFormat, TextFormat

_INTEGERS = {"tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"}
_WIDE_INTEGERS = {"ubigint", "hugeint", "uhugeint"}
_FLOATS = {"float", "double"}
JSON_TOKEN = "json token"
"""The type of a JSON value in its written form: text in quotation marks, numbers without."""
_NULL = "null"  # a column without any value
# Of timestamps only periods: hardly two records share one, and engines fail to read some of them.
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
        """All columns of the three roles; a column of which several periods are groups is one."""
        return [*self.users, *self.values, *self.group_columns]

    @property
    def group_columns(self) -> list[str]:
        """The columns that groups are made of: `date` for "month(date)"."""
        return list(dict.fromkeys(GroupColumn.parse(name).column for name in self.groups))

    def check_distinct(self) -> None:
        """Raise InputError if a column has two roles."""
        seen: dict[str, str] = {}
        periods = [name for name in self.groups if GroupColumn.parse(name).period]
        plain = [name for name in self.groups if name not in periods]
        if len(set(periods)) != len(periods):
            raise InputError("a group is named twice; name two different ones")
        own = [name for name in self.group_columns if name not in plain]
        for role, names in (("user", self.users), ("value", self.values), ("by", [*plain, *own])):
            for name in names:
                if name in seen:
                    raise InputError(
                        f"column {name!r} is both {seen[name]} and {role}; name two different columns"
                    )
                seen[name] = role


@dataclass(frozen=True)
class Part:
    """One part of an integer: a SQL expression, and the number of units that 1 of it stands for.

    `halves` are SQL of the same integer in two parts of 64 bits, high and low in the radix of the encoding, where an
    engine adds them faster than it takes the integer apart.
    """

    expression: str
    factor: int = 1
    halves: tuple[str, str] | None = None


class Dialect(Protocol):
    """The SQL expressions of an engine that reading needs.

    The integer that encodes a value has one part, or several where an engine has no integers wide enough: it is the sum
    of the parts times their factors. All parts are null for an unusable value, and no expression fails for any value.
    """

    def quote(self, name: str) -> str:
        """The name of a column, quoted."""

    def quote_text(self, text: str) -> str:
        """A text, quoted."""

    def has_key(self, column: str, *, floating: bool) -> str:
        """The condition that a cell identifies a user or a group; null and NaN do not."""

    def identity(self, column: str, kind: str, *, scale: int) -> str:
        """The text that a cell identifies a user or a group by: the rule of `ingest.identity`.

        `scale` is that of a decimal. Equal texts come from equal cells of the column, so records may be grouped by the
        column itself.
        """

    def json_token(self, column: str) -> str:
        """A value of JSON as it is written."""

    def parse_number(self, column: str, numbers: NumberFormat) -> str:
        """Text as a double; null if it is no number in that format."""

    def to_date(self, column: str, kind: str) -> str:
        """The day of a date, of a point in time (in UTC), or of a text by ISO 8601; null without one."""

    def period_number(self, date: str, period: str) -> str:
        """The integer that stands for the period of a date; see `periods`."""

    def period_name(self, number: str, period: str) -> str:
        """The name of a period, from its integer."""

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
        whole: whether the expression is an integer of up to 64 bits with a sign.
    """

    expression: str
    present: Callable[[str], str]
    identity: Callable[[str], str]
    whole: bool = False


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
        text: how text is written, for formats without types, whose columns of text may hold numbers and dates; None
            where types are declared.
        null: texts that stand for a missing cell.
        names_declared: names come from a schema and may be shown. Otherwise they may be somebody's record: the first
            line of a file without a header, or what a data frame took its names from.
        units: durations that are stored as integers, and the seconds that 1 stands for.
    """

    types: Mapping[str, Any]
    dialect: Dialect
    text: TextFormat | None = None
    null: tuple[str, ...] = ()
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
        group = GroupColumn.parse(name)
        kind = self.require_column(group.column).id
        if group.period:
            if self.text is None and kind not in TIME_KINDS:
                raise InputError(
                    f"column {group.column!r} has type {type_name(self.types[group.column])} and has no "
                    f"{group.period}; use a column of dates or timestamps"
                )
        elif kind in TIME_KINDS and kind != "date":
            raise InputError(
                f"column {name!r} has type {type_name(self.types[name])}, in which hardly two records are equal; group "
                f"by month({name}), or by its day, week, quarter or year"
            )
        elif kind not in _GROUPS:
            raise InputError(
                f"column {name!r} has type {type_name(self.types[name])} and cannot name groups; "
                "use a column of integers, text, booleans or dates"
            )

    def check_group_key(self, name: str, text: str, number: int) -> None:
        """Raise InputError if no value of the declared type is written like the text of public group `number`.

        The message does not quote the text: public groups may come from a file, which may be the wrong one.
        """
        group = GroupColumn.parse(name)
        kind = self.require_column(group.column).id
        if group.period:
            if not re.fullmatch(PERIODS[group.period].pattern, text, re.ASCII):
                raise InputError(
                    f"group {number} of keys is no {group.period}; write keys like "
                    f"{PERIODS[group.period].example!r}"
                )
            return
        pattern = _IDENTITY_PATTERNS.get("integer" if kind in _INTEGERS | _WIDE_INTEGERS else kind)
        if pattern is not None and not re.fullmatch(pattern, text, re.ASCII):
            raise InputError(
                f"group {number} of keys cannot be a value of column {name!r}, whose type is "
                f"{type_name(self.types[name])}; write keys as they are written in the data"
            )

    def key_column(self, name: str) -> KeyColumn:
        """Decide how to read a column that identifies users, or groups other than periods."""
        declared, write = self.require_column(name), self.dialect
        column, kind = write.quote(name), declared.id
        scale = dict(declared.children)["scale"] if kind == "decimal" else 0
        expression = write.identity(column, kind, scale=scale) if kind == JSON_TOKEN else column
        kind = "varchar" if kind == JSON_TOKEN else kind

        def identity(selected: str) -> str:
            return write.identity(selected, kind, scale=scale)

        def present(selected: str) -> str:
            # Data frames write a missing integer id as NaN.
            has_key = write.has_key(selected, floating=kind in _FLOATS)
            return f"({has_key} AND {self._is_no_null(identity(selected))})" if self.null else has_key

        return KeyColumn(expression=expression, present=present, identity=identity, whole=kind in _INTEGERS)

    def group_column(self, name: str) -> KeyColumn:
        """Decide how to read a column that names groups, or whose periods do ("month(date)")."""
        group, write = GroupColumn.parse(name), self.dialect
        if not group.period:
            return self.key_column(name)
        kind = self.require_column(group.column).id
        cell = write.quote(group.column)
        if self.null or kind not in TIME_KINDS:
            key = self.key_column(group.column)
            cell = key.expression
            if kind not in TIME_KINDS:  # cells without a type are read as the text that they would be
                cell, kind = key.identity(cell), "varchar"
            if self.null:
                cell = f"CASE WHEN {key.present(key.expression)} THEN {cell} END"
        period = group.period
        return KeyColumn(
            expression=write.period_number(write.to_date(cell, kind), period),
            present=lambda selected: write.has_key(selected, floating=False),
            identity=lambda selected: write.period_name(selected, period),
            whole=period != "day",
        )

    def _is_no_null(self, text: str) -> str:
        words = ", ".join(map(self.dialect.quote_text, self.null))
        return f"{text} NOT IN ({words})"

    def value_column(self, name: str, *, resolution: Fraction | None, clamp_infinities: bool) -> ValueColumn:
        """Decide how to read a value column."""
        declared = self.require_column(name)
        kind = declared.id
        write = self.dialect
        column = write.quote(name)
        if self.text is not None and kind in TEXT_KINDS | {JSON_TOKEN}:
            kind, column = "double", self._parse_value(column, kind)
        if kind == _NULL:
            kind = "double"
        if kind not in _INTEGERS | _WIDE_INTEGERS | _FLOATS | {"boolean", "decimal", "interval"}:
            raise InputError(
                f"column {name!r} has type {type_name(declared)}, which has no mean; "
                "use a column of integers, floats, decimals, booleans or durations"
            )
        if self.null:
            scale = dict(declared.children)["scale"] if kind == "decimal" else 0
            column = (
                f"CASE WHEN {self._is_no_null(write.identity(column, kind, scale=scale))} THEN {column} END"
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

    def _parse_value(self, column: str, kind: str) -> str:
        """Return a cell of text as a double; of JSON, only texts are written in the caller's format."""
        assert self.text is not None
        write, numbers = self.dialect, self.text.numbers
        if kind == JSON_TOKEN:
            token = write.json_token(column)
            texts = write.parse_number(f"nullif({write.identity(column, kind, scale=0)}, '')", numbers)
            plain = write.parse_number(token, NumberFormat())
            number = f"CASE WHEN starts_with({token}, '\"') THEN {texts} ELSE {plain} END"
        else:
            number = write.parse_number(column, numbers)
        if not self.null or kind == JSON_TOKEN:
            return number
        return f"CASE WHEN {self._is_no_null(f'trim({column})')} THEN {number} END"

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
