"""Means that are differentially private for whole people.

>>> import hubermean as hm
>>> release = hm.mean_of_user_means([4.1, 5.0, 3.7], per="user", bounds=(0, 10), epsilon=1e6)
>>> round(release.value, 3)
4.267
"""

from typing import TYPE_CHECKING, Any

from hubermean._version import __version__
from hubermean.api import count, mean, mean_of_user_means
from hubermean.errors import (
    BudgetExhausted,
    HubermeanError,
    InputError,
    LedgerDamaged,
    LedgerUnavailable,
    NotRecorded,
    NotReleased,
)
from hubermean.ingest import sql, vectors
from hubermean.ledger import Ledger
from hubermean.planning import Plan, plan
from hubermean.release import Release
from hubermean.release_table import Refusal, ReleaseTable
from hubermean.unsafe_timings import UnsafeTimings

if TYPE_CHECKING:
    from hubermean.auditing import Audit, audit

__all__ = [
    "Audit",
    "BudgetExhausted",
    "HubermeanError",
    "InputError",
    "Ledger",
    "LedgerDamaged",
    "LedgerUnavailable",
    "NotRecorded",
    "NotReleased",
    "Plan",
    "Refusal",
    "Release",
    "ReleaseTable",
    "UnsafeTimings",
    "__version__",
    "audit",
    "count",
    "mean",
    "mean_of_user_means",
    "plan",
    "sql",
    "vectors",
]


def __getattr__(name: str) -> Any:
    """Names that few sessions use are imported when they are first asked for."""
    if name in ("Audit", "audit"):
        from hubermean import auditing

        return getattr(auditing, name)
    raise AttributeError(f"module 'hubermean' has no attribute {name!r}")
