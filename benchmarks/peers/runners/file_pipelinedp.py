"""PipelineDP on a whole file: its engine on this machine or on Spark, on the records or on user means.

`options`: `backend` is "local" or "spark"; `unit` is "records", where the engine itself bounds what a user contributes
and the mean is over records, or "means", where Polars or Spark makes one mean a user before it. Neighbors differ by
one user who is there or not; one public partition, Laplace noise, delta = 0.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from whole_file import Load, Release, Work, nothing_to_load, serve

_EVERYBODY = 0  # the one partition


def _everybody(_: Any) -> int:
    return _EVERYBODY


def start(work: Work) -> tuple[Load, Release]:
    import pipeline_dp

    of_means = work.options["unit"] == "means"
    parameters = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=1 if of_means else work.most_records,
        min_value=work.mean_low if of_means else work.low,
        max_value=work.mean_high if of_means else work.high,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=itemgetter(0),
        partition_extractor=_everybody,
        value_extractor=itemgetter(1),
    )
    on_spark = work.options["backend"] == "spark"
    if on_spark:
        from spark_session import local_session

        session = local_session(work.threads, work.options["memory"])
        backend: Any = pipeline_dp.SparkRDDBackend(session.sparkContext)
    else:
        backend = pipeline_dp.LocalBackend()

    def release(rows: Any) -> float:
        if on_spark:
            rows = _spark_rows(session, work, of_means=of_means)
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=work.epsilon, total_delta=0)
        engine = pipeline_dp.DPEngine(accountant, backend)
        found = engine.aggregate(rows, parameters, extractors, public_partitions=[_EVERYBODY])
        accountant.compute_budgets()
        ((_, metrics),) = found.collect() if on_spark else found
        return float(metrics.mean)

    if on_spark:
        return nothing_to_load, release
    return lambda: _local_rows(work, of_means=of_means), release


def _local_rows(work: Work, *, of_means: bool) -> list[tuple[Any, float]]:
    if of_means:
        from user_means import by_polars

        return list(enumerate(by_polars(work).tolist()))
    import polars as pl

    frame = pl.read_parquet(work.path, columns=[work.user, work.value])
    return list(zip(frame[work.user].to_list(), frame[work.value].to_list(), strict=True))


def _spark_rows(session: Any, work: Work, *, of_means: bool) -> Any:
    frame = session.read.parquet(work.path).select(work.user, work.value)
    if of_means:
        frame = frame.groupBy(work.user).mean(work.value).select(work.user, f"avg({work.value})")
    return frame.rdd.map(tuple)


if __name__ == "__main__":
    serve(start, packages=("pipeline-dp", "pyspark"))
