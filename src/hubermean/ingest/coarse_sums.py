"""Sums of doubles in 64-bit steps and a rest: the same integers as in 128 bits, for less.

A double becomes a multiple of 2^-60 (`exact.encoding.BINARY`), which takes 128 bits, and integers of 128 bits cost the
engine twice what it takes to add up those of 64. But a double has 53 bits of its own: where all values of a column are
below 2^e, steps of 2^-(63 - e) fit 64 bits, and no value of 2^(e - 11) or more has anything left below a step. So whole
steps are added up for every record, and rests only for those records that have one.

How large values are is read off the statistics of Parquet files. They decide how fast a sum is made, never what it is:
a value that does not fit makes the query fail, and sums are made in 128 bits then.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hubermean.ingest.files import FileSet, literal
from hubermean.ingest.sum_and_count import sum_and_count

if TYPE_CHECKING:
    import duckdb

IntArray = NDArray[np.int64]

WORTHWHILE_BYTES = 2**25
"""Of files: in less there is no time to be saved that reading the statistics would not take."""

REST = "value_0_rest"
_UNIT_BITS = 60
# With 21 bits or more, what fits is below 2^42 and so within the limit of the encoding; with less than 60, a step has
# an even number of units.
_FEWEST_BITS, _MOST_BITS = 21, 59
_LARGEST = 2.0 ** (63 - _FEWEST_BITS)


class NoRoomError(ArithmeticError):
    """A sum that does not fit 128 bits in units of the encoding."""


@dataclass(frozen=True, repr=False)
class CoarseSums:
    """Steps of 2^-`bits`, and what a value has beyond them in units of 2^-60.

    Formal guarantee: steps and rest together are the integer of `exact.encoding.encode_binary`, if the engine casts a
    double to the nearest integer, half to even. Multiplying by a power of two is exact, and so is subtracting the
    nearest integer; a step has an even number of units, so that a half is rounded alike with the steps and without. Nor
    may the engine decide from statistics what rests there are: what it makes of CASE has none.
    """

    bits: int

    def selected(self, number: str) -> list[str]:
        """Both parts of a double, null where it is not finite; the query fails where steps exceed 64 bits."""
        scaled = f"{number} * {2.0**self.bits!r}"
        steps = f"CASE WHEN isfinite({number}) THEN CAST({scaled} AS BIGINT) END"
        rest = f"CAST(({scaled} - CAST({steps} AS DOUBLE)) * {2.0 ** (_UNIT_BITS - self.bits)!r} AS BIGINT)"
        return [f"{steps} AS value_0", f"{rest} AS {REST}"]

    def aggregates(self) -> list[str]:
        """The sum and number of steps, and the sum of rests, which fits 64 bits for up to 2^24 records of a user."""
        rests = f"CAST(sum({REST}) FILTER ({REST} <> 0) AS BIGINT) AS {REST}"
        return [sum_and_count("value_0", ""), rests]

    def words(self, low: IntArray, high: IntArray, rest: IntArray) -> tuple[IntArray, IntArray]:
        """The words of 128-bit sums in units of 2^-60, from those of the steps and from the rests.

        Raises:
            NoRoomError: a sum does not fit.
        """
        shift = _UNIT_BITS - self.bits
        most = 1 << (62 - shift)  # one bit is left for the rests
        if len(high) and (int(high.max()) >= most or int(high.min()) < -most):
            raise NoRoomError
        shifted = low.view(np.uint64) << np.uint64(shift)
        carried = (low.view(np.uint64) >> np.uint64(64 - shift)).view(np.int64)
        total = shifted + rest.view(np.uint64)
        above = (high << shift) | carried
        above += rest >> 63
        above += total < shifted
        return total.view(np.int64), above


def coarse_sums(connection: duckdb.DuckDBPyConnection, files: FileSet, column: str) -> CoarseSums | None:
    """The finest steps that all values of a column fit, if there are many and statistics say how large they are."""
    import duckdb

    if sum(map(os.path.getsize, files.paths)) < WORTHWHILE_BYTES:
        return None
    paths = "[" + ", ".join(literal(path) for path in files.paths) + "]"
    ends = "try_cast(stats_min_value AS DOUBLE), try_cast(stats_max_value AS DOUBLE)"
    try:
        ((known, largest),) = connection.sql(
            f"SELECT bool_and(low IS NOT NULL AND high IS NOT NULL), max(greatest(-low, high)) FROM "
            f"(SELECT {ends} FROM parquet_metadata({paths}) WHERE path_in_schema = {literal(column)}) t(low, high)"
        ).fetchall()
    except duckdb.Error:  # a broken file: whoever reads it says so
        return None
    if not known or not largest < _LARGEST:
        return None
    # A statistic is written in digits, which may be a little short.
    bits = min(63 - math.frexp(largest * (1 + 2.0**-20))[1], _MOST_BITS)
    return CoarseSums(bits) if bits >= _FEWEST_BITS else None
