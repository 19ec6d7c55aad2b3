"""Unsigned integers of 64 bits, which Spark reads from Parquet files as decimals of twenty digits.

Elsewhere they are integers, clamped to 64 bits, and decimals of twenty digits are decimals. What a column is, the file
says that it is passed on from; where a query makes something of it, it is the decimal that Spark takes it for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ_AS = "decimal(20,0)"
_STORED_AS = "INTEGER(64,false)"


def unsigned_columns(frame: DataFrame, names: Iterable[str]) -> list[str]:
    """Those of the named columns that files hold as unsigned integers of 64 bits."""
    wide = {field.name for field in frame.schema.fields if field.dataType.simpleString() == _READ_AS}
    wide &= set(names)
    if not wide:
        return []
    plan = frame._jdf.queryExecution().analyzed()
    return [
        column.name()
        for column in _each(plan.output())
        if column.name() in wide and _is_unsigned(frame, plan, column)
    ]


def _is_unsigned(frame: DataFrame, plan: Any, column: Any) -> bool:
    while plan.nodeName() != "Union":  # which is made of several columns
        below = [child for child in _each(plan.children()) if child.outputSet().contains(column)]
        if below:
            plan = below[0]
        elif plan.nodeName() == "Project":
            column = _renamed_from(plan, column)
            if column is None:
                return False
        else:
            return _name(plan) == "LogicalRelation" and _stored_unsigned(
                frame, plan.relation(), column.name()
            )
    return False


def _renamed_from(project: Any, column: Any) -> Any | None:
    """The column that another name is given to; None where something is made of it."""
    (made,) = (one for one in _each(project.projectList()) if one.exprId().equals(column.exprId()))
    if _name(made) != "Alias":
        return None
    source = made.child()
    while _name(source) == "Cast" and source.child().dataType().simpleString() == _READ_AS:  # views have such
        source = source.child()
    return source if _name(source) == "AttributeReference" else None


def _stored_unsigned(frame: DataFrame, relation: Any, name: str) -> bool:
    """By the first of the files; Spark, too, takes a schema from one of them."""
    if _name(relation) != "HadoopFsRelation" or _name(relation.fileFormat()) != "ParquetFileFormat":
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
            field.getName().lower() == name.lower() and str(field.getLogicalTypeAnnotation()) == _STORED_AS
            for field in fields
        )
    finally:
        reader.close()


def _each(sequence: Any) -> Iterator[Any]:
    """What a sequence of Scala's holds."""
    return (sequence.apply(place) for place in range(sequence.size()))


def _name(thing: Any) -> str:
    name: str = thing.getClass().getSimpleName()
    return name
