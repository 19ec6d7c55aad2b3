"""Columns of a pandas frame, cell by cell: the dtype decides how fast a column is read, never what its cells mean.

pandas infers dtypes from content: integers become floats if one is missing, a column becomes objects if one record has
another type, and the categories of a categorical are inferred as well. So each cell is converted to an identity
(`identity.identity_text`) or a double by a rule that depends on the cell alone. For dtypes that determine the result,
the whole column is converted at once.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray
from hubermean.ingest.duckdb.dialect import parse_numbers
from hubermean.ingest.identity import identity_text
from hubermean.ingest.text_format import TRIMMED, TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def convert_keys(series: Any) -> pa.Array | pa.ChunkedArray:
    """Return identities as text, or as numbers and booleans whose identities the engine derives."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(series.dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        return _combine_chunks(convert_keys(series.cat.categories.to_series())).take(
            pa.array(codes, mask=codes < 0)
        )
    kind = _number_kind(series.dtype)
    if kind == "f":
        return pa.array(_as_floats(series), from_pandas=True)
    if kind is not None:
        return pa.array(series)
    if isinstance(series.dtype, pd.StringDtype):
        with contextlib.suppress(pa.ArrowException, UnicodeError):  # half a surrogate pair
            return pa.array(series, type=pa.large_string())
    return pa.array([identity_text(cell) for cell in _cells(series)], type=pa.large_string())


def convert_values(series: Any, text: TextFormat) -> FloatArray:
    """Return doubles; NaN for a cell that is no number; durations in seconds; texts as `text` says."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        of_categories = np.append(convert_values(series.cat.categories.to_series(), text), np.nan)
        return np.asarray(of_categories[series.cat.codes.to_numpy()])  # the code of a missing cell is -1
    if _number_kind(series.dtype) is not None:
        return _as_floats(series)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind == "m":
        return _seconds(series.to_numpy())
    return convert_cells(_cells(series), text)


def _cells(series: Any) -> list[Any]:
    """Return the cells as Python objects; a cell that Python cannot represent does not affect the others."""
    import pyarrow as pa

    try:
        return list(series)
    except Exception:  # noqa: BLE001 - a cell's type may raise anything
        return [_to_python(cell) for cell in pa.array(series)]


def _to_python(cell: pa.Scalar) -> Any:
    import pyarrow as pa

    try:
        return cell.as_py()
    except UnicodeDecodeError:
        return cell.cast(pa.large_binary()).as_py().decode("utf-8", errors="surrogateescape")
    except Exception:  # noqa: BLE001 - out of the range of Python's types
        return None


def _number_kind(dtype: Any) -> str | None:
    """Return b, i, u or f for booleans and numbers of numpy, pandas or Arrow; None for other dtypes."""
    import pandas as pd

    kind: str
    if isinstance(dtype, np.dtype):
        kind = dtype.kind
    elif isinstance(dtype, pd.ArrowDtype):
        kind = _arrow_kind(dtype.pyarrow_dtype)
    elif pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_numeric_dtype(dtype):
        kind = getattr(dtype, "kind", "")
    else:
        return None
    return kind if kind in ("b", "i", "u", "f") else None


def _arrow_kind(kind: pa.DataType) -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return "b"
    if types.is_floating(kind):
        return "f"
    return ("i" if types.is_signed_integer(kind) else "u") if types.is_integer(kind) else ""


def _as_floats(series: Any) -> FloatArray:
    if isinstance(series.dtype, np.dtype):
        return np.asarray(series.to_numpy(dtype=np.float64))
    return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))


def _seconds(durations: NDArray[Any]) -> FloatArray:
    """Convert durations to seconds: whole seconds and the remainder apart, so that the unit changes no bit."""
    unit, step = np.datetime_data(durations.dtype)
    per_second = _PER_SECOND[unit]
    whole, remainder = np.divmod(durations.view(np.int64), per_second)
    seconds = whole.astype(np.float64) + remainder / float(per_second)
    return np.where(np.isnat(durations), np.nan, seconds * step)


def convert_cells(cells: Sequence[Any], text: TextFormat) -> FloatArray:
    """Return doubles for Python objects, each read by itself; see `convert_values`."""
    values = np.full(len(cells), np.nan)
    texts: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        if type(cell) is float or type(cell) is int:
            values[place] = _nearest(cell)
        elif type(cell) is str:
            texts.setdefault(cell, []).append(place)
        elif issubclass(type(cell), str):  # without calling its own methods
            texts.setdefault(str.__str__(cell), []).append(place)
        else:
            values[place] = _number(cell)
    texts = {one: places for one, places in texts.items() if one.strip(TRIMMED) not in text.null}
    if texts:
        numbers = parse_numbers(list(texts), text.numbers).tolist()
        for places, value in zip(texts.values(), numbers, strict=True):
            values[places] = value
    return values


def _number(cell: Any) -> float:
    try:
        if isinstance(cell, np.timedelta64):
            import pandas as pd

            cell = pd.Timedelta(cell)
        if isinstance(cell, datetime.timedelta):  # also of pandas; NaT has no days
            remainder = cell.microseconds * 1000 + getattr(cell, "nanoseconds", 0)
            return float(cell.days * 86_400 + cell.seconds) + remainder / 1e9
        if isinstance(cell, complex | np.complexfloating):  # numbers in a column with a complex one
            return _nearest(cell.real) if cell.imag == 0 else np.nan
        return _nearest(cell) if isinstance(cell, Real | Decimal | np.bool_) else np.nan
    except Exception:  # noqa: BLE001 - code of a cell's class may raise anything; the cell is then no number
        return np.nan


def _nearest(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # beyond all floats
        return np.inf if number > 0 else -np.inf


def _combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
