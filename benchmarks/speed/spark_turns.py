"""hubermean on Spark beside Spark's own mean of user means, in one session, in turns: their seconds, as a line of JSON.

A process of its own, for the memory of Java is part of what it takes; `suite_spark.py` starts it.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata

import hubermean as hm
from common.interleaved import Job, in_turns
from peers.runners.spark_session import local_session
from speed.engines import EPSILON


def main() -> None:
    given = json.loads(sys.argv[1])
    path, user, values = given["path"], given["user"], given["values"]
    session = local_session(given["threads"], given["memory"])

    def plain(columns: list[str]) -> Job:
        def averages() -> object:
            means = session.read.parquet(path).groupBy(user).mean(*columns)
            return means.agg({f"avg({column})": "avg" for column in columns}).collect()

        return averages

    def private(columns: list[str], per: str, *, most_at_driver: int) -> Job:
        def release() -> object:
            session.conf.set("spark.hubermean.driverUsers", str(most_at_driver))
            frame = session.read.parquet(path)
            return hm.mean(frame, user=user, value=columns, epsilon=EPSILON, per=per)

        return release

    one, here, there = values[:1], 10**9, 0
    many = f"user means of {len(values)} columns"
    sets: list[dict[str, Job]] = [
        {
            "Spark": plain(one),
            "records": private(one, "record", most_at_driver=here),
            "user means": private(one, "user", most_at_driver=here),
        },
        {
            "Spark": plain(one),
            "records, users stay on the executors": private(one, "record", most_at_driver=there),
        },
        {
            "Spark": plain(values),
            many: private(values, "user", most_at_driver=here),
            f"{many}, users stay on the executors": private(values, "user", most_at_driver=there),
        },
    ]
    times = [in_turns(jobs, given["repeats"]) for jobs in sets]
    print(json.dumps({"seconds": times, "pyspark": metadata.version("pyspark")}))
    session.stop()


if __name__ == "__main__":
    main()
