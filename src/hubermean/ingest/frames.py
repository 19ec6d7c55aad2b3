"""Data frames as Arrow tables of the needed columns, without copying where the frame allows."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import numbers
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError
from hubermean.ingest.columns import missing_column

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_WHOLE = 2.0**53 - 1.0  # up to here floats tell all whole numbers apart
_SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}


@dataclass(frozen=True, kw_only=True)
class ArrowSource:
    """Columns ready for the engine; `units` gives the seconds of columns that were durations.

    `once` marks a stream, which cannot be read again. `marks` names, for a user column that holds numbers in place of
    ids, a column that follows from the ids: the numbers of all users change where one of them goes.
    """

    data: Any
    units: dict[str, Fraction]
    once: bool = False
    marks: dict[str, str] = dataclasses.field(default_factory=dict)


def is_duckdb_relation(data: Any) -> bool:
    import narwhals.dependencies as known

    duckdb = known.get_duckdb()
    return duckdb is not None and isinstance(data, duckdb.DuckDBPyRelation)


def arrow_source(
    data: Any, users: Sequence[str], values: Sequence[str], groups: Sequence[str] = ()
) -> ArrowSource:
    """The user, value and group columns of a pandas, Polars or PyArrow object."""
    import narwhals.dependencies as known

    names = [*users, *values, *groups]
    if known.is_pandas_dataframe(data):
        _require(names, list(data.columns))
        columns, marks = _from_pandas(data, users, values, groups)
        return replace(_plain(columns, values, groups), marks=marks)
    if known.is_polars_lazyframe(data):
        _require(names, data.collect_schema().names())
        data = data.select(names).collect()
    if known.is_polars_dataframe(data):
        _require(names, data.columns)
        return _plain(data.select(names).to_arrow(), values, groups)
    if known.is_pyarrow_table(data):
        _require(names, data.column_names)
        return _plain(data.select(names), values, groups)
    return _from_arrow_stream(data, names, values, groups)


def _require(names: Sequence[str], existing: Sequence[Any]) -> None:
    for name in names:
        if name not in existing:
            raise InputError(missing_column(name, [str(one) for one in existing]))
        if list(existing).count(name) > 1:
            raise InputError(f"there are several columns {name!r}; give each column its own name")


def _from_pandas(
    data: Any, users: Sequence[str], values: Sequence[str], groups: Sequence[str]
) -> tuple[pa.Table, dict[str, str]]:
    import pandas as pd
    import pyarrow as pa

    columns, marks = {}, {}
    for name in users:
        series = data[name]
        if isinstance(series.dtype, pd.CategoricalDtype):
            codes, keys = series.cat.codes.to_numpy(), list(series.cat.categories)
        elif series.dtype == object or getattr(series.dtype, "storage", "") == "python":
            codes, keys = _equal_keys(series)
        else:
            codes, keys = None, []
        columns[name] = pa.array(series) if codes is None else _numbered(codes)
        if not groups or (codes is None and not _may_change(series.dtype)):
            continue
        marks[name] = f"mark of {name}"
        while marks[name] in (*users, *values, *groups, *columns):
            marks[name] += "_"
        columns[marks[name]] = (
            pa.array(_float_marks(series.to_numpy(dtype=np.float64)))
            if codes is None
            else pa.array(map(_mark, keys), type=pa.int64()).take(_numbered(codes))
        )
    for name in values:
        series = data[name]
        if series.dtype == object:
            raise InputError(
                f"column {name!r} has dtype object, which declares no type; "
                f"convert it first, for instance with data[{name!r}].astype(float)"
            )
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":
            # Such a column turns into floats as soon as one value is missing, so that one value would decide how all
            # are read. Both are read as floats; nullable integers (Int64) stay integers.
            columns[name] = pa.array(series.to_numpy(dtype=np.float64))
        else:
            columns[name] = pa.array(series)
    for name in groups:
        columns[name] = _group_keys(data[name])
    return pa.table(columns), marks


def _mark(key: Any) -> int:
    """A number that follows from a key alone; equal keys have equal ones, and seldom others."""
    if isinstance(key, numbers.Real | decimal.Decimal):
        with contextlib.suppress(ArithmeticError, ValueError):  # what no float can hold has a hash
            return int(_float_marks(np.array([float(key)]))[0])
    if isinstance(key, str | bytes):
        text = key.encode("utf-8", errors="surrogatepass") if isinstance(key, str) else key
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True)
    return hash(key)


def _float_marks(keys: NDArray[np.float64]) -> NDArray[np.int64]:
    """Of numbers, however they are stored: the nearest floats, whole ones as integers and of others the bits."""
    with np.errstate(invalid="ignore"):
        whole = (np.abs(keys) < 2.0**63) & (keys == np.floor(keys))
    return np.where(whole, np.where(whole, keys, 0.0).astype(np.int64), keys.view(np.int64))


def _may_change(dtype: Any) -> bool:
    """Whether one more id may change the type of a column: numpy's integers become floats, and both objects."""
    return isinstance(dtype, np.dtype) and dtype.kind in "iufb"


def _group_keys(series: Any) -> pa.Array:
    """A group column with a declared type; objects, which declare none, are read as text, each judged as it is."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(series.dtype, pd.CategoricalDtype):
        # Category by category: as a whole such a column changes its type as soon as one key is missing.
        return _group_keys(series.cat.categories.to_series()).take(_numbered(series.cat.codes.to_numpy()))
    plain = isinstance(series.dtype, np.dtype)
    # Of numpy's own types booleans turn into objects as soon as one is missing, and integers into floats, so that one
    # record would decide how all are read. So both forms are read alike; nullable types (boolean, Int64) stay.
    if (plain and series.dtype.kind in "Ob") or getattr(series.dtype, "storage", "") == "python":
        return pa.array(map(_as_text, series), type=pa.string())
    if plain and series.dtype.kind in "iuf":
        floats = series.to_numpy(dtype=np.float64)
        with np.errstate(invalid="ignore"):
            whole = (np.abs(floats) <= _LARGEST_WHOLE) & (floats == np.floor(floats))
        return pa.array(np.where(whole, floats, 0.0).astype(np.int64), mask=~whole)
    return pa.array(series)


def _as_text(key: Any) -> str | None:
    """A key as a public one would be written (`keys._text`); None for what cannot name a group."""
    if isinstance(key, bool | np.bool_):
        return "true" if key else "false"
    if isinstance(key, datetime.datetime) or not isinstance(
        key, str | int | np.integer | decimal.Decimal | datetime.date | uuid.UUID
    ):
        return None
    try:
        text = str(key)
        text.encode("utf-8")  # which half a surrogate pair cannot be
    except Exception:  # noqa: BLE001 - a key's own code may fail in any way; it then names no group
        return None
    return text


def _equal_keys(keys: Iterable[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """A number per distinct key, -1 where a key is missing or cannot be compared; and these keys.

    Python objects have no declared type, and inferring one from all of them would let one key change the others;
    so each is looked at as it is, and two keys are one user when they are equal.
    """
    known: dict[Any, int] = {}

    def number(key: Any) -> int:
        try:
            missing = key is None or bool(
                key != key
            )  # NaN differs from itself; pandas.NA refuses to be a bool
            return -1 if missing else known.setdefault(key, len(known))
        except Exception:  # noqa: BLE001 - a key's own code may fail in any way; it then names nobody
            return -1

    return np.array([number(key) for key in keys], dtype=np.int64), list(known)


def _numbered(codes: NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(codes, mask=codes < 0)


def _from_arrow_stream(
    data: Any, names: Sequence[str], values: Sequence[str], groups: Sequence[str]
) -> ArrowSource:
    """Anything that speaks the Arrow stream interface, and Arrow's own data sets; read in batches."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    if isinstance(data, ds.Dataset):
        _require(names, data.schema.names)
        if all(_is_plain(data.schema.field(name).type) for name in names):
            return ArrowSource(data=data, units={})
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
    if all(_is_plain(reader.schema.field(name).type) for name in names):
        return ArrowSource(data=reader, units={}, once=True)
    return _plain(reader.read_all().select(list(names)), values, groups)


def _plain(table: pa.Table, values: Sequence[str], groups: Sequence[str] = ()) -> ArrowSource:
    """Types that the engine would convert, and fail for some values, as the integers they are stored as."""
    import pyarrow as pa

    units = {}
    for position, field in enumerate(table.schema):
        kind = field.type
        if field.name in groups and (pa.types.is_duration(kind) or pa.types.is_timestamp(kind)):
            raise InputError(
                f"column {field.name!r} has type {kind} and cannot name groups; convert it to dates or text first"
            )
        if pa.types.is_duration(kind):
            units[field.name] = _SECONDS[kind.unit]
            table = table.set_column(position, field.name, table.column(position).cast(pa.int64()))
        elif pa.types.is_timestamp(kind):
            if field.name in values:  # a user may be a point in time, but points in time have no mean
                raise InputError(
                    f"column {field.name!r} has type {kind}, which has no mean; convert it to a number first"
                )
            table = table.set_column(position, field.name, table.column(position).cast(pa.int64()))
        elif pa.types.is_float16(kind):
            table = table.set_column(position, field.name, table.column(position).cast(pa.float32()))
        elif pa.types.is_decimal256(kind) or pa.types.is_null(kind):
            raise InputError(f"column {field.name!r} has type {kind}, which cannot be read; convert it first")
    return ArrowSource(data=table, units=units)


def _is_plain(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return not (
        types.is_duration(kind)
        or types.is_timestamp(kind)
        or types.is_float16(kind)
        or types.is_decimal256(kind)
        or types.is_null(kind)
    )
