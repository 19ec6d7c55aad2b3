"""Data frames, and Parquet files read through Arrow, as Arrow columns; without copying where the frame allows.

The content of a frame is read only when its `read` is called; before that, only its schema is. Arrow, Polars and
streams declare the types of their columns. pandas infers them from content, so each cell is read by itself
(`pandas_frames`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.ingest.files import FileSet
from hubermean.ingest.pandas_frames import convert_keys, convert_values
from hubermean.ingest.schema import ColumnRoles, missing_column_message

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DECIMAL_DIGITS = 38
"""Digits of a 128-bit decimal, the widest that DuckDB has."""

_SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}


@dataclass(frozen=True, kw_only=True)
class ArrowFrame:
    """A data frame whose content has not been read.

    Attributes:
        schema: columns that `read` returns; for pandas, whose types carry no meaning, keys as text and values as
            doubles.
        read: returns the columns, as an object that DuckDB can select from.
        units: columns that hold durations as integers, and the seconds that 1 stands for.
        once: it is a stream, which cannot be read again.
        countable: it is a table in memory and not a query, so its number of users depends on no filter.
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


def describe_frame(data: Any, roles: ColumnRoles) -> ArrowFrame:
    """Return the user, value and group columns of a pandas, Polars or PyArrow object.

    Raises:
        InputError: it is no data frame, or a column is missing.
    """
    import narwhals.dependencies as known
    import pyarrow as pa
    import pyarrow.dataset as ds

    names = roles.columns
    if known.is_pandas_dataframe(data):
        _require_columns(names, list(data.columns), "; reset_index() makes a column of an index")
        return _describe_pandas(data, roles)
    if known.is_polars_lazyframe(data):
        schema = data.collect_schema()
        _require_columns(names, schema.names())
        empty = schema.to_frame().select(names).to_arrow()
        return _describe_arrow(
            empty.schema, lambda: data.select(names).collect().to_arrow(), roles, countable=False
        )
    if known.is_polars_dataframe(data):
        _require_columns(names, data.columns)
        data = data.select(names).to_arrow()
    if known.is_pyarrow_table(data):
        _require_columns(names, data.column_names)
        chosen = data.select(names)
        return _describe_arrow(chosen.schema, lambda: chosen, roles)
    if isinstance(data, ds.Dataset):
        _require_columns(names, data.schema.names)
        schema = pa.schema([data.schema.field(name) for name in names])
        plain = all(_replacement(one.type, one.name in roles.values) is None for one in schema)
        scan = (lambda: data) if plain else (lambda: data.scanner(columns=names).to_reader())
        return _describe_arrow(schema, scan, roles, countable=False)
    if isinstance(data, pa.RecordBatchReader):
        reader = data
    elif hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
    else:
        raise InputError(
            "data must be a path, hubermean.sql(...), or a pandas, Polars, PyArrow or DuckDB frame, "
            f"not {type(data).__name__}"
        )
    _require_columns(names, reader.schema.names)
    schema = pa.schema([reader.schema.field(name) for name in names])
    return _describe_arrow(schema, lambda: reader, roles, once=True, countable=False)


def _require_columns(names: Sequence[str], existing: Sequence[Any], advice: str = "") -> None:
    for name in names:
        if name not in existing:
            raise InputError(missing_column_message(name) + advice)
        if list(existing).count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")


def _describe_pandas(data: Any, roles: ColumnRoles) -> ArrowFrame:
    import pyarrow as pa

    keys = [*roles.users, *roles.groups]

    def read() -> pa.Table:
        columns = {name: convert_keys(data[name]) for name in keys}
        return pa.table(columns | {name: pa.array(convert_values(data[name])) for name in roles.values})

    kinds = dict.fromkeys(keys, pa.large_string()) | dict.fromkeys(roles.values, pa.float64())
    return ArrowFrame(schema=pa.schema(kinds), read=read)


def _describe_arrow(
    schema: pa.Schema,
    read: Callable[[], Any],
    roles: ColumnRoles,
    *,
    once: bool = False,
    countable: bool = True,
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
    if not replaced:
        return ArrowFrame(schema=schema, read=read, units=units, once=once, countable=countable)
    plain = pa.schema([pa.field(one.name, replaced.get(one.name, one.type)) for one in schema])

    def convert() -> Any:
        data = read()
        if isinstance(data, pa.Table):
            return _cast(data, plain)
        return pa.RecordBatchReader.from_batches(plain, _cast_batches(data, plain))

    return ArrowFrame(schema=plain, read=convert, units=units, once=once, countable=countable)


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


def stream_parquet(files: FileSet, roles: ColumnRoles) -> ArrowFrame:
    """Return the columns of Parquet files as a stream of Arrow batches, for files with text that is no UTF-8.

    DuckDB rejects a whole Parquet file for one such text. Arrow passes it on, and DuckDB then treats it as the bytes it
    consists of: an identity without a name that can be shown. This is slower, so it is used only if DuckDB fails. As in
    DuckDB, names that differ only in case are one column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = [{name.lower(): name for name in pq.read_schema(path).names} for path in files.paths]
    found: dict[str, pa.DataType] = {}
    for path, names in zip(files.paths, stored, strict=True):
        schema = pq.read_schema(path)
        for role in roles.columns:
            if role not in found and role.lower() in names:
                found[role] = _stored_type(schema.field(names[role.lower()]).type)
    schema = pa.schema([(role, found[role]) for role in roles.columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for path, names in zip(files.paths, stored, strict=True):
            own = [names[role.lower()] for role in roles.columns if role.lower() in names]
            with pq.ParquetFile(path) as parquet:
                for batch in parquet.iter_batches(columns=own):
                    yield _select_columns(batch, names, schema)

    return ArrowFrame(
        schema=schema, read=lambda: pa.RecordBatchReader.from_batches(schema, batches()), once=True
    )


def _select_columns(batch: pa.RecordBatch, names: dict[str, str], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns: list[Any] = []
    for one in schema:
        if one.name.lower() not in names:
            columns.append(pa.nulls(batch.num_rows, one.type))
            continue
        column = batch.column(names[one.name.lower()])
        columns.append(column if column.type == one.type else column.cast(one.type))
    return pa.record_batch(columns, schema=schema)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that is stored; Arrow restores types that Parquet does not have, DuckDB does not."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_decimal(kind) and kind.precision <= MAX_DECIMAL_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.float32() if pa.types.is_float16(kind) else kind
