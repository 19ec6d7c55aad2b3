"""`export_ledger`: a ledger as plain data, to be archived, published or checked without this package.

The digest of an entry is the SHA-256 of the canonical JSON (sorted names, no spaces, ASCII) of
`[number, dataset, kind, body, previous]`, where `body` is the canonical JSON of its `content`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from hubermean._version import __version__
from hubermean.errors import HubermeanError, LedgerDamaged, printable
from hubermean.ledger.amounts import Cost, plain
from hubermean.ledger.entries import CHARGES, OUTCOMES, Entry
from hubermean.release.ledger import Ledger
from hubermean.types.formatting import number

_LONGEST = 300  # characters of a text in a table


def export_ledger(ledger: Ledger) -> dict[str, Any]:
    """Return everything in a ledger, with the result of `verify`, which names the damaged entries left out here."""
    verification = ledger.verify()
    entries = []
    with contextlib.suppress(HubermeanError):  # reported by the verification
        for entry in ledger.entries():
            with contextlib.suppress(LedgerDamaged):
                if entry.is_intact:
                    entries.append(export_entry(ledger, entry))
    try:
        datasets = [dataset.to_dict() for dataset in ledger.datasets()]
    except HubermeanError:
        datasets = []
    return {
        "made_with": f"hubermean {__version__}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verification": verification.to_dict(),
        "datasets": datasets,
        "charges": list_charges(entries),
        "entries": entries,
    }


def export_entry(ledger: Ledger, entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data; LedgerDamaged if it does not have the content of its kind."""
    ledger.check_entry(entry)
    return {
        "number": entry.number,
        "dataset": entry.dataset,
        "kind": entry.kind,
        "content": entry.content,
        "previous": entry.previous,
        "digest": entry.digest,
    }


def list_charges(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Describe each charge: question, outcome and cost. `entries` are as from `export_entry`."""
    entries = list(entries)
    outcomes = {
        charge: entry
        for entry in entries
        if entry["kind"] in OUTCOMES and isinstance(charge := entry["content"].get("charge"), int)
    }
    return [
        _describe_charge(entry, outcomes.get(entry["number"]))
        for entry in entries
        if entry["kind"] in CHARGES
    ]


def _describe_charge(charge: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    content = charge["content"]
    line = {"entry": charge["number"], "dataset": charge["dataset"]}
    try:
        cost = Cost.read(content["cost"])
        return line | {
            "at": str(content["at"])[:_LONGEST],
            "what": _describe_question(content["asked"])[:_LONGEST],
            "outcome": _describe_outcome(charge, outcome),
            "loss": plain(cost.loss),
            "delta": plain(cost.delta),
        }
    except (KeyError, TypeError, ValueError, AttributeError, LedgerDamaged):
        return line | {"at": "", "what": "unreadable", "outcome": "", "loss": "0", "delta": "0"}


def _describe_question(description: Mapping[str, Any]) -> str:
    if description.get("statistic") == "elsewhere":
        return printable(str(description.get("note") or ""))
    columns = ", ".join(map(str, description["columns"]))
    by = f" by {', '.join(map(str, description['by']))}" if description.get("by") else ""
    return printable(
        f"{description['statistic']} of {columns}{by}, {description['mechanism']}, from {description['source']}"
    )


def _describe_outcome(charge: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> str:
    if charge["kind"] == "spent":
        return "released elsewhere"
    if outcome is None:
        return "no outcome recorded; the charge counts"
    if outcome["kind"] == "not-released":
        return "not released: the mechanism's private test failed"
    if outcome["kind"] == "failed":
        return "interrupted by an error; the charge counts"
    release = outcome["content"]["release"]
    if "by" in release:
        return f"{len(release['keys']):,} groups"
    values = [number(float(value)) for value in release["values"][:3]]
    return ", ".join(values) + (", ..." if len(release["values"]) > 3 else "")
