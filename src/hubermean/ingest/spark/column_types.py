"""Declared types of Spark columns, under the names that DuckDB has for them.

Spark reads unsigned 64-bit integers from Parquet files as decimals of 20 digits. Other engines read them as integers,
clamped to 64 bits, and read decimals of 20 digits as decimals. So for a column that is passed on unchanged, the file
decides which of the two it is; for one that a query computes, it is the decimal that Spark treats it as.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hubermean.ingest.schema import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BYTEWISE = "UTF8_BINARY"
_DUCKDB_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "varchar",
    "varchar": "varchar",
    "char": "varchar",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp",
    "daytimeinterval": "interval",
}
_UNSIGNED_AS_READ = "decimal(20,0)"
_UNSIGNED_AS_STORED = "INTEGER(64,false)"


def convert_type(kind: Any) -> ColumnType:
    """Return a type of Spark as a `ColumnType`."""
    name = _DUCKDB_NAMES.get(kind.typeName())
    if getattr(kind, "collation", _BYTEWISE) != _BYTEWISE:
        # Texts that are equal under a collation would be one user, and a group would have the name that came first.
        name = None
    if kind.typeName() == "decimal":
        shape = (("precision", kind.precision), ("scale", kind.scale))
        return ColumnType(id="decimal", name=f"DECIMAL({kind.precision},{kind.scale})", children=shape)
    if name is None:
        return ColumnType(id="other", name=kind.simpleString())
    return ColumnType(id=name, name=name.upper())


def find_unsigned_columns(frame: DataFrame, names: Iterable[str]) -> list[str]:
    """Return those of the named columns that files store as unsigned 64-bit integers."""
    wide = {field.name for field in frame.schema.fields if field.dataType.simpleString() == _UNSIGNED_AS_READ}
    wide &= set(names)
    if not wide:
        return []
    plan = frame._jdf.queryExecution().analyzed()
    return [
        column.name()
        for column in _to_python(plan.output())
        if column.name() in wide and _is_unsigned(frame, plan, column)
    ]


def _is_unsigned(frame: DataFrame, plan: Any, column: Any) -> bool:
    while plan.nodeName() != "Union":  # a column of a union comes from several columns
        below = [child for child in _to_python(plan.children()) if child.outputSet().contains(column)]
        if below:
            plan = below[0]
        elif plan.nodeName() == "Project":
            column = _find_renamed_column(plan, column)
            if column is None:
                return False
        else:
            return _class_name(plan) == "LogicalRelation" and _is_stored_unsigned(
                frame, plan.relation(), column.name()
            )
    return False


def _find_renamed_column(project: Any, column: Any) -> Any | None:
    """Return the column that a projection renames; None if it computes something."""
    (made,) = (one for one in _to_python(project.projectList()) if one.exprId().equals(column.exprId()))
    if _class_name(made) != "Alias":
        return None
    source = made.child()
    # Views contain casts to the type that a column already has.
    while _class_name(source) == "Cast" and source.child().dataType().simpleString() == _UNSIGNED_AS_READ:
        source = source.child()
    return source if _class_name(source) == "AttributeReference" else None


def _is_stored_unsigned(frame: DataFrame, relation: Any, name: str) -> bool:
    """Read the type from the first file; Spark also takes the schema from one file."""
    if (
        _class_name(relation) != "HadoopFsRelation"
        or _class_name(relation.fileFormat()) != "ParquetFileFormat"
    ):
        return False
    files = relation.location().inputFiles()
    if len(files) == 0:
        return False
    session: Any = frame.sparkSession
    java, settings = session._jvm, session._jsparkSession.sessionState().newHadoopConf()
    path = java.org.apache.hadoop.fs.Path(java.java.net.URI(files[0]))
    file = java.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, settings)
    reader = java.org.apache.parquet.hadoop.ParquetFileReader.open(file)
    try:
        fields = reader.getFileMetaData().getSchema().getFields()
        return any(
            field.getName().lower() == name.lower()
            and str(field.getLogicalTypeAnnotation()) == _UNSIGNED_AS_STORED
            for field in fields
        )
    finally:
        reader.close()


def _to_python(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    return (sequence.apply(place) for place in range(sequence.size()))


def _class_name(thing: Any) -> str:
    name: str = thing.getClass().getSimpleName()
    return name
