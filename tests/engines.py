"""Engines as tests use them: data in the form that each of them reads."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa


@contextlib.contextmanager
def running_spark(master: str = "local[2]", **settings: str) -> Iterator[Any]:
    """A session of Spark's that speaks to nobody else."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("tests")
        quiet = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.session.timeZone": "America/New_York",
            **settings,
        }
        for name, value in quiet.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


def in_spark(session: Any) -> Callable[[pa.Table], Any]:
    """Arrow tables as data frames of Spark's, in several partitions."""

    def made(table: pa.Table) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return session.createDataFrame(table).repartition(4)

    return made
