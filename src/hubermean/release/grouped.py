"""Releases by group: one budget for all groups, the same path as a release without groups (`release/path.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubermean.accounting.budget import PrivacyCost, whole_budget
from hubermean.data.group_table import GroupTable
from hubermean.errors import InputError, parameter
from hubermean.ingest.groups import parse_group_keys
from hubermean.ingest.reading import ReadRequest
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit, check_max_groups
from hubermean.mechanisms.groups.grouped import GroupOutcome
from hubermean.mechanisms.groups.resolution import prepare_groups, resolve_group_mechanism, uses_rows
from hubermean.noise.source import NoiseSource
from hubermean.release.path import (
    NO_USERS,
    NOT_CHARGED,
    Charger,
    advise_too_few,
    describe_prospect,
    must_count_users,
    published_parameters,
    round_budget_down,
    run_on_data,
    run_on_public,
    state_requested_budget,
)
from hubermean.types.release_table import ReleaseTable
from hubermean.types.request import PublicFacts, Request, column_names
from hubermean.types.timings import stage


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """The groups of a release.

    Attributes:
        by: the group columns.
        keys: the public groups; None if groups are selected privately.
        max_groups: the most groups that a user counts in; None for all of them.
        rollup: whether to add the totals of the hierarchy of group columns.
    """

    by: tuple[str, ...]
    keys: Sequence[tuple[Any, ...]] | None
    max_groups: int | None
    rollup: bool = False

    @classmethod
    def from_keywords(
        cls, by: str | Sequence[str] | None, keys: Any, max_groups: int | None, *, rollup: bool = False
    ) -> Grouping | None:
        """Return the grouping of the arguments of `mean` and `count`; None without groups."""
        check_max_groups(max_groups)
        if by is None:
            if keys is not None or max_groups is not None or rollup:
                raise InputError(
                    f"{parameter('keys')}, {parameter('max_groups')} and {parameter('rollup')} need groups; give "
                    f"{parameter('by')} as well, or leave them out"
                )
            return None
        columns = tuple(column_names(by, "by"))
        return cls(
            by=columns,
            keys=None if keys is None else parse_group_keys(keys, columns),
            max_groups=max_groups,
            rollup=rollup,
        )


@np.errstate(all="ignore")  # as in `release/path.py`
def release_groups(
    data: Any,
    reading: ReadRequest,
    grouping: Grouping,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    n_users: int | None = None,
    statistic: str = "mean",
    charger: Charger = NOT_CHARGED,
) -> ReleaseTable:
    """Release a statistic per group; `grouping` names the groups, the other arguments are as for `release_data`."""
    groups, max_groups = None if grouping.keys is None else len(grouping.keys), grouping.max_groups
    if groups is not None and max_groups is not None:
        max_groups = min(max_groups, groups)  # no user can be in more groups than there are
    group_split = GroupBudgetSplit.of(
        round_budget_down(request),
        max_groups=max_groups,
        groups=groups,
        delta_for="keys" if statistic == "count" else "all",
    )
    chosen = resolve_group_mechanism(mechanism, group_split)
    by_rows = uses_rows(chosen, group_split)
    with reading.open(data, by=grouping.by) as opened:
        if grouping.keys is not None:
            opened.check_group_keys(grouping.keys)
        facts = PublicFacts.declared(opened.columns, opened.limits)
        counted = by_rows and must_count_users(
            group_split.estimation.neighbors, n_users, countable=opened.countable
        )

        def prepare(n_users: int | None) -> Any:
            if n_users == 0:
                raise InputError(NO_USERS)
            with stage("preparing"):
                return prepare_groups(chosen, group_split, facts, n_users, rollup=grouping.rollup)

        prepared: Any = None if counted else prepare(n_users)

        def read() -> GroupTable:
            table = opened.read_groups(keys=grouping.keys, max_groups=max_groups)
            return table if not by_rows or n_users is None else table.pad_users(n_users)

        def compute() -> ReleaseTable:
            table = run_on_data(read, request)
            run = prepared
            if counted:
                run = run_on_public(lambda: prepare(table.n_owners), charger)
            with stage("mechanism"), state_requested_budget(request), advise_too_few(opened.advice):
                outcome = run_on_data(lambda: run.run(table, noise), request)
            return _publish_table(outcome, request, grouping, group_split, chosen, noise, statistic)

        cost = PrivacyCost(epsilon=request.epsilon, delta=request.delta)
        return charger.charge(cost, compute, lambda: describe_prospect(prepared))


def _publish_table(
    outcome: GroupOutcome,
    request: Request,
    grouping: Grouping,
    group_split: GroupBudgetSplit,
    chosen: Mechanism,
    noise: NoiseSource,
    statistic: str,
) -> ReleaseTable:
    means = group_split.means
    breakdown = outcome.budget_breakdown or whole_budget(means.epsilon, means.delta, what=f"the {statistic}")
    return ReleaseTable(
        by=grouping.by,
        keys=tuple(outcome.keys),
        values=outcome.values,
        columns=request.columns,
        epsilon=request.epsilon,
        delta=request.delta,
        neighbors=request.neighbors,
        mechanism=outcome.mechanism or chosen.name,
        per=request.per,
        statistic=statistic,
        max_groups=group_split.max_groups,
        public_keys=grouping.keys is not None,
        parameters=published_parameters({**outcome.parameters, **group_split.parameters()}, noise),
        budget_breakdown=group_split.break_down_budget(breakdown),
        intervals=outcome.intervals,
        measured=outcome.denominators,
        refusals=outcome.refusals,
        warnings=outcome.warnings,
    )
