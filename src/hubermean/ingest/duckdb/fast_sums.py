"""Fast sums of doubles: sums of a few parts, in doubles but without rounding, are the same integers as 128-bit sums.

A double becomes a multiple of 2^-60 (`data.encoding.BINARY`), which takes 128 bits; making and adding such integers
costs DuckDB several times as much as adding doubles. But a sum of doubles is exact as long as all numbers are multiples
of one unit and the sum is below 2^53 units. So each value is split into parts with units of their own, two for values
up to 2^27, and the parts are added as doubles. Adding and subtracting a large power of two rounds to a unit.

The magnitude of the values is read from the statistics of Parquet files. It decides how fast a sum is computed, never
what it is: every value is compared with it, and if one does not fit, the query fails and sums are computed in 128 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.encoding import BINARY
from hubermean.data.fixed_point import ExactIntegers, ExactSums
from hubermean.data.threads import map_row_ranges
from hubermean.ingest.files import FileSet, quote_text, quote_texts
from hubermean.ingest.schema import ValueColumn

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MIN_FILE_BYTES = 2**25
"""For smaller files, reading the statistics would take longer than the time saved."""

MARK = "usable_mark"
STATE = "state"
UNIT_BITS, _RADIX_BITS = 60, 40  # of the BINARY encoding: its unit, and its lower part
_MIN_MAGNITUDE, _MAX_MAGNITUDE = -20, 42  # 2^42 is within the limit of the encoding
_ENOUGH_RECORDS = 10  # bits; with fewer records per user, three parts are used
_WORK_PER_BLOCK = 2**22  # numbers that are read or written to combine the parts of a block of sums
_TOGETHER = 4  # numbers whose magnitudes are checked at once; more would leave room for fewer records
_LARGEST_SUM = 2.0**40  # an upper part of the encoding then fits 64 bits with room to spare


T = TypeVar("T")


class SumOverflowError(ArithmeticError):
    """A sum is not exact in doubles, or does not fit."""


@dataclass(frozen=True, kw_only=True, repr=False)
class DoubleParts:
    """How a column of doubles up to 2^`magnitude` is split into parts.

    Part p is a multiple of 2^-`units[p]`; the last unit is that of the encoding. The first part is at most 2^magnitude,
    and every other at most half a unit of the part before.

    Formal guarantees:
    - the parts add up to the integer of `data.encoding.encode_binary`: all parts but the last are even numbers of its
      units, so a half is rounded as it would be without them. Each operation of the split is exact but for the rounding
      to a unit: for |x| <= 2^(51 - u), x + 1.5 * 2^(52 - u) lies between two powers of two, where doubles are 2^-u
      apart; what it differs from x by is a multiple of the last bit of x, and no longer than x;
    - a sum over at most `max_records` values is exact, in any order: all partial sums are integers of units below 2^53.
    """

    magnitude: int
    units: tuple[int, ...]

    @classmethod
    def up_to(cls, magnitude: int) -> DoubleParts:
        """Return two parts if their sums are exact for enough records, else three."""
        half = (UNIT_BITS - 1 - magnitude) // 2
        parts = cls(magnitude=magnitude, units=(half, UNIT_BITS))
        if parts.record_bits >= _ENOUGH_RECORDS:
            return parts
        third = -(-(UNIT_BITS - 2 + magnitude) // 3)
        first = third - magnitude
        return cls(magnitude=magnitude, units=(first, first + third + 1, UNIT_BITS))

    @property
    def record_bits(self) -> int:
        """`max_records` is two to the power of this."""
        first, *others = self.units
        bits = [self.magnitude + first]
        bits += [unit - before - 1 for before, unit in zip(self.units, others, strict=False)]
        return 53 - max(bits)

    @property
    def max_records(self) -> int:
        return 1 << self.record_bits

    def read_sums(self, blocks: Sequence[Sequence[FloatArray]], counts: IntArray) -> ExactSums:
        """Return exact sums from those of the parts, which are given in blocks of users.

        Raises:
            SumOverflowError: a sum may not be exact, or does not fit.
        """
        if int(counts.max(initial=0)) > self.max_records:
            raise SumOverflowError
        high, low = np.empty(len(counts), dtype=np.int64), np.empty(len(counts), dtype=np.int64)
        ends = np.cumsum([0, *(len(parts[0]) for parts in blocks)]).tolist()

        def combine(some: slice) -> None:
            for place in range(some.start, some.stop):
                rows = slice(ends[place], ends[place + 1])
                self._combine(blocks[place], high[rows], low[rows])

        map_row_ranges(combine, len(blocks), _WORK_PER_BLOCK)
        return ExactSums(encoding=BINARY, high=ExactIntegers(high, {}), low=ExactIntegers(low, {}))

    def _combine(self, parts: Sequence[FloatArray], high: IntArray, low: IntArray) -> None:
        """Write the two parts of the encoding."""
        high[:] = low[:] = 0
        if not np.abs(parts[0]).max(initial=0.0) < _LARGEST_SUM:
            raise SumOverflowError
        for part, unit in zip(parts, self.units, strict=True):
            scaled = part * 2.0**unit
            integers = scaled.astype(np.int64)
            if not np.array_equal(integers, scaled):  # were the split not made as it is written
                raise SumOverflowError
            shift = UNIT_BITS - unit
            if shift >= _RADIX_BITS:
                high += integers << (shift - _RADIX_BITS)
                continue
            kept = _RADIX_BITS - shift
            high += integers >> kept
            integers &= (1 << kept) - 1
            integers <<= shift
            low += integers
        high += low >> _RADIX_BITS
        low &= (1 << _RADIX_BITS) - 1


@dataclass(frozen=True, kw_only=True, repr=False)
class FastSums:
    """Sums of several columns: doubles in parts, all others as they are; `parts` is None for those."""

    values: Sequence[ValueColumn]
    parts: Sequence[DoubleParts | None]

    def select(self, rows: str, keys: Sequence[str]) -> str:
        """Return SQL of the keys and the parts of every value, from rows that have `keys` and the columns of `numbers`.

        A record is usable if `MARK` is not null. All parts of others are null, but they keep their user in the table.
        The query fails for a number beyond its magnitude: a few numbers at a time, in units of their magnitudes, add up
        to at most 1, and so does each of them. DuckDB leaves out a comparison that is always true by the statistics of
        a file, also of a column to which a constant was added. So what is added is a CASE expression, of which it knows
        nothing.
        """
        doubles = [(number, part) for number, part in enumerate(self.parts) if part is not None]
        others = [f"value_{number}" for number, part in enumerate(self.parts) if part is None]
        whole = [f"{name} IS NOT NULL" for name in others]
        sizes = [
            " + ".join(["opaque", *(f"abs(rest_{n}) * {_double(2.0**-part.magnitude)}" for n, part in some)])
            for some in _together(doubles)
        ]
        finite = [f"isfinite(rest_{n} + opaque)" for n, _ in doubles]
        # Where a sum is above 1, one of its numbers is 2^64 or more here, and the cast fails.
        beyond = [
            f"abs(rest_{n}) * {_double(2.0**64 * _TOGETHER / 2.0**part.magnitude)}" for n, part in doubles
        ]
        rows = f"SELECT *, CASE WHEN rest_{doubles[0][0]} IS NOT NULL THEN {_double(0.0)} END AS opaque FROM ({rows})"
        rows = f"SELECT *, {', '.join(f'{sql} AS size_{n}' for n, sql in enumerate(sizes))} FROM ({rows})"
        fits = [*whole, *(f"size_{n} <= {_double(1.0)}" for n in range(len(sizes)))]
        rows = (
            f"SELECT *, CASE WHEN {' AND '.join(fits)} THEN {_double(0.0)} WHEN {' AND '.join([*whole, *finite])} "
            f"THEN CAST(CAST(greatest({', '.join(beyond)}) AS BIGINT) AS DOUBLE) END AS {MARK} FROM ({rows})"
        )
        cleared = [f"CASE WHEN {MARK} IS NOT NULL THEN {name} END AS {name}" for name in others]
        units = sorted({part.units[0] for _, part in doubles})
        shifts = [f"{MARK} + {_double(_rounder(unit))} AS {_shift(unit)}" for unit in units]
        done, rests = [*keys, MARK, *others], [f"rest_{n}" for n, _ in doubles]
        rows = f"SELECT {', '.join([*keys, MARK, *cleared, *rests, *shifts])} FROM ({rows})"
        for place in range(max(len(part.units) for _, part in doubles)):
            active = [(n, part) for n, part in doubles if place < len(part.units)]
            made = []
            for n, part in active:
                unit = part.units[place]
                shift = _double(_rounder(unit)) if place else _shift(unit)
                made.append(f"(rest_{n} + {shift}) - {shift} AS value_{n}_{place}")
            rows = f"SELECT {', '.join([*done, *rests, *made])} FROM ({rows})"
            done += [f"value_{n}_{place}" for n, _ in active]
            longer = [n for n, part in active if place + 1 < len(part.units)]
            rests = [f"rest_{n}" for n in longer]
            left = [f"rest_{n} - value_{n}_{place} AS rest_{n}" for n in longer]
            rows = f"SELECT {', '.join([*done, *left])} FROM ({rows})"
        return rows

    def numbers(self) -> list[str]:
        """Return SQL of what `select` takes of each record."""
        return [
            f"{value.parts[0].expression} AS value_{number}"
            if part is None
            else f"{value.number} AS rest_{number}"
            for number, (value, part) in enumerate(zip(self.values, self.parts, strict=True))
        ]

    def aggregates(self) -> list[str]:
        """Return SQL of the number of usable records, and of the sum of every part."""
        names = [name for number in range(len(self.values)) for name in self._names(number)]
        joint = next(number for number, part in enumerate(self.parts) if part is not None)
        names.remove(f"value_{joint}_0")
        state = f"avg(value_{joint}_0) EXPORT_STATE AS {STATE}"
        return [state, *(f"sum({name}) AS {name}" for name in names)]

    def split_state(self, table: pa.Table) -> pa.Table:
        """Return the table with columns `usable` and the sum that is counted with in place of their state."""
        place = table.column_names.index(STATE)
        counts, sums = table.column(place).flatten()
        joint = next(number for number, part in enumerate(self.parts) if part is not None)
        table = table.remove_column(place).append_column("usable", counts)
        return table.append_column(f"value_{joint}_0", sums)

    def _names(self, number: int) -> list[str]:
        part = self.parts[number]
        return (
            [f"value_{number}"]
            if part is None
            else [f"value_{number}_{place}" for place in range(len(part.units))]
        )

    def read_sums(self, table: pa.Table, number: int, counts: IntArray) -> ExactSums | None:
        """Return the sums of a column of doubles from the result of the query; None for another column.

        Raises:
            SumOverflowError: a sum may not be exact, or does not fit.
        """
        part = self.parts[number]
        if part is None:
            return None
        batches = table.select(self._names(number)).to_batches()
        return part.read_sums([[*map(_doubles, batch.columns)] for batch in batches], counts)


def _rounder(unit: int) -> float:
    """What to add and subtract again, to round to a multiple of 2^-unit."""
    return 1.5 * 2.0 ** (52 - unit)


def _together(doubles: Sequence[T]) -> list[Sequence[T]]:
    """Return the columns in groups whose magnitudes are checked by one sum."""
    return [doubles[start : start + _TOGETHER] for start in range(0, len(doubles), _TOGETHER)]


def _double(number: float) -> str:
    """A double as it is: digits without an exponent would be a decimal, and rounded when it is converted."""
    return f"CAST('{number!r}' AS DOUBLE)"


def _shift(unit: int) -> str:
    return f"shift_{unit}".replace("-", "m")


def _doubles(column: pa.Array) -> FloatArray:
    """Return a column of doubles as an array; null, for a user without usable records, is zero."""
    whole = column.fill_null(0.0) if column.null_count else column
    return np.from_dlpack(whole).astype(np.float64, copy=False)


def supports_double_state(run: Callable[[str], duckdb.DuckDBPyRelation]) -> bool:
    """Whether this version of DuckDB exports the state of an average of doubles as their number and their sum."""
    import duckdb
    import pyarrow as pa

    query = f"SELECT avg(v) EXPORT_STATE AS {STATE} FROM (VALUES (2.0::DOUBLE), (-0.5), (NULL), (4.25)) t(v)"
    try:
        state = run(query).to_arrow_table().column(STATE)
    except (duckdb.Error, pa.ArrowException):
        return False
    expected = pa.struct({"count": pa.uint64(), "value": pa.float64()})
    return bool(state.type == expected) and state.to_pylist() == [{"count": 3, "value": 5.75}]


def read_magnitudes(
    connection: duckdb.DuckDBPyConnection, files: FileSet, values: Sequence[ValueColumn]
) -> list[int | None]:
    """Return for each column of doubles the power of two that all values are below, by statistics; None without one."""
    import duckdb

    ends = "try_cast(stats_min_value AS DOUBLE), try_cast(stats_max_value AS DOUBLE)"
    names = [value.name for value in values if value.floats]
    try:
        found = connection.sql(
            f"SELECT name, bool_and(low IS NOT NULL AND high IS NOT NULL), max(greatest(-low, high)) FROM "
            f"(SELECT path_in_schema, {ends} FROM parquet_metadata({quote_texts(files.paths)}) "
            f"WHERE path_in_schema IN ({', '.join(map(quote_text, names))})) t(name, low, high) GROUP BY name"
        ).fetchall()
    except duckdb.Error:  # a damaged file, which is reported when it is read
        found = []
    magnitudes = {name: _magnitude(largest) for name, known, largest in found if known}
    return [magnitudes.get(name) for name in names]


def _magnitude(largest: float) -> int | None:
    # Statistics are written in decimal digits and may be slightly too small.
    enough = largest * (1 + 2.0**-20)
    return max(math.frexp(enough)[1], _MIN_MAGNITUDE) if enough < 2.0**_MAX_MAGNITUDE else None


def choose_fast_sums(
    connection: duckdb.DuckDBPyConnection, files: FileSet, values: Sequence[ValueColumn]
) -> FastSums | None:
    """Return parts for all columns of doubles if statistics show their magnitudes; None if not, or if there is none."""
    magnitudes = read_magnitudes(connection, files, values)
    spare = (min(len(magnitudes), _TOGETHER) - 1).bit_length()  # for the check of several numbers at once
    if any(one is None or one + spare > _MAX_MAGNITUDE for one in magnitudes):
        return None
    parts = iter([DoubleParts.up_to(one + spare) for one in magnitudes if one is not None])
    return FastSums(values=values, parts=[next(parts) if value.floats else None for value in values])
