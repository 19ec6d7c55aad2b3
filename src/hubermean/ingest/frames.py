"""Data frames and arrays as Arrow columns; without copying where the frame allows.

The content of a frame is read only when its `read` is called; before that, only its schema is. Arrow, Polars and
streams declare the types of their columns. pandas and numpy infer them from content, so each cell is read by itself
(`pandas_frames`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError
from hubermean.ingest.identity import identity_text
from hubermean.ingest.pandas_frames import convert_cells, convert_keys, convert_values
from hubermean.ingest.schema import ColumnRoles, missing_column_message
from hubermean.ingest.text_format import TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

_SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}


@dataclass(frozen=True, kw_only=True)
class ArrowFrame:
    """A data frame whose content has not been read.

    Attributes:
        schema: columns that `read` returns; where types carry no meaning, keys as text and values as doubles.
        read: returns the columns, as an object that DuckDB can select from.
        units: columns that hold durations as integers, and the seconds that 1 stands for.
        once: what `read` returns is a stream, which can be selected from once.
        repeatable: `read` can be called again.
        countable: it is a table in memory or in files and not a query, so its number of users depends on no filter.
        text: how text in it is written, where columns have no types; None where they have.
        conversions: SQL of columns that are carried in another type than theirs; see `postgres`.
        names_declared: names come from a schema; see `Schema`.
    """

    schema: pa.Schema
    read: Callable[[], Any]
    units: dict[str, Fraction] = field(default_factory=dict)
    once: bool = False
    repeatable: bool = True
    countable: bool = True
    text: TextFormat | None = None
    conversions: dict[str, str] = field(default_factory=dict)
    names_declared: bool = False


def empty_stream(schema: pa.Schema) -> pa.RecordBatchReader:
    """Return columns without rows. An empty table would do the same, but to make one Arrow imports pandas."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, [])


def is_duckdb_relation(data: Any) -> bool:
    import narwhals.dependencies as known

    duckdb = known.get_duckdb()
    return duckdb is not None and isinstance(data, duckdb.DuckDBPyRelation)


def describe_frame(data: Any, roles: ColumnRoles, text: TextFormat) -> ArrowFrame:
    """Return the user, value and group columns of a pandas, Polars or PyArrow object, or of arrays of numpy.

    Raises:
        InputError: it is no data frame, or a column is missing.
    """
    import narwhals.dependencies as known
    import pyarrow as pa
    import pyarrow.dataset as ds

    names = roles.columns
    if known.is_pandas_dataframe(data):
        _require_columns(names, list(data.columns), "; reset_index() makes a column of an index")
        return _describe_pandas(data, roles, text)
    if isinstance(data, np.ndarray) or _is_arrays(data):
        return describe_arrays(data, roles, text)
    if known.is_polars_lazyframe(data):
        schema = data.collect_schema()
        _require_columns(names, schema.names())
        empty = schema.to_frame().select(names).to_arrow()
        return describe_arrow(
            empty.schema, lambda: data.select(names).collect().to_arrow(), roles, countable=False
        )
    if known.is_polars_dataframe(data):
        _require_columns(names, data.columns)
        data = data.select(names).to_arrow()
    if known.is_pyarrow_table(data):
        _require_columns(names, data.column_names)
        chosen = data.select(names)
        return describe_arrow(chosen.schema, lambda: chosen, roles)
    if isinstance(data, ds.Dataset):
        return describe_dataset(data, roles)
    if isinstance(data, pa.RecordBatchReader):
        reader = data
    elif hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
    else:
        raise InputError(
            "data must be a path, hubermean.sql(...), a pandas, Polars, PyArrow or DuckDB frame, or numpy arrays with "
            f"names, not {type(data).__name__}"
        )
    _require_columns(names, reader.schema.names)
    schema = pa.schema([reader.schema.field(name) for name in names])
    return describe_arrow(schema, lambda: reader, roles, once=True, repeatable=False, countable=False)


def describe_dataset(data: Any, roles: ColumnRoles, *, names_declared: bool = False) -> ArrowFrame:
    """Return the columns of a dataset of PyArrow, which may have a filter."""
    import pyarrow as pa

    names = roles.columns
    _require_columns(names, data.schema.names)
    schema = pa.schema([data.schema.field(name) for name in names])
    plain = all(_replacement(one.type, one.name in roles.values) is None for one in schema)
    scan = (lambda: data) if plain else (lambda: data.scanner(columns=names).to_reader())
    return describe_arrow(schema, scan, roles, countable=False, names_declared=names_declared)


def _require_columns(names: Sequence[str], existing: Sequence[Any], advice: str = "") -> None:
    for name in names:
        if name not in existing:
            raise InputError(missing_column_message(name) + advice)
        if list(existing).count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")


def _describe_pandas(data: Any, roles: ColumnRoles, text: TextFormat) -> ArrowFrame:
    import pyarrow as pa

    def read() -> pa.Table:
        keys = {name: convert_keys(data[name]) for name in (*roles.users, *roles.group_columns)}
        values = {name: pa.array(convert_values(data[name], text)) for name in roles.values}
        return pa.table(keys | values)

    return ArrowFrame(schema=untyped_schema(roles), read=read, text=text)


def untyped_schema(roles: ColumnRoles) -> pa.Schema:
    """Return the schema of columns whose types carry no meaning: keys as text, values as doubles."""
    import pyarrow as pa

    kinds = dict.fromkeys((*roles.users, *roles.group_columns), pa.large_string())
    return pa.schema(kinds | dict.fromkeys(roles.values, pa.float64()))


def describe_arrays(data: Any, roles: ColumnRoles, text: TextFormat) -> ArrowFrame:
    """Return the columns of a structured array, or of a mapping from names to arrays of one dimension.

    As in pandas, types of numpy follow from content, so each cell is read by itself.
    """
    import pyarrow as pa

    if isinstance(data, np.ndarray):
        if data.dtype.names is None or data.ndim != 1:
            raise InputError(
                "a numpy array needs names of columns; pass a mapping such as {'rider': riders, 'fare': fares}, or a "
                "structured array"
            )
        _require_columns(roles.columns, data.dtype.names)
    else:
        _require_columns(roles.columns, list(data))
    columns = {name: _as_array(data[name]) for name in roles.columns}
    if len({column.shape for column in columns.values()}) > 1 or any(
        one.ndim != 1 for one in columns.values()
    ):
        raise InputError("the columns must be arrays of one dimension and of the same length")

    def read() -> pa.Table:
        keys = {name: _array_keys(columns[name]) for name in (*roles.users, *roles.group_columns)}
        values = {name: pa.array(_array_values(columns[name], text)) for name in roles.values}
        return pa.table(keys | values)

    return ArrowFrame(schema=untyped_schema(roles), read=read, text=text)


def _is_arrays(data: Any) -> bool:
    return isinstance(data, Mapping) and all(isinstance(column, np.ndarray) for column in data.values())


def _as_array(column: NDArray[Any]) -> NDArray[Any]:
    if isinstance(column, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(column.astype(object), None))
    return column.astype(column.dtype.newbyteorder("="), copy=False)


def _array_keys(column: NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    if column.dtype.kind in "biuf" and column.dtype.itemsize <= 8 and column.dtype != np.float16:
        return pa.array(column, from_pandas=True)
    return pa.array([identity_text(cell) for cell in _array_cells(column)], type=pa.large_string())


def _array_values(column: NDArray[Any], text: TextFormat) -> FloatArray:
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    return convert_cells(_array_cells(column), text)


def _array_cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind in "mM" and np.datetime_data(column.dtype)[0] not in ("D", "s", "ms", "us"):
        column = column.astype(f"{column.dtype.kind}8[us]")  # nanoseconds would become integers
    return list(column.tolist())


def describe_arrow(
    schema: pa.Schema,
    read: Callable[[], Any],
    roles: ColumnRoles,
    *,
    once: bool = False,
    repeatable: bool = True,
    countable: bool = True,
    names_declared: bool = False,
) -> ArrowFrame:
    """Replace types whose conversion by DuckDB fails for some values; the type alone decides."""
    import pyarrow as pa

    units = {}
    replaced: dict[str, pa.DataType] = {}
    for one in schema:
        if pa.types.is_duration(one.type) and one.name in roles.values:
            units[one.name] = _SECONDS[one.type.unit]
        other = _replacement(one.type, one.name in roles.values)
        if other is not None:
            replaced[one.name] = other
    frame = ArrowFrame(
        schema=schema,
        read=read,
        units=units,
        once=once,
        repeatable=repeatable,
        countable=countable,
        names_declared=names_declared,
    )
    if not replaced:
        return frame
    plain = pa.schema([pa.field(one.name, replaced.get(one.name, one.type)) for one in schema])

    def convert() -> Any:
        data = read()
        if isinstance(data, pa.Table):
            return _cast(data, plain)
        return pa.RecordBatchReader.from_batches(plain, _cast_batches(data, plain))

    return replace(frame, schema=plain, read=convert)


def _cast_batches(reader: pa.RecordBatchReader, plain: pa.Schema) -> Iterator[pa.RecordBatch]:
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
    """Return the type to read a column as; None for its own. InputError if there is none."""
    import pyarrow as pa

    types = pa.types
    if types.is_duration(kind) and is_value:
        return pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_null(kind):  # a column without any value
        return pa.float64() if is_value else pa.large_string()
    if types.is_decimal256(kind):
        raise InputError(
            "a column has type decimal256, which DuckDB cannot read; convert it to decimal128 or text"
        )
    return None
