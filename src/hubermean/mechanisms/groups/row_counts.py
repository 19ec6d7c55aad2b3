"""Counts by group: the first query of means by rows, with all of the budget."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubermean.accounting.budget import THE_COUNT
from hubermean.data.arrays import FloatArray
from hubermean.data.group_table import GroupKey
from hubermean.mechanisms.adaptive.parameters import AdaptiveEstimates
from hubermean.mechanisms.groups.group_weights import GroupWeights, describe_weights
from hubermean.mechanisms.groups.grouped import GroupOutcome
from hubermean.mechanisms.groups.row_means import GROUP_WEIGHTS, RowMechanism, nothing_selected
from hubermean.mechanisms.groups.row_queries import Accounting, Query


@dataclass(frozen=True, kw_only=True)
class RowCounts(RowMechanism):
    """The number of users or records of each group."""

    def measure(self, found: AdaptiveEstimates, groups: int) -> Generator[Query, Any, _Counts | None]:
        if groups == 0:
            return None
        plan = replace((yield from self.plan(found, groups)), counting=True)
        weights, _, bound = yield from self.measure_weights(plan)
        return _Counts(weights=weights, accounting=plan.accounting, bound=bound)

    def outcome(self, sample: Any, keys: Sequence[GroupKey]) -> GroupOutcome:
        made, found, breakdown = self.replay(sample, len(keys))
        if made is None:
            return nothing_selected(1, found, breakdown)
        return GroupOutcome(
            keys=keys,
            values=np.rint(np.maximum(made.weights.values, 0.0))[:, np.newaxis],
            parameters={
                "norm": made.accounting.norm,
                "norm_bound": made.bound,
                **found.parameters(),
            },
            intervals=made,
            budget_breakdown=tuple(
                replace(entry, what=THE_COUNT) if entry.what == GROUP_WEIGHTS else entry
                for entry in breakdown
            ),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Counts:
    """Counts by group and their intervals."""

    weights: GroupWeights
    accounting: Accounting
    bound: float

    @property
    def covers(self) -> str:
        return "noise and clipping"

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        found = describe_weights(self.weights, self.accounting, level)
        low, high = (np.array([[getattr(one, end)] for one in found]) for end in ("low", "high"))
        return low, high
