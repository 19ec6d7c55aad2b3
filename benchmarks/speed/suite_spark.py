"""Spark: `hubermean.mean` of a Spark data frame beside Spark's own mean of user means, on the same Parquet files."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

from common.interleaved import Ratio
from common.measured import Limits
from common.rows_file import AMOUNT, PRICE, USER, WHOLE, RowsFile
from common.sections import Table, megabytes, seconds
from common.watched import watch

SAYS = (
    "hubermean gets only epsilon and `spark.read.parquet(path)`. Spark's plain query averages the user "
    "averages of the same frame. One session, alternating runs after a warm-up; ratios are medians, with "
    "quartiles in parentheses.",
    "Up to a public number of users, a few million, user sums come to the driver. Beyond it they stay on "
    "the executors, and the mechanism runs a few aggregate queries, a Spark job each. Both ways are "
    "measured here with the same users, alternating with Spark.",
    "MB is the peak resident memory of all processes together, Java included, so it is one number.",
)


def beside_spark(
    file: RowsFile, *, threads: int, repeats: int, limits: Limits, memory: str
) -> tuple[Table, list[str]]:
    """(table, versions)."""
    headings = ["hubermean averages", "Spark s", "hubermean s", "over Spark", "MB", "remark"]
    rows, versions = [], []
    if find_spec("pyspark") is None:
        rows.append(["-"] * 5 + ["pyspark is not installed beside hubermean"])
    else:
        given = {
            "path": file.path,
            "user": USER,
            "values": [AMOUNT, WHOLE, PRICE],
            "threads": threads,
            "repeats": repeats,
            "memory": memory,
        }
        command = [sys.executable, str(Path(__file__).with_name("spark_turns.py")), json.dumps(given)]
        watched = watch(command, most_seconds=limits.seconds, most_bytes=limits.bytes)
        if watched.done:
            said = json.loads(watched.output.splitlines()[-1])
            versions.append(f"pyspark {said['pyspark']}")
            for times in said["seconds"]:
                plain = times.pop("Spark")
                for averages, ours in times.items():
                    cells = [seconds(min(plain)), seconds(min(ours)), str(Ratio.of(ours, plain))]
                    rows.append([averages, *cells, megabytes(watched.peak_bytes), ""])
        else:
            ended = limits.exceeded(watched.stopped)
            if not ended:
                print(watched.complaints, file=sys.stderr)
            rows.append(["-"] * 5 + [ended or "failed"])
    title = f"{file.title}; {repeats} turns, local[{threads}]"
    return Table(title=title, headings=headings, rows=rows, left=["hubermean averages", "remark"]), versions
