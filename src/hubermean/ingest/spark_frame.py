"""What is given to Spark to read: a data frame, a table by its name, or Parquet files; and the session for it."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.ingest.columns import ColumnType
from hubermean.ingest.files import FileSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONFIGURING = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
"""Where one of these is set, somebody has said which cluster is meant."""

NOT_TO_BE_HAD = "Spark cannot read this; give a data frame, the name of a table, or Parquet files"

_BY_CONNECT = (
    "Spark Connect does not show whether a data frame is made by chance (rand() or the like); use a session without it "
    "(builder.master() in place of builder.remote(), SPARK_REMOTE not set), or write the data to Parquet files and "
    "give their path"
)


def spark_frame(data: Any) -> DataFrame:
    try:
        from pyspark.sql import DataFrame
        from pyspark.util import is_remote_only
    except ImportError:
        raise InputError("Spark needs a package more; run pip install 'hubermean[spark]'") from None
    if is_remote_only():  # the package pyspark-client
        raise InputError(_BY_CONNECT)
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    if isinstance(data, str | os.PathLike):
        frame = _named(os.fspath(data))
    elif isinstance(data, DataFrame):
        frame = data
    else:
        raise InputError(f"{NOT_TO_BE_HAD}, not {type(data).__name__}")
    if not isinstance(frame, Classic):
        raise InputError(_BY_CONNECT)
    names = frame.columns
    if len({name.lower() for name in names}) != len(names):
        raise InputError("two columns have one name, as Spark reads it; give each column its own")
    if frame.isStreaming:
        raise InputError("a stream has no end; write it to a table first")
    # What is looked at several times, or made anew after a worker is lost, must stay the same.
    plan = frame._jdf.queryExecution().analyzed()
    if not plan.deterministic() or _draws_rows(plan):
        raise InputError("the data frame is made by chance (rand() or the like); write it to a table first")
    return frame


def _draws_rows(plan: Any) -> bool:
    """Whether a plan samples: the seed is fixed, but which rows it takes follows from their order."""
    parts = [plan]
    while parts:
        part = parts.pop()
        if part.nodeName() == "Sample":
            return True
        for more in (part.children(), part.subqueries()):
            parts += [more.apply(place) for place in range(more.size())]
    return False


def looks_like_files(name: str) -> bool:
    """Whether a name is that of files; else it may be that of a table."""
    return "/" in name or glob.has_magic(name) or os.path.exists(name)


def _named(name: str) -> DataFrame:
    session = _session()
    if "://" in name:
        # Folders such as g=01 are no columns, as with other engines: their type would follow from the names of all.
        return session.read.options(mergeSchema=True, recursiveFileLookup=True).parquet(name)
    if not looks_like_files(name) and _is_table(session, name):
        return session.table(name)
    files = FileSet.find(name)
    if files.kind != "parquet":
        raise InputError("Spark reads Parquet files and tables here; leave engine out for text files")
    return session.read.option("mergeSchema", "true").parquet(*files.paths)


def _is_table(session: SparkSession, name: str) -> bool:
    from pyspark.errors import ParseException

    try:
        return session.catalog.tableExists(name)
    except ParseException:  # part-*.parquet is no name of a table
        return False


def _session() -> SparkSession:
    """The session that is active, or one of our own: with this very Python on the workers, and silent.

    What Spark writes to standard error, errors of tasks among it, may quote data.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise InputError(_BY_CONNECT)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None:  # the session is active in another thread
        return SparkSession.builder.getOrCreate()
    if "SPARK_REMOTE" in os.environ:  # the cluster that is meant, and no other is
        raise InputError(_BY_CONNECT)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setAppName("hubermean").set("spark.ui.enabled", "false")
    if not any(
        name in os.environ for name in _CONFIGURING
    ):  # a cluster of its own on this machine, for nobody else
        settings.setMaster("local[*]")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        silent = {"stderr": subprocess.DEVNULL}
        gateway = launch_gateway(conf=settings, popen_kwargs=silent)  # type: ignore[no-untyped-call]
    except (PySparkException, OSError):
        raise InputError("Spark needs Java 17 or later; install it, or set JAVA_HOME") from None
    return SparkSession(SparkContext(conf=settings, gateway=gateway))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of Spark's own code about the packages it uses, and without what it logs of errors."""
    with warnings.catch_warnings(), _UNLOGGED.held():
        warnings.simplefilter("ignore")
        yield


class _Unlogged:
    """Drops what loggers are given as long as somebody holds it, in any thread.

    Spark's Python code logs every error of a query to standard error, before anybody can catch it, and the error quotes
    the cell that a cast failed on.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        return self._holders == 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        for logger in _error_loggers():
            logger.addFilter(self)  # once, however often
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1


_UNLOGGED = _Unlogged()


def _error_loggers() -> list[logging.Logger]:
    """Those that Spark's Python code writes errors of queries to; none in versions that do not."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return []
    return [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]


def declared_type(kind: Any) -> ColumnType:
    """A type of Spark's by the name that DuckDB has for it."""
    name = _NAMES.get(kind.typeName())
    if getattr(kind, "collation", _BYTEWISE) != _BYTEWISE:
        # Texts that are one by a collation would be one user, and the name of a group would be whichever came first.
        name = None
    if kind.typeName() == "decimal":
        shape = (("precision", kind.precision), ("scale", kind.scale))
        return ColumnType(id="decimal", name=f"DECIMAL({kind.precision},{kind.scale})", children=shape)
    if name is None:
        return ColumnType(id="other", name=kind.simpleString())
    return ColumnType(id=name, name=name.upper())


_BYTEWISE = "UTF8_BINARY"
_NAMES = {
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
