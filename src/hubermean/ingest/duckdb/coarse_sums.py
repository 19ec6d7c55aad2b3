"""Fast sums of one column of doubles per user: 64-bit units plus a remainder are the same integers as 128-bit sums.

A double has only 53 significant bits: if all values of a column are below 2^e, multiples of 2^-(63 - e) fit 64 bits,
and no value of 2^(e - 11) or more has a remainder. So whole coarse units are added for every record, and remainders
only for the records that have one. Where a hash table of ids is larger than the processor's cache, one sum per record
costs less than the two of `fast_sums`; with several columns, remainders would cost more than that saves, and with many
small entries, the larger sums would.

As there, a value that the statistics of a file leave out changes no sum: the query fails, and 128 bits are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.fixed_point import ExactSums
from hubermean.ingest.duckdb.fast_sums import STATE, UNIT_BITS, SumOverflowError
from hubermean.ingest.engine import decimal_words, int64_array

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_BITS = 59  # then a coarse unit is an even number of units


@dataclass(frozen=True, kw_only=True, repr=False)
class CoarseSums:
    """Sums in coarse units of 2^-`bits`, and of remainders in units of the encoding; see `FastSums`.

    Formal guarantee: coarse units and remainder together are the integer of `data.encoding.encode_binary`, if the
    engine casts a double to the nearest integer, half to even. Multiplying by a power of two is exact, and so is
    subtracting the nearest integer; a coarse unit is an even number of units, so a half is rounded in the same way with
    and without coarse units. A double of 2^52 coarse units or more is a whole number of them. The engine cannot skip
    remainders because of statistics: it has none for CASE expressions.
    """

    number: str
    bits: int

    @classmethod
    def up_to(cls, magnitude: int, number: str) -> CoarseSums:
        """Return the finest units of which 2^`magnitude` fits 64 bits, to add the SQL expression `number` in."""
        return cls(number=number, bits=min(63 - magnitude, _MAX_BITS))

    def numbers(self) -> list[str]:
        """Return SQL of a record's number, null if it is not finite; fails if coarse units exceed 64 bits."""
        units = f"CAST({self.number} * {2.0**self.bits!r} AS BIGINT)"
        return [
            f"{self.number} AS number",
            f"CASE WHEN isfinite({self.number}) THEN {units} END AS value_0",
        ]

    def select(self, rows: str, keys: Sequence[str]) -> str:
        """Return SQL of the rows to group; a remainder is null from 2^52 units on, where a double has none."""
        rest = f"(number * {2.0**self.bits!r} - CAST(value_0 AS DOUBLE)) * {2.0 ** (UNIT_BITS - self.bits)!r}"
        remainder = f"CASE WHEN abs(value_0) < {2**52} THEN CAST({rest} AS BIGINT) END AS remainder"
        return f"SELECT {', '.join([*keys, 'value_0', remainder])} FROM ({rows})"

    def aggregates(self) -> list[str]:
        """Return SQL of the number of usable records and the sums; that of remainders fits 64 bits for 2^24 records."""
        return [f"avg(value_0) EXPORT_STATE AS {STATE}", "CAST(sum(remainder) AS BIGINT) AS remainder"]

    def split_state(self, table: pa.Table) -> pa.Table:
        """Return the table with columns `usable` and `value_0` in place of their state."""
        counts, sums = table.column(STATE).flatten()
        return table.append_column("usable", counts).append_column("value_0", sums)

    def read_sums(self, table: pa.Table, number: int, counts: IntArray) -> ExactSums:
        """Return the exact sums from the result of the query.

        Raises:
            SumOverflowError: a sum does not fit 128 bits.
        """
        batches = (batch.columns for batch in table.select(["value_0", "remainder"]).to_batches())
        return ExactSums.from_binary_words(
            self.combine_words(*decimal_words(units), int64_array(remainder.fill_null(0)))
            for units, remainder in batches
        )

    def combine_words(self, low: IntArray, high: IntArray, remainder: IntArray) -> tuple[IntArray, IntArray]:
        """Return the words of 128-bit sums in units of the encoding, from those of coarse sums and the remainders."""
        shift = UNIT_BITS - self.bits
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
