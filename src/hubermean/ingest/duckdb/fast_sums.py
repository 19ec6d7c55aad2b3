"""Fast sums of doubles: 64-bit units plus a remainder give the same integers as 128-bit sums, at less cost.

A double becomes a multiple of 2^-60 (`data.encoding.BINARY`), which takes 128 bits; adding such integers costs DuckDB
twice as much as adding 64-bit integers. But a double has only 53 significant bits: if all values of a column are below
2^e, multiples of 2^-(63 - e) fit 64 bits, and no value of 2^(e - 11) or more has a remainder. So whole coarse units are
added for every record, and remainders only for the records that have one.

The magnitude of the values is read from the statistics of Parquet files. It decides how fast a sum is computed, never
what it is: if a value does not fit, the query fails and sums are computed in 128 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.fixed_point import ExactSums
from hubermean.ingest.engine import decimal_words, int64_array
from hubermean.ingest.files import FileSet, quote_text, quote_texts

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MIN_FILE_BYTES = 2**25
"""For smaller files, reading the statistics would take longer than the time saved."""

REMAINDER = "value_0_remainder"
_UNIT_BITS = 60
# With 21 bits or more, what fits is below 2^42 and so within the limit of the encoding; with fewer than 60 bits, a
# coarse unit is an even number of units.
_MIN_BITS, _MAX_BITS = 21, 59
_MAX_VALUE = 2.0 ** (63 - _MIN_BITS)


class SumOverflowError(ArithmeticError):
    """A sum does not fit 128 bits in units of the encoding."""


@dataclass(frozen=True, repr=False)
class CoarseSums:
    """Sums in coarse units of 2^-`bits`, and of remainders in units of 2^-60.

    Formal guarantee: coarse units and remainder together are the integer of `data.encoding.encode_binary`, if the
    engine casts a double to the nearest integer, half to even. Multiplying by a power of two is exact, and so is
    subtracting the nearest integer; a coarse unit is an even number of units, so a half is rounded in the same way with
    and without coarse units. The engine cannot skip remainders because of statistics: it has none for CASE expressions.
    """

    bits: int

    def select_parts(self, number: str) -> list[str]:
        """Return SQL of both parts of a double, null if it is not finite; fails if coarse units exceed 64 bits."""
        scaled = f"{number} * {2.0**self.bits!r}"
        units = f"CASE WHEN isfinite({number}) THEN CAST({scaled} AS BIGINT) END"
        remainder = (
            f"CAST(({scaled} - CAST({units} AS DOUBLE)) * {2.0 ** (_UNIT_BITS - self.bits)!r} AS BIGINT)"
        )
        return [f"{units} AS value_0", f"{remainder} AS {REMAINDER}"]

    def sum_remainders(self) -> str:
        """Return SQL of the sum of remainders, which fits 64 bits for up to 2^24 records of a user."""
        return f"CAST(sum({REMAINDER}) FILTER ({REMAINDER} <> 0) AS BIGINT) AS {REMAINDER}"

    def read_sums(self, table: pa.Table) -> ExactSums:
        """Return the exact sums from the result of the query.

        Raises:
            SumOverflowError: a sum does not fit 128 bits.
        """
        batches = (batch.columns for batch in table.select(["value_0", REMAINDER]).to_batches())
        return ExactSums.from_binary_words(
            self.combine_words(*decimal_words(units), int64_array(remainder.fill_null(0)))
            for units, remainder in batches
        )

    def combine_words(self, low: IntArray, high: IntArray, remainder: IntArray) -> tuple[IntArray, IntArray]:
        """Return the words of 128-bit sums in units of 2^-60, from the words of coarse sums and the remainders."""
        shift = _UNIT_BITS - self.bits
        limit = 1 << (62 - shift)  # leaves one bit for the remainders
        if len(high) and (int(high.max()) >= limit or int(high.min()) < -limit):
            raise SumOverflowError
        shifted = low.view(np.uint64) << np.uint64(shift)
        carried = (low.view(np.uint64) >> np.uint64(64 - shift)).view(np.int64)
        total = shifted + remainder.view(np.uint64)
        above = (high << shift) | carried
        above += remainder >> 63
        above += total < shifted
        return total.view(np.int64), above


def choose_coarse_sums(
    connection: duckdb.DuckDBPyConnection, files: FileSet, column: str
) -> CoarseSums | None:
    """Return the finest coarse units that all values of a column fit, according to statistics; None without any."""
    import duckdb

    ends = "try_cast(stats_min_value AS DOUBLE), try_cast(stats_max_value AS DOUBLE)"
    try:
        ((known, largest),) = connection.sql(
            f"SELECT bool_and(low IS NOT NULL AND high IS NOT NULL), max(greatest(-low, high)) FROM "
            f"(SELECT {ends} FROM parquet_metadata({quote_texts(files.paths)}) "
            f"WHERE path_in_schema = {quote_text(column)}) t(low, high)"
        ).fetchall()
    except duckdb.Error:  # a damaged file, which is reported when it is read
        return None
    if not known or not largest < _MAX_VALUE:
        return None
    # Statistics are written in decimal digits and may be slightly too small.
    bits = min(63 - math.frexp(largest * (1 + 2.0**-20))[1], _MAX_BITS)
    return CoarseSums(bits) if bits >= _MIN_BITS else None
