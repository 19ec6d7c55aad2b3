"""A ledger as plain data, for people who keep, publish or check it without this package.

The digest of an entry is the SHA-256 of the JSON text, sorted, without spaces and in ASCII, of
`[number, dataset, kind, body, previous]`, where `body` is the JSON text of its `content`, written in the same way.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hubermean._version import __version__
from hubermean.errors import HubermeanError
from hubermean.ledger.entries import Entry
from hubermean.ledger.ledger import Ledger


def exported(ledger: Ledger) -> dict[str, Any]:
    """All there is in a ledger, with the verdict of `verify`. Damaged entries are left out; the verdict names them."""
    verification = ledger.verify()
    entries = []
    try:
        for entry in ledger.entries():
            if entry.is_whole:
                entries.append(plain_entry(entry))
    except HubermeanError:  # the verdict says so
        pass
    try:
        datasets = [dataset.to_dict() for dataset in ledger.datasets()]
    except HubermeanError:
        datasets = []
    return {
        "made_with": f"hubermean {__version__}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verification": verification.to_dict(),
        "datasets": datasets,
        "entries": entries,
    }


def plain_entry(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "dataset": entry.dataset,
        "kind": entry.kind,
        "content": entry.content,
        "previous": entry.previous,
        "digest": entry.digest,
    }
