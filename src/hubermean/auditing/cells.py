"""Cells of synthetic records: their identity as user ids and group keys, and the type of a column of them."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Cell = Any
"""None, a bool, int, float, str, bytes, `Decimal`, `date` or `UUID`."""
Columns = Mapping[str, Sequence[Cell]]
Kinds = Mapping[str, str]
"""Maps each column to its kind; see `column_kind`."""

TEXT = "text"
NULL = "null"
_DIGITS = 38  # of the widest decimal


def identity(cell: Cell) -> str | None:
    """Return the text that a cell has as an id or a group key; None if it is missing.

    >>> [identity(cell) for cell in (5, 5.0, Decimal("5.00"), "5", True, 0.1, date(2024, 2, 29), b"x", math.nan)]
    ['5', '5', '5', '5', 'true', '0.1', '2024-02-29', '0x78', None]
    """
    match cell:
        case bool():
            return "true" if cell else "false"
        case int():
            return str(cell)
        case float():
            if math.isnan(cell):
                return None
            return str(int(cell)) if abs(cell) < 2.0**63 and cell.is_integer() else repr(cell)
        case Decimal():
            return _plain_decimal(cell)
        case str():
            return cell
        case bytes():
            return "0x" + cell.hex()
        case uuid.UUID():
            return str(cell)
        case date() if not isinstance(cell, datetime):
            return cell.isoformat()
    return None


def _plain_decimal(cell: Decimal) -> str | None:
    if not cell.is_finite():
        return None
    text = format(cell, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def column_kind(*parts: Iterable[Cell]) -> str:
    """Return the declared type that holds all cells of a column, in one data set or in several.

    One of "null", "boolean", "int64", "uint64", "double", "decimal(s)", "date", "binary" and "text".
    """
    cells = [cell for part in parts for cell in part if cell is not None]
    types = {type(cell) for cell in cells}
    if not types:
        return NULL
    if len(types) == 1 and (named := _NAMED.get(next(iter(types)))):
        return named
    if types == {int}:
        for name, low, high in (("int64", -(2**63), 2**63), ("uint64", 0, 2**64)):
            if all(low <= cell < high for cell in cells):
                return name
    if float in types and types <= {int, float} and all(map(_is_a_float, cells)):
        return "double"
    if types <= {int, Decimal}:
        numbers = [Decimal(cell) for cell in cells]
        if all(number.is_finite() for number in numbers):
            scale = max(0, *(-int(number.as_tuple().exponent) for number in numbers))
            if all(number.adjusted() + 1 + scale <= _DIGITS for number in numbers) and scale <= _DIGITS:
                return f"decimal({scale})"
    return TEXT


_NAMED = {bool: "boolean", float: "double", date: "date", bytes: "binary"}


def _is_a_float(cell: Cell) -> bool:
    """Return whether a float represents the number exactly."""
    try:
        return isinstance(cell, float) or int(float(cell)) == cell
    except OverflowError:
        return False


def common_kinds(*datasets: Columns) -> dict[str, str]:
    """Return the kind of every column, such that all these data sets have one schema."""
    return {name: column_kind(*(dataset[name] for dataset in datasets)) for name in datasets[0]}


def arrow_table(columns: Columns, kinds: Kinds | None = None) -> pa.Table:
    """Return the columns as an Arrow table; lone surrogates, which Arrow cannot hold, are escaped."""
    import pyarrow as pa

    types = {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "double": pa.float64(),
        "date": pa.date32(),
        "binary": pa.binary(),
        "text": pa.string(),
    }

    def column(cells: Sequence[Cell], kind: str) -> pa.Array:
        if kind.startswith("decimal"):
            scale = int(kind[len("decimal(") : -1])
            return pa.array(
                [None if cell is None else Decimal(cell) for cell in cells], pa.decimal128(_DIGITS, scale)
            )
        if kind == TEXT:
            cells = [None if (text := identity(cell)) is None else utf8(text) for cell in cells]
        elif kind == "double":
            cells = [None if cell is None else float(cell) for cell in cells]
        return pa.array(cells, types[kind])

    kinds = kinds or common_kinds(columns)
    return pa.table({name: column(list(cells), kinds[name]) for name, cells in columns.items()})


def utf8(text: str) -> str:
    """Return a text that can be encoded as UTF-8: lone surrogates are escaped."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def with_types(table: pa.Table, kinds: Mapping[Any, Any]) -> pa.Table:
    """Return a table with some column types replaced by others."""
    import pyarrow as pa

    fields = [field.with_type(kinds.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))
