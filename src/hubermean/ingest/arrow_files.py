"""Typed files as streams of Arrow batches: Parquet in remote storage, Arrow files, Delta tables.

The schema is declared by the files, or by the log of the table. Batches are read several at a time, ahead of what
groups them, and only the columns that are needed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.ingest.files import FileSet
from hubermean.ingest.frames import ArrowFrame, describe_arrow, describe_dataset
from hubermean.ingest.locations import is_remote, mask_storage_errors, open_filesystem, without_credentials
from hubermean.ingest.schema import ColumnRoles, missing_column_message

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DECIMAL_DIGITS = 38
"""Digits of a 128-bit decimal, the widest that DuckDB has."""


def stream_parquet(files: FileSet, roles: ColumnRoles) -> ArrowFrame:
    """Return the columns of Parquet files as a stream of Arrow batches: remote files, and text that is no UTF-8.

    DuckDB rejects a whole Parquet file for one such text. Arrow passes it on, and DuckDB then treats it as the bytes it
    consists of: an identity without a name that can be shown. For local files this is slower, so it is used only if
    DuckDB fails. As in DuckDB, names that differ only in case are one column.
    """
    import pyarrow as pa

    fragments = _open_fragments(files)
    schemas = [fragment.physical_schema for fragment in fragments]
    schema = select_parquet_schema(schemas, roles)
    stored = [_stored_names(one) for one in schemas]

    def batches() -> Iterator[pa.RecordBatch]:
        for fragment, names in zip(fragments, stored, strict=True):
            own = [names[role.lower()] for role in roles.columns if role.lower() in names]
            for batch in fragment.scanner(columns=own).to_batches():
                yield _select_columns(batch, names, schema)

    return ArrowFrame(
        schema=schema,
        read=lambda: pa.RecordBatchReader.from_batches(schema, batches()),
        once=True,
        names_declared=True,
    )


def select_parquet_schema(schemas: Sequence[pa.Schema], roles: ColumnRoles) -> pa.Schema:
    """Return the columns, in order, and the types that Parquet files of these schemas store them in."""
    import pyarrow as pa

    found: dict[str, pa.DataType] = {}
    for schema in schemas:
        names = _stored_names(schema)
        for role in roles.columns:
            if role not in found and role.lower() in names:
                found[role] = _stored_type(schema.field(names[role.lower()]).type)
    for role in roles.columns:
        if role not in found:
            raise InputError(missing_column_message(role, list(schemas[0].names)))
    return pa.schema([(role, found[role]) for role in roles.columns])


def _stored_names(schema: pa.Schema) -> dict[str, str]:
    return {name.lower(): name for name in schema.names}


def stream_arrow(files: FileSet, roles: ColumnRoles) -> ArrowFrame:
    """Return the columns of Arrow files (IPC, also called Feather), which have one schema."""
    import pyarrow as pa

    fragments = _open_fragments(files)
    schemas = [fragment.physical_schema for fragment in fragments]
    for role in roles.columns:
        if schemas[0].names.count(role) != 1:
            raise InputError(missing_column_message(role, schemas[0].names))
        for path, schema in zip(files.paths, schemas, strict=True):
            if schema.names.count(role) != 1 or schema.field(role).type != schemas[0].field(role).type:
                raise InputError(
                    f"column {role!r} of {files.shown(path)} is missing or has another type than in "
                    f"{files.shown(files.paths[0])}; write all files with one schema"
                )
    chosen = pa.schema([pa.field(role, schemas[0].field(role).type) for role in roles.columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for fragment in fragments:
            for batch in fragment.scanner(columns=chosen.names).to_batches():
                yield batch.cast(chosen)

    return describe_arrow(
        chosen,
        lambda: pa.RecordBatchReader.from_batches(chosen, batches()),
        roles,
        once=True,
        names_declared=True,
    )


def stream_delta(location: str, roles: ColumnRoles) -> ArrowFrame:
    """Return the columns of the present version of a Delta table, whose log declares their types."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise InputError(
            "reading a Delta table needs one more package; run pip install 'hubermean[delta]'"
        ) from None
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

    shown = without_credentials(location)
    dataset: ds.Dataset | None = None
    with mask_storage_errors(shown), contextlib.suppress(DeltaError):
        if is_remote(location):
            filesystem, path = open_filesystem(location)
            table = DeltaTable(location.partition("?")[0])
            dataset = table.to_pyarrow_dataset(filesystem=pafs.SubTreeFileSystem(path, filesystem))
        else:
            dataset = DeltaTable(os.path.abspath(location.removeprefix("file://"))).to_pyarrow_dataset()
    if dataset is None:
        raise InputError(
            f"{shown} uses features of Delta tables that cannot be read here; write it as Parquet, or read it with "
            "Spark"
        )
    return describe_dataset(dataset, roles, names_declared=True)


def _open_fragments(files: FileSet) -> list[Any]:
    """Return the files as PyArrow reads them: several parts at a time, the description of each file once."""
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

    kind = ds.ParquetFileFormat() if files.kind == "parquet" else ds.IpcFileFormat()
    filesystem = files.filesystem or pafs.LocalFileSystem()
    return [kind.make_fragment(path, filesystem=filesystem) for path in files.paths]


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
