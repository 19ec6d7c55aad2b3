"""Data frames as Arrow columns of the roles they play, without copying where the frame allows.

What a frame holds is looked at only when its `read` is called: until then its schema alone is known. Arrow, Polars
and streams declare the types of their columns; pandas infers them, so every cell is read by itself (`pandas_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.ingest.columns import missing_column
from hubermean.ingest.engine import Roles
from hubermean.ingest.pandas_columns import key_column, value_column

if TYPE_CHECKING:
    import pyarrow as pa

_SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A data frame before its content is looked at.

    Attributes:
        schema: the columns that `read` gives; of pandas, whose types mean nothing, keys as text and values as doubles.
        read: makes the columns, as something that the engine can select from.
        units: the seconds that columns count which are durations.
        once: it is a stream, which cannot be read again.
        countable: it is a table that is held, and no query: how many users it has depends on no filter.
    """

    schema: pa.Schema
    read: Callable[[], Any]
    units: dict[str, Fraction] = field(default_factory=dict)
    once: bool = False
    countable: bool = True


def is_duckdb_relation(data: Any) -> bool:
    import narwhals.dependencies as known

    duckdb = known.get_duckdb()
    return duckdb is not None and isinstance(data, duckdb.DuckDBPyRelation)


def frame_of(data: Any, roles: Roles) -> Frame:
    """The user, value and group columns of a pandas, Polars or PyArrow object."""
    import narwhals.dependencies as known
    import pyarrow as pa
    import pyarrow.dataset as ds

    names = roles.columns
    if known.is_pandas_dataframe(data):
        _require(names, list(data.columns))
        return _of_pandas(data, roles)
    if known.is_polars_lazyframe(data):
        schema = data.collect_schema()
        _require(names, schema.names())
        empty = schema.to_frame().select(names).to_arrow()
        return _of_arrow(
            empty.schema, lambda: data.select(names).collect().to_arrow(), roles, countable=False
        )
    if known.is_polars_dataframe(data):
        _require(names, data.columns)
        data = data.select(names).to_arrow()
    if known.is_pyarrow_table(data):
        _require(names, data.column_names)
        chosen = data.select(names)
        return _of_arrow(chosen.schema, lambda: chosen, roles)
    if isinstance(data, ds.Dataset):
        _require(names, data.schema.names)
        schema = pa.schema([data.schema.field(name) for name in names])
        plain = all(_replacement(one.type, one.name in roles.values) is None for one in schema)
        scanned = (lambda: data) if plain else (lambda: data.scanner(columns=names).to_reader())
        return _of_arrow(schema, scanned, roles, countable=False)
    if isinstance(data, pa.RecordBatchReader):
        reader = data
    elif hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
    else:
        raise InputError(
            "data must be a path, hubermean.sql(...), or a pandas, Polars, PyArrow or DuckDB frame, "
            f"not {type(data).__name__}"
        )
    _require(names, reader.schema.names)
    schema = pa.schema([reader.schema.field(name) for name in names])
    return _of_arrow(schema, lambda: reader, roles, once=True, countable=False)


def _require(names: Sequence[str], existing: Sequence[Any]) -> None:
    for name in names:
        if name not in existing:
            raise InputError(missing_column(name))
        if list(existing).count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")


def _of_pandas(data: Any, roles: Roles) -> Frame:
    import pyarrow as pa

    keys = [*roles.users, *roles.groups]

    def read() -> pa.Table:
        columns = {name: key_column(data[name]) for name in keys}
        return pa.table(columns | {name: pa.array(value_column(data[name])) for name in roles.values})

    kinds = dict.fromkeys(keys, pa.large_string()) | dict.fromkeys(roles.values, pa.float64())
    return Frame(schema=pa.schema(kinds), read=read)


def _of_arrow(
    schema: pa.Schema, read: Callable[[], Any], roles: Roles, *, once: bool = False, countable: bool = True
) -> Frame:
    """Types that the engine would convert, and fail for some values, as others; decided by the type alone."""
    import pyarrow as pa

    units = {}
    replaced: dict[str, pa.DataType] = {}
    for one in schema:
        if pa.types.is_duration(one.type) and one.name in roles.values:
            units[one.name] = _SECONDS[one.type.unit]
        other = _replacement(one.type, one.name in roles.values)
        if other is not None:
            replaced[one.name] = other
    if not replaced:
        return Frame(schema=schema, read=read, units=units, once=once, countable=countable)
    plain = pa.schema([pa.field(one.name, replaced.get(one.name, one.type)) for one in schema])

    def converted() -> Any:
        data = read()
        if isinstance(data, pa.Table):
            return _cast(data, plain)
        return pa.RecordBatchReader.from_batches(plain, _batches(data, plain))

    return Frame(schema=plain, read=converted, units=units, once=once, countable=countable)


def _batches(reader: pa.RecordBatchReader, plain: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in reader:
        yield from _cast(pa.Table.from_batches([batch]), plain).to_batches()


def _cast(table: pa.Table, plain: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = []
    for one in plain:
        column = table.column(one.name)
        columns.append(column if column.type == one.type else column.cast(one.type))
    return pa.table(columns, schema=plain)


def _replacement(kind: pa.DataType, is_value: bool) -> pa.DataType | None:
    """The type to read a column as; None for its own. InputError where no type will do."""
    import pyarrow as pa

    types = pa.types
    if types.is_duration(kind) and is_value:
        return pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_null(kind):  # of a column without any value
        return pa.float64() if is_value else pa.large_string()
    if types.is_decimal256(kind):
        raise InputError("a column has type decimal256, which cannot be read; convert it first")
    return None
