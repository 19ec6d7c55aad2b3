"""`Ledger`: the ledger of releases, which also checks that every recorded release can be restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubermean.ledger.ledger import BudgetLedger
from hubermean.release.records import is_release_record


class Ledger(BudgetLedger):
    """Privacy budgets of data sets. Releases are charged to it before they are computed.

    Args:
        location: a file name (SQLite), or the URL of a PostgreSQL database for a team.

    Formal guarantees:
    - A release is computed only after its charge is committed, and only if all charges to its data set, this one
      included, add up to at most the total, however many processes charge at the same time (proofs/ledger.md).
    - Entries form a chain of digests: `verify` finds an entry that was removed, altered or moved.
    - Nothing in the ledger comes from the data except for what was released. Its decisions depend on public numbers
      only.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/budget.sqlite")
    >>> ledger.init("trips", epsilon=1.0, user="rider")
    >>> import hubermean as hm, pyarrow as pa
    >>> trips = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0]})
    >>> options = dict(user="rider", value="fare", bounds=(0, 100), per="user", ledger=ledger, dataset="trips")
    >>> first = hm.mean(trips, epsilon=0.75, **options)
    >>> hm.mean(trips, epsilon=0.75, **options).value == first.value  # the same question costs nothing more
    True
    >>> ledger.dataset("trips").left_in_words
    'epsilon = 0.25'
    >>> hm.mean(trips, epsilon=0.5, **options)
    Traceback (most recent call last):
    hubermean.errors.BudgetExhausted: ...
    >>> ledger.verify().sound
    True
    >>> ledger.close(); folder.cleanup()
    """

    def is_record(self, record: Mapping[str, Any]) -> bool:
        """Whether a recorded release can be restored exactly."""
        return is_release_record(record)
