"""Federated rounds: averages of client updates that are private for whole clients and survive poisoned ones.

PrivateAverage      all rounds of a run under one budget
AdaptiveThreshold   how the clipping threshold follows the updates
Reply               one client's reply, where replies need names
PrivacySpent        what a run costs
"""

from hubermean.federated.average import PrivateAverage
from hubermean.federated.cohort import Reply
from hubermean.federated.run_audit import RunAudit, audit
from hubermean.federated.spent import PrivacySpent
from hubermean.federated.threshold import AdaptiveThreshold

__all__ = ["AdaptiveThreshold", "PrivacySpent", "PrivateAverage", "Reply", "RunAudit", "audit"]
