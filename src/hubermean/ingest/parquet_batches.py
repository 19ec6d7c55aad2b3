"""Parquet files through Arrow, for files in which some text is no UTF-8.

DuckDB refuses a whole Parquet file for one such text. Arrow hands it over as it is, and DuckDB then takes it for the
bytes it consists of: one more identity, without a name that could be shown. It is slower, so it comes second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hubermean.ingest.engine import Roles
from hubermean.ingest.files import FileSet
from hubermean.ingest.frames import Frame

if TYPE_CHECKING:
    import pyarrow as pa


WIDEST = 38
"""The digits of a decimal of 128 bits, the widest that the engine has."""


def parquet_batches(files: FileSet, roles: Roles) -> Frame:
    """The columns of the roles, as DuckDB has them: names that differ in case alone are one column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = [{name.lower(): name for name in pq.read_schema(path).names} for path in files.paths]
    found: dict[str, pa.DataType] = {}
    for path, names in zip(files.paths, stored, strict=True):
        schema = pq.read_schema(path)
        for role in roles.columns:
            if role not in found and role.lower() in names:
                found[role] = _as_stored(schema.field(names[role.lower()]).type)
    schema = pa.schema([(role, found[role]) for role in roles.columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for path, names in zip(files.paths, stored, strict=True):
            own = [names[role.lower()] for role in roles.columns if role.lower() in names]
            with pq.ParquetFile(path) as opened:
                for batch in opened.iter_batches(columns=own):
                    yield _renamed(batch, names, schema)

    return Frame(schema=schema, read=lambda: pa.RecordBatchReader.from_batches(schema, batches()), once=True)


def _renamed(batch: pa.RecordBatch, names: dict[str, str], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns: list[Any] = []
    for one in schema:
        if one.name.lower() not in names:
            columns.append(pa.nulls(batch.num_rows, one.type))
            continue
        column = batch.column(names[one.name.lower()])
        columns.append(column if column.type == one.type else column.cast(one.type))
    return pa.record_batch(columns, schema=schema)


def _as_stored(kind: pa.DataType) -> pa.DataType:
    """Arrow remembers types that Parquet files do not have; DuckDB reads what is stored."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_decimal(kind) and kind.precision <= WIDEST:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.float32() if pa.types.is_float16(kind) else kind
