"""What each mechanism may be expected to do, before there is any data."""

from hubermean.planning.plan import Plan, PlanRow, plan

__all__ = ["Plan", "PlanRow", "plan"]
