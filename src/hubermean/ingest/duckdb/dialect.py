"""The SQL of DuckDB: see `schema.Dialect`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hubermean.data.arrays import FloatArray
from hubermean.data.encoding import BINARY, INT64_LIMIT
from hubermean.ingest.files import is_utf8, quote_identifier, quote_text
from hubermean.ingest.schema import JSON_TOKEN, MAX_UNITS, Part
from hubermean.ingest.text_format import NumberFormat

_WIDE_INTEGERS = {"ubigint", "hugeint", "uhugeint"}


class DuckdbSql:
    """Integers have one part, because DuckDB has integers of 128 bits."""

    def quote(self, name: str) -> str:
        return quote_identifier(name)

    def quote_text(self, text: str) -> str:
        return quote_text(text)

    def has_key(self, column: str, *, floating: bool) -> str:
        # Not isnan: see `_in_range`.
        return f"(isfinite({column}) OR isinf({column}))" if floating else f"{column} IS NOT NULL"

    def identity(self, column: str, kind: str, *, scale: int) -> str:
        if kind == JSON_TOKEN:
            token = f"CAST({column} AS VARCHAR)"
            number = f"try_cast({token} AS DOUBLE)"
            return (
                f"CASE WHEN starts_with({token}, '\"') THEN {column} ->> '$' "
                f"WHEN regexp_full_match({token}, '-?[1-9][0-9]*') THEN {token} "
                f"WHEN isnan({number}) OR left({token}, 1) IN ('{{', '[') THEN NULL "
                f"ELSE coalesce({self.identity(number, 'double', scale=0)}, {token}) END"
            )
        if kind == "varchar":
            return column
        if kind == "blob":
            return f"('0x' || lower(hex({column})))"
        if kind in ("float", "double"):
            number = f"CAST({column} AS DOUBLE)"
            whole = f"{number} = trunc({number}) AND abs({number}) < {2.0**63!r}"
            digits = f"CAST(try_cast({number} AS BIGINT) AS VARCHAR)"
            return f"CASE WHEN {whole} THEN {digits} ELSE CAST({number} AS VARCHAR) END"
        text = f"CAST({column} AS VARCHAR)"
        return f"rtrim(rtrim({text}, '0'), '.')" if scale > 0 else text

    def json_token(self, column: str) -> str:
        return f"CAST({column} AS VARCHAR)"

    def parse_number(self, column: str, numbers: NumberFormat) -> str:
        # trim() also keeps DuckDB from parsing inside the reader, where an invalid value drops the record.
        text = f"trim({column})"
        flag = f"CASE lower({text}) WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 END"
        plain = f"coalesce(try_cast({text} AS DOUBLE), {flag})"
        if numbers.is_plain:
            return plain
        whole = quote_text(f"^{numbers.pattern}$")
        digits = f"regexp_replace({text}, {whole}, '\\1\\2\\3')"
        if numbers.thousands:
            digits = f"translate({digits}, {quote_text(numbers.thousands)}, '')"
        if numbers.decimal != ".":
            digits = f"replace({digits}, {quote_text(numbers.decimal)}, '.')"
        # Without a digit it is a flag, infinite or no number, in every format.
        return (
            f"CASE WHEN regexp_matches({text}, {whole}) THEN try_cast({digits} AS DOUBLE) "
            f"WHEN NOT regexp_matches({text}, '[0-9]') THEN {plain} END"
        )

    def to_date(self, column: str, kind: str) -> str:
        if kind == "varchar":
            return f"CAST(try_cast(trim({column}) AS TIMESTAMP) AS DATE)"
        if kind == "timestamp with time zone":  # a cast would depend on the time zone of the session
            column = f"CASE WHEN isfinite({column}) THEN make_timestamp(epoch_us({column})) END"
        return column if kind == "date" else f"CAST({column} AS DATE)"

    def period_number(self, date: str, period: str) -> str:
        match period:
            case "day":
                return f"CASE WHEN isfinite({date}) THEN {date} END"
            case "week":
                return f"(isoyear({date}) * 100 + week({date}))"
            case "month":
                return f"(year({date}) * 12 + month({date}) - 1)"
            case "quarter":
                return f"(year({date}) * 4 + quarter({date}) - 1)"
            case _:
                return f"year({date})"

    def period_name(self, number: str, period: str) -> str:
        match period:
            case "day":
                return f"CAST({number} AS VARCHAR)"
            case "week":
                return f"format('{{:04d}}-W{{:02d}}', {number} // 100, {number} % 100)"
            case "month":
                return f"format('{{:04d}}-{{:02d}}', {number} // 12, {number} % 12 + 1)"
            case "quarter":
                return f"format('{{:04d}}-Q{{:d}}', {number} // 4, {number} % 4 + 1)"
            case _:
                return f"format('{{:04d}}', {number})"

    def to_double(self, column: str, kind: str) -> str:
        return f"epoch({column})" if kind == "interval" else f"CAST({column} AS DOUBLE)"

    def multiply(self, number: str, factor: float) -> str:
        return f"({number} * {factor!r})"

    def encode_binary(self, number: str, *, clamp_infinities: bool) -> tuple[Part, ...]:
        """In one operation; the cast of DuckDB rounds half to even. Its halves: as `data.encoding.encode_binary`."""
        limit = float(BINARY.limit)
        largest = f"CAST(sign({number}) * {limit * 2.0**60!r} AS HUGEINT)"
        inside = f"try_cast({number} * {2.0**60!r} AS HUGEINT)"
        scaled = f"{number} * {2.0**20!r}"
        high = f"try_cast({scaled} AS BIGINT)"
        low = f"try_cast(({scaled} - CAST({high} AS DOUBLE)) * {2.0**40!r} AS BIGINT)"
        most = f"CAST(sign({number}) * {limit * 2.0**20!r} AS BIGINT)"
        halves = (
            _in_range(number, limit, high, most, clamp_infinities),
            _in_range(number, limit, low, "0", clamp_infinities),
        )
        return (Part(_in_range(number, limit, inside, largest, clamp_infinities), halves=halves),)

    def encode_units(
        self, number: str, unit: Fraction, *, inverse: int | None, clamp_infinities: bool
    ) -> tuple[Part, ...]:
        largest = f"CAST(sign({number}) * {MAX_UNITS!r} AS BIGINT)"
        scaling = f"/ {float(unit)!r}" if inverse is None else f"* {float(inverse)!r}"
        inside = f"try_cast({number} {scaling} AS BIGINT)"
        reach = MAX_UNITS * float(unit)
        return (Part(_in_range(number, reach, inside, largest, clamp_infinities)),)

    def encode_integer(self, column: str, kind: str) -> tuple[Part, ...]:
        if kind == "boolean":
            return (Part(f"CAST({column} AS INTEGER)"),)
        if kind not in _WIDE_INTEGERS:
            return (Part(column),)
        # Unsigned values are clamped before the cast: the widest unsigned type does not fit a signed one.
        signed = f"greatest({column}, -{INT64_LIMIT})" if kind == "hugeint" else column
        return (Part(_if_present(column, f"CAST(least({signed}, {INT64_LIMIT}) AS BIGINT)")),)

    def encode_decimal(self, column: str, *, width: int, scale: int, limit: int | None) -> tuple[Part, ...]:
        if limit is None:
            # DuckDB adds such decimals as the integers they are stored as; the sum is read back as an integer.
            return (Part(column),)
        fraction = f"CAST({column} - trunc({column}) AS DECIMAL(18, {scale}))"
        unscaled = (
            f"CAST(trunc({column}) AS HUGEINT) * {10**scale} + CAST({fraction} * {10**scale} AS HUGEINT)"
        )
        return (Part(_if_present(column, f"greatest(least({unscaled}, {limit}), -{limit})")),)


def _in_range(number: str, reach: float, inside: str, largest: str, clamp_infinities: bool) -> str:
    """Return `inside` for numbers within reach, `largest` beyond it, and null for unusable floats.

    The statistics of Parquet files leave NaN out. An engine that trusts them may evaluate any comparison with the
    column, and isnan itself, without reading the value: NaN then reaches `inside`, where try_cast turns it into null.
    """
    beyond = f"isfinite({number}) OR isinf({number})" if clamp_infinities else f"isfinite({number})"
    return (
        f"CASE WHEN {number} BETWEEN {-reach!r} AND {reach!r} THEN {inside} WHEN {beyond} THEN {largest} END"
    )


def _if_present(column: str, expression: str) -> str:
    """Return null for null; least and greatest ignore nulls and would return a number."""
    return f"CASE WHEN {column} IS NOT NULL THEN {expression} END"


def parse_numbers(texts: Sequence[str], numbers: NumberFormat) -> FloatArray:
    """Parse texts as numbers, by the rule for text files; NaN for a text that is no number."""
    import duckdb
    import pyarrow as pa

    readable = [text if is_utf8(text) else None for text in texts]
    with duckdb.connect(":memory:") as connection:
        connection.register("texts", pa.table({"text": pa.array(readable, type=pa.large_string())}))
        found = connection.sql(
            f"SELECT {DuckdbSql().parse_number('text', numbers)} AS number FROM texts"
        ).to_arrow_table()
    parsed: FloatArray = found.column("number").to_numpy()
    return parsed
