"""Releases as Arrow tables and data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars
    import pyarrow
    from pyarrow import Table

    ArrowTable = Table  # for annotations in modules that import no engine


def make_table(names: Mapping[str, Sequence[Any]], numbers: Sequence[tuple[str, Any]]) -> pyarrow.Table:
    """Return a table of columns with names or keys, then of columns with numbers or flags, NaN and None as null.

    A column whose name is taken gets an underscore.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {name: _key_column(keys) for name, keys in names.items()}
    for name, values in numbers:
        while name in columns:
            name += "_"
        kind = pa.bool_() if getattr(values, "dtype", None) == np.bool_ else pa.float64()
        columns[name] = pa.array(values, type=kind, from_pandas=True)
    return pa.table(columns)


def to_polars(table: pyarrow.Table) -> polars.DataFrame:
    """Return a table as a Polars frame."""
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _key_column(keys: Sequence[Any]) -> pyarrow.Array:
    """Return keys in an Arrow type, or as text where there is none: integers beyond 64 bits."""
    import pyarrow as pa

    try:
        return pa.array(keys)
    except (OverflowError, pa.ArrowException):
        return pa.array([str(key) for key in keys], type=pa.string())
