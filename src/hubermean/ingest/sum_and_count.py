"""A sum and its count as one aggregate of DuckDB's: the state of an average before it is divided.

The state of an average of integers is their exact sum, of 128 bits, and how many there are; the engine hands it over as
a struct when asked to (EXPORT_STATE). One aggregate is looked up and written to for each record in place of two, as in
a plain average. That the struct is what it is here is not promised by the engine, so it is tried out before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_STATE = "state"


def sum_and_count(name: str, only: str) -> str:
    """The aggregate of a column of integers, over the records that `only`, a filter, leaves."""
    return f"avg({name}){only} EXPORT_STATE AS {_STATE}"


def has_joint(table: pa.Table) -> bool:
    return _STATE in table.column_names


def taken_apart(table: pa.Table, *, count: str, total: str) -> pa.Table:
    """The same table with the two parts of the aggregate as columns of these names."""
    place = table.column_names.index(_STATE)
    if not _is_expected(table.schema.field(place).type):
        raise TypeError("the state of an average must be a count and an integer")
    counts, totals = table.column(place).flatten()
    return table.remove_column(place).append_column(count, counts).append_column(total, totals)


def is_known(run: Callable[[str], duckdb.DuckDBPyRelation]) -> bool:
    """Whether this engine makes the aggregate, and of the parts that are expected."""
    import duckdb
    import pyarrow as pa

    wide = 2**100
    rows = f"({wide}::HUGEINT), (-{wide}), (-{wide}), (3), (NULL)"
    query = f"SELECT {sum_and_count('v', ' FILTER (v < 5)')} FROM (VALUES {rows}) t(v)"
    try:
        state = run(query).to_arrow_table().column(_STATE)
    except (duckdb.Error, pa.ArrowException):
        return False
    return _is_expected(state.type) and state.to_pylist() == [{"count": 3, "value": 3 - 2 * wide}]


def _is_expected(kind: pa.DataType) -> bool:
    """A count and a sum, which is of 64 bits for the smallest integers."""
    import pyarrow as pa

    sums = (pa.decimal128(38, 0), pa.int64())
    return any(kind == pa.struct({"count": pa.uint64(), "value": total}) for total in sums)
