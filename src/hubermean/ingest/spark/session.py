"""The Spark session: data frames of tables, of files or of the caller, and jobs whose errors quote no data."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from hubermean.errors import InputError
from hubermean.ingest.engine import mask_errors
from hubermean.ingest.files import FileSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_CLUSTER_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
"""Environment variables that configure a cluster."""

UNSUPPORTED_DATA = "Spark cannot read these data; pass a data frame, the name of a table, or Parquet files"

JOB_FAILED = (
    "Spark could not read and group the data completely; check that they are complete and that all workers run, raise "
    "spark.driver.memory and spark.driver.maxResultSize, or lower spark.hubermean.driverUsers and "
    "spark.sql.shuffle.partitions"
)
"""The message for every failure of a job: the cause may depend on one user's records."""

_CONNECT_UNSUPPORTED = (
    "Spark Connect does not show whether a data frame is random (rand() or the like); use a session without it "
    "(builder.master() instead of builder.remote(), SPARK_REMOTE not set), or write the data to Parquet files and pass "
    "their path"
)


def open_frame(data: Any) -> DataFrame:
    """Return the data frame of a table name, of Parquet files or of the caller.

    Raises:
        InputError: Spark is missing, or the frame is random, a stream or of Spark Connect.
    """
    try:
        from pyspark.sql import DataFrame
        from pyspark.util import is_remote_only
    except ImportError:
        raise InputError("Spark is not installed; run pip install 'hubermean[spark]'") from None
    if is_remote_only():  # the package pyspark-client
        raise InputError(_CONNECT_UNSUPPORTED)
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    if isinstance(data, str | os.PathLike):
        frame = _open_named(os.fspath(data))
    elif isinstance(data, DataFrame):
        frame = data
    else:
        raise InputError(f"{UNSUPPORTED_DATA}, not {type(data).__name__}")
    if not isinstance(frame, Classic):
        raise InputError(_CONNECT_UNSUPPORTED)
    names = frame.columns
    if len({name.lower() for name in names}) != len(names):
        raise InputError("two columns have the same name for Spark, which ignores case; rename one of them")
    if frame.isStreaming:
        raise InputError("a streaming data frame has no end; write it to a table first")
    # Data that are read several times, or again after a worker is lost, must stay the same.
    plan = frame._jdf.queryExecution().analyzed()
    if not plan.deterministic() or _has_sampling(plan):
        raise InputError("the data frame is random (rand() or the like); write it to a table first")
    return frame


def _has_sampling(plan: Any) -> bool:
    """Whether a plan samples: its seed is fixed, but the sampled rows depend on their order."""
    parts = [plan]
    while parts:
        part = parts.pop()
        if part.nodeName() == "Sample":
            return True
        for more in (part.children(), part.subqueries()):
            parts += [more.apply(place) for place in range(more.size())]
    return False


def is_file_path(name: str) -> bool:
    """Whether a name is that of files; otherwise it may be that of a table."""
    return "/" in name or glob.has_magic(name) or os.path.exists(name)


def _open_named(name: str) -> DataFrame:
    session = _get_session()
    if "://" in name:
        # As with other engines, folders such as g=01 are no columns: their type would depend on all folder names.
        return session.read.options(mergeSchema=True, recursiveFileLookup=True).parquet(name)
    if not is_file_path(name) and _is_table(session, name):
        return session.table(name)
    files = FileSet.find(name)
    if files.kind != "parquet":
        raise InputError(
            "with Spark, data must be Parquet files or tables; leave engine out to read text files"
        )
    return session.read.option("mergeSchema", "true").parquet(*files.paths)


def _is_table(session: SparkSession, name: str) -> bool:
    from pyspark.errors import ParseException

    try:
        return session.catalog.tableExists(name)
    except ParseException:  # such as part-*.parquet
        return False


def _get_session() -> SparkSession:
    """Return the active session, or start a silent one with this Python on the workers.

    What Spark writes to standard error, such as errors of tasks, may quote data.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise InputError(_CONNECT_UNSUPPORTED)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None:  # the session is active in another thread
        return SparkSession.builder.getOrCreate()
    if "SPARK_REMOTE" in os.environ:  # names a cluster that cannot be used
        raise InputError(_CONNECT_UNSUPPORTED)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setAppName("hubermean").set("spark.ui.enabled", "false")
    if not any(name in os.environ for name in _CLUSTER_VARIABLES):  # a private cluster on this machine
        settings.setMaster("local[*]")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        silent = {"stderr": subprocess.DEVNULL}
        gateway = launch_gateway(conf=settings, popen_kwargs=silent)  # type: ignore[no-untyped-call]
    except (PySparkException, OSError):
        raise InputError("Spark needs Java 17 or later; install it, or set JAVA_HOME") from None
    return SparkSession(SparkContext(conf=settings, gateway=gateway))


@contextlib.contextmanager
def silence_spark() -> Iterator[None]:
    """Suppress warnings of Spark about the packages it uses, and its log of errors."""
    with warnings.catch_warnings(), _LOG_FILTER.active():
        warnings.simplefilter("ignore")
        yield


class _LogFilter:
    """Drops log records while it is active in any thread.

    The Python code of Spark logs every error of a query to standard error before it can be caught, and the error quotes
    the cell that a cast failed on.
    """

    def __init__(self) -> None:
        self._uses = 0
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        return self._uses == 0

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        for logger in _error_loggers():
            logger.addFilter(self)  # no effect if it was added before
        with self._lock:
            self._uses += 1
        try:
            yield
        finally:
            with self._lock:
                self._uses -= 1


_LOG_FILTER = _LogFilter()


def _error_loggers() -> list[logging.Logger]:
    """Return the loggers of query errors in the Python code of Spark; none in versions without them."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return []
    return [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]


def run_spark_job(work: Callable[[], T]) -> T:
    """Run `work`; raise InputError with a fixed message in place of every error."""
    return mask_errors(work, JOB_FAILED)
