"""From a column's declared type to its encoding; the type alone decides, never the content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hubermean.errors import InputError
from hubermean.exact import BINARY, Encoding
from hubermean.exact.encoding import INT64_LIMIT, whole_numbers, wide_decimal
from hubermean.ingest.files import identifier

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


@dataclass(frozen=True, kw_only=True)
class ValueColumn:
    """How a value column is read.

    `integer` is the SQL of the value in units of `encoding.unit`, null where it is unusable; `number` that of
    the value itself, in the unit of the mean, for inspection.
    """

    name: str
    number: str
    encoding: Encoding
    integer: str


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Names and declared types of a source's columns.

    `text_values`: a text column may hold numbers (formats without types). `units`: columns that hold a
    duration as an integer multiple of the given number of seconds.
    """

    types: Mapping[str, Any]
    text_values: bool = False
    units: Mapping[str, Fraction] | None = None

    def require(self, name: str) -> Any:
        """The type of a column that must exist."""
        if name not in self.types:
            raise InputError(missing_column(name, list(self.types)))
        return self.types[name]

    def key(self, name: str) -> str:
        """The condition under which a record has a user, for one of the columns that identify it."""
        kind = self.require(name).id
        column = identifier(name)
        if kind not in _KEYS:
            raise InputError(
                f"column {name!r} has type {_readable(self.types[name])} and cannot identify users; "
                "use an integer, text or UUID column"
            )
        # Data frames write a missing integer id as NaN; why not isnan, `_in_range` says.
        return f"(isfinite({column}) OR isinf({column}))" if kind in _FLOATS else f"{column} IS NOT NULL"

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
        column = identifier(name)
        if self.text_values and kind in _TEXT:
            # trim() also keeps the engine from parsing inside the reader, where a bad value drops the record.
            kind, column = "double", f"try_cast(trim({column}) AS DOUBLE)"
        if kind not in _INTEGERS | _WIDE_INTEGERS | _FLOATS | {"boolean", "decimal", "interval"}:
            raise InputError(
                f"column {name!r} has type {_readable(declared)}, which has no mean; "
                "use a column of integers, floats, decimals, booleans or durations"
            )
        unit = (self.units or {}).get(name)
        number = f"epoch({column})" if kind == "interval" else f"CAST({column} AS DOUBLE)"
        if unit is not None:
            number = f"({number} * {float(unit)!r})"
        if resolution is not None:
            encoding, integer = _in_steps(number, f"/ {float(resolution)!r}", resolution, clamp_infinities)
        elif unit is not None:
            encoding, integer = whole_numbers(unit), column
        elif kind in _FLOATS:
            encoding, integer = _binary(number, clamp_infinities)
        elif kind == "interval":
            encoding, integer = _in_steps(number, "* 1000000.0", Fraction(1, 10**6), clamp_infinities)
        elif kind == "decimal":
            encoding, integer = _decimal(column, dict(declared.children))
        elif kind in _WIDE_INTEGERS:
            # Narrow first where all values are positive: the widest unsigned type does not fit a signed one.
            signed = f"greatest({column}, -{INT64_LIMIT})" if kind == "hugeint" else column
            clamped = f"CAST(least({signed}, {INT64_LIMIT}) AS BIGINT)"
            encoding, integer = whole_numbers(), _if_present(column, clamped)
        else:
            encoding, integer = whole_numbers(), f"CAST({column} AS INTEGER)" if kind == "boolean" else column
        return ValueColumn(name=name, number=number, encoding=encoding, integer=integer)


def _binary(number: str, clamp_infinities: bool) -> tuple[Encoding, str]:
    """The rule of `exact.encoding.encode_binary` in one step; the engine's cast rounds half to even."""
    limit = float(BINARY.limit)
    largest = f"CAST(sign({number}) * {limit * 2.0**60!r} AS HUGEINT)"
    inside = f"try_cast({number} * {2.0**60!r} AS HUGEINT)"
    return BINARY, _in_range(number, limit, inside, largest, clamp_infinities)


def _in_steps(
    number: str, scaling: str, resolution: Fraction, clamp_infinities: bool
) -> tuple[Encoding, str]:
    """A float as a number of steps, rounded to a whole number and clamped to 64 bits."""
    limit = 9.2e18  # leaves room for the rounding of the range
    largest = f"CAST(sign({number}) * {limit!r} AS BIGINT)"
    inside = f"try_cast({number} {scaling} AS BIGINT)"
    return whole_numbers(resolution), _in_range(
        number, limit * float(resolution), inside, largest, clamp_infinities
    )


def _in_range(number: str, reach: float, inside: str, largest: str, clamp_infinities: bool) -> str:
    """An expression for numbers within reach, another beyond, null where a float is unusable.

    The statistics of Parquet files leave NaN out, so an engine that trusts them may decide any comparison with
    the column, and isnan itself, without looking at the value: NaN then meets `inside`, whose try_cast makes it null.
    """
    beyond = f"isfinite({number}) OR isinf({number})" if clamp_infinities else f"isfinite({number})"
    return (
        f"CASE WHEN {number} BETWEEN {-reach!r} AND {reach!r} THEN {inside} WHEN {beyond} THEN {largest} END"
    )


def _decimal(column: str, shape: Mapping[str, int]) -> tuple[Encoding, str]:
    width, scale = shape["precision"], shape["scale"]
    if width <= 18:
        # The engine sums such decimals as the integers they are stored as; the sum is read back as one.
        return whole_numbers(Fraction(1, 10**scale)), column
    if scale > 18:
        return _binary(f"CAST({column} AS DOUBLE)", clamp_infinities=False)
    encoding = wide_decimal(scale)
    limit = int(encoding.limit / encoding.unit)
    rest = f"CAST({column} - trunc({column}) AS DECIMAL(18, {scale}))"
    unscaled = f"CAST(trunc({column}) AS HUGEINT) * {10**scale} + CAST({rest} * {10**scale} AS HUGEINT)"
    return encoding, _if_present(column, f"greatest(least({unscaled}, {limit}), -{limit})")


def _if_present(column: str, expression: str) -> str:
    """Null where the value is; least and greatest pass over nulls and would make a number of one."""
    return f"CASE WHEN {column} IS NOT NULL THEN {expression} END"


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
