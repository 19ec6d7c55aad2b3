"""Tumult Analytics on a whole file, on Spark: records with an identifier, as many of a user as there are, `average`.

Neighbors differ by one user who is there or not, with all records; the mean is over records.
"""

from __future__ import annotations

import warnings

from whole_file import Load, Release, Work, nothing_to_load, serve


def start(work: Work) -> tuple[Load, Release]:
    from spark_session import local_session

    session = local_session(work.threads, work.options["memory"])
    # Its functions for Spark are written in the old style, which Spark mentions every time.
    warnings.filterwarnings("ignore", message="In Python 3.6\\+ and Spark 3.0\\+")
    from tmlt.analytics import AddRowsWithID, MaxRowsPerID, PureDPBudget, QueryBuilder, Session

    def release(_: None) -> float:
        frame = session.read.parquet(work.path).select(work.user, work.value)
        budget = PureDPBudget(work.epsilon)
        private = (
            Session.Builder()
            .with_private_dataframe("records", frame, protected_change=AddRowsWithID(work.user))
            .with_privacy_budget(budget)
            .build()
        )
        query = (
            QueryBuilder("records")
            .enforce(MaxRowsPerID(work.most_records))
            .average(work.value, low=work.low, high=work.high, name="mean")
        )
        return float(private.evaluate(query, budget).first()["mean"])

    return nothing_to_load, release


if __name__ == "__main__":
    serve(start, packages=("tmlt.analytics", "pyspark"))
