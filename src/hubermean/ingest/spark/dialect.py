"""The SQL of Spark: see `schema.Dialect`.

Nothing here may depend on the settings of a session (`spark.sql.ansi.enabled`). No expression is reached by a value for
which it would overflow or fail; where Spark might evaluate it early, it returns null for such a value.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from hubermean.data.encoding import BINARY, INT64_LIMIT
from hubermean.ingest.schema import MAX_UNITS, Part
from hubermean.ingest.text_format import NumberFormat

_WORD = 10**18
_EXACT = Context(prec=60)
_INFINITY = "CAST('Infinity' AS DOUBLE)"
_DAY = 86_400_000_000
_MICROSECONDS = {"DAY": _DAY, "HOUR": 3_600_000_000, "MINUTE": 60_000_000}


class SparkSql:
    """Integers have 64 bits; wider ones have several parts."""

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def quote_text(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def has_key(self, column: str, *, floating: bool) -> str:
        present = f"{column} IS NOT NULL"
        return f"({present} AND NOT isnan({column}))" if floating else present

    def identity(self, column: str, kind: str, *, scale: int) -> str:
        text = f"CAST({column} AS STRING)"
        if kind == "blob":
            return f"concat('0x', lower(hex({column})))"
        if kind in ("float", "double"):
            number = f"CAST({column} AS DOUBLE)"
            whole = f"{number} = rint({number}) AND abs({number}) < {_double(2.0**63)}"
            digits = f"CAST(try_cast({number} AS BIGINT) AS STRING)"
            return f"CASE WHEN {whole} THEN {digits} ELSE {_shortest_digits(number)} END"
        if scale > 0:
            return f"CASE WHEN {column} = 0 THEN '0' ELSE {_without_trailing_zeros(text)} END"
        return text

    def json_token(self, column: str) -> str:
        raise NotImplementedError("Spark reads columns with types only")

    def parse_number(self, column: str, numbers: NumberFormat) -> str:
        raise NotImplementedError("Spark reads columns with types only")

    def to_date(self, column: str, kind: str) -> str:
        if kind == "date":
            return column
        if kind == "timestamp":
            return f"CAST({column} AS DATE)"
        # A cast would depend on the time zone of the session.
        micros = f"unix_micros({column})"
        days = f"({micros} div {_DAY}L - CASE WHEN {micros} % {_DAY}L < 0 THEN 1 ELSE 0 END)"
        return f"date_from_unix_date(CAST({days} AS INT))"

    def period_number(self, date: str, period: str) -> str:
        match period:
            case "day":
                return date
            case "week":
                return f"(extract(YEAROFWEEK FROM {date}) * 100 + weekofyear({date}))"
            case "month":
                return f"(year({date}) * 12 + month({date}) - 1)"
            case "quarter":
                return f"(year({date}) * 4 + quarter({date}) - 1)"
            case _:
                return f"year({date})"

    def period_name(self, number: str, period: str) -> str:
        match period:
            case "day":
                return f"CAST({number} AS STRING)"
            case "week":
                return f"format_string('%04d-W%02d', {number} div 100, {number} % 100)"
            case "month":
                return f"format_string('%04d-%02d', {number} div 12, {number} % 12 + 1)"
            case "quarter":
                return f"format_string('%04d-Q%d', {number} div 4, {number} % 4 + 1)"
            case _:
                return f"format_string('%04d', {number})"

    def to_double(self, column: str, kind: str) -> str:
        if kind == "boolean":
            return f"CAST(CAST({column} AS INT) AS DOUBLE)"
        return f"CAST({column} AS DOUBLE)"

    def microseconds(self, duration: str) -> str:
        """A duration as the integer that it is stored as; reading treats such columns as integers with a unit.

        Field by field: a difference of timestamps would depend on the session's time zone.
        """
        duration = f"CAST({duration} AS INTERVAL DAY TO SECOND)"
        whole = " + ".join(
            f"CAST(extract({field} FROM {duration}) AS BIGINT) * {size}L"
            for field, size in _MICROSECONDS.items()
        )
        return f"({whole} + CAST(extract(SECOND FROM {duration}) * 1000000 AS BIGINT))"

    def multiply(self, number: str, factor: float) -> str:
        return f"({number} * {_double(factor)})"

    def encode_binary(self, number: str, *, clamp_infinities: bool) -> tuple[Part, ...]:
        """The operations of `data.encoding.encode_binary`; rint rounds half to even."""
        limit = float(BINARY.limit)
        scaled = f"({number} * {_double(2.0**20)})"
        high = f"try_cast(rint({scaled}) AS BIGINT)"
        low = f"try_cast(rint(({scaled} - rint({scaled})) * {_double(2.0**40)}) AS BIGINT)"
        largest = f"try_cast(sign({number}) * {_double(limit * 2.0**20)} AS BIGINT)"
        return (
            Part(_in_range(number, limit, high, largest, clamp_infinities), BINARY.radix),
            Part(_in_range(number, limit, low, "0L", clamp_infinities)),
        )

    def encode_units(
        self, number: str, unit: Fraction, *, inverse: int | None, clamp_infinities: bool
    ) -> tuple[Part, ...]:
        largest = f"try_cast(sign({number}) * {_double(MAX_UNITS)} AS BIGINT)"
        scaling = f"/ {_double(float(unit))}" if inverse is None else f"* {_double(float(inverse))}"
        inside = f"try_cast(rint({number} {scaling}) AS BIGINT)"
        reach = MAX_UNITS * float(unit)
        return (Part(_in_range(number, reach, inside, largest, clamp_infinities)),)

    def encode_integer(self, column: str, kind: str) -> tuple[Part, ...]:
        if kind == "ubigint":  # a decimal in Spark; see `column_types.find_unsigned_columns`
            most = f"CAST({INT64_LIMIT} AS DECIMAL(20, 0))"
            clamped = f"least(greatest({column}, -{most}), {most})"
            return (Part(f"CASE WHEN {column} IS NOT NULL THEN CAST({clamped} AS BIGINT) END"),)
        return (Part(f"CAST({column} AS BIGINT)"),)

    def encode_decimal(self, column: str, *, width: int, scale: int, limit: int | None) -> tuple[Part, ...]:
        power = f"CAST({10**scale} AS DECIMAL({scale + 1}, 0))"
        if limit is None:
            return (Part(f"CAST(CAST({column} AS DECIMAL(18, {scale})) * {power} AS BIGINT)"),)
        if 10**width > limit:
            most = f"CAST('{Decimal(limit).scaleb(-scale, _EXACT):f}' AS DECIMAL({width}, {scale}))"
            column = f"CASE WHEN {column} IS NOT NULL THEN least(greatest({column}, -{most}), {most}) END"
        # Rounded toward zero, as the remainder is. Spark may round products and quotients of wide decimals, but not
        # remainders.
        whole = f"CAST(CASE WHEN {column} < 0 THEN ceil({column}) ELSE floor({column}) END AS DECIMAL(38, 0))"
        billions = f"CAST({_WORD} AS DECIMAL(19, 0))"
        return (
            Part(f"CAST(({whole} - {whole} % {billions}) / {billions} AS BIGINT)", _WORD * 10**scale),
            Part(f"CAST({whole} % {billions} AS BIGINT)", 10**scale),
            Part(f"CAST(CAST({column} % 1 AS DECIMAL(18, {scale})) * {power} AS BIGINT)"),
        )


def _in_range(number: str, reach: float, inside: str, largest: str, clamp_infinities: bool) -> str:
    """Return `inside` for numbers within reach, `largest` beyond it, and null for unusable floats.

    Spark orders NaN above every number, so it is not within reach.
    """
    beyond = f"NOT isnan({number})"
    if not clamp_infinities:
        beyond += f" AND abs({number}) < {_INFINITY}"
    return (
        f"CASE WHEN {number} BETWEEN {_double(-reach)} AND {_double(reach)} THEN {inside} "
        f"WHEN {beyond} THEN {largest} END"
    )


def _shortest_digits(number: str) -> str:
    """The shortest text that reads back as a double that is not whole, as Python and DuckDB write it.

    Spark's own cast follows Java: 1.0E-7 for 1e-07, and before Java 19 more digits than necessary.
    """
    scientific = (
        f"get(filter(transform(sequence(0, 16), places -> "
        f"format_string(concat('%.', CAST(places AS STRING), 'e'), {number})), "
        f"text -> try_cast(text AS DOUBLE) = {number}), 0)"
    )
    plain = _without_trailing_zeros(f"CAST(try_cast({scientific} AS DECIMAL(38, 21)) AS STRING)")
    return (
        f"CASE WHEN abs({number}) = {_INFINITY} THEN if({number} > 0, 'inf', '-inf') "
        f"WHEN abs({number}) >= {_double(1e-4)} AND abs({number}) < {_double(1e16)} THEN {plain} "
        f"ELSE {scientific} END"
    )


def _without_trailing_zeros(decimal: str) -> str:
    return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {decimal}))"


def _double(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"
