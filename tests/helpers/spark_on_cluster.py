"""A release on a cluster, one of whose workers is lost half-way: run as a process of its own by test_spark.py.

    python spark_on_cluster.py MASTER FILE

Prints a line when a worker may be lost, waits for a line, and prints what it found before and after.
"""

from __future__ import annotations

import json
import sys

from helpers.spark_sessions import running_spark
from hubermean import _api as api
from hubermean.data.user_table import UserTable
from hubermean.ingest.reading import user_table
from hubermean.noise.seeded import InsecureSeededNoise


def totals(part: UserTable) -> tuple[int, int, int]:
    sums = part.sums[0]
    return part.n_users, int(part.counts.sum()), sum(sums.integer(place) for place in range(part.n_users))


def main() -> None:
    master, file = sys.argv[1:]
    api.SystemNoise = lambda: InsecureSeededNoise(7)  # type: ignore[assignment, misc]
    settings = {
        "spark.executor.memory": "512m",
        "spark.hubermean.driverUsers": "0",
        "spark.task.maxFailures": "8",
    }
    with running_spark(master, **settings) as spark:
        data = spark.read.parquet(file)
        table = user_table(data, user="u", value="v", records=False)
        before = table.map_partitions(totals)
        print("may be lost", flush=True)
        sys.stdin.readline()
        after = table.map_partitions(totals)
        release = api.mean(
            data,
            user="u",
            value="v",
            epsilon=0.5,
            per="user",
            mechanism="inverse-sensitivity",
            threshold=2.0,
            radius=1000.0,
        )
    added = [[sum(column) for column in zip(*parts, strict=True)] for parts in (before, after)]
    print(json.dumps({"kind": type(table).__name__, "totals": added, "value": release.value}))


if __name__ == "__main__":
    main()
