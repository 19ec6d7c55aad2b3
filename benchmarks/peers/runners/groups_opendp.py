"""OpenDP's noise and means by group, for the check of benchmarks/groups/check_libraries.py.

Reads a case as JSON from standard input and writes JSON: the standard deviations of the noise on the length and the
sum of a group, as OpenDP states them for its own query. The query is not run: OpenDP 0.16 with Polars 1.36 fails on it
where groups are truncated ("multiple fields with name").
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from typing import Any

import opendp.prelude as dp
import polars as pl

warnings.simplefilter("ignore", FutureWarning)
dp.enable_features("contrib")


def _query(case: dict[str, Any], loss: Any) -> Any:
    users, groups, values = zip(*case["rows"], strict=True)
    frame = pl.LazyFrame({"user": users, "group": groups, "value": values})
    sizes = {"max_length": len(users), "max_groups": len(set(groups))}
    context = dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user")),
        privacy_loss=loss,
        split_evenly_over=1,
        margins=[dp.polars.Margin(**sizes), dp.polars.Margin(by=["group"], **sizes)],
    )
    return (
        context.query()
        .truncate_per_group(case["max_records"], by=["group"])
        .truncate_num_groups(case["max_groups"], by=["group"])
        .group_by("group")
        .agg(dp.len(), pl.col("value").fill_nan(0.0).dp.sum((case["low"], case["high"])))
        .with_keys(pl.LazyFrame({"group": sorted(set(groups))}))
    )


def noise_stddevs(case: dict[str, Any]) -> list[float]:
    loss = dp.loss_of(rho=case["rho"]) if case["gaussian"] else dp.loss_of(epsilon=case["epsilon"])
    scales = _query(case, loss).summarize()["scale"].to_list()
    return [scale if case["gaussian"] else math.sqrt(2.0) * scale for scale in scales]


if __name__ == "__main__":
    case = json.load(sys.stdin)
    count, total = noise_stddevs(case)
    print(json.dumps({"count": count, "sum": total}))
