"""PipelineDP's mean of user means: one row per user, one public partition, Laplace noise, delta = 0.

Neighbors differ by one user who is there or not, and the number of users is private: half of epsilon goes to the
count, half to the sum of distances from the middle of the bounds.

`DPEngine` handles rows one at a time in Python, a fifth of a second for ten thousand. Its combiner, which clips, sums
and adds the noise, takes a whole array as well, and with one row per user the engine has nothing else to bound. So
releases come from the combiner that the engine itself would make; that both agree is checked before any is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pipeline_dp
from exchange import serve
from pipeline_dp.combiners import create_compound_combiner

_EVERYBODY = 0  # the one partition
_HARDLY_ANY_NOISE = 1e9  # an epsilon at which two ways to the same mean differ visibly if they differ at all


def release_means(means: Any, low: float, high: float, epsilon: float, releases: int) -> Sequence[float]:
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=0)
    combiner = create_compound_combiner(_parameters(low, high), accountant)
    accountant.compute_budgets()
    sums = combiner.create_accumulator(means)
    return [combiner.compute_metrics(sums).mean for _ in range(releases)]


def _by_engine(means: Any, low: float, high: float, epsilon: float) -> float:
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=0)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    columns = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: _EVERYBODY,
        value_extractor=lambda row: row[1],
    )
    rows = list(enumerate(means.tolist()))
    found = engine.aggregate(rows, _parameters(low, high), columns, public_partitions=[_EVERYBODY])
    accountant.compute_budgets()
    ((_, metrics),) = found
    return float(metrics.mean)


def _parameters(low: float, high: float) -> pipeline_dp.AggregateParams:
    return pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=low,
        max_value=high,
    )


def _check_against_engine() -> None:
    means = np.linspace(-3.0, 9.0, 500) ** 2
    (one,) = release_means(means, 1.0, 50.0, _HARDLY_ANY_NOISE, 1)
    other = _by_engine(means, 1.0, 50.0, _HARDLY_ANY_NOISE)
    if not abs(one - other) < 1e-5:
        raise AssertionError(f"PipelineDP's engine releases {other!r}, its combiner {one!r}")


if __name__ == "__main__":
    _check_against_engine()
    serve(release_means, package="pipeline-dp")
