"""Means of many groups in one release: which groups, what each may cost, and how all are made together."""

from hubermean.groups.division import Division, check_max_groups
from hubermean.groups.grouped import GroupOutcome, PreparedGroups
from hubermean.groups.prepare import needs_pool, prepare_groups, settled

__all__ = [
    "Division",
    "GroupOutcome",
    "PreparedGroups",
    "check_max_groups",
    "needs_pool",
    "prepare_groups",
    "settled",
]
