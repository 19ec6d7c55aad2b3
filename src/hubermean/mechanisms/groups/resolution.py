"""From a mechanism and public facts to a prepared grouped release: all groups at once where the mechanism allows it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hubermean.errors import InputError, parameter
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.contributions import Grid
from hubermean.mechanisms.counts.mechanism import AdaptiveCount, Count
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.grouped import GroupByGroup, GroupMechanism, PreparedGroups, SummedGroups
from hubermean.mechanisms.groups.noise_choice import few_groups
from hubermean.mechanisms.groups.row_counts import RowCounts
from hubermean.mechanisms.groups.row_means import RowMeans
from hubermean.mechanisms.registry import Auto
from hubermean.types.request import Column, PublicFacts


def resolve_group_mechanism(mechanism: Mechanism, group_split: GroupBudgetSplit) -> Mechanism:
    """The mechanism that will run, as far as the request alone decides it.

    `auto` becomes `clipped` with bounds and a bound on the groups of a user, and `adaptive` where something is unknown.

    Raises:
        InputError: the mechanism cannot serve this request.
    """
    if isinstance(mechanism, Auto):
        # Groups share what `adaptive` estimates on all of them, wide data or not.
        if group_split.max_groups is None and mechanism.adaptive is not None:
            mechanism = mechanism.adaptive
        else:
            able = replace(mechanism, vectors=None).select_able(group_split.means)
            if len(able) == 1:
                mechanism = able[0]
    mechanism.check(
        group_split.estimation if isinstance(mechanism, Adaptive | AdaptiveCount) else group_split.means
    )
    if group_split.max_groups is None and not uses_rows(mechanism, group_split):
        raise InputError(
            f"mechanism {mechanism.name!r} needs {parameter('max_groups')}, the most groups that a user counts "
            "in; give it, or leave the mechanism to be chosen"
        )
    return mechanism


def uses_rows(mechanism: Mechanism, group_split: GroupBudgetSplit) -> bool:
    """Whether the mechanism adds up users' rows over groups, clipped to a norm that is found privately."""
    if isinstance(mechanism, Count):
        return group_split.max_groups is None
    return isinstance(mechanism, Adaptive | AdaptiveCount)


def prepare_groups(
    mechanism: Mechanism,
    group_split: GroupBudgetSplit,
    facts: PublicFacts,
    n_users: int | None,
    *,
    rollup: bool = False,
) -> PreparedGroups:
    """Decide everything that does not need private data.

    Args:
        facts: of the groups, where neither the number of users nor of records is public.
        n_users: how many users there are in all, where that is public.
        rollup: whether to add the totals of the hierarchy of group columns.
    """
    if rollup and not isinstance(mechanism, Adaptive):
        raise InputError(
            f"{parameter('rollup')} is for means by mechanism 'adaptive'; leave it out, or the mechanism and "
            f"{parameter('max_groups')}"
        )
    groups: GroupMechanism
    if uses_rows(mechanism, group_split):
        groups = _prepare_rows(mechanism, group_split, replace(facts, n_users=n_users), rollup)
    elif isinstance(mechanism, Clipped | Count):
        changed = replace(mechanism, changes=group_split.changes)
        groups = SummedGroups(prepared=changed.prepare(group_split.means, facts), mechanism=mechanism.name)
    else:
        groups = GroupByGroup(
            prepared=mechanism.prepare(group_split.one_group(), facts),
            claim=group_split.means_claim(),
            mechanism=mechanism.name,
            columns=len(group_split.means.columns),
        )
    return PreparedGroups(group_split=group_split, groups=groups)


def _prepare_rows(
    mechanism: Mechanism, group_split: GroupBudgetSplit, facts: PublicFacts, rollup: bool
) -> RowMeans | RowCounts:
    """The private steps on users as a whole, by their means over all groups, and what follows them."""
    budget, spent = group_split.row_budget
    request = replace(group_split.estimation, per="user")
    by_user = group_split.means.per == "user"
    if isinstance(mechanism, Adaptive):
        cap = 1 if by_user else mechanism.max_records
        steps = replace(mechanism, max_records=None).steps(
            request, facts, "rows", budget=budget, spent_before=spent
        )
        for number, own in enumerate(facts.columns):
            low, high = steps.split.known.pair(number)
            if low is not None and high is not None:
                # Refused as without groups: estimates in such units would overflow, or be finer than what is read.
                Grid.choose((low, high), own, noise_factor=1.0)
    else:
        cap = 1 if by_user else mechanism.max_records if isinstance(mechanism, Count) else None
        # Of the values nothing is needed.
        column = Column(name="users", limit=Fraction(2**62))
        steps = Adaptive(bounds=(0.0, 1.0)).steps(
            replace(request, columns=("users",)),
            replace(facts, columns=(column,)),
            "rows",
            budget=budget,
            spent_before=spent,
        )
    steps = replace(steps, charged=group_split.whole, before=group_split.selection_cost)
    few = 0 if budget.pure_total is None else few_groups(float(budget.pure_total), budget.total)
    if isinstance(mechanism, Adaptive):
        selected = group_split.selection is not None
        return RowMeans(steps=steps, cap=cap, few=few, selected=selected, rollup=rollup)
    return RowCounts(steps=steps, cap=cap, few=few)
