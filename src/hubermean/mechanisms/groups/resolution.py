"""From a mechanism and public facts to a prepared grouped release: all groups at once where the mechanism allows it."""

from __future__ import annotations

from dataclasses import replace

from hubermean.mechanisms.adaptive.groups import adaptive_groups
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.counts.mechanism import AdaptiveCount, Count
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.grouped import GroupByGroup, GroupMechanism, PreparedGroups, SummedGroups
from hubermean.mechanisms.registry import Auto
from hubermean.types.request import PublicFacts


def resolve_group_mechanism(mechanism: Mechanism, group_split: GroupBudgetSplit) -> Mechanism:
    """The mechanism that will run, as far as the request alone decides it.

    `auto` becomes `clipped` with bounds, and `adaptive` where something is unknown.

    Raises:
        InputError: the mechanism cannot serve this request.
    """
    if isinstance(mechanism, Auto):
        # Groups share the bounds that `adaptive` estimates on all of them, wide data or not.
        able = replace(mechanism, vectors=None).select_able(group_split.means)
        if len(able) == 1:
            mechanism = able[0]
    request = group_split.estimation if isinstance(mechanism, Adaptive | AdaptiveCount) else group_split.means
    mechanism.check(request)
    return mechanism


def needs_pool(mechanism: Mechanism) -> bool:
    """Whether parameters are estimated on a pool: `GroupTable.users`, which has one entry per user."""
    return isinstance(mechanism, Adaptive | AdaptiveCount)


def prepare_groups(
    mechanism: Mechanism, group_split: GroupBudgetSplit, facts: PublicFacts, pool_facts: PublicFacts | None
) -> PreparedGroups:
    """Decide everything that does not need private data.

    Args:
        facts: of the groups, where neither the number of users nor of records is public.
        pool_facts: of the pool, the table of users; needed where `needs_pool`.
    """
    groups: GroupMechanism
    match mechanism:
        case Clipped() | Count():
            changed = replace(mechanism, changes=group_split.changes)
            groups = SummedGroups(
                prepared=changed.prepare(group_split.means, facts), mechanism=mechanism.name
            )
        case Adaptive() | AdaptiveCount():
            assert pool_facts is not None
            groups = adaptive_groups(mechanism, group_split, facts, pool_facts)
        case _:
            prepared = mechanism.prepare(group_split.one_group(), facts)
            groups = GroupByGroup(
                prepared=prepared,
                claim=group_split.means_claim(),
                mechanism=mechanism.name,
                columns=len(group_split.means.columns),
            )
    return PreparedGroups(group_split=group_split, groups=groups)
