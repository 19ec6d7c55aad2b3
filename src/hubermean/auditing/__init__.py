"""Audits: the exact privacy loss of a mechanism on adversarial neighbours. Synthetic data only."""

from hubermean.auditing.audit import GROUP_PAIRS, PAIRS, Audit, audit

__all__ = ["GROUP_PAIRS", "PAIRS", "Audit", "audit"]
