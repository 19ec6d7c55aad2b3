"""hubermean on Spark beside Spark's own mean of user means, in one session, in turns: their seconds, as a line of JSON.

A process of its own, for the memory of Java is part of what it takes; `suite_spark.py` starts it.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata

import hubermean as hm
from engines import EPSILON
from peer_runners.spark_session import local_session
from side_by_side import Job, in_turns


def main() -> None:
    given = json.loads(sys.argv[1])
    path, user, value = given["path"], given["user"], given["value"]
    session = local_session(given["threads"], given["memory"])

    def plain() -> object:
        means = session.read.parquet(path).groupBy(user).mean(value)
        return means.agg({f"avg({value})": "avg"}).collect()

    def private(per: str) -> Job:
        return lambda: hm.mean(session.read.parquet(path), user=user, value=value, epsilon=EPSILON, per=per)

    times = in_turns(
        {"Spark": plain, "records": private("record"), "user means": private("user")}, given["repeats"]
    )
    print(json.dumps({"seconds": times, "pyspark": metadata.version("pyspark")}))
    session.stop()


if __name__ == "__main__":
    main()
