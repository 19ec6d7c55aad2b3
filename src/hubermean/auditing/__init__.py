"""Audits: the exact privacy loss of a mechanism on adversarial neighboring data sets. Synthetic data only."""

from hubermean.auditing.audit import Audit, audit, default_pairs
from hubermean.auditing.containers import CONTAINERS

__all__ = ["CONTAINERS", "Audit", "audit", "default_pairs"]
