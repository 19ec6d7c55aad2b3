"""Data frames as Arrow tables of the needed columns, without copying where the frame allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}


@dataclass(frozen=True, kw_only=True)
class ArrowSource:
    """Columns ready for the engine; `units` gives the seconds of columns that were durations."""

    data: Any
    units: dict[str, Fraction]


def is_duckdb_relation(data: Any) -> bool:
    import narwhals.dependencies as known

    duckdb = known.get_duckdb()
    return duckdb is not None and isinstance(data, duckdb.DuckDBPyRelation)


def arrow_source(data: Any, users: Sequence[str], values: Sequence[str]) -> ArrowSource:
    """The user and value columns of a pandas, Polars or PyArrow object."""
    import narwhals.dependencies as known

    names = [*users, *values]
    if known.is_pandas_dataframe(data):
        _require(names, [str(name) for name in data.columns])
        return _without_durations(_from_pandas(data, users, values))
    if known.is_polars_lazyframe(data):
        _require(names, data.collect_schema().names())
        data = data.select(names).collect()
    if known.is_polars_dataframe(data):
        _require(names, data.columns)
        return _without_durations(data.select(names).to_arrow())
    if known.is_pyarrow_table(data):
        _require(names, data.column_names)
        return _without_durations(data.select(names))
    return _from_arrow_stream(data, names)


def _require(names: Sequence[str], existing: Sequence[str]) -> None:
    for name in names:
        if name not in existing:
            raise InputError(f"there is no column {name!r}; the columns are: {', '.join(existing[:40])}")
        if list(existing).count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")


def _from_pandas(data: Any, users: Sequence[str], values: Sequence[str]) -> pa.Table:
    import pandas as pd
    import pyarrow as pa

    columns = {}
    for name in users:
        series = data[name]
        if isinstance(series.dtype, pd.CategoricalDtype) or series.dtype == object:
            # Python objects have no declared type; two keys are one user when they are equal.
            codes = pd.factorize(_hashable(series) if series.dtype == object else series)[0]
            columns[name] = pa.array(codes, mask=codes < 0)
        else:
            columns[name] = pa.array(series)
    for name in values:
        series = data[name]
        if series.dtype == object:
            raise InputError(
                f"column {name!r} has dtype object, which declares no type; "
                f"convert it first, for instance with data[{name!r}].astype(float)"
            )
        columns[name] = pa.array(series)
    return pa.table(columns)


def _hashable(series: Any) -> Any:
    """Keys that cannot be compared name no user; each is judged on its own."""

    def key(value: Any) -> Any:
        try:
            hash(value)
        except TypeError:
            return None
        return value

    return series.map(key)


def _from_arrow_stream(data: Any, names: Sequence[str]) -> ArrowSource:
    """Anything that speaks the Arrow stream interface, and Arrow's own data sets; read once, in batches."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    if isinstance(data, ds.Dataset):
        _require(names, data.schema.names)
        reader = data.scanner(columns=list(names)).to_reader()
    elif isinstance(data, pa.RecordBatchReader):
        reader = data
    elif hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
    else:
        raise InputError(
            "data must be a path, hubermean.sql(...), or a pandas, Polars, PyArrow or DuckDB frame, "
            f"not {type(data).__name__}"
        )
    _require(names, reader.schema.names)
    for name in names:
        if pa.types.is_duration(reader.schema.field(name).type) or not _supported(
            reader.schema.field(name).type
        ):
            return _without_durations(reader.read_all().select(list(names)))
    return ArrowSource(data=reader, units={})


def _without_durations(table: pa.Table) -> ArrowSource:
    """Durations as the integers they are; half floats widened; types the engine lacks refused by name."""
    import pyarrow as pa

    units = {}
    for position, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_duration(kind):
            units[field.name] = _SECONDS[kind.unit]
            table = table.set_column(position, field.name, table.column(position).cast(pa.int64()))
        elif pa.types.is_float16(kind):
            table = table.set_column(position, field.name, table.column(position).cast(pa.float32()))
        elif not _supported(kind):
            raise InputError(f"column {field.name!r} has type {kind}, which cannot be read; convert it first")
    return ArrowSource(data=table, units=units)


def _supported(kind: Any) -> bool:
    import pyarrow as pa

    return not (pa.types.is_decimal256(kind) or pa.types.is_float16(kind) or pa.types.is_null(kind))
