"""Audits: the exact privacy loss of a mechanism on adversarial neighbours. Synthetic data only."""

from hubermean.auditing.audit import Audit, audit

__all__ = ["Audit", "audit"]
