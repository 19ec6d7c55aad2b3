"""PipelineDP's noise and means by group, for the check of benchmarks/groups/check_libraries.py.

Reads a case as JSON from standard input and writes JSON: the standard deviations of the noise on a count and on a
normalized sum, as PipelineDP's own combiner sets them, and the means of its engine at an epsilon with hardly any noise.
"""

from __future__ import annotations

import json
import sys
from operator import itemgetter
from typing import Any

import pipeline_dp
from pipeline_dp.combiners import create_compound_combiner

_HARDLY_ANY_NOISE = 1e9


def _parameters(case: dict[str, Any]) -> pipeline_dp.AggregateParams:
    kind = pipeline_dp.NoiseKind.GAUSSIAN if case["gaussian"] else pipeline_dp.NoiseKind.LAPLACE
    return pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN],
        noise_kind=kind,
        max_partitions_contributed=case["max_groups"],
        max_contributions_per_partition=case["max_records"],
        min_value=case["low"],
        max_value=case["high"],
    )


def noise_stddevs(case: dict[str, Any]) -> tuple[float, float]:
    accountant = pipeline_dp.NaiveBudgetAccountant(
        total_epsilon=case["epsilon"], total_delta=case["delta"] if case["gaussian"] else 0
    )
    combiner = create_compound_combiner(_parameters(case), accountant)
    accountant.compute_budgets()
    (mean,) = combiner._combiners
    mechanism = mean.get_mechanism()
    return mechanism._count_mechanism.std, mechanism._sum_mechanism.std


def means(case: dict[str, Any]) -> dict[str, float]:
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=_HARDLY_ANY_NOISE, total_delta=0)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    columns = pipeline_dp.DataExtractors(
        privacy_id_extractor=itemgetter(0), partition_extractor=itemgetter(1), value_extractor=itemgetter(2)
    )
    groups = sorted({row[1] for row in case["rows"]})
    parameters = _parameters({**case, "gaussian": False})
    found = engine.aggregate(case["rows"], parameters, columns, public_partitions=groups)
    accountant.compute_budgets()
    return {str(group): float(metrics.mean) for group, metrics in found}


if __name__ == "__main__":
    case = json.load(sys.stdin)
    count, total = noise_stddevs(case)
    print(json.dumps({"count": count, "sum": total, "means": means(case)}))
