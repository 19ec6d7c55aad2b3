"""Means that are differentially private for whole users.

>>> import hubermean as hm
>>> release = hm.mean_of_user_means([4.1, 5.0, 3.7], per="user", bounds=(0, 10), epsilon=1e6)
>>> round(release.value, 3)
4.267
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hubermean._version import __version__
from hubermean.errors import (
    BudgetExhausted,
    HubermeanError,
    InputError,
    LedgerDamaged,
    LedgerUnavailable,
    NotRecorded,
    NotReleased,
)

if TYPE_CHECKING:
    from hubermean._api import count, mean, mean_of_user_means
    from hubermean.auditing import Audit, audit
    from hubermean.ingest import sql, vectors
    from hubermean.planning import GroupPlan, Plan, plan
    from hubermean.release.ledger import Ledger
    from hubermean.types.dry_run import DryRun
    from hubermean.types.release import Release
    from hubermean.types.release_table import Refusal, ReleaseTable
    from hubermean.types.timings import UnsafeTimings

__all__ = [
    "Audit",
    "BudgetExhausted",
    "DryRun",
    "GroupPlan",
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

_MODULES = {
    "Audit": "auditing",
    "DryRun": "types.dry_run",
    "GroupPlan": "planning",
    "Ledger": "release.ledger",
    "Plan": "planning",
    "Refusal": "types.release_table",
    "Release": "types.release",
    "ReleaseTable": "types.release_table",
    "UnsafeTimings": "types.timings",
    "audit": "auditing",
    "count": "_api",
    "mean": "_api",
    "mean_of_user_means": "_api",
    "plan": "planning",
    "sql": "ingest",
    "vectors": "ingest",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import hubermean` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'hubermean' has no attribute {name!r}")
    found = getattr(import_module(f"hubermean.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
