"""From a column's declared type to its encoding; the type alone decides, never the content."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True, kw_only=True)
class ValueColumn:
    """How a value column is read: one SQL expression per integer part, null where a value is unusable.

    `scaled` is computed first and may be used by the parts under the name given by `alias`. `number` is the
    value itself, in the unit of the mean, for inspection.
    """

    name: str
    number: str
    alias: str
    encoding: Encoding
    scaled: str
    parts: tuple[str, ...]


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
            known = ", ".join(list(self.types)[:40])
            raise InputError(f"there is no column {name!r}; the columns are: {known}")
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
        # Data frames write a missing integer id as NaN; why not isnan, `_if_usable` says.
        return f"(isfinite({column}) OR isinf({column}))" if kind in _FLOATS else f"{column} IS NOT NULL"

    def value(
        self, name: str, *, alias: str, resolution: Fraction | None, clamp_infinities: bool
    ) -> ValueColumn:
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
            rule = _in_steps(f"{number} / {float(resolution)!r}", resolution, clamp_infinities)
        elif unit is not None:
            rule = Rule(encoding=whole_numbers(unit), scaled=column)
        elif kind in _FLOATS:
            rule = _binary(number, alias, clamp_infinities)
        elif kind == "interval":
            rule = _in_steps(f"{number} * 1000000.0", Fraction(1, 10**6), clamp_infinities)
        elif kind == "decimal":
            rule = _decimal(column, alias, dict(declared.children))
        elif kind in _WIDE_INTEGERS:
            rule = Rule(encoding=whole_numbers(), scaled=_clamped(column, signed=kind == "hugeint"))
        else:
            rule = Rule(encoding=whole_numbers(), scaled=f"CAST({column} AS INTEGER)" if kind == "boolean" else column)
        return ValueColumn(
            name=name,
            alias=alias,
            number=number,
            encoding=rule.encoding,
            scaled=rule.scaled,
            parts=rule.parts or (identifier(alias),),
        )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An encoding in SQL; without `parts`, `scaled` is the only part."""

    encoding: Encoding
    scaled: str
    parts: tuple[str, ...] = ()


def _binary(number: str, alias: str, clamp_infinities: bool) -> Rule:
    """The two-part rule of `exact.encoding.encode_binary`; a cast to BIGINT rounds half to even."""
    limit = float(BINARY.limit)
    largest = f"sign({number}) * {limit * 2.0**20!r}"
    inside = f"CASE WHEN {number} BETWEEN {-limit!r} AND {limit!r} THEN {number} * 1048576.0 ELSE {largest} END"
    s = identifier(alias)
    high = f"CAST({s} AS BIGINT)"
    low = f"CAST(({s} - CAST({high} AS DOUBLE)) * 1099511627776.0 AS BIGINT)"
    return Rule(encoding=BINARY, scaled=_if_usable(number, inside, largest, clamp_infinities), parts=(high, low))


def _in_steps(steps: str, resolution: Fraction, clamp_infinities: bool) -> Rule:
    """A number of steps given as a float, rounded to a whole number and clamped to 64 bits."""
    limit = 9.2e18
    largest = f"CAST(sign({steps}) * {limit!r} AS BIGINT)"
    inside = f"CASE WHEN {steps} BETWEEN {-limit!r} AND {limit!r} THEN CAST({steps} AS BIGINT) ELSE {largest} END"
    return Rule(encoding=whole_numbers(resolution), scaled=_if_usable(steps, inside, largest, clamp_infinities))


def _if_usable(number: str, finite: str, infinite: str, clamp_infinities: bool) -> str:
    """Null where a float is unusable.

    isfinite comes first: the statistics of Parquet files leave NaN out, so an engine that trusts them may
    decide any comparison with the column, and isnan itself, without looking at the value.
    """
    rest = f" WHEN isinf({number}) THEN {infinite}" if clamp_infinities else ""
    return f"CASE WHEN isfinite({number}) THEN {finite}{rest} END"


def _decimal(column: str, alias: str, shape: Mapping[str, int]) -> Rule:
    width, scale = shape["precision"], shape["scale"]
    if width <= 18:
        # The engine sums such decimals as the integers they are stored as; the sum is read back as one.
        return Rule(encoding=whole_numbers(Fraction(1, 10**scale)), scaled=column)
    if scale > 18:
        return _binary(f"CAST({column} AS DOUBLE)", alias, clamp_infinities=False)
    # Wider ones could overflow the engine's sum, so each record is split into two parts of eighteen digits.
    rest = f"CAST({column} - trunc({column}) AS DECIMAL(18, {scale}))"
    s = identifier(alias)
    return Rule(
        encoding=wide_decimal(scale),
        scaled=f"CAST(trunc({column}) AS HUGEINT) * {10**scale} + CAST({rest} * {10**scale} AS HUGEINT)",
        parts=(_clamped(f"({s} // 1000000000000000000)"), f"CAST({s} % 1000000000000000000 AS BIGINT)"),
    )


def _clamped(number: str, *, signed: bool = True) -> str:
    upper = f"least({number}, {INT64_LIMIT})"
    return f"CAST({f'greatest({upper}, -{INT64_LIMIT})' if signed else upper} AS BIGINT)"


def _readable(kind: Any) -> str:
    text = str(kind)
    return text if len(text) <= 40 else text[:37] + "..."
