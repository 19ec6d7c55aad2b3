"""Spark as tests use it, and values that every engine finds hard."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

HARD_FLOATS = [
    *(0.0, -0.0, 0.1, -0.1, 1.5, 2.5, 1e-18, -1e-18, 2.0**-60, 2.0**-61, 3 * 2.0**-61, 5e-324, -5e-324),
    *(0.5 * 2.0**-20, 1.5 * 2.0**-20, 1 + 2.0**-52, 8e12, -8e12, 8e12 * (1 + 2.0**-52), 1e13, 1e300, -1e300),
    *(math.nan, math.inf, -math.inf, None, 123456.789, -123456.789, 4503599627370495.5, 7999999999999.999),
]
"""Where rounding, limits and what is no number meet."""


SHORT_JOBS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Jobs of tests end long before a compiler that optimizes, or a second collector of garbage, has paid for itself."""


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
            "spark.driver.extraJavaOptions": SHORT_JOBS,
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
