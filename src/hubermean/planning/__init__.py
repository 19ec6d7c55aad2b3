"""What each mechanism may be expected to do, before there is any data."""

from hubermean.planning.group_plan import GroupPlan, GroupPlanRow
from hubermean.planning.plan import Plan, PlanRow, plan

__all__ = ["GroupPlan", "GroupPlanRow", "Plan", "PlanRow", "plan"]
