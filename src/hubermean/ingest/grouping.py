"""The one query of ingest: exact integer sums and counts per user, and nothing that names a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubermean.exact import BINARY, ExactIntegers, ExactSums
from hubermean.ingest.coarse_sums import REST, CoarseSums
from hubermean.ingest.columns import KeyColumn, ValueColumn
from hubermean.ingest.sum_and_count import has_joint, sum_and_count, taken_apart
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    import pyarrow as pa


def grouping_query(
    source: str,
    *,
    users: Sequence[KeyColumn],
    values: Sequence[ValueColumn],
    records: bool,
    split: bool = False,
    joint: bool = False,
    coarse: CoarseSums | None = None,
) -> str:
    """SQL for the per-user integers of `source`.

    A record is usable when every one of its values is; the others add nothing to a sum but keep their user in
    the table. The engine adds 128-bit integers and fails when a sum overflows, which takes millions of huge
    records of one user; `split` adds up two smaller parts of each instead, slower and without that limit. `joint`
    makes one aggregate of the first sum and the number of usable records; see `sum_and_count`. `coarse` says in which
    steps to add up the one column of doubles.
    """
    selected, keys = renamed(users, "user")
    if coarse is not None:
        (value,) = values
        selected += coarse.selected(value.number)
        wanted = coarse.aggregates()
    else:
        selected += [f"{value.parts[0].expression} AS value_{place}" for place, value in enumerate(values)]
        wanted = aggregates(values, split=split, joint=joint)
    if records:
        wanted.append("count(*) AS records")
    return (
        f"SELECT {', '.join(wanted)} FROM "
        f"(SELECT {', '.join(selected)} FROM {source} WHERE {all_present(users)}) "
        f"GROUP BY {', '.join(keys)}"
    )


def all_present(columns: Sequence[KeyColumn]) -> str:
    """The condition under which a record has an identity in each of some columns."""
    return " AND ".join(column.present(column.expression) for column in columns)


def renamed(columns: Sequence[KeyColumn], what: str) -> tuple[list[str], list[str]]:
    """Selected columns under plain names, and these names."""
    names = [f"{what}_{number}" for number in range(len(columns))]
    return [f"{column.expression} AS {name}" for column, name in zip(columns, names, strict=True)], names


def aggregates(values: Sequence[ValueColumn], *, split: bool, joint: bool = False) -> list[str]:
    """The number of usable records, and their sums, of columns `value_0`, `value_1`, ..."""
    names = [f"value_{number}" for number in range(len(values))]
    if not names:  # nothing to average: every record counts
        return ["count(*) AS usable"]
    usable = " AND ".join(f"{name} IS NOT NULL" for name in names)
    # With one column a sum passes over unusable records by itself.
    only = f" FILTER ({usable})" if len(values) > 1 else ""
    joint = joint and not split
    wanted = [sum_and_count(names[0], only) if joint else f"count({names[0]}){only} AS usable"]
    for value, name in zip(values, names, strict=True):
        radix = value.encoding.radix
        if joint and name == names[0]:
            continue
        if split and radix > 1:
            wanted += [
                f"sum({name} // {radix}){only} AS {name}_high",
                f"sum({name} % {radix}){only} AS {name}_low",
            ]
        else:
            wanted.append(f"sum({name}){only} AS {name}")
    return wanted


def read_user_table(
    table: pa.Table, values: Sequence[ValueColumn], *, coarse: CoarseSums | None = None
) -> UserTable:
    """What an engine found, per user or per user and group, as a `UserTable`.

    The sum of a value is in one column (`value_0`), in two for the parts of its encoding (`value_0_high` and
    `value_0_low`), or in one for each of the parts that the engine made (`value_0_0`, `value_0_1`, ...). `coarse` is
    that of the query.
    """
    if has_joint(table):
        table = taken_apart(table, count="usable", total="value_0")
    usable = _int64(table.column("usable"))
    records = _int64(table.column("records")) if "records" in table.column_names else usable
    if coarse is not None:
        sums: tuple[ExactSums, ...] = (_coarse_sums(table, coarse),)
    else:
        sums = tuple(_column_sums(table, f"value_{number}", value) for number, value in enumerate(values))
    return UserTable(columns=tuple(value.name for value in values), sums=sums, counts=usable, records=records)


def _column_sums(table: pa.Table, name: str, value: ValueColumn) -> ExactSums:
    if f"{name}_0" in table.column_names:
        columns = [table.column(f"{name}_{place}") for place in range(len(value.parts))]
        return _together(value, [_exact(column) for column in columns])
    if name not in table.column_names:
        high, low = (_exact(table.column(f"{name}_{part}")) for part in ("high", "low"))
        return ExactSums.from_parts(value.encoding, high, low)
    if value.encoding == BINARY:
        return ExactSums.from_binary_words(map(_words, table.column(name).chunks))
    return ExactSums(encoding=value.encoding, low=_exact(table.column(name)))


def _coarse_sums(table: pa.Table, coarse: CoarseSums) -> ExactSums:
    batches = table.select(["value_0", REST]).to_batches()
    steps_and_rests = (batch.columns for batch in batches)
    return ExactSums.from_binary_words(
        coarse.words(*_words(steps), _int64(rest.fill_null(0))) for steps, rest in steps_and_rests
    )


def _together(value: ValueColumn, parts: Sequence[ExactIntegers]) -> ExactSums:
    """The sum of a value from the sums of its parts, in the form that one sum would have."""
    if len(parts) == 1:
        return ExactSums(encoding=value.encoding, low=parts[0])
    if value.encoding == BINARY:
        return ExactSums.from_parts(BINARY, *parts)
    factors = [part.factor for part in value.parts]
    totals = [
        sum(factor * part[position] for factor, part in zip(factors, parts, strict=True))
        for position in range(len(parts[0]))
    ]
    return ExactSums(encoding=value.encoding, low=ExactIntegers.from_integers(totals))


def _int64(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    array: NDArray[np.int64] = column.to_numpy().astype(np.int64, copy=False)
    return array


def _exact(column: pa.ChunkedArray) -> ExactIntegers:
    """A column of integers of 128 bits, or of 64; null, for a user with nothing to sum, is zero."""
    if str(column.type) == "int64":
        return ExactIntegers(_int64(column.fill_null(0) if column.null_count else column), {})
    return ExactIntegers.from_words(map(_words, column.chunks))


def _words(chunk: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The low and high 64-bit words of each decimal128 (Arrow's layout); a user with nothing to sum has zero."""
    if not str(chunk.type).startswith("decimal128"):
        raise TypeError("a sum of integers must arrive as a 128-bit decimal")
    words = np.frombuffer(chunk.buffers()[1], dtype="<i8").reshape(-1, 2)[
        chunk.offset : chunk.offset + len(chunk)
    ]
    if chunk.null_count:
        words = np.where(np.asarray(chunk.is_null())[:, np.newaxis], 0, words)
    return words[:, 0], words[:, 1]
