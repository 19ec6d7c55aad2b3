"""One Spark on this machine for everything that is measured on Spark."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any


def local_session(threads: int, memory: str) -> Any:
    """Workers run the interpreter that runs this, whichever `python3` comes first in the path."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", tempfile.mkdtemp(prefix="warehouse-"))
        .config("spark.ui.showConsoleProgress", "false")
        # The default of 200 is for a cluster: with little data most of the time would go to empty tasks.
        .config("spark.sql.shuffle.partitions", str(2 * threads))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
