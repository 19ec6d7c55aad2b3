"""How DuckDB writes the integers of a value: see `columns.Dialect`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.exact import BINARY
from hubermean.exact.encoding import INT64_LIMIT
from hubermean.ingest.columns import JSON_TOKEN, LARGEST_STEPS, Part
from hubermean.ingest.files import identifier, is_text

_WIDE_INTEGERS = {"ubigint", "hugeint", "uhugeint"}


class DuckdbSql:
    """In one part: the engine has integers of 128 bits."""

    def identifier(self, name: str) -> str:
        return identifier(name)

    def has_key(self, column: str, *, floating: bool) -> str:
        # Why not isnan, `_in_range` says.
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

    def parsed(self, column: str) -> str:
        # trim() also keeps the engine from parsing inside the reader, where a bad value drops the record.
        text = f"trim({column})"
        flag = f"CASE lower({text}) WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 END"
        return f"coalesce(try_cast({text} AS DOUBLE), {flag})"

    def number(self, column: str, kind: str) -> str:
        return f"epoch({column})" if kind == "interval" else f"CAST({column} AS DOUBLE)"

    def times(self, number: str, factor: float) -> str:
        return f"({number} * {factor!r})"

    def binary(self, number: str, *, clamp_infinities: bool) -> tuple[Part, ...]:
        """In one step; the engine's cast rounds half to even."""
        limit = float(BINARY.limit)
        largest = f"CAST(sign({number}) * {limit * 2.0**60!r} AS HUGEINT)"
        inside = f"try_cast({number} * {2.0**60!r} AS HUGEINT)"
        return (Part(_in_range(number, limit, inside, largest, clamp_infinities)),)

    def in_steps(
        self, number: str, step: Fraction, *, inverse: int | None, clamp_infinities: bool
    ) -> tuple[Part, ...]:
        largest = f"CAST(sign({number}) * {LARGEST_STEPS!r} AS BIGINT)"
        scaling = f"/ {float(step)!r}" if inverse is None else f"* {float(inverse)!r}"
        inside = f"try_cast({number} {scaling} AS BIGINT)"
        reach = LARGEST_STEPS * float(step)
        return (Part(_in_range(number, reach, inside, largest, clamp_infinities)),)

    def whole(self, column: str, kind: str) -> tuple[Part, ...]:
        if kind == "boolean":
            return (Part(f"CAST({column} AS INTEGER)"),)
        if kind not in _WIDE_INTEGERS:
            return (Part(column),)
        # Narrow first where all values are positive: the widest unsigned type does not fit a signed one.
        signed = f"greatest({column}, -{INT64_LIMIT})" if kind == "hugeint" else column
        return (Part(_if_present(column, f"CAST(least({signed}, {INT64_LIMIT}) AS BIGINT)")),)

    def decimal(self, column: str, *, width: int, scale: int, limit: int | None) -> tuple[Part, ...]:
        if limit is None:
            # The engine sums such decimals as the integers they are stored as; the sum is read back as one.
            return (Part(column),)
        rest = f"CAST({column} - trunc({column}) AS DECIMAL(18, {scale}))"
        unscaled = f"CAST(trunc({column}) AS HUGEINT) * {10**scale} + CAST({rest} * {10**scale} AS HUGEINT)"
        return (Part(_if_present(column, f"greatest(least({unscaled}, {limit}), -{limit})")),)


def _in_range(number: str, reach: float, inside: str, largest: str, clamp_infinities: bool) -> str:
    """An expression for numbers within reach, another beyond, null where a float is unusable.

    The statistics of Parquet files leave NaN out, so an engine that trusts them may decide any comparison with
    the column, and isnan itself, without looking at the value: NaN then meets `inside`, whose try_cast makes it null.
    """
    beyond = f"isfinite({number}) OR isinf({number})" if clamp_infinities else f"isfinite({number})"
    return (
        f"CASE WHEN {number} BETWEEN {-reach!r} AND {reach!r} THEN {inside} WHEN {beyond} THEN {largest} END"
    )


def _if_present(column: str, expression: str) -> str:
    """Null where the value is; least and greatest pass over nulls and would make a number of one."""
    return f"CASE WHEN {column} IS NOT NULL THEN {expression} END"


def parse_numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    """The numbers that texts hold, by the rule for text files; NaN where one holds none."""
    import duckdb
    import pyarrow as pa

    readable = [text if is_text(text) else None for text in texts]
    with duckdb.connect(":memory:") as connection:
        connection.register("texts", pa.table({"text": pa.array(readable, type=pa.large_string())}))
        found = connection.sql(f"SELECT {DuckdbSql().parsed('text')} AS number FROM texts").to_arrow_table()
    numbers: NDArray[np.float64] = found.column("number").to_numpy()
    return numbers
